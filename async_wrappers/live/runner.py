"""`AsyncRunner`: N workers of one policy play one environment that does not wait."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym

from async_wrappers import posix
from async_wrappers.checks import flag, function, plain_data, whole
from async_wrappers.files import path_of
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.live.learning.learner_state import read_state, state_file, write_state
from async_wrappers.live.report.report import TimingReport
from async_wrappers.live.run_spec import Backend, PhaseSpec, RunSpec
from async_wrappers.live.runner_settings import LONGEST_STACK, RunnerSettings, chunk_and_prefix
from async_wrappers.live.world.environment import FrameStatus
from async_wrappers.live.world.stacks import stacked_space
from async_wrappers.schedule.frames import FrameClock, as_fraction
from async_wrappers.settings import documented, takes
from async_wrappers.wrappers.committed_prefix import PrefixRows


@documented(RunnerSettings)
class AsyncRunner:
    """Plays an environment with many workers of one slow policy, against the clock.

    The environment loop, on every frame's deadline: show the observation, offer it to the workers, collect the
    actions that have arrived, apply one that is due, or the default action. It waits for no worker.

    ============= ==================================================== ================================================
    backend       where workers run                                    time
    ============= ==================================================== ================================================
    ``"process"`` processes; environment and learners too              the monotonic clock
    ``"thread"``  threads of this process, beside the environment loop the monotonic clock
    ``"ray"``     actors of a Ray cluster (`RayWorkers`); environment  the monotonic clock
                  and learners as with ``"process"``
    ``"virtual"`` here, one after the other                            simulated: an inference takes what the latency
                                                                       model says, nothing sleeps, runs are
                                                                       deterministic by their seed
    ============= ==================================================== ================================================

    On the virtual clock a run gives the same frames, actions and rewards as `RealtimeDelay` with the same arguments and
    seeds. Policies are described in `async_wrappers.policy`, learners in `async_wrappers.live.learning.learner`.
    Functions that make them, and the environment, may be lambdas or functions of a notebook. In a script, run under
    ``if __name__ == "__main__":``.

    In a ``with`` block parts start with the first run and end with the block, and each run continues with the
    next episode; otherwise each run starts and ends them, and begins with episode 0. (On the virtual clock the
    parts are there from the start, until `close`, or until a run with learners is interrupted.)

    Attributes:
        offers: What ``train.py`` may ask beyond playing; a runner of your own names those of these that it has.

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

    offers: ClassVar[frozenset[str]] = frozenset({"report_effect", "shown_in", "tell", "refuse", "refuse_realtime"})

    @takes(RunnerSettings)
    def __init__(self, settings: RunnerSettings) -> None:
        self._spec = settings.run_spec()
        self._make_backend = _backend(settings.backend)
        self._fps = FrameClock(self._spec.config.fps).fps
        self._eval_mode = settings.eval_mode
        workers, cores = settings.workers, posix.cores()
        here = settings.backend in ("process", "thread") and self._spec.remote is None
        if here and workers > cores:
            warnings.warn(
                f"workers={workers} share {cores} cores: inferences that compute, rather than wait, take about "
                f"{workers / cores:.1f} times as long; `python -m async_wrappers plan` says what to expect",
                stacklevel=3,  # over `takes`
            )
        self._backend: Backend | None = None
        self._learners_lost = False  # whether an error has ended learners that a run would go on with
        self._is_virtual = isinstance(settings.backend, str) and settings.backend == "virtual"
        self._runs = self._asked_to_stop = False
        self._stays = self._is_virtual  # whether the backend outlives a run
        self._goes_on = False  # whether a run continues the one before
        self._played = {False: (0, 0), True: (0, 0)}  # episodes and frames so far, by eval_mode
        if self._stays:
            self._open()

    @staticmethod
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
        """Return the spaces of a policy's observations and answers in a runner with these arguments.

        They are the environment's, but for chunks, the committed prefix and stacks.

        Args:
            observation_space: Of the environment.
            action_space: Of the environment.
            default_action: As the class's.
            committed_prefix: As the class's.
            flat_prefix: As the class's.
            stack_size: As the class's.
            **other_arguments: Other arguments of the class, which do not change the spaces.

        Raises:
            ValueError: An argument out of range, or a space that has no chunks.
        """
        chunk, prefix = chunk_and_prefix(default_action, committed_prefix, flat_prefix)
        shown = observation_space if prefix is None else PrefixRows(observation_space, action_space, *prefix).space
        stack_size = whole("stack_size", stack_size, 1, LONGEST_STACK, unit="observations")
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
        shown_in: str | Path | None = None,
    ) -> TimingReport:
        """Play, and report.

        Args:
            frames: Number of frames after which the run stops, also in the middle of an episode.
            seconds: Seconds of the environment's time after which the run stops.
            episodes: Number of episodes after which the run stops.
            whole_episodes: With frames or seconds: play the last episode to its end.
            max_episode_frames: Frames after which an episode is truncated.
            eval_mode: Replaces the runner's own.
            phase: Number that is part of the episodes' seeds; 0, or 1 in evaluation, if not given.
            first_episode: Number of the first episode; None for the one after the last run's.
            frames_before: Frames played before, from which policies count on (`Decision.frame`); None for those of the
                runs before.
            phase_state: What the environment's attribute ``phase_state`` is set to first: plain data that it keeps from
                episode to episode. None leaves it. The report has the last value, so that training and evaluation can
                each continue from their own.
            on_frame: Called with a `FrameStatus` as each frame begins. It runs in the environment's process and is sent
                there as `make_env` is, since a message for each frame would delay the loop. A result that is not None
                must be plain data; the report's `notes` have it with its frame.
            shown_in: Directory that receives a snapshot of the run every second, for ``train.py watch``, where
                the environment has a process of its own (``backend="process"`` and ``"ray"``). None: nothing is shown.

        Raises:
            ValueError: Not exactly one length is given, or it is not positive.
            RunFailed: A part of the run ended for good, or none of the policy's answers was an action.
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
            shown_in=None if shown_in is None else path_of(shown_in).absolute(),
        )
        self._refuse_without_learners()
        if self._runs:
            raise RuntimeError("run() must end before the next one: wait for it, or make an AsyncRunner for each")
        self._runs, self._asked_to_stop = True, False
        try:
            backend = self._open()
            if self._asked_to_stop:
                raise RunFailed("stop() was called before the run's first frame: nothing was played")
            record = backend.play(what)
            if self._asked_to_stop and record.stopped:
                record.reason = record.reason or "stop() was called"
            if record.fates["refused"] and not record.accepted:
                if (abandon := getattr(backend, "abandon", None)) is not None:
                    abandon()
                raise RunFailed(f"no action was ever accepted: {record.refusal}")
            report = record.report()
        except BaseException:
            # In this thread a learner may have been stopped in the middle of an update.
            if self._is_virtual and self._spec.learners and getattr(self._backend, "is_cut", False):
                self.close()
                self._learners_lost = True
            raise
        finally:
            self._runs = False
            if not self._stays:
                self.close()
        episodes_played, frames_played = len(report.episodes), report.frames["total"]
        self._played[evaluates] = what.first_episode + episodes_played, what.frames_before + frames_played
        return report

    def pause(self) -> None:
        """Pause from the next frame on, until `resume`; from any thread, during a run or between two.

        The environment continues, frame by frame and on its deadlines, and receives `pause_action` (a function, or
        a `RampDown`, counts the frames of the pause as missed). No inference starts, and those under way are dropped
        when they end. For the learners the episode is truncated where the pause begins and goes on as a new one after
        it: no transition spans a pause, and its rewards count in the episode's return alone. After the pause there is
        no last action, and default frames receive the same as in the beginning of an episode. An environment whose
        episode has ended is not reset before `resume`, except on the virtual clock. Learners continue to learn.

        An `on_frame` pauses with ``FrameStatus.pause``.

        Raises:
            RuntimeError: The parts are not up: no run is in progress, or the backend cannot pause.
        """
        if self._backend is None:
            raise RuntimeError("pause() needs a run that goes on, or a `with` block between two runs: there is none")
        self._set_pause(True)

    def resume(self) -> None:
        """Continue after `pause`, from the next frame on. Without a pause, or after the run's end, nothing happens."""
        if self._backend is not None:
            self._set_pause(False)

    def stop(self) -> None:
        """End the current run within a frame, from any thread or a signal's handler; without a run nothing happens.

        No action of the policy's is sent after that frame. A `Machine` is sent the safe action then. `run` returns the
        report of what was played, and ``report.stopped`` says so.

        Raises:
            RuntimeError: The backend cannot stop.
        """
        if not self._runs:
            return
        self._asked_to_stop = True
        if (backend := self._backend) is not None:
            if (stop := getattr(backend, "stop", None)) is None:
                raise RuntimeError(f"stop() needs a backend with a method stop(), got {backend!r}")
            stop()

    def _set_pause(self, paused: bool) -> None:
        pause = getattr(self._backend, "pause", None)
        if pause is None:
            raise RuntimeError(f"pause() needs a backend with a method pause(paused), got {self._backend!r}")
        pause(paused)

    def save(self, directory: str | Path, iteration: int = 0) -> None:
        """Let the learners write their state into a directory, between two runs.

        They first observe the rest of the journal, so that no transition is missing.

        Raises:
            OSError: A file could not be written, such as on a full disk; the learners continue.
        """
        self._refuse_without_learners()
        self._with_learners().save(path_of(directory), iteration)

    def restore(self, directory: str | Path, iteration: int = 0, *, replays: bool = True) -> None:
        """Let the learners read the files that `save` wrote.

        Args:
            directory: That of `save`.
            iteration: That of `save`.
            replays: Whether to restore their replays too, which evaluation does not need.

        Raises:
            ValueError: A file is missing, damaged or of another format; the learners wait to be restored again.
        """
        self._with_learners().restore(path_of(directory), iteration, replays)
        self._learners_lost = False

    def take_states(self, directory: str | Path, iteration: int = 0) -> list[Any]:
        """Return each learner's ``state_dict`` that `save` wrote, and delete the files: for a checkpoint of your own.

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
            ValueError: There are more or fewer states than learners.
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
        return self._spec.config.processes

    @property
    def pids(self) -> dict[str, int]:
        """Ids of the parts' processes, by names such as ``"worker 0"``; empty if no parts are up in processes."""
        return dict(getattr(self._backend, "pids", {}))

    @property
    def pace(self) -> float | None:
        """Frames per second of real time; None on the virtual clock, where a run takes as long as it computes."""
        return None if self._is_virtual else float(self._fps)

    def refuse(self, env: gym.Env[Any, Any]) -> None:
        """Refuse, before a part is started, the settings that the loop would refuse in this environment.

        Raises:
            ValueError: A default action, a pause action or limits do not fit the environment.
        """
        from async_wrappers.live.loop.loop import EnvironmentLoop  # as a backend does when it is made

        def no_clock(*arguments: Any, **others: Any) -> Any:
            """Make nothing, since nothing is played."""

        nothing: Any = None
        clock: Any = no_clock
        clock.simulated = self._is_virtual
        EnvironmentLoop(env, nothing, self._spec.config, warns=lambda sentence: None, clock=clock)

    def refuse_realtime(self) -> None:
        """Refuse realtime scheduling that this process may not do, before a part is started.

        Raises:
            PermissionError: There is no right to it.
            ValueError: The core or the system does not fit.
        """
        if not self._is_virtual and self._spec.config.realtime is not None:
            self._spec.config.realtime.refuse()

    def start(self) -> None:
        """Start the parts now, in a ``with`` block, rather than with the first run."""
        self._learners_lost = False
        self._open()

    @property
    def is_open(self) -> bool:
        """Whether the parts are up; without them `save` has nothing to write."""
        return self._backend is not None

    def forget(self, directory: str | Path, keep: set[int]) -> None:
        """Let the learners delete the replays of all iterations but these."""
        self._refuse_without_learners()
        self._with_learners().forget(path_of(directory), keep)

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Let the learners take in facts that change from run to run, such as the weight of a term of their loss.

        A learner has ``tell(facts)`` for it, and one that is started again is told them too.

        Args:
            facts: Plain data, by name.
        """
        self._refuse_without_learners()
        self._with_learners().tell(dict(facts))

    def close(self) -> None:
        """End all parts; a later run starts them anew."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

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
        return [state_file(path_of(directory), iteration, number) for number in range(self._spec.learners)]

    def _refuse_without_learners(self) -> None:
        """Refuse to continue with new learners after an error has ended the old ones."""
        if self._learners_lost:
            raise RunFailed("the learners ended with the error before: call restore(directory) or start() first")

    def _with_learners(self) -> Any:
        if not self._spec.learners:
            raise ValueError("there is nothing to save, restore or tell without a learner: give make_learner")
        return self._open()

    def _open(self) -> Backend:
        if self._backend is None:
            self._backend = self._make_backend(self._spec)
        return self._backend


def _backend(backend: str | Callable[[RunSpec], Backend]) -> Callable[[RunSpec], Backend]:
    """Return the function that makes the backend; each backend's module is imported when it is asked for."""
    if backend == "process":
        from async_wrappers.live.backends.process import ProcessBackend

        return ProcessBackend
    if backend == "thread":
        from async_wrappers.live.backends.thread import ThreadBackend

        return ThreadBackend
    if backend == "ray":
        from async_wrappers.live.cluster.ray_workers import RayWorkers

        return RayWorkers()
    if isinstance(backend, str):
        from async_wrappers.live.backends.virtual import VirtualBackend

        return VirtualBackend
    return backend


def _seconds(value: Any) -> Fraction:
    try:
        seconds = as_fraction(value)
    except ValueError:
        seconds = Fraction(0)
    if seconds <= 0:
        raise ValueError(f"seconds must be > 0 and finite, got {value!r}")
    return seconds
