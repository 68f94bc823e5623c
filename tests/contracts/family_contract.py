"""The agent contract for agents of values: subclass `FamilyContract` and name the `member`.

class TestMine(FamilyContract):
    member = Mine  # the class, or a name of `tests.worlds.agents.FAMILY`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.agent import Agent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from tests.contracts.agent_contract import WORLDS, AgentContract, World
from tests.worlds.agents import make_agent


class FamilyContract(AgentContract):
    """The agent contract, in fewer worlds than those of DQN, whose turns are the same code."""

    member: str | type[DQN]

    @pytest.fixture(params=["turn-based", "delay 2, noops 3"])
    def world(self, request: pytest.FixtureRequest) -> World:
        return WORLDS[request.param]

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return make_agent(self.member, environment, stack_size=2, seed=seed)

    def state(self, agent: Agent, directory: Path, iteration: int = 0) -> dict[str, Any]:
        assert isinstance(agent, TurnBasedAgent)
        return {**super().state(agent, directory, iteration), "replay": agent.learner.replay.state_dict()}
