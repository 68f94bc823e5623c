"""How a run stands as a frame begins: what `AsyncRunner.run(on_frame=...)` is called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from async_wrappers.live.report.measurements import Measurements

__all__ = ["FrameStatus", "phase_state_of"]


def phase_state_of(env: gym.Env[Any, Any]) -> Any:
    """Return what an environment keeps from phase to phase; None if it has no attribute ``phase_state``."""
    return env.get_wrapper_attr("phase_state") if env.has_wrapper_attr("phase_state") else None


class FrameStatus:
    """A frame that begins; of what is counted, nothing is computed before it is asked for.

    Attributes:
        frame: Frames of this kind of phase before it, those of earlier runs included.
        score: Return of the running episode so far.
    """

    __slots__ = ("_applied", "_env", "_record", "_updates", "frame", "score")

    def __init__(
        self,
        frame: int,
        score: float,
        applied: int,
        record: Measurements,
        env: gym.Env[Any, Any],
        updates: Callable[[], int],
    ) -> None:
        """See the class."""
        self.frame, self.score = frame, score
        self._applied, self._record, self._env, self._updates = applied, record, env, updates

    @property
    def episodes(self) -> int:
        """Episodes of this phase that are over."""
        return len(self._record.episodes)

    @property
    def wins(self) -> int:
        """Of them, those that were won (``info["won"]``)."""
        return sum(episode.won is True for episode in self._record.episodes)

    @property
    def losses(self) -> int:
        """Of them, those that were lost."""
        return sum(episode.won is False for episode in self._record.episodes)

    @property
    def actions(self) -> int:
        """Actions of the policy's that were applied in this phase."""
        return self._applied + sum(map(len, self._record.effects))

    @property
    def updates(self) -> int:
        """Updates of all learners in this phase."""
        return self._updates()

    @property
    def phase_state(self) -> Any:
        """What the environment would keep if the phase ended now."""
        return phase_state_of(self._env)
