"""Agents by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import gin
import gymnasium as gym

from agents.agent import Agent
from agents.baselines import NoopAgent, RandomAgent
from agents.c51 import C51Agent
from agents.dqn import DQN, DQNAgent
from agents.full_rainbow import FullRainbowAgent
from agents.implicit_quantile import ImplicitQuantileAgent
from agents.quantile import QuantileAgent
from agents.rainbow import RainbowAgent
from agents.turn_based import TurnBasedAgent

__all__ = ["AGENTS", "create_agent", "create_parts"]

AGENTS: Mapping[str, Callable[..., Agent]] = {
    "dqn": DQNAgent,
    "c51": C51Agent,
    "rainbow": RainbowAgent,
    "full_rainbow": FullRainbowAgent,
    "quantile": QuantileAgent,
    "implicit_quantile": ImplicitQuantileAgent,
    "noop": NoopAgent,
    "random": RandomAgent,
}


@gin.configurable(module="agents")
def create_agent(environment: gym.Env[Any, Any], agent_name: str = "dqn", *, seed: int = 0) -> Agent:
    """Make an agent for an environment.

    Args:
        environment: Its spaces are read.
        agent_name: One of `AGENTS`, such as ``"dqn"`` or ``"rainbow"``.
        seed: Of the agent.

    Raises:
        ValueError: An unknown name, or an environment that the agent cannot play.
    """
    return _agent_class(agent_name)(environment, seed=seed)


def create_parts(observation_space: gym.Space[Any], action_space: gym.Space[Any], *, seed: int = 0) -> DQN:
    """Return the parts of the agent that gin binds to ``create_agent.agent_name``: what makes policies and learners.

    They pickle (cloudpickle) with all of gin's values written down, for processes whose gin is empty.

    Args:
        observation_space: The environment's.
        action_space: The environment's.
        seed: Of the agent.

    Raises:
        ValueError: An unknown name, an agent that does not learn, a space that the agent cannot use, or no
            `epsilon_warmup` where epsilon needs one: against a clock, the frames between two decisions vary.
    """
    agent_name = gin.get_bindings(create_agent).get("agent_name", "dqn")
    agent_class = _agent_class(agent_name)
    if not (isinstance(agent_class, type) and issubclass(agent_class, TurnBasedAgent)):
        raise ValueError(f"create_agent.agent_name must be of an agent with policy and learner, got {agent_name!r}")
    return agent_class.Parts(observation_space, action_space, decision_interval=None, seed=seed)


def _agent_class(agent_name: str) -> Callable[..., Agent]:
    if not isinstance(agent_name, str) or agent_name not in AGENTS:
        name = agent_name if isinstance(agent_name, str) else getattr(agent_name, "name", "")
        close = get_close_matches(name.removeprefix("jax_"), AGENTS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        hint += " (docs/dopamine_names.md)" if name.startswith("jax_") else ""
        raise ValueError(
            f"create_agent.agent_name must be one of {', '.join(map(repr, AGENTS))}, got {agent_name!r}{hint}"
        )
    return AGENTS[agent_name]
