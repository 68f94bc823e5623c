"""What students of a teacher keep: subclass `StudentContract` in a test file and name the `member`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.turns.agents import Agent
from tests.contracts.family_contract import FamilyContract
from tests.worlds.teachers import TaughtEnv, make_student


class StudentContract(FamilyContract):
    """The agent contract for students of a teacher."""

    member: type[DQN]

    def make_environment(self, **arguments: Any) -> Any:
        return TaughtEnv(**arguments)

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return make_student(self.member, environment, stack_size=2, seed=seed)
