"""The rules of an environment, so that delays, checkpoints and live play are exact.

Subclass `EnvironmentContract` and give it `make_environment`.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from async_wrappers.checks import reward_of
from async_wrappers.gymnasium_api import stepped
from async_wrappers.wrappers.default_action import find_noop
from async_wrappers.wrappers.delay import RealtimeDelay

Environment = gym.Env[Any, Any]


class EnvironmentContract:
    """Tests of one environment.

    Attributes:
        frames: How many frames of each episode are played.
        copies: Whether `copy.deepcopy` in the midst of an episode gives an environment that goes on alike; some
            emulators cannot be copied.
    """

    frames: int = 60
    copies: bool = True

    def make_environment(self) -> Environment:
        """Make the environment, without `gymnasium.make`'s wrappers or with them."""
        raise NotImplementedError

    @pytest.fixture
    def env(self) -> Iterator[Environment]:
        """Make an environment, and close it after the test."""
        env = self.make_environment()
        yield env
        env.close()

    def actions(self, env: Environment, seed: int = 0) -> list[Any]:
        """Return an action for each frame, drawn from the action space."""
        env.action_space.seed(seed)
        return [env.action_space.sample() for _ in range(self.frames)]

    def play(self, env: Environment, actions: list[Any], seed: int | None = 0) -> list[tuple[Any, ...]]:
        """Return copies of the results of `reset` and each `step`, without the times in `info`."""
        seen: list[tuple[Any, ...]] = [(copy.deepcopy(env.reset(seed=seed)[0]),)]
        for action in actions:
            observation, reward, terminated, truncated, _ = stepped(env, action)
            seen.append((copy.deepcopy(observation), reward_of(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                break
        return seen

    def test_gymnasium_finds_nothing_wrong(self, env: Environment) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*is different from the unwrapped version")  # a wrapper is checked, too
            check_env(env, skip_render_check=True)

    def test_what_it_gives_lies_in_its_spaces_and_is_finite(self, env: Environment) -> None:
        for observation, *rest in self.play(env, self.actions(env)):
            assert env.observation_space.contains(observation), f"{observation!r} is not in {env.observation_space}"
            assert np.isfinite(rest[:1]).all()

    def test_an_episode_follows_from_its_seed_and_its_actions(self, env: Environment) -> None:
        actions, other = self.actions(env), self.make_environment()
        try:
            _same(self.play(env, actions, 3), self.play(other, actions, 3))
        finally:
            other.close()

    def test_a_seeded_reset_forgets_what_was_played_before(self, env: Environment) -> None:
        actions = self.actions(env)
        first = self.play(env, actions, 3)
        self.play(env, self.actions(env, seed=1)[: self.frames // 3], 4)
        _same(self.play(env, actions, 3), first)

    def test_without_delay_the_wrapper_changes_nothing(self, env: Environment) -> None:
        actions, delayed = self.actions(env), RealtimeDelay(self.make_environment(), delay=0, noops=0)
        try:
            _same(self.play(delayed, actions, 3), self.play(env, actions, 3))
        finally:
            delayed.close()

    def test_under_delay_each_frame_receives_one_action_of_the_space(self) -> None:
        received: list[Any] = []
        env = RealtimeDelay(_Recorded(self.make_environment(), received), delay=3, noops=1, default_action="random")
        try:
            played = self.play(env, self.actions(env)[: self.frames // 2], 3)
            assert len(received) >= len(played) - 1 > 0
            assert all(env.action_space.contains(action) for action in received)
        finally:
            env.close()

    def test_a_copy_goes_on_alike_and_leaves_the_first_one_alone(self, env: Environment) -> None:
        if not self.copies:
            pytest.skip("copies = False")
        actions = self.actions(env)
        amid = (len(self.play(env, actions, 3)) - 1) // 3
        if amid == 0:
            pytest.skip("an episode of random play has fewer than three frames")
        self.play(env, actions[:amid], 3)
        rest = actions[amid:]
        twin = copy.deepcopy(env)
        _same(_go_on(twin, rest), _go_on(env, rest))

    def test_its_no_op_is_an_action(self, env: Environment) -> None:
        noop = find_noop(env)
        assert noop is None or env.action_space.contains(noop)

    def test_what_it_keeps_between_episodes_is_plain_data_and_can_be_set(self, env: Environment) -> None:
        if not hasattr(env.unwrapped, "phase_state"):
            pytest.skip("it has no phase_state")
        holder: Any = env.unwrapped
        self.play(env, self.actions(env))
        kept = holder.phase_state
        assert json.loads(json.dumps(kept)) == kept
        env.reset(seed=1)
        holder.phase_state = kept
        assert holder.phase_state == kept

    def test_it_can_be_closed_twice(self) -> None:
        env = self.make_environment()
        env.reset(seed=0)
        env.close()
        env.close()


class _Recorded(gym.Wrapper[Any, Any, Any, Any]):
    """Writes down each action that the environment receives."""

    def __init__(self, env: Environment, received: list[Any]) -> None:
        super().__init__(env)
        self._received = received

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._received.append(action)
        return super().step(action)


def _go_on(env: Environment, actions: list[Any]) -> list[tuple[Any, ...]]:
    seen = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append((copy.deepcopy(observation), reward_of(reward), bool(terminated), bool(truncated)))
        if terminated or truncated:
            break
    return seen


def _same(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> None:
    assert [step[1:] for step in one] == [step[1:] for step in other]
    for frame, (left, right) in enumerate(zip(one, other, strict=True)):
        _same_arrays(left[0], right[0], f"the observation of frame {frame}")


def _same_arrays(left: Any, right: Any, where: str) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            _same_arrays(left[key], right[key], f"{where}[{key!r}]")
    elif isinstance(left, tuple):
        assert len(left) == len(right), where
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            _same_arrays(one, other, f"{where}[{number}]")
    else:
        np.testing.assert_array_equal(left, right, err_msg=where)
