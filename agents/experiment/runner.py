"""Dopamine's runner: iterations of a training and an evaluation phase, each of whole episodes.

Castro et al., "Dopamine: a research framework for deep reinforcement learning", 2018; the phases follow Machado et al.,
"Revisiting the Arcade Learning Environment", 2018, section 4. All lengths count frames: steps of the innermost
environment, which are the agent's steps where nothing delays it.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import torch
from absl import logging

from async_wrappers.agents.acting.effect import report_effect
from async_wrappers.agents.config.unread import ByName
from async_wrappers.agents.demonstrations.demonstration import delay_in_words
from async_wrappers.agents.experiment.checkpoint import (
    Checkpointer,
    compute_of,
    difference_of,
    load_optimizer,
    load_policy,
    newest_bundle,
)
from async_wrappers.agents.experiment.ending import Ending
from async_wrappers.agents.experiment.evaluate import evaluate
from async_wrappers.agents.experiment.lock import alone_in
from async_wrappers.agents.experiment.metrics import SUMMED_UP, EpisodeRow, EpisodeTable, Metrics, write_facts
from async_wrappers.agents.experiment.pretraining import Pretraining
from async_wrappers.agents.experiment.progress import Progress, duration, share_done
from async_wrappers.agents.experiment.video import check_recordable, recorded
from async_wrappers.agents.experiment.words import closing_line, facts, iteration_line, lengths_in_words
from async_wrappers.agents.play.agent import Agent
from async_wrappers.agents.play.play import (
    Episode,
    Length,
    Phase,
    Played,
    encounter_of,
    environment_seed,
    frames_of,
    go_to_encounter,
)
from async_wrappers.agents.play.turns.episode import EpisodeCut, Running, Watched, play_episode
from async_wrappers.agents.replay.segments import DamagedReplay
from async_wrappers.agents.settings import POSITIVE_FINITE, factory, flag, must, number, runner, text, whole
from async_wrappers.agents.timing import PARTS, PartTimes
from async_wrappers.agents.trained.agent_file import agent_path, no_such_agent

__all__ = ["DifferentExperiment", "Runner", "TrainRunner"]

CreateAgent = Callable[..., Agent]
CreateEnvironment = Callable[..., gym.Env[Any, Any]]


class DifferentExperiment(ValueError):
    """The directory holds checkpoints of an experiment that this one cannot continue."""


@runner
class Runner:
    """Trains and evaluates an agent, iteration by iteration, and resumes where it was stopped.

    A setting out of range, and an environment that the agent cannot play, are refused with a ValueError.

    Attributes:
        agent: It is trained.
        environment: The agent plays it.
        episodes: How many each phase has had so far.
        frames: Of training so far.
        cut_frames: Those of them in episodes that were cut, because the run ended.
    """

    create_environment_fn: CreateEnvironment = factory(
        gin.REQUIRED,
        "Makes the environment, such as ``@create_atari_environment``.",
        "@create_gym_environment (without brackets)",
    )
    create_agent_fn: CreateAgent = factory(
        ByName("agents.create_agent"),
        "Makes the agent from (environment, seed=).",
        "@create_agent (without brackets)",
    )
    seed: int = whole(
        0, "Of the whole run: environment, evaluation, agent, replay and default action.", 0, "", most=2**4096
    )
    num_iterations: int = whole(200, "Iterations in all, those already done included.", 0, "iterations")
    training_steps: int = whole(250_000, "Frames of a training phase, at least; it ends with an episode.", 1, "frame")
    evaluation_steps: int = whole(
        125_000,
        "Frames of an evaluation phase, at least; 0 leaves it out, whatever `evaluation_episodes` is.",
        0,
        "frames",
    )
    training_episodes: int | None = whole(
        None, "Length of a training phase in episodes.", 1, "episode", none="`training_steps`"
    )
    evaluation_episodes: int | None = whole(
        None,
        "Length of an evaluation phase in episodes; 0 leaves it out.",
        0,
        "episodes",
        none="`evaluation_steps`",
    )
    max_steps_per_episode: int | None = whole(
        27_000, "Frames after which an episode is cut (a truncation).", 1, "frame", none="no limit"
    )
    checkpoint_duration: int = whole(4, "How many of the newest checkpoints are kept.", 1, "checkpoint")
    initial_checkpoint: str | None = text(
        "A checkpoint file, a run's directory, an agent's file or the name of one that ships (``\"cartpole\"``), whose "
        "weights the first iteration begins with. All else is new: settings, schedules, counts, replay and statistics.",
        "new weights",
    )
    initial_optimizer: bool = flag(False, "Begin with that checkpoint's moments of the optimiser, too.")
    pretrain_dataset: str | None = text(
        "Demonstrations that the agent learns from before the first iteration: a Minari id, a directory, or a pickle "
        "of the published layout (`async_wrappers.agents.demonstrations`).",
        "none",
    )
    pretrain_updates: int = whole(16_000, "Updates on them.", 0, "updates")
    report_episodes: int = whole(
        0,
        "Episodes of each of the trained, the random and the no-op agent that the closing table compares, with seeds "
        "that are the same for all three; 0 leaves the table out.",
        0,
        "episodes",
    )
    threads: int = whole(1, "Intra-op threads of PyTorch in this process.", 1, "thread")
    overlap: bool = flag(
        False,
        "Compute each update in a thread while the environment steps on (`turn_based.Overlap`): the agent acts on "
        "weights of one update earlier, so results differ from those without, and are the same from run to run.",
    )
    exact_resume: bool = flag(
        False,
        "A resumed run equals an uninterrupted one bit for bit. Where many environments are played at once, all games "
        "are then cut where a checkpoint is written, in the uninterrupted run too; False lets games go on over "
        "checkpoints, and a run that is resumed begins new ones, and differs from there on. Where one is played, a run "
        "that is asked to end is then saved between two episodes alone; False cuts an episode that takes longer than a "
        "few seconds more, and only a run in which one was cut differs.",
    )
    checkpoint_minutes: float | None = number(
        None,
        "Minutes after which a checkpoint is written in the midst of an iteration.",
        POSITIVE_FINITE,
        none="no such checkpoint",
    )

    def __init__(self, base_dir: str | Path, **given: Any) -> None:
        """See the class."""
        self.base_dir = Path(base_dir)
        self.set_up()

    def set_up(self) -> None:
        """Make the runner's parts, when all settings are known."""
        must(
            self.initial_checkpoint is not None or not self.initial_optimizer,
            "Runner.initial_optimizer must be False where Runner.initial_checkpoint=None, got True",
        )
        torch.set_num_threads(self.threads)
        evaluation = Length(self.evaluation_steps, self.evaluation_episodes)
        self._lengths = {
            Phase.TRAIN: Length(self.training_steps, self.training_episodes),
            # Files bind one of the two, and binding the other one to 0 has the same meaning.
            Phase.EVAL: Length(0, None) if 0 in evaluation else evaluation,
        }
        self._checkpointer = Checkpointer(self.base_dir, self.checkpoint_duration)
        self.environment = self.create_environment_fn()
        kind = type(self.environment).__name__
        must(
            hasattr(self.environment, "observation_space"),
            f"Runner.create_environment_fn must make an environment, not a {kind}: bind another function",
        )
        self.agent = self._new_agent()
        spec: Any = getattr(self.agent, "spec", None)
        if getattr(spec, "needs_effect", False):
            report_effect(self.environment, spec.name)
        self.agent.keep_diverged_in(self.base_dir)
        if self.overlap:
            self.agent.overlap_learning()
        dataset = self.pretrain_dataset
        self._pretraining = None if dataset is None else Pretraining(dataset, self.pretrain_updates)
        self._begin_counts()

    def _begin_counts(self) -> None:
        """Set the counts of a run before its first iteration."""
        self.episodes = dict.fromkeys(Phase, 0)
        # Each phase follows the order by itself.
        self._encounters: dict[Phase, int | None] = dict.fromkeys(Phase, encounter_of(self.environment))
        self.frames = self.cut_frames = 0
        self._running = Running()
        self._lost = 0  # transitions lost with damaged replay files, not yet in an iteration's line
        self._history: list[dict[str, Any]] = []
        self._progress: Progress | None = None
        self._played = dict.fromkeys(Phase, (0, 0))  # episodes and frames of the running iteration
        self._ending = Ending()
        self._amid: dict[str, Any] | None = None  # progress in the iteration at which a resumed run begins
        self._iteration: dict[str, Any] = {}  # progress in the running iteration, at its last phase's beginning
        self._replay_of: dict[int, int] = {}  # numbers of the replays of checkpoints during an iteration
        self._amid_count = 0  # such checkpoints ever written
        self._replay_number = -1  # of the checkpoint that was loaded or written last
        self._saved_at = time.monotonic()
        self._unsaved = 0.0  # seconds that an interrupt has lost
        self._resumed = False
        self.start_iteration = 0
        self._seconds_before, self._session_began = 0.0, time.time()  # of wall time
        self._table: EpisodeTable | None = None
        self._times: dict[str, float] = {}  # seconds of the parts of training, in this process
        self._training_seconds = 0.0  # in this process

    def resume(self) -> bool:
        """Continue from the newest good checkpoint, or begin.

        A checkpoint of which only old segments of the replay are damaged is good where no whole one is left: the run
        then continues without their transitions, and warns.

        A run begins with the initial checkpoint's weights, if one is named, and with the demonstrations in its replay.

        Returns:
            Whether there was a checkpoint to continue from.

        Raises:
            DifferentExperiment: The checkpoints are of another agent, network or seed; nothing has been changed.
            OtherFormat: The checkpoints are of another version, with another format.
            NoCheckpointLoads: There are checkpoints, and none loads; nothing has been changed.
            ValueError: The initial checkpoint or the demonstrations cannot be used.
            gymnasium.error.DependencyNotInstalled: Demonstrations need Minari, and it is missing.
        """
        spec: Any = getattr(self.agent, "spec", None)
        if hasattr(spec, "check_chunks"):
            spec.check_chunks()
        self._resumed = True
        self._refuse_without_teacher()
        checkpointer, refused = self._checkpointer, dict[int, str]()
        whole = ((iteration, bundle, False) for iteration, bundle in checkpointer.load_each(refused, continues=True))
        # Those that lack a part of their replay are tried after the whole ones.
        damaged: list[tuple[int, dict[str, Any], bool]] = []
        for iteration, bundle, partial in chain(whole, damaged):
            self._check_identity(bundle.get("identity", {}))
            try:
                self._replay_number = replay = bundle.get("replay", iteration)
                lost = self.agent.unbundle(checkpointer.directory, replay, bundle["agent"], partial=partial)
            except (OSError, ValueError) as error:
                if isinstance(error, DamagedReplay) and not partial:
                    damaged.append((iteration, bundle, True))
                checkpointer.refuse(iteration, error, refused)
                continue
            self._take_counts(bundle)
            if partial:
                self._warn_of_lost(iteration, lost)
            self._warn_of_earlier(iteration, refused)
            return True
        checkpointer.check_beginning(refused)
        if self.initial_checkpoint is not None:
            self._load_initial(self.initial_checkpoint)
        if self._pretraining is not None:
            self._pretraining.load(self.agent, self.create_environment_fn, self.seed)
        return False

    def _load_initial(self, named: str) -> None:
        """Give the agent the weights of the initial checkpoint, and its optimiser's moments if that is bound."""
        path = agent_path(named)
        if not os.path.exists(path):
            places = "a run's directory or one of its checkpoints, "
            raise ValueError(no_such_agent("Runner.initial_checkpoint", named, places))
        initial = newest_bundle(path)
        load_policy(self.agent, *initial)
        if self.initial_optimizer:
            load_optimizer(self.agent, *initial)

    def _refuse_without_teacher(self) -> None:
        """Refuse a student of a teacher, as this schedule has none."""
        spec: Any = getattr(self.agent, "spec", None)
        if hasattr(spec, "check_alone") and getattr(self, "teacher", None) is None:
            spec.check_alone()

    def _warn_of_earlier(self, number: int, refused: Mapping[int, str]) -> None:
        """Warn that the run continues from an earlier checkpoint than the newest one."""
        if max(refused, default=number) > number:
            logging.warning("the run goes on from checkpoint %d, the newest one that loads", number)

    def _warn_of_lost(self, number: int, lost: int) -> None:
        """Report, now and in the next iteration's line, how many transitions the replay has lost."""
        self._lost += lost
        logging.warning(
            "checkpoint %d is used though files of its replay are damaged: %d transitions are lost, and from here on "
            "the run differs from an undisturbed one",
            number,
            lost,
        )

    def _take_counts(self, bundle: Mapping[str, Any]) -> None:
        self.episodes = {phase: bundle["episodes"][phase.name] for phase in Phase}
        self._encounters |= {Phase[name]: number for name, number in bundle.get("encounters", {}).items()}
        self.frames, self.cut_frames = bundle["frames"], bundle.get("cut_frames", 0)
        self._lost = bundle["lost_transitions"]
        self._history = bundle["logs"]
        self._seconds_before = bundle.get("seconds", 0.0)  # checkpoints of older versions lack it
        self.start_iteration = bundle["current_iteration"] + 1
        self._amid, self._amid_count = bundle.get("amid"), bundle.get("amid_count", 0)
        self._replay_of = dict(bundle.get("replay_of", {}))

    @property
    def one_more(self) -> str:
        """The binding that continues a finished run for one iteration."""
        return f"Runner.num_iterations = {self.num_iterations + 1}"

    @property
    def unsaved(self) -> str:
        """What an interrupt has lost, in words; empty where it is nothing."""
        if not self._checkpointer.numbers():
            return "no checkpoint was written, so that the run begins anew"
        return f"{duration(self._unsaved)} since the last checkpoint are lost" if self._unsaved >= 1 else ""

    @property
    def iterations_done(self) -> int:
        """The number of iterations in the newest checkpoint, even if a signal came just after it was written."""
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
                try:
                    for iteration in range(self.start_iteration, self.num_iterations):
                        self._run_iteration(iteration)
                        self.start_iteration = iteration + 1
                except KeyboardInterrupt:
                    self._unsaved = time.monotonic() - self._saved_at
                    raise

    def _open(self) -> AbstractContextManager[Any]:
        """Return the context of parallel processes; a turn-based run has none."""
        return nullcontext()

    def _run_iteration(self, iteration: int) -> None:
        cut = None if self.exact_resume else self._running.cut
        with self._ending.deferred(cut) if self._saves_amid else nullcontext():
            self._run_phases(iteration)

    @property
    def _saves_amid(self) -> bool:
        """Whether a run that is asked to end writes a checkpoint during an iteration."""
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
        line["frames"] = self.frames
        if self.cut_frames:
            line["cut_frames"] = self.cut_frames
        if self._lost:
            line["lost_transitions"] = self._lost
        self._metrics.iteration(line, scalars)
        self._lost = 0
        self._history = self._metrics.history
        self._save(iteration)
        print(f"{iteration_line(line)}; {self._progress.done()}", flush=True)

    def _carried(self, phase: Phase) -> dict[str, Any]:
        """Return the phase's results up to where a resumed run was stopped during it; empty elsewhere."""
        carried: dict[str, Any] = self._iteration.get("carried") or {}
        return carried if carried.get("phase") == phase.name else {}

    def _run_phase(self, phase: Phase, length: Length) -> Played:
        """Play whole episodes: a number of them, or until at least a number of frames have passed."""
        self.agent.eval_mode = phase != Phase.TRAIN
        go_to_encounter(self.environment, self._encounters[phase])
        carried = self._carried(phase)
        updates = carried.get("updates", self.agent.updates)
        episodes = [Episode(*each) for each in carried.get("episodes", ())]
        cut_frames, cut_actions = carried.get("cut", (0, 0))  # of episodes of training that were cut
        frames = cut_frames + sum(episode.frames for episode in episodes)
        self._played[phase] = len(episodes), frames

        def save() -> None:
            so_far = {"episodes": [[*each] for each in episodes], "cut": [cut_frames, cut_actions]}
            self._save_amid({"phase": phase.name, "updates": updates, **so_far})

        with self._shown(phase):
            while frames < length.frames if length.episodes is None else len(episodes) < length.episodes:
                self._encounters[phase] = encounter_of(self.environment)
                if episodes and self._is_due():
                    save()
                try:
                    episodes.append(self._play(phase))
                except EpisodeCut as cut:
                    if phase == Phase.TRAIN:
                        cut_frames, cut_actions = cut_frames + cut.frames, cut_actions + cut.actions
                        self.frames, self.cut_frames = self.frames + cut.frames, self.cut_frames + cut.frames
                    save()
                    raise
                frames += episodes[-1].frames
        actions = cut_actions + sum(episode.actions for episode in episodes)
        encounter = encounter_of(self.environment)
        return Played(episodes, actions, self.agent.updates - updates, encounter, frames if cut_frames else None)

    def _shown(self, phase: Phase) -> AbstractContextManager[None]:
        """Show how far the phase is during an episode too."""
        if self._progress is None:
            return nullcontext()
        return self._progress.while_waiting(lambda _: (*self._done(phase, self._running.frames), None))

    @property
    def seconds(self) -> float:
        """Wall time of the run in seconds, pauses between two sessions left out."""
        return self._seconds_at(time.time())

    def _seconds_at(self, when: float) -> float:
        return self._seconds_before + max(when - self._session_began, 0.0)

    def _open_table(self) -> EpisodeTable:
        """Return the table of episodes, with only those that this run has played."""
        return EpisodeTable(self.base_dir, {phase.name.lower(): count for phase, count in self.episodes.items()})

    @property
    def _part_times(self) -> PartTimes:
        """The agent's times of the parts of training; an empty object if it has none."""
        return getattr(self.agent, "times", None) or PartTimes()

    def _play(self, phase: Phase) -> Episode:
        seed = environment_seed(self.seed, phase, self.episodes[phase])
        watched: Any = self.environment if phase == Phase.TRAIN else Watched(self.environment)
        limit, times = self.max_steps_per_episode, self._part_times
        episode = play_episode(self.agent, watched, seed, limit, times, self._running)
        self._running.frames = 0  # they are counted in the phase now
        if phase != Phase.TRAIN:
            episode = episode._replace(digest=watched.digest)
        number = self.episodes[phase]
        self.episodes[phase] += 1
        if phase == Phase.TRAIN:
            self.frames += episode.frames
        if self._table is not None:
            row = (phase.name.lower(), number, self.start_iteration, episode.score, episode.frames, self.frames)
            self._table.add([EpisodeRow(*row, self.agent.updates, self.seconds, episode.won)])
        if self._progress is not None:
            self._tell(phase, 1, episode.frames, f"last return {episode.score:g}")
        return episode

    def _tell(self, phase: Phase, episodes: int, frames: int, last: str = "") -> None:
        """Show that further episodes and frames of a phase have been played."""
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
        return share_done(self._lengths, played)

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
        """Add up the times of a training phase's parts; those of an evaluation are ignored."""
        if phase != Phase.TRAIN:
            return
        self._training_seconds += seconds
        for name, each in times.items():
            scalars[f"Time/{name}"] = each
            self._times[name] = self._times.get(name, 0.0) + each

    def closing_table(self) -> str:
        """Return the time of each part of training in this process, with its share, and the last update's scalars."""
        whole = max(self._training_seconds, 1e-9)
        lines = [
            f"{f'time of {PARTS[name]}':<38}{self._times[name]:>12,.1f} s{self._times[name] / whole:>9.1%}"
            for name in PARTS
            if name in self._times
        ]
        return "\n".join(lines + [f"{SUMMED_UP.get(name, name):<38}{value:>12,.6g}" for name, value in self._newest()])

    def _newest(self) -> Iterable[tuple[str, float]]:
        """Return the values reported beside the scalars of updates, after the last update."""
        summary = getattr(self.agent, "summary", None)
        return summary().items() if summary is not None and self.agent.updates else ()

    def _is_due(self) -> bool:
        """Return whether a checkpoint is due during the iteration."""
        minutes = self.checkpoint_minutes
        return self._ending.asked or (minutes is not None and time.monotonic() - self._saved_at >= 60.0 * minutes)

    @property
    def _next_replay(self) -> int:
        """The number of the replay of the next checkpoint during an iteration; -1 is that of pretraining."""
        return -2 - self._amid_count

    def _number_replay(self, iteration: int) -> int:
        """Return the number of the replay of a checkpoint during an iteration, and note it."""
        number = self._replay_of[iteration] = self._next_replay
        self._amid_count += 1
        return number

    def _save_amid(self, carried: Mapping[str, Any] | None) -> None:
        """Write a checkpoint during an iteration.

        It holds the iteration's progress, so that a resumed run plays, learns and counts nothing twice.

        Args:
            carried: The running phase's results so far, as plain data; None between two phases.

        Raises:
            KeyboardInterrupt: The run was asked to end.
        """
        self._ending.wait_no_more()
        directory, iteration, number = self._checkpointer.directory, self._iteration, self._next_replay
        if carried is not None:
            carried = {**carried, "seconds": time.perf_counter() - iteration["began"]}
        self._replay_number = self._number_replay(iteration["number"])
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
        self.agent.forget_checkpoints(self._checkpointer.directory, self._written(iteration, bundle, amid))

    def _written(self, iteration: int, bundle: Mapping[str, Any], amid: bool) -> set[int]:
        """Write a checkpoint, and return the numbers of the replays of those that are kept."""
        of_others = {"amid_count": self._amid_count, "replay_of": self._replay_of} if self._amid_count else {}
        of_others |= {"cut_frames": self.cut_frames} if self.cut_frames else {}
        kept = self._checkpointer.save(iteration, {**bundle, **of_others}, amid)
        self._replay_of = {each: number for each, number in self._replay_of.items() if each in kept}
        self._saved_at = time.monotonic()
        return {self._replay_of.get(each, each) for each in kept}

    def _bundle(self, agent: Mapping[str, Any], done: int) -> dict[str, Any]:
        """Return a checkpoint's content: the agent's state, and the counts of a run with iteration `done` done."""
        return {
            "identity": self._identity(),
            "agent": agent,
            "current_iteration": done,
            "episodes": {phase.name: count for phase, count in self.episodes.items()},
            "encounters": {phase.name: number for phase, number in self._encounters.items()},
            "frames": self.frames,
            "seconds": self.seconds,
            "lost_transitions": self._lost,
            "logs": [line for line in self._history if line["iteration"] <= done],
        }

    def _identity(self) -> dict[str, Any]:
        spec = self.environment.unwrapped.spec
        facts = {**self.agent.identity(), "environment": None if spec is None else spec.id, "seed": self.seed}
        return facts if self._pretraining is None else {**facts, "pretraining": self._pretraining.identity()}

    def _check_identity(self, saved: Mapping[str, Any]) -> None:
        if difference := difference_of(saved, self._identity()):
            raise DifferentExperiment(
                f"base_dir {self.base_dir} holds checkpoints of another experiment ({difference}): "
                "choose another base_dir, or run with the configuration in its config.gin"
            )

    def facts(self) -> dict[str, str]:
        """Return the run's facts, in words: environment, agent, delay, device, seed and iterations."""
        identity, spec = self.agent.identity(), self.environment.unwrapped.spec
        shapes = identity.get("network") or {}
        weights = sum(math.prod(shape) for shape in shapes.values())
        return {
            "environment": type(self.environment.unwrapped).__name__ if spec is None else spec.id,
            "agent": str(identity["agent"]) + (f", {weights:,} weights" if weights else ""),
            "delay": self._delay_in_words(),
            "device": self._device_in_words(),
            **self._chosen_in_words(),
            "seed": str(self.seed),
            "iterations": f"{self.num_iterations}, each of {lengths_in_words(self._lengths)}",
        }

    def _device_in_words(self) -> str:
        """Return what networks compute on, and the threads of this process."""
        compute = compute_of(self.agent)
        device = torch.device("cpu") if compute is None else compute.torch_device
        card = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
        return f"{device}{card}, {self.threads} thread{'s' if self.threads > 1 else ''}"

    def _delay_in_words(self) -> str:
        return delay_in_words(self.environment)

    @property
    def history(self) -> Sequence[Mapping[str, Any]]:
        """The statistics of the iterations that are done."""
        return self._history

    def _chosen_in_words(self) -> dict[str, str]:
        """Return the run's automatic choices, in words: the capacity of a queue, the precision if it is automatic."""
        compute, words = compute_of(self.agent), dict[str, str]()
        queue = getattr(getattr(getattr(self.agent, "learner", None), "replay", None), "queue_in_words", None)
        if queue is not None and (room := queue()) is not None:
            words["queue"] = room
        if compute is not None and compute.automatic:
            words["precision"] = compute.precision_in_words()
        return words

    def closing_line(self) -> str:
        """Return a line on training: episodes, frames, wins and losses, actions per frame, updates per action."""
        return closing_line(self._history)

    def _new_agent(self) -> Agent:
        """Return a new agent for the environment."""
        return self.create_agent_fn(self.environment, seed=self.seed)

    def trained_agent(self, checkpoint: Path | None = None) -> Agent:
        """Return a new agent with the weights of a checkpoint, as if it had never played.

        Its evaluation is the same at any time and on any machine.

        Args:
            checkpoint: The checkpoint; None for the newest good one of this run.

        Raises:
            ValueError: There is no good checkpoint.
        """
        agent = self._new_agent()
        path, bundle = newest_bundle(checkpoint or self.base_dir)
        load_policy(agent, path, bundle)
        if (compute := compute_of(agent)) is not None:
            compute.keep_precision(bundle["agent"].get("learner", {}))
        return agent

    def check_recordable(self) -> None:
        """Refuse to record videos where none can be recorded.

        Raises:
            ValueError: No video can be recorded; the message gives the reason.
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


@runner
class TrainRunner(Runner):
    """A `Runner` without evaluation phases; its parameters are bound as ``Runner``'s."""

    def set_up(self) -> None:
        """See `Runner`."""
        super().set_up()
        del self._lengths[Phase.EVAL]
