"""Whether this process itself stood still, so that the time is not held against others.

After Ctrl-Z and `fg`, a breakpoint or a long step of an environment, whatever was waited for seems to be overdue: the
clock has gone on, and nobody has looked whether the answer was there.
"""

from __future__ import annotations

import time

LEAST = 500_000_000  # nanoseconds


class Standstill:
    """Notices for how long this process has not come to look."""

    def __init__(self) -> None:
        """Begin with no look."""
        self._looked: int | None = None
        self._asleep = _asleep()

    def passed(self, now: int, until: int | None = None) -> int:
        """Look at the time; return for how many nanoseconds nobody did, 0 for less than half a second.

        Args:
            now: The time.
            until: How long it waited, of its own will, since the last look; None if it did not.
        """
        since = now if self._looked is None else self._looked
        self._looked = now
        still = now - (since if until is None else max(since, min(until, now)))
        return still if still >= LEAST else 0

    def slept(self) -> int:
        """Return for how many nanoseconds the machine has slept since the last call; Linux tells, other systems 0."""
        before, self._asleep = self._asleep, _asleep()
        slept = self._asleep - before
        return slept if slept >= LEAST else 0


def _asleep() -> int:
    """Return for how long the machine has slept since it was started: the monotonic clock leaves it out."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return 0 if clock is None else time.clock_gettime_ns(clock) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
