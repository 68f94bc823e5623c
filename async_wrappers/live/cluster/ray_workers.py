"""`RayWorkers`: the workers of an `AsyncRunner` on the nodes of a Ray cluster."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gymnasium.error import DependencyNotInstalled

from async_wrappers import checks
from async_wrappers.extras import needs_extra
from async_wrappers.live.run_spec import Backend, LoopEnd, RunSpec
from async_wrappers.ray_cluster import joined
from async_wrappers.settings import Settings, documented, setting

if TYPE_CHECKING:
    from async_wrappers.live.cluster.ray_transport import RayTransport


def _address(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or "://" in value:
        raise ValueError(
            f"{name} must be that of a cluster's head, such as '10.0.0.1:6379', or 'auto', or None, got {value!r}"
        )
    return value


def _amount(name: str, value: Any) -> float:
    return checks.number(name, value, "a number >= 0", lambda given: 0 <= given < float("inf"))


def _resources(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{name} must be a dict of names and amounts, such as {{'robots': 1}}, or None, got {value!r}")
    return {key: _amount(f"{name}[{key!r}]", amount) for key, amount in value.items()}


def _runtime_env(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict, such as {{'working_dir': '.'}}, or None, got {value!r}")
    return dict(value)


@dataclass(frozen=True)
class _WorkerArguments(Settings):
    address: str | None = setting(
        None,
        "Of the cluster's head, such as ``'10.0.0.1:6379'``, or ``'auto'`` for the one that this machine belongs to. "
        "None: the cluster that this process is connected to, or else a Ray that is started on this machine, for this "
        "run alone.",
        _address,
    )
    num_cpus: float = setting(
        1, "CPUs that each worker takes of its node; torch has as many threads there.", _amount, "It must be >= 0."
    )
    num_gpus: float = setting(0, "GPUs that each worker takes; 0.25 lets four share one.", _amount, "It must be >= 0.")
    resources: Mapping[str, float] | None = setting(
        None, "Ray's resources of your own that each worker takes, by name.", _resources
    )
    runtime_env: Mapping[str, Any] | None = setting(
        None,
        "Ray's runtime environment of the workers, such as ``{'working_dir': '.'}``, which sends the modules of the "
        "working directory along.",
        _runtime_env,
    )


@documented(_WorkerArguments)
@dataclass(frozen=True)
class RayWorkers(_WorkerArguments):
    """Workers on the nodes of a Ray cluster: ``AsyncRunner(..., backend=RayWorkers("10.0.0.1:6379", num_gpus=0.25))``.

    ``backend="ray"`` is one with the defaults. Each worker is an actor. The environment loop, and learners, have
    processes of this machine, which has to belong to the cluster too (``ray start --address=10.0.0.1:6379
    --num-cpus=0`` lets no worker be placed on it). Ray sends pickles: whoever reaches a cluster can run code on it.

    Raises:
        ValueError: An argument is refused.
    """

    sends_policy = True  # `RunSpec.make_policy`, from here
    patience = 20.0  # seconds that they have to end, a Ray of this run's own included

    def __call__(self, spec: RunSpec) -> Backend:
        """Return the backend.

        Raises:
            DependencyNotInstalled: The extra `ray` is missing.
        """
        from async_wrappers.live.backends.process import ProcessBackend

        if importlib.util.find_spec("ray") is None:
            raise DependencyNotInstalled(needs_extra("backend='ray'", "ray", ImportError("No module named 'ray'")))
        return ProcessBackend(replace(spec, remote=replace(self, address=self.address or joined())))

    def transport(self, end: LoopEnd) -> RayTransport:
        """Connect to the cluster, and start the workers."""
        from async_wrappers.live.cluster.ray_transport import RayTransport

        assert end.policy is not None
        with end.policy.content() as content:
            return RayTransport(end.layout, end.config, self, end.warns, bytes(content), end.board)
