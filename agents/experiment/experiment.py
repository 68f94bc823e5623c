"""An experiment: iterations of a training and an evaluation phase, with checkpoints, metrics and progress.

It owns a way of playing, which steps the environments (such as `async_wrappers.agents.play.turns.turns.Turns`), and
what a teacher adds to it: nothing (`NoTeaching`), or `async_wrappers.agents.teaching.teaching.Reincarnation`::

    Experiment    resume, iterations, phases, checkpoints, metrics, progress, closing
      teaching    how many iterations there are, how long their phases are, what a training phase is
      play        a phase: episodes, transitions, updates; state, facts and statistics of its own

Castro et al., "Dopamine: a research framework for deep reinforcement learning", 2018; the phases follow Machado et al.,
"Revisiting the Arcade Learning Environment", 2018, section 4.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from async_wrappers.agents.experiment.checkpoint import (
    difference_of,
    load_optimizer,
    load_policy,
    newest_bundle,
)
from async_wrappers.agents.experiment.evaluate import episodes_of, evaluate
from async_wrappers.agents.experiment.film import Film
from async_wrappers.agents.experiment.lock import alone_in
from async_wrappers.agents.experiment.metrics import EpisodeTable, Metrics, ProgressFile, write_facts
from async_wrappers.agents.experiment.pretraining import Pretraining
from async_wrappers.agents.experiment.progress import (
    PhasesShown,
    Progress,
    TimesOfTraining,
    compute_of,
    iteration_line,
    lengths_in_words,
    nothing_landed,
    run_in_words,
    statistics_of,
)
from async_wrappers.agents.experiment.run import Run
from async_wrappers.agents.experiment.video import check_recordable, filmed, recorded
from async_wrappers.agents.hyperparameters import must
from async_wrappers.agents.play.play import (
    NOTHING_PLAYED,
    CheckpointRefused,
    DifferentExperiment,
    EpisodeResult,
    Length,
    Phase,
    PhaseCounts,
    PlayedPhase,
    frames_of,
)
from async_wrappers.agents.play.run_settings import Runner
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turns import Turns
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.trained.agent_file import agent_path, no_such_agent
from async_wrappers.own_code import kept_over_episodes
from async_wrappers.own_returns import reward_changers
from async_wrappers.wrapper_statistics import frozen, has_statistics, layers_of, load_statistics
from async_wrappers.wrapper_statistics import statistics_of as statistics_of_wrappers

if TYPE_CHECKING:
    from async_wrappers.agents.experiment.run import Play
    from async_wrappers.agents.teaching.teaching import Reincarnation


class NoTeaching:
    """One online iteration after the other, without a teacher.

    Attributes:
        iterations: Of the run.
        one_more: The binding that continues a finished run for one iteration.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.iterations = run.settings.num_iterations
        self.one_more = f"Runner.num_iterations = {self.iterations + 1}"

    def prepare(self) -> None:
        """Refuse a student of a teacher, as there is none."""
        spec = getattr(self._run.play.agent, "spec", None)
        if isinstance(spec, Spec):
            spec.check_alone()

    def begin_run(self) -> None:
        """Give the agent what it begins with, where there is no checkpoint: nothing."""

    def begin(self, iteration: int) -> Mapping[Phase, Length]:
        """Begin an iteration, and return the lengths of its phases."""
        return self._run.lengths

    def train(self, length: Length) -> PlayedPhase:
        """Run the iteration's training phase; see `async_wrappers.agents.play.turns.turns.Turns.train`."""
        return self._run.play.train(length)

    def statistics(self, phase: Phase, line: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
        """Return what a phase adds to the iteration's line, which is `line` so far, and to its scalars."""
        return {}, {}

    def state(self) -> dict[str, Any]:
        """Return the entries of a checkpoint."""
        return {}

    def load_state(self, bundle: Mapping[str, Any]) -> None:
        """Restore them from a checkpoint's content: there are none."""

    def identity(self) -> dict[str, Any]:
        """Return plain facts that two runs must share to continue one another."""
        return {}

    def facts(self) -> dict[str, str]:
        """Return facts of the run in words, which replace or complete those of all runs."""
        return {}


@dataclass
class Progressed:
    """How far an iteration is, of which a checkpoint may hold a part, so that the resumed run plays the rest.

    Attributes:
        line: Its statistics so far.
        scalars: Likewise.
        done: The names of the phases that are over.
        trained: What was played of the training phase.
        seconds: How long that took.
    """

    line: dict[str, Any]
    scalars: dict[str, float] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    trained: PlayedPhase = NOTHING_PLAYED
    seconds: float = 0.0

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "trained": self.trained.plain()}


class Experiment(Run):
    """Trains and evaluates an agent, iteration by iteration, and resumes where it was stopped.

    Args:
        base_dir: Where checkpoints and metrics go; an experiment begun there is continued.
        settings: Of every run.
        play: Makes the way of playing.
        teaching: Makes a teacher's part.
        evaluates: Whether there are evaluation phases, where `settings` have them.

    Attributes:
        teaching: The teacher's part.
        num_iterations: In all, those already done included.
        times: Of the parts of training, in this process.
        progress_file: Where a sweep reads how far the run is.
        arm: The name of the sweep's arm that it plays; empty outside of a sweep.
    """

    def __init__(
        self,
        base_dir: str | Path,
        settings: Runner,
        play: Callable[[Run], Play] = Turns,
        teaching: Callable[[Run], NoTeaching | Reincarnation] = NoTeaching,
        evaluates: bool = True,
    ) -> None:
        super().__init__(base_dir, settings, evaluates)
        self.times = TimesOfTraining()
        self.progress_file, self.arm = ProgressFile(self.base_dir), ""
        self.play = play(self)
        dataset = settings.pretrain_dataset
        self._pretraining = None if dataset is None else Pretraining(dataset, settings.pretrain_updates)
        self.teaching = teaching(self)
        self.num_iterations = self.teaching.iterations
        self._begun: Progressed | None = None  # the iteration of which a part was played
        self._loading: Iterator[int] | None = None  # earlier checkpoints that are left, once the run was resumed
        self._refused: dict[int, str] = {}  # why a checkpoint is not used, by its number

    @property
    def agent(self) -> Any:
        """The agent that is trained."""
        return self.play.agent

    # Where it begins.

    def resume(self) -> bool:
        """Continue from the newest good checkpoint, or begin.

        A run begins with the initial checkpoint's weights, if one is named, and with the demonstrations in its replay.

        Returns:
            Whether there was a checkpoint to continue from.

        Raises:
            DifferentExperiment: The checkpoints are of another agent, network or seed; nothing has been changed.
            OtherFormat: The checkpoints are of another version, with another format.
            NoCheckpointLoads: There are checkpoints, and none loads; nothing has been changed.
            ValueError: The initial checkpoint, the demonstrations or the teacher cannot be used.
            gymnasium.error.DependencyNotInstalled: Demonstrations need Minari, and it is missing.
        """
        self.teaching.prepare()
        self.play.check_here()
        self._refused = {}
        self._loading = self._loaded()
        if next(self._loading, None) is not None:
            return True
        self.saved.checkpointer.check_beginning(self._refused)
        if (named := self.settings.initial_checkpoint) is not None:
            path = agent_path(named)
            if not os.path.exists(path):
                places = "a run's directory or one of its checkpoints, "
                raise ValueError(no_such_agent("Runner.initial_checkpoint", named, places))
            initial = newest_bundle(path)
            load_policy(self.agent, *initial)
            self.play.begin_with(self._statistics_in(*initial))
            if self.settings.initial_optimizer:
                load_optimizer(self.agent, *initial)
        if self._pretraining is not None:
            self._pretraining.load(self.agent, self.settings.create_environment_fn, self.settings.seed)
        self.teaching.begin_run()
        return False

    def _loaded(self) -> Iterator[int]:
        """Load the good checkpoints, newest first; yield the number of each when it is loaded."""
        checkpointer, refused = self.saved.checkpointer, self._refused
        for number, bundle in checkpointer.load_each(refused, continues=True):
            self.play.check_kind(bundle)
            if difference := difference_of(bundle.get("identity", {}), self.identity()):
                raise DifferentExperiment(
                    f"base_dir {self.base_dir} holds checkpoints of another experiment ({difference}): "
                    "choose another base_dir, or run with the configuration in its config.gin"
                )
            before, self.counts = self.counts, _counts_of(bundle, self.counts)
            self.saved.number = number
            try:
                self.play.load_state(self.saved.directory, number, bundle)
            except DifferentExperiment:
                raise
            except (OSError, ValueError) as error:
                checkpointer.refuse(number, error, refused)
                self.counts = before
                continue
            self._statistics_in(checkpointer.directory, bundle)
            self._take(bundle)
            if max(refused, default=number) > number:
                logging.warning("the run goes on from checkpoint %d, the newest one that loads", number)
            yield number

    def _statistics_in(self, path: Path, bundle: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the statistics of wrappers in a checkpoint, and warn of those that it lacks."""
        known: Mapping[str, Any] = bundle.get("statistics", {})
        if missing := statistics_of_wrappers(self.environment).keys() - known.keys():
            names = ", ".join(sorted(missing))
            logging.warning("%s holds no statistics of %s, which begins with none", path, names)
        return known

    def _take(self, bundle: Mapping[str, Any]) -> None:
        self.history = bundle["logs"]
        self.clock.before = bundle.get("seconds", 0.0)
        self.start_iteration = bundle["current_iteration"] + 1
        begun = bundle.get("begun")
        self._begun = begun and Progressed(**{**begun, "trained": PlayedPhase.of_plain(begun["trained"])})
        self.teaching.load_state(bundle)

    def go_back(self, error: Exception) -> None:
        """Refuse the checkpoint that was loaded, and load the one before it.

        Raises:
            NoCheckpointLoads: There is none.
        """
        self.saved.checkpointer.refuse(self.saved.number, error, self._refused)
        if self._loading is None or next(self._loading, None) is None:
            self.saved.checkpointer.check_beginning(self._refused)

    def _begin_to_play(self) -> AbstractContextManager[Any]:
        """Start environments and learners, which may go back to an earlier checkpoint."""
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(self.play.begin())
                    return stack.pop_all()
                except CheckpointRefused as error:
                    self.go_back(error)

    # Iterations.

    def run_experiment(self) -> None:
        """Run the iterations that are still to do; each ends with a checkpoint."""
        with alone_in(self.base_dir, nested=True):
            if self._loading is None:
                self.resume()
            write_facts(self.base_dir, self.facts())
            self._warn_of_kept_state()
            if self._pretraining is not None and self._pretraining.pending:
                self._pretraining.run(self.agent, self.base_dir)
                self.write(-1)  # before iteration 0
            self.clock.begin()
            with self._begin_to_play():
                kept = {phase.name.lower(): count for phase, count in self.counts.episodes.items()}
                with (
                    closing(Metrics(self.base_dir, self.history)) as self.metrics,
                    closing(EpisodeTable(self.base_dir, kept)) as self.table,
                ):
                    self.agent.set_report(self.metrics.scalar)
                    self.shown = PhasesShown(
                        Progress(
                            self.start_iteration,
                            self.num_iterations,
                            learnt=self._has_learnt,
                            closing=self._seconds_of_closing,
                            file=self.progress_file,
                        )
                    )
                    try:
                        for iteration in range(self.start_iteration, self.num_iterations):
                            self._run_iteration(iteration)
                            self.start_iteration = iteration + 1
                    except KeyboardInterrupt:
                        self.saved.note_interrupt()
                        raise
        if table := self.play.table():
            print(table, flush=True)

    def _seconds_of_closing(self) -> float:
        """Return about how long the closing table will take; NaN while nothing is known of it."""
        episodes, each = self.settings.report_episodes, self.counts.episodes[Phase.TRAIN]
        if not episodes:
            return 0.0
        return self.times.of_closing(episodes * self.counts.frames / each) if each else math.nan

    def _warn_of_kept_state(self) -> None:
        """Warn of wrappers whose state over episodes cannot be known."""
        for layer in layers_of(self.environment):
            if (kept := kept_over_episodes(layer)) and not has_statistics(layer):
                logging.warning(
                    "wrapper %s keeps %s from episode to episode, which no checkpoint and no evaluation has: give it "
                    "state_dict() and load_state_dict(state), or set it in reset",
                    type(layer).__name__,
                    ", ".join(kept),
                )

    def _has_learnt(self) -> bool:
        """Return whether an update was made, or never will be."""
        return self.agent.updates > 0 or not getattr(self.agent, "learns", True)

    def _run_iteration(self, iteration: int) -> None:
        self.writes = (iteration + 1) % self.play.checkpoint_every == 0 or iteration == self.num_iterations - 1
        lengths = self.teaching.begin(iteration)
        with self.ending.deferred(getattr(self.play, "stop", None)):
            self._run_phases(iteration, lengths)

    def _run_phases(self, iteration: int, lengths: Mapping[Phase, Length]) -> None:
        self._begun = now = self._begun or Progressed({"iteration": iteration})
        with self.shown.iteration(iteration, lengths):
            for phase, length in lengths.items():
                if phase.name in now.done:
                    self.shown.note(phase, length.episodes or 0, length.frames)
                elif length.frames or length.episodes:
                    self._run_phase(phase, length, now)
        self._begun = None
        now.line["frames"] = self.counts.frames
        if self.counts.cut_frames:
            now.line["cut_frames"] = self.counts.cut_frames
        self.metrics.iteration(now.line, now.scalars)
        self.history = self.metrics.history
        if self.writes or self.ending.asked:
            self.write(iteration)
        print(f"{iteration_line(now.line)}; {self.shown.done()}", flush=True)
        if warning := nothing_landed(self.history, self.facts()["delay"]):
            print(warning, flush=True)

    def _run_phase(self, phase: Phase, length: Length, now: Progressed) -> None:
        """Play a phase, or the rest of one: training in parts, an evaluation whole or not at all."""
        trains = phase == Phase.TRAIN
        before, seconds = (now.trained, now.seconds) if trains else (NOTHING_PLAYED, 0.0)
        if before is not NOTHING_PLAYED:
            self.shown.note(phase, len(before.episodes), frames_of(before))
        while True:
            began = time.perf_counter()
            part = (self.teaching.train if trains else self.play.evaluate)(length.after(before))
            took = time.perf_counter() - began
            if trains or part.whole:
                before, seconds = before.and_then(part), seconds + took
                self.counts.encounters[phase] = part.encounter
            if trains:
                now.trained, now.seconds = before, seconds
                self.times.add(took, part.times, frames_of(part))
            if part.whole:
                break
            self.write(now.line["iteration"] - 1, now)
            if self.ending.asked:
                raise self.ending.reason
            self.shown.go_on(phase)
        for line, scalars in (
            statistics_of(phase, before, seconds),
            self.play.statistics(phase, before, took),
        ):
            now.line.update(line)
            now.scalars.update(scalars)
        line, scalars = self.teaching.statistics(phase, now.line)
        now.line.update(line)
        now.scalars.update(scalars)
        now.done.append(phase.name)

    # Checkpoints.

    def write(self, done: int, begun: Progressed | None = None) -> None:
        """Write a checkpoint, and forget the oldest ones.

        Args:
            done: The last iteration that is done.
            begun: The progress in the next one, if a part of it was played.
        """
        with self.ending.writing():
            counts, number = self.counts, self.saved.next_number(done if begun is None else done + 1)
            state = self.play.state(self.saved.directory, number)
            bundle = {
                "identity": self.identity(),
                **state,
                "current_iteration": done,
                "episodes": {phase.name: count for phase, count in counts.episodes.items()},
                "encounters": {phase.name: number for phase, number in counts.encounters.items()},
                "frames": counts.frames,
                **({"cut_frames": counts.cut_frames} if counts.cut_frames else {}),
                "seconds": self.clock.seconds,
                "logs": [line for line in self.history if line["iteration"] <= done],
                **self.teaching.state(),
                **({} if begun is None else {"begun": begun.plain()}),
            }
            self.play.forget(self.saved.directory, self.saved.write(number, bundle))
        self.start_iteration = done + 1

    def identity(self) -> dict[str, Any]:
        """Return plain facts that two runs must share to continue one another."""
        spec = self.environment.unwrapped.spec
        pretraining = {} if self._pretraining is None else {"pretraining": self._pretraining.identity()}
        return {
            **self.play.identity(),
            "environment": None if spec is None else spec.id,
            "seed": self.settings.seed,
            **pretraining,
            **self.teaching.identity(),
        }

    # What it is, and what became of it.

    def facts(self) -> dict[str, str]:
        """Return the run's facts, in words: environment, agent, delay, device, seed and iterations."""
        iterations = f"{self.num_iterations}, each of {lengths_in_words(self.lengths)}"
        facts = {**run_in_words(self.settings, self.environment, self.agent), "iterations": iterations}
        facts |= {"arm": self.arm} if self.arm else {}
        if changers := reward_changers(self.environment):
            facts["rewards"] = f"learnt from as {', '.join(changers)} returns them; returns are those below"
        return {**facts, **self.play.facts(), **self.teaching.facts()}

    def trained_agent(self, checkpoint: Path | None = None) -> Agent:
        """Return a new agent with the weights of a checkpoint, as if it had never played.

        The wrappers of the run's environment get the statistics that belong to these weights.

        Its evaluation is the same at any time and on any machine.

        Args:
            checkpoint: The checkpoint; None for the newest good one of this run.

        Raises:
            DifferentExperiment: The checkpoint is of another way of playing, and this one cannot do with its weights.
            ValueError: There is no good checkpoint.
        """
        path, bundle = newest_bundle(checkpoint or self.base_dir)
        self.play.check_kind(bundle, continues=False)
        agent = self.play.new_agent()
        load_policy(agent, path, bundle)
        load_statistics(self.environment, self._statistics_in(path, bundle))
        if (compute := compute_of(agent)) is not None:
            compute.keep_precision(bundle["agent"].get("learner", {}))
        return agent

    def check_recordable(self) -> None:
        """Refuse to record videos where none can be recorded.

        Raises:
            ValueError: No video can be recorded; the message gives the reason.
        """
        must(not self.play.unrecordable, self.play.unrecordable)
        check_recordable(self.environment)

    def evaluation(
        self,
        agent: Agent,
        episodes: int,
        videos: Path | None = None,
        title: str = "",
        beside: tuple[Experiment, Agent, str] | None = None,
        slow: int | None = None,
    ) -> Sequence[EpisodeResult]:
        """Play evaluation episodes with an agent, whose seeds depend on the run's seed and their number alone.

        Args:
            agent: Plays.
            episodes: How many.
            videos: A directory for a video of each; None records none. See `recorded`.
            title: Of the videos: who plays.
            beside: Another experiment, an agent of its own, and a title: it plays episodes of the same seeds, which the
                videos show beside these.
            slow: How many times as long the videos show an image; None slows short episodes down.

        Raises:
            ValueError: Videos are asked for, and cannot be recorded.
        """
        if videos is not None:
            self.check_recordable()
        if (played := self.play.final(episodes, lambda: newest_bundle(self.base_dir)[1])) is not None:
            return played
        seed, limit = self.settings.seed, self.settings.max_steps_per_episode
        if videos is None:
            with frozen(self.environment):
                return evaluate(agent, self.environment, episodes, seed, limit)
        films = list[Film]()
        with ExitStack() as stack:
            stack.enter_context(frozen(self.environment))
            other = None
            if beside is not None:
                experiment, its_agent, its_title = beside
                stack.enter_context(frozen(experiment.environment))
                its_environment = stack.enter_context(filmed(experiment.environment, its_title, films.append))
                its_episodes = episodes_of(its_agent, its_environment, seed, experiment.settings.max_steps_per_episode)

                def other() -> Film:
                    next(its_episodes)
                    its_environment.cut()
                    return films.pop()

            environment = stack.enter_context(recorded(self.environment, videos, title, other, slow))
            return evaluate(agent, environment, episodes, seed, limit)


def _counts_of(bundle: Mapping[str, Any], before: PhaseCounts) -> PhaseCounts:
    """Return a checkpoint's counts."""
    episodes = {phase: bundle["episodes"][phase.name] for phase in Phase}
    encounters = {Phase[name]: number for name, number in bundle.get("encounters", {}).items()}
    return PhaseCounts(before.encounters | encounters, episodes, bundle["frames"], bundle.get("cut_frames", 0))
