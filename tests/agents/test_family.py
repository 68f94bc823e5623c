"""What every agent of the Rainbow family keeps, asked in turn, under delay, and as policy and learner apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

import agents.configurables  # noqa: F401 - the gin names
from agents.agent import Agent
from agents.create import AGENTS
from agents.dqn import DQN
from agents.exploration import identity_epsilon
from agents.networks import MLPTorso, create_network
from agents.turn_based import TurnBasedAgent
from tests.agents.agent_contract import WORLDS, AgentContract, World

FAMILY: dict[str, dict[str, Any]] = {
    "c51": {"num_atoms": 7, "vmax": 3.0},
    "rainbow": {"num_atoms": 7, "vmax": 3.0, "vmin": -2.0},
    "full_rainbow": {"num_atoms": 7, "vmax": 3.0, "noisy_sigma": 0.5},
    "full_rainbow, as in the paper on staggering": {
        "num_atoms": 7,
        "one_step_loss": True,
        "priority_exponent": 0.2,
        "importance_exponent": 0.6,
        "priority_epsilon": 1e-6,
        "epsilon_fn": identity_epsilon,
    },
    "full_rainbow, not distributional": {"distributional": False},
    "quantile": {"num_atoms": 5, "double_dqn": True},
    "implicit_quantile": {"num_tau_samples": 4, "num_tau_prime_samples": 3, "quantile_embedding_dim": 6},
    "dqn, double, dueling, prioritized": {"double_dqn": True, "head": "dueling", "replay_scheme": "prioritized"},
}


def tiny(shape: Any, actions: int, *outputs: int, **arguments: Any) -> torch.nn.Module:
    return create_network(shape, actions, *outputs, torso=lambda s: MLPTorso(s, (6,)), **arguments)


def hyperparameters(member: str, **arguments: Any) -> dict[str, Any]:
    own = dict(FAMILY[member])
    head = own.pop("head", None)
    return {
        "stack_size": 1,
        "network": tiny if head is None else lambda *sizes: tiny(*sizes, head=head),
        "min_replay_history": 5,
        "update_period": 2,
        "target_update_period": 4,
        "epsilon_train": 0.2,
        "epsilon_eval": 0.3,
        "replay_capacity": 2000,
        "batch_size": 8,
        "optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        "device": "cpu",
        "summary_writing_frequency": 3,
        **own,
        **arguments,
    }


def make_agent(member: str, environment: gym.Env[Any, Any], **arguments: Any) -> TurnBasedAgent:
    agent = AGENTS[member.split(",")[0]](environment, **hyperparameters(member, **arguments))
    assert isinstance(agent, TurnBasedAgent)
    return agent


def make_parts(member: str, env: gym.Env[Any, Any], **arguments: Any) -> DQN:
    kind = AGENTS[member.split(",")[0]]
    assert isinstance(kind, type) and issubclass(kind, TurnBasedAgent)
    return kind.Parts(env.observation_space, env.action_space, **hyperparameters(member, **arguments))


class FamilyContract(AgentContract):
    """The agent contract, in fewer worlds than those of DQN, whose turns are the same code."""

    member: str

    @pytest.fixture(params=["turn-based", "delay 2, noops 3"])
    def world(self, request: pytest.FixtureRequest) -> World:
        return WORLDS[request.param]

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return make_agent(self.member, environment, stack_size=2, seed=seed)

    def state(self, agent: Agent, directory: Path, iteration: int = 0) -> dict[str, Any]:
        assert isinstance(agent, TurnBasedAgent)
        return {**super().state(agent, directory, iteration), "replay": agent._learner.replay.state_dict()}


class TestC51(FamilyContract):
    member = "c51"


class TestRainbow(FamilyContract):
    member = "rainbow"


class TestFullRainbow(FamilyContract):
    member = "full_rainbow"


class TestFullRainbowOfThePaper(FamilyContract):
    member = "full_rainbow, as in the paper on staggering"


class TestFullRainbowWithoutDistributions(FamilyContract):
    member = "full_rainbow, not distributional"


class TestQuantile(FamilyContract):
    member = "quantile"


class TestImplicitQuantile(FamilyContract):
    member = "implicit_quantile"


class TestDoubleDuelingPrioritizedDQN(FamilyContract):
    member = "dqn, double, dueling, prioritized"
