"""Agents by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import gin
import gymnasium as gym

from agents.agent import Agent
from agents.baselines import NoopAgent, RandomAgent
from agents.dqn import DQNAgent

__all__ = ["AGENTS", "create_agent"]

AGENTS: Mapping[str, Callable[..., Agent]] = {"dqn": DQNAgent, "noop": NoopAgent, "random": RandomAgent}


@gin.configurable(module="agents")
def create_agent(environment: gym.Env[Any, Any], agent_name: str = "dqn", *, seed: int = 0) -> Agent:
    """Make an agent for an environment.

    Args:
        environment: Its spaces are read.
        agent_name: ``"dqn"``, ``"random"`` or ``"noop"``.
        seed: Of the agent.

    Raises:
        ValueError: An unknown name, or an environment that the agent cannot play.
    """
    if agent_name not in AGENTS:
        close = get_close_matches(agent_name.removeprefix("jax_"), AGENTS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"create_agent.agent_name must be one of {', '.join(map(repr, AGENTS))}, got {agent_name!r}{hint}"
        )
    return AGENTS[agent_name](environment, seed=seed)
