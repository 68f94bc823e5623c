"""QR-DQN's hyperparameters, and the parts that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gin
import gymnasium as gym
from torch import nn

from agents.dqn.parts import DQN, check_count, check_numbers
from agents.epsilon_greedy import EpsilonGreedyPolicy
from agents.learner import Learner, Replay
from agents.quantile.learner import QuantileLearner
from agents.quantile.policy import QuantilePolicy

__all__ = ["Quantile"]


@gin.configurable("QuantileAgent", module="agents")
class Quantile(DQN):
    """The hyperparameters of QR-DQN (Dabney et al. 2018), ``QuantileAgent`` in gin.

    The network is called with (observation shape, number of actions, number of quantiles) and gives [B, A, N].

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        num_atoms: N, the number of quantiles (Dopamine's name).
        kappa: Threshold of Huber's loss; 0 is quantile regression itself.
        replay_scheme: ``"prioritized"`` or ``"uniform"``.
        shared: The others of `DQN`; `loss_type` has no effect.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name = "quantile"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        num_atoms: int = 200,
        kappa: float = 1.0,
        replay_scheme: str = "prioritized",
        **shared: Any,
    ) -> None:
        """See the class."""
        super().__init__(observation_space, action_space, replay_scheme=replay_scheme, **shared)
        check_count("num_atoms", num_atoms, 1)
        check_numbers(kappa=kappa)
        if not 0 <= kappa < float("inf"):
            raise ValueError(f"kappa must be >= 0 and finite, got {kappa}")
        self.num_atoms = num_atoms
        self._kappa = kappa

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what the network gives for one observation, [A, N]."""
        return (self.num_actions, self.num_atoms)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network of quantiles."""
        return network(self.observation_shape, self.num_actions, self.num_atoms)

    def learner_of(self, network: nn.Module, replay: Replay, **arguments: Any) -> Learner:
        """Make a learner that updates `network` in place."""
        return QuantileLearner(network, replay, kappa=self._kappa, **arguments)

    def policy_of(self, network: nn.Module, **actor: int) -> EpsilonGreedyPolicy:
        """Make a policy that reads `network` in place; `actor` are the arguments of `acting`."""
        return QuantilePolicy(network, **self.acting(**actor))
