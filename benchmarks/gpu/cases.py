"""Agents of every kind with the networks that their papers have, and numbers for them to learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.learning.making import make_vector_learner
from async_wrappers.agents.networks.sequence_network import create_actor_critic
from async_wrappers.agents.networks.torsos import NatureTorso
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.registry import AGENTS
from async_wrappers.batched.factory import create_batched_envs

IMAGE = Box(0, 255, (84, 84), np.uint8)
VECTOR = Box(-np.inf, np.inf, (17,), np.float32)  # the sizes of HalfCheetah
GAME, ROBOT = Discrete(6), Box(-1, 1, (6,), np.float32)
LENGTH = 13  # frames of an episode


class Drawn(gym.Env[Any, Any]):
    """Draws observations and rewards, whatever the action is; an episode ends after `LENGTH` frames."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._frame = 0
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Draw."""
        self._frame += 1
        return self._draw(), float(self.np_random.choice([-1.0, 0.0, 1.0])), self._frame == LENGTH, False, {}

    def _draw(self) -> Any:
        if self.observation_space.dtype == np.uint8:
            return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)
        return self.np_random.standard_normal(self.observation_space.shape, np.float32)


class Case(NamedTuple):
    """An agent, and what it plays.

    Attributes:
        agent: Its class.
        observation_space: Of one observation.
        action_space: Of its actions.
        settings: Its hyperparameters; the others are its own defaults.
        envs: Environments.
        rounds: Decisions of each that give at least two batches, and that a queue holds.
    """

    agent: Any
    observation_space: Any
    action_space: Any
    settings: Mapping[str, Any]
    envs: int
    rounds: int = 50

    def spec(self, device: str, **changed: Any) -> Any:
        """Return the agent on a device."""
        return self.agent(self.observation_space, self.action_space, device=device, **{**self.settings, **changed})

    def play(self, agent: VectorAgent) -> None:
        """Let an agent act and store, and never learn."""
        envs = create_batched_envs(partial(Drawn, self.observation_space, self.action_space), self.envs)
        envs.begin(list(range(self.envs)))
        for _ in range(self.rounds):
            shown = envs.recv()
            agent.observe(shown)
            envs.send(shown.env_ids, agent.decide(shown))
        envs.close()


_REPLAYED: Mapping[str, Any] = {"replay_capacity": 4_000, "min_replay_history": 20, "batch_size": 32}
_STACKS: Mapping[str, Any] = {**_REPLAYED, "stack_size": 4}
_SEQUENCES: Mapping[str, Any] = {**_REPLAYED, "stack_size": 1, "burn_in": 2, "unroll_length": 8, "state_period": 5}
_UNROLLS: Mapping[str, Any] = {"stack_size": 4, "unroll_length": 20, "batch_size": 8}
_NATURE: Callable[..., Any] = partial(create_actor_critic, torso=partial(NatureTorso, padding="valid"))
_VTRACE: Mapping[str, Any] = {**_UNROLLS, "network": partial(_NATURE, feed_previous=False), "entropy_cost": 0.01}
_PPO: Mapping[str, Any] = {"update_period": 256, "batch_size": 64, "num_epochs": 2}

CASES: Mapping[str, Case] = {
    "DQN": Case(AGENTS["dqn"], IMAGE, GAME, _STACKS, 4),
    "full Rainbow": Case(AGENTS["full_rainbow"], IMAGE, GAME, _STACKS, 4),
    "QR-DQN": Case(AGENTS["quantile"], IMAGE, GAME, _STACKS, 4),
    "IQN": Case(AGENTS["implicit_quantile"], IMAGE, GAME, _STACKS, 4),
    "R2D2": Case(AGENTS["r2d2"], VECTOR, GAME, _SEQUENCES, 4),
    "V-trace": Case(VTrace, IMAGE, GAME, _VTRACE, 8),
    "V-trace with an LSTM": Case(
        VTrace, IMAGE, GAME, {**_UNROLLS, "network": partial(_NATURE, core="lstm"), "entropy_cost": 0.01}, 8
    ),
    "PPO": Case(PPO, VECTOR, ROBOT, _PPO, 8, 80),
    "PPO on images": Case(PPO, IMAGE, GAME, {**_PPO, "stack_size": 4}, 8, 80),
    "SAC": Case(SAC, VECTOR, ROBOT, {**_REPLAYED, "batch_size": 256}, 4),
}


def pair(case: Case, one: Any, other: Any) -> tuple[Any, Any]:
    """Return a learner of each of two specs; the first one's agent has played, and both have observed the same.

    Neither has learnt. Both begin with the same weights and draw the same batches.
    """
    agent, there = VectorAgent(one, case.envs), make_vector_learner(other, case.envs)
    here: Any = agent.learner
    extend, cut = here.extend, here.cut

    def extend_both(block: Any) -> None:
        extend(block)
        there.extend(block)

    def cut_both(*last: Any) -> None:
        cut(*last)
        there.cut(*last)

    here.extend, here.cut = extend_both, cut_both
    case.play(agent)
    return here, there


def plain_descent(parameters: Any) -> torch.optim.Optimizer:
    """Return the optimiser whose step is the gradient: Adam's first ones are its signs, where rounding shows."""
    return torch.optim.SGD(parameters, lr=1e-2)
