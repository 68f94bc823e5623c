"""Agents by name."""

from __future__ import annotations

from collections.abc import Iterator

import gin
import pytest
from agents.c51 import C51Agent
from agents.dqn import DQNAgent
from agents.full_rainbow import FullRainbowAgent
from agents.implicit_quantile import ImplicitQuantileAgent
from agents.quantile import QuantileAgent
from agents.rainbow import RainbowAgent

import agents.configurables  # noqa: F401 - the gin names
from agents.baselines import NoopAgent, RandomAgent
from agents.registry import AGENTS, create_agent
from tests.contracts.agent_contract import play
from tests.worlds.drifting_env import DriftingEnv


@pytest.fixture(autouse=True)
def no_bindings() -> Iterator[None]:
    gin.clear_config()
    yield
    gin.clear_config()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dqn", DQNAgent),
        ("c51", C51Agent),
        ("rainbow", RainbowAgent),
        ("full_rainbow", FullRainbowAgent),
        ("quantile", QuantileAgent),
        ("implicit_quantile", ImplicitQuantileAgent),
        ("random", RandomAgent),
        ("noop", NoopAgent),
    ],
)
def test_a_name_makes_its_agent(name: str, kind: type) -> None:
    assert type(create_agent(DriftingEnv(noop=True), name)) is kind
    assert name in AGENTS


def test_the_default_is_dqn() -> None:
    assert isinstance(create_agent(DriftingEnv()), DQNAgent)


def test_gin_chooses_the_agent_and_its_arguments() -> None:
    gin.parse_config("create_agent.agent_name = 'dqn'\nDQNAgent.stack_size = 3\nDQNAgent.replay_capacity = 50")
    assert create_agent(DriftingEnv()).identity()["observation_shape"] == [3, 3]
    gin.parse_config("create_agent.agent_name = 'random'")
    assert isinstance(create_agent(DriftingEnv()), RandomAgent)


def test_the_seed_reaches_the_agent() -> None:
    env = DriftingEnv(lengths=[30])
    one, alike, other = (play(create_agent(env, "random", seed=seed), env, range(1)) for seed in (1, 1, 2))
    assert one == alike != other


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("jax_dqn", "; did you mean 'dqn'? (docs/dopamine_names.md)"),
        ("jax_rainbow", "; did you mean 'rainbow'? (docs/dopamine_names.md)"),
        ("randm", "; did you mean 'random'?"),
        ("ppo", ""),
    ],
)
def test_an_unknown_name_lists_the_known_ones_and_the_closest(name: str, hint: str) -> None:
    with pytest.raises(ValueError) as caught:
        create_agent(DriftingEnv(), name)
    assert str(caught.value).splitlines()[0] == (
        f"create_agent.agent_name must be one of 'dqn', 'c51', 'rainbow', 'full_rainbow', 'quantile', "
        f"'implicit_quantile', 'noop', 'random', got {name!r}{hint}"
    )
