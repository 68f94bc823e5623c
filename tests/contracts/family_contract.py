"""The agent contract for agents of values: subclass `FamilyContract` and name the `member`.

class TestMine(FamilyContract):
    member = Mine  # the class, or a name of `tests.worlds.agents.FAMILY`
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.turns.agents import Agent
from tests.contracts.agent_contract import AgentContract
from tests.worlds.agents import make_agent


class FamilyContract(AgentContract):
    """The agent contract."""

    member: str | type[DQN]

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return make_agent(self.member, environment, stack_size=2, seed=seed)
