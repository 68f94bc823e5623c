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
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.testing.batched import BatchedEnvsContract

SHORT: dict[str, Any] = {"sticky_actions": False, "terminal_on_life_loss": True}  # Breakout: about 30 steps at random


@pytest.mark.parametrize(
    ("game", "steps", "of_both", "ends"),
    [
        ("Pong", 80, {"clip_rewards": True}, 0),
        ("Boxing", 80, {"frame_skip": 1, "clip_rewards": False}, 0),
        ("Breakout", 250, {"clip_rewards": True}, 1),
        ("Breakout", 190, {"episodic_life": True}, 5),
        ("Breakout", 100, {"episodic_life": True, "clip_rewards": False, "max_frames": 130}, 3),
        ("Breakout", 100, {"episodic_life": True, "fire_on_reset": True}, 1),
        ("Breakout", 80, {"terminal_on_life_loss": True, "fire_on_reset": True}, 1),
        ("Qbert", 110, {"episodic_life": True, "fire_on_reset": True}, 1),  # which has no need of FIRE
        ("Boxing", 60, {"obs_type": "rgb", "screen_size": (100, 60), "max_frames": 90}, 2),
        ("Pong", 40, {"obs_type": "rgb", "screen_size": (210, 160), "frame_skip": 1}, 0),
    ],
)
def test_frames_and_rewards_are_those_of_a_single_game(
    game: str, steps: int, of_both: dict[str, Any], ends: int
) -> None:
    single = create_atari_environment(game, sticky_actions=False, **of_both)
    vector = create_atari_vector(game, 2, sticky_actions=False, num_threads=1, **of_both)
    assert vector.single_observation_space == single.observation_space
    assert vector.single_action_space == single.action_space
    observation, info = single.reset(seed=0)
    observations, infos = vector.reset(seed=np.array([0, 1]))
    np.testing.assert_array_equal(observation, observations[0])
    single.action_space.seed(0)
    ended_here = 0
    for _ in range(steps):
        action = single.action_space.sample()
        observation, reward, terminated, truncated, info = single.step(action)
        observations, rewards, ended, cut, infos = vector.step(np.array([action, 0]))
        assert (rewards[0], ended[0], cut[0]) == (reward, terminated, truncated)
        of_it = infos
        if terminated or truncated:
            np.testing.assert_array_equal(observation, infos["final_obs"][0])
            of_it = infos["final_info"]
        if "episode_return" in info:
            assert of_it["episode_return"][0] == info["episode_return"]
        if terminated or truncated:
            ended_here += 1
            if of_both.get("episodic_life"):
                assert of_it["game_over"][0] == info["game_over"]
            observation, info = single.reset()
            assert infos["episode_return"][0] == info.get("episode_return", 0)
        assert infos["lives"][0] == info["lives"]
        np.testing.assert_array_equal(observation, observations[0])
    assert ended_here >= ends
    single.close()
    vector.close()


def test_a_life_ends_an_episode_while_the_game_and_its_return_go_on() -> None:
    vector = create_atari_vector("Breakout", 2, sticky_actions=False, episodic_life=True, num_threads=1)
    vector.reset(seed=np.arange(2))
    actions, ends, paid = np.random.default_rng(0), [], 0.0
    while len(ends) < 6:
        observations, rewards, terminated, truncated, info = vector.step(np.array([actions.integers(4), 0]))
        assert not (truncated.any() or terminated[1])  # nobody fires there
        paid += float(rewards[0])
        if terminated[0]:
            ends.append((info["final_info"]["game_over"][0], info["final_info"]["episode_return"][0], paid))
            shown_again = (observations[0] == info["final_obs"][0]).all()
            assert shown_again == (not ends[-1][0])
            paid = 0.0 if ends[-1][0] else paid
    assert [game_over for game_over, _, _ in ends] == [False] * 4 + [True, False]
    assert [returned for _, returned, _ in ends] == [since for _, _, since in ends]  # of the whole game
    assert ends[4][1] > 0
    vector.close()


def noops_of_a_vector(seeds: list[int], resets: int, **other: Any) -> list[list[int]]:
    """Return the frames that games have had when they begin: of those that the seeds begin, and of those after them."""
    vector = create_atari_vector("Breakout", len(seeds), noop_max=5, num_threads=1, **other)
    counts = [vector.reset(seed=np.array(seeds))[1]["episode_frame_number"].tolist()]
    while len(counts) <= resets:
        *_, truncated, info = vector.step(np.zeros(len(seeds), np.int64))
        if truncated.all():  # after 4 frames that are no no-ops
            counts.append(info["episode_frame_number"].tolist())
    vector.close()
    return counts


def test_noop_max_begins_each_game_of_a_vector_with_1_to_so_many_noops_decided_by_the_seed() -> None:
    seeds = [*range(4)]
    counts = noops_of_a_vector(seeds, 17, max_frames=4)
    shares = np.bincount(np.ravel(counts), minlength=6) / 72
    assert shares[0] == 0 and np.abs(shares[1:] - 1 / 5).max() < 0.17  # as a single game draws; 3.5 deviations
    assert len(set(map(tuple, zip(*counts, strict=True)))) == 4  # the games of a vector differ
    # They follow from the seed, whichever games are beside it.
    assert [each[0] for each in noops_of_a_vector([3], 3, max_frames=4)] == [each[3] for each in counts[:4]]


def test_no_ops_make_episodes_different_that_were_equal() -> None:
    def first_frames(noop_max: int) -> set[bytes]:
        vector = create_atari_vector("Pong", 2, noop_max=noop_max, sticky_actions=False, num_threads=1)
        vector.reset(seed=np.arange(2))
        for _ in range(25):
            observations, *_ = vector.step(np.full(2, 2))
        vector.close()
        return {observation.tobytes() for observation in observations}

    assert len(first_frames(0)) == 1
    assert len(first_frames(30)) > 1


def test_fire_is_pressed_after_a_reset_and_after_a_life_and_not_unless_asked() -> None:
    def lost(**other: Any) -> int:
        vector = create_atari_vector("Breakout", 1, sticky_actions=False, num_threads=1, **other)
        vector.reset(seed=np.array([0]))
        ends = sum(int(vector.step(np.zeros(1, np.int64))[2][0]) for _ in range(130))  # no-ops
        vector.close()
        return ends

    assert lost(episodic_life=True, fire_on_reset=True) == 5
    assert lost(fire_on_reset=True) == 1  # a game
    assert lost(episodic_life=True) == 0


def test_any_number_of_threads_gives_the_same_games() -> None:
    def played(num_threads: int) -> list[Any]:
        vector = create_atari_vector("Breakout", 3, terminal_on_life_loss=True, num_threads=num_threads)
        actions = np.random.default_rng(0)
        steps: list[Any] = [vector.reset(seed=np.arange(3))[0]]
        for _ in range(60):
            steps += vector.step(actions.integers(4, size=3))[:4]
        vector.close()
        return steps

    alone = played(1)
    assert any(ended.any() for ended in alone[3::4])
    for one, other in zip(alone, played(3), strict=True):
        np.testing.assert_array_equal(one, other)


LIVES: dict[str, Any] = {"sticky_actions": False, "episodic_life": True, "fire_on_reset": True}


class TestLives(BatchedEnvsContract):
    calls = 60

    def make_environment(self) -> gym.Env[Any, Any]:
        return create_atari_environment("Breakout", **LIVES)

    def make_batched(self) -> BatchedEnvs:
        return VectorEnvs(create_atari_vector("Breakout", 2, num_threads=1, **LIVES))


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
        (
            {"obs_type": "ram"},
            "obs_type must be 'grayscale' or 'rgb' in create_atari_vector, as .*, got 'ram': use create_atari_environ",
        ),
        ({"noop_max": -1}, "noop_max must be >= 0 frames, got -1"),
        ({"render_mode": "human"}, "render_mode must be None in create_atari_vector, as .*, got 'human'"),
        ({"screen_size": 0}, r"screen_size must be a whole number of pixels > 0, or \(height, width\) of such, got 0"),
        ({"screen_size": (84, 84, 3)}, r"screen_size must be .*, got \(84, 84, 3\)"),
        ({"max_frames": 0}, "max_frames must be a whole number of emulated frames >= 1, got 0"),
        ({"episodic_life": 1}, "episodic_life must be True or False, got 1"),
        (
            {"episodic_life": True, "terminal_on_life_loss": True},
            "episodic_life must be False where terminal_on_life_loss=True, which begins a new game after each life",
        ),
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
