"""Copies of delayed environments: in the midst of an episode they go on by themselves, and in the same way."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import (
    AppliedActions,
    Chunk,
    CommittedActions,
    CommittedPrefix,
    DecisionDelay,
    RealtimeDelay,
    VectorRealtimeDelay,
)
from async_wrappers.latency import Constant, Correlated, Gamma, LogNormal, Spikes, Trace, Uniform
from async_wrappers.schedule.plain import PlainSchedule
from tests.worlds.recording_env import RecordingEnv

MODELS = [
    Constant(0.1),
    Uniform(0.01, 0.1),
    LogNormal(0.08, 0.4),
    Gamma(0.05, 0.5),
    Spikes(LogNormal(0.05, 0.2), 0.1, 4),
    Trace([0.1, 0.02, 0.05, 0.16]),
    Correlated(LogNormal(0.08, 0.4), 0.9),
]
STAGGERS = ["tickets", "none", "sequential", "max_time", "expected_time"]
COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda env: pickle.loads(pickle.dumps(env))}


def played(env: gym.Env[Any, Any], steps: int, seed: int) -> list[Any]:
    """Return all that an environment returns in so many steps; at an end it is reset without a seed."""
    rng = np.random.default_rng(seed)
    returned: list[Any] = []
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(int(rng.integers(5)))
        returned.append((np.asarray(observation).tolist(), float(reward), terminated, truncated, info["realtime"]))
        if terminated or truncated:
            observation, info = env.reset()
            returned.append((np.asarray(observation).tolist(), info["realtime"]))
    return returned


@pytest.mark.parametrize("how", COPIES)
@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(
    length=st.sampled_from([None, 1, 7, [3, 20]]),
    delay=st.integers(0, 5),
    noops=st.integers(0, 3),
    default_action=st.sampled_from(["noop", "repeat", "random", 1]),
    before=st.integers(0, 12),
)
def test_a_copy_of_a_constant_delay_goes_on_as_the_original(
    how: str, length: Any, delay: int, noops: int, default_action: Any, before: int
) -> None:
    env = RealtimeDelay(RecordingEnv(length), delay, noops, default_action)
    check_copy(env, COPIES[how], before)


@pytest.mark.parametrize("how", COPIES)
@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(
    length=st.sampled_from([None, 1, 7, [3, 20]]),
    latency=st.sampled_from(MODELS),
    stagger=st.sampled_from(STAGGERS),
    workers=st.integers(1, 5),
    before=st.integers(0, 12),
)
def test_a_copy_of_a_simulated_latency_goes_on_with_the_same_latencies(
    how: str, length: Any, latency: Any, stagger: str, workers: int, before: int
) -> None:
    env = RealtimeDelay(RecordingEnv(length), latency=latency, workers=workers, fps=60, stagger=stagger)
    check_copy(env, COPIES[how], before)


def check_copy(env: RealtimeDelay, copied: Callable[[Any], Any], before: int) -> None:
    env.reset(seed=3)
    played(env, before, 0)
    twin = copied(env)
    first = played(twin, 15, 1)
    received = copy.deepcopy(twin.unwrapped.episodes)
    assert played(env, 15, 1) == first, "the original was not moved by its copy"
    assert env.unwrapped.episodes == received
    assert twin.counts == env.counts
    again = copied(twin)
    played(env, 9, 2)
    assert played(again, 5, 4) == played(twin, 5, 4), "nor a copy by the original, nor a copy's copy"


def test_a_copy_after_an_end_needs_a_reset_as_the_original_does() -> None:
    env = RealtimeDelay(RecordingEnv(1), 2)
    env.reset(seed=0)
    assert env.step(0)[2]
    twin = copy.deepcopy(env)
    with pytest.raises(gym.error.ResetNeeded):
        twin.step(0)
    twin.reset(seed=0)
    assert twin.step(0)[2]


def test_a_wrapper_that_was_not_reset_is_copied_too() -> None:
    env = copy.deepcopy(RealtimeDelay(RecordingEnv(), latency=0.1, workers=2, fps=60))
    env.reset(seed=0)
    assert env.step(1)[4]["realtime"]["applied"]


def test_wrappers_that_tell_of_the_delay_are_copied_with_it() -> None:
    env = AppliedActions(RecordingEnv(), 3, flat=True)
    env = DecisionDelay(CommittedActions(RealtimeDelay(env, 3, 1), flat=True), flat=True)
    env.reset(seed=0)
    played(env, 4, 0)
    twin = copy.deepcopy(env)
    assert played(twin, 10, 1) == played(env, 10, 1)


def test_an_environment_that_gymnasium_makes_with_the_wrapper_is_copied() -> None:
    spec = EnvSpec("Delayed-v0", entry_point=RecordingEnv, additional_wrappers=(RealtimeDelay.wrapper_spec(delay=3),))
    env = gym.make(spec, disable_env_checker=True)
    env.reset(seed=0)
    twin = copy.deepcopy(env)
    assert played(twin, 10, 1) == played(env, 10, 1)


def test_a_vector_is_copied_in_the_midst_of_its_episodes() -> None:
    env = VectorRealtimeDelay(gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3), 2, 1, "random")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(12):
        env.step(rng.integers(2, size=3))
    twin = copy.deepcopy(env)
    for _ in range(30):
        actions = rng.integers(2, size=3)
        (o, r, d, t, i), (o2, r2, d2, t2, i2) = env.step(actions), twin.step(actions)
        assert np.array_equal(o, o2)
        assert np.array_equal(np.stack([r, d, t]), np.stack([r2, d2, t2]))
        assert np.array_equal(i["realtime"]["frame"], i2["realtime"]["frame"])


@given(delay=st.integers(0, 6), noops=st.integers(0, 4), frame=st.integers(0, 30))
def test_a_schedule_told_from_a_frame_on_is_what_follows_that_frame(delay: int, noops: int, frame: int) -> None:
    whole, rest = PlainSchedule(delay, noops).frames(), PlainSchedule(delay, noops).frames_from(frame)
    for _ in range(frame):
        next(whole)
    assert [next(rest) for _ in range(20)] == [next(whole) for _ in range(20)]


SHOWN: dict[str, Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]] = {
    "applied": lambda env: RealtimeDelay(AppliedActions(env, 3), 2, 1, "repeat"),
    "committed": lambda env: CommittedActions(RealtimeDelay(env, 2, 1, "repeat"), 3),
    "committed, of a latency": lambda env: CommittedActions(
        RealtimeDelay(env, latency=LogNormal(0.08, 0.4), workers=3, fps=50, default_action="repeat"), 3
    ),
    "delay": lambda env: DecisionDelay(RealtimeDelay(env, 2, 1, "repeat")),
    "prefix": lambda env: CommittedPrefix(RealtimeDelay(env, 2, 1, Chunk(6)), 4),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(
    ("shown", "space"),
    [
        (shown, space)
        for shown in SHOWN
        for space in (Discrete(5), MultiDiscrete([2, 3]), Box(-1, 1, (2,), np.float32))
        if (shown, type(space)) != ("prefix", MultiDiscrete)  # of which there are no chunks
    ],
    ids=str,
)
def test_a_copy_of_a_wrapper_that_shows_the_delay_goes_on_as_the_original(
    how: str, shown: str, space: gym.Space[Any]
) -> None:
    env = SHOWN[shown](RecordingEnv(40, action_space=space))
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(4):
        env.step(env.action_space.sample())
    twin = COPIES[how](env)
    for _ in range(5):
        action = env.action_space.sample()
        np.testing.assert_equal(env.step(action), twin.step(action))
