"""Frames in time: when each begins, in whole nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import count, repeat
from operator import floordiv
from typing import Any

# Time is whole nanoseconds and a frame's period P = 10^9 / fps is a fraction: 60 frames a second are 16,666,666.67 ns.
# Floats would give each caller another answer for a time on a frame's edge, and int64 products would overflow, so all
# arithmetic is on Python's integers, with P as numerator and denominator.
#
# A frame begins at the ceiling of k P, a latency is rounded down. So an inference that starts with frame k and takes d
# frames exactly ends at ceil(k P) + floor(d P) <= ceil((k + d) P): it is in time for frame k + d at every frame rate.


class FrameClock:
    """Converts between frames and whole nanoseconds: frame k begins at the ceiling of ``k / fps``.

    Args:
        fps: Frames per second: a number (59.7275 is taken as written) or a `Fraction`.

    Raises:
        ValueError: `fps` is not a positive, finite number.
    """

    def __init__(self, fps: Any) -> None:
        """See the class."""
        try:
            self.fps = fps if isinstance(fps, Fraction) else Fraction(str(fps))
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"fps must be a positive number of frames per second, got {fps!r}") from None
        if self.fps <= 0:
            raise ValueError(f"fps must be > 0 frames per second, got {fps!r}")
        period = Fraction(1_000_000_000) / self.fps
        self._period, self._per = period.numerator, period.denominator  # nanoseconds per frame, as a fraction
        # Nanoseconds by which a time that was rounded down twice may precede a frame; where frames begin on whole
        # nanoseconds, so do whole frames of latency, and nothing is rounded.
        self._early = 0 if self._per == 1 else 2

    def begin(self, frame: int) -> int:
        """Return when a frame begins, in nanoseconds: ``ceil(frame P)`` with ``P = 10^9 / fps``."""
        return -(-frame * self._period // self._per)

    def begins(self, frame: int) -> Iterator[int]:
        """Yield when the frames from `frame` on begin, as `begin`; quicker than a call for each."""
        ceiled = count(frame * self._period + self._per - 1, self._period)
        return map(floordiv, ceiled, repeat(self._per))

    def frame_at(self, time: int) -> int:
        """Return the first frame that begins at `time` nanoseconds or later: ``floor((time - 1) / P) + 1``."""
        return 0 if time <= 0 else (time - 1) * self._per // self._period + 1

    def frame_in(self, time: int) -> int:
        """Return the frame that goes on at `time` nanoseconds, the last one that has begun: ``floor(time / P)``."""
        return time * self._per // self._period

    def aligned(self, time: int, lag: int = 0) -> int:
        """Return `time`, or the frame's beginning plus `lag` where it is before that by no more than rounding.

        Two roundings down of a time that is on a frame are meant: up to two nanoseconds before its beginning, none
        where frames begin on whole nanoseconds.
        """
        begin = -(-((time + self._early) * self._per // self._period) * self._period // self._per) + lag
        return begin if begin > time else time

    def whole(self, duration: int) -> int:
        """Return how many frames a duration is, rounded to nanoseconds either way; 0 if not a whole number."""
        frames = self.frame_at(duration)
        return frames if frames * self._period < (duration + 1) * self._per else 0

    def frames(self, duration: int) -> Fraction:
        """Return how many frames a duration is, exactly; a whole number if it was rounded down from one."""
        frames = -(-duration * self._per // self._period)
        return Fraction(frames if frames * self._period < (duration + 1) * self._per else self.fps * duration / 10**9)
