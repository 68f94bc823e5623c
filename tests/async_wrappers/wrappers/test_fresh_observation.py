"""The fresh observation: the environment's own log says which frame each action met, which is what was shown."""

from __future__ import annotations

import pickle
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate
from gymnasium.wrappers import RescaleObservation
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import Chunk, FreshObservation, LogNormal, RealtimeDelay, VectorRealtimeDelay
from async_wrappers.wrappers.copies import row
from tests.worlds.dict_env import DictEnv, TupleEnv
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.hashing_policy import policy
from tests.worlds.landing import DEFAULT, ENDS, game
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


def alone(delay: int, lengths: list[int], age: int, episodes: int) -> list[list[tuple[Any, ...]]]:
    """Return what each applied decision of a single environment read, and its reward."""
    env = FreshObservation(RealtimeDelay(RecordingEnv(lengths, ENDS), delay, 0, "repeat"), age)
    found: list[list[tuple[Any, ...]]] = []
    for _ in range(episodes):
        found.append([])
        shown, _ = env.reset()
        over = False
        while not over:
            before, action = shown, policy(shown["observation"] + shown["fresh"])
            shown, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
            if info["realtime"]["applied"]:
                found[-1].append((*before["observation"].tolist(), *before["fresh"].tolist(), reward))
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.data(), st.lists(LENGTHS, min_size=1, max_size=3), st.sampled_from(AutoresetMode))
def test_rows_of_a_vector_in_lockstep_are_single_environments(
    delay: int, data: st.DataObject, lengths: list[list[int]], mode: AutoresetMode
) -> None:
    age = data.draw(st.integers(0, delay))
    lengths = [[*of_one, delay + 3] for of_one in lengths]
    makers = [lambda of_one=of_one: RecordingEnv(of_one, ENDS) for of_one in lengths]
    env = VectorRealtimeDelay(SyncVectorEnv(makers, autoreset_mode=mode), delay, 0, "repeat")
    env.report_fresh("age", age)
    rows: list[list[list[tuple[Any, ...]]]] = [[[] for _ in range(100)] for _ in lengths]
    shown, info = env.reset()
    for _ in range(40):
        fresh = info["realtime"]["fresh_observation"]
        before = [(*one.tolist(), *other.tolist()) for one, other in zip(shown, fresh, strict=True)]
        actions = np.array([policy(both) for both in shown + fresh])
        shown, rewards, *over, info = env.step(actions)
        for i in np.flatnonzero(info["realtime"]["applied"]).tolist():
            rows[i][before[i][EPISODE]].append((*before[i], rewards[i]))
        if env.metadata["autoreset_mode"] is AutoresetMode.DISABLED and np.any(over):
            shown, info = env.reset(options={"reset_mask": np.any(over, axis=0)})
    for of_one, episodes in zip(lengths, rows, strict=True):
        last = max(number for number, each in enumerate(episodes) if each)
        for number, single in enumerate(alone(delay, of_one, age, last)):
            assert episodes[number] == single


@pytest.mark.parametrize("kind", [DictEnv, TupleEnv])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_rows_of_several_arrays_are_those_of_single_environments(kind: Any, mode: AutoresetMode) -> None:
    make = partial(kind, lengths=[8])
    env = VectorRealtimeDelay(SyncVectorEnv([make] * 2, autoreset_mode=mode), 3, 0, "repeat")
    env.report_fresh("age", 2)
    single = FreshObservation(RealtimeDelay(make(), 3, 0, "repeat"), 2)
    shown, info = env.reset(seed=[4, 4])
    (alone, _), over = single.reset(seed=4), False
    while not over or mode is AutoresetMode.NEXT_STEP:
        fresh = info["realtime"]["fresh_observation"]
        for name, rows in (("observation", shown), ("fresh", fresh)):
            for each in iterate(env.observation_space, rows):
                assert data_equivalence(each, alone[name])
        if over:
            return
        shown, _, *ends, info = env.step(np.array([1, 1]))
        alone, _, terminated, truncated, _ = single.step(1)
        over = terminated or truncated
        assert np.any(ends) == over
    final, fresh = info["final_obs"], info["final_info"]["realtime"]["fresh_observation"]
    for name, given_ in (("observation", final), ("fresh", fresh)):
        of_one = row({"of": given_}, 1, 2)["of"]
        assert data_equivalence(of_one, alone[name])


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 0.1), st.integers(1, 3), LENGTHS, st.integers(0, 1), st.sampled_from(AutoresetMode))
def test_rows_of_a_vector_of_random_delays_are_single_environments(
    mean: float, workers: int, lengths: list[int], age: int, mode: AutoresetMode
) -> None:
    terms: dict[str, Any] = {"latency": LogNormal(mean=mean, cv=0.5), "workers": workers, "fps": 60}

    def make() -> Any:
        return FreshObservation(RealtimeDelay(RecordingEnv(lengths, ENDS), **terms, default_action="repeat"), age)

    vector, singles = SyncVectorEnv([make] * 2, autoreset_mode=mode), [make(), make()]
    shown, _ = vector.reset(seed=3)
    alone = [single.reset(seed=3 + i)[0] for i, single in enumerate(singles)]
    ended = [False] * 2
    for _ in range(20):
        for i, each in enumerate(alone):
            assert {name: shown[name][i].tolist() for name in shown} == {name: each[name].tolist() for name in each}
        actions = np.array([policy(each["observation"] + each["fresh"]) for each in alone])
        shown, _, terminated, truncated, _ = vector.step(actions)
        over = terminated | truncated
        for i, single in enumerate(singles):
            if mode is AutoresetMode.NEXT_STEP and ended[i]:
                alone[i] = single.reset()[0]
                ended[i] = False
                continue
            alone[i], *_ = single.step(actions[i])
            ended[i] = bool(over[i])
            if over[i] and mode is AutoresetMode.SAME_STEP:
                alone[i] = single.reset()[0]
        if mode is AutoresetMode.DISABLED and over.any():
            shown, _ = vector.reset(options={"reset_mask": over})
            for i in np.flatnonzero(over).tolist():
                alone[i] = singles[i].reset()[0]


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


TIMINGS = st.one_of(
    st.fixed_dictionaries({"delay": st.integers(0, 5), "noops": st.integers(0, 3)}),
    st.fixed_dictionaries(
        {
            "latency": st.builds(LogNormal, mean=st.floats(0.001, 0.1), cv=st.floats(0.1, 1.0)),
            "workers": st.integers(1, 3),
            "stagger": st.sampled_from(["tickets", "none", "sequential"]),
            "fps": st.just(60),
        }
    ),
)


@settings(max_examples=80, deadline=None)
@given(TIMINGS, LENGTHS)
def test_rewards_frames_and_observations_are_those_without_it(timing: dict[str, Any], lengths: list[int]) -> None:
    def rows(env: Any, name: Any) -> list[Any]:
        found = []
        for number in range(4):
            shown, info = env.reset(seed=number)
            seen = shown if name is None else shown[name]
            found.append((seen.tolist(), info["realtime"]["start"]))
            over = False
            while not over:
                shown, reward, terminated, truncated, info = env.step(3)
                over = terminated or truncated
                seen, realtime = shown if name is None else shown[name], info["realtime"]
                found.append((seen.tolist(), reward, terminated, truncated, realtime["frame"], realtime["start"]))
        return found

    plain = RealtimeDelay(game(lengths), default_action=DEFAULT, **timing)
    told = FreshObservation(RealtimeDelay(game(lengths), default_action=DEFAULT, **timing))
    assert rows(told, "observation") == rows(plain, None)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("noops", [0, 1, 3])
def test_a_vector_is_reset_to_the_observations_that_it_has_without_it(noops: int, mode: AutoresetMode) -> None:
    def first(fresh: bool, length: int) -> Any:
        makers = [lambda of_one=of_one: game(of_one) for of_one in ([length], [20])]
        env = VectorRealtimeDelay(SyncVectorEnv(makers, autoreset_mode=mode), 3, noops, DEFAULT)
        if fresh:
            env.report_fresh("age", 1)
        shown, info = env.reset()
        realtime = info["realtime"]
        return shown.tolist(), realtime["start"].tolist(), realtime["deciding"].tolist()

    for length in range(1, 6):
        assert first(True, length) == first(False, length)


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
    vector = VectorRealtimeDelay(SyncVectorEnv([DriftingEnv] * 2), 2, 0, 0)
    with pytest.raises(ValueError, match=r"^FreshObservation must be around a RealtimeDelay, got <VectorRealtimeDelay"):
        FreshObservation(vector)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^age must be <= 2, the frames of the delay, .* got 3$"):
        vector.report_fresh("age", 3)
    with pytest.raises(ValueError, match=r"^fresh_age must be a whole number of frames >= 0, got -1$"):
        vector.fresh_age = -1
    vector.report_fresh("age", 1)
    with pytest.raises(ValueError, match=r"^age must be 1 frames, as it is elsewhere for the same delay, got 0$"):
        vector.report_fresh("age", 0)
    with pytest.raises(ValueError, match=r"^age must not be given where actions are chunks"):
        VectorRealtimeDelay(SyncVectorEnv([DriftingEnv] * 2), 1, 1, Chunk(4, after=0)).report_fresh("age", 0)
    with pytest.raises(ValueError, match=r"^age must not be given where actions are chunks"):
        FreshObservation(RealtimeDelay(DriftingEnv(), 1, 1, default_action=Chunk(4, after=0)))
    scaled = RescaleObservation(RealtimeDelay(gym.make("MountainCar-v0"), 2), np.float32(0), np.float32(1))
    with pytest.raises(ValueError, match=r"^FreshObservation must be around observations as the delay shows them"):
        FreshObservation(scaled)
    with pytest.raises(ValueError, match=r"^age must be 1 frames, as it is elsewhere for the same delay, got 0$"):
        FreshObservation(FreshObservation(delayed, 1).env)
