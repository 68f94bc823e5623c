"""Playing in turn: one environment waits for one agent, step after step and episode after episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from async_wrappers.agents.acting.frames_read import show_effects
from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.play import (
    EpisodeResult,
    EpisodeRow,
    Length,
    Phase,
    PlayedPhase,
    checksum,
    encounter_of,
    environment_seed,
    go_to_encounter,
    is_game_over,
)
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import PartTimes
from async_wrappers.checks import reward_of
from async_wrappers.gymnasium_api import stepped
from async_wrappers.wrapper_statistics import Statistics, frozen, load_statistics, statistics_of

if TYPE_CHECKING:
    from async_wrappers.agents.experiment.run import Run
    from async_wrappers.agents.play.turns.agents import Agent


class Turns:
    """Plays the run's environment with one agent in turn; the other ways of playing have the same methods.

    A way refuses what it cannot play with a ValueError when it is made. One whose phases do not look at `Run.ending`
    has ``stop()``, which ends the running one when a signal asks the run to end.

    A phase has whole episodes: a number of them, or until at least a number of frames have passed. One that is cut,
    because the run was asked to end, is played again from its seed when the run goes on.

    Args:
        run: The experiment.

    Attributes:
        agent: Plays and learns.
        checkpoint_every: Iterations between two checkpoints.
        unrecordable: Why no video can be made of its evaluation; empty where one can.
    """

    checkpoint_every, unrecordable = 1, ""

    def __init__(self, run: Run) -> None:
        self._run, self._running = run, Running(run.ending)
        self.agent: Agent = self.new_agent()
        spec: Any = getattr(self.agent, "spec", None)
        if isinstance(spec, Spec):
            show_effects(run.environment, spec)
        self.agent.keep_diverged_in(run.base_dir)
        if run.settings.overlap:
            self.agent.overlap_learning()
        self._times: PartTimes = getattr(self.agent, "times", None) or PartTimes()

    def new_agent(self) -> Agent:
        """Return a new agent for the environment."""
        settings = self._run.settings
        return settings.create_agent_fn(self._run.environment, seed=settings.seed)

    def check_here(self) -> None:
        """Refuse what this process cannot play; only where it is to be played, as a run may be looked at elsewhere."""
        spec: Any = getattr(self.agent, "spec", None)
        if hasattr(spec, "check_chunks"):
            spec.check_chunks()

    def begin(self) -> AbstractContextManager[Any]:
        """Start environments and learners, which end with the context: here none.

        Where learners in other processes cannot go on from the checkpoint that was loaded, a way raises
        `CheckpointRefused`.
        """
        self._times.take()
        return nullcontext()

    def teach(self, lesson: Lesson) -> None:
        """Let the agent learn from a teacher, and environments of training show it what it reads; before `begin`.

        Raises:
            ValueError: It cannot be taught here.
        """
        lessons = self._lessons
        self._run.environment = lesson.view.within(self._run.environment)
        lessons.set_teacher(lesson)

    def tell_lessons(self, what: str, *arguments: Any) -> None:
        """Call a method of the lessons of each learner, by its name; where there are several, after `begin`."""
        getattr(self._lessons, what)(*arguments)

    @property
    def _lessons(self) -> Any:
        agent: Any = self.agent
        return agent.lessons

    def train(self, length: Length) -> PlayedPhase:
        """Play a training phase, or less of it where `Run.due` says so; then the rest is asked for.

        Where the run was asked to end all running episodes are cut.
        """
        return self._play_phase(Phase.TRAIN, length)

    def evaluate(self, length: Length) -> PlayedPhase:
        """Play an evaluation phase, with frozen statistics of wrappers.

        One that is not whole, because the run was asked to end, leaves no trace.
        """
        played, evaluated = self._run.counts.episodes[Phase.EVAL], getattr(self.agent, "evaluated", None)
        with frozen(self._run.environment):
            phase = self._play_phase(Phase.EVAL, length)
        if not phase.whole:
            self._run.counts.episodes[Phase.EVAL] = played
            if evaluated is not None:  # an agent of the user's may not number its episodes
                self.agent.go_on_from(evaluated)
        return phase

    def _play_phase(self, phase: Phase, length: Length) -> PlayedPhase:
        run, agent, counts, environment = self._run, self.agent, self._run.counts, self._run.environment
        agent.eval_mode = phase != Phase.TRAIN
        go_to_encounter(environment, encounter := counts.encounters[phase])
        updates, episodes, frames = agent.updates, list[EpisodeResult](), 0
        cut_frames = cut_actions = 0
        with run.shown.waiting(phase, lambda _: (self._running.frames, None)):
            while not (length.is_reached(frames, len(episodes)) or run.ending.asked):
                if phase == Phase.TRAIN and episodes and run.due():
                    break
                try:
                    episode = self._play(phase)
                except EpisodeCut as cut:
                    if phase == Phase.TRAIN:
                        cut_frames, cut_actions = cut.frames, cut.actions
                        counts.frames, counts.cut_frames = counts.frames + cut_frames, counts.cut_frames + cut_frames
                    break
                encounter = encounter_of(environment)
                episodes.append(episode)
                frames += episode.frames
                run.shown.tell(phase, len(episodes), frames, f"last return {episode.score:g}")
        whole = length.is_reached(frames, len(episodes))
        frames, actions = frames + cut_frames, cut_actions + sum(episode.actions for episode in episodes)
        made, of_all = agent.updates - updates, frames if cut_frames else None
        return PlayedPhase(episodes, actions, made, encounter, of_all, times=self._times.take(), whole=whole)

    def _play(self, phase: Phase) -> EpisodeResult:
        run, counts, number = self._run, self._run.counts, self._run.counts.episodes[phase]
        seed = environment_seed(run.settings.seed, phase, number)
        watched: Any = run.environment if phase == Phase.TRAIN else Watched(run.environment)
        limit = run.settings.max_steps_per_episode
        episode = play_episode(self.agent, watched, seed, limit, self._times, self._running)
        self._running.frames = 0  # they are counted in the phase now
        if phase != Phase.TRAIN:
            episode = episode._replace(digest=watched.digest)
        counts.episodes[phase] += 1
        if phase == Phase.TRAIN:
            counts.frames += episode.frames
        row = (phase.name.lower(), number, run.start_iteration, episode.score, episode.frames, counts.frames)
        run.table.add([EpisodeRow(*row, self.agent.updates, run.clock.seconds, episode.won)])
        return episode

    def state(self, directory: Path, number: int) -> dict[str, Any]:
        """Return the entries of a checkpoint that are this way's, `agent` among them.

        Replays are written into `directory` under `number`.
        """
        known = statistics_of(self._run.environment)
        state = {"agent": self.agent.bundle_and_checkpoint(directory, number)}
        return {**state, "statistics": known} if known else state

    def check_kind(self, bundle: Mapping[str, Any], continues: bool = True) -> None:
        """Refuse a checkpoint of another way of playing: nothing, as its identity and its state do not fit.

        Args:
            bundle: The checkpoint's content.
            continues: Whether the run is to continue from it; otherwise its weights alone are needed.
        """

    def load_state(self, directory: Path, number: int, bundle: Mapping[str, Any]) -> None:
        """Restore what `state` returned and wrote; the run's counts are the checkpoint's already.

        Args:
            directory: What `state` was given.
            number: What `state` was given.
            bundle: The checkpoint's content.

        Raises:
            OSError: A part in `directory` is missing or torn.
            ValueError: The state does not fit.
        """
        self.agent.unbundle(directory, number, bundle["agent"])
        self.begin_with(bundle.get("statistics", {}))

    def begin_with(self, statistics: Statistics) -> None:
        """Give the wrappers of training the statistics that belong to the weights which a run begins with."""
        load_statistics(self._run.environment, statistics)

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Delete replays in `directory` under other numbers than those in `keep`."""
        self.agent.forget_checkpoints(directory, keep)

    def identity(self) -> dict[str, Any]:
        """Return plain facts that two runs must share to continue one another."""
        return self.agent.identity()

    def facts(self) -> dict[str, str]:
        """Return facts of the run in words, which replace or complete those of all runs.

        A run's first lines show those by the names ``agent``, ``environment``, ``rewards``, ``delay``, ``device``,
        ``queue`` and ``iterations`` alone.
        """
        return {}

    def statistics(self, phase: Phase, played: PlayedPhase, seconds: float) -> tuple[dict[str, Any], dict[str, float]]:
        """Return what this way adds to an iteration's line, and to its scalars."""
        times = played.times if phase == Phase.TRAIN else {}
        return {}, {f"Time/{name}": each for name, each in times.items()}

    def summary(self) -> Mapping[str, float]:
        """Return the values reported beside the scalars of updates, after the last update."""
        return getattr(self.agent, "summary", dict[str, float])() if self.agent.updates else {}

    def table(self) -> str:
        """Return what is printed after the last iteration; empty for nothing."""
        return ""

    def final(self, episodes: int, newest: Callable[[], Mapping[str, Any]]) -> None:
        """Play evaluation episodes in another way than in turn, and return them; here they are played in turn.

        Args:
            episodes: How many.
            newest: Returns the content of the run's newest checkpoint, whose weights play.
        """


# One episode: an agent and an environment take turns.


class _Endless:
    """Of an episode that nothing cuts."""

    asked = False


class Running:
    """The running episode, as other threads see it.

    Args:
        ending: Whether the run was asked to end (`Ending`): the episode is then cut at its next decision.

    Attributes:
        frames: Stepped so far.
        ending: As given.
    """

    def __init__(self, ending: Any = _Endless) -> None:
        """Begin before the first frame."""
        self.frames, self.ending = 0, ending


class EpisodeCut(Exception):
    """An episode was cut because the run ends.

    Attributes:
        frames: Frames stepped.
        actions: The agent's actions that took effect.
    """

    def __init__(self, frames: int, actions: int) -> None:
        super().__init__()
        self.frames, self.actions = frames, actions


def play_episode(
    agent: Agent,
    environment: gym.Env[Any, Any],
    seed: int,
    max_frames: int | None = None,
    times: PartTimes | None = None,
    running: Running | None = None,
) -> EpisodeResult:
    """Play one episode; where ``info["game_over"]`` is False at its end, the rest of the game is played too.

    Each life is then an episode of the agent, and the result is that of the game.

    Args:
        agent: Asked for each action; it learns if its ``eval_mode`` is False.
        environment: Any environment; ``info["realtime"]`` and ``info["episode_return"]`` are used where it gives them.
        seed: For ``environment.reset``.
        max_frames: Truncate the episode at the end of the step that reaches this number of frames.
        times: Where the time of the steps is counted.
        running: Where the frames are counted, and which may cut the episode.

    Raises:
        EpisodeCut: The episode was cut; to the agent it was truncated.
    """
    times, running = times or PartTimes(), running or Running()
    observation, info = environment.reset(seed=seed)
    action = agent.begin_episode(observation, info.get("realtime"))
    score, frames, actions = 0.0, 0, 0
    before = 0  # frames of the game's earlier lives
    while True:
        begin = perf_counter()
        observation, reward, terminated, truncated, info = stepped(environment, action)
        times.seconds["Step"] += perf_counter() - begin
        realtime = info.get("realtime")
        running.frames = frames = frames + 1 if realtime is None else before + int(realtime["frame"])
        actions += realtime is None or bool(realtime["applied"])
        reward = reward if type(reward) is float else reward_of(reward)
        score += reward
        limited = max_frames is not None and frames >= max_frames
        over = terminated or truncated or limited
        if not (over or running.ending.asked):
            action = agent.step(reward, observation, realtime)
            continue
        agent.end_episode(reward, bool(terminated), observation, realtime)
        if limited or (over and is_game_over(info)):
            break
        if running.ending.asked:
            raise EpisodeCut(frames, actions)
        before = frames
        observation, begun = environment.reset()  # without a seed: the game continues
        action = agent.begin_episode(observation, begun.get("realtime"))
    won = info.get("won")
    return EpisodeResult(float(info.get("episode_return", score)), frames, actions, None if won is None else bool(won))


class Watched:
    """An environment that is played, with a checksum of the observations and actions since a seed was given.

    Args:
        environment: What is played.

    Attributes:
        digest: The checksum.
    """

    def __init__(self, environment: gym.Env[Any, Any]) -> None:
        self._environment, self.digest = environment, 0

    def reset(self, **arguments: Any) -> Any:
        """Reset the environment; with a seed the checksum begins anew."""
        if "seed" in arguments:
            self.digest = 0
        observation, info = self._environment.reset(**arguments)
        self.digest = checksum(observation, self.digest)
        return observation, info

    def step(self, action: Any) -> Any:
        """Step the environment."""
        step = self._environment.step(action)
        self.digest = checksum(step[0], checksum(action, self.digest))
        return step
