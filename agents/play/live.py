"""Training and evaluation against a real clock, played by workers and learners in parallel."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gin
import gymnasium as gym
from absl import logging

from async_wrappers.agents.acting.frames_read import report_effect
from async_wrappers.agents.config.config import portable
from async_wrappers.agents.hyperparameters import factory, must, part, whole, with_gin_values
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.learning.making import maker_of_learners
from async_wrappers.agents.needs_and_offers import bound, refuse
from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.play import (
    NOTHING_PLAYED,
    CheckpointRefused,
    DifferentExperiment,
    EpisodeResult,
    EpisodeRow,
    Length,
    Phase,
    PlayedPhase,
    RunStopped,
    delay_layer,
)
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import PARTS, SUMMED_UP
from async_wrappers.wrapper_statistics import Statistics, with_statistics

if TYPE_CHECKING:
    from async_wrappers.agents.experiment.run import Run

TIMING, SHOWN = "timing", "live"
_SCHEDULE = "create_runner.schedule = 'realtime'"
_OF_THE_AGENT = "leave it out, since the agent that Runner.create_agent_fn makes has its own"
_SAID_ELSEWHERE = {  # parameters of the runner that a live run sets itself
    "make_env": "bind Runner.create_environment_fn",
    "make_policy": _OF_THE_AGENT,
    "make_learner": _OF_THE_AGENT,
    "seed": "bind Runner.seed",
    "extras": _OF_THE_AGENT,
    "features": _OF_THE_AGENT,
    "stack_size": "bind the agent's own, such as DQNAgent.stack_size",
}


@part
class LiveRunner:
    """A run that is live: the environment does not wait while the agent's workers think and learn.

    Its other parameters are bound as ``Runner``'s. Each phase leaves its timing report in ``base_dir/timing``. Refused
    with a ValueError are an agent that does not learn, or whose `epsilon_warmup` is not set and matters, and an
    environment that delays on its own.
    """

    create_async_runner_fn: Callable[..., Any] = factory(
        gin.REQUIRED,
        "Plays: ``@AsyncRunner``, whose workers, frames per second and so on gin binds.",
        "@AsyncRunner (without brackets)",
    )
    standing_at: int | None = whole(
        None,
        "Training frame at which a line says how the run stands, as the published runner does at 20,000. It is kept in "
        "the timing report of its phase.",
        0,
        "frames",
        none="no such line",
    )


class Live:
    """Plays live, in parallel; its methods are those of `Turns`, and `stop` and `restore`.

    Args:
        settings: Of live runs.
        run: The experiment.

    Attributes:
        agent: Of the run, as identity and state of one learner; the workers have agents of their own.
        create_async_runner: Makes what plays.
        live: What plays, while the run goes on.
        unrecordable: Why there are no videos.
    """

    checkpoint_every = 1
    unrecordable = (
        "no video can be made where create_runner.schedule = 'realtime', for writing it would hold up the game: "
        "evaluate in turn, with --gin_bindings \"create_runner.schedule = 'continuous_train'\""
    )

    def __init__(self, settings: LiveRunner, run: Run) -> None:
        self._settings, self._run, self.create_async_runner = settings, run, settings.create_async_runner_fn
        self._statistics: Statistics = {}  # of the wrappers, as the environments that are made begin with them
        self.agent: Any = self.new_agent()
        spec: Any = getattr(self.agent, "spec", None)
        if getattr(spec, "needs_effect", False) and spec.fast_age is None:
            report_effect(run.environment, spec.name)
        self.agent.keep_diverged_in(run.base_dir)
        if run.settings.overlap:
            self.agent.overlap_learning()
        must(bool(self.agent.learns), f"{_SCHEDULE} needs an agent that learns, got {self.agent!r}")
        must(
            delay_layer(run.environment) is None,
            "the environment is wrapped in RealtimeDelay, which would add a simulated delay to the real one: leave it "
            f"out of the wrappers where {_SCHEDULE}",
        )
        if not isinstance(spec, Spec):
            raise ValueError(f"{_SCHEDULE} needs an agent that is made of a Spec, got {self.agent!r}")
        needs = spec.needs
        refuse("live", {**bound(run.settings), **needs})
        there = {
            "chunks, live": needs["fast"] and getattr(getattr(spec, "actions", None), "chunk", None) is not None,
            "a fast path, live": needs["fast"],
            "effects, live": spec.needs_effect and not needs["fast"],
            "a runner without effects": "report_effect" not in _offers(self._factory),
        }
        refuse(there, needs, agent=spec.name)
        lessons = self.agent.lessons
        must(
            lessons is None or lessons.labels_alone,
            f"agent {spec.name!r} must learn from its teacher's labels alone where {_SCHEDULE}, whose workers have no "
            "teacher that acts, and whose learners begin with no other agent's state: bind another "
            "create_runner.schedule",
        )
        spec.draws_labels = True  # of a student: the workers that act have no teacher
        self._spec: Spec = spec if spec.stack_size == 1 else spec.of_stacks()
        self._spec.check_warmup()
        self._make_learner = maker_of_learners(self._spec)
        with closing(self._make_async_runner()) as live:  # wrong arguments are refused here, not in the run
            self._learner_count = live.learners
            self._delay = f"real, {live.workers} workers" + (f" at {live.pace:g} frames/s" if live.pace else "")
            if "refuse" in _offers(live):
                live.refuse(run.environment)
            self.live: Any = live
        learner = self.agent.learner
        missing = [name for name in ("load_weights", "gradients", "apply") if getattr(learner, name, None) is None]
        there = {
            "no gradients": missing,
            "several gradient steps": getattr(spec, "several_steps", False),
            "weights in part": isinstance(learner, Learner) and learner.acting is not learner.network,
        }
        several = {"AsyncRunner.learners": self._learner_count}
        refuse(there, several, agent=spec.name, missing=", ".join(missing))
        self._learners: list[dict[str, Any]] = []  # their state in a checkpoint, this run's or the initial one
        self._replays: int | None = None  # the number of the replays that belong to it; None where a run begins
        self._summed_up: dict[str, float] = {}  # values that the first learner reported beside the scalars of updates
        self._play_seconds = 0.0  # of the iteration's finished phases, without starting up and warm-up

    def new_agent(self) -> Any:
        """Return a new agent for the spaces of a live policy, which chunks and a committed prefix change."""
        environment, settings = self._run.environment, self._run.settings
        spaces = getattr(self._factory, "policy_spaces", None)
        if spaces is None:
            return settings.create_agent_fn(environment, seed=settings.seed)
        seen: gym.Env[Any, Any] = gym.Wrapper(environment)
        given = getattr(with_gin_values(self.create_async_runner), "bindings", {})
        for name, instead in _SAID_ELSEWHERE.items():
            must(
                name not in given or (name, given[name]) == ("stack_size", 1),  # which a saved config has
                f"AsyncRunner.{name} must not be bound where {_SCHEDULE}, got {given.get(name)!r}: {instead}",
            )
        seen.observation_space, seen.action_space = spaces(seen.observation_space, seen.action_space, **given)
        return settings.create_agent_fn(seen, seed=settings.seed)

    @property
    def _factory(self) -> Any:
        """What makes the runner, without the values that gin binds."""
        made: Any = with_gin_values(self.create_async_runner)
        return getattr(made, "function", made)

    def _make_async_runner(self, **terms: Any) -> Any:
        make_env = portable(self._run.settings.create_environment_fn)
        if self._statistics:
            make_env = partial(with_statistics, make_env, self._statistics)
        return self.create_async_runner(
            make_env,
            self._spec.make_policy,
            make_learner=self._make_learner,
            seed=self._run.settings.seed,
            extras=self._spec.extras,
            features=self._spec.features,
            **({"stack_size": self._spec.stack_size} if self._spec.whole_stacks else {}),
            **({"report_effect": True} if self._spec.needs_effect else {}),
            **({"learns_from": "drawn"} if self._spec.learns_from == "drawn" else {}),
            **terms,
        )

    def teach(self, lesson: Lesson) -> None:
        """Labels are made when a batch is drawn, since the workers that act have no teacher."""
        refuse("a teacher, live", self._spec.needs, agent=self._spec.name)
        must(
            lesson.reads_alike and lesson.label_at == "start" and self._spec.stack_size == 1,
            f"the teacher must read what its student reads where {_SCHEDULE}, as labels are made of stored "
            "observations: give both the same wrappers, stack_size = 1 and RunnerWithTeacher.label_at = 'start'",
        )
        refuse("live", lesson.needs)
        lessons = self.agent.lessons
        must(
            "tell" in _offers(self.live) or not lessons.changes,
            "LiveRunner.create_async_runner_fn must make a runner with tell(facts) where the weight of the teacher's "
            f"term changes, got {self.live!r}: give it this method, or bind @AsyncRunner",
        )
        lessons.set_teacher(lesson)
        self._make_learner = lessons.maker_of_learners(self._spec, self._make_learner)

    def tell_lessons(self, what: str, *arguments: Any) -> None:
        """The learners, which are in processes of their own, are told of a weight that changes."""
        lessons = self.agent.lessons
        getattr(lessons, what)(*arguments)
        if lessons.changes:
            self.live.tell(lessons.guide.progress())

    def check_here(self) -> None:
        """Refuse realtime scheduling that this process may not do."""
        if "refuse_realtime" in _offers(self.live):
            try:
                self.live.refuse_realtime()
            except PermissionError as error:
                raise ValueError(str(error)) from None

    def stop(self) -> None:
        """End the running phase, whose newest episode is cut; a signal calls it."""
        if hasattr(self.live, "stop"):  # a runner of the user's may have none
            with suppress(RuntimeError):  # nor may its backend: then the run waits for the phase
                self.live.stop()

    def begin(self) -> AbstractContextManager[Any]:
        """Return the runner; where there is a checkpoint, its parts are started and its learners restored from it."""
        self.live = live = self._make_async_runner()
        if self._run.settings.initial_checkpoint is not None and not self._learners:
            self._learners = [self.agent.learner.state_dict()] * self._learner_count
        if self._learners:
            live.__enter__()
            try:
                live.start()  # a failure here does not mean a bad checkpoint
                if self._replays is None:
                    _load_states(live, self._learners)
                else:
                    self.restore()
            except BaseException:
                live.close()
                raise
        return live  # type: ignore[no-any-return]

    def restore(self) -> None:
        """Restore the learners from the loaded checkpoint.

        Raises:
            CheckpointRefused: They cannot be.
        """
        live, directory, number = self.live, self._run.saved.directory, self._replays
        assert number is not None
        try:
            live.put_states(directory, number, self._learners)  # a full disk does not mean a bad checkpoint
            try:
                live.restore(directory, number)
            except (OSError, ValueError) as error:
                raise CheckpointRefused(str(error)) from error
        finally:
            live.drop_states(directory, number)  # they are in the checkpoint

    def train(self, length: Length) -> PlayedPhase:
        self._play_seconds = 0.0
        played = self._play_phase(Phase.TRAIN, length)
        if self.agent.lessons is not None:
            self.agent.lessons.note_decisions(played.actions)
        return played

    def evaluate(self, length: Length) -> PlayedPhase:
        return self._play_phase(Phase.EVAL, length)

    def _play_phase(self, phase: Phase, length: Length) -> PlayedPhase:
        run, counts, standing_at = self._run, self._run.counts, self._settings.standing_at
        began = run.clock.seconds
        notes_standing = standing_at is not None and phase == Phase.TRAIN
        # Where the environment plays in a process of its own, it reports nothing until the phase is over.
        with shown_by_the_clock(run, self.live, phase, length, self._play_seconds):
            if run.ending.asked and not self.live.is_open:
                raise KeyboardInterrupt  # there is nothing to keep
            if run.ending.asked:
                return NOTHING_PLAYED._replace(encounter=counts.encounters[phase], whole=False)
            report = self.live.run(
                frames=length.frames if length.episodes is None else None,
                episodes=length.episodes,
                whole_episodes=True,
                max_episode_frames=run.settings.max_steps_per_episode,
                eval_mode=phase != Phase.TRAIN,
                phase=int(phase),
                first_episode=counts.episodes[phase],
                frames_before=counts.frames,
                phase_state=counts.encounters[phase],
                on_frame=partial(note_standing, standing_at) if notes_standing else None,
                **self._shown_in(),
            )
        stopped, frames = report.stopped is not None, sum(episode.frames for episode in report.episodes)
        if stopped and not run.ending.asked:
            run.ending.ask(RunStopped(_why_stopped(report, phase)))
        if stopped and phase != Phase.TRAIN:
            _note(run, report, phase, run.clock.seconds - began)
            return NOTHING_PLAYED._replace(whole=False)
        ended = report.episodes[:-1] if stopped else report.episodes  # the last one was cut
        episodes = [EpisodeResult(episode.score, episode.frames, won=episode.won) for episode in ended]
        ends = [began + episode.began / 1e9 for episode in report.episodes[1:]] + [run.clock.seconds]
        _write_rows(run, phase, ended, ends)
        counts.episodes[phase] += len(episodes)
        if phase == Phase.TRAIN:
            counts.frames += frames
            counts.cut_frames += frames - sum(episode.frames for episode in episodes)
        times = _note(run, report, phase, run.clock.seconds - began)
        self._statistics = getattr(report, "statistics", {})
        self._play_seconds += report.frames["total"] / report.fps if report.fps > 0 else 0.0
        if phase == Phase.TRAIN:
            self._summed_up = {name: report.scalars[name] for name in SUMMED_UP if name in report.scalars}
        run.shown.tell(phase, len(episodes), frames, seconds=self._play_seconds)
        for _, standing in report.notes:
            print(_standing_line(run.history, standing), flush=True)
        fresh, ages = report.frames["fresh"], _ages(report)
        of_all = frames if stopped else None
        whole = not stopped or length.is_reached(frames, len(episodes))  # the last episode may outlast the phase
        return PlayedPhase(episodes, fresh, report.updates, report.phase_state, of_all, ages, times, whole)

    def _shown_in(self) -> dict[str, Path]:
        """Return where the runner shows what it plays, if it can: a runner of the user's may not."""
        return {"shown_in": self._run.base_dir / SHOWN} if "shown_in" in _offers(self.live) else {}

    def statistics(self, phase: Phase, played: PlayedPhase, seconds: float) -> tuple[dict[str, Any], dict[str, float]]:
        """The scalars of a phase are those of its timing report, which are written already."""
        return {}, {}

    def summary(self) -> Mapping[str, float]:
        return self._summed_up

    def table(self) -> str:
        return ""

    def state(self, directory: Path, number: int) -> dict[str, Any]:
        try:
            self.live.save(directory, number)
            learners = self.live.take_states(directory, number)
        finally:
            self.live.drop_states(directory, number)
        lessons = self.agent.lessons
        taught = {} if lessons is None else {"lessons": lessons.save(directory, number)}
        known = {"statistics": self._statistics} if self._statistics else {}
        return {"agent": {"learner": learners[0]}, "learners": learners, **known, **taught}

    def check_kind(self, bundle: Mapping[str, Any], continues: bool = True) -> None:
        """The learners of a turn-based experiment cannot be restored in a live run."""
        if "learners" not in bundle:
            raise DifferentExperiment(
                f"base_dir {self._run.base_dir} holds checkpoints of a turn-based experiment: choose another base_dir"
            )

    def load_state(self, directory: Path, number: int, bundle: Mapping[str, Any]) -> None:
        """Take the learners' states, and see that their replays are there; see `restore`."""
        if (there := len(bundle["learners"])) != self._learner_count:
            raise DifferentExperiment(
                f"AsyncRunner.learners must be {there}, as many as base_dir {self._run.base_dir} was saved with, got "
                f"{self._learner_count}: bind AsyncRunner.learners = {there}, or choose another base_dir"
            )
        for learner in range(there):
            # where `AsyncRunner.save` lets a learner keep its replay
            self.agent.learner.check_replay(directory / f"replay_{learner}", number)
        self._learners, self._replays = bundle["learners"], number
        self.begin_with(bundle.get("statistics", {}))
        if self.agent.lessons is not None and "lessons" in bundle:  # else its weight never changed
            self.agent.lessons.load(directory, number, bundle["lessons"])
        if (compute := getattr(self._spec, "compute", None)) is not None:
            compute.keep_precision(self._learners[0])  # workers are sent the spec

    def begin_with(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def forget(self, directory: Path, keep: set[int]) -> None:
        self.live.forget(directory, keep)

    def identity(self) -> dict[str, Any]:
        identity: dict[str, Any] = self.agent.identity()
        return identity

    def facts(self) -> dict[str, str]:
        return {"delay": self._delay}

    def final(self, episodes: int, newest: Callable[[], Mapping[str, Any]]) -> list[EpisodeResult]:
        """Play evaluation episodes live.

        Raises:
            RunStopped: The game ended them before their time.
        """
        bundle = newest()
        learner = bundle["learners"][0]  # their weights are equal when they are saved
        self.begin_with(bundle.get("statistics", {}))
        with self._make_async_runner(learners=1) as live:
            _load_states(live, [learner])
            report = live.run(
                episodes=episodes,
                eval_mode=True,
                phase=Phase.FINAL,
                max_episode_frames=self._run.settings.max_steps_per_episode,
                phase_state=self._run.counts.encounters[Phase.FINAL],
            )
        if report.stopped is not None:
            raise RunStopped(_why_stopped(report, Phase.FINAL))
        return [EpisodeResult(episode.score, episode.frames, won=episode.won) for episode in report.episodes]


def _offers(runner: Any) -> frozenset[str]:
    """Return what a runner, or what makes one, offers beyond playing; see `async_wrappers.AsyncRunner`."""
    return getattr(runner, "offers", frozenset())


def shown_by_the_clock(
    run: Run, live: Any, phase: Phase, length: Length, before: float
) -> AbstractContextManager[None]:
    """Show how far a phase is by the clock: the environment does not wait, so its frames follow from the time.

    Args:
        run: Shows it.
        live: Plays.
        phase: Which.
        length: Its own.
        before: Seconds of play of the iteration's finished phases.
    """
    pace = getattr(live, "pace", None)
    if pace is None:
        return nullcontext()
    if not live.is_open:
        live.start()  # no frame is played before

    def more(seconds: float) -> tuple[int, float]:
        frames = round(seconds * pace)
        frames = min(frames, length.frames) if length.episodes is None else frames
        return frames, before + frames / pace

    return run.shown.waiting(phase, more)


def _write_rows(run: Run, phase: Phase, episodes: Sequence[Any], ends: Sequence[float]) -> None:
    """Write a phase's episodes into the table, with the seconds of the run when each was over."""
    counts = run.counts
    rows, frames = [], counts.frames
    for number, (episode, end) in enumerate(zip(episodes, ends, strict=False), counts.episodes[phase]):
        frames += episode.frames if phase == Phase.TRAIN else 0
        row = (phase.name.lower(), number, run.start_iteration, episode.score, episode.frames, frames, None, end)
        rows.append(EpisodeRow(*row, episode.won))
    run.table.add(rows)


def _standing_line(history: Sequence[Mapping[str, Any]], standing: Mapping[str, Any]) -> str:
    """Return a line on the run's progress, earlier iterations included."""

    def of_all(name: str) -> int:
        return int(standing[name]) + sum(int(line.get(f"train_{name}", 0)) for line in history)

    episodes = standing["episodes"] + sum(len(line["train_episode_lengths"]) for line in history)
    outcome = f"{of_all('wins')} wins, {of_all('losses')} losses, "
    place = "" if standing["encounter"] is None else f"at encounter {standing['encounter']}, "
    return (
        f"at {standing['frame']} frames: {episodes} episodes, {outcome if place else ''}{place}return "
        f"{standing['score']:g} in the running episode, {of_all('actions')} actions, {of_all('updates')} updates"
    )


def _note(run: Run, report: Any, phase: Phase, seconds: float) -> dict[str, float]:
    """Keep the phase's timing report, and its main numbers as scalars; return the times of training's parts."""
    frames_of_all = run.counts.frames
    name = phase.name.lower()
    directory = run.base_dir / TIMING
    directory.mkdir(parents=True, exist_ok=True)
    report.to_json(directory / f"{name}.{run.start_iteration}.json")
    facts, tag = report.to_dict(), f"{name.capitalize()}Timing"
    frames = facts["frames"]
    scalars = {
        **{f"{name.capitalize()}Share": share for name, share in report.shares.items()},
        "DelayFrames": facts["delay_frames"]["mean"],
        "LatencyMs": facts["latency_ms"]["mean"],
        "LatenessMsP99": facts["lateness_ms"]["p99"],
        "MissedDeadlines": frames["missed_deadlines"],
        "FramesPerSecond": facts["fps"],
        "UpdatesPerFrame": facts["updates_per_frame"],
        "TooOld": frames["too_old"],
        **facts["off_policy"],
    }
    if facts["lag_updates"] is not None:
        scalars["LagUpdates"] = facts["lag_updates"]["mean"]
    for scalar, value in scalars.items():
        run.metrics.scalar(f"{tag}/{scalar}", value, frames_of_all)
    for scalar, value in report.scalars.items():
        run.metrics.scalar(scalar, value, frames_of_all)
    logging.info("%s phase, %.1f s:\n%s", name, seconds, report)
    return {part: report.scalars[f"Time/{part}"] for part in PARTS if f"Time/{part}" in report.scalars}


def _load_states(runner: Any, states: Sequence[Any]) -> None:
    """Load a runner's learners with states, without replays."""
    # They are written into a directory of their own: a run may be writing to base_dir, or nobody may.
    with tempfile.TemporaryDirectory() as directory:
        runner.put_states(directory, 0, states)
        runner.restore(directory, 0, replays=False)


def _why_stopped(report: Any, phase: Phase) -> str:
    """Return why a phase was ended before its time, with an episode that is incomplete."""
    return f"the {phase.name.lower()} phase ended after {report.frames['total']} frames: {report.stopped}"


def _ages(report: Any) -> dict[str, float]:
    """Return both mean ages of a phase's actions, and its off-policy metrics if the learner reports them."""
    ages = {"delay_frames": report.delay_frames["mean"]}
    if report.lag_updates is not None:
        ages["lag_updates"] = report.lag_updates["mean"]
    known = {name: value for name, value in ages.items() if math.isfinite(value)}  # JSON has no nan
    names = {"Rho": "rho", "EffectiveSampleSize": "effective_sample_size", "KL": "kl"}
    return known | {names[name]: value for name, value in report.off_policy.items() if math.isfinite(value)}


def note_standing(frame: int | None, status: Any) -> dict[str, Any] | None:
    """Record a live run's progress as one frame begins, as the published runner does; see `AsyncRunner.run`.

    Args:
        frame: Of training, all iterations counted.
        status: Of the phase.

    Returns:
        The counts of the phase as plain data, on that frame alone.
    """
    if status.frame != frame:
        return None
    names = ("frame", "episodes", "wins", "losses", "score", "actions", "updates")
    return {**{name: getattr(status, name) for name in names}, "encounter": status.phase_state}
