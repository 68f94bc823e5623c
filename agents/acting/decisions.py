"""Decisions, and the contract of a policy of rows: from rows of observations to rows of actions, as a pure function.

A *row* is one decision's observation. A worker has one row at a time; a batch of environments has many. A policy holds
weights and nothing that acting changes: what it remembers from decision to decision is its `state`, which it is given
and returns, and what it draws is a function of the decision. So an inference whose action is never applied changes
nothing, and a resumed run acts as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from async_wrappers.policy import Decision

__all__ = [
    "Decisions",
    "EpisodeClock",
    "Memories",
    "Outcome",
    "PolicyOutput",
    "RowsPolicy",
    "frames_per_decision",
]


@dataclass(frozen=True, eq=False)
class Decisions(Sequence[Decision]):
    """R decisions in arrays [R], each with the attribute of `Decision` of the same name; read as a sequence of them."""

    episode: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    frame: npt.NDArray[np.int64]
    eval_mode: npt.NDArray[np.bool_]
    env_id: npt.NDArray[np.int64]

    @classmethod
    def of(cls, decisions: Sequence[Decision]) -> Decisions:
        """Return any sequence of decisions in arrays."""
        if isinstance(decisions, Decisions):
            return decisions
        episode, start, frame, eval_mode, env_id = (np.array(column) for column in zip(*decisions, strict=True))
        return cls(episode, start, frame, eval_mode, env_id)

    def __len__(self) -> int:
        """Return R."""
        return len(self.start)

    def __getitem__(self, row: Any) -> Any:
        """Return one decision, or those of a slice."""
        columns: tuple[npt.NDArray[Any], ...] = self.episode, self.start, self.frame, self.eval_mode, self.env_id
        if isinstance(row, slice):
            return Decisions(*(column[row] for column in columns))
        return Decision(*(column[row].item() for column in columns))


class Outcome(NamedTuple):
    """What became of a decision.

    Attributes:
        interval: Frames from its action's effect to the next one's, or to the end of the episode.
        closed: Training frames played when its reward was complete.
        applied: False if the episode ended before its action could land; it then teaches nothing.
    """

    interval: int
    closed: int
    applied: bool


def frames_per_decision(environment: gym.Env[Any, Any]) -> int | None:
    """Return the frames from one decision's effect to the next one's; None if they vary.

    They are the environment's attribute ``decision_interval``, as `RealtimeDelay` has it, and 1 without this attribute.
    """
    if not environment.has_wrapper_attr("decision_interval"):
        return 1
    interval: int | None = environment.get_wrapper_attr("decision_interval")
    return interval


class EpisodeClock:
    """Counts episodes and frames from what the environment reports in ``info["realtime"]``.

    An environment without that report is turn-based: one frame per decision and no delay.
    """

    def __init__(self) -> None:
        """Begin at training frame 0, before the first episode."""
        self.frames = 0
        self.train_episodes = 0
        self.eval_episodes = 0
        self._eval_mode = False
        self._begin = 0  # training frames when the episode began
        self._frame = 0  # frames of this episode

    def begin(self, eval_mode: bool, realtime: Mapping[str, Any] | None = None) -> Decision:
        """Begin an episode and return its first decision."""
        self._eval_mode, self._begin, self._frame = eval_mode, self.frames, 0
        if eval_mode:
            self.eval_episodes += 1
        else:
            self.train_episodes += 1
        return self._decision(0 if realtime is None else int(realtime["start"]))

    def advance(self, realtime: Mapping[str, Any] | None = None) -> tuple[Decision, Outcome]:
        """Return the next decision and what became of the last one."""
        outcome = self.end(realtime)
        return self._decision(self._frame if realtime is None else int(realtime["start"])), outcome

    def end(self, realtime: Mapping[str, Any] | None = None) -> Outcome:
        """Return what became of the last decision."""
        self._frame = self._frame + 1 if realtime is None else int(realtime["frame"])
        if not self._eval_mode:
            self.frames = self._begin + self._frame
        if realtime is None:
            return Outcome(interval=1, closed=self.frames, applied=True)
        return Outcome(int(realtime["interval"]), self.frames, bool(realtime["applied"]))

    def state_dict(self) -> dict[str, int]:
        """Return the counts between two episodes."""
        return {"frames": self.frames, "train_episodes": self.train_episodes, "eval_episodes": self.eval_episodes}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore the counts."""
        self.frames = state["frames"]
        self.train_episodes = state["train_episodes"]
        self.eval_episodes = state["eval_episodes"]

    def _decision(self, start: int) -> Decision:
        episode = (self.eval_episodes if self._eval_mode else self.train_episodes) - 1
        frame = self.frames if self._eval_mode else self._begin + start
        return Decision(episode, start, frame, self._eval_mode)


class Memories(NamedTuple):
    """The state argument of a policy with memory, for R rows: `async_wrappers.policy.Memory` in arrays.

    Attributes:
        core: The state that it returned for these environments' last decisions, [R, S].
        previous_action: The environment's action of their last decisions, [R, ...].
        previous_reward: The rewards of these decisions, float32 [R].
        first: Bool [R], True where an episode begins: nothing of the above is to be read there.
    """

    core: Any
    previous_action: npt.NDArray[Any]
    previous_reward: npt.NDArray[np.float32]
    first: npt.NDArray[np.bool_]


class PolicyOutput(NamedTuple):
    """What a policy returns for R rows.

    Attributes:
        action: The environment's actions, [R, ...].
        state: What the policy remembers, [R, ...]; () for one without memory.
        extras: What it leaves for the learner beside the actions, by name, each [R, ...]; None for nothing.
    """

    action: npt.NDArray[Any]
    state: Any = ()
    extras: Mapping[str, npt.NDArray[Any]] | None = None


class RowsPolicy(Protocol):
    """A pure function of (inputs, state, decisions) and the weights; a worker has it in a `WorkerPolicy`.

    One with memory has two further members: an attribute ``remembers``, True, and a method ``initial_state(rows)``,
    which returns the core that episodes begin with, [rows, S].
    """

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Choose an action for each row.

        Args:
            inputs: Stacks of observations [R, k, *shape], or a dict of them.
            state: `Memories`, which holds what the policy returned for these rows before; () without memory.
            decisions: R of them.
        """

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Read these tensors in place from now on."""

    def weights(self) -> Mapping[str, Any]:
        """Return the weights in the layout that inference reads; not a copy."""
