"""From frames to transitions: which frames' rewards belong to which decision (rule 3 of a schedule)."""

from __future__ import annotations

from typing import Any

from async_wrappers.live.memory.journal import Journal

__all__ = ["Transitions"]


class Transitions:
    """The decisions of one episode, as they take effect; without a journal nothing is kept.

    Decision j's reward is the sum over frames ``e_j .. e_{j+1} - 1``; rewards before ``e_0`` go to decision 0. An
    episode that ends before ``e_0`` has no transition.
    """

    def __init__(self, journal: Journal | None) -> None:
        """See the class."""
        self._journal = journal
        self._effect: int | None = None  # of the decision whose frames run
        self._reward = 0.0

    def apply(self, observation: Any, action: Any, frame: int, extras: Any = None) -> None:
        """A decision takes effect; the one before it is complete."""
        if self._journal is None:
            return
        self._journal.apply(observation, action, extras)
        if self._effect is not None:
            self._journal.close(self._reward, frame - self._effect)
            self._reward = 0.0
        self._effect = frame

    def reward(self, reward: float) -> None:
        """Add a frame's reward."""
        self._reward += reward

    def end(self, terminal: bool, final: Any, frame: int) -> None:
        """The episode has ended after `frame` frames; a cut one (`terminal` False) is bootstrapped on `final`."""
        if self._journal is not None and self._effect is not None:
            self._journal.end(self._reward, frame - self._effect, terminal, final)

    def abandon(self) -> None:
        """The run ends in the middle of the episode: its last decision has no outcome."""
        if self._journal is not None:
            self._journal.abandon()
