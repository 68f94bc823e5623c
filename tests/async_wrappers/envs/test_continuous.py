"""Gymnasium's environments of real-valued actions: MuJoCo's and Box2D's, made as a gin file makes them."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import DtypeObservation

from async_wrappers import RealtimeDelay
from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.envs import create_gym_environment

FLOAT32 = partial(DtypeObservation, dtype="float32")
LIBRARIES = {"HalfCheetah-v5": "mujoco", "LunarLanderContinuous-v3": "Box2D"}


def make(environment_id: str, *wrappers: Any) -> gym.Env[Any, Any]:
    """Return an environment; the test is skipped where its extra is missing."""
    pytest.importorskip(LIBRARIES[environment_id])
    return create_gym_environment(environment_id, wrappers=wrappers)


@pytest.mark.parametrize("environment_id", LIBRARIES)
def test_a_delay_of_two_frames_plays(environment_id: str) -> None:
    env = make(environment_id, FLOAT32, partial(RealtimeDelay, delay=2, noops=1, default_action="repeat"))
    observation, info = env.reset(seed=0)
    env.action_space.seed(0)
    for step in range(6):
        assert observation in env.observation_space
        assert observation.dtype == np.float32
        observation, _, _, _, info = env.step(env.action_space.sample())
        assert (info["realtime"]["delay"], info["realtime"]["frame"]) == (2, 4 + 2 * step)
    env.close()


def test_mujocos_observations_take_half_of_a_replay_as_float32() -> None:
    replays = [
        create_replay(make("HalfCheetah-v5", *wrappers).observation_space, capacity=1000)
        for wrappers in ((), (FLOAT32,))
    ]
    assert replays[0].nbytes - replays[1].nbytes == 1000 * 17 * 4


def test_a_cast_that_was_asked_for_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    make("HalfCheetah-v5", FLOAT32)
    assert not [each for each in recwarn if "precision" in str(each.message)]
