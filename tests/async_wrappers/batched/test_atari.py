"""`create_atari_vector` gives the frames and rewards of `create_atari_environment`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ale_py")

from async_wrappers import RealtimeDelay, VectorRealtimeDelay, create_atari_environment, create_atari_vector
from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.protocol import BatchedEnvs
from async_wrappers.batched.vector import VectorEnvs
from async_wrappers.testing.batched import BatchedEnvsContract

SHORT: dict[str, Any] = {"sticky_actions": False, "terminal_on_life_loss": True}  # Breakout: about 30 steps at random


@pytest.mark.parametrize(
    ("game", "frame_skip", "steps", "clip_rewards"),
    [("Pong", 4, 120, True), ("Boxing", 1, 150, False), ("Breakout", 4, 250, True)],
)
def test_frames_and_rewards_are_those_of_a_single_game(
    game: str, frame_skip: int, steps: int, clip_rewards: bool
) -> None:
    single = create_atari_environment(game, frame_skip, sticky_actions=False, clip_rewards=clip_rewards)
    vector = create_atari_vector(game, 2, frame_skip, sticky_actions=False, clip_rewards=clip_rewards, num_threads=1)
    assert vector.single_observation_space == single.observation_space
    assert vector.single_action_space == single.action_space
    observation, info = single.reset(seed=0)
    observations, infos = vector.reset(seed=np.array([0, 1]))
    np.testing.assert_array_equal(observation, observations[0])
    single.action_space.seed(0)
    for _ in range(steps):
        action = single.action_space.sample()
        observation, reward, terminated, truncated, info = single.step(action)
        observations, rewards, ended, cut, infos = vector.step(np.array([action, 0]))
        assert (rewards[0], ended[0], cut[0]) == (reward, terminated, truncated)
        of_it = infos
        if terminated or truncated:
            np.testing.assert_array_equal(observation, infos["final_obs"][0])
            of_it = infos["final_info"]
        if clip_rewards:
            assert of_it["episode_return"][0] == info["episode_return"]
        if terminated or truncated:
            observation, _ = single.reset()
            assert infos["episode_return"][0] == 0
        np.testing.assert_array_equal(observation, observations[0])
    single.close()
    vector.close()


def test_any_number_of_threads_gives_the_same_games() -> None:
    def played(num_threads: int) -> list[Any]:
        vector = create_atari_vector("Breakout", 5, terminal_on_life_loss=True, num_threads=num_threads)
        actions = np.random.default_rng(0)
        steps: list[Any] = [vector.reset(seed=np.arange(5))[0]]
        for _ in range(60):
            steps += vector.step(actions.integers(4, size=5))[:4]
        vector.close()
        return steps

    alone = played(1)
    assert any(ended.any() for ended in alone[3::4])
    for num_threads in (2, 5):
        for one, other in zip(alone, played(num_threads), strict=True):
            np.testing.assert_array_equal(one, other)


class TestAtari(BatchedEnvsContract):
    calls = 45

    def make_environment(self) -> gym.Env[Any, Any]:
        return create_atari_environment("Breakout", **SHORT)

    def make_batched(self) -> BatchedEnvs:
        return VectorEnvs(create_atari_vector("Breakout", 2, num_threads=1, **SHORT))


@pytest.mark.slow
class TestDelayedAtariInHalves(BatchedEnvsContract):
    calls = 90  # of both halves

    def make_environment(self) -> gym.Env[Any, Any]:
        return RealtimeDelay(create_atari_environment("Breakout", **SHORT), delay=2, default_action="repeat")

    def make_batched(self) -> BatchedEnvs:
        a, b = (create_atari_vector("Breakout", 1, num_threads=1, wrappers=[delayed], **SHORT) for _ in range(2))
        return DoubleBuffered(VectorEnvs(a), VectorEnvs(b))


def delayed(vector: Any) -> VectorRealtimeDelay:
    return VectorRealtimeDelay(vector, delay=2, default_action="repeat")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"obs_type": "ram"}, "obs_type must be 'grayscale' in create_atari_vector, as .*, got 'ram'"),
        ({"noop_max": 30}, "noop_max must be 0 in create_atari_vector, as .*, got 30"),
        ({"render_mode": "human"}, "render_mode must be None in create_atari_vector, as .*, got 'human'"),
        ({"num_envs": 0}, "num_envs must be a whole number >= 1, got 0"),
        ({"frame_skip": 0}, "frame_skip must be a whole number of emulated frames >= 1, got 0"),
        ({"game_name": "Pnog"}, "game_name must be one of ale-py's"),
    ],
)
def test_what_the_vector_cannot_do_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        create_atari_vector(**{"game_name": "Pong", "num_envs": 2, **arguments})


class _SignalIn(gym.vector.VectorWrapper):
    """A signal comes during this call, and is heard at its end."""

    call = "recv"

    def send(self, actions: Any) -> None:
        self.env.send(actions)  # type: ignore[attr-defined]
        self._hear("send")

    def recv(self) -> Any:
        step = self.env.recv()  # type: ignore[attr-defined]
        self._hear("recv")
        return step

    def _hear(self, call: str) -> None:
        if call == self.call:
            raise KeyboardInterrupt


@pytest.mark.parametrize("call", ["send", "recv"])
def test_after_a_signal_nothing_is_waited_for_and_the_games_are_not_played_on(call: str) -> None:
    vector = _SignalIn(create_atari_vector("Pong", 1, num_threads=1))
    vector.call = call
    envs = VectorEnvs(vector)
    envs.begin([0])
    shown = envs.recv()
    with pytest.raises(KeyboardInterrupt):
        envs.send(shown.env_ids, np.zeros(1, np.int64))
        envs.recv()
    with pytest.raises(RuntimeError, match=r"a step of these environments was interrupted.*make them anew"):
        envs.begin([0])
    envs.close()  # would wait for ever for a step that is taken
