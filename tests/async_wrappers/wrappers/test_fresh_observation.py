"""The fresh observation: the environment's own log says which frame each action met, which is what was shown."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RescaleObservation
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import Chunk, FreshObservation, LogNormal, RealtimeDelay
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.landing import DEFAULT, game
from tests.worlds.recording_env import EPISODE, FRAME, RecordingEnv


def assert_fresh(env: FreshObservation, world: RecordingEnv, age: int, episodes: int) -> None:
    """Play the start of each decision as its action, and compare what was shown with the frames of the game's log."""
    for number in range(episodes):
        shown, info = env.reset(seed=number)
        over, rows = False, []
        while not over:
            rows.append([int(shown[name][FRAME]) for name in ("observation", "fresh")])
            assert {int(each[EPISODE]) for each in shown.values()} == {number}
            assert info["realtime"]["start"] == rows[-1][0]
            shown, _, terminated, truncated, info = env.step(rows[-1][0])
            over = terminated or truncated
        log = world.episodes[number]
        landed = [(start, max(0, frame - age)) for frame, start in enumerate(log) if start != DEFAULT]
        assert [tuple(row) for row in rows[: len(landed)]] == landed
        assert len(rows) <= len(landed) + 1  # an episode may end before the first action lands
        if len(rows) > len(landed):
            assert rows[-1][1] == max(0, len(log) - age)
        assert int(shown["fresh"][FRAME]) == max(0, len(log) - age)


LENGTHS = st.lists(st.integers(1, 15), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 6), st.integers(0, 4), st.data(), LENGTHS, st.booleans())
def test_it_is_that_of_the_frame_on_which_the_action_lands(
    delay: int, noops: int, data: st.DataObject, lengths: list[int], reuse: bool
) -> None:
    age = data.draw(st.integers(0, delay))
    world = game(lengths, reuse=reuse)
    assert_fresh(FreshObservation(RealtimeDelay(world, delay, noops, DEFAULT), age), world, age, 4)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.001, 0.1),
    st.floats(0.1, 1.0),
    st.integers(1, 4),
    st.sampled_from(["tickets", "none", "sequential"]),
    LENGTHS,
    st.integers(0, 2),
)
def test_so_it_is_under_random_latencies(
    mean: float, cv: float, workers: int, stagger: str, lengths: list[int], age: int
) -> None:
    world = game(lengths)
    terms: dict[str, Any] = {"stagger": stagger, "default_action": DEFAULT, "workers": workers, "fps": 60}
    delayed = RealtimeDelay(world, latency=LogNormal(mean=mean, cv=cv), **terms)
    if delayed.playout is None or age <= delayed.playout:
        assert_fresh(FreshObservation(delayed, age), world, age, 4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(0, 3), LENGTHS)
def test_rewards_frames_and_observations_are_those_without_it(delay: int, noops: int, lengths: list[int]) -> None:
    def rows(env: Any, name: Any) -> list[Any]:
        found = []
        for number in range(4):
            shown, _ = env.reset(seed=number)
            over = False
            while not over:
                shown, reward, terminated, truncated, info = env.step(3)
                over = terminated or truncated
                seen = shown if name is None else shown[name]
                found.append((seen.tolist(), reward, terminated, truncated, info["realtime"]["frame"]))
        return found

    plain = RealtimeDelay(game(lengths), delay, noops, DEFAULT)
    told = FreshObservation(RealtimeDelay(game(lengths), delay, noops, DEFAULT))
    assert rows(told, "observation") == rows(plain, None)


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped|.*A Box observation space:UserWarning")
def test_it_passes_gymnasiums_checks_and_is_copied_and_pickled_with_what_it_has_seen() -> None:
    env = FreshObservation(RealtimeDelay(gym.make("CartPole-v1").unwrapped, delay=4, default_action="repeat"), age=2)
    check_env(env, skip_render_check=True)
    env.reset(seed=3)
    env.step(1)
    for other in (deepcopy(env), pickle.loads(pickle.dumps(env))):
        mine, theirs = deepcopy(env).step(0), other.step(0)
        for name in ("observation", "fresh"):
            np.testing.assert_array_equal(mine[0][name], theirs[0][name])


def test_stable_baselines3_learns_from_both_observations() -> None:
    trainers = pytest.importorskip("stable_baselines3")
    env = FreshObservation(RealtimeDelay(gym.make("CartPole-v1"), delay=4, default_action="repeat"))
    model = trainers.PPO("MultiInputPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu").learn(64)
    assert sorted(model.observation_space) == ["fresh", "observation"] and model.num_timesteps == 64


def test_what_it_cannot_show_is_refused_in_one_sentence() -> None:
    delayed = RealtimeDelay(DriftingEnv(), 2, 0, 0)
    with pytest.raises(ValueError, match=r"^age must be <= 2, the frames of the delay, .* got 3$"):
        FreshObservation(delayed, 3)
    for age in (-1, 1.0, None):
        with pytest.raises(ValueError, match=r"^age must be a whole number of frames >= 0, got"):
            FreshObservation(delayed, age)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^FreshObservation must be around a RealtimeDelay, got"):
        FreshObservation(DriftingEnv())
    with pytest.raises(ValueError, match=r"^age must not be given where actions are chunks"):
        FreshObservation(RealtimeDelay(DriftingEnv(), 1, 1, default_action=Chunk(4, after=0)))
    scaled = RescaleObservation(RealtimeDelay(gym.make("MountainCar-v0"), 2), np.float32(0), np.float32(1))
    with pytest.raises(ValueError, match=r"^FreshObservation must be around observations as the delay shows them"):
        FreshObservation(scaled)
    with pytest.raises(ValueError, match=r"^age must be 1 frames, as it is elsewhere for the same delay, got 0$"):
        FreshObservation(FreshObservation(delayed, 1).env)
