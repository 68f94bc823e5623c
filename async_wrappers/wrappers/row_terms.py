"""What a user says of the delays of a vector's rows: numbers, one for each, a range, or a latency."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from async_wrappers.checks import whole, whole_frames
from async_wrappers.latency import as_latency
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.wrappers.action_conversion import RefusedAction, as_action
from async_wrappers.wrappers.copies import VectorEnv

PER = ("episode", "frame")
LONGEST = 100_000  # frames of a delay of rows, which are all kept


class RowTerms(NamedTuple):
    """When decisions start and land, as the user gives it; see `VectorRealtimeDelay`.

    Attributes:
        delay: Frames: a number, one for each row, or a range to draw from.
        noops: Frames: a number, or one for each row.
        latency: A model, or seconds, in the place of `delay`; None for none.
        fps: Frames per second, for the latency.
        per: ``"episode"`` or ``"frame"``: how often a delay is drawn.
        playout: With a latency of each frame, frames from a start to the frame on which its action is due.
    """

    delay: Any = 0
    noops: Any = 0
    latency: Any = None
    fps: Any = None
    per: str = "episode"
    playout: int = 0

    @property
    def asks_for_rows(self) -> bool:
        """Whether rows differ, or delays are drawn."""
        spread = isinstance(self.delay, range) or _is_of_each(self.delay) or _is_of_each(self.noops)
        return self.latency is not None or spread

    @property
    def outlasts_steps(self) -> bool:
        """Whether a decision of a row may act for several steps, as a step is one frame."""
        return self.per == "frame" or (self.asks_for_rows and bool(np.any(np.asarray(self.noops))))

    @property
    def lead_in(self) -> int:
        """Frames before anybody's first action."""
        if self.latency is not None or isinstance(self.delay, range):
            return 0
        return int(np.min(np.asarray(self.delay)))

    def longest(self, num_envs: int) -> tuple[int, int] | None:
        """Return the greatest delay and interval of constants, in frames; None where a latency is drawn."""
        if self.latency is not None:
            return None
        delay = (
            max(self.delay) if isinstance(self.delay, range) else int(frames_of("delay", self.delay, num_envs).max())
        )
        return delay, int(frames_of("noops", self.noops, num_envs).max()) + 1

    def check(self, num_envs: int) -> None:
        """Check them for so many environments.

        Raises:
            ValueError: A number of frames that is none, another length, or terms that exclude each other.
        """
        if self.per not in PER:
            raise ValueError(f"per must be one of {', '.join(map(repr, PER))}, got {self.per!r}")
        if self.latency is not None:
            if isinstance(self.delay, range) or np.any(frames_of("delay", self.delay, num_envs)):
                raise ValueError(f"give delay or a latency, got delay={self.delay!r} and {self.latency!r}")
            if self.fps is None:
                raise ValueError("a latency needs fps, in frames per second, got None")
            as_latency(self.latency)
            FrameClock(self.fps)
            if self.per == "frame" and np.any(frames_of("noops", self.noops, num_envs)):
                raise ValueError(f"per='frame' needs noops=0, got {self.noops!r}")
        elif self.per == "frame":
            raise ValueError("per='frame' needs a latency, got None: give latency= and fps=")
        if self.playout and (self.latency is None or self.per != "frame"):
            raise ValueError(f"playout={self.playout!r} needs a latency and per='frame'")
        if self.latency is None and self.fps is not None:
            raise ValueError(f"fps={self.fps!r} needs a latency")
        whole("playout", self.playout, 0, unit="frames")
        frames_of("noops", self.noops, num_envs)
        if isinstance(self.delay, range):
            if not len(self.delay):
                raise ValueError(f"delay must be a range of some frames, got {self.delay!r}")
            ends = self.delay[0], self.delay[-1]
            if min(ends) < 0 or max(ends) > LONGEST:
                raise ValueError(f"delay must be a range of frames from 0 to {LONGEST:,}, got {self.delay!r}")
        elif self.asks_for_rows and (longest := frames_of("delay", self.delay, num_envs).max()) > LONGEST:
            raise ValueError(f"delay must be <= {LONGEST:,} frames, got {longest}: each of them is kept")
        else:
            frames_of("delay", self.delay, num_envs)


def _is_of_each(given: Any) -> bool:
    """Return whether it is one number for each row, and not one for all."""
    return isinstance(given, list | tuple) or (hasattr(given, "tolist") and bool(np.ndim(given)))


def frames_of(name: str, given: Any, num_envs: int) -> NDArray[np.int64]:
    """Return frames, one number for each row [N].

    Raises:
        ValueError: Another length, or no numbers of frames.
    """
    if not _is_of_each(given):
        return np.full(num_envs, whole_frames(name, given))
    values = given if isinstance(given, list | tuple) else given.tolist()
    if len(values) != num_envs:
        raise ValueError(f"{name} must be one for each of {num_envs} environments, got {given!r}")
    try:
        return np.array([whole_frames(name, each) for each in values], np.int64)
    except ValueError:
        raise ValueError(f"{name} must be whole numbers of frames from 0 on, got {given!r}") from None


def batch_default(default_action: Any, env: VectorEnv) -> NDArray[Any] | None:
    """Return default actions of each row [N, ...] if they are given as such, else None.

    Raises:
        ValueError: One of them is no action.
    """
    space = env.single_action_space
    given, wanted = getattr(default_action, "shape", None), (env.num_envs, *(space.shape or ()))
    if given is None or tuple(given) != wanted or tuple(given) == space.shape:
        return None
    actions = []
    for each in default_action.tolist() if hasattr(default_action, "tolist") else default_action:
        try:
            actions.append(as_action(space, each))
        except RefusedAction as reason:
            raise ValueError(f"default_action must hold actions of {space}, got {each!r}: {reason}") from None
    return np.array(actions, space.dtype)


def is_of_numpy(observations: Any) -> bool:
    """Return whether observations are of NumPy's arrays, or of what is no array."""
    while isinstance(observations, dict | tuple) and observations:
        observations = next(iter(observations.values())) if isinstance(observations, dict) else observations[0]
    return not hasattr(observations, "device") or isinstance(observations, np.ndarray)
