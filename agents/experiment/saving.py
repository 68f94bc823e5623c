"""When a run writes checkpoints, and under which numbers.

The replays of a checkpoint during an iteration have a number of their own, -2 and below: those of the iteration's end
would be written in their place before the end's checkpoint. -1 is that of a checkpoint before iteration 0.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from async_wrappers.agents.experiment.checkpoint import Checkpointer
from async_wrappers.agents.experiment.progress import duration


class Saving:
    """The checkpoints of a run.

    Args:
        base_dir: The run's directory.
        kept: How many of the newest checkpoints are kept.
        minutes: After which one is due during an iteration; None for never.

    Attributes:
        checkpointer: Writes and finds them.
        replay_number: Of the replays of the checkpoint that was loaded or written last.
        amid_count: Checkpoints during an iteration that were ever written.
        saved_at: When one was written last, by ``time.monotonic()``.
        whole: The newest iteration that was saved at its end, in this process.
    """

    def __init__(self, base_dir: Path, kept: int, minutes: float | None) -> None:
        """See the class."""
        self.checkpointer = Checkpointer(base_dir, kept)
        self._minutes = minutes
        self.replay_number = self.whole = -1
        self._replay_of: dict[int, int] = {}  # numbers of the replays of checkpoints during an iteration
        self.amid_count = 0  # such checkpoints ever written
        self.saved_at = time.monotonic()
        self._unsaved = 0.0  # seconds that an interrupt has lost

    @property
    def directory(self) -> Path:
        """Where they lie."""
        return self.checkpointer.directory

    def is_late(self) -> bool:
        """Return whether a checkpoint is due by the clock."""
        return self._minutes is not None and time.monotonic() - self.saved_at >= 60.0 * self._minutes

    @property
    def next_replay(self) -> int:
        """The number of the replays of the next checkpoint during an iteration."""
        return -2 - self.amid_count

    def begin(self, iteration: int, amid: bool) -> int:
        """Return the number of the replays of a checkpoint that is to be written, and note it."""
        self.replay_number = iteration
        if amid:
            self.replay_number = self._replay_of[iteration] = self.next_replay
            self.amid_count += 1
        return self.replay_number

    def write(self, iteration: int, bundle: Mapping[str, Any], amid: bool) -> set[int]:
        """Write a checkpoint, and return the numbers of the replays of those that are kept."""
        if not amid:
            self._replay_of.pop(iteration, None)
        counted = {"amid_count": self.amid_count, "replay_of": self._replay_of} if self.amid_count else {}
        kept = self.checkpointer.save(iteration, {**bundle, **counted}, amid)
        self._replay_of = {each: number for each, number in self._replay_of.items() if each in kept}
        self.saved_at = time.monotonic()
        return {self._replay_of.get(each, each) for each in kept}

    def load(self, bundle: Mapping[str, Any]) -> None:
        """Take over the numbers that a checkpoint holds."""
        self.amid_count = bundle.get("amid_count", 0)
        self._replay_of = dict(bundle.get("replay_of", {}))

    def note_interrupt(self) -> None:
        """Count what is lost by an interrupt now."""
        self._unsaved = time.monotonic() - self.saved_at

    @property
    def unsaved(self) -> str:
        """What an interrupt has lost, in words; empty where it is nothing."""
        if not self.checkpointer.numbers():
            return "no checkpoint was written, so that the run begins anew"
        return f"{duration(self._unsaved)} since the last checkpoint are lost" if self._unsaved >= 1 else ""

    @property
    def iterations_done(self) -> int:
        """The number of iterations in the newest checkpoint, even if a signal came just after it was written."""
        newest = max(self.checkpointer.numbers(), default=-1)
        return newest + 1 - (newest >= 0 and self.checkpointer.is_amid(newest))
