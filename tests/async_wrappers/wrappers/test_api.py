"""Tests of async_wrappers/gymnasium_api.py: environments of Gym's older interface are refused in a sentence."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TimeLimit

from async_wrappers import AppliedActions, AsyncRunner, LinearBatches, RealtimeDelay, ServedRunner

REMEDY = r"of Gym's older interface plays in Shimmy's GymV21CompatibilityV0\(env=env\), or GymV26CompatibilityV0 "


class Old(gym.Env[Any, Any]):
    """Gymnasium's by its class, and of the older interface: an observation of `size` numbers, and four values."""

    observation_space, action_space = Box(-1, 1, (2,)), Discrete(2)

    def __init__(self, size: int = 2) -> None:
        self.observation_space = Box(-1, 1, (size,))

    def reset(self, **_: Any) -> Any:
        return np.zeros(self.observation_space.shape, np.float32)

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, False, {}


class Oldest(Old):
    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(2, np.float32)


class Half(Old):
    """Its reset is of the new interface."""

    def reset(self, **_: Any) -> Any:
        return np.zeros(2, np.float32), {}


class Stranger:
    """Another library's: no gymnasium.Env."""

    def reset(self) -> Any:
        return np.zeros(2)

    def step(self, action: Any) -> Any:
        return np.zeros(2), 0.0, False, {}


def in_a_delay(env: Any) -> None:
    delayed = RealtimeDelay(env, 2, default_action=0)
    delayed.reset(seed=0)
    delayed.step(0)


def live(env: Any) -> None:
    AsyncRunner(
        lambda: env, lambda: lambda observation: 0, 1, 60, backend="virtual", latency=0.01, default_action=0
    ).run(frames=3)


def served(env: Any) -> None:
    ServedRunner(
        lambda: env,
        lambda: lambda observations: np.zeros(len(observations), np.int64),
        1,
        60,
        backend="virtual",
        latency=LinearBatches(0.002, 0),
        default_action=0,
    ).run(frames=3)


@pytest.mark.parametrize("play", [in_a_delay, live, served])
@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (Old(2), r"reset of Old must return \(observation, info\), got array\("),
        (Old(3), r"reset of Old must return \(observation, info\), got array\("),
        (TimeLimit(Old(), 5), r"reset of Old must return \(observation, info\), got array\("),
        (Oldest(), r"reset of Oldest must take seed and options, got .*unexpected keyword argument 'seed'"),
    ],
    ids=["two numbers", "three numbers", "in a wrapper", "without a seed"],
)
def test_an_older_reset_is_named_with_the_remedy(play: Any, env: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}.*: one {REMEDY}"):
        play(env)


@pytest.mark.parametrize("play", [in_a_delay, live])
def test_an_older_step_is_named_with_the_remedy(play: Any) -> None:
    with pytest.raises(ValueError, match=rf"^step of Half must return five values, got \(array.*: one {REMEDY}"):
        play(Half())


def test_an_environment_of_another_library_is_named_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=rf"^env must be a gymnasium.Env, got <.*Stranger.*: one {REMEDY}"):
        in_a_delay(Stranger())
    with pytest.raises(ValueError, match=rf"^make_env must return a gymnasium.Env .*Stranger.*; one {REMEDY}"):
        live(Stranger())


def test_a_type_error_of_an_environments_own_stays_what_it_is() -> None:
    class Broken(Half):
        def reset(self, **_: Any) -> Any:
            raise TypeError("unsupported operand type(s)")

    with pytest.raises(TypeError, match=r"^unsupported operand"):
        in_a_delay(AppliedActions(Broken()))
