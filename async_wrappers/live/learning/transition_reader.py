"""What a learner observes: all transitions of the journal, and where one does not follow the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from async_wrappers.live.memory.journal import Journal

__all__ = ["TransitionReader"]


class TransitionReader:
    """Reads the journal from its oldest entry on, as one of several learners that all observe every transition.

    A replay takes a transition's next observation from the transition that comes next. So a transition that is neither
    terminal nor truncated is followed by its successor: the last one before a gap (entries that the journal has
    overwritten, an episode that was abandoned) is marked truncated, and so bootstrapped on its own next observation. To
    know, a transition is held back until the entry after it is there.

    Args:
        journal: Where transitions come from.
    """

    def __init__(self, journal: Journal) -> None:
        """See the class."""
        self._journal = journal
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
            follows = position == self._position + 1 and numbered is not None
            given = self._held if follows or self._held is None else _cut(self._held)
            self._position = position
            self._held = None if numbered is None else numbered.transition
            if given is not None:
                return given


def _cut(transition: dict[str, Any]) -> dict[str, Any]:
    return transition if transition["terminal"] else {**transition, "truncated": True}
