"""Dopamine's runner: iterations of a training and an evaluation phase, each of whole episodes.

Castro et al., "Dopamine: a research framework for deep reinforcement learning", 2018; the phases follow Machado et al.,
"Revisiting the Arcade Learning Environment", 2018, section 4. All lengths count frames: steps of the innermost
environment, which are the agent's steps where nothing delays it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import gin
import gymnasium as gym
import torch
from absl import logging
from tqdm import tqdm

from agents.agent import Agent
from agents.experiment.checkpoint import CHECKPOINTS, Checkpointer, read_bundle
from agents.experiment.episode import Episode, Phase, episode_seed, play_episode
from agents.experiment.evaluate import evaluate
from agents.experiment.lock import alone_in_base_dir
from agents.experiment.metrics import Metrics
from agents.experiment.phase_stats import Played, closing_line, encounter_of, facts, go_to_encounter
from agents.experiment.pretraining import Pretraining
from agents.experiment.video import check_recordable, recorded
from agents.registry import create_agent
from agents.replay.log import DamagedReplay

__all__ = ["DifferentExperiment", "Length", "Runner", "TrainRunner", "newest_bundle"]

CreateAgent = Callable[..., Agent]
CreateEnvironment = Callable[..., gym.Env[Any, Any]]


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
        evaluation_steps: Frames of an evaluation phase, at least; 0 leaves it out.
        training_episodes: Length of a training phase in episodes, instead of `training_steps`.
        evaluation_episodes: Length of an evaluation phase in episodes, instead of `evaluation_steps`.
        max_steps_per_episode: Frames after which an episode is cut (a truncation), None for no limit.
        checkpoint_duration: How many of the newest checkpoints are kept.
        initial_checkpoint: A checkpoint file or a run's directory whose weights the first iteration begins with.
        pretrain_dataset: Demonstrations that the agent learns from before the first iteration: a Minari id, a
            directory, or a pickle of the published layout (`agents.demonstrations`); None for none.
        pretrain_updates: Updates on them.
        report_episodes: Episodes of each of the trained, the random and the no-op agent that the closing table
            compares, with seeds that are the same for all three; 0 leaves the table out.
        threads: Intra-op threads of PyTorch in this process.
        overlap: Compute each update in a thread while the environment steps on (`agents.overlap`): the agent acts on
            weights of one update earlier, so results differ from those without, and are the same from run to run.

    Raises:
        ValueError: An argument out of range, or an environment that the agent cannot play.
    """

    def __init__(
        self,
        base_dir: str | Path,
        create_environment_fn: CreateEnvironment = gin.REQUIRED,
        create_agent_fn: CreateAgent = create_agent,
        seed: int = 0,
        num_iterations: int = 200,
        training_steps: int = 250_000,
        evaluation_steps: int = 125_000,
        training_episodes: int | None = None,
        evaluation_episodes: int | None = None,
        max_steps_per_episode: int | None = 27_000,
        checkpoint_duration: int = 4,
        initial_checkpoint: str | None = None,
        pretrain_dataset: str | None = None,
        pretrain_updates: int = 16_000,
        report_episodes: int = 0,
        threads: int = 1,
        overlap: bool = False,
    ) -> None:
        """See the class."""
        _whole("seed", seed, 0)
        _whole("num_iterations", num_iterations, 0)
        _whole("training_steps", training_steps, 1)
        _whole("evaluation_steps", evaluation_steps, 0)
        _whole("report_episodes", report_episodes, 0)
        _whole("pretrain_updates", pretrain_updates, 0)
        _whole("threads", threads, 1)
        for name, value in (
            ("training_episodes", training_episodes),
            ("evaluation_episodes", evaluation_episodes),
            ("max_steps_per_episode", max_steps_per_episode),
        ):
            if value is not None:
                _whole(name, value, 1)
        factory("Runner.create_environment_fn", create_environment_fn, "@create_gym_environment")
        factory("Runner.create_agent_fn", create_agent_fn, "@create_agent")
        torch.set_num_threads(threads)
        self.base_dir = Path(base_dir)
        self.seed = seed
        self.num_iterations = num_iterations
        self.report_episodes = report_episodes
        self.max_steps_per_episode = max_steps_per_episode
        self._lengths = {
            Phase.TRAIN: Length(training_steps, training_episodes),
            Phase.EVAL: Length(evaluation_steps, evaluation_episodes),
        }
        self._checkpointer = Checkpointer(self.base_dir, checkpoint_duration)
        self.environment = create_environment_fn()
        if not hasattr(self.environment, "observation_space"):
            kind = type(self.environment).__name__
            raise ValueError(
                f"Runner.create_environment_fn must make an environment, not a {kind}: bind another function"
            )
        self.agent = create_agent_fn(self.environment, seed=seed)
        self.agent.keep_diverged_in(self.base_dir)
        if overlap:
            self.agent.overlap_learning()
        self._episodes = dict.fromkeys(Phase, 0)
        first = encounter_of(self.environment)
        self._encounters: dict[Phase, int | None] = dict.fromkeys(
            Phase, first
        )  # each phase follows the order by itself
        self._frames = 0
        self._lost = 0  # transitions of the replay that damaged files have cost, not yet in an iteration's line
        self._history: list[dict[str, Any]] = []
        self._progress: tqdm[Any] | None = None
        self._create_agent = create_agent_fn
        self._create_environment = create_environment_fn
        self._initial_checkpoint = initial_checkpoint
        self._pretraining = None if pretrain_dataset is None else Pretraining(pretrain_dataset, pretrain_updates)
        self._resumed = False
        self.start_iteration = 0

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
        partial: list[tuple[int, dict[str, Any]]] = []
        for number, bundle in checkpointer.load_each(refused, continues=True):
            self._check_identity(bundle.get("identity", {}))
            try:
                self.agent.unbundle(checkpointer.directory, number, bundle["agent"])
            except (OSError, ValueError) as error:
                if isinstance(error, DamagedReplay):
                    partial.append((number, bundle))
                checkpointer.refuse(number, error, refused)
                continue
            self._take_counts(bundle)
            self._warn_of_earlier(number, refused)
            return True
        for number, bundle in partial:
            try:
                lost = self.agent.unbundle(checkpointer.directory, number, bundle["agent"], partial=True)
            except (OSError, ValueError) as error:
                checkpointer.refuse(number, error, refused)
                continue
            self._take_counts(bundle)
            self._warn_of_lost(number, lost)
            self._warn_of_earlier(number, refused)
            return True
        checkpointer.check_beginning(refused)
        if self._initial_checkpoint is not None:
            _load_policy(self.agent, *newest_bundle(Path(self._initial_checkpoint)))
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
        self.start_iteration = bundle["current_iteration"] + 1

    @alone_in_base_dir
    def run_experiment(self) -> None:
        """Run the iterations that are still to do; each ends with a checkpoint."""
        if not self._resumed:
            self.resume()
        if self._pretraining is not None and self._pretraining.pending:
            self._pretraining.run(self.agent, self.base_dir)
            self._save(-1)  # before iteration 0
        metrics = Metrics(self.base_dir, self._history)
        self.agent.set_report(metrics.scalar)
        try:
            for iteration in range(self.start_iteration, self.num_iterations):
                self._run_iteration(iteration, metrics)
                self.start_iteration = iteration + 1
        finally:
            metrics.close()

    def _run_iteration(self, iteration: int, metrics: Metrics) -> None:
        line: dict[str, Any] = {"iteration": iteration}
        scalars: dict[str, float] = {}
        total = sum(length.frames for length in self._lengths.values() if not length.episodes)
        with tqdm(total=total, desc=f"iteration {iteration}", unit="frame", unit_scale=True, disable=None) as progress:
            self._progress = progress
            for phase, length in self._lengths.items():
                if length.frames or length.episodes:
                    begin = time.perf_counter()
                    played = self._run_phase(phase, length)
                    self._encounters[phase] = played.encounter
                    self._summarize(phase, played, time.perf_counter() - begin, line, scalars)
        line["frames"] = self._frames
        if self._lost:
            line["lost_transitions"] = self._lost
        metrics.iteration(line, scalars)
        self._lost = 0
        self._history = metrics.history
        self._save(iteration)
        print(_one_line(line), flush=True)

    def _run_phase(self, phase: Phase, length: Length) -> Played:
        """Play whole episodes: so many, or until at least so many frames have passed."""
        self.agent.eval_mode = phase != Phase.TRAIN
        go_to_encounter(self.environment, self._encounters[phase])
        updates = self._updates()
        episodes: list[Episode] = []
        if length.episodes is not None:
            episodes = [self._play(phase) for _ in range(length.episodes)]
        while length.episodes is None and sum(episode.frames for episode in episodes) < length.frames:
            episodes.append(self._play(phase))
        actions = sum(episode.actions for episode in episodes)
        return Played(episodes, actions, self._updates() - updates, encounter_of(self.environment))

    def _updates(self) -> int:
        return self.agent.updates

    def _play(self, phase: Phase) -> Episode:
        seed = episode_seed(self.seed, phase, self._episodes[phase])
        episode = play_episode(self.agent, self.environment, seed, self.max_steps_per_episode)
        self._episodes[phase] += 1
        if phase == Phase.TRAIN:
            self._frames += episode.frames
        if self._progress is not None:
            self._progress.set_postfix_str(f"last return {episode.score:g}", refresh=False)
            self._progress.update(episode.frames)
        return episode

    def _summarize(
        self, phase: Phase, played: Played, seconds: float, line: dict[str, Any], scalars: dict[str, float]
    ) -> None:
        """Add a phase to the iteration's statistics and scalars, under Dopamine's names."""
        name, episodes = phase.name.lower(), played.episodes
        scores = [episode.score for episode in episodes]
        average, rate = statistics.fmean(scores), sum(episode.frames for episode in episodes) / seconds
        line[f"{name}_episode_lengths"] = [episode.frames for episode in episodes]
        line[f"{name}_episode_returns"] = scores
        line[f"{name}_average_return"] = average
        line[f"{name}_average_steps_per_second"] = rate
        line |= {f"{name}_{fact}": value for fact, value in facts(played).items()}
        tag = name.capitalize()
        scalars[f"{tag}/NumEpisodes"] = len(episodes)
        scalars[f"{tag}/AverageReturns"] = average
        scalars[f"{tag}/AverageStepsPerSecond"] = rate

    def _save(self, iteration: int) -> None:
        bundle = {
            "identity": self._identity(),
            "agent": self.agent.bundle_and_checkpoint(self._checkpointer.directory, iteration),
            "current_iteration": iteration,
            "episodes": {phase.name: count for phase, count in self._episodes.items()},
            "encounters": {phase.name: number for phase, number in self._encounters.items()},
            "frames": self._frames,
            "lost_transitions": self._lost,
            "logs": self._history,
        }
        kept = self._checkpointer.save(iteration, bundle)
        self.agent.forget_checkpoints(self._checkpointer.directory, kept)

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

    def closing_line(self) -> str:
        """Say what training has come to: episodes, frames, wins and losses, actions per frame, updates per action."""
        return closing_line(self._history)

    def trained_agent(self) -> Agent:
        """Return a new agent with the newest good checkpoint's weights, as if it had never played.

        It gives the same evaluation whenever and wherever it is asked for.

        Raises:
            ValueError: There is no good checkpoint.
        """
        agent = self._create_agent(self.environment, seed=self.seed)
        _load_policy(agent, *newest_bundle(self.base_dir))
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


_ACTING = ("agent", "observation_shape", "actions", "network")  # what must be alike where only weights are taken
_SHOWN_FIRST = ("agent", "environment", "observation_shape", "actions")  # differences of which others follow


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


def _load_policy(agent: Agent, path: Path, bundle: Mapping[str, Any]) -> None:
    if "identity" not in bundle or "agent" not in bundle:
        raise ValueError(f"checkpoint {path} is not one of a run: it holds {', '.join(map(str, bundle)) or 'nothing'}")
    here, there = ({name: facts.get(name) for name in _ACTING} for facts in (agent.identity(), bundle["identity"]))
    if difference := _difference(there, here):
        raise ValueError(f"checkpoint {path} does not fit this agent ({difference})")
    agent.load_policy(bundle["agent"])


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
    parts = [f"iteration {line['iteration']}: {line['frames']} training frames"]
    for phase in ("train", "eval"):
        if f"{phase}_average_return" in line:
            parts.append(
                f"{phase} return {line[f'{phase}_average_return']:.1f} over {len(line[f'{phase}_episode_returns'])} "
                f"episodes, {line[f'{phase}_average_steps_per_second']:.0f} frames/s"
            )
        if f"{phase}_wins" in line:
            parts.append(f"{line[f'{phase}_wins']} wins, {line[f'{phase}_losses']} losses")
    return "; ".join(parts)


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"Runner.{name} must be a whole number >= {least}, got {value!r}")


def factory(name: str, value: Any, example: str) -> None:
    """Refuse a value that makes nothing.

    Raises:
        ValueError: It cannot be called; the message names the key and an example.
    """
    if not callable(value):
        raise ValueError(f"{name} must be a function or a class, such as {example} (without brackets), got {value!r}")
