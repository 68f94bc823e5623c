"""QR-DQN's policy: epsilon-greedy on the means of quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from agents.epsilon_greedy import EpsilonGreedyPolicy

__all__ = ["QuantilePolicy"]


class QuantilePolicy(EpsilonGreedyPolicy):
    """`EpsilonGreedyPolicy` of a network from observations [B, k, *shape] to quantiles [B, A, N]."""

    def values(self, observation: Any, rng: np.random.Generator) -> Tensor:
        """Return the quantiles' means [B, A]."""
        quantiles: Tensor = self.network(observation)
        return quantiles.mean(dim=2)
