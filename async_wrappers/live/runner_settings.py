"""The arguments of `AsyncRunner`, each declared once, and the checks that need several of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
from numpy.typing import NDArray

from async_wrappers import checks
from async_wrappers.files import path_of
from async_wrappers.fleet.block import Codec
from async_wrappers.frame_rate import frame_rate
from async_wrappers.latency import Constant, Latency, as_latency, nanoseconds, seconds_of
from async_wrappers.live.cluster.ray_workers import RayWorkers
from async_wrappers.live.loop.safety import check_deadman
from async_wrappers.live.remote.address import Address, as_token
from async_wrappers.live.remote.remote_transport import RemotePolicy
from async_wrappers.live.run_spec import Backend, LoopConfig, RunSpec
from async_wrappers.live.world.machine import Machine, MachineEnv, as_environment
from async_wrappers.live.world.realtime import Realtime
from async_wrappers.needs import Words, refuse
from async_wrappers.schedule.dispatch import refuse_early_stop, refuse_old_playout
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.simulated import MOST_WORKERS
from async_wrappers.schedule.stagger import Stagger, Tickets, make_stagger
from async_wrappers.settings import Settings, choice, declared, flag, positive, setting, whole
from async_wrappers.wrappers.chunk import Chunk, as_chunk
from async_wrappers.wrappers.committed_prefix import prefix_length
from async_wrappers.wrappers.default_action import known_word
from async_wrappers.wrappers.limits import Limits
from async_wrappers.wrappers.past_frames import refuse_old_features

_MOST_LEARNERS = 10_000
LONGEST_STACK = 100_000  # observations
_LARGEST_JOURNAL = 1_000_000_000  # transitions


def _function(purpose: str) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        checks.function(name, value, purpose)
        return value

    return check


def _policy(name: str, value: Any) -> Any:
    if isinstance(value, str) and "://" in value:
        Address.of(name, value)
    else:
        checks.function(name, value, "makes a policy, or the address of a PolicyServer")
    return value


def _milliseconds(name: str, value: Any) -> float:
    wanted = "a number of milliseconds > 0 and at most 1e12, or None"
    return checks.number(name, value, wanted, lambda given: 0 < given <= 1e12)


def _fps(name: str, value: Any) -> Any:
    FrameClock(value)
    return value


def _backend(name: str, value: Any) -> Any:
    if not callable(value) and not (isinstance(value, str) and value in ("process", "thread", "ray", "virtual")):
        raise ValueError(
            f"{name} must be 'process', 'thread', 'ray', 'virtual' or a function of a RunSpec, such as RayWorkers(), "
            f"got {value!r}"
        )
    return value


def _prefix(name: str, value: Any) -> int:
    return prefix_length(name, value, None)


def _extras(name: str, value: Any) -> gym.spaces.Dict:
    if not isinstance(value, gym.spaces.Dict) or not value.spaces:
        raise ValueError(f"{name} must be a gymnasium.spaces.Dict with at least one entry, or None, got {value!r}")
    Codec(name, value)  # refuses what memory cannot hold
    return value


def _features(name: str, value: Any) -> gym.Space[Any]:
    if not isinstance(value, gym.Space):
        raise ValueError(f"{name} must be a gymnasium.Space, what encode returns, or None, got {value!r}")
    Codec(name, value)  # refuses what memory cannot hold
    return value


def _limits(name: str, value: Any) -> Limits:
    if not isinstance(value, Limits):
        raise ValueError(f"{name} must be Limits(...), or None, got {value!r}")
    return value


def _directory(name: str, value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError(f"{name} must be a directory, such as 'runs/arm-1', or None, got {value!r}")
    return path_of(value).absolute()


def _latency(name: str, value: Any) -> Latency:
    return as_latency(value, name)


def _realtime(name: str, value: Any) -> Realtime:
    if not isinstance(value, Realtime):
        raise ValueError(f"{name} must be a Realtime, such as Realtime(), or None, got {value!r}")
    return value


def _timeline(name: str, value: Any) -> float | None:
    if isinstance(value, str) and value == "all":
        return None
    try:
        return checks.positive(name, value, "seconds")
    except ValueError:
        raise ValueError(f"{name} must be 'all' or a number > 0 of seconds, got {value!r}") from None


_SECONDS = "It must be a number of seconds from 0 to 1e9."


@dataclass(frozen=True, eq=False)
class RunnerSettings(Settings):
    """The arguments of `AsyncRunner`, checked."""

    make_env: Callable[[], gym.Env[Any, Any] | Machine] = field(
        metadata=declared(
            "Makes the environment, which is stepped once per frame, or a `Machine`, which is sent an action at once "
            "and read as the next frame begins.",
            _function("makes the environment"),
        )
    )
    make_policy: Callable[[], Any] | str = field(
        metadata=declared(
            "Makes a policy (`Policy`, or a function of the observation); called once per worker. Or the address of a "
            "`PolicyServer` with the policy, ``tcp://host:port`` or ``unix://path``: the workers are there.",
            _policy,
        )
    )
    workers: int = field(
        metadata=declared(
            "Number of inferences that run at a time. 0: the policy runs in the environment loop, within each frame, "
            "with a delay of 0 frames; this is for controllers that take microseconds.",
            lambda name, value: checks.whole(name, value, 0, MOST_WORKERS),
            f"It must be {checks.whole_range(0, MOST_WORKERS)}.",
        )
    )
    fps: float | Fraction | None = setting(
        None,
        "Frames per second. None: those of the environment (`async_wrappers.frame_rate.frame_rate`) or of the "
        "machine (its ``fps``), of which one more is made to read them.",
        _fps,
        "It must be > 0.",
    )
    stagger: str | Stagger | Callable[[], Stagger] = setting(
        "tickets", "When workers start: a name or an object of `async_wrappers.schedule.stagger`."
    )
    playout: int | str = setting(
        "p99",
        'With ``stagger="tickets"``: frames from an observation to the frame on which its action is due; or a '
        'quantile of the latency such as ``"p99"``, which a real clock estimates from the newest response times at '
        "each reset.",
    )
    slot: int | str | None = setting(
        None,
        'With ``stagger="tickets"``: least number of frames between two starts; None: as few whole frames as the '
        'workers sustain; ``"even"``: as few as they sustain, fractions included, evenly spread.',
    )
    _: KW_ONLY
    backend: str | RayWorkers | Callable[[RunSpec], Backend] = setting(
        "process",
        'Where workers run, and on which clock: ``"process"``, ``"thread"``, ``"ray"`` or ``"virtual"``; a '
        "`RayWorkers`; or a function from a `RunSpec` to a `Backend`.",
        _backend,
    )
    make_learner: Callable[..., Any] | None = setting(
        None,
        "Makes a `LiveLearner`; may take the keywords ``number`` and ``learners``.",
        _function("makes a learner, or None"),
    )
    learners: int | None = whole(
        None,
        "Number of learners that work beside the game; None for one if there is a `make_learner`, else for none. Each "
        "observes every transition and keeps what it needs of them: L learners hold L replays.",
        0,
        _MOST_LEARNERS,
    )
    latency: Latency | float | Sequence[float] | NDArray[Any] | None = setting(
        None,
        "On the virtual clock: how long an inference takes, a model of `async_wrappers.latency`, or seconds. On a real "
        "clock: the latency that the strategy is prepared with, instead of warm-up inferences.",
        _latency,
    )
    learner_latency: Latency | float | Sequence[float] | NDArray[Any] | None = setting(
        None, "On the virtual clock, with learners: how long an update takes, a model or seconds."
    )
    default_action: Any = setting(
        "noop",
        "As in `RealtimeDelay`: the action of a frame on which no action of the policy is due. For a robot: "
        '``"repeat"`` holds the last action, `RampDown` brings it down to the no-op. With ``Chunk(H)`` the policy '
        "answers chunks of actions, elements of ``MultiDiscrete([A] * H)`` or of a Box [H, ...], and a transition has "
        "``executed``, bool [H]: which entries of its action were applied. A `Chunk` with a mean is not for learning.",
        known_word,
    )
    between_episodes: str = choice(
        "drain",
        '``"drain"``: the next episode begins when all inferences have ended, as in the simulation; '
        '``"continue"``: it begins on the next frame of the same clock, and the actions of the old one are dropped. On '
        "the virtual clock inferences in flight are discarded where an episode ends.",
        "drain",
        "continue",
    )
    seed: int = whole(
        0,
        "Seed of the episodes: episode n of a phase (0 in training, 1 in evaluation) is reset with a seed made of "
        "(seed, phase, n).",
        0,
    )
    eval_mode: bool = flag(False, "Passed to policies; nothing is learnt in evaluation.")
    start_timeout: float = setting(
        60.0,
        "Seconds to wait until every worker has inferred once; then the run begins without the missing ones.",
        seconds_of,
        _SECONDS,
    )
    calibration_time: float = setting(
        5.0, "Seconds that warm-up inferences may take; they measure the latency.", seconds_of, _SECONDS
    )
    journal: int = whole(
        10_000, "Number of transitions that shared memory holds for the learners.", 8, _LARGEST_JOURNAL
    )
    updates_per_transition: float | None = positive(
        None,
        "Updates per transition, at most, of all learners together; None for as many as there is time for.",
        finite=False,
    )
    pin: bool = flag(False, "Whether each worker stays on a core.")
    extras: gym.spaces.Dict | None = setting(
        None,
        "Space of the values that the policy leaves for the learner beside each action, such as its log-probability. "
        "Then ``act`` returns an object with the attributes ``action`` and ``extras``, and a transition has the extras "
        "of its decision. None: ``act`` returns the action alone.",
        _extras,
    )
    max_age: int | None = setting(
        None,
        "Greatest age in frames that an observation may have when its action is applied. An older action is refused "
        '(``report.frames["too_old"]``), and the frame receives the default action. None for no limit.',
        checks.whole_frames,
        "It must be >= 0, and >= 1 on a real clock.",
    )
    max_features_age: int | None = whole(
        None,
        "With a fast path: greatest age in frames of the features with which it goes on, on a frame on which no new "
        "ones are due: the worker is late, or its policy is away (`NoAction`). It decides anew, by the fresh "
        'observation (``report.frames["held"]``). None: the frame receives the default action.',
        1,
    )
    stop_after_missed: int | None = whole(
        None,
        "Number of frames in a row without an action of the policy's after which the run ends, with the reason in "
        "``report.stopped``. The count begins anew with each episode and after a pause, so it must be more than the "
        "delay of the first action. None: the run does not end.",
        1,
    )
    pause_action: Any = setting(
        None,
        "What the environment receives on the frames of a pause, given as `default_action` is; None for the default "
        "action itself.",
        known_word,
    )
    committed_prefix: int | None = setting(
        None,
        "With chunks: number of frames whose committed actions are added to each observation, from the observation's "
        "frame on, as by `CommittedPrefix`. Transitions hold them too. None adds none.",
        _prefix,
    )
    flat_prefix: bool = flag(
        False,
        "Whether committed actions are appended to a vector observation, as ``CommittedPrefix(flat=True)`` does.",
    )
    stack_size: int = whole(
        1,
        "Number k of observations that the policy reads, those of the last k decisions "
        "(`async_wrappers.live.world.stacks`). Above 1, observations of policies and of transitions are stacks ``[k, "
        "*shape]``.",
        1,
        LONGEST_STACK,
        "observations",
    )
    overdue_times: float = positive(
        10.0,
        "An inference is overdue when it has taken this many times as long as the longest one of the run, and longer "
        "than `overdue_seconds`. Its worker is then ended and started again, with a warning, and the report counts "
        "the restart. Only workers in processes are ended: a thread cannot be, and on the virtual clock nothing is "
        "late.",
    )
    overdue_seconds: float = positive(
        1.0, "Seconds that an inference may take without being overdue, whatever `overdue_times` is.", "seconds"
    )
    features: gym.Space[Any] | None = setting(
        None,
        "For a policy with memory, in two halves (`async_wrappers.policy.SplitPolicy`): the space of the features "
        "that its ``encode`` returns. Workers return features instead of actions. When a decision is due, the "
        "environment loop makes its action with ``release``, in the order of starts; for this `make_policy` is "
        "called in its process too. None: the policy has ``act``, and no memory.",
        _features,
    )

    timeline: str | float = setting(
        "all",
        'Which inferences the report keeps one by one, for its trace and picture. ``"all"``: every one, with exact '
        "percentiles. A number, for a run without end: those of the last so many seconds of the environment's time. "
        "Earlier ones are then only counted, so that the memory in use does not grow, and percentiles are within 0.4 "
        "%.",
        _timeline,
    )

    realtime: Realtime | None = setting(
        None,
        '`Realtime` scheduling for the environment loop\'s process, on Linux, with ``backend="process"``; the '
        "virtual clock ignores it. None: the process is scheduled as this one.",
        _realtime,
    )

    report_effect: bool = flag(
        False,
        'A transition\'s observations are dicts ``{"start": ..., "effect": ...}``: the one that the decision started '
        "from, and that of the frame on which its action was applied, for a critic. Policies get the first alone. Not "
        "with chunks, nor with stacks.",
    )
    record: str | Path | None = setting(
        None,
        "A new directory that receives a recording of the run: what was seen, drawn and sent on each frame, and when "
        "(`async_wrappers.load_recording`). No frame waits for it: a process writes it, and where the disk is slower "
        "than the run, frames are dropped and counted (``report.recording``). Where it cannot be written, a warning "
        "says so, and the run goes on. None records nothing.",
        _directory,
    )
    learns_from: str = choice(
        "sent",
        'Which action a transition has where another one was sent than the policy drew: ``"sent"``; or ``"drawn"``, '
        "for learners that need the log-probability of what the policy drew, as PPO and V-trace do.",
        "sent",
        "drawn",
    )
    limits: Limits | None = setting(
        None,
        "`Limits` of what is sent: of a policy's actions, of default actions and of those of a pause. "
        '``report.frames["limited"]`` counts the frames on which they changed the action.',
        _limits,
    )
    deadman: Callable[[], bool] | str | Path | None = setting(
        None,
        "A switch that has to be held. Either a function without arguments, which returns True while it is held and "
        "is called in the loop's process as each frame begins; or the path of a file that somebody keeps touching. "
        "When it is let go, the run is paused from that frame on. It continues only by `resume`, once the switch is "
        "held again.",
        check_deadman,
    )
    deadman_timeout: float | None = setting(
        None,
        "With a path as `deadman`: milliseconds without a touch after which the switch counts as let go; None: 200.",
        _milliseconds,
        "It must be > 0 and at most 1e12.",
    )
    dry_run: bool = flag(
        False,
        "For a `Machine`: everything runs, and nothing is sent; ``report.unsent`` has the actions that would have "
        "been sent on the newest 100,000 frames. It is refused with learners.",
    )

    token: str | bytes | None = setting(
        None,
        "With an address: the secret that its server has too, at least 16 bytes. None: the server has none.",
        as_token,
    )
    make_release: Callable[[], Any] | None = setting(
        None,
        "With an address and `features`: makes the policy whose ``release`` the environment loop calls; the server "
        "calls ``encode``.",
        _function("makes a policy in two halves, or None"),
    )

    def run_spec(self) -> RunSpec:
        """Return the run that these arguments describe.

        Raises:
            ValueError: Two arguments do not go together.
        """
        learners = self._learner_count()
        chunk, prefix = chunk_and_prefix(self.default_action, self.committed_prefix, self.flat_prefix)
        stagger = make_stagger(self.stagger, self.playout, self.slot)
        self._refuse_contradictions(learners, chunk, stagger)
        config = LoopConfig(
            **self._of(LoopConfig),
            workers=max(self.workers, 1),
            in_loop=self.workers == 0,
            latency=Constant(0.0) if self.workers == 0 else self.latency,  # type: ignore[arg-type]  # a model by now
            fps=self._frames_per_second(),
            stagger=stagger,
            default_action=self.default_action if chunk is None else chunk.after,
            chunk=chunk,
            prefix=prefix,
            timeline=self.timeline,  # type: ignore[arg-type]  # "all" has become None
            overdue=(self.overdue_times, nanoseconds(min(self.overdue_seconds, 1e9))),  # 30 years
        )
        if self.deadman_timeout is not None:
            config = replace(config, deadman_timeout=self.deadman_timeout)
        latency, remote = self._update_latency(learners), self._remote(learners)
        makes = self.make_policy if remote is None else self.make_release
        given = {**self._of(RunSpec), "make_policy": makes, "remote": remote}
        return RunSpec(**given, config=config, learners=learners, learner_latency=latency)

    def _remote(self, learners: int) -> RemotePolicy | None:
        """Return where the policy is; None if workers are made here."""
        address = self.make_policy
        if self.backend == "ray" or isinstance(self.backend, RayWorkers):
            self._refuse_on_ray()
        if not isinstance(address, str):
            for name in ("token", "make_release"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is for a policy on another machine, whose address make_policy is, got {address!r}"
                    )
            return None
        if learners:
            raise ValueError(
                f"make_policy={address!r} is a policy on another machine, to which no learner sends weights yet: leave "
                f"make_learner out, or give a make_policy of this machine, got learners={learners}"
            )
        refuse("a policy elsewhere", vars(self))
        if (self.features is None) != (self.make_release is None):
            given = Words(f"features={self.features!r} and make_release={self.make_release!r}")
            refuse("an address", {"features and make_release": given})
        return RemotePolicy(Address.of("make_policy", address), self.token)  # type: ignore[arg-type]

    def _refuse_on_ray(self) -> None:
        """Refuse what has no meaning where Ray places the workers."""
        refuse("Ray", vars(self))

    def _frames_per_second(self) -> Any:
        if self.fps is not None:
            return self.fps
        with closing(as_environment(self.make_env())) as env:
            return env.fps if isinstance(env, MachineEnv) else frame_rate(env)

    def _of(self, kind: type[LoopConfig] | type[RunSpec]) -> dict[str, Any]:
        """Return the settings that a part of the run takes unchanged."""
        return {each.name: getattr(self, each.name) for each in fields(kind) if each.name in _UNCHANGED}

    def _refuse_contradictions(self, learners: int, chunk: Chunk | None, stagger: Stagger) -> None:
        if not self.workers:
            self._refuse_beside_in_loop()
        refuse({"a real clock": self.backend != "virtual" and self.workers}, vars(self))
        refuse_old_playout(self.max_age, stagger.playout)
        refuse_early_stop(self.stop_after_missed, stagger.playout)
        refuse_old_features(self.max_features_age, stagger.playout, chunk)
        if self.max_features_age is not None and self.features is None:
            raise ValueError(
                f"max_features_age={self.max_features_age} needs features, with which a fast path goes on: declare "
                "those of a policy in two halves, got None"
            )
        if self.backend == "thread" and learners:
            raise ValueError(f"learners={learners} need backend='process', got backend='thread'")
        refuse({"threads": self.backend == "thread"}, vars(self))
        if stagger.granted is not None and not learners:
            raise ValueError(f"stagger={self.stagger!r} gives learning a place in the cycle: give make_learner")
        if chunk is not None and chunk.mean is not None and learners:
            raise ValueError(
                f"a Chunk with mean={chunk.mean!r} is for acting alone, as no entry is applied as the policy drew it: "
                f"leave it None where anybody learns, got learners={learners}"
            )
        if self.report_effect and (chunk is not None or self.stack_size > 1):
            given = f"default_action={self.default_action!r}" if chunk is not None else f"stack_size={self.stack_size}"
            refuse("chunks and stacks", {"report_effect": Words(f"True beside {given}")})
        if self.dry_run and learners:
            raise ValueError(
                f"dry_run=True must stand without learners, who would learn that actions do nothing, got {learners}"
            )
        if self.deadman_timeout is not None and (self.deadman is None or callable(self.deadman)):
            raise ValueError(f"deadman_timeout={self.deadman_timeout!r} needs a path as deadman, got {self.deadman!r}")
        if self.committed_prefix is not None and self.features is not None:
            raise ValueError(
                f"committed_prefix={self.committed_prefix!r} needs actions that are known before they are due, and "
                f"with features={self.features!r} they are made when they are: leave one of the two out"
            )

    def _refuse_beside_in_loop(self) -> None:
        """Refuse what has no meaning where the policy runs in the loop."""
        refuse({"a policy elsewhere, in the loop": isinstance(self.make_policy, str)}, vars(self))
        if self.stagger != "tickets" and not isinstance(self.stagger, Tickets):
            refuse("no workers", {"stagger": self.stagger})
        if self.latency is not None and nanoseconds(as_latency(self.latency).mean) > 0:
            refuse("no workers", {"latency": self.latency})

    def _learner_count(self) -> int:
        learners = int(self.make_learner is not None) if self.learners is None else self.learners
        if learners and self.make_learner is None:
            raise ValueError(f"learners={learners} need make_learner, got None")
        return learners

    def _update_latency(self, learners: int) -> Latency | None:
        """Return how long an update takes on the virtual clock; None on a real one, which measures it."""
        value = self.learner_latency
        if value is None:
            return None
        if not learners:
            raise ValueError(
                f"learner_latency={value!r} needs a learner: give make_learner and learners >= 1, got "
                f"learners={learners}"
            )
        if isinstance(self.backend, str | RayWorkers) and self.backend != "virtual":
            raise ValueError(
                f"learner_latency={value!r} needs backend='virtual', got backend={self.backend!r}, where an update "
                "takes the time that it takes"
            )
        latency = as_latency(value, "learner_latency")
        if self.updates_per_transition in (None, math.inf) and nanoseconds(latency.mean) < 1:
            refuse("updates without end", {"learner_latency": value})
        return latency


# Settings that `run_spec` combines with others, or makes a part of the run of.
_MADE = {"workers", "latency", "fps", "stagger", "default_action", "learners", "learner_latency", "timeline"}
_MADE |= {"make_policy", "deadman_timeout"}
_UNCHANGED = {each.name for each in fields(RunnerSettings)} - _MADE


def chunk_and_prefix(
    default_action: Any, committed_prefix: Any, flat_prefix: Any
) -> tuple[Chunk | None, tuple[int, bool] | None]:
    """Return the chunk that the default action is, and length and flat of the committed prefix; None for none.

    Raises:
        ValueError: A value is refused, or there is a prefix without chunks.
    """
    chunk, flat = as_chunk(default_action), checks.flag("flat_prefix", flat_prefix)
    if committed_prefix is None:
        if flat:
            raise ValueError("flat_prefix=True needs committed_prefix, got None")
        return chunk, None
    if chunk is None:
        raise ValueError(
            f"committed_prefix={committed_prefix!r} needs default_action=Chunk(length), got {default_action!r}"
        )
    return chunk, (prefix_length("committed_prefix", committed_prefix, None), flat)
