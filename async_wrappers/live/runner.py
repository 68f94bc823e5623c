"""`AsyncRunner`: N workers of one policy play one environment that does not wait."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, cast

import gymnasium as gym

from async_wrappers.checks import flag, function, plain_data, positive, whole, whole_frames
from async_wrappers.latency import Latency, as_latency, nanoseconds, seconds_of
from async_wrappers.live.environment import FrameStatus
from async_wrappers.live.learning.learner_state import read_state, state_file, write_state
from async_wrappers.live.memory.block import Codec
from async_wrappers.live.report import TimingReport
from async_wrappers.live.run_spec import Backend, LoopConfig, PhaseSpec, RunFailed, RunSpec
from async_wrappers.live.stacks import stacked_space
from async_wrappers.schedule.dispatch import refuse_old_playout
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.simulated import worker_count
from async_wrappers.schedule.stagger import make_stagger
from async_wrappers.wrappers.chunk import Chunk, as_chunk, moved_to_chunk, names_chunk
from async_wrappers.wrappers.committed_prefix import PrefixRows, prefix_length

__all__ = ["AsyncRunner"]

_MOST_LEARNERS = 10_000
_LONGEST_STACK = 100_000  # observations
_LARGEST_JOURNAL = 1_000_000_000  # transitions


class AsyncRunner:
    """Plays an environment with many workers of one slow policy, against the clock.

    The environment loop, on every frame's deadline: publish the observation, offer it to the workers, collect the
    actions that have arrived, apply one that is due, or the default action. It waits for nobody.

    ============= ==================================================== ================================================
    backend       where workers run                                    time
    ============= ==================================================== ================================================
    ``"process"`` processes; environment and learners too              the monotonic clock
    ``"thread"``  threads of this process, beside the environment loop the monotonic clock
    ``"virtual"`` here, one after the other                            simulated: an inference takes what the latency
                                                                       model says, nothing sleeps, runs are
                                                                       deterministic by their seed
    ============= ==================================================== ================================================

    On the virtual clock a run gives the same frames, actions and rewards as `RealtimeDelay` with the same arguments and
    seeds. Policies are described in `async_wrappers.policy`, learners in `async_wrappers.live.learning.learner`.
    Functions that make them, and the environment, may be lambdas or functions of a notebook. In a script, run under
    ``if __name__ == "__main__":``.

    In a ``with`` block parts start with the first run and end with the block, and each run goes on with the episode
    after the last one's; otherwise each run starts and ends them, and begins with episode 0. (On the virtual clock the
    parts are there from the start, until `close`, or until a run with learners is interrupted.)

    Args:
        make_env: Makes the environment, which is stepped once per frame.
        make_policy: Makes a policy (`Policy`, or a function of the observation); called once per worker.
        workers: How many infer at a time.
        fps: Frames per second.
        stagger: When workers start: a name or an object of `async_wrappers.schedule.stagger`.
        playout: With tickets: frames, or a quantile of the latency such as ``"p99"``, which on a real clock is that of
            the newest response times, estimated again at each reset.
        slot: With tickets: least distance between two starts, in frames; ``"even"``: starts are spread evenly at the
            rate that the workers sustain.
        backend: A name of the table, or a function from a `RunSpec` to a `Backend`.
        make_learner: Makes a `Learner`; may take the keywords ``number`` and ``learners``.
        learners: How many learners work beside the game. Each observes every transition, and keeps what it needs of
            them: L learners hold L replays.
        latency: On the virtual clock: how long an inference takes, a model of `async_wrappers.latency`, or seconds. On
            a real clock: what the strategy is prepared from, instead of warm-up inferences.
        learner_latency: On the virtual clock, with learners: how long an update takes, a model or seconds.
        default_action: As in `RealtimeDelay`: what a frame receives that no action is due on. For a robot: ``"repeat"``
            holds the last action, `RampDown` brings it down to the no-op. With ``Chunk(H)`` the policy answers chunks
            of actions, elements of ``MultiDiscrete([A] * H)`` or of a Box [H, ...], and a transition has ``executed``,
            bool [H]: which entries of its action were applied. A `Chunk` with a mean is not for learning.
        max_age: Frames: an action whose observation is older on the frame on which it would be applied is refused
            (``report.frames["too_old"]``), and the frame receives the default action. None for no limit.
        stop_after_missed: End the run, with the reason in ``report.stopped``, after so many frames in a row without an
            action of the policy's; counted from the beginning of an episode, and from the end of a pause. None: never.
        pause_action: What frames of a pause receive, as `default_action`; None for the default action itself.
        between_episodes: ``"drain"``: the next episode begins when all inferences have ended, as in the simulation;
            ``"continue"``: it begins on the next frame of the same clock, and the actions of the old one are dropped.
            On the virtual clock inferences in flight are discarded where an episode ends.
        seed: Of the episodes: episode n of a phase is reset with a seed made of (seed, phase, n).
        eval_mode: Passed to policies; nothing is learnt in evaluation.
        start_timeout: Seconds to wait until every worker has inferred once; then it begins without the missing ones.
        calibration_time: Seconds of warm-up inferences at most.
        journal: Transitions that shared memory holds for the learners.
        updates_per_transition: At most so many updates of all learners together for each transition; None for as many
            as there is time for.
        pin: Whether each worker stays on a core.
        extras: What the policy leaves for the learner beside each action, such as its log-probability: a
            ``gymnasium.spaces.Dict``. Then ``act`` returns an object with the attributes ``action`` and ``extras``, and
            a transition has the extras of its decision. None: ``act`` returns the action, and nothing is kept.
        committed_prefix: With chunks: number of frames whose committed actions are added to each observation, from the
            observation's frame on, as by `CommittedPrefix`. Transitions hold them too. None adds none.
        flat_prefix: Whether they are appended to a vector observation, as ``CommittedPrefix(flat=True)`` does.
        stack_size: Observations of the last k decisions that the policy reads (`async_wrappers.live.stacks`): above 1
            policies, and learners in a transition's observation, get stacks ``[k, *shape]`` in the place of single
            ones.
        overdue_times: A worker whose inference has gone on for so many times the longest one of the run, and for
            `overdue_seconds`, is taken for dead: it is ended and started again, with a warning, and counted among the
            restarts. In processes alone: a thread cannot be ended, and on the virtual clock nothing is late.
        overdue_seconds: See `overdue_times`.
        features: Of a policy with memory, in two halves (`async_wrappers.policy.SplitPolicy`): the space of what its
            ``encode`` returns, for workers to hand on in the place of actions. The environment loop, in whose process
            `make_policy` is called too, makes actions of them when they are due, with ``release``, in the order of
            starts. None: the policy has ``act``, and no memory.

    Raises:
        ValueError: An argument out of range, an unknown backend, or a function that cannot be sent to another process.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import AsyncRunner
        >>> runner = AsyncRunner(lambda: gym.make("CartPole-v1"), lambda: lambda observation: int(observation[2] > 0),
        ...                      workers=4, fps=50, backend="virtual", latency=0.060, default_action="repeat")
        >>> report = runner.run(episodes=3)
        >>> report.frames["total"] > 20
        True
    """

    moved: ClassVar[Mapping[str, tuple[Any, str]]] = moved_to_chunk("AsyncRunner")

    @names_chunk
    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        make_policy: Callable[[], Any],
        workers: int,
        fps: Any,
        stagger: Any = "tickets",
        playout: int | str = "p99",
        slot: int | str | None = None,
        *,
        backend: Any = "process",
        make_learner: Callable[..., Any] | None = None,
        learners: int | None = None,
        latency: Any = None,
        learner_latency: Any = None,
        default_action: Any = "noop",
        between_episodes: str = "drain",
        seed: int = 0,
        eval_mode: bool = False,
        start_timeout: float = 60.0,
        calibration_time: float = 5.0,
        journal: int = 10_000,
        updates_per_transition: float | None = None,
        pin: bool = False,
        extras: gym.spaces.Dict | None = None,
        max_age: int | None = None,
        stop_after_missed: int | None = None,
        pause_action: Any = None,
        committed_prefix: int | None = None,
        flat_prefix: bool = False,
        stack_size: int = 1,
        overdue_times: float = 10.0,
        overdue_seconds: float = 1.0,
        features: gym.Space[Any] | None = None,
    ) -> None:
        """See the class."""
        function("make_env", make_env, "makes the environment")
        function("make_policy", make_policy, "makes a policy")
        if make_learner is not None:
            function("make_learner", make_learner, "makes a learner, or None")
        workers = worker_count(workers)
        learners = _learners(make_learner, learners)
        if not isinstance(between_episodes, str) or between_episodes not in ("drain", "continue"):
            raise ValueError(f"between_episodes must be 'drain' or 'continue', got {between_episodes!r}")
        eval_mode, pin = flag("eval_mode", eval_mode), flag("pin", pin)
        if updates_per_transition is not None:
            updates_per_transition = positive(
                "updates_per_transition", updates_per_transition, finite=False, or_none=True
            )
        self._make_backend = _backend(backend)
        update_latency = _learner_latency(learner_latency, backend, learners, updates_per_transition)
        self._fps = FrameClock(fps).fps
        chunk, prefix = _chunks(default_action, committed_prefix, flat_prefix)
        if chunk is not None and chunk.mean is not None and learners:
            raise ValueError(
                f"a Chunk with mean={chunk.mean!r} is for acting alone, as no entry is applied as the policy drew it: "
                f"leave it None where anybody learns, got learners={learners}"
            )
        features = _features(features)
        if prefix is not None and features is not None:
            raise ValueError(
                f"committed_prefix={committed_prefix!r} needs actions that are known before they are due, and with "
                f"features={features!r} they are made when they are: leave one of the two out"
            )
        config = LoopConfig(
            workers,
            fps,
            make_stagger(stagger, playout, slot),
            default_action if chunk is None else chunk.after,
            between_episodes,
            None if latency is None else as_latency(latency),
            seconds_of("start_timeout", start_timeout),
            seconds_of("calibration_time", calibration_time),
            whole("seed", seed, 0),
            _max_age(max_age, backend),
            None if stop_after_missed is None else whole("stop_after_missed", stop_after_missed, 1, or_none=True),
            pause_action,
            chunk,
            prefix,
            whole("stack_size", stack_size, 1, _LONGEST_STACK, unit="observations"),
            (
                positive("overdue_times", overdue_times),
                nanoseconds(min(positive("overdue_seconds", overdue_seconds, unit="seconds"), 1e9)),  # 30 years
            ),
        )
        refuse_old_playout(config.max_age, config.stagger.playout)
        self._spec = RunSpec(
            make_env,
            make_policy,
            config,
            make_learner,
            learners,
            whole("journal", journal, 8, _LARGEST_JOURNAL),
            updates_per_transition,
            pin,
            update_latency,
            _extras(extras),
            features,
        )
        if config.stagger.granted is not None and not learners:
            raise ValueError(f"stagger={stagger!r} gives learning a place in the cycle: give make_learner")
        if isinstance(backend, str) and backend == "thread" and learners:
            raise ValueError(f"learners={learners} need backend='process', got backend='thread'")
        if isinstance(backend, str) and backend in ("process", "thread") and workers > (cores := _cores()):
            warnings.warn(
                f"workers={workers} share {cores} cores: inferences that compute, rather than wait, take about "
                f"{workers / cores:.1f} times as long; `python -m async_wrappers plan` says what to expect",
                stacklevel=3,  # over `names_chunk`
            )
        self._eval_mode = eval_mode
        self._backend: Backend | None = None
        self._learners_lost = False  # whether an error has ended learners that a run would go on with
        self._is_virtual = isinstance(backend, str) and backend == "virtual"
        self._stays = self._is_virtual  # whether the backend outlives a run
        self._goes_on = False  # whether a run continues the one before
        self._played = {False: (0, 0), True: (0, 0)}  # episodes and frames so far, by eval_mode
        if self._stays:
            self._open()

    @staticmethod
    @names_chunk
    def policy_spaces(
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        default_action: Any = "noop",
        committed_prefix: int | None = None,
        flat_prefix: bool = False,
        stack_size: int = 1,
        **other_arguments: Any,
    ) -> tuple[gym.Space[Any], gym.Space[Any]]:
        """Return the spaces of what a policy sees and answers in a runner with these arguments.

        They are the environment's, but for chunks, the committed prefix and stacks.

        Args:
            observation_space: Of the environment.
            action_space: Of the environment.
            default_action: As the class's.
            committed_prefix: As the class's.
            flat_prefix: As the class's.
            stack_size: As the class's.
            **other_arguments: Of the class, which change nothing here.

        Raises:
            ValueError: An argument out of range, or a space that has no chunks.
        """
        chunk, prefix = _chunks(default_action, committed_prefix, flat_prefix)
        shown = observation_space if prefix is None else PrefixRows(observation_space, action_space, *prefix).space
        stack_size = whole("stack_size", stack_size, 1, _LONGEST_STACK, unit="observations")
        return (
            shown if stack_size == 1 else stacked_space(shown, stack_size),
            action_space if chunk is None else chunk.policy_space(action_space),
        )

    def run(
        self,
        *,
        frames: int | None = None,
        seconds: Any = None,
        episodes: int | None = None,
        whole_episodes: bool = False,
        max_episode_frames: int | None = None,
        eval_mode: bool | None = None,
        phase: int | None = None,
        first_episode: int | None = None,
        frames_before: int | None = None,
        phase_state: Any = None,
        on_frame: Callable[[FrameStatus], Any] | None = None,
    ) -> TimingReport:
        """Play, and report.

        Args:
            frames: Stop after so many frames, in the middle of an episode if need be.
            seconds: Stop after so many seconds of the environment's time.
            episodes: Stop after so many episodes.
            whole_episodes: With frames or seconds: play the last episode to its end.
            max_episode_frames: Cut episodes after so many frames.
            eval_mode: Instead of the runner's own.
            phase: Number that is part of the episodes' seeds; 0, or 1 in evaluation, if not given.
            first_episode: Number of the first episode, if not that after the last run's.
            frames_before: Frames played before, which policies count on from, if not those of the runs before.
            phase_state: Of an environment that keeps something from episode to episode (it has an attribute
                ``phase_state``, of plain data): what it begins with, if not with what it has. The report has what it
                ends with, so that training and evaluation each go on from their own.
            on_frame: Called with a `FrameStatus` as each frame begins, where the environment runs, and to be sent there
                as `make_env` is; a message for each frame would hold up the loop. What it returns, if not None, must be
                plain data: the report's `notes` have it with its frame.

        Raises:
            ValueError: Not exactly one length is given, or it is not positive.
            RunFailed: A part of the run ended for good, or no answer of the policy's was an action.
        """
        whole_episodes = flag("whole_episodes", whole_episodes)
        lengths = {"frames": frames, "seconds": seconds, "episodes": episodes}
        given = {name: value for name, value in lengths.items() if value is not None}
        if len(given) != 1:
            raise ValueError(f"give one of frames, seconds and episodes, got {given or 'none'}")
        if seconds is not None:
            frames = math.ceil(_seconds(seconds) * self._fps)
        if on_frame is not None:
            function("on_frame", on_frame, "is called with each frame's FrameStatus, or None")
        evaluates = self._eval_mode if eval_mode is None else flag("eval_mode", eval_mode)
        played, lived = self._played[evaluates] if self._goes_on else (0, 0)
        longest = None if max_episode_frames is None else whole("max_episode_frames", max_episode_frames, 1)
        what = PhaseSpec(
            number=int(evaluates) if phase is None else whole("phase", phase, 0),
            frames=None if frames is None else whole("frames", frames, 1),
            episodes=None if episodes is None else whole("episodes", episodes, 1),
            whole_episodes=whole_episodes,
            eval_mode=evaluates,
            first_episode=played if first_episode is None else whole("first_episode", first_episode, 0),
            frames_before=lived if frames_before is None else whole("frames_before", frames_before, 0),
            max_episode_frames=longest,
            phase_state=plain_data("phase_state", phase_state),
            on_frame=on_frame,
        )
        self._refuse_without_learners()
        try:
            record = self._open().play(what)
            if record.refusal is not None and not record.accepted:
                raise RunFailed(f"no action was ever accepted: {record.refusal}")
            report = record.report()
        except BaseException:
            # In this thread a learner may have been stopped in the middle of an update.
            if self._is_virtual and self._spec.learners and getattr(self._backend, "is_cut", False):
                self.close()
                self._learners_lost = True
            raise
        finally:
            if not self._stays:
                self.close()
        episodes_played, frames_played = len(report.episodes), report.frames["total"]
        self._played[evaluates] = what.first_episode + episodes_played, what.frames_before + frames_played
        return report

    def pause(self) -> None:
        """Pause from the next frame on, until `resume`; from any thread, while a run goes on or between two.

        The environment goes on, frame by frame and on its deadlines, and receives `pause_action` (a function of it, and
        a `RampDown`, count the frames of the pause as missed). No inference starts, and those that go on are dropped
        when they end. For the learners the episode is cut where the pause begins (a truncation) and goes on as a new
        one after it: no transition spans a pause, and what is paid in it is in the episode's return alone. Afterwards
        all is as at the beginning of an episode: there is no last action, and the first default frames receive what
        they receive there. An environment whose episode has ended is not reset before `resume`, but on the virtual
        clock. Learners go on learning.

        An `on_frame` pauses with ``FrameStatus.pause``.

        Raises:
            RuntimeError: The parts are not up: no run goes on, or the backend cannot pause.
        """
        if self._backend is None:
            raise RuntimeError("pause() needs a run that goes on, or a `with` block between two runs: there is none")
        self._set_pause(True)

    def resume(self) -> None:
        """Go on after `pause`, from the next frame on; without a pause, or where the run has ended, nothing happens."""
        if self._backend is not None:
            self._set_pause(False)

    def _set_pause(self, paused: bool) -> None:
        pause = getattr(self._backend, "pause", None)
        if pause is None:
            raise RuntimeError(f"pause() needs a backend with a method pause(paused), got {self._backend!r}")
        pause(paused)

    def save(self, directory: str | Path, iteration: int = 0) -> None:
        """Let the learners write their state into a directory, between two runs.

        They observe first what the journal still holds, so that no transition is missing.

        Raises:
            OSError: A file could not be written, as where the disk is full; the learners live on.
        """
        self._refuse_without_learners()
        self._with_learners().save(Path(directory), iteration)

    def restore(self, directory: str | Path, iteration: int = 0, *, replays: bool = True) -> list[int]:
        """Let the learners read what `save` wrote.

        Args:
            directory: What `save` was given.
            iteration: What `save` was given.
            replays: Whether to restore their replays too, which evaluation does not need.

        Returns:
            Of each learner, what its ``load_replay`` returned: transitions lost with damaged files; 0 for None.

        Raises:
            ValueError: A file is missing, damaged or of another format; the learners wait to be restored again.
        """
        lost: list[int] = self._with_learners().restore(Path(directory), iteration, replays)
        self._learners_lost = False
        return lost

    def take_states(self, directory: str | Path, iteration: int = 0) -> list[Any]:
        """Return what `save` wrote of each learner's ``state_dict``, and delete the files: for one's own checkpoint.

        `put_states` writes them again, for `restore`.
        """
        states = [read_state(path) for path in self._state_files(directory, iteration)]
        self.drop_states(directory, iteration)
        return states

    def drop_states(self, directory: str | Path, iteration: int = 0) -> None:
        """Delete the learners' states of an iteration, those that `save` or `put_states` could not write included."""
        for path in self._state_files(directory, iteration):
            path.unlink(missing_ok=True)

    def put_states(self, directory: str | Path, iteration: int, states: Sequence[Any]) -> None:
        """Write learners' states where `restore` finds them.

        Raises:
            OSError: A file could not be written; `drop_states` deletes the others.
            ValueError: They are not as many as there are learners.
        """
        if len(states) != self._spec.learners:
            raise ValueError(f"learners must be {len(states)}, as many as were saved, got {self._spec.learners}")
        for path, state in zip(self._state_files(directory, iteration), states, strict=True):
            write_state(path, state)

    @property
    def learners(self) -> int:
        """How many learners work beside the game."""
        return self._spec.learners

    @property
    def workers(self) -> int:
        """How many workers infer."""
        return self._spec.config.workers

    @property
    def pace(self) -> float | None:
        """Frames per second of real time; None on the virtual clock, where a run takes as long as it computes."""
        return None if self._is_virtual else float(self._fps)

    def start(self) -> None:
        """Start the parts now, in a ``with`` block, rather than with the first run."""
        self._learners_lost = False
        self._open()

    @property
    def is_open(self) -> bool:
        """Whether the parts are up; without them there is nothing that `save` could keep."""
        return self._backend is not None

    def forget(self, directory: str | Path, keep: set[int]) -> None:
        """Let the learners delete what they have saved beside their state (replays), but for these iterations."""
        self._refuse_without_learners()
        self._with_learners().forget(Path(directory), keep)

    def close(self) -> None:
        """End all parts; a later run starts them anew."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None

    def __enter__(self) -> AsyncRunner:
        """Keep the parts up from run to run."""
        self._stays = self._goes_on = True
        self._played = {False: (0, 0), True: (0, 0)}
        return self

    def __exit__(self, *error: object) -> None:
        """End all parts."""
        self._stays = self._goes_on = False
        self.close()

    def _state_files(self, directory: str | Path, iteration: int) -> list[Path]:
        return [state_file(Path(directory), iteration, number) for number in range(self._spec.learners)]

    def _refuse_without_learners(self) -> None:
        """Refuse to go on with new learners in the place of those that an error has ended."""
        if self._learners_lost:
            raise RunFailed("the learners ended with the error before: call restore(directory) or start() first")

    def _with_learners(self) -> Any:
        if not self._spec.learners:
            raise ValueError("there is nothing to save or restore without a learner: give make_learner")
        return self._open()

    def _open(self) -> Backend:
        if self._backend is None:
            self._backend = self._make_backend(self._spec)
        return self._backend


def _chunks(
    default_action: Any, committed_prefix: Any, flat_prefix: Any
) -> tuple[Chunk | None, tuple[int, bool] | None]:
    """Return the chunk that the default action is, and length and flat of the committed prefix."""
    chunk = as_chunk(default_action)
    if committed_prefix is None:
        if flag("flat_prefix", flat_prefix):
            raise ValueError("flat_prefix=True needs committed_prefix, got None")
        return chunk, None
    if chunk is None:
        raise ValueError(
            f"committed_prefix={committed_prefix!r} needs default_action=Chunk(length), got {default_action!r}"
        )
    return chunk, (prefix_length("committed_prefix", committed_prefix, None), flag("flat_prefix", flat_prefix))


def _backend(backend: Any) -> Callable[[RunSpec], Backend]:
    """Return what makes the backend; each is imported only when it is asked for."""
    name = backend if isinstance(backend, str) else None
    if name == "process":
        from async_wrappers.live.backends.process import ProcessBackend

        return ProcessBackend
    if name == "thread":
        from async_wrappers.live.backends.thread import ThreadBackend

        return ThreadBackend
    if name == "virtual":
        from async_wrappers.live.backends.virtual import VirtualBackend

        return VirtualBackend
    if callable(backend):
        return cast(Callable[[RunSpec], Backend], backend)
    raise ValueError(f"backend must be 'process', 'thread', 'virtual' or a function of a RunSpec, got {backend!r}")


def _max_age(max_age: int | None, backend: Any) -> int | None:
    """Return the most frames between an observation and its action: on a real clock there is one at least."""
    if max_age is None:
        return None
    frames = whole_frames("max_age", max_age)
    if not frames and backend != "virtual":
        raise ValueError("max_age must be >= 1 frame on a real clock, where the smallest delay is one frame, got 0")
    return frames


def _learners(make_learner: Callable[..., Any] | None, learners: int | None) -> int:
    """Return how many learners there are: one, if there is a function that makes them and no number."""
    number = int(make_learner is not None) if learners is None else whole("learners", learners, 0, _MOST_LEARNERS)
    if number and make_learner is None:
        raise ValueError(f"learners={number} need make_learner, got None")
    return number


def _learner_latency(value: Any, backend: Any, learners: int, updates_per_transition: float | None) -> Latency | None:
    """Return how long an update takes on the virtual clock; None elsewhere, where it is not for us to say."""
    if value is None:
        return None
    if not learners:
        raise ValueError(
            f"learner_latency={value!r} needs a learner: give make_learner and learners >= 1, got learners={learners}"
        )
    if isinstance(backend, str) and backend != "virtual":
        raise ValueError(
            f"learner_latency={value!r} needs backend='virtual', got backend={backend!r}, where an update takes the "
            "time that it takes"
        )
    latency = as_latency(value, "learner_latency")
    if updates_per_transition in (None, math.inf) and nanoseconds(latency.mean) < 1:
        raise ValueError(
            "learner_latency must be > 0 where updates_per_transition is None or infinite, as many updates as there is "
            f"time for, got {value!r}"
        )
    return latency


def _extras(extras: Any) -> gym.spaces.Dict | None:
    """Return what policies leave for the learner, if memory can hold it."""
    if extras is None:
        return None
    if not isinstance(extras, gym.spaces.Dict) or not extras.spaces:
        raise ValueError(f"extras must be a gymnasium.spaces.Dict with at least one entry, or None, got {extras!r}")
    Codec("extras", extras)
    return extras


def _features(features: Any) -> gym.Space[Any] | None:
    """Return what workers answer in the place of actions, if memory can hold it."""
    if features is None:
        return None
    if not isinstance(features, gym.Space):
        raise ValueError(f"features must be a gymnasium.Space, what encode returns, or None, got {features!r}")
    Codec("features", features)
    return features


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seconds(value: Any) -> Fraction:
    try:
        seconds = value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        seconds = Fraction(0)
    if seconds <= 0:
        raise ValueError(f"seconds must be > 0 and finite, got {value!r}")
    return seconds
