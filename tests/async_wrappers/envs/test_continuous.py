"""Gymnasium's environments of real-valued actions: MuJoCo's and Box2D's, made as a gin file makes them."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import DtypeObservation

from async_wrappers import AsyncRunner, RealtimeDelay
from async_wrappers.agents.play.play import delay_in_words
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


def test_milliseconds_become_frames_of_the_environments_own_step() -> None:
    env = RealtimeDelay(gym.make("Pendulum-v1"), latency=0.110, workers=3, default_action="repeat")
    assert delay_in_words(env) == "latency 0.11, 3 workers at 20 frames/s"
    env.reset(seed=0)
    delays = [env.step(env.action_space.sample())[4]["realtime"]["delay"] for _ in range(20)]
    assert set(delays) == {3}  # 110 ms in frames of 50 ms; at the 30 pictures a second they would be 4

    env = RealtimeDelay(make("HalfCheetah-v5"), latency=0.110, default_action="repeat")
    assert delay_in_words(env) == "latency 0.11, 1 worker at 20 frames/s"


def test_a_live_run_takes_the_environments_frames_per_second() -> None:
    still = np.zeros(1, np.float32)
    run = partial(
        *(AsyncRunner, lambda: gym.make("Pendulum-v1"), lambda: lambda _: still, 3),
        backend="virtual",
        latency=0.110,
        default_action="repeat",
    )
    assert run().run(seconds=2).frames == run(fps=20).run(seconds=2).frames
    assert run().run(seconds=2).frames["total"] == 40


@pytest.mark.parametrize("play", ["simulated", "live"])
def test_a_latency_without_a_frame_rate_is_refused(play: str) -> None:
    def silent() -> gym.Env[Any, Any]:
        env = gym.make("MountainCarContinuous-v0")
        env.metadata = {}
        return env

    with pytest.raises(ValueError, match=r"^fps must be given, in frames per second, where"):
        if play == "simulated":
            RealtimeDelay(silent(), latency=0.1, default_action="repeat")
        else:
            AsyncRunner(silent, lambda: None, 1, backend="virtual", latency=0.1)


def test_mujocos_observations_take_half_of_a_replay_as_float32() -> None:
    replays = [
        create_replay(make("HalfCheetah-v5", *wrappers).observation_space, capacity=1000)
        for wrappers in ((), (FLOAT32,))
    ]
    assert replays[0].nbytes - replays[1].nbytes == 1000 * 17 * 4


def test_a_cast_that_was_asked_for_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    make("HalfCheetah-v5", FLOAT32)
    assert not [each for each in recwarn if "precision" in str(each.message)]
