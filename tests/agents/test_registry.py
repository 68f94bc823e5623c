"""Agents by name."""

from __future__ import annotations

import re
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest

import async_wrappers.agents.configurables  # noqa: F401 - the gin names
from async_wrappers.agents.families.actor_critic.impact import Impact
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.c51 import C51
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.quantile import ImplicitQuantile, Quantile
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.families.value_based.rainbow import FullRainbow, Rainbow
from async_wrappers.agents.play.turns.baselines import NoopAgent, RandomAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import AGENTS, BASELINES, create_agent
from async_wrappers.agents.spaces.actions import agents_of
from tests.contracts.agent_contract import play
from tests.worlds.drifting_env import DriftingEnv


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dqn", DQN),
        ("c51", C51),
        ("rainbow", Rainbow),
        ("full_rainbow", FullRainbow),
        ("quantile", Quantile),
        ("implicit_quantile", ImplicitQuantile),
        ("r2d2", R2D2),
        ("vtrace", VTrace),
        ("impact", Impact),
    ],
)
def test_a_name_makes_its_agent(name: str, kind: type) -> None:
    agent = create_agent(DriftingEnv(), name)
    assert isinstance(agent, TurnBasedAgent) and type(agent.spec) is kind
    assert AGENTS[name] is kind


@pytest.mark.parametrize(("name", "kind"), [("random", RandomAgent), ("noop", NoopAgent)])
def test_a_name_makes_its_baseline(name: str, kind: type) -> None:
    assert type(create_agent(DriftingEnv(noop=True), name)) is kind


# Agents of this project that take real-valued actions.
REAL = {"sac", "ppo"}


@pytest.mark.parametrize("name", sorted(AGENTS.keys() - REAL))
def test_an_agent_of_discrete_actions_names_those_of_real_valued_ones(name: str) -> None:
    sentence = rf"^agent '{name}' needs Discrete actions, got Box.*: take agent 'sac' or 'ppo', or discretise them"
    with pytest.raises(ValueError, match=sentence):
        create_agent(gym.make("Pendulum-v1"), name)


OF_ACTIONS = [
    gym.spaces.Discrete(3),
    gym.spaces.MultiDiscrete([3, 3]),
    gym.spaces.MultiDiscrete([2, 3]),
    gym.spaces.MultiDiscrete([[2, 2]]),
    gym.spaces.MultiBinary(3),
    gym.spaces.Box(-1, 1, ()),
    gym.spaces.Box(-1, 1, (2,)),
    gym.spaces.Box(-np.inf, 1, (2,)),
    gym.spaces.Box(-1, 1, (2, 3)),
    gym.spaces.Box(-1, 1, (0,)),
    gym.spaces.Box(-1, 1, (3, 0)),
    gym.spaces.Tuple([gym.spaces.Discrete(2)]),
    gym.spaces.Dict({}),
]


@pytest.mark.parametrize("space", OF_ACTIONS, ids=str)
def test_a_refusal_names_agents_that_take_the_space(space: gym.Space[Any]) -> None:
    taken, named = set[str](), set[str]()
    for name in ("dqn", "sac", "ppo", "vtrace"):
        try:
            AGENTS[name](gym.spaces.Box(-1, 1, (3,)), space)
            taken.add(name)
        except ValueError as error:
            told = re.search(r"take agent (.*?)(?:,|$|\n)", str(error))
            named |= set(re.findall(r"'(\w+)'", told[1])) if told else set()
    assert named <= taken
    assert set(re.findall(r"\w+", agents_of(space))) - {"or"} <= taken and bool(agents_of(space)) == bool(taken)


@pytest.mark.parametrize("name", ["ppo", "vtrace", "dqn", "r2d2"])
def test_a_network_that_no_memory_holds_is_refused_in_one_sentence(name: str) -> None:
    env = DriftingEnv()
    env.action_space = gym.spaces.Discrete(2**62)
    sentence = (
        rf"^network must be what memory holds with agent '{name}', got one for actions of Discrete\(4611.* smaller"
    )
    with pytest.raises(ValueError, match=sentence):
        create_agent(env, name)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_an_action_without_numbers_is_refused(shape: tuple[int, ...]) -> None:
    env = DriftingEnv()
    env.action_space = gym.spaces.Box(-1, 1, shape)
    with pytest.raises(ValueError, match=r"^agent 'ppo' needs an action of one number at least, got Box\(\[\], \[\], "):
        create_agent(env, "ppo")


def test_the_default_is_dqn() -> None:
    agent = create_agent(DriftingEnv())
    assert isinstance(agent, TurnBasedAgent) and type(agent.spec) is DQN


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
        ("jax_dqn", "; did you mean 'dqn'? (docs/reference/dopamine_names.md)"),
        ("jax_rainbow", "; did you mean 'rainbow'? (docs/reference/dopamine_names.md)"),
        ("randm", "; did you mean 'random'?"),
        ("trpo", ""),
    ],
)
def test_an_unknown_name_lists_the_known_ones_and_the_closest(name: str, hint: str) -> None:
    with pytest.raises(ValueError) as caught:
        create_agent(DriftingEnv(), name)
    known = ", ".join(map(repr, (*AGENTS, *BASELINES)))
    assert str(caught.value).splitlines()[0] == (
        f"create_agent.agent_name must be one of {known}, or a subclass of async_wrappers.agents.spec.Spec "
        f"such as @MyAgent (without brackets), got {name!r}{hint}"
    )
