"""The frames of an episode, as an agent that takes turns counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from async_wrappers.policy import Decision


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
