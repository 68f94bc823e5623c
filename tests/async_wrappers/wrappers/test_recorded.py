"""Tests of async_wrappers/wrappers/recorded.py: the spec of a wrapped environment as JSON."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

from async_wrappers import (
    AppliedActions,
    Chunk,
    CommittedActions,
    CommittedPrefix,
    Constant,
    Correlated,
    DecisionDelay,
    Gamma,
    LimitAction,
    Limits,
    LogNormal,
    PlainSchedule,
    RampDown,
    RealtimeDelay,
    Sensor,
    SensorDelay,
    Spikes,
    TemporalEnsemble,
    Trace,
    Uniform,
)
from async_wrappers.schedule.stagger import Tickets


def pendulum() -> Any:
    return gym.make("Pendulum-v1")


def played(env: Any) -> list[Any]:
    """Return what an environment shows and pays in some steps."""
    observation, _ = env.reset(seed=3)
    env.action_space.seed(3)
    shown = [observation]
    for _ in range(12):
        observation, reward, *_ = env.step(env.action_space.sample())
        shown += [observation, reward]
    return [
        gym.spaces.flatten(env.observation_space, each) if np.ndim(each) or isinstance(each, dict) else each
        for each in shown
    ]


DELAYED = [
    {"delay": 3, "default_action": RampDown(10, hold=2)},
    {"delay": np.int64(3), "noops": 1, "default_action": [0.5]},
    {"delay": 3, "default_action": np.float32([0.3])},
    {"delay": 2, "noops": 1, "default_action": Chunk(6)},
    {"delay": 2, "noops": 1, "default_action": Chunk(6, after=RampDown(4), mean="average")},
    {"delay": 2, "default_action": Chunk(6, after=np.float32([0.25]), mean=TemporalEnsemble(0.2, first="newest"))},
    {"latency": LogNormal(mean=0.12, cv=0.2), "workers": 3, "fps": Fraction(121, 4), "default_action": Chunk(30)},
    {"latency": Gamma(mean=0.12, cv=0.2), "fps": 20, "stagger": "max_time", "max_age": 9},
    {"latency": Uniform(0.05, 0.1), "fps": 20, "playout": 3, "slot": "even", "report_effect": True},
    {"latency": Spikes(Correlated(Gamma(mean=0.1, cv=0.3), 0.5), 0.1, 3.0), "fps": 20.0},
    {"latency": Trace([0.05, 0.1, 0.07], order="shuffled"), "fps": np.float32(20)},
    {"latency": Constant(0.1), "fps": 20, "default_action": "repeat"},
]


@pytest.mark.parametrize("arguments", DELAYED, ids=str)
def test_a_delay_is_made_again_from_json(arguments: dict[str, Any]) -> None:
    env = RealtimeDelay(pendulum(), **arguments)
    check_made_again(env)
    check_made_again(TimeLimit(env, 50))


SENSORS = {
    "camera": Sensor(LogNormal(mean=0.1, cv=0.2), rate=Fraction(40, 3), drop=0.1, of=slice(0, 2)),
    "gyroscope": Sensor(Trace([0.05, 0.1]), phase=0, of=(2, 3)),
}


@pytest.mark.parametrize(
    "make",
    [
        lambda: LimitAction(pendulum(), Limits(low=-1.5, high=[1.0], rate=np.float32([2.0]), soft_start=1.0)),
        lambda: RealtimeDelay(LimitAction(pendulum(), Limits(jerk=90.0), fps=Fraction(20)), 2),
        lambda: RealtimeDelay(AppliedActions(pendulum(), np.int64(3), np.True_), 2),  # type: ignore[arg-type]
        lambda: CommittedActions(RealtimeDelay(pendulum(), 2), length=np.int64(2)),  # type: ignore[arg-type]
        lambda: CommittedPrefix(RealtimeDelay(pendulum(), 2, 3, "chunk"), np.int64(2)),  # type: ignore[arg-type]
        lambda: DecisionDelay(RealtimeDelay(pendulum(), 2), longest=np.int64(9)),  # type: ignore[arg-type]
        lambda: RealtimeDelay(SensorDelay(pendulum(), SENSORS, fps=Fraction(20), shows_age=True), 2),
    ],
)
def test_limits_and_wrappers_that_show_actions_are_made_again_from_json(make: Any) -> None:
    check_made_again(make())


def check_made_again(env: Any) -> None:
    text = env.spec.to_json()
    again, kept = gym.make(EnvSpec.from_json(text)), gym.make(env.spec)
    assert again.spec is not None and kept.spec is not None
    assert again.spec.to_json() == text == kept.spec.to_json()
    assert kept.spec == env.spec
    before = played(env)
    for other in (again, kept):
        for shown, expected in zip(played(other), before, strict=True):
            np.testing.assert_array_equal(shown, expected)


@dataclass(frozen=True)
class Mine(Constant):
    """A latency of a user's own, in a module."""


@dataclass(frozen=True)
class Doubled:
    """A latency of a user's own whose argument has another name than its field."""

    seconds: float

    def __init__(self, half: float) -> None:
        object.__setattr__(self, "seconds", 2 * half)

    mean = property(lambda self: self.seconds)
    stream = property(lambda self: Constant(self.seconds).stream)
    quantile = property(lambda self: Constant(self.seconds).quantile)


def test_a_dataclass_of_a_users_own_is_made_again_too() -> None:
    check_made_again(RealtimeDelay(pendulum(), latency=Mine(0.1), fps=20))


def plainly(observation: Any, last_action: Any) -> Any:
    return np.zeros(1, np.float32)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("default_action", {"delay": 2, "default_action": plainly}),
        ("default_action", {"delay": 2, "default_action": Chunk(3, after=plainly)}),
        ("stagger", {"latency": 0.1, "fps": 20, "stagger": Tickets(playout=3)}),
        ("schedule", {"schedule": PlainSchedule(2)}),
        ("latency", {"latency": Doubled(0.05), "fps": 20}),
    ],
    ids=["default action", "after a chunk", "strategy", "schedule", "latency"],
)
def test_what_json_cannot_hold_is_refused_at_once_and_stays_in_a_spec_in_memory(
    name: str, arguments: dict[str, Any]
) -> None:
    env = RealtimeDelay(pendulum(), **arguments)
    for each in (env, TimeLimit(env, 50)):
        assert each.spec is not None
        with pytest.raises(
            ValueError, match=rf"^{name} must be plain data, .* written as JSON, got .*: keep the spec its"
        ):
            each.spec.to_json()
        assert played(gym.make(each.spec))[-1] == played(each)[-1]


def test_a_record_is_what_it_records() -> None:
    env = RealtimeDelay(pendulum(), 2, 0, RampDown(3))
    assert env.spec is not None
    record = env.spec.additional_wrappers[-1].kwargs["default_action"]  # type: ignore[index]
    assert record == RampDown(3) == deepcopy(record) != RampDown(4)
    assert repr(record) == "RampDown(frames=3, hold=0)"
