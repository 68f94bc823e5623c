"""Playing in turn: one environment waits for one agent, episode after episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from async_wrappers.agents.acting.past_frames import show_effects
from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.play import (
    Agent,
    Episode,
    EpisodeRow,
    Length,
    Phase,
    Played,
    encounter_of,
    environment_seed,
    go_to_encounter,
)
from async_wrappers.agents.play.run import Run
from async_wrappers.agents.play.turns.episode import EpisodeCut, Running, Watched, play_episode
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import PartTimes
from async_wrappers.wrapper_statistics import Statistics, frozen, load_statistics, statistics_of


class Turns:
    """Plays the run's environment with one agent in turn; see `async_wrappers.agents.play.run.Play`.

    A phase has whole episodes: a number of them, or until at least a number of frames have passed. One that is cut,
    because the run was asked to end, is played again from its seed when the run goes on.

    Args:
        run: The experiment.

    Attributes:
        agent: Plays and learns.
    """

    checkpoint_every, unrecordable = 1, ""

    def __init__(self, run: Run) -> None:
        self._run, self._running = run, Running(lambda: run.ending.asked)
        self.agent: Agent = self.new_agent()
        spec: Any = getattr(self.agent, "spec", None)
        if isinstance(spec, Spec):
            show_effects(run.environment, spec)
        self.agent.keep_diverged_in(run.base_dir)
        if run.settings.overlap:
            self.agent.overlap_learning()
        self._times: PartTimes = getattr(self.agent, "times", None) or PartTimes()

    def new_agent(self) -> Agent:
        settings = self._run.settings
        return settings.create_agent_fn(self._run.environment, seed=settings.seed)

    def check_here(self) -> None:
        spec: Any = getattr(self.agent, "spec", None)
        if hasattr(spec, "check_chunks"):
            spec.check_chunks()

    def begin(self) -> AbstractContextManager[Any]:
        """Return a context of nothing: there are no other processes."""
        self._times.take()
        return nullcontext()

    def teach(self, lesson: Lesson) -> None:
        lessons = self._lessons
        self._run.environment = lesson.view.within(self._run.environment)
        lessons.set_teacher(lesson)

    def tell_lessons(self, what: str, *arguments: Any) -> None:
        getattr(self._lessons, what)(*arguments)

    @property
    def _lessons(self) -> Any:
        agent: Any = self.agent
        return agent.lessons

    def train(self, length: Length) -> Played:
        return self._play_phase(Phase.TRAIN, length)

    def evaluate(self, length: Length) -> Played:
        """The statistics of wrappers are frozen."""
        played, evaluated = self._run.counts.episodes[Phase.EVAL], getattr(self.agent, "evaluated", None)
        with frozen(self._run.environment):
            phase = self._play_phase(Phase.EVAL, length)
        if not phase.whole:
            self._run.counts.episodes[Phase.EVAL] = played
            if evaluated is not None:  # an agent of the user's may not number its episodes
                self.agent.go_on_from(evaluated)
        return phase

    def _play_phase(self, phase: Phase, length: Length) -> Played:
        run, agent, counts, environment = self._run, self.agent, self._run.counts, self._run.environment
        agent.eval_mode = phase != Phase.TRAIN
        go_to_encounter(environment, encounter := counts.encounters[phase])
        updates, episodes, frames = agent.updates, list[Episode](), 0
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
        return Played(episodes, actions, made, encounter, of_all, times=self._times.take(), whole=whole)

    def _play(self, phase: Phase) -> Episode:
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
        known = statistics_of(self._run.environment)
        state = {"agent": self.agent.bundle_and_checkpoint(directory, number)}
        return {**state, "statistics": known} if known else state

    def check_kind(self, bundle: Mapping[str, Any], continues: bool = True) -> None:
        """Refuse nothing: the identity and the state of another way do not fit."""

    def load_state(self, directory: Path, number: int, bundle: Mapping[str, Any]) -> None:
        self.agent.unbundle(directory, number, bundle["agent"])
        self.begin_with(bundle.get("statistics", {}))

    def begin_with(self, statistics: Statistics) -> None:
        load_statistics(self._run.environment, statistics)

    def forget(self, directory: Path, keep: set[int]) -> None:
        self.agent.forget_checkpoints(directory, keep)

    def identity(self) -> dict[str, Any]:
        return self.agent.identity()

    def facts(self) -> dict[str, str]:
        return {}

    def statistics(self, phase: Phase, played: Played, seconds: float) -> tuple[dict[str, Any], dict[str, float]]:
        times = played.times if phase == Phase.TRAIN else {}
        return {}, {f"Time/{name}": each for name, each in times.items()}

    def summary(self) -> Mapping[str, float]:
        return getattr(self.agent, "summary", dict[str, float])() if self.agent.updates else {}

    def table(self) -> str:
        return ""

    def final(self, episodes: int, newest: Callable[[], Mapping[str, Any]]) -> None: ...
