"""The selectors keep their contract."""

from __future__ import annotations

from typing import Any

import cloudpickle
import gin
import numpy as np
import pytest
from gymnasium.spaces import Box

from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.agents.replay.selectors import SELECTORS, Prioritized, Selector, Uniform
from tests.contracts.selector_contract import SelectorContract
from tests.worlds.agents import make_spec
from tests.worlds.drifting_env import DriftingEnv


class TestUniform(SelectorContract):
    def make_selector(self) -> Selector:
        return Uniform()


class TestStratified(SelectorContract):
    def make_selector(self) -> Selector:
        return Prioritized(priority_exponent=0.7)


class TestIid(SelectorContract):
    def make_selector(self) -> Selector:
        return Prioritized(priority_exponent=0.7, sampling="iid")


def test_a_selector_of_ones_own_is_named_by_what_makes_it() -> None:
    class Oldest(Selector):
        def draw(self, rng, batch_size, importance_exponent=None):  # type: ignore[no-untyped-def]
            live = self._storage.live_positions()
            return np.repeat(live[self._storage.marks(live) != 0][:1], batch_size), {}

    replay = create_replay(Box(0, 1, (2,)), selector=Oldest, capacity=50)
    for reward in range(5):
        transition = {"observation": np.zeros(2, np.float32), "action": 0, "reward": float(reward), "interval": 1}
        replay.observe({**transition, "terminal": False, "truncated": False, "next_observation": None})
    assert replay.sample(3)["reward"].tolist() == [0.0] * 3


@pytest.mark.parametrize("selector", ["priority", dict, None, 3])
def test_what_makes_no_selector_is_refused(selector: object) -> None:
    with pytest.raises(ValueError) as caught:
        create_replay(Box(0, 1, (2,)), selector=selector)  # type: ignore[arg-type]
    names = ", ".join(map(repr, SELECTORS))
    expected = f"selector must be {names}, or make a Selector, such as its class, got {selector!r}"
    assert str(caught.value) == expected


def test_gins_values_of_an_agents_selector_reach_a_process_without_gin() -> None:
    with gin.config.interactive_mode():
        gin.configurable("ChosenOfATest", module="tests")(Chosen)
    gin.clear_config()
    gin.parse_config("DQNAgent.replay_scheme = @ChosenOfATest\nChosenOfATest.number = 3")
    try:
        pickled = cloudpickle.dumps(make_spec("c51", DriftingEnv()))
    finally:
        gin.clear_config()
    assert make_learner(cloudpickle.loads(pickled)).replay.facts()["number"] == 3


class Chosen(Uniform):
    """Uniform draws, with an argument that a saved replay states."""

    def __init__(self, number: int = 1) -> None:
        self.number = number

    def facts(self) -> dict[str, Any]:
        return {"number": self.number}
