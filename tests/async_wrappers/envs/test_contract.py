"""The environments that ship, the test's own ones, and one of Gymnasium's keep the contract of environments."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers.envs.falling_blocks import FallingBlocksEnv
from async_wrappers.testing.environments import EnvironmentContract


class TestFallingBlocks(EnvironmentContract):
    frames = 400

    def make_environment(self) -> gym.Env[Any, Any]:
        return FallingBlocksEnv(observation="dict")


class TestCartPole(EnvironmentContract):
    def make_environment(self) -> gym.Env[Any, Any]:
        return gym.make("CartPole-v1")


class Mute(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that takes the environment's info away."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        return *self.env.step(action)[:4], None


class Restless(gym.Env[Any, Any]):
    """An environment with one fault."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str) -> None:
        self.fault, self.steps, self.noop_action = fault, 0, 5 if fault == "noop" else 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = self.steps if self.fault == "remembers" else 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        ends = self.fault == "shared by copies" and self.steps == 9  # before the half of what is played
        return self._seen(), float("nan") if self.fault == "nan" else 1.0, ends, False, {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Restless:
        if self.fault == "shared by copies":
            return self
        twin = Restless(self.fault)
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def _seen(self) -> Any:
        drawn = np.random.default_rng().random() if self.fault == "unseeded" else self.np_random.random()
        return np.array([self.steps, drawn] + [0.0] * (self.fault == "shape"))


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("remembers", "test_a_seeded_reset_forgets_what_was_played_before"),
        ("unseeded", "test_an_episode_follows_from_its_seed_and_its_actions"),
        ("nan", "test_what_it_gives_lies_in_its_spaces_and_is_finite"),
        ("shape", "test_what_it_gives_lies_in_its_spaces_and_is_finite"),
        ("shared by copies", "test_a_copy_goes_on_alike_and_leaves_the_first_one_alone"),
    ],
)
def test_the_contract_finds_a_fault(fault: str, test: str) -> None:
    class Faulty(EnvironmentContract):
        def make_environment(self) -> gym.Env[Any, Any]:
            return Restless(fault)

    contract = Faulty()
    with pytest.raises(AssertionError):
        getattr(contract, test)(contract.make_environment())


def test_the_contract_finds_no_fault_where_there_is_none() -> None:
    class Whole(EnvironmentContract):
        def make_environment(self) -> gym.Env[Any, Any]:
            return Restless("none")

    contract = Whole()
    contract.test_an_episode_follows_from_its_seed_and_its_actions(contract.make_environment())
    contract.test_a_seeded_reset_forgets_what_was_played_before(contract.make_environment())


def test_the_contract_finds_a_no_op_outside_the_space() -> None:
    class Faulty(EnvironmentContract):
        def make_environment(self) -> gym.Env[Any, Any]:
            return Restless("noop")

    with pytest.raises(ValueError, match="noop_action"):
        Faulty().test_its_no_op_is_an_action(Restless("noop"))


def test_the_contract_checks_a_wrapper_and_not_what_is_in_it_alone() -> None:
    with pytest.raises(AssertionError, match="info"):
        EnvironmentContract().test_gymnasium_finds_nothing_wrong(Mute(gym.make("CartPole-v1").unwrapped))
