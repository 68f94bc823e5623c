"""What is sent to a machine is sent a frame apart, whatever has held the loop up."""

# Why a machine's frames are not made up
# ======================================
#
# A game's loop that has slept for 3 s plays the 150 frames that it missed at once: each is a frame of the game's
# own time. A machine's time is the wall's. To hurry through its frames would move it 150 times as far in a
# millisecond as it was allowed to in a frame: limits, ramps, the entries of a chunk and the policy's own actions all
# say how far in how many frames. So of a machine no two sends are closer than nearly a frame:
#
#     t_k                               deadline of frame k
#     s_k+1 >= s_k + .985 / fps         when an action is sent
#
# Limits per second are reckoned for .98 of a frame: the rest is for the microseconds from the look at the clock to the
# send, which are not always the same.
#
# A frame that is late by up to half a frame moves no later one: the next sends are each .015 of a frame less late
# until they are on time again, so jitter does not add up. A frame that begins later than that (a missed deadline), or
# whose action would have to wait for longer than that, moves the deadlines by as much: the frames that have passed are
# skipped, not made up.
#
# An action is sent somewhere between the call of `send` and its return. The least time that a call has taken so far is
# taken for its usual one, and all beyond that for a delay before the sending. So a call that hangs counts from its end,
# and sends are apart however that time is spent, but for a call that is quicker than all before it.

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from async_wrappers.schedule.frames import FrameClock

NEARLY = Fraction(985, 1000)  # of a frame, least time between two sends
_RECKONED = Fraction(98, 100)  # of a frame, for limits per second


class Spacing:
    """Tells when a machine may be sent to; all times are nanoseconds of one clock.

    Args:
        fps: Frames per second.
    """

    def __init__(self, fps: Fraction) -> None:
        """See the class."""
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
