"""How long a ticket and its answer took on their way, by two clocks that nobody has set.

Everything that is decided, and every age, is of the loop's clock alone. The server's clock is for the report: how much
of a round trip was the network, how much waiting, how much the inference.

An exchange has four times: the ticket is sent at s and its answer is here at h, on the loop's clock; it was received at
r and answered at a, on the server's. The server's clock is ahead by an offset o. The ticket cannot have arrived before
it was sent, nor the answer: r - o >= s and a - o <= h, so o lies in [a - h, r - s], an interval as long as the round
trip less the time in the server. Its middle is off by half of that at most. The shortest round trip of the last 64
exchanges is taken; clocks drift by less in that time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

__all__ = ["MOST_JOURNEYS", "ClockOffset", "Journey", "parts_ms"]

MOST_JOURNEYS = 100_000
"""That a run remembers, the newest ones."""

_REMEMBERED = 64  # exchanges


class Journey(NamedTuple):
    """The parts of a round trip, in nanoseconds; their sum is exact, and `out` and `back` are sure to +- `doubt`.

    Attributes:
        out: From the loop's start to the last byte in the server.
        queue: From there to the beginning of the inference.
        inference: Of the policy.
        back: From its end until the loop had the answer.
        doubt: Of the offset of the two clocks.
    """

    out: int
    queue: int
    inference: int
    back: int
    doubt: int


class ClockOffset:
    """How far a server's clock is ahead of the loop's, from the exchanges with it."""

    def __init__(self) -> None:
        """See the module."""
        self._known: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # (length of the interval, twice its middle)
        self._best: tuple[int, int] | None = None  # the shortest of them

    def forget(self) -> None:
        """Begin anew, with another server or another life of it."""
        self._known.clear()
        self._best = None

    def journey(self, sent: int, times: tuple[int, int, int, int], here: int) -> Journey | None:
        """Return the parts of an exchange, and remember it.

        Args:
            sent: When the ticket was sent, on the loop's clock.
            times: When it was received, when its inference began and ended, when the answer was sent, on the server's.
            here: When the answer was here, on the loop's clock.

        Returns:
            None if the server's times cannot be: in another order, or longer than the round trip.
        """
        received, began, ended, answered = times
        length = (here - sent) - (answered - received)
        if not received <= began <= ended <= answered or length < 0:
            return None
        newest = length, received - sent + answered - here
        if len(self._known) == _REMEMBERED and self._known[0] == self._best:
            self._known.popleft()
            self._best = min(self._known)
        self._known.append(newest)
        if self._best is None or newest < self._best:
            self._best = newest
        shortest, twice = self._best
        out = received - twice // 2 - sent
        parts = out, began - received, ended - began
        return Journey(*parts, here - sent - sum(parts), (shortest + 1) // 2)


def parts_ms(journeys: Iterable[Journey]) -> dict[str, dict[str, float]]:
    """Return mean, p50, p99 and max of each part in milliseconds, and of the doubt; empty without journeys."""
    table = np.asarray(list(journeys), np.float64).reshape(-1, len(Journey._fields)) / 1e6
    if not len(table):
        return {}
    columns = {**dict(zip(Journey._fields, table.T, strict=True)), "round_trip": table[:, :-1].sum(1)}
    return {
        name: {
            "mean": float(column.mean()),
            **{f"p{q}": float(np.percentile(column, q)) for q in (50, 99)},
            "max": float(column.max()),
        }
        for name, column in columns.items()
    }
