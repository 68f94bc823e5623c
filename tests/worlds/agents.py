"""Small agents of every kind, what they are shown, and a DQN that tests of experiments play."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from async_wrappers.agents.acting.decisions import OneRow
from async_wrappers.agents.acting.exploration import identity_epsilon
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import AGENTS

FAMILY: dict[str, dict[str, Any]] = {
    "c51": {"num_atoms": 7, "vmax": 3.0},
    "rainbow": {"num_atoms": 7, "vmax": 3.0, "vmin": -2.0},
    "full_rainbow": {"num_atoms": 7, "vmax": 3.0, "noisy_sigma": 0.5},
    "full_rainbow, as in the paper on staggering": {
        "num_atoms": 7,
        "vmax": 3.0,
        "one_step_loss": True,
        "priority_exponent": 0.2,
        "importance_exponent": 0.6,
        "priority_epsilon": 1e-6,
        "epsilon_fn": identity_epsilon,
    },
    "full_rainbow, not distributional": {"distributional": False},
    "quantile": {"num_atoms": 5, "double_dqn": True},
    "implicit_quantile": {"num_tau_samples": 4, "num_tau_prime_samples": 3, "quantile_embedding_dim": 6},
    "c51, in a reservoir": {"num_atoms": 7, "vmax": 3.0, "replay_eviction": "reservoir", "replay_capacity": 30},
    "dqn, double, dueling, prioritized": {"double_dqn": True, "head": "dueling", "replay_scheme": "prioritized"},
}


def tiny(shape: Any, actions: int, *outputs: int, **arguments: Any) -> torch.nn.Module:
    return create_network(shape, actions, *outputs, torso=lambda s: MLPTorso(s, (6,)), **arguments)


def hyperparameters(member: str | type[DQN], **arguments: Any) -> dict[str, Any]:
    own = dict(FAMILY[member]) if isinstance(member, str) else {}
    head = own.pop("head", None)
    return {
        "stack_size": 1,
        "network": tiny if head is None else lambda *sizes: tiny(*sizes, head=head),
        "min_replay_history": 5,
        "update_period": 10,
        "target_update_period": 20,
        "epsilon_train": 0.2,
        "epsilon_eval": 0.3,
        "replay_capacity": 2000,
        "batch_size": 8,
        "optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.03),
        "device": "cpu",
        "summary_writing_frequency": 1,
        **own,
        **arguments,
    }


def make_agent(member: str | type[DQN], environment: gym.Env[Any, Any], **arguments: Any) -> TurnBasedAgent:
    kind = AGENTS[member.split(",")[0]] if isinstance(member, str) else member
    return TurnBasedAgent.playing(kind, environment, **hyperparameters(member, **arguments))


def selector_values(replay: Any) -> dict[int, float]:
    """Return what a replay of one log draws each entry by, by its slot."""
    state = replay.state_dict()
    return {slot: state["snapshot"]["value"][slot - state["first"]] for slot in replay.valid_slots().tolist()}


def make_spec(member: str, env: gym.Env[Any, Any], **arguments: Any) -> DQN:
    kind = AGENTS[member.split(",")[0]]
    assert issubclass(kind, DQN)
    return kind(env.observation_space, env.action_space, **hyperparameters(member, **arguments))


class ApartAgent:
    """An agent whose policy and learner share no network: after each update the weights go through other memory."""

    def __init__(self, agent: TurnBasedAgent) -> None:
        policy, learner = agent.spec.make_policy(), agent.learner
        memory = {name: tensor.clone() for name, tensor in policy.weights().items()}
        policy.load_weights(memory, 0)
        update = learner.update

        def update_and_publish() -> Any:
            scalars = update()
            for name, tensor in learner.weights().items():
                memory[name].copy_(tensor)
            return scalars

        learner.update = update_and_publish  # type: ignore[method-assign]
        agent.policy = OneRow(policy)


def observations(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32))


def transitions(count: int, reward: float = 0.5) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "observation": observation,
            "action": int(rng.integers(3)),
            "reward": reward,
            "interval": 1,
            "terminal": step % 10 == 9,
            "truncated": False,
            "next_observation": observation if step % 10 == 9 else None,
        }
        for step, observation in enumerate(observations(count))
    ]


def filled_learner(made: DQN, count: int = 40, reward: float = 0.5) -> Any:
    learner = make_learner(made)
    for transition in transitions(count, reward):
        learner.observe(transition)
    return learner


def tiny_network(shape: Sequence[int], actions: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), actions))


def make_dqn(environment: gym.Env[Any, Any], **arguments: Any) -> TurnBasedAgent:
    """A DQN agent that is small and explores, and that does not learn unless `min_replay_history` is given."""
    small: dict[str, Any] = {
        "stack_size": 1,
        "network": tiny_network,
        "min_replay_history": 10**6,
        "update_period": 1,
        "target_update_period": 4,
        "epsilon_fn": identity_epsilon,
        "epsilon_train": 0.5,
        "replay_capacity": 2000,
        "batch_size": 8,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        "device": "cpu",
    }
    return TurnBasedAgent.playing(DQN, environment, **{**small, **arguments})
