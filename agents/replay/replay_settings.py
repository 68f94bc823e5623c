"""The settings of agents that learn from a replay: of transitions, of sequences, or of unrolls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import gin
import numpy as np
import numpy.typing as npt

from async_wrappers.agents.hyperparameters import (
    again,
    choice,
    flag,
    must,
    number,
    setting,
    settings,
    whole,
    with_gin_values,
)
from async_wrappers.agents.losses.loss import Learning
from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.spaces.actions import Actions
from async_wrappers.agents.spaces.compute import Compute, Reader
from async_wrappers.agents.spec import Spec

SCHEMES = ("uniform", "prioritized")  # the selectors that have a name
SOURCE_NAMES = ("queue", "standard", "elite")  # the sources of unrolls that have one
_REPLAYS = {"standard": "StandardReplay", "elite": "EliteReplay"}  # their names in gin
WHEN_FULL = ("wait", "drop_oldest", "drop_newest", "alternate")
TOLERANCE = 1e-6  # of the sum of the shares


def _check_scheme(name: str, value: Any) -> None:
    if not callable(value) and not (isinstance(value, str) and value in SCHEMES):
        raise ValueError(
            f"{name} must be {' or '.join(map(repr, SCHEMES))}, or the class of a selector such as @MySelector, got "
            f"{value!r}"
        )


@settings
class ReplaySettings(Spec):
    """The settings of an agent with a replay; a base class that stands before `NetworkAgent`."""

    update_horizon: int = whole(1, "n of the n-step return: decisions whose rewards are summed.", 1, "decision")
    min_replay_history: int = again(Learning, "min_replay_history", 20_000)
    batch_size: int = whole(32, "Transitions per update.", 1, "transition")
    replay_scheme: str | Callable[..., Any] = setting(
        "uniform",
        '``"uniform"``, or ``"prioritized"`` (Schaul et al. 2016): a transition\'s priority is its loss; or a selector '
        "of your own, ``@MySelector`` in gin.",
        _check_scheme,
    )
    priority_exponent: float = number(
        0.5,
        "alpha: a transition is drawn in proportion to its priority to this power, in [0, 1]; 0.5 is Dopamine's "
        "square root of the loss.",
    )
    importance_exponent: float = number(
        0.5, "beta: how far importance weights undo the bias of these draws, in [0, 1]; 1 undoes all of it."
    )
    priority: str = choice(
        "loss",
        'What a transition\'s priority is: its ``"loss"``; or its ``"error"``, the size of the temporal-difference '
        "error (Schaul et al. 2016, proportional priorities), for agents whose network gives one value for an action.",
        "loss",
        "error",
    )
    priority_epsilon: float = again(Learning, "priority_epsilon")
    actor_priorities: bool = flag(
        False,
        "Let a new transition have a priority of the values that the policy computed to act (Horgan et al. 2018, "
        "Ape-X, section 3), not the largest one. It has an effect where many environments are played at once, with "
        "agents whose network gives one value for an action.",
    )
    replay_capacity: int | None = whole(
        None,
        "Observations kept; None for 1,000,000, or for what `replay_bytes` holds.",
        1,
        "observation",
        none="1,000,000",
    )
    replay_bytes: int | None = whole(
        None,
        "Size of the replay in bytes, in the place of `replay_capacity`: it holds as many observations as fit with "
        "what is stored beside them (`Replay.nbytes`). It must be None where observations are packed.",
        1,
        "byte",
        none="replay_capacity",
    )
    replay_eviction: Literal["oldest", "reservoir"] = choice(
        "oldest",
        'What goes when the replay is full: the ``"oldest"``, or a random transition (``"reservoir"``, for stacks of '
        "one and without priorities).",
        "oldest",
        "reservoir",
    )
    replay_compression: Literal["lz4"] | None = choice(
        None, '``"lz4"`` keeps observations packed (needs the extra ``lz4``); None as they are.', "lz4", none=True
    )

    # Of the agent.
    actions: Actions
    stored_in_stacks: int | None
    gamma: float
    discount_by: Literal["decision", "frame"]
    one_step_loss: bool

    def check_replay(self) -> None:
        """Check conditions on several settings of a replay."""
        there = {
            "uniform draws": self.replay_scheme == "uniform",
            "uneven draws": self.replay_scheme != "uniform",
            "a loss of one step": self.one_step_loss,
            "random eviction": self.replay_eviction == "reservoir",
            "a size in bytes": self.replay_bytes is not None,
            "packed observations": self.replay_compression is not None,
            "a window of actions": getattr(self, "action_window", None) is not None,
        }
        refuse(there, vars(self))

    @property
    def exponents(self) -> dict[str, float]:
        """The exponents of the selector; only a prioritised one has any."""
        if self.replay_scheme != "prioritized":
            return {}
        return {"priority_exponent": self.priority_exponent, "importance_exponent": self.importance_exponent}

    def share_of(self, learners: int) -> Mapping[str, int]:
        """Return the settings of one of several learners: its part of a batch, of the capacity and of the history.

        Raises:
            ValueError: `batch_size` is no multiple of `learners`.
        """
        must(
            self.batch_size % learners == 0,
            f"batch_size must be a multiple of the {learners} learners, got {self.batch_size}",
        )
        size = {"replay_capacity": (self.replay_capacity or 1_000_000) // learners}
        if self.replay_bytes is not None:
            size = {"replay_bytes": self.replay_bytes // learners}
        return {
            **size,
            "batch_size": self.batch_size // learners,
            "min_replay_history": self.min_replay_history // learners,
        }


@settings
class SequenceSettings(ReplaySettings):
    """The settings of an agent with a replay of sequences; a base class that stands before `DQN`."""

    lacks: ClassVar[Mapping[str, str]] = {
        "priority": "whose sequences have one made by R2D2Agent.eta of all their errors",
        "one_step_loss": "whose returns end with the sequence",
        "replay_eviction": "whose oldest sequences go",
        "replay_compression": "whose sequences are kept as they are",
        "replay_bytes": "whose replay_capacity counts rows",
    }

    burn_in: int = whole(
        40, "Rows before those that are learnt from, which only bring the memory up to date.", 0, "rows"
    )
    unroll_length: int = whole(
        80, "Rows that are learnt from: decisions, and the final observation of each episode.", 2, "rows"
    )
    state_period: int = whole(
        40, "Rows from the beginning of one sequence of an environment to that of the next.", 1, "row"
    )
    batch_size: int = whole(64, "Sequences per update.", 1, "sequence")
    replay_scheme: str | Callable[..., Any] = again(ReplaySettings, "replay_scheme", "prioritized")
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
        """Check conditions on several settings of a replay of sequences."""
        rows = self.burn_in + self.unroll_length
        must(
            self.state_period <= rows,
            f"state_period must be <= burn_in + unroll_length = {rows} rows, or some would be in no sequence, got "
            f"{self.state_period}",
        )

    @property
    def transitions_per_update(self) -> int:
        """Transitions that an update learns from."""
        return self.batch_size * self.unroll_length

    def priority_of_sequences(self, sequences: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """Return the first priorities of sequences, columns `[M, ...]`, from acting's values; NaN where unknown."""
        raise NotImplementedError


@settings
class UnrollSettings(Spec):
    """The settings of an agent of unrolls; a base class that stands before `NetworkAgent`."""

    unroll_length: int = whole(100, "T, in rows: decisions, and the final observation of each episode.", 1, "row")
    batch_size: int = whole(32, "Unrolls of an update, B.", 1, "unroll")
    sources: Sequence[tuple[Any, float]] | None = setting(
        None,
        'Where a batch comes from: pairs of a source and its share, such as ``(("queue", 0.5), ("elite", 0.5))``, '
        'whose shares sum to 1. A source is ``"queue"``, ``"standard"``, ``"elite"``, or what makes one, such as '
        "``@StandardReplay``. None: the queue alone.",
        lambda name, value: None,
    )
    prefetch: bool = flag(
        False, "Whether the replays' rows of the next batch are drawn in threads while the learner computes."
    )
    when_full: Literal["wait", "drop_oldest", "drop_newest", "alternate"] = choice(
        "wait",
        'What happens when unrolls come faster than they are learnt: ``"wait"``, acting waits; or one is dropped, '
        '``"drop_oldest"``, ``"drop_newest"`` or ``"alternate"`` (one or the other by chance).',
        *WHEN_FULL,
    )
    queue_capacity: int | None = whole(
        None,
        "Greatest number of unrolls that wait, where some are dropped; at least those of a batch, or of a circular "
        "buffer.",
        1,
        "unroll",
        none="64, or B if that is more; with a circular buffer twice what it holds, if that is more",
    )
    update_period: int = whole(
        1, "Least number of decisions between two updates; it must be 1 where acting waits.", 1, "decision"
    )

    # Of the agent.
    gin_name: str
    reader: Reader
    compute: Compute
    stored_in_stacks: int | None
    gamma: float
    discount_by: Literal["decision", "frame"]
    learning_rate_decay: int | None
    actions: Actions

    buffer_size: int = 1  # batches of a circular buffer, where replay_coefficient is above 1
    with_returns: ClassVar[bool] = False  # whether unrolls have the discounted returns so far
    round_decisions: ClassVar[int | None] = None  # after which unrolls end, of all environments together

    def check_unrolls(self) -> None:
        """Check conditions on several of these settings, and split the sources from their shares."""
        given = [("queue", 1.0)] if self.sources is None else self.sources
        self.sources = checked_sources(given, f"{self.gin_name}.sources")
        self.learns_once = any(source == "queue" for source, _ in self.sources)
        self.replays = any(source != "queue" for source, _ in self.sources)
        kept = self.kept_of(self.batch_size)
        whose = "a batch" if kept == self.batch_size else f"{self.buffer_size} batches"
        must(
            self.queue_capacity is None or self.queue_capacity >= kept,
            f"queue_capacity must be >= {kept} unrolls, those of {whose}, got {self.queue_capacity}",
        )
        refuse({"acting waits": self.learns_once and self.when_full == "wait"}, vars(self))
        must(
            self.unroll_length * self.batch_size >= 2,
            "unroll_length and batch_size must not both be 1: give batch_size >= 2 unrolls",
        )
        decisions = self.unroll_length * self.batch_size
        must(
            2 * self.replay_coefficient <= decisions,
            f"replay_coefficient must be <= {decisions // 2}, half of the {decisions} rows of a batch, since there is "
            f"at most one update for each decision, got {self.replay_coefficient}",
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, in which replays that have a name are those that gin has bound here."""
        sources = [
            (gin.get_configurable(_REPLAYS[source]) if source in _REPLAYS else source, share)
            for source, share in self.sources or ()
        ]
        return {**super().__getstate__(), "sources": with_gin_values(sources)}

    def kept_of(self, unrolls: int) -> int:
        """Return how many unrolls a queue holds at least: those of a batch, or of a circular buffer of such."""
        return unrolls * (self.buffer_size if self.replay_coefficient > 1 else 1)

    def room_for(self, unrolls: int) -> int:
        """Return how many unrolls of batches of a number of them can wait, where some are dropped."""
        by_default = max(64, self.kept_of(unrolls) * min(2, self.replay_coefficient))
        return by_default if self.queue_capacity is None else self.queue_capacity

    def unrolls(self, num_envs: int) -> tuple[int, int]:
        """Return the rows of an unroll, T, and the unrolls of an update, B, with a number of environments."""
        return self.unroll_length, self.batch_size

    @property
    def transitions_per_update(self) -> int:
        """Transitions that an update learns from."""
        return self.batch_size * self.unroll_length

    def share_of(self, learners: int) -> Mapping[str, int]:
        """Return the settings of one of several learners: its part of a batch, and of the queue.

        Each replay divides its own capacity (`replay.unrolls.UnrollReplay`).

        Raises:
            ValueError: `batch_size` is no multiple of `learners`.
        """
        unrolls = self.batch_size
        must(unrolls % learners == 0, f"batch_size must be a multiple of the {learners} learners, got {unrolls}")
        of_each = unrolls // learners
        return {
            "batch_size": of_each,
            "queue_capacity": max(self.room_for(unrolls) // learners, self.kept_of(of_each)),
        }


def checked_sources(sources: Any, name: str = "sources") -> list[tuple[Any, float]]:
    """Return sources with their shares, which sum to 1 within rounding.

    Args:
        sources: Pairs of a source, by its name or its factory, and its share.
        name: The argument's name, for messages.

    Raises:
        ValueError: There is none, a name is unknown, or the shares are not positive or do not sum to 1.
    """
    names = ", ".join(map(repr, SOURCE_NAMES))
    # A dict would lose its order where gin writes it down, and with it which source is which.
    pairs = list(sources) if isinstance(sources, list | tuple) else []
    if not pairs or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError(
            f"{name} must be pairs of a source ({names}, or what makes one) and its share, such as "
            f"[('queue', 0.5), ('standard', 0.5)], got {sources!r}"
        )
    for source, share in pairs:
        if source not in SOURCE_NAMES if isinstance(source, str) else not callable(source):
            raise ValueError(f"{name} must be {names}, or what makes one, such as @StandardReplay, got {source!r}")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"{name} must have shares in (0, 1], got {share!r} for {source!r}")
    total = math.fsum(share for _, share in pairs)
    if abs(total - 1) > TOLERANCE:
        of_one = ", ".join(f"{share / total:.4g}" for _, share in pairs)
        shares = ", ".join(str(share) for _, share in pairs)
        raise ValueError(f"{name} must have shares that sum to 1, got {shares}: give {of_one} for the same proportions")
    return [(source, share) for source, share in pairs]
