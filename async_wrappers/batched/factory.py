"""`create_batched_envs`: N environments of a kind, played in this process, in several, or in two halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.batched.protocol import BatchedEnvs
from async_wrappers.batched.vector_envs import VectorEnvs


def create_batched_envs(
    make_env: Callable[[], Any],
    num_envs: int,
    create_vector_fn: Callable[..., Any] | None = None,
    double_buffered: bool = False,
    processes: int = 0,
    timeout: float | None = 60.0,
) -> BatchedEnvs:
    """Make N environments that are played at once.

    Args:
        make_env: Makes one environment; it travels to processes by cloudpickle.
        num_envs: N.
        create_vector_fn: From ``num_envs=`` to a vector of Gymnasium's, which is played in the place of environments of
            `make_env`; None for none.
        double_buffered: Make two halves that take turns: one steps while the other waits for its actions.
        processes: Number of processes for the environments of `make_env`; 0 plays them in this one.
        timeout: As in `ProcessEnvs`: seconds for a step or a reset of a process; None for no limit.

    Raises:
        ValueError: Numbers that do not fit.
    """

    def make(size: int, processes: int) -> VectorEnvs:
        if create_vector_fn is not None:
            return VectorEnvs(create_vector_fn(num_envs=size))
        if processes:
            return ProcessEnvs(make_env, size, processes, timeout)
        return LocalEnvs(make_env, size)

    if not double_buffered:
        return make(num_envs, min(processes, num_envs))
    sizes = num_envs - num_envs // 2, num_envs // 2
    of_half = (processes + 1) // 2
    one, other = (make(size, min(of_half, size)) for size in sizes)
    return DoubleBuffered(one, other)
