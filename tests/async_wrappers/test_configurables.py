"""Gymnasium's wrappers in gin files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import gymnasium.wrappers
import pytest

import async_wrappers.agents.configurables  # noqa: F401  # registers what gin files name
from async_wrappers import Latencies, Sensor
from async_wrappers.agents.config.config import load_config
from async_wrappers.configurables import WRAPPERS
from async_wrappers.envs import ClipReward, create_gym_environment
from async_wrappers.wrappers.chunk import Chunk, TemporalEnsemble
from tests.worlds.bindings import no_bindings  # noqa: F401 - a fixture

CONVERSIONS = {"ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"}


def made(*bindings: str) -> gym.Env[Any, Any]:
    load_config([], bindings)
    env: gym.Env[Any, Any] = gin.get_configurable("create_gym_environment")("CartPole-v1")
    return env


def chain(env: gym.Env[Any, Any]) -> list[str]:
    names = []
    while isinstance(env, gym.Wrapper):
        names.append(env.class_name())
        env = env.env
    return names


def test_every_wrapper_of_gymnasium_for_one_environment_is_registered() -> None:
    names = {*gymnasium.wrappers.__all__} - CONVERSIONS - {"vector"}
    assert len(names) > 30
    assert names <= {wrapper.__name__ for wrapper in WRAPPERS}
    for name in names:
        assert issubclass(gin.get_configurable(name), getattr(gymnasium.wrappers, name))


def test_a_list_of_them_is_applied_the_first_one_innermost_with_what_is_bound() -> None:
    env = made(
        "create_gym_environment.wrappers = [@FrameStackObservation, @TimeLimit, @RealtimeDelay]",
        "FrameStackObservation.stack_size = 4",
        "TimeLimit.max_episode_steps = 7",
        "RealtimeDelay.delay = 2",
        "RealtimeDelay.default_action = 'repeat'",
    )
    assert chain(env)[:3] == ["RealtimeDelay", "TimeLimit", "FrameStackObservation"]
    assert env.observation_space.shape == (4, 4)
    env.reset(seed=0)
    *_, truncated, info = env.step(0)
    assert not truncated and info["realtime"]["frame"] >= 0


@pytest.mark.parametrize(
    "bindings",
    [("RealtimeDelay.slot = 'even'",), ("RealtimeDelay.stagger = @Tickets()", "Tickets.slot = 'even'")],
)
def test_even_slots_are_bound_by_the_wrapper_or_the_strategy(bindings: tuple[str, ...]) -> None:
    env = made(
        "create_gym_environment.wrappers = [@RealtimeDelay]",
        "RealtimeDelay.latency = 0.0383",
        "RealtimeDelay.workers = 2",
        "RealtimeDelay.fps = 60",
        "RealtimeDelay.default_action = 'repeat'",
        *bindings,
    )
    env.reset(seed=0)
    starts = [env.step(0)[-1]["realtime"]["start"] for _ in range(4)]
    assert starts == [2, 3, 4, 5]  # with whole slots every second frame


def test_chunks_means_and_the_committed_prefix_are_bound_in_gin() -> None:
    env = made(
        "create_gym_environment.wrappers = [@RealtimeDelay, @CommittedPrefix]",
        "RealtimeDelay.delay = 2",
        "RealtimeDelay.noops = 8",
        "RealtimeDelay.default_action = @Chunk()",
        "Chunk.length = 11",
        "CommittedPrefix.flat = True",
    )
    assert env.action_space == gym.spaces.MultiDiscrete([2] * 11)
    assert env.observation_space.shape == (4 + 2 * 3,)
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[-1]["realtime"]["executed"].sum() == 9
    gin.clear_config()
    load_config([], ["Chunk.length = 3", "Chunk.mean = @TemporalEnsemble()", "TemporalEnsemble.m = 0.5"])
    assert gin.get_configurable("Chunk")() == Chunk(3, mean=TemporalEnsemble(0.5))


def test_sensors_are_late_inside_of_the_delay_in_gin() -> None:
    env = made(
        "create_gym_environment.wrappers = [@SensorDelay, @RealtimeDelay]",
        "SensorDelay.sensors = {'camera': @camera/Sensor(), 'encoder': @encoder/Sensor()}",
        "camera/Sensor.latency = @LogNormal()",
        "camera/Sensor.rate = 30",
        "camera/Sensor.of = (0, 2)",
        "encoder/Sensor.of = (2, 4)",
        "LogNormal.mean = 0.06",
        "LogNormal.cv = 0.2",
        "RealtimeDelay.delay = 2",
        "RealtimeDelay.default_action = 'repeat'",
    )
    assert chain(env)[:2] == ["RealtimeDelay", "SensorDelay"]
    env.reset(seed=0)
    for _ in range(7):
        *_, info = env.step(0)
    ages = info["realtime"]["observation_info"]["sensor_ages"]
    assert ages["camera"] > ages["encoder"] == 0.0


def test_one_file_of_latencies_makes_sensors_and_decisions_late_in_gin(tmp_path: Path) -> None:
    sensors = {"camera": Sensor([0.06], rate=25, of=slice(0, 2))}
    Latencies([0.05, 0.07], transport=[0.01, 0.01], sensors=sensors).to_json(tmp_path / "robot.json")
    env = made(
        "create_gym_environment.wrappers = [@SensorDelay, @RealtimeDelay]",
        "SensorDelay.sensors = @Latencies()",
        "RealtimeDelay.latency = @Latencies()",
        "RealtimeDelay.workers = 4",
        "RealtimeDelay.playout = 4",
        "RealtimeDelay.default_action = 'repeat'",
        f"Latencies.latency = '{tmp_path / 'robot.json'}'",
    )
    assert chain(env)[:2] == ["RealtimeDelay", "SensorDelay"]
    env.reset(seed=0)
    *_, info = env.step(0)
    assert info["realtime"]["delay"] == 4 and [*info["sensor_ages"]] == ["camera"]


def test_a_binding_of_a_wrapper_that_no_list_names_is_not_read() -> None:
    bindings = ("Runner.create_environment_fn = @create_gym_environment", "create_gym_environment.wrappers = []")
    unread = load_config([], [*bindings, "TimeLimit.max_episode_steps = 7"]).unread()
    assert unread["TimeLimit.max_episode_steps"].reason.startswith("nothing reads TimeLimit.max_episode_steps")
    named = (bindings[0], "create_gym_environment.wrappers = [@TimeLimit]")
    assert not load_config([], [*named, "TimeLimit.max_episode_steps = 7"]).unread()


def test_what_the_atari_environment_uses_itself_reads_no_binding() -> None:
    bindings = ("Runner.create_environment_fn = @create_atari_environment", "AtariPreprocessing.noop_max = 30")
    unread = load_config([], bindings).unread()
    assert [*unread] == ["AtariPreprocessing.noop_max"]


def test_clip_reward_is_gymnasiums_in_gin_and_ours_by_clip_rewards() -> None:
    env = made(
        "create_gym_environment.wrappers = [@ClipReward]", "ClipReward.min_reward = -0.5", "ClipReward.max_reward = 0.5"
    )
    env.reset(seed=0)
    assert env.step(0)[1] == 0.5
    assert isinstance(env, gymnasium.wrappers.ClipReward) and not isinstance(env, ClipReward)
    env = create_gym_environment("CartPole-v1", clip_rewards=True)
    assert isinstance(env, ClipReward)
