"""What a backend is made from, and what it offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym

from async_wrappers.latency import Latency
from async_wrappers.live.loop import LoopConfig, PhaseSpec
from async_wrappers.live.report.measurements import Measurements

__all__ = ["RING_DEPTH", "Backend", "RunFailed", "RunSpec", "made_environment"]

RING_DEPTH = 64  # frames that a worker may be late in reading


class RunFailed(RuntimeError):
    """A part of the run has ended for good; what it raised, if anything, is the cause."""


@dataclass(frozen=True)
class RunSpec:
    """An environment, a policy, perhaps a learner, and how they are played; see `AsyncRunner`.

    Attributes:
        make_env: Makes the environment.
        make_policy: Makes one worker's policy.
        config: Workers, frames per second, strategy and so on.
        make_learner: Makes one learner; takes the keywords ``number`` and ``learners`` if it knows them.
        learners: How many.
        journal: Transitions kept in shared memory.
        updates_per_transition: At most so many updates for each transition; None for as many as there is time for.
        pin: Whether each worker stays on one core.
        learner_latency: On the virtual clock, how long an update takes.
        extras: What the policy leaves for the learner beside an action; None for nothing.
    """

    make_env: Callable[[], gym.Env[Any, Any]]
    make_policy: Callable[[], Any]
    config: LoopConfig
    make_learner: Callable[..., Any] | None = None
    learners: int = 0
    journal: int = 10_000
    updates_per_transition: float | None = None
    pin: bool = False
    learner_latency: Latency | None = None
    extras: gym.spaces.Dict | None = None


class Backend(Protocol):
    """Where a run's parts run, from its making to `close`.

    One with learners also has ``save(directory, iteration)``, ``restore(directory, iteration, replays)`` and
    ``forget(directory, keep)``, all called between two phases.
    """

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase; all parts stay up for the next one."""
        ...

    def close(self) -> None:
        """End everything."""
        ...


def made_environment(make_env: Callable[[], Any]) -> gym.Env[Any, Any]:
    """Return what `make_env` makes, if it is an environment.

    Raises:
        ValueError: It is none, or a vector of them.
    """
    env = make_env()
    if not isinstance(env, gym.Env):
        raise ValueError(f"make_env must return a gymnasium.Env (one, not a vector of them), got {env!r}")
    return env
