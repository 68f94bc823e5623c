"""A run: what exists of it whatever plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from async_wrappers.agents.experiment.checkpoint import Saving
from async_wrappers.agents.experiment.ending import Ending
from async_wrappers.agents.experiment.metrics import EpisodeTable, Metrics
from async_wrappers.agents.experiment.progress import PhasesShown, WallClock
from async_wrappers.agents.hyperparameters import must
from async_wrappers.agents.needs_and_offers import bound, refuse
from async_wrappers.agents.play.play import Due, Phase, PhaseCounts, encounter_of
from async_wrappers.agents.play.run import Play
from async_wrappers.agents.play.run_settings import Runner
from async_wrappers.files import path_of
from async_wrappers.own_returns import with_own_returns


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

    def due(self) -> Due:
        """Return why the running phase of training is to end now."""
        return Due.END if self.ending.asked else Due.CHECKPOINT if self.saved.is_late() else Due.NOTHING
