"""A run: what exists of it whatever plays, and when it writes checkpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from async_wrappers.agents.experiment.checkpoint import Checkpointer
from async_wrappers.agents.experiment.ending import Ending
from async_wrappers.agents.experiment.metrics import EpisodeTable, Metrics
from async_wrappers.agents.experiment.progress import PhasesShown, WallClock
from async_wrappers.agents.hyperparameters import must
from async_wrappers.agents.needs_and_offers import bound, refuse
from async_wrappers.agents.play.play import Interruption, Phase, PhaseCounts, encounter_of
from async_wrappers.agents.play.run_settings import Runner
from async_wrappers.agents.timing import duration
from async_wrappers.files import path_of
from async_wrappers.own_returns import with_own_returns

if TYPE_CHECKING:
    from async_wrappers.agents.play.live import Live
    from async_wrappers.agents.play.many.many import Many
    from async_wrappers.agents.play.turns.turns import Turns

    # The ways of playing: who steps the environments, and where the agent acts and learns.
    Play: TypeAlias = Turns | Many | Live


class Run:
    """What exists of a run, whatever plays: directory, settings, environment, counts, clock, metrics, checkpoints.

    An experiment is one, and gives it to its way of playing and to a teacher's part.

    Args:
        base_dir: Where checkpoints and metrics go.
        settings: Of every run.
        evaluates: Whether there are evaluation phases, where `settings` have them.

    Attributes:
        base_dir: As given.
        settings: As given.
        environment: The one that is played in turn, and whose spaces and layers are read.
        lengths: Of the phases, but for iterations that a teacher makes longer or shorter.
        counts: What was played so far; the way of playing counts here.
        clock: Wall time.
        ending: Whether the run was asked to end.
        saved: When checkpoints are written, and under which numbers.
        start_iteration: The running iteration, or the next one.
        writes: Whether the running iteration ends with a checkpoint.
        history: The statistics of the iterations that are done.
        play: Who steps the environments, once it is made.
        table: Of episodes; while the run goes on, like `metrics` (scalars against frames of training) and `shown` (the
            progress).
    """

    play: Play
    table: EpisodeTable
    metrics: Metrics
    shown: PhasesShown

    def __init__(self, base_dir: str | Path, settings: Runner, evaluates: bool) -> None:
        """Make the environment; nothing is written.

        Raises:
            ValueError: Settings do not fit one another.
        """
        refuse({"no first checkpoint": settings.initial_checkpoint is None}, bound(settings))
        torch.set_num_threads(settings.threads)
        self.base_dir, self.settings, self.lengths = path_of(base_dir), settings, settings.lengths(evaluates)
        self.saved = Saving(self.base_dir, settings.checkpoint_duration, settings.checkpoint_minutes)
        self.environment = with_own_returns(settings.create_environment_fn())
        kind = type(self.environment).__name__
        must(
            hasattr(self.environment, "observation_space"),
            f"Runner.create_environment_fn must make an environment, not a {kind}: bind another function",
        )
        self.counts = PhaseCounts(dict.fromkeys(Phase, encounter_of(self.environment)))
        self.clock, self.ending = WallClock(), Ending()
        self.start_iteration, self.writes, self.history = 0, False, list[dict[str, Any]]()

    def due(self) -> Interruption:
        """Return why the running phase of training is to end now."""
        return (
            Interruption.END
            if self.ending.asked
            else Interruption.CHECKPOINT
            if self.saved.is_late()
            else Interruption.NOTHING
        )


# When a run writes checkpoints, and under which numbers.


class Saving:
    """The checkpoints of a run.

    The number of a checkpoint is that of its iteration, or the one after the last checkpoint's where that is larger:
    where a part of an iteration was saved, all later numbers are larger by one.

    Args:
        base_dir: The run's directory.
        kept: How many of the newest checkpoints are kept.
        minutes: After which one is due during an iteration; None for never.

    Attributes:
        checkpointer: Writes and finds them.
        number: Of the checkpoint that was loaded or written last; -2 before there is one.
        saved_at: When one was written last, by ``time.monotonic()``.
    """

    def __init__(self, base_dir: Path, kept: int, minutes: float | None) -> None:
        """Look for nothing yet."""
        self.checkpointer = Checkpointer(base_dir, kept)
        self._minutes, self.number = minutes, -2
        self.saved_at = time.monotonic()
        self._unsaved = 0.0  # seconds that an interrupt has lost

    @property
    def directory(self) -> Path:
        """Where they lie."""
        return self.checkpointer.directory

    def is_late(self) -> bool:
        """Return whether a checkpoint is due by the clock."""
        return self._minutes is not None and time.monotonic() - self.saved_at >= 60.0 * self._minutes

    def next_number(self, iteration: int) -> int:
        """Return the number of the next checkpoint, at the end of an iteration or during it."""
        return max(iteration, self.number + 1)

    def write(self, number: int, bundle: Mapping[str, Any]) -> set[int]:
        """Write a checkpoint, and return the numbers of those that are kept."""
        kept = self.checkpointer.save(number, bundle)
        self.number, self.saved_at = number, time.monotonic()
        return kept

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
        return self.checkpointer.iterations_done(max(self.checkpointer.numbers(), default=-1))
