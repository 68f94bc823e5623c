"""How long a ticket and its answer took on their way, by two clocks that nobody has set.

Everything that is decided, and every age, is of the loop's clock alone. The server's clock is for the report: how much
of a round trip was the network, how much waiting, how much the inference.

An exchange has four times: the ticket is sent at s and its answer is here at h, on the loop's clock; it was received at
r and answered at a, on the server's. The server's clock is ahead by an offset o. The ticket cannot have arrived before
it was sent, nor the answer: r - o >= s and a - o <= h, so o lies in [a - h, r - s], an interval as long as the round
trip less the time in the server. Its middle is off by half of that at most. The shortest interval of the last 64
exchanges is taken. Two intervals that do not overlap show that a clock was set, or that the two have drifted apart;
then the newer one counts alone.

The loop notes the six numbers of an exchange (`RoundTrip`) and goes on; the parts are computed for the report.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

MOST_JOURNEYS = 100_000
"""That a run remembers, the newest ones."""

_REMEMBERED = 64  # exchanges


class RoundTrip(NamedTuple):
    """When things happened to a ticket, in nanoseconds of the clock of whoever they happened to.

    Attributes:
        server: Number of the server among those that this loop has met; one that starts again is another one.
        sent: By the loop.
        received: By the server, and so the next three.
        began: The inference.
        ended: The inference.
        answered: The answer was sent.
        here: The loop had the answer.
    """

    server: int
    sent: int
    received: int
    began: int
    ended: int
    answered: int
    here: int


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
    """How far a server's clock is ahead of the loop's, from the exchanges with it, in their order."""

    def __init__(self) -> None:
        self._server: int | None = None
        self._known: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # (length of the interval, twice its middle)
        self._best = (0, 0)  # the shortest of them

    def journey(self, trip: RoundTrip) -> Journey | None:
        """Return the parts of an exchange, and remember it; another server is begun anew.

        Returns:
            None if the server's times cannot be: in another order, or longer than the round trip.
        """
        server, sent, received, began, ended, answered, here = trip
        length = (here - sent) - (answered - received)
        if not received <= began <= ended <= answered or length < 0:
            return None
        newest = length, received - sent + answered - here
        self._remember(server, newest)
        shortest, twice = self._best
        out = received - twice // 2 - sent
        parts = out, began - received, ended - began
        return Journey(*parts, here - sent - sum(parts), (shortest + 1) // 2)

    def _remember(self, server: int, newest: tuple[int, int]) -> None:
        known = self._known
        shortest, twice = self._best
        if server != self._server or abs(newest[1] - twice) > newest[0] + shortest:
            self._server = server
            known.clear()
        elif len(known) == _REMEMBERED and known.popleft() == self._best:
            self._best = min(known)
        known.append(newest)
        if len(known) == 1 or newest < self._best:
            self._best = newest


def parts_ms(trips: Iterable[RoundTrip]) -> dict[str, dict[str, float]]:
    """Return mean, p50, p99 and max of each part in milliseconds, and of the doubt; empty without round trips."""
    offsets: defaultdict[int, ClockOffset] = defaultdict(ClockOffset)  # workers may be on machines of their own
    journeys = [journey for trip in trips if (journey := offsets[trip.server].journey(trip)) is not None]
    table = np.asarray(journeys, np.float64).reshape(-1, len(Journey._fields)) / 1e6
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


# One inference, from its start until its action has landed.


@dataclass(frozen=True)
class Span:
    """One inference on the run's time line, in nanoseconds.

    Attributes:
        worker: Who inferred.
        episode: Number of the episode.
        start: Frame of the episode whose observation was read.
        began: When it began.
        ended: When the action was there.
        effect: Frame on which the action took effect; None if it never did.
        applied: When that frame began.
        lag: Age of the weights behind it when it took effect, in updates of all learners; None without learners.
        inference: How long the policy computed, which of a policy on another machine is a part of the span; None on the
            virtual clock.
        transport: How long the rest of its way from the ticket to the action took; None on the virtual clock.
    """

    worker: int
    episode: int
    start: int
    began: int
    ended: int
    effect: int | None = None
    applied: int | None = None
    lag: int | None = None
    inference: int | None = field(default=None, compare=False)
    transport: int | None = field(default=None, compare=False)
