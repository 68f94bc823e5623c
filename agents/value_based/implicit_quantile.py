"""IQN (Dabney, Ostrovski, Silver, Munos, "Implicit quantile networks for distributional RL", ICML 2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from agents.learner import Batch, LossOutput, Networks
from agents.losses import values as losses
from agents.networks.implicit_quantile import ImplicitQuantileNetwork
from agents.schema import first_array
from agents.spec import check_count, check_numbers
from agents.value_based.dqn import DQN

__all__ = ["ImplicitQuantile"]


@gin.configurable("ImplicitQuantileAgent", module="agents")
class ImplicitQuantile(DQN):
    """IQN (Dabney et al. 2018), ``ImplicitQuantileAgent`` in gin: any quantile of each action's return.

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

    name: ClassVar[str] = "implicit_quantile"
    learner_kind: str = "ImplicitQuantileLearner"
    values_draw: ClassVar[bool] = True

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

    def values(self, network: Callable[..., Tensor], observation: Any, rng: np.random.Generator) -> Tensor:
        """Return the means [B, A] of K drawn quantiles (Dabney et al. 2018, eq. 5)."""
        tau = self._draw(rng, len(first_array(observation)), self._counts["num_quantile_samples"])
        return network(observation, tau).mean(dim=2)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the quantile Huber loss of N drawn quantiles to N' drawn ones (Dabney et al. 2018, eq. 2 and 3).

        Their target is ``r + discount Z_target(o', a*)``; K further quantiles choose a*.
        """
        observation, next_observation = batch["observation"], batch["next_observation"]
        tau, tau_prime, tau_selector = (self._draw(rng, len(batch["action"]), n) for n in self._counts.values())
        with torch.no_grad():
            quantiles_t = networks.target(next_observation, tau_prime)
            selector = networks.online if self.double_dqn else networks.target
            q_t_selector = selector(next_observation, tau_selector).mean(dim=2)
        quantiles_tm1 = networks.online(observation, tau)
        step = (batch["action"], batch["reward"], batch["discount"])
        loss = losses.quantile_q_learning(quantiles_tm1, tau, *step, quantiles_t, q_t_selector, self._kappa)
        return LossOutput(loss, priority=loss)

    def _draw(self, rng: np.random.Generator, batch: int, count: int) -> Tensor:
        return self.compute.tensor(rng.random((batch, count), np.float32))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the network's output for one observation and one quantile, [A, 1]."""
        return (self.num_actions, 1)

    def network_inputs(self, observation: Any) -> tuple[Any, ...]:
        """Return the inputs of the network: one observation and one quantile."""
        return (observation, torch.full((1, 1), 0.5))

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network of implicit quantiles."""
        return ImplicitQuantileNetwork(super().build_network(network), self._embedding_size)
