"""Episodes as the environment loop writes them: a ledger closes decisions, and a journal keeps them."""

from __future__ import annotations

from typing import Any

from async_wrappers.live.memory.journal import Journal
from async_wrappers.wrappers.ledger import Ledger


class JournalWriter:
    """Writes into a journal what its ledger closes.

    Args:
        journal: Written.

    Attributes:
        ledger: Rewards are added to its own.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal, self.ledger = journal, Ledger(None)

    def land(self, observation: Any, action: Any, frame: int) -> None:
        """Let a decision land, which completes the one before."""
        self._journal.apply(observation, action)
        if self.ledger.effect is not None:
            self._journal.close(*self.ledger.close(frame))
        self.ledger.land(frame, frame, action, None)

    def end(self, terminal: bool, final: Any, frame: int) -> None:
        """End the episode after its last frame."""
        if self.ledger.effect is not None:
            self._journal.end(*self.ledger.close(frame), terminal=terminal, final=final)
        self.ledger.begin()
