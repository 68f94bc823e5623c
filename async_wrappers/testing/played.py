"""`Played`: a latency that plays a list of whole nanoseconds, for tests that set the duration of each inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MS = 1_000_000  # nanoseconds


class Played:
    """The n-th inference takes the n-th number; each stream starts with the first one, for any seed.

    Args:
        nanoseconds: Latencies, played round and round.
    """

    def __init__(self, nanoseconds: Sequence[int]) -> None:
        self.nanoseconds = list(nanoseconds)
        self.mean = sum(self.nanoseconds) / len(self.nanoseconds) / 1e9  # seconds

    def stream(self, seed: Any) -> PlayedStream:
        """Return the list from its beginning."""
        return PlayedStream(self.nanoseconds)

    def __repr__(self) -> str:
        return f"Played({self.nanoseconds})"


class ChangesLater(Played):
    """Plays the list as far as `same` draws and, once `changed` is set, other latencies from there on."""

    def __init__(self, nanoseconds: Sequence[int], same: int, others: Sequence[int]) -> None:
        super().__init__(nanoseconds)
        self.same, self.others, self.changed = same, others, False

    def stream(self, seed: Any) -> PlayedStream:
        """Return the list from its beginning, the rest of which is another one if `changed`."""
        if not self.changed:
            return super().stream(seed)
        beginning = [self.nanoseconds[n % len(self.nanoseconds)] for n in range(self.same)]
        return PlayedStream(self.others, beginning)


class PlayedStream:
    """Plays `beginning` once and then `rest` round and round."""

    def __init__(self, rest: Sequence[int], beginning: Sequence[int] = ()) -> None:
        self._beginning, self._rest, self._drawn = beginning, rest, 0

    def draw(self) -> int:
        """Return the next latency in nanoseconds."""
        number = self._drawn
        self._drawn += 1
        if number < len(self._beginning):
            return self._beginning[number]
        return self._rest[(number - len(self._beginning)) % len(self._rest)]
