"""Which transitions a learner observes, and where one does not follow the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from async_wrappers.live.memory.journal import Journal

__all__ = ["RUN_LENGTH", "TransitionShard"]

RUN_LENGTH = 64  # transitions in a row that go to one learner


class TransitionShard:
    """Learner l's share of the journal: of every L runs of 64 transitions in a row, run number l.

    A replay may take a transition's next observation from the transition that it is given next. So the last one before
    a gap (another learner's run, what the journal has overwritten, an episode that was abandoned) is marked truncated:
    it is bootstrapped on its own next observation. To know, a transition is held back until the entry after it is
    there.

    Args:
        journal: Where transitions come from.
        number: Which learner this is, l.
        learners: L.
    """

    def __init__(self, journal: Journal, number: int, learners: int) -> None:
        """See the class."""
        self._journal, self._number, self._learners = journal, number, learners
        self._position = journal.oldest()
        self._held: dict[str, Any] | None = None

    def remaining(self) -> Iterator[dict[str, Any]]:
        """Yield all transitions that are in the journal now, the last one too, as if none were to follow it."""
        end = self._journal.entries
        while self._position < end and (transition := self.next()) is not None:
            yield transition
        if self._held is not None:
            held, self._held = _cut(self._held), None
            yield held

    def next(self) -> dict[str, Any] | None:
        """Return the next transition, None if there is none yet."""
        while True:
            position, numbered = self._journal.read(self._position)
            if position == self._position:
                return None
            follows = position == self._position + 1 and numbered is not None and self._owns(numbered.number)
            given = self._held if follows or self._held is None else _cut(self._held)
            self._position = position
            self._held = numbered.transition if numbered is not None and self._owns(numbered.number) else None
            if given is not None:
                return given

    def _owns(self, number: int) -> bool:
        return number // RUN_LENGTH % self._learners == self._number


def _cut(transition: dict[str, Any]) -> dict[str, Any]:
    return transition if transition["terminal"] else {**transition, "truncated": True}
