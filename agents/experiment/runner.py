"""Dopamine's runner: iterations of a training and an evaluation phase, each of whole episodes.

Castro et al., "Dopamine: a research framework for deep reinforcement learning", 2018; the phases follow Machado et al.,
"Revisiting the Arcade Learning Environment", 2018, section 4. All lengths count frames: steps of the innermost
environment, which are the agent's steps where nothing delays it.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import gin
import gymnasium as gym
import torch
from absl import logging

from async_wrappers.agents.agent import Agent
from async_wrappers.agents.demonstrations.demonstration import delay_in_words
from async_wrappers.agents.experiment.checkpoint import CHECKPOINTS, Checkpointer, read_bundle
from async_wrappers.agents.experiment.demonstrations import Pretraining
from async_wrappers.agents.experiment.ending import Ending
from async_wrappers.agents.experiment.episode import (
    Episode,
    Phase,
    Played,
    Watched,
    closing_line,
    encounter_of,
    episode_seed,
    facts,
    frames_of,
    go_to_encounter,
    play_episode,
)
from async_wrappers.agents.experiment.evaluate import evaluate
from async_wrappers.agents.experiment.gin_text import code_in, strangers
from async_wrappers.agents.experiment.lock import alone_in
from async_wrappers.agents.experiment.metrics import EpisodeRow, EpisodeTable, Metrics, write_facts
from async_wrappers.agents.experiment.progress import Progress
from async_wrappers.agents.experiment.unread import ByName
from async_wrappers.agents.experiment.video import check_recordable, recorded
from async_wrappers.agents.replay.segments import DamagedReplay
from async_wrappers.agents.spec import check_flags, with_gin_values
from async_wrappers.agents.timing import PARTS, PartTimes

__all__ = [
    "SUMMED_UP",
    "DifferentExperiment",
    "Length",
    "Runner",
    "TrainRunner",
    "check_whole",
    "newest_bundle",
    "own_modules",
    "portable",
]

CreateAgent = Callable[..., Agent]
CreateEnvironment = Callable[..., gym.Env[Any, Any]]
_create_agent = ByName("agents.create_agent")


class DifferentExperiment(ValueError):
    """The directory holds checkpoints of an experiment that this one cannot continue."""


class Length(NamedTuple):
    """How long a phase is: so many episodes, or if that is None, at least so many frames."""

    frames: int
    episodes: int | None


@gin.configurable(module="agents")
class Runner:
    """Trains and evaluates an agent, iteration by iteration, and resumes where it was stopped.

    Args:
        base_dir: Where checkpoints and metrics go; an experiment begun there is continued.
        create_environment_fn: Makes the environment, such as ``@create_atari_environment``.
        create_agent_fn: Makes the agent from (environment, seed=).
        seed: Of the whole run: environment, evaluation, agent, replay and default action.
        num_iterations: Iterations in all, those already done included.
        training_steps: Frames of a training phase, at least; it ends with an episode.
        evaluation_steps: Frames of an evaluation phase, at least; 0 leaves it out, whatever `evaluation_episodes` is.
        training_episodes: Length of a training phase in episodes, instead of `training_steps`.
        evaluation_episodes: Length of an evaluation phase in episodes, instead of `evaluation_steps`; 0 leaves it out,
            None counts frames.
        max_steps_per_episode: Frames after which an episode is cut (a truncation), None for no limit.
        checkpoint_duration: How many of the newest checkpoints are kept.
        initial_checkpoint: A checkpoint file or a run's directory whose weights the first iteration begins with. All
            else is new: settings, schedules, counts, replay and statistics.
        initial_optimizer: Begin with that checkpoint's moments of the optimiser, too.
        pretrain_dataset: Demonstrations that the agent learns from before the first iteration: a Minari id, a
            directory, or a pickle of the published layout (`async_wrappers.agents.demonstrations`); None for none.
        pretrain_updates: Updates on them.
        report_episodes: Episodes of each of the trained, the random and the no-op agent that the closing table
            compares, with seeds that are the same for all three; 0 leaves the table out.
        threads: Intra-op threads of PyTorch in this process.
        overlap: Compute each update in a thread while the environment steps on (`turn_based.Overlap`): the agent
            acts on weights of one update earlier, so results differ from those without, and are the same from run to
            run.
        exact_resume: Where many environments are played at once: cut all games where a checkpoint is written, in the
            uninterrupted run too, so that a resumed run equals it bit for bit. False lets games go on over
            checkpoints; a run that is resumed begins new ones, and differs from there on. One environment's games are
            never cut, and its resumed runs are always equal.
        checkpoint_minutes: Minutes after which a checkpoint is written in the midst of an iteration; None for none.

    Raises:
        ValueError: An argument out of range, or an environment that the agent cannot play.
    """

    def __init__(
        self,
        base_dir: str | Path,
        create_environment_fn: CreateEnvironment = gin.REQUIRED,
        create_agent_fn: CreateAgent = _create_agent,
        seed: int = 0,
        num_iterations: int = 200,
        training_steps: int = 250_000,
        evaluation_steps: int = 125_000,
        training_episodes: int | None = None,
        evaluation_episodes: int | None = None,
        max_steps_per_episode: int | None = 27_000,
        checkpoint_duration: int = 4,
        initial_checkpoint: str | None = None,
        initial_optimizer: bool = False,
        pretrain_dataset: str | None = None,
        pretrain_updates: int = 16_000,
        report_episodes: int = 0,
        threads: int = 1,
        overlap: bool = False,
        exact_resume: bool = False,
        checkpoint_minutes: float | None = None,
    ) -> None:
        """See the class."""
        check_whole(0, seed=seed, num_iterations=num_iterations, evaluation_steps=evaluation_steps)
        check_whole(0, report_episodes=report_episodes, pretrain_updates=pretrain_updates)
        check_whole(1, training_steps=training_steps, threads=threads)
        if evaluation_episodes is not None:
            check_whole(0, evaluation_episodes=evaluation_episodes)
        optional = {"training_episodes": training_episodes, "max_steps_per_episode": max_steps_per_episode}
        check_whole(1, **{name: value for name, value in optional.items() if value is not None})
        check_flags(initial_optimizer=initial_optimizer, exact_resume=exact_resume)
        if checkpoint_minutes is not None and (
            not isinstance(checkpoint_minutes, int | float)
            or isinstance(checkpoint_minutes, bool)
            or not 0 < checkpoint_minutes < math.inf
        ):
            raise ValueError(f"Runner.checkpoint_minutes must be > 0 minutes or None, got {checkpoint_minutes!r}")
        if initial_optimizer and initial_checkpoint is None:
            raise ValueError("Runner.initial_optimizer must be False where Runner.initial_checkpoint=None, got True")
        factory("Runner.create_environment_fn", create_environment_fn, "@create_gym_environment")
        factory("Runner.create_agent_fn", create_agent_fn, "@create_agent")
        torch.set_num_threads(threads)
        self.base_dir = Path(base_dir)
        self.seed = seed
        self.num_iterations = num_iterations
        self.report_episodes = report_episodes
        self.max_steps_per_episode = max_steps_per_episode
        evaluation = Length(evaluation_steps, evaluation_episodes)
        self._lengths = {
            Phase.TRAIN: Length(training_steps, training_episodes),
            # Files bind one of the two, and a user who binds the other one to 0 means the same.
            Phase.EVAL: Length(0, None) if 0 in (evaluation_steps, evaluation_episodes) else evaluation,
        }
        self._checkpointer = Checkpointer(self.base_dir, checkpoint_duration)
        self.environment = create_environment_fn()
        if not hasattr(self.environment, "observation_space"):
            kind = type(self.environment).__name__
            raise ValueError(
                f"Runner.create_environment_fn must make an environment, not a {kind}: bind another function"
            )
        self._create_agent = create_agent_fn
        self.agent = self._new_agent()
        self.agent.keep_diverged_in(self.base_dir)
        self._overlap = overlap
        if overlap:
            self.agent.overlap_learning()
        self._episodes = dict.fromkeys(Phase, 0)
        # Each phase follows the order by itself.
        self._encounters: dict[Phase, int | None] = dict.fromkeys(Phase, encounter_of(self.environment))
        self._frames = 0
        self._lost = 0  # transitions of the replay that damaged files have cost, not yet in an iteration's line
        self._history: list[dict[str, Any]] = []
        self._progress: Progress | None = None
        self._played = dict.fromkeys(Phase, (0, 0))  # episodes and frames of the running iteration
        self._create_environment = create_environment_fn
        self._initial_checkpoint, self._initial_optimizer = initial_checkpoint, initial_optimizer
        self._pretraining = None if pretrain_dataset is None else Pretraining(pretrain_dataset, pretrain_updates)
        self.exact_resume, self.checkpoint_minutes = exact_resume, checkpoint_minutes
        self._ending = Ending()
        self._amid: dict[str, Any] | None = None  # how far the iteration is with which a resumed run begins
        self._iteration: dict[str, Any] = {}  # how far the running one is, at its last phase's beginning
        self._replay_of: dict[int, int] = {}  # numbers of the replays of checkpoints in the midst of an iteration
        self._amid_count = 0  # such checkpoints ever written
        self._replay_number = -1  # of the checkpoint that was loaded or written last
        self._saved_at = time.monotonic()
        self._resumed = False
        self.start_iteration = 0
        self._seconds_before, self._session_began = 0.0, time.time()  # of wall time
        self._table: EpisodeTable | None = None
        self._times: dict[str, float] = {}  # seconds of the parts of training, in this process
        self._training_seconds = 0.0  # in this process

    def resume(self) -> bool:
        """Continue from the newest good checkpoint, or begin.

        A checkpoint of which only old segments of the replay are damaged is good where no whole one is left: the run
        then goes on without their transitions, and says so.

        A run begins with the initial checkpoint's weights, if one is named, and with the demonstrations in its replay.

        Returns:
            Whether there was a checkpoint to continue from.

        Raises:
            DifferentExperiment: The checkpoints are of another agent, network or seed; nothing has been changed.
            OtherFormat: The checkpoints are of another version, which writes them otherwise.
            NoCheckpointLoads: There are checkpoints, and none loads; nothing has been changed.
            ValueError: The initial checkpoint or the demonstrations cannot be used.
            gymnasium.error.DependencyNotInstalled: Demonstrations need Minari, and it is missing.
        """
        self._resumed = True
        checkpointer, refused = self._checkpointer, dict[int, str]()
        whole = ((number, bundle, False) for number, bundle in checkpointer.load_each(refused, continues=True))
        # Those that lack a part of their replay: found on the way through the whole ones, and tried after them.
        damaged: list[tuple[int, dict[str, Any], bool]] = []
        for number, bundle, partial in chain(whole, damaged):
            self._check_identity(bundle.get("identity", {}))
            try:
                self._replay_number = replay = bundle.get("replay", number)
                lost = self.agent.unbundle(checkpointer.directory, replay, bundle["agent"], partial=partial)
            except (OSError, ValueError) as error:
                if isinstance(error, DamagedReplay) and not partial:
                    damaged.append((number, bundle, True))
                checkpointer.refuse(number, error, refused)
                continue
            self._take_counts(bundle)
            if partial:
                self._warn_of_lost(number, lost)
            self._warn_of_earlier(number, refused)
            return True
        checkpointer.check_beginning(refused)
        if self._initial_checkpoint is not None:
            initial = newest_bundle(Path(self._initial_checkpoint))
            _load_policy(self.agent, *initial)
            if self._initial_optimizer:
                _load_optimizer(self.agent, *initial)
        if self._pretraining is not None:
            self._pretraining.load(self.agent, self._create_environment, self.seed)
        return False

    def _warn_of_earlier(self, number: int, refused: Mapping[int, str]) -> None:
        """Say that the run goes on from an earlier checkpoint than the newest one."""
        if max(refused, default=number) > number:
            logging.warning("the run goes on from checkpoint %d, the newest one that loads", number)

    def _warn_of_lost(self, number: int, lost: int) -> None:
        """Say, now and in the line of the next iteration, how many transitions the replay has lost."""
        self._lost += lost
        logging.warning(
            "checkpoint %d is used though files of its replay are damaged: %d transitions are lost, and from here on "
            "the run differs from an undisturbed one",
            number,
            lost,
        )

    def _take_counts(self, bundle: Mapping[str, Any]) -> None:
        self._episodes = {phase: bundle["episodes"][phase.name] for phase in Phase}
        self._encounters |= {Phase[name]: number for name, number in bundle.get("encounters", {}).items()}
        self._frames = bundle["frames"]
        self._lost = bundle["lost_transitions"]
        self._history = bundle["logs"]
        self._seconds_before = bundle.get("seconds", 0.0)  # checkpoints of older versions lack it
        self.start_iteration = bundle["current_iteration"] + 1
        self._amid, self._amid_count = bundle.get("amid"), bundle.get("amid_count", 0)
        self._replay_of = dict(bundle.get("replay_of", {}))

    @property
    def one_more(self) -> str:
        """The binding that lets a run that is finished go on for an iteration."""
        return f"Runner.num_iterations = {self.num_iterations + 1}"

    @property
    def iterations_done(self) -> int:
        """How many iterations the newest checkpoint holds, also where a signal came just after it was written."""
        newest = max(self._checkpointer.numbers(), default=-1)
        return newest + 1 - (newest >= 0 and self._checkpointer.is_amid(newest))

    def run_experiment(self) -> None:
        """Run the iterations that are still to do; each ends with a checkpoint."""
        with alone_in(self.base_dir, nested=True):
            if not self._resumed:
                self.resume()
            write_facts(self.base_dir, self.facts())
            if self._pretraining is not None and self._pretraining.pending:
                self._pretraining.run(self.agent, self.base_dir)
                self._save(-1)  # before iteration 0
            self._session_began = time.time()
            with (
                self._open(),
                closing(Metrics(self.base_dir, self._history)) as self._metrics,
                closing(self._open_table()) as self._table,
            ):
                self._part_times.take()
                self.agent.set_report(self._metrics.scalar)
                self._progress = Progress(self.start_iteration, self.num_iterations)
                for iteration in range(self.start_iteration, self.num_iterations):
                    self._run_iteration(iteration)
                    self.start_iteration = iteration + 1

    def _open(self) -> AbstractContextManager[Any]:
        """Return the context of processes that play beside this one; a turn-based run has none."""
        return nullcontext()

    def _run_iteration(self, iteration: int) -> None:
        with self._ending.deferred() if self._saves_amid else nullcontext():
            self._run_phases(iteration)

    @property
    def _saves_amid(self) -> bool:
        """Whether a run that is asked to end leaves a checkpoint in the midst of an iteration."""
        return True

    def _run_phases(self, iteration: int) -> None:
        amid, self._amid = self._amid or {"line": {"iteration": iteration}, "scalars": {}, "done": []}, None
        line: dict[str, Any] = amid["line"]
        scalars: dict[str, float] = amid["scalars"]
        self._iteration = {**amid, "number": iteration}
        assert self._progress is not None
        self._played = dict.fromkeys(self._lengths, (0, 0))
        by_frames = all(length.episodes is None for length in self._lengths.values())
        frames = sum(length.frames for length in self._lengths.values()) if by_frames else 0
        with self._progress.iteration(iteration, frames):
            for phase, length in self._lengths.items():
                if (length.frames or length.episodes) and phase.name not in amid["done"]:
                    begin = time.perf_counter() - self._carried(phase).get("seconds", 0.0)
                    self._iteration["began"] = begin
                    played = self._run_phase(phase, length)
                    self._encounters[phase] = played.encounter
                    self._summarize(phase, played, time.perf_counter() - begin, line, scalars)
                    amid["done"] = self._iteration["done"] = [*amid["done"], phase.name]
                    self._iteration["carried"] = None
                    if self._is_due():
                        self._save_amid(None)
        line["frames"] = self._frames
        if self._lost:
            line["lost_transitions"] = self._lost
        self._metrics.iteration(line, scalars)
        self._lost = 0
        self._history = self._metrics.history
        self._save(iteration)
        print(f"{_one_line(line)}; {self._progress.done()}", flush=True)

    def _carried(self, phase: Phase) -> dict[str, Any]:
        """Return what the phase had come to where a resumed run was stopped in its midst; empty elsewhere."""
        carried: dict[str, Any] = self._iteration.get("carried") or {}
        return carried if carried.get("phase") == phase.name else {}

    def _run_phase(self, phase: Phase, length: Length) -> Played:
        """Play whole episodes: so many, or until at least so many frames have passed."""
        self.agent.eval_mode = phase != Phase.TRAIN
        go_to_encounter(self.environment, self._encounters[phase])
        carried = self._carried(phase)
        updates = carried.get("updates", self.agent.updates)
        episodes = [Episode(*each) for each in carried.get("episodes", ())]
        frames = sum(episode.frames for episode in episodes)
        self._played[phase] = len(episodes), frames
        while frames < length.frames if length.episodes is None else len(episodes) < length.episodes:
            if episodes and self._is_due():
                self._encounters[phase] = encounter_of(self.environment)
                self._save_amid({"phase": phase.name, "updates": updates, "episodes": [[*each] for each in episodes]})
            episodes.append(self._play(phase))
            frames += episodes[-1].frames
        actions = sum(episode.actions for episode in episodes)
        return Played(episodes, actions, self.agent.updates - updates, encounter_of(self.environment))

    @property
    def seconds(self) -> float:
        """Wall time of the run in seconds, pauses between two sessions left out."""
        return self._seconds_at(time.time())

    def _seconds_at(self, when: float) -> float:
        return self._seconds_before + max(when - self._session_began, 0.0)

    def _open_table(self) -> EpisodeTable:
        """Return the table of episodes, with those alone that this run has played."""
        return EpisodeTable(self.base_dir, {phase.name.lower(): count for phase, count in self._episodes.items()})

    @property
    def _part_times(self) -> PartTimes:
        """Where the agent counts how long parts take; another place where it does not."""
        return getattr(self.agent, "times", None) or PartTimes()

    def _play(self, phase: Phase) -> Episode:
        seed = episode_seed(self.seed, phase, self._episodes[phase])
        watched: Any = self.environment if phase == Phase.TRAIN else Watched(self.environment)
        episode = play_episode(self.agent, watched, seed, self.max_steps_per_episode, self._part_times)
        if phase != Phase.TRAIN:
            episode = episode._replace(digest=watched.digest)
        number = self._episodes[phase]
        self._episodes[phase] += 1
        if phase == Phase.TRAIN:
            self._frames += episode.frames
        if self._table is not None:
            row = (phase.name.lower(), number, self.start_iteration, episode.score, episode.frames, self._frames)
            self._table.add([EpisodeRow(*row, self.agent.updates, self.seconds, episode.won)])
        if self._progress is not None:
            self._tell(phase, 1, episode.frames, f"last return {episode.score:g}")
        return episode

    def _tell(self, phase: Phase, episodes: int, frames: int, last: str = "") -> None:
        """Show that so much more of a phase has been played."""
        assert self._progress is not None
        before = self._played[phase]
        self._played[phase] = before[0] + episodes, before[1] + frames
        self._progress.update(*self._done(), last, self._seconds_of_play())

    def _seconds_of_play(self) -> float | None:
        """Return how long the iteration's frames took so far; None for as long as it has taken."""
        return None

    def _done(self, phase: Phase | None = None, more: int = 0) -> tuple[float, int]:
        """Return the share of the iteration that is done, and its frames; with `more` frames of `phase`."""
        played = {**self._played}
        if phase is not None:
            played[phase] = played[phase][0], played[phase][1] + more
        by_frames = all(length.episodes is None for length in self._lengths.values())
        work = done = 0.0
        for each, length in self._lengths.items():
            episodes, frames = played[each]
            # Frames and episodes cannot be added: if both occur, each phase is as much work as the other.
            whole = length.frames if by_frames else float(bool(length.frames or length.episodes))
            share = episodes / length.episodes if length.episodes else frames / max(length.frames, 1)
            work, done = work + whole, done + whole * min(share, 1.0)
        return done / max(work, 1), sum(frames for _, frames in played.values())

    def _summarize(
        self, phase: Phase, played: Played, seconds: float, line: dict[str, Any], scalars: dict[str, float]
    ) -> None:
        """Add a phase to the iteration's statistics and scalars, under Dopamine's names."""
        name, episodes = phase.name.lower(), played.episodes
        scores = [episode.score for episode in episodes]
        rate = frames_of(played) / seconds
        line[f"{name}_episode_lengths"] = [episode.frames for episode in episodes]
        line[f"{name}_episode_returns"] = scores
        if scores:  # of many environments none need have ended an episode
            line[f"{name}_average_return"] = statistics.fmean(scores)
        line[f"{name}_average_steps_per_second"] = rate
        line |= {f"{name}_{fact}": value for fact, value in facts(played).items()}
        tag = name.capitalize()
        scalars[f"{tag}/NumEpisodes"] = len(episodes)
        if scores:
            scalars[f"{tag}/AverageReturns"] = statistics.fmean(scores)
        scalars[f"{tag}/AverageStepsPerSecond"] = rate
        self._take_times(phase, self._part_times.take(), seconds, scalars)

    def _take_times(self, phase: Phase, times: Mapping[str, float], seconds: float, scalars: dict[str, float]) -> None:
        """Count how long the parts of a training phase took; those of an evaluation are not looked at."""
        if phase != Phase.TRAIN:
            return
        self._training_seconds += seconds
        for name, each in times.items():
            scalars[f"Time/{name}"] = each
            self._times[name] = self._times.get(name, 0.0) + each

    def closing_table(self) -> str:
        """Return how long each part of training in this process took, with its share, and what updates last gave."""
        whole = max(self._training_seconds, 1e-9)
        lines = [
            f"{f'time of {PARTS[name]}':<38}{self._times[name]:>12,.1f} s{self._times[name] / whole:>9.1%}"
            for name in PARTS
            if name in self._times
        ]
        return "\n".join(lines + [f"{SUMMED_UP.get(name, name):<38}{value:>12,.6g}" for name, value in self._newest()])

    def _newest(self) -> Iterable[tuple[str, float]]:
        """Return what is reported beside the scalars of updates, as it is after the last one."""
        summary = getattr(self.agent, "summary", None)
        return summary().items() if summary is not None and self.agent.updates else ()

    def _is_due(self) -> bool:
        """Return whether a checkpoint is to be written in the midst of the iteration."""
        minutes = self.checkpoint_minutes
        return self._ending.asked or (minutes is not None and time.monotonic() - self._saved_at >= 60.0 * minutes)

    @property
    def _next_replay(self) -> int:
        """The number of the replay of the next checkpoint in the midst of an iteration; -1 is that of pretraining."""
        return -2 - self._amid_count

    def _save_amid(self, carried: Mapping[str, Any] | None) -> None:
        """Write a checkpoint in the midst of an iteration.

        It holds how far the iteration is, so that nothing is played, learnt or counted twice by whoever goes on.

        Args:
            carried: What the running phase has come to, as plain data; None between two phases.

        Raises:
            KeyboardInterrupt: The run was asked to end.
        """
        self._ending.wait_no_more()
        directory, iteration, number = self._checkpointer.directory, self._iteration, self._next_replay
        if carried is not None:
            carried = {**carried, "seconds": time.perf_counter() - iteration["began"]}
        self._amid_count += 1
        self._replay_of[iteration["number"]] = self._replay_number = number
        amid = {**{name: iteration[name] for name in ("line", "scalars", "done")}, "carried": carried}
        bundle = self._bundle(self.agent.bundle_and_checkpoint(directory, number), iteration["number"] - 1)
        self._write(iteration["number"], {**bundle, "amid": amid, "replay": number}, amid=True)
        if self._ending.asked:
            raise KeyboardInterrupt

    def _save(self, iteration: int) -> None:
        directory, self._replay_number = self._checkpointer.directory, iteration
        bundle = self._bundle(self.agent.bundle_and_checkpoint(directory, iteration), iteration)
        self._replay_of.pop(iteration, None)
        self._write(iteration, bundle)

    def _write(self, iteration: int, bundle: Mapping[str, Any], amid: bool = False) -> None:
        """Write a checkpoint, and forget the oldest ones."""
        of_others = {"amid_count": self._amid_count, "replay_of": self._replay_of} if self._amid_count else {}
        kept = self._checkpointer.save(iteration, {**bundle, **of_others}, amid)
        self._replay_of = {each: number for each, number in self._replay_of.items() if each in kept}
        self.agent.forget_checkpoints(self._checkpointer.directory, {self._replay_of.get(each, each) for each in kept})
        self._saved_at = time.monotonic()

    def _bundle(self, agent: Mapping[str, Any], done: int) -> dict[str, Any]:
        """Return what a checkpoint holds: the agent's state, and the counts of a run with iteration `done` done."""
        return {
            "identity": self._identity(),
            "agent": agent,
            "current_iteration": done,
            "episodes": {phase.name: count for phase, count in self._episodes.items()},
            "encounters": {phase.name: number for phase, number in self._encounters.items()},
            "frames": self._frames,
            "seconds": self.seconds,
            "lost_transitions": self._lost,
            "logs": [line for line in self._history if line["iteration"] <= done],
        }

    def _identity(self) -> dict[str, Any]:
        spec = self.environment.unwrapped.spec
        facts = {**self.agent.identity(), "environment": None if spec is None else spec.id, "seed": self.seed}
        return facts if self._pretraining is None else {**facts, "pretraining": self._pretraining.identity()}

    def _check_identity(self, saved: Mapping[str, Any]) -> None:
        if difference := _difference(saved, self._identity()):
            raise DifferentExperiment(
                f"base_dir {self.base_dir} holds checkpoints of another experiment ({difference}): "
                "choose another base_dir, or run with the configuration in its config.gin"
            )

    def facts(self) -> dict[str, str]:
        """Return what the run is, in words: environment, agent, delay, seed and iterations."""
        identity, spec = self.agent.identity(), self.environment.unwrapped.spec
        shapes = identity.get("network") or {}
        weights = sum(math.prod(shape) for shape in shapes.values())
        return {
            "environment": type(self.environment.unwrapped).__name__ if spec is None else spec.id,
            "agent": str(identity["agent"]) + (f", {weights:,} weights" if weights else ""),
            "delay": self._delay_in_words(),
            **self._chosen_in_words(),
            "seed": str(self.seed),
            "iterations": f"{self.num_iterations}, each of {self._lengths_in_words(self._lengths)}",
        }

    def _lengths_in_words(self, lengths: Mapping[Phase, Length]) -> str:
        """Return how long phases are, but for those that are left out."""
        kinds = {Phase.TRAIN: "training", Phase.EVAL: "evaluation"}
        return " and ".join(
            f"{length.episodes or length.frames:,} {kinds[phase]} {'episodes' if length.episodes else 'frames'}"
            for phase, length in lengths.items()
            if length.frames or length.episodes
        )

    def _delay_in_words(self) -> str:
        return delay_in_words(self.environment)

    @property
    def history(self) -> Sequence[Mapping[str, Any]]:
        """The statistics of the iterations that are done."""
        return self._history

    def _chosen_in_words(self) -> dict[str, str]:
        """Return what the run has chosen by itself, in words: the room of a queue, the precision if it is automatic."""
        compute, words = _compute_of(self.agent), dict[str, str]()
        queue = getattr(getattr(getattr(self.agent, "learner", None), "replay", None), "queue_in_words", None)
        if queue is not None and (room := queue()) is not None:
            words["queue"] = room
        if compute is not None and compute.automatic:
            words["precision"] = compute.precision_in_words()
        return words

    def closing_line(self) -> str:
        """Say what training has come to: episodes, frames, wins and losses, actions per frame, updates per action."""
        return closing_line(self._history)

    def _new_agent(self) -> Agent:
        """Return a new agent for the environment."""
        return self._create_agent(self.environment, seed=self.seed)

    def trained_agent(self, checkpoint: Path | None = None) -> Agent:
        """Return a new agent with the weights of a checkpoint, as if it had never played.

        It gives the same evaluation whenever and wherever it is asked for.

        Args:
            checkpoint: The checkpoint; None for the newest good one of this run.

        Raises:
            ValueError: There is no good checkpoint.
        """
        agent = self._new_agent()
        path, bundle = newest_bundle(checkpoint or self.base_dir)
        _load_policy(agent, path, bundle)
        if (compute := _compute_of(agent)) is not None:
            compute.keep_precision(bundle["agent"].get("learner", {}))
        return agent

    def check_recordable(self) -> None:
        """Refuse to record videos where that cannot be done.

        Raises:
            ValueError: Says why not.
        """
        check_recordable(self.environment)

    def evaluation(self, agent: Agent, episodes: int, videos: Path | None = None) -> list[Episode]:
        """Play evaluation episodes with an agent, whose seeds depend on the run's seed and their number alone.

        Args:
            agent: Plays.
            episodes: How many.
            videos: A directory for a video of each; None records none. See `recorded`.

        Raises:
            ValueError: Videos are asked for, and cannot be recorded.
        """
        with recorded(self.environment, videos) if videos else nullcontext(self.environment) as environment:
            return evaluate(agent, environment, episodes, self.seed, self.max_steps_per_episode)


@gin.configurable(module="agents")
class TrainRunner(Runner):
    """A `Runner` without evaluation phases; its parameters are bound as ``Runner``'s."""

    def __init__(self, base_dir: str | Path) -> None:
        """See the class."""
        super().__init__(base_dir)
        del self._lengths[Phase.EVAL]


SUMMED_UP = {  # in words
    "LearningRate": "learning rate",
    "GradientNorm": "norm of the last gradient",
    "ReplaySize": "what can be drawn from replays",
    "QueueSize": "unrolls that wait",
    "TeacherReplaySize": "transitions of the teacher's replay",
    "AverageQ": "mean Q-value",
    "MaxQ": "greatest Q-value",
    "ActionGap": "action gap",
    "QMinusTeacherQ": "Q-values less the teacher's",
}
_ACTING = ("agent", "observation_shape", "actions", "network")  # what must be alike where only weights are taken
# Differences that are reported first, because they cause others.
_SHOWN_FIRST = ("agent", "environment", "observation_shape", "actions")


def newest_bundle(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the checkpoint at `path`: a file, or the newest good one of a run's directory."""
    if path.is_dir():
        checkpointer, found = Checkpointer(path), None
        while found != (found := checkpointer.numbers()):  # a run that goes on there may have replaced all that were
            for number, bundle in checkpointer.load_each():
                return path / CHECKPOINTS / f"ckpt.{number}", bundle
        raise ValueError(f"{path} holds no good checkpoint in {path / CHECKPOINTS}: train there first, or name another")
    try:
        return path, read_bundle(path)
    except OSError as error:
        raise ValueError(f"checkpoint {path} cannot be read ({error.strerror}): name a file or a base_dir") from None


def _compute_of(agent: Any) -> Any:
    """Return how an agent computes (`schema.Compute`); None where it does not say so."""
    compute = getattr(getattr(agent, "spec", None), "compute", None)
    return compute if hasattr(compute, "precision_in_words") else None


def _load_policy(agent: Agent, path: Path, bundle: Mapping[str, Any]) -> None:
    if "identity" not in bundle or "agent" not in bundle:
        raise ValueError(f"checkpoint {path} is not one of a run: it holds {', '.join(map(str, bundle)) or 'nothing'}")
    here, there = ({name: facts.get(name) for name in _ACTING} for facts in (agent.identity(), bundle["identity"]))
    if difference := _difference(there, here):
        raise ValueError(f"checkpoint {path} does not fit this agent ({difference})")
    agent.load_policy(bundle["agent"])


def _load_optimizer(agent: Any, path: Path, bundle: Mapping[str, Any]) -> None:
    """Let an agent that has a checkpoint's weights go on with its optimiser's moments."""
    here, there = agent.identity().get("optimizer"), bundle["identity"].get("optimizer")
    load = getattr(getattr(agent, "learner", None), "load_optimizer", None)
    if load is None or here != there:
        raise ValueError(
            f"Runner.initial_optimizer must be False where the optimiser of checkpoint {path} is another one "
            f"({there} there, {here} here)"
        )
    load(bundle["agent"]["learner"])


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Say in a few words how two identities differ; empty where they do not."""
    for name in sorted({*there, *here}, key=lambda name: (*(name != first for first in _SHOWN_FIRST), name)):
        old, new = there.get(name), here.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            return f"{name}: {_difference(old, new)}"
        return f"{name}: {old} there, {new} here"
    return ""


def _one_line(line: Mapping[str, Any]) -> str:
    """Summarize an iteration for a person."""
    came_to = f"{line['frames']} training frames"
    if line.get("phase") == "offline":
        came_to = f"{line['train_updates']} offline updates"
    parts = [f"iteration {line['iteration']}: {came_to}"]
    for phase in ("train", "eval"):
        if f"{phase}_average_return" in line:
            number, different = len(line[f"{phase}_episode_returns"]), line.get(f"{phase}_different_episodes")
            of_them = "" if different is None else f" ({different} different)"
            parts.append(
                f"{phase} return {line[f'{phase}_average_return']:.1f} over {number} episodes{of_them}, "
                f"{line[f'{phase}_average_steps_per_second']:.0f} frames/s"
            )
        if f"{phase}_wins" in line:
            parts.append(f"{line[f'{phase}_wins']} wins, {line[f'{phase}_losses']} losses")
    return "; ".join(parts)


def check_whole(least: int, **values: Any) -> None:
    """Refuse settings of a runner that are no whole numbers, or too small ones, with a ValueError."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"Runner.{name} must be a whole number >= {least}, got {value!r}")


def factory(name: str, value: Any, example: str) -> None:
    """Refuse a value that makes nothing.

    Raises:
        ValueError: It cannot be called; the message names the key and an example.
    """
    if not callable(value):
        raise ValueError(f"{name} must be a function or a class, such as {example} (without brackets), got {value!r}")


def portable(make_env: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes environments in another process too, whose gin is empty and which has imported nothing."""
    return _AfterImports(with_gin_values(make_env), own_modules())


@dataclass(frozen=True)
class _AfterImports:
    """Makes an environment in a process that has not imported the modules which register it."""

    make_env: Callable[[], Any]
    modules: tuple[str, ...]

    def __call__(self) -> Any:
        for module in self.modules:
            import_module(module)
        return self.make_env()


def own_modules() -> tuple[str, ...]:
    """Return the modules that the configuration imports and that are not this project's."""
    modules, _ = code_in(gin.config_str())
    imported = {name for name in strangers(modules, ()) if name in sys.modules}
    return tuple(sorted(imported))
