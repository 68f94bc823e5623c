"""IQN's hyperparameters, and the parts that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gin
import gymnasium as gym
import torch
from torch import nn

from agents.dqn.parts import DQN, check_count, check_numbers
from agents.epsilon_greedy import EpsilonGreedyPolicy
from agents.implicit_quantile.learner import ImplicitQuantileLearner
from agents.implicit_quantile.policy import ImplicitQuantilePolicy
from agents.learner import Learner, Replay
from agents.networks.implicit_quantile import ImplicitQuantileNetwork

__all__ = ["ImplicitQuantile"]


@gin.configurable("ImplicitQuantileAgent", module="agents")
class ImplicitQuantile(DQN):
    """The hyperparameters of IQN (Dabney et al. 2018), ``ImplicitQuantileAgent`` in gin.

    The network is one of Q-values, with a torso and a head, that `ImplicitQuantileNetwork` takes over.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        num_tau_samples: N, quantiles that are learnt from a transition.
        num_tau_prime_samples: N', quantiles of its target.
        num_quantile_samples: K, quantiles whose mean chooses an action.
        quantile_embedding_dim: Number of cosines.
        kappa: Threshold of Huber's loss; 0 is quantile regression itself.
        shared: Those of `DQN`; `loss_type` has no effect.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name = "implicit_quantile"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        num_tau_samples: int = 32,
        num_tau_prime_samples: int = 32,
        num_quantile_samples: int = 32,
        quantile_embedding_dim: int = 64,
        kappa: float = 1.0,
        **shared: Any,
    ) -> None:
        """See the class."""
        super().__init__(observation_space, action_space, **shared)
        self._counts = {
            "num_tau_samples": num_tau_samples,
            "num_tau_prime_samples": num_tau_prime_samples,
            "num_quantile_samples": num_quantile_samples,
        }
        for name, count in {**self._counts, "quantile_embedding_dim": quantile_embedding_dim}.items():
            check_count(name, count, 1)
        check_numbers(kappa=kappa)
        if not 0 <= kappa < float("inf"):
            raise ValueError(f"kappa must be >= 0 and finite, got {kappa}")
        self._embedding_size = quantile_embedding_dim
        self._kappa = kappa

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what the network gives for one observation and one quantile, [A, 1]."""
        return (self.num_actions, 1)

    def network_inputs(self, observation: Any) -> tuple[Any, ...]:
        """Return what the network is called with: one observation and one quantile."""
        return (observation, torch.full((1, 1), 0.5))

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network of implicit quantiles."""
        return ImplicitQuantileNetwork(super().build_network(network), self._embedding_size)

    def learner_of(self, network: nn.Module, replay: Replay, **arguments: Any) -> Learner:
        """Make a learner that updates `network` in place."""
        return ImplicitQuantileLearner(network, replay, **self._counts, kappa=self._kappa, **arguments)

    def policy_of(self, network: nn.Module, **actor: int) -> EpsilonGreedyPolicy:
        """Make a policy that reads `network` in place; `actor` are the arguments of `acting`."""
        samples = self._counts["num_quantile_samples"]
        return ImplicitQuantilePolicy(network, num_quantile_samples=samples, **self.acting(**actor))
