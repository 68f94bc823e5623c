"""Frames in time: when each begins, in whole nanoseconds, and how far apart what is sent to a machine is."""

from __future__ import annotations

import math
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


def as_fraction(value: Any) -> Fraction:
    """Return a number as it is written: 59.7275, "59.7275" and "23891/400" are the same.

    Raises:
        ValueError: It is no finite number, or too large for a float; Python would write out all the digits of
            ``"1e99999999"``.
    """
    if isinstance(value, Fraction):
        return value
    text = str(value)
    try:
        near = 1.0 if "/" in text else float(text)
        # What is too small for a float is 0, whose digits need not be written out either.
        found = Fraction(text) if near and math.isfinite(near) else Fraction(near)
        float(found)
    except (ArithmeticError, ValueError):
        raise ValueError(f"a finite number was expected, got {value!r:.100}") from None
    return found


class FrameClock:
    """Converts between frames and whole nanoseconds: frame k begins at the ceiling of ``k / fps``.

    Args:
        fps: Frames per second: a number (59.7275 is taken as written) or a `Fraction`.

    Raises:
        ValueError: `fps` is not a positive, finite number.
    """

    def __init__(self, fps: Any) -> None:
        try:
            self.fps = as_fraction(fps)
        except ValueError:
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


# What is sent to a machine is sent a frame apart, whatever has held the loop up.


NEARLY = Fraction(985, 1000)  # of a frame, least time between two sends
_RECKONED = Fraction(98, 100)  # of a frame, for limits per second


class Spacing:
    """Tells when a machine may be sent to; all times are nanoseconds of one clock.

    Args:
        fps: Frames per second.
    """

    def __init__(self, fps: Fraction) -> None:
        self._period = 1_000_000_000 / fps
        self._gap, self._half = math.ceil(NEARLY * self._period), int(self._period / 2)
        self._rest = int(self._period * 3 / 2)
        self._called: int | None = None  # when it was sent to last, at the earliest, and at the latest
        self._sent: int | None = None
        self._took: int | None = None  # least time that a call took

    @property
    def next_send(self) -> int:
        """When it may be sent to again, at the earliest; 0 before the first time."""
        return 0 if self._sent is None else self._sent + self._gap

    def skipped(self, late: int) -> int:
        """Return how many frames are skipped where one is so late; 0 if that is half a frame at most."""
        return 0 if late <= self._half else max(1, round(late / self._period))

    def is_at_rest(self, now: int) -> bool:
        """Return whether nothing was sent for more than a frame and a half, so that what moved has had to stop."""
        return self._called is not None and now - self._called > self._rest

    def sent(self, began: int, ended: int) -> None:
        """Note a call of `send`."""
        self._called, took = began, ended - began
        self._sent = ended if self._took is None else ended - min(took, self._took)
        self._took = took if self._took is None else min(took, self._took)


def fastest(fps: Any) -> Fraction:
    """Return the frames per second for which a machine's limits per second are reckoned, so that none is exceeded."""
    return FrameClock(fps).fps / _RECKONED
