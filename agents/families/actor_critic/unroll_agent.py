"""The base class of agents of a policy and a value that learn from unrolls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict
from torch import nn

from async_wrappers.agents.acting.recurrent import RecurrentPolicy, Remembering
from async_wrappers.agents.families.network_agent import NetworkAgent
from async_wrappers.agents.hyperparameters import again, flag, shared
from async_wrappers.agents.losses.loss import Batch, Learning
from async_wrappers.agents.networks.sequence_network import sequence_tensors
from async_wrappers.agents.replay.replay_settings import UnrollSettings
from async_wrappers.agents.spaces.schema import STATE, TORSO_VERSION, VERSION, each_part


class ActorCritic(Remembering, UnrollSettings, NetworkAgent):
    """An agent whose network gives a policy and a value; a subclass chooses actions and gives the loss."""

    store_version: bool = flag(
        False,
        "Store with each decision how many updates had been made, and report how many were made until it is learnt.",
    )
    drawn_evaluation: bool = flag(
        False, "Draw actions from the policy in evaluation too; otherwise they are the likeliest."
    )
    summary_writing_frequency: int = again(NetworkAgent, "summary_writing_frequency", 100)

    # The loss needs the density of what the policy drew; a limiter between policy and world is part of the world.
    learns_from: str = "drawn"

    exploration_seed: int
    choose: Callable[..., Any]

    def settle(self) -> None:
        super().settle()
        self.check_unrolls()
        self.weights_seed, self.exploration_seed, self.learning_seed, self.replay_seed = self.seeds(4)

    def extras_beside(self, spaces: dict[str, Any]) -> Dict:
        """Return the extras of the policy: those of given spaces, and others by the settings.

        These are the core's state [S] if there is one, and with `store_version` the weights' number of updates; with
        memory that of the torso's weights, too.
        """
        if self.store_version:
            count = Box(0, np.iinfo(np.int64).max, (), np.int64)
            spaces |= {VERSION: count, TORSO_VERSION: count} if self.remembers else {VERSION: count}
        if self.state_size:
            spaces[STATE] = Box(-np.inf, np.inf, (self.state_size,), np.float32)
        return Dict(spaces)

    # Policies.

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:  # with `act`, or where it remembers in halves
        """Make the policy of a worker, with weights of its own; in two halves where the network remembers.

        Raises:
            ValueError: `stack_size` is more than 1 without `of_stacks`, or a network that remembers is not in two
                halves.
        """
        self.check_one_at_a_time()
        return self.in_worker(self._make_policy(self.make_network().requires_grad_(False), lambda: 0))

    def make_policy_of(self, learner: Any) -> RecurrentPolicy:
        """Make the policy of a turn-based agent, which reads the learner's network in place."""
        return self._make_policy(learner.network, lambda: learner.version)

    def make_vector_policy(self, learner: Any, num_envs: int) -> RecurrentPolicy:
        """Make the policy of many environments, which reads the learner's network in place."""
        return self._make_policy(learner.network, lambda: learner.version)

    def _make_policy(self, network: nn.Module, version: Callable[[], int]) -> RecurrentPolicy:
        return RecurrentPolicy(
            network,
            self.choose,
            self.actions,
            self.exploration_seed,
            self.compute,
            self.reader,
            version if self.store_version else None,
        )

    # Learning.

    @property
    def learning(self) -> Learning:
        """The settings of the agent's learners, which have no target network."""
        return shared(Learning, self, target_update_period=None)

    def batch_tensors(self, arrays: Mapping[str, Any]) -> Batch:
        """Return a batch of sequences as tensors."""
        read = each_part(self.reader) if self.needs_effect else self.reader
        return sequence_tensors(arrays, read, self.compute.tensor, self.stored_in_stacks)
