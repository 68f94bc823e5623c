"""The settings of agents that learn from a replay of sequences, and the replay that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.replay.prefetch import PrefetchedReplay
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.selectors import Selector
from async_wrappers.agents.replay.sequence_replay import create_sequence_replay
from async_wrappers.agents.replay.settings import ReplaySettings
from async_wrappers.agents.settings import again, flag, must, settings, whole

__all__ = ["SequenceSettings", "refuse_priority"]

# Settings of transitions' replays that sequences have no place for.
_WITHOUT = {"one_step_loss": False, "replay_eviction": "oldest", "replay_compression": None, "replay_bytes": None}


@settings
class SequenceSettings(ReplaySettings):
    """What an agent with a replay of sequences declares beside its own settings; a base to stand before `DQN`."""

    burn_in: int = whole(40, "Rows before those that are learnt from.", 0, "rows")
    unroll_length: int = whole(
        80, "Rows that are learnt from: decisions, and the final observation of each episode.", 2, "rows"
    )
    state_period: int = whole(
        40, "Rows from the beginning of one sequence of an environment to that of the next.", 1, "row"
    )
    batch_size: int = whole(64, "Sequences per update.", 1, "sequence")
    replay_scheme: str | Callable[..., Selector] = again(ReplaySettings, "replay_scheme", "prioritized")
    priority_exponent: float = again(ReplaySettings, "priority_exponent", 0.9)
    importance_exponent: float = again(ReplaySettings, "importance_exponent", 0.6)
    prefetch: bool = flag(
        False,
        "Whether the next batch is drawn in a thread while the learner computes. Priorities then take effect one batch "
        "later.",
    )
    actor_priorities: bool = flag(
        False,
        "Let a sequence enter with the priority that follows from the values of acting, as the paper's actors do. "
        "Where none of its errors is known it enters with the largest priority so far. It has an effect where many "
        "environments are played at once.",
    )

    def check_sequences(self) -> None:
        """Check what must hold between the settings of a replay of sequences."""
        rows = self.burn_in + self.unroll_length
        must(
            self.state_period <= rows,
            f"state_period must be <= burn_in + unroll_length = {rows} rows, or some would be in no sequence, got "
            f"{self.state_period}",
        )
        for name, wanted in _WITHOUT.items():
            given = getattr(self, name)
            remedy = ": bind replay_capacity" if name == "replay_bytes" else ""
            must(given == wanted, f"{name} must be {wanted!r} with agent {self.name!r}, got {given!r}{remedy}")
        must(self.priority == "loss", _no_priority(self.name, self.priority))  # bound to DQN

    @property
    def transitions_per_update(self) -> int:
        """Transitions that an update learns from."""
        return self.batch_size * self.unroll_length

    def priority_of_sequences(self, sequences: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """Return what sequences, columns `[M, ...]`, enter with: from the values of acting; NaN where none is known."""
        raise NotImplementedError

    def make_replay(self, seed: int, num_envs: int = 1) -> Replay:
        """Make the replay of sequences, all environments' in one.

        Raises:
            ValueError: It cannot hold a sequence of each environment.
        """
        capacity = 1_000_000 if self.replay_capacity is None else self.replay_capacity
        sequences, period = capacity // self.state_period, self.state_period
        must(
            sequences >= num_envs,
            f"replay_capacity must be >= {period * num_envs} rows, state_period for each of {num_envs} environments, "
            f"got {capacity}",
        )
        exponents = {"priority_exponent": self.priority_exponent, "importance_exponent": self.importance_exponent}
        return create_sequence_replay(
            self.stored_space,
            self.extras,
            length=self.burn_in + self.unroll_length,
            period=period,
            selector=self.replay_scheme,
            capacity=sequences,
            num_envs=num_envs,
            stack_size=self.stored_in_stacks or 1,
            gamma=self.gamma,
            discount_by=self.discount_by,
            batch_size=self.batch_size,
            seed=seed,
            kind=PrefetchedReplay if self.prefetch else Replay,
            priority=self.priority_of_sequences if self.actor_priorities else None,
            **exponents if self.replay_scheme == "prioritized" else {},
        )

    def make_actor_priorities(self, num_envs: int) -> None:
        """Return None: the replay finds the priorities, once a sequence is whole."""


def refuse_priority(agent: str, given: Mapping[str, Any]) -> None:
    """Refuse a `priority` that is bound to an agent of sequences: it would have no effect."""
    must("priority" not in given, _no_priority(agent, given.get("priority")))


def _no_priority(agent: str, value: Any) -> str:
    return (
        f"priority must not be bound with agent {agent!r}, whose sequences have one made by R2D2Agent.eta of all their "
        f"errors, got {value!r}"
    )
