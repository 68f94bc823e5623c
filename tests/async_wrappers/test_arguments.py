"""Wrong values of every argument of the public constructors: taken, or refused in a sentence with name and value."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import (
    AppliedActions,
    AsyncRunner,
    CommittedActions,
    CommittedPrefix,
    DecisionDelay,
    RealtimeDelay,
    TemporalEnsemble,
    VectorRealtimeDelay,
    plan,
    probe_delay,
)
from async_wrappers.latency import Constant, Correlated, Gamma, LogNormal, Spikes, Trace, Uniform, measure, summary
from async_wrappers.latency.batches import LinearBatches
from async_wrappers.live.adapters.lerobot import LeRobotMachine, lerobot_policy
from async_wrappers.live.served.served_runner import ServedRunner
from async_wrappers.live.world.realtime import Realtime
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.plain import PlainSchedule
from async_wrappers.schedule.served import ServedSchedule
from async_wrappers.schedule.served_stream import ServedStream
from async_wrappers.schedule.simulated import MOST_WORKERS, SimulatedSchedule
from async_wrappers.schedule.stagger import ExpectedTime, MaxTime, Sequential, Tickets, make_stagger
from async_wrappers.wrappers.chunk import Chunk
from async_wrappers.wrappers.default_action import RampDown
from async_wrappers.wrappers.limits import LimitAction, Limits
from tests.worlds.recording_env import RecordingEnv

pytestmark = pytest.mark.timeout(120)  # a value that hangs is a failure


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Text is a right value of some arguments, as of `record`, which makes a directory of that name where it stands."""
    with chdir(tmp_path_factory.mktemp("arguments")):
        yield


class Thing:
    """No argument of anything."""


def gives_nothing(*arguments: Any) -> int:
    return 0


VALUES: list[Any] = [
    *(None, "", "x", "60", b"x", -1, 0, 1, 2, 10**9, 10**18, 10**30, 10**400, -(10**18), -0.5, 0.5, 2.0, 1e308, -1e308),
    *(1e-300, math.nan, math.inf, -math.inf, True, False, [], [1], ["x"], (1, 2), {}, {"a": 1}, set(), range(3), ...),
    *(
        Thing(),
        Thing,
        gives_nothing,
        1j,
        Fraction(1, 3),
        Decimal("0.1"),
        np.float64("nan"),
        np.int64(3),
        np.float32(0.5),
    ),
    *(np.True_, np.array([1, 2]), np.array(3), np.array([])),
]


HUGE = {str(value) for value in (10**9, 10**18, 10**30, 10**400, 1e308, 60)}


class Joint:
    """A robot of LeRobot's with one joint."""

    observation_features = action_features = {"joint.pos": float}

    def get_observation(self) -> None:
        """It is never read."""

    send_action = connect = disconnect = get_observation


@dataclass(frozen=True)
class Made:
    """A public constructor or function: how it is called, with right arguments, and which of them say how much to do.

    Attributes:
        call: Takes the arguments.
        right: Values that it takes.
        work: Arguments that say how long it is at work: a huge number is no mistake, and not tried.
        called: What a message calls an argument, where another function's name stands for it.
    """

    call: Callable[..., Any]
    right: dict[str, Any]
    work: tuple[str, ...] = ()
    called: dict[str, str] | None = None


def with_env(kind: Any, **fixed: Any) -> Callable[..., Any]:
    return lambda **arguments: kind(RecordingEnv(4), **fixed, **arguments)


def of_vector(**arguments: Any) -> Any:
    return VectorRealtimeDelay(gym.vector.SyncVectorEnv([RecordingEnv] * 2), **arguments)


def run(**arguments: Any) -> Any:
    return AsyncRunner(lambda: RecordingEnv(4), lambda: gives_nothing, 2, 60, backend="virtual", latency=0.1).run(
        **arguments
    )


def runner(**arguments: Any) -> None:
    AsyncRunner(**arguments).close()


RUNNER = {
    "make_env": RecordingEnv,
    "make_policy": lambda: gives_nothing,
    **{"workers": 2, "fps": 60, "stagger": "tickets", "playout": "p99", "slot": 1, "backend": "process"},
    **{"make_learner": gives_nothing, "learners": 2, "latency": 0.1, "default_action": "noop", "seed": 0},
    **{"between_episodes": "drain", "eval_mode": False, "start_timeout": 1.0, "calibration_time": 1.0, "journal": 100},
    **{"updates_per_transition": 1.0, "pin": False, "learner_latency": None, "extras": None},
    **{
        "max_age": None,
        "max_features_age": None,
        "stop_after_missed": None,
        "pause_action": "repeat",
        "features": None,
    },
    **{"stack_size": 1, "overdue_times": 10.0, "overdue_seconds": 1.0, "learns_from": "sent"},
    **{"limits": None, "deadman": None, "deadman_timeout": None, "dry_run": False, "record": None},
    **{"timeline": 5.0, "realtime": None},
}
CHUNKS = {"default_action": Chunk(5, "noop")}
SIMULATED = {"latency": 0.1, "workers": 2, "fps": 60, "stagger": "tickets", "playout": "p99", "slot": 1}
SIMULATED |= {"max_age": None}
SERVED: dict[str, Any] = {"latency": LinearBatches(0.004, 0.001), "environments": 3, "fps": 60, "playout": 2}
SERVED |= {"accelerators": 1, "every": 1, "phases": "spread", "most": None, "seed": 0}
MADE = {
    "RealtimeDelay": Made(
        with_env(RealtimeDelay), {"delay": 1, "noops": 1, "default_action": "noop", "report_effect": True}
    ),
    "RealtimeDelay, chunks": Made(with_env(RealtimeDelay, delay=1, noops=1), CHUNKS),
    "VectorRealtimeDelay, chunks": Made(lambda **arguments: of_vector(delay=1, noops=1, **arguments), CHUNKS),
    "RealtimeDelay, a schedule": Made(with_env(RealtimeDelay), {"schedule": PlainSchedule(1)}),
    "Chunk": Made(Chunk, {"length": 5, "after": "noop", "mean": None}),
    "TemporalEnsemble": Made(TemporalEnsemble, {"m": 0.1, "first": "newest"}),
    "CommittedPrefix": Made(
        lambda **arguments: CommittedPrefix(RealtimeDelay(RecordingEnv(), 2, 2, "chunk"), **arguments),
        {"length": 2, "flat": False},
    ),
    "AsyncRunner, chunks": Made(
        runner,
        {**RUNNER, **CHUNKS, "backend": "virtual", "make_learner": None, "learners": None}
        | {"committed_prefix": 2, "flat_prefix": False},
        called={"default_action": "default_action|committed_prefix", "make_learner": "learners"},
    ),
    "RealtimeDelay, simulated": Made(
        with_env(RealtimeDelay), {**SIMULATED, "max_features_age": None}, called={"latency": "latency|needs a"}
    ),
    "VectorRealtimeDelay": Made(of_vector, {"delay": 1, "noops": 1, "default_action": "noop"}),
    "AsyncRunner": Made(runner, RUNNER),
    "AsyncRunner, virtual": Made(
        runner,
        {**RUNNER, "backend": "virtual", "make_learner": None, "learners": None},
        called={"make_learner": "learners"},
    ),
    "AsyncRunner, elsewhere": Made(
        runner,
        {**RUNNER, "make_policy": "tcp://127.0.0.1:5555", "make_learner": None, "learners": None}
        | {"features": gym.spaces.Discrete(2), "make_release": lambda: gives_nothing},
        called={"make_learner": "learners", "make_release": "make_release|learners"},
    ),
    "run(frames)": Made(
        run,
        {"frames": 5, "whole_episodes": False, "max_episode_frames": 3, "eval_mode": None, "phase": 0}
        | {"first_episode": 0, "frames_before": 0, "phase_state": None},
        work=("frames",),
    ),
    "run(seconds)": Made(run, {"seconds": 0.1}, work=("seconds",)),
    "run(episodes)": Made(run, {"episodes": 1}, work=("episodes",)),
    "Constant": Made(Constant, {"seconds": 0.1}),
    "Uniform": Made(Uniform, {"low": 0.1, "high": 0.2}),
    "LogNormal": Made(LogNormal, {"mean": 0.1, "cv": 0.2}),
    "Gamma": Made(Gamma, {"mean": 0.1, "cv": 0.2}),
    "Spikes": Made(Spikes, {"base": 0.1, "probability": 0.1, "factor": 2}),
    "Trace": Made(Trace, {"latencies": [0.1], "order": "sequence"}),
    "Correlated": Made(Correlated, {"base": 0.1, "correlation": 0.5}),
    "measure": Made(
        lambda **arguments: measure(gives_nothing, 0, **arguments), {"repeats": 2, "warmup": 1}, ("repeats", "warmup")
    ),
    "summary": Made(summary, {"latency": 0.1, "draws": 10, "seed": 0}, ("draws",)),
    "Tickets": Made(Tickets, {"playout": 1, "slot": 1}),
    "Sequential": Made(Sequential, {"learn": None}),
    "MaxTime": Made(MaxTime, {"initial_latency": 0.01}),
    "ExpectedTime": Made(ExpectedTime, {"initial_latency": 0.01}),
    "make_stagger": Made(make_stagger, {"stagger": "tickets", "playout": 1, "slot": 1}),
    "FrameClock": Made(FrameClock, {"fps": 60}),
    "PlainSchedule": Made(PlainSchedule, {"delay": 1, "noops": 1}),
    "SimulatedSchedule": Made(SimulatedSchedule, {**SIMULATED, "seed": 0}),
    "ServedSchedule": Made(ServedSchedule, SERVED, ("environments", "accelerators")),
    "ServedStream": Made(
        lambda **arguments: ServedStream(ServedSchedule(**SERVED), **arguments), {"environment": 1, "max_age": 3}
    ),
    "ServedRunner": Made(
        lambda **arguments: ServedRunner(RecordingEnv, lambda: len, **arguments),
        {
            **{name: value for name, value in SERVED.items() if name != "latency"},
            **{"processes": 1, "max_age": 3, "start_timeout": 1.0, "timeout": 5.0, "realtime": None},
        },
        ("environments", "accelerators"),
    ),
    "RampDown": Made(RampDown, {"frames": 5, "hold": 1}),
    "Limits": Made(
        Limits, {"low": -1.0, "high": 1.0, "rate": 1.0, "jerk": 1.0, "unit": "per second", "soft_start": 0.0}
    ),
    "LimitAction": Made(
        lambda **arguments: LimitAction(RecordingEnv(action_space=Box(-1, 1, (1,))), **arguments),
        {"limits": Limits(rate=1.0), "fps": 50},
    ),
    "Realtime": Made(Realtime, {"priority": 50, "lock": True, "spin": None, "core": None}),
    "LeRobotMachine": Made(
        lambda **arguments: LeRobotMachine(Joint(), **arguments), {"judge": None, "low": -1.0, "high": 1.0}
    ),
    "lerobot_policy": Made(
        lerobot_policy,
        {"path": "x", "rename": None, "task": "", "length": None, "inference_delay": None, "seed": 0},
    ),
    "AppliedActions": Made(with_env(AppliedActions), {"length": 2, "flat": False}),
    "CommittedActions": Made(
        lambda **arguments: CommittedActions(RealtimeDelay(RecordingEnv(), 2), **arguments),
        {"length": 2, "flat": False, "known": True},
    ),
    "DecisionDelay": Made(
        lambda **arguments: DecisionDelay(RealtimeDelay(RecordingEnv(), 2), **arguments),
        {"of": "last", "longest": 10, "flat": False},
    ),
    "probe_delay": Made(
        probe_delay,
        {"env_or_make_env": RecordingEnv, "episodes": 1, "max_frames": 2, "seed": 0, "alternatives": 1},
        ("episodes", "max_frames"),
    ),
}


def is_taken_or_refused_well(made: Made, name: str, value: Any) -> str | None:
    """Return what is wrong with how a value is met, None for nothing."""
    if name in made.work and str(value) in HUGE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.call(**{**made.right, name: value})
    except (TypeError, ValueError) as error:
        sentence = str(error)
        names = [name, *((made.called or {}).get(name, name)).split("|")]
        if not any(each in sentence for each in names):
            return f"{name}={value!r}: {sentence!r} does not name it"
        shown = [repr(value), str(value), repr(value)[:30]]
        if isinstance(value, Fraction):
            shown.append(repr(float(value)))
        if callable(value) or value is None:  # what it gave is what is wrong; of none it is enough that it is missing
            shown = ["got ", "needs a latency"]
        return None if any(each in sentence for each in shown) else f"{name}={value!r}: {sentence!r} does not show it"
    except Exception as error:
        return f"{name}={value!r}: {type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("name", MADE)
def test_the_right_arguments_are_right(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        MADE[name].call(**MADE[name].right)


@pytest.mark.parametrize(("made", "argument"), [(name, each) for name, made in MADE.items() for each in made.right])
def test_a_wrong_value_is_taken_or_refused_in_a_sentence_with_name_and_value(made: str, argument: str) -> None:
    wrong = [is_taken_or_refused_well(MADE[made], argument, value) for value in VALUES]
    assert [one for one in wrong if one] == []


# Of (constructor, arguments, values) the values that must not be taken.
NAN, INF = math.nan, math.inf
NO_FRAMES = [-1, -(10**9), np.int64(-3), 1.5, 2.0, NAN, "3", None, [1], np.float64(2.0), True, np.True_]
NO_RATE = [0, -1, 0.0, -0.0, -59.7275, Fraction(-1, 3), np.int64(-60), "0", NAN, INF, -INF, "fast", "1/0", [60], True]
NO_SECONDS = [-0.1, NAN, INF, -INF, 2e9, "0.12", None, True, 10**400, [0.1]]
NO_LENGTH = [0, -1, -0.5, NAN, INF, "ten", "1/0", True]
NO_PLAYOUT = ["99", "p", "p0", "p101", "p-5", "late", "P99", "p9 9", -1, 1.5, None, [3]]
NO_SLOT = [0, -1, 1.5, 2.0, "2", "Even", "even ", True, [2]]
REFUSED: list[tuple[str, str, list[Any]]] = [
    *((made, "delay noops", NO_FRAMES) for made in ("PlainSchedule", "RealtimeDelay", "VectorRealtimeDelay")),
    *((made, "workers", [-1, -3, 2.5, "four"]) for made in ("RealtimeDelay, simulated", "AsyncRunner, virtual")),
    ("RealtimeDelay, simulated", "workers", [0]),
    *((made, "fps", NO_RATE) for made in ("FrameClock", "RealtimeDelay, simulated", "AsyncRunner, virtual")),
    ("FrameClock", "fps", [None, 1j]),
    *((made, "latency", [-0.1, NAN, INF, [], "slow"]) for made in ("RealtimeDelay, simulated", "AsyncRunner, virtual")),
    ("AsyncRunner, virtual", "latency", [None]),
    *((made, "playout", [*NO_PLAYOUT[:-2], True]) for made in ("RealtimeDelay, simulated", "AsyncRunner, virtual")),
    *((made, "slot", [*NO_SLOT, "evenly"]) for made in ("RealtimeDelay, simulated", "AsyncRunner, virtual", "Tickets")),
    *((made, "max_age", [-1, 2.5]) for made in ("RealtimeDelay, simulated", "AsyncRunner, virtual")),
    *((made, "max_features_age", [0, 2.5]) for made in ("RealtimeDelay, simulated", "AsyncRunner, virtual")),
    *((made, "default_action", ["noops", 7]) for made in ("RealtimeDelay", "AsyncRunner, virtual")),
    ("AsyncRunner, virtual", "pause_action", ["stop", 7]),
    ("AsyncRunner, virtual", "backend", ["quantum", None]),
    ("AsyncRunner, virtual", "seed", [-1, 1.5, True]),
    ("AsyncRunner, virtual", "stop_after_missed", [0, 1.0]),
    *(
        (made, name, [0])
        for made in ("ServedSchedule", "ServedRunner")
        for name in ("environments", "playout", "every")
    ),
    *((made, "phases", ["even"]) for made in ("ServedSchedule", "ServedRunner")),
    ("ServedRunner", "realtime", [True]),
    ("ServedRunner", "timeout", [0, -1, NAN, "1"]),
    ("ServedStream", "environment", [-1, 3]),
    ("ServedStream", "max_age", [-1]),
    ("AsyncRunner", "stack_size", [0]),
    ("AsyncRunner", "extras", [3, gym.spaces.Discrete(2), gym.spaces.Dict({}), {"a": gym.spaces.Discrete(2)}]),
    ("Tickets", "playout", NO_PLAYOUT),
    *((made, "initial_latency", [-0.001, NAN, INF, -INF]) for made in ("MaxTime", "ExpectedTime")),
    ("Constant", "seconds", NO_SECONDS),
    ("Uniform", "low high", NO_SECONDS),
    *((made, "mean", NO_SECONDS) for made in ("LogNormal", "Gamma")),
    *((f"run({length})", length, NO_LENGTH) for length in ("frames", "seconds", "episodes")),
    *((f"run({length})", length, [1.5]) for length in ("frames", "episodes")),
    ("Chunk", "length", [0]),
    ("Chunk", "mean", ["median"]),
    ("AppliedActions", "length", [0, -1, 1.5, "2", None]),
    ("DecisionDelay", "of", ["first", None]),
    ("DecisionDelay", "longest", [0, -1, 1.5]),
    ("RampDown", "frames", [0, 2.5]),
    ("RampDown", "hold", [-1]),
    ("Limits", "rate", [0, [1.0, -1.0]]),
    ("Limits", "jerk", ["fast", NAN]),
    ("Limits", "low", [[[1], 2]]),
    ("Limits", "unit", ["per minute"]),
    ("Limits", "soft_start", [-1]),
    ("Realtime", "priority", [0, 100, "50"]),
    ("Realtime", "lock", [1]),
    ("Realtime", "spin", [-1e-6, 150]),
    ("Realtime", "core", [-1]),
    *(("probe_delay", name, [0, 1.5]) for name in ("episodes", "alternatives")),
    ("probe_delay", "max_frames", [1]),
    ("probe_delay", "seed", [-1]),
]


@pytest.mark.parametrize(
    ("made", "argument", "values"), [(made, each, values) for made, names, values in REFUSED for each in names.split()]
)
def test_a_value_that_cannot_be_is_refused_in_one_sentence(made: str, argument: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"^{argument} must be ") as error:
            MADE[made].call(**{**MADE[made].right, argument: value})
        sentence = str(error.value)
        assert f"got {value!r}" in sentence or f"got {value}" in sentence
        assert "\n" not in sentence


@pytest.mark.parametrize("made", [RealtimeDelay, AsyncRunner, SimulatedSchedule, AppliedActions, DecisionDelay])
def test_no_argument_is_left_out(made: Any) -> None:
    tried = {name for each in MADE.values() for name in each.right}
    tried.add("token")  # a secret, which no message may show
    assert set(inspect.signature(made).parameters) - {"env"} <= tried


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(data=st.data(), number=st.one_of(st.floats(), st.integers(), st.integers(10**15, 10**25)))
def test_no_number_brings_anything_else_than_a_sentence(data: st.DataObject, number: float) -> None:
    cheap = sorted(name for name, made in MADE.items() if not made.work and name != "AsyncRunner")
    name = data.draw(st.sampled_from(cheap))
    argument = data.draw(st.sampled_from(sorted(MADE[name].right)))
    assert is_taken_or_refused_well(MADE[name], argument, number) is None


@pytest.mark.parametrize("workers", [MOST_WORKERS + 1, 10**18, 10**30])
def test_more_workers_than_anybody_has_are_refused(workers: int) -> None:
    says = "^workers must be a whole number between {} and 1,000,000, got {}$"
    with pytest.raises(ValueError, match=says.format(1, workers)):
        RealtimeDelay(RecordingEnv(), latency=0.1, workers=workers, fps=60)
    for backend in ("virtual", "thread", "process"):
        with pytest.raises(ValueError, match=says.format(0, workers)):  # 0: the policy is in the loop
            AsyncRunner(RecordingEnv, lambda: gives_nothing, workers, 60, backend=backend, latency=0.1)


@pytest.mark.parametrize("name", ["make_env", "make_policy", "make_learner"])
@pytest.mark.parametrize("value", [5, "CartPole-v1", RecordingEnv()], ids=["number", "text", "environment"])
def test_a_factory_that_is_no_function_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be a function that makes"):
        AsyncRunner(**{**RUNNER, name: value})


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("default_action", "hold", ""),
        ("default_action", "repaet", "; did you mean 'repeat'?"),
        ("pause_action", "still", ""),
    ],
)
def test_a_word_for_an_action_is_refused_by_the_constructor(name: str, value: str, hint: str) -> None:
    says = f"^{name} must be one of 'noop', .* or an element of the action space, got {value!r}{re.escape(hint)}$"
    with pytest.raises(ValueError, match=says):
        AsyncRunner(**{**RUNNER, name: value})


def test_planning_refuses_by_name() -> None:
    right: dict[str, Any] = {"learn_ms": 1.0, "cores": 2, "model_mb": 1.0, "memory_gbs": 1.0, "workers": 2}
    right |= {"release": 0.001, "step": 0.002, "seed": 0, "fps": 10}
    quick = Made(plan, {"latency_or_policy": 0.02, **right}, called={"latency_or_policy": "latency|policy"})
    for name in right:
        for value in (-1, 0.5j, "x", math.nan, [], Thing()):
            assert is_taken_or_refused_well(quick, name, value) is None
    for value in (None, "x", -1, math.nan, [], Thing()):
        assert is_taken_or_refused_well(quick, "latency_or_policy", value) is None


@pytest.mark.parametrize("backend", ["virtual", "thread", "process"])
def test_a_factory_that_makes_no_environment_is_named_on_every_backend(backend: str) -> None:
    with pytest.raises(ValueError, match=r"^make_env must return a gymnasium.Env \(one, not a vector of them\), got 0"):
        AsyncRunner(gives_nothing, lambda: gives_nothing, 1, 60, backend=backend, latency=0.1).run(frames=3)
