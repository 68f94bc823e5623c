"""DQN's policy: epsilon-greedy on the Q-values."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from agents.epsilon_greedy import EpsilonGreedyPolicy

__all__ = ["DQNPolicy"]


class DQNPolicy(EpsilonGreedyPolicy):
    """`EpsilonGreedyPolicy` of a network from observations [B, k, *shape] to Q-values [B, A]."""

    def values(self, observation: Any, rng: np.random.Generator) -> Tensor:
        """Return Q-values [B, A]."""
        q_values: Tensor = self.network(observation)
        return q_values
