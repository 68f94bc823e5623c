"""Statistics of wrappers: what they are, exactly kept, frozen and merged."""

from __future__ import annotations

import copy
import json
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from gymnasium.wrappers import vector as of_vectors

from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.live.runner import AsyncRunner
from async_wrappers.own_code import kept_over_episodes
from async_wrappers.wrapper_statistics import (
    freeze,
    frozen,
    give_statistics,
    load_statistics,
    merged,
    statistics_of,
    statistics_of_envs,
)
from tests.worlds.drifting_env import DriftingEnv


def make(lengths: tuple[int, ...] = (5,)) -> Any:
    return NormalizeReward(NormalizeObservation(NormalizeObservation(DriftingEnv(lengths=lengths))))


def play(env: Any, frames: int, seed: int | None = None) -> list[float]:
    """Play so many frames of episodes; return the rewards."""
    env.reset(seed=seed)
    rewards = []
    for frame in range(frames):
        _, reward, terminated, truncated, _ = env.step(frame % 3)
        rewards.append(float(reward))
        if terminated or truncated:
            env.reset()
    return rewards


def test_statistics_are_plain_data_and_an_environment_with_them_goes_on_alike() -> None:
    one, other = make(), make()
    play(one, 20, seed=3)
    statistics = json.loads(json.dumps(statistics_of(one)))
    assert list(statistics) == ["NormalizeObservation", "NormalizeObservation 2", "NormalizeReward"]
    assert load_statistics(other, statistics) == []
    assert play(one, 12, seed=4) == play(other, 12, seed=4)
    assert statistics_of(one) == statistics_of(other)


def test_wrappers_that_got_none_are_named_and_others_of_no_wrapper_here_are_left() -> None:
    assert load_statistics(make(), {"NormalizeReward": {}, "Else": {}}) == [
        "NormalizeObservation",
        "NormalizeObservation 2",
    ]


def test_statistics_of_another_shape_are_refused() -> None:
    statistics = statistics_of(NormalizeObservation(gym.make("CartPole-v1")))
    with pytest.raises(ValueError, match=r"^NormalizeObservation\.obs_rms\.mean must have the shape \(3,\), got stat"):
        load_statistics(make(), statistics)


def test_frozen_statistics_do_not_change_and_all_is_as_before_afterwards() -> None:
    env = make()
    play(env, 10, seed=1)
    env.env.update_running_mean = False  # the outer one, by its user
    before, means = statistics_of(env), copy.deepcopy(env.env.env.obs_rms.mean)
    with frozen(env) as known:
        play(env, 10, seed=2)
        assert known == before
        assert (env.env.env.obs_rms.mean == means).all()
    assert statistics_of(env) == before
    assert (env.update_running_mean, env.env.update_running_mean, env.env.env.update_running_mean) == (
        True,
        False,
        True,
    )


def test_merged_statistics_are_of_all_that_the_environments_have_seen() -> None:
    rng = np.random.default_rng(0)
    seen = [rng.normal(place, 1 + place, (20 * (place + 1), 3)) for place in range(3)]
    envs = [NormalizeObservation(DriftingEnv()) for _ in seen]
    for env, rows in zip(envs, seen, strict=True):
        env.obs_rms.count = 0.0  # without the beginning's, of one part in 10,000
        env.obs_rms.update(rows)
    rms = merged([statistics_of(env) for env in envs])["NormalizeObservation"]["obs_rms"]
    of_all = np.concatenate(seen)
    assert rms["mean"]["array"] == pytest.approx(of_all.mean(axis=0).tolist())
    assert rms["var"]["array"] == pytest.approx(of_all.var(axis=0).tolist())
    assert rms["count"] == len(of_all)
    one = statistics_of(envs[0])
    assert merged([{}, one]) is one


def test_a_state_that_is_no_plain_data_is_refused() -> None:
    class Odd(gym.Wrapper[Any, Any, Any, Any]):
        def state_dict(self) -> dict[str, Any]:
            return {"seen": {1}}

        def load_state_dict(self, state: Any) -> None:
            raise AssertionError

    with pytest.raises(ValueError, match=r"^statistics must be arrays and plain data, got set at Odd\.state_dict\(\)"):
        statistics_of(Odd(DriftingEnv()))


# Many environments.


MANY = {
    "local": lambda: LocalEnvs(make, 4),
    "processes": lambda: ProcessEnvs(make, 4, 2),
    "halves of processes": lambda: DoubleBuffered(ProcessEnvs(make, 2, 1), ProcessEnvs(make, 2, 1)),
    "halves": lambda: DoubleBuffered(LocalEnvs(make, 2), LocalEnvs(make, 2)),
    "a vector": lambda: VectorEnvs(SyncVectorEnv([make] * 4, autoreset_mode=AutoresetMode.SAME_STEP)),
}


def rows(envs: Any, rounds: int) -> list[float]:
    """Play a few rounds; return the rewards."""
    envs.begin(list(range(4)))
    rewards: list[float] = []
    for _ in range(rounds):
        shown = envs.recv()
        rewards += shown.reward.tolist()
        envs.send(shown.env_ids, shown.env_ids % 3)
        statistics_of_envs(envs)  # amid a step
    envs.cut()
    return rewards


@pytest.mark.parametrize("way", MANY)
def test_many_environments_return_and_take_statistics(way: str) -> None:
    with closing(MANY[way]()) as envs, closing(LocalEnvs(make, 4)) as alone:
        rows(envs, 8)
        found = statistics_of_envs(envs)
        give_statistics(alone, found)
        assert statistics_of_envs(alone) == found
        assert len({str(each) for each in found}) == 4

        assert rows(alone, 8) == rows(envs, 8) if "halves" not in way else True
        give_statistics(envs, found, frozen=True)
        rows(envs, 8)
        now = statistics_of_envs(envs)
        for one, other in zip(now, found, strict=True):
            assert one["NormalizeObservation"] == other["NormalizeObservation"]


def test_a_process_that_is_replaced_begins_with_the_newest_known_statistics() -> None:
    with closing(ProcessEnvs(make, 2, 2)) as envs:
        envs.begin([0, 1])
        for _ in range(6):
            shown = envs.recv()
            envs.send(shown.env_ids, shown.env_ids % 3)
        known = statistics_of_envs(envs)
        process = psutil.Process(envs.pids[1])
        process.kill()
        psutil.wait_procs([process], timeout=60)
        assert statistics_of_envs(envs) == known
        envs.recv()
        if envs.restarts == 0:  # it had finished the step
            shown = envs.recv() if envs._turns._shown is None else shown
            envs.send(shown.env_ids, shown.env_ids % 3)
            envs.recv()
        assert envs.restarts == 1
        counts = [each["NormalizeReward"]["return_rms"]["count"] for each in (known[1], statistics_of_envs(envs)[1])]
        assert counts[1] == counts[0]


def test_wrappers_of_a_vector_have_statistics_too_and_those_of_one_environment_take_them() -> None:
    vector = of_vectors.NormalizeReward(of_vectors.NormalizeObservation(SyncVectorEnv([DriftingEnv] * 3)))
    with closing(VectorEnvs(vector)) as envs:
        envs.begin([1, 2, 3])
        for _ in range(5):
            shown = envs.recv()
            envs.send(shown.env_ids, shown.env_ids % 3)
        found = statistics_of_envs(envs)
        assert found[0].keys() == {"NormalizeObservation", "NormalizeReward"}
        one = NormalizeReward(NormalizeObservation(DriftingEnv()))
        assert load_statistics(one, merged(found)) == []
        freeze(one)
        assert (one.env.obs_rms.mean == vector.env.obs_rms.mean).all()  # type: ignore[attr-defined]


# Live.


def test_a_live_evaluation_is_frozen_and_a_report_has_the_statistics() -> None:
    terms: dict[str, Any] = {"fps": 50, "workers": 1, "backend": "virtual", "latency": 0.01}
    with AsyncRunner(
        partial(make, (7,)), lambda: lambda observation: 1, default_action=lambda *seen: 0, **terms
    ) as runner:
        trained = runner.run(episodes=3, eval_mode=False).statistics
        assert trained["NormalizeObservation"]["obs_rms"]["count"] > 20
        assert runner.run(episodes=2, eval_mode=True).statistics == trained


# What cannot be known.


class Resets(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps nothing: all is set in reset, by a method of its own."""

    def reset(self, **arguments: Any) -> Any:
        self._begin()
        return self.env.reset(**arguments)

    def _begin(self) -> None:
        self.frames, self.score = 0, 0.0

    def step(self, action: Any) -> Any:
        self.frames += 1
        step = self.env.step(action)
        self.score = self.score + float(step[1])
        return step


class Smooths(gym.ObservationWrapper[Any, Any, Any]):
    """Keeps a mean over episodes, and the newest observation, which each reset sets anew."""

    def observation(self, observation: Any) -> Any:
        self.newest = observation
        self.mean = 0.9 * self.mean + 0.1 * observation
        return observation


def test_attributes_that_a_step_sets_and_no_reset_does_are_kept_over_episodes() -> None:
    assert kept_over_episodes(Resets(DriftingEnv())) == []
    assert kept_over_episodes(Smooths(DriftingEnv())) == ["mean"]
    assert kept_over_episodes(NormalizeReward(DriftingEnv())) == []
