"""IQN's policy: epsilon-greedy on the means of drawn quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agents.epsilon_greedy import EpsilonGreedyPolicy
from agents.observations import first_array

__all__ = ["ImplicitQuantilePolicy"]


class ImplicitQuantilePolicy(EpsilonGreedyPolicy):
    """`EpsilonGreedyPolicy` of a network from (observations [B, k, *shape], tau [B, K]) to quantiles [B, A, K].

    Args:
        network: Read in place.
        num_quantile_samples: K, how many quantiles are drawn for a decision, uniformly.
        arguments: The others of `EpsilonGreedyPolicy`.
    """

    def __init__(self, network: nn.Module, *, num_quantile_samples: int = 32, **arguments: Any) -> None:
        """See the class."""
        super().__init__(network, **arguments)
        self._num_quantile_samples = num_quantile_samples

    def values(self, observation: Any, rng: np.random.Generator) -> Tensor:
        """Return the means [B, A] of K quantiles (Dabney et al. 2018, eq. 5)."""
        first = first_array(observation)
        tau = torch.from_numpy(rng.random((len(first), self._num_quantile_samples), np.float32))
        quantiles: Tensor = self.network(observation, tau.to(first.device))
        return quantiles.mean(dim=2)
