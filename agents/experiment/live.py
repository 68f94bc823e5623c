"""Training and evaluation against a real clock: the runner's phases, played by workers and learners in parallel.

`create_runner.create_runner` chooses between this runner and the turn-based ones.
"""

from __future__ import annotations

import inspect
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
from absl import logging

from async_wrappers.agents.demonstrations.demonstration import delay_layer
from async_wrappers.agents.experiment.checkpoint import newest_bundle
from async_wrappers.agents.experiment.metrics import SUMMED_UP, EpisodeRow
from async_wrappers.agents.experiment.other_run import portable
from async_wrappers.agents.experiment.runner import DifferentExperiment, Runner
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.learning.making import maker_of_learners
from async_wrappers.agents.play.agent import Agent
from async_wrappers.agents.play.play import (
    Episode,
    Length,
    Phase,
    Played,
)
from async_wrappers.agents.settings import factory, must, runner, whole, with_gin_values
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import PARTS

__all__ = ["LiveRunner", "RunStopped", "note_standing"]

TIMING = "timing"
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


class RunStopped(RuntimeError):
    """The game ended a phase before its time, as no action came for too long (`AsyncRunner.stop_after_missed`)."""


@runner
class LiveRunner(Runner):
    """The iterations of `Runner`, live: the environment does not wait while the agent's workers think and learn.

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

    def set_up(self) -> None:
        """See `Runner`."""
        super().set_up()
        self._refuse_what_is_of_turns()
        spec, learner = getattr(self.agent, "spec", None), getattr(self.agent, "learner", None)
        if not isinstance(spec, Spec):
            raise ValueError(f"{_SCHEDULE} needs an agent that is made of a Spec, got {self.agent!r}")
        must(
            spec.num_updates_per_train_step == 1,
            f"num_updates_per_train_step must be 1 where {_SCHEDULE}, whose learners update whenever they can, got "
            f"{spec.num_updates_per_train_step}: bind AsyncRunner.updates_per_transition",
        )
        self._refuse_effects(spec)
        self._spec: Spec = spec if spec.stack_size == 1 else spec.of_stacks()
        self._learner: Any = learner
        self._spec.check_warmup()
        with closing(self._make_async_runner()) as runner:  # wrong arguments are refused here, not in the run
            self._learner_count = runner.learners
            self._in_words = f"real, {runner.workers} workers" + (
                f" at {runner.pace:g} frames/s" if runner.pace else ""
            )
            if hasattr(runner, "refuse"):  # a runner of the user's may have none
                runner.refuse(self.environment)
            self._plays: Any = runner
        missing = [name for name in ("load_weights", "gradients", "apply") if not hasattr(self._learner, name)]
        must(
            self._learner_count == 1 or not missing,
            f"AsyncRunner.learners must be 1 with agent {spec.name!r}, whose learner has no {', '.join(missing)}, got "
            f"{self._learner_count}",
        )
        must(
            self._learner_count == 1 or not getattr(spec, "several_steps", False),
            f"AsyncRunner.learners must be 1 with agent {spec.name!r}, whose update has several gradient steps, got "
            f"{self._learner_count}",
        )
        must(
            self._learner_count == 1 or not isinstance(learner, Learner) or learner.acting is learner.network,
            f"AsyncRunner.learners must be 1 with agent {spec.name!r}, which publishes a part of its weights, got "
            f"{self._learner_count}",
        )
        self._learners: list[dict[str, Any]] = []  # their state in a checkpoint, this run's or the initial one
        self._replays: int | None = None  # the number of the replays that belong to it; None where a run begins
        self._saved = -1  # the newest iteration that was saved whole
        self._summed_up: dict[str, float] = {}  # values that the first learner reported beside the scalars of updates
        self._refused: dict[int, str] = {}  # why a checkpoint is not used, by its number
        self._usable: Iterator[tuple[int, dict[str, Any]]] = iter(())  # earlier checkpoints that are left

    def _refuse_effects(self, spec: Spec) -> None:
        """Refuse an agent whose critic reads the frames of effect, where the runner cannot report them."""
        if not spec.needs_effect:
            return
        must(
            spec.stack_size == 1,
            f"stack_size must be 1 with agent {spec.name!r} and critic_at='effect' where {_SCHEDULE}, got "
            f"{spec.stack_size}: stack in a wrapper such as FrameStackObservation, or bind critic_at = 'start'",
        )
        taken = inspect.signature(self.create_async_runner_fn).parameters.values()
        must(
            any(each.name == "report_effect" or each.kind is each.VAR_KEYWORD for each in taken),
            f"critic_at must be 'start' with agent {spec.name!r} where LiveRunner.create_async_runner_fn takes no "
            f"report_effect, got 'effect' and {self.create_async_runner_fn!r}: take @AsyncRunner",
        )

    def _refuse_what_is_of_turns(self) -> None:
        """Refuse settings, agents and environments that only turn-based play can use."""
        must(self.agent.learns, f"{_SCHEDULE} needs an agent that learns, got {self.agent!r}")
        self._refuse_without_teacher()
        must(
            not self.report_episodes,
            f"Runner.report_episodes must be 0 where {_SCHEDULE}, got {self.report_episodes}: its table is of "
            "turn-based play; bind Runner.evaluation_episodes instead",
        )
        must(
            self.pretrain_dataset is None,
            f"Runner.pretrain_dataset must be None where {_SCHEDULE}, got {self.pretrain_dataset!r}: demonstrations "
            "are learnt from in simulation alone",
        )
        must(
            delay_layer(self.environment) is None,
            "the environment is wrapped in RealtimeDelay, which would add a simulated delay to the real one: leave it "
            f"out of the wrappers where {_SCHEDULE}",
        )
        name, off = ("exact_resume", False) if self.exact_resume else ("checkpoint_minutes", None)
        must(
            not self.exact_resume and self.checkpoint_minutes is None,
            f"Runner.{name} must be {off} where {_SCHEDULE}, got {getattr(self, name)}: no live iteration is played "
            "again alike, and one that is interrupted leaves a checkpoint of what was learnt",
        )

    def resume(self) -> bool:
        """Continue from the newest good checkpoint, or begin; see `Runner.resume`.

        A run begins with the initial checkpoint's weights, if one is named, in every learner. Going back to a whole
        checkpoint gains nothing: a live iteration cannot be repeated exactly.
        """
        self._resumed = True
        self._refuse_realtime()
        self._refused, self._usable = {}, self._usable_checkpoints()
        if self._take_next():
            return True
        if self.initial_checkpoint is not None:
            self._load_initial(self.initial_checkpoint)
            self._learners = [self._learner.state_dict()] * self._learner_count
        return False

    def _refuse_realtime(self) -> None:
        """Refuse realtime scheduling that this process may not do; not before, as a run may be looked at elsewhere."""
        if hasattr(self._plays, "refuse_realtime"):
            try:
                self._plays.refuse_realtime()
            except PermissionError as error:
                raise ValueError(str(error)) from None

    def _usable_checkpoints(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the checkpoints whose files are there, newest first, but for old segments of a replay."""
        for number, bundle in self._checkpointer.load_each(self._refused, continues=True):
            self._check_identity(bundle.get("identity", {}))
            self._check_live(bundle)
            self._check_learners(bundle)
            try:
                for learner in range(len(bundle["learners"])):
                    # where `AsyncRunner.save` lets a learner keep its replay
                    self._learner.check_replay(self._checkpointer.directory / f"replay_{learner}", bundle["replays"])
            except (OSError, ValueError) as error:
                self._checkpointer.refuse(number, error, self._refused)
                continue
            yield number, bundle

    def _take_next(self) -> bool:
        """Load the next usable checkpoint; return whether there is one, or raise if all of them are bad."""
        for number, bundle in self._usable:
            self._take_counts(bundle)
            self._learners, self._replays = bundle["learners"], bundle["replays"]
            if (compute := getattr(self._spec, "compute", None)) is not None:
                compute.keep_precision(self._learners[0])  # workers are sent the spec
            self._warn_of_earlier(number, self._refused)
            return True
        self._checkpointer.check_beginning(self._refused)
        return False

    @property
    def _saves_amid(self) -> bool:
        """False: a live run ends at once, and writes a checkpoint in its own way."""
        return False

    def _run_iteration(self, iteration: int) -> None:
        """Run an iteration; one that is interrupted, or that the game ended, leaves a checkpoint too."""
        self._play_seconds = 0.0  # of its finished phases, without starting up and warm-up
        try:
            super()._run_iteration(iteration)
        except (KeyboardInterrupt, RunStopped):
            if self._saved < iteration and self._live.is_open:  # not while the parts were being started
                # The learners' state is kept; the iteration will be repeated.
                self._write_checkpoint(iteration, iteration - 1)
            raise

    def trained_agent(self, checkpoint: Path | None = None) -> Agent:
        """Return a new agent with the newest good checkpoint's weights; see `Runner.trained_agent`.

        Raises:
            DifferentExperiment: It is a turn-based experiment's, whose learners cannot be restored in a live run.
            ValueError: There is no good checkpoint.
        """
        self._check_live(newest_bundle(self.base_dir)[1])
        return super().trained_agent(checkpoint)

    def _delay_in_words(self) -> str:
        return self._in_words

    def check_recordable(self) -> None:
        """Refuse: writing a video would hold up a game that does not wait."""
        raise ValueError(
            "no video can be made where create_runner.schedule = 'realtime', for writing it would hold up the game: "
            "evaluate in turn, with --gin_bindings \"create_runner.schedule = 'continuous_train'\""
        )

    def evaluation(self, agent: Agent, episodes: int, videos: Path | None = None) -> list[Episode]:
        """Play evaluation episodes live, with the newest checkpoint's weights.

        Raises:
            ValueError: Videos are asked for.
            RunStopped: The game ended them before their time.
        """
        if videos is not None:
            self.check_recordable()
        learner = newest_bundle(self.base_dir)[1]["learners"][0]  # their weights are equal when they are saved
        with self._make_async_runner(learners=1) as live:
            _load_states(live, [learner])
            report = live.run(
                episodes=episodes,
                eval_mode=True,
                phase=Phase.FINAL,
                max_episode_frames=self.max_steps_per_episode,
                phase_state=self._encounters[Phase.FINAL],
            )
        _check_whole(report, Phase.FINAL)
        return [Episode(episode.score, episode.frames, won=episode.won) for episode in report.episodes]

    def _new_agent(self) -> Agent:
        """Return a new agent for the spaces of a live policy, which chunks and a committed prefix change."""
        made: Any = with_gin_values(self.create_async_runner_fn)
        spaces = getattr(getattr(made, "function", made), "policy_spaces", None)
        if spaces is None:
            return super()._new_agent()
        seen: gym.Env[Any, Any] = gym.Wrapper(self.environment)
        bound = getattr(made, "bindings", {})
        for name, instead in _SAID_ELSEWHERE.items():
            must(
                name not in bound or (name, bound[name]) == ("stack_size", 1),  # which a saved config has
                f"AsyncRunner.{name} must not be bound where {_SCHEDULE}, got {bound.get(name)!r}: {instead}",
            )
        seen.observation_space, seen.action_space = spaces(seen.observation_space, seen.action_space, **bound)
        return self.create_agent_fn(seen, seed=self.seed)

    def _make_async_runner(self, **terms: Any) -> Any:
        make_env = portable(self.create_environment_fn)
        return self.create_async_runner_fn(
            make_env,
            self._spec.make_policy,
            make_learner=maker_of_learners(self._spec),
            seed=self.seed,
            extras=self._spec.extras,
            features=self._spec.features,
            **({"stack_size": self._spec.stack_size} if self._spec.whole_stacks else {}),
            **({"report_effect": True} if self._spec.needs_effect else {}),
            **({"learns_from": "drawn"} if self._spec.learns_from == "drawn" else {}),
            **terms,
        )

    def _open(self) -> Any:
        """Return the runner; where there is a checkpoint, its parts are started and its learners restored from it.

        Where a run goes on, that checkpoint may be an earlier one than the one loaded first.
        """
        self._live = runner = self._make_async_runner()
        if self._learners:
            runner.__enter__()
            try:
                runner.start()  # a failure here does not mean a bad checkpoint
                if self._replays is None:
                    _load_states(runner, self._learners)
                else:
                    self._restore(runner)
            except BaseException:
                runner.close()
                raise
        return runner

    def _run_phase(self, phase: Phase, length: Length) -> Played:
        begin, began = time.perf_counter(), self.seconds
        notes_standing = self.standing_at is not None and phase == Phase.TRAIN
        # Where the environment plays in a process of its own, it reports nothing until the phase is over.
        with self._while_waiting(phase, length):
            report = self._live.run(
                frames=length.frames if length.episodes is None else None,
                episodes=length.episodes,
                whole_episodes=True,
                max_episode_frames=self.max_steps_per_episode,
                eval_mode=phase != Phase.TRAIN,
                phase=int(phase),
                first_episode=self.episodes[phase],
                frames_before=self.frames,
                phase_state=self._encounters[phase],
                on_frame=partial(note_standing, self.standing_at) if notes_standing else None,
            )
        if report.stopped is not None:
            self._note(report, phase, time.perf_counter() - begin)  # its timing has the details
        _check_whole(report, phase)
        episodes = [Episode(episode.score, episode.frames, won=episode.won) for episode in report.episodes]
        self._write_rows(phase, report.episodes, began)
        self.episodes[phase] += len(episodes)
        if phase == Phase.TRAIN:
            self.frames += sum(episode.frames for episode in episodes)
        self._note(report, phase, time.perf_counter() - begin)
        self._play_seconds += report.frames["total"] / report.fps if report.fps > 0 else 0.0
        if self._progress is not None:
            self._tell(phase, len(episodes), sum(episode.frames for episode in episodes))
        for _, standing in report.notes:
            print(self._standing_line(standing), flush=True)
        return Played(episodes, report.frames["fresh"], report.updates, report.phase_state, timing=_ages(report))

    def _write_rows(self, phase: Phase, episodes: Sequence[Any], began: float) -> None:
        """Write a phase's episodes into the table; each has ended where the next one begins."""
        if self._table is None:
            return
        ends = [began + episode.began / 1e9 for episode in episodes[1:]] + [self.seconds]
        rows, frames = [], self.frames
        for number, (episode, end) in enumerate(zip(episodes, ends, strict=True), self.episodes[phase]):
            frames += episode.frames if phase == Phase.TRAIN else 0
            row = (phase.name.lower(), number, self.start_iteration, episode.score, episode.frames, frames, None, end)
            rows.append(EpisodeRow(*row, episode.won))
        self._table.add(rows)

    def _while_waiting(self, phase: Phase, length: Length) -> AbstractContextManager[None]:
        """Show how far a phase is by the clock: the environment does not wait, so its frames follow from the time."""
        pace = getattr(self._live, "pace", None)
        if self._progress is None or pace is None:
            return nullcontext()
        if not self._live.is_open:
            self._live.start()  # no frame is played before

        def progress_after(seconds: float) -> tuple[float, int, float]:
            frames = round(seconds * pace)
            frames = min(frames, length.frames) if length.episodes is None else frames
            return *self._done(phase, frames), self._play_seconds + frames / pace

        return self._progress.while_waiting(progress_after)

    def _seconds_of_play(self) -> float | None:
        return self._play_seconds

    def _standing_line(self, standing: Mapping[str, Any]) -> str:
        """Return a line on the run's progress, earlier iterations included."""

        def of_all(name: str) -> int:
            return int(standing[name]) + sum(int(line.get(f"train_{name}", 0)) for line in self._history)

        episodes = standing["episodes"] + sum(len(line["train_episode_lengths"]) for line in self._history)
        outcome = f"{of_all('wins')} wins, {of_all('losses')} losses, "
        place = "" if standing["encounter"] is None else f"at encounter {standing['encounter']}, "
        return (
            f"at {standing['frame']} frames: {episodes} episodes, {outcome if place else ''}{place}return "
            f"{standing['score']:g} in the running episode, {of_all('actions')} actions, {of_all('updates')} updates"
        )

    def _note(self, report: Any, phase: Phase, seconds: float) -> None:
        """Keep the phase's timing report, and its main numbers as scalars."""
        name = phase.name.lower()
        directory = self.base_dir / TIMING
        directory.mkdir(parents=True, exist_ok=True)
        report.to_json(directory / f"{name}.{self.start_iteration}.json")
        facts, tag = report.to_dict(), f"{name.capitalize()}Timing"
        frames = facts["frames"]
        scalars = {
            "FreshShare": frames["fresh"] / max(frames["total"], 1),
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
            self._metrics.scalar(f"{tag}/{scalar}", value, self.frames)
        for scalar, value in report.scalars.items():
            self._metrics.scalar(scalar, value, self.frames)
        times = {name: report.scalars[f"Time/{name}"] for name in PARTS if f"Time/{name}" in report.scalars}
        self._take_times(phase, times, seconds, {})
        if phase == Phase.TRAIN:
            self._summed_up = {name: report.scalars[name] for name in SUMMED_UP if name in report.scalars}
        logging.info("%s phase, %.1f s:\n%s", name, seconds, report)

    def _newest(self) -> Iterable[tuple[str, float]]:
        return self._summed_up.items()

    def _save(self, iteration: int) -> None:
        self._write_checkpoint(iteration, iteration)
        self._saved = iteration

    def _write_checkpoint(self, iteration: int, done: int) -> None:
        directory, amid = self._checkpointer.directory, done < iteration
        # The replays of a checkpoint during an iteration have a number of their own: those of its end would be written
        # in their place before the end's checkpoint.
        number = self._number_replay(iteration) if amid else iteration
        try:
            self._live.save(directory, number)
            learners = self._live.take_states(directory, number)
        finally:
            self._live.drop_states(directory, number)
        if not amid:
            self._replay_of.pop(iteration, None)
        bundle = {**self._bundle({"learner": learners[0]}, done), "learners": learners, "replays": number}
        self._live.forget(directory, self._written(iteration, bundle, amid))

    def _check_live(self, bundle: Mapping[str, Any]) -> None:
        if "learners" not in bundle:
            raise DifferentExperiment(
                f"base_dir {self.base_dir} holds checkpoints of a turn-based experiment: choose another base_dir"
            )

    def _check_learners(self, bundle: Mapping[str, Any]) -> None:
        if (there := len(bundle["learners"])) != self._learner_count:
            raise DifferentExperiment(
                f"AsyncRunner.learners must be {there}, as many as base_dir {self.base_dir} was saved with, got "
                f"{self._learner_count}: bind AsyncRunner.learners = {there}, or choose another base_dir"
            )

    def _restore(self, runner: Any) -> None:
        """Restore the learners from the loaded checkpoint, or from an earlier one if that fails."""
        directory = self._checkpointer.directory
        while True:
            number = self._replays
            assert number is not None
            try:
                runner.put_states(directory, number, self._learners)  # a full disk does not mean a bad checkpoint
                try:
                    lost = runner.restore(directory, number)
                except (OSError, ValueError) as error:
                    self._checkpointer.refuse(number, error, self._refused)
                    self._take_next()
                    continue
            finally:
                runner.drop_states(directory, number)  # they are in the checkpoint
            if any(lost):
                self._warn_of_lost(number, sum(lost))
            return


def _load_states(runner: Any, states: Sequence[Any]) -> None:
    """Load a runner's learners with states, without replays."""
    # They are written into a directory of their own: a run may be writing to base_dir, or nobody may.
    with tempfile.TemporaryDirectory() as directory:
        runner.put_states(directory, 0, states)
        runner.restore(directory, 0, replays=False)


def _check_whole(report: Any, phase: Phase) -> None:
    """Refuse to count a phase that the game ended before its time: its last episode is incomplete."""
    if report.stopped is not None:
        frames = report.frames["total"]
        raise RunStopped(f"the {phase.name.lower()} phase ended after {frames} frames: {report.stopped}")


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
