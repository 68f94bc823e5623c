"""Returns of the environment's own rewards, below wrappers that change them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeReward, RecordEpisodeStatistics, TransformReward
from gymnasium.wrappers import vector as of_vectors

from async_wrappers import RealtimeDelay
from async_wrappers.envs import ClipReward
from async_wrappers.live.runner import AsyncRunner
from async_wrappers.own_code import changes_rewards
from async_wrappers.own_returns import OwnReturns, reward_changers, with_own_returns
from async_wrappers.testing.environments import EnvironmentContract
from tests.worlds.drifting_env import DriftingEnv

Wrapper = gym.Wrapper[Any, Any, Any, Any]


class TestOwnReturns(EnvironmentContract):
    def make_environment(self) -> Any:
        return OwnReturns(DriftingEnv())


# What changes rewards.


class Passes(Wrapper):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return 2 * observation, reward, terminated, truncated, {**info, "score": reward * 2}


class PassesAll(Wrapper):
    def step(self, action: Any) -> Any:
        if action == 0:
            return super().step(1)
        step = self.env.step(action)
        return step


class Adds(Wrapper):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward += 1
        return observation, reward, terminated, truncated, info


class Multiplies(Wrapper):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return observation, 2 * reward, *rest


class Sums(Wrapper):
    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(2):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += reward
        return observation, total, terminated, truncated, info


class Rewrites(Wrapper):
    def step(self, action: Any) -> Any:
        step = [*self.env.step(action)]
        step[1] = 0.0
        return tuple(step)


@pytest.mark.parametrize(
    ("wrapper", "changes"),
    [(Passes, False), (PassesAll, False), (Adds, True), (Multiplies, True), (Sums, True), (Rewrites, True)],
)
def test_a_step_of_ones_own_changes_rewards_unless_it_returns_what_it_got(wrapper: Any, changes: bool) -> None:
    assert changes_rewards(wrapper(DriftingEnv())) == changes


def test_wrappers_that_change_rewards_are_named_from_the_inside_on() -> None:
    env = RealtimeDelay(NormalizeReward(Passes(Adds(ClipReward(DriftingEnv())))), 1, default_action=0)
    assert reward_changers(env) == ["ClipReward", "Adds", "NormalizeReward"]


def test_a_class_may_say_it_itself() -> None:
    class Same(Adds):
        changes_rewards = False

    assert reward_changers(Same(DriftingEnv())) == []


# Where they are counted.


def played(env: Any) -> tuple[list[float], list[float]]:
    """Play three episodes; return what each reports and what the environment itself has paid."""
    found = []
    for seed in range(3):
        env.reset(seed=seed)
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(1)
            over = terminated or truncated
        found.append(info["episode_return"])
    return found, [sum(life.rewards) for life in env.unwrapped.lives]


def test_returns_are_counted_below_the_innermost_wrapper_that_changes_rewards() -> None:
    env = with_own_returns(NormalizeReward(TransformReward(Passes(DriftingEnv()), lambda reward: reward - 1)))
    assert isinstance(env.env.env, OwnReturns)
    found, paid = played(env)
    assert found == paid


def test_a_recorder_outside_of_such_a_wrapper_says_where_else() -> None:
    env = with_own_returns(NormalizeReward(RecordEpisodeStatistics(Adds(DriftingEnv()))))
    assert isinstance(env.env.env, OwnReturns)
    found, paid = played(env)
    frames = [len(life.rewards) for life in env.unwrapped.lives]
    assert found == [one + count for one, count in zip(paid, frames, strict=True)]


def test_returns_that_something_inside_reports_are_left() -> None:
    for wrap in (NormalizeReward, Adds):
        found, paid = played(with_own_returns(wrap(ClipReward(DriftingEnv(), -0.125, 0.125))))
        assert found == paid
        found, paid = played(with_own_returns(ClipReward(wrap(DriftingEnv()))))
        assert found == paid


def test_nothing_stands_in_an_environment_whose_rewards_nobody_changes() -> None:
    for env in (DriftingEnv(), Passes(RecordEpisodeStatistics(DriftingEnv())), ClipReward(DriftingEnv())):
        layer = with_own_returns(env)
        assert layer is env
        while isinstance(layer, gym.Wrapper):
            assert not isinstance(layer, OwnReturns)
            layer = layer.env
    twice = with_own_returns(with_own_returns(Adds(DriftingEnv())))
    assert not isinstance(twice.env.env, OwnReturns)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("inside", [False, True])
def test_a_vector_reports_its_own_returns(mode: AutoresetMode, inside: bool) -> None:
    lengths = (3, 5)
    one = (lambda: Adds(DriftingEnv(lengths=lengths))) if inside else (lambda: DriftingEnv(lengths=lengths))
    vector: Any = SyncVectorEnv([one] * 2, autoreset_mode=mode)
    vector = with_own_returns(vector if inside else of_vectors.NormalizeReward(vector))
    vector.reset(seed=[4, 5])
    found: list[list[float]] = [[], []]
    for _ in range(18):
        _, _, terminated, truncated, info = vector.step(np.array([1, 2]))
        of_ends = info.get("final_info", {}) if mode is AutoresetMode.SAME_STEP else info
        for i in np.flatnonzero(terminated | truncated):
            found[i].append(float(of_ends["episode_return"][i]))
    for env, returns in zip(vector.unwrapped.envs, found, strict=True):
        assert len(returns) > 2
        assert returns == [sum(life.rewards) for life in env.unwrapped.lives][: len(returns)]


def test_a_live_report_has_the_environments_own_returns() -> None:
    terms: dict[str, Any] = {"fps": 50, "workers": 1, "backend": "virtual", "latency": 0.01, "seed": 3}
    runner = AsyncRunner(lambda: Adds(Paying()), lambda: lambda observation: 0, default_action=0, **terms)
    assert [episode.score for episode in runner.run(episodes=2).episodes] == [100.0, 100.0]


class Paying(gym.Env[Any, Any]):
    """Ten frames, each of which pays 10."""

    observation_space, action_space = gym.spaces.Discrete(11), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.frame = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        return self.frame, 10.0, self.frame == 10, False, {}
