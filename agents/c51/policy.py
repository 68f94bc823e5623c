"""C51's policy: epsilon-greedy on the means of categorical distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from agents import losses
from agents.epsilon_greedy import EpsilonGreedyPolicy

__all__ = ["C51Policy"]


class C51Policy(EpsilonGreedyPolicy):
    """`EpsilonGreedyPolicy` of a network from observations [B, k, *shape] to logits [B, A, N].

    Args:
        network: Read in place.
        support: The atoms, [N], where the network computes.
        arguments: The others of `EpsilonGreedyPolicy`.
    """

    def __init__(self, network: nn.Module, *, support: Tensor, **arguments: Any) -> None:
        """See the class."""
        super().__init__(network, **arguments)
        self._support = support

    def values(self, observation: Any, rng: np.random.Generator) -> Tensor:
        """Return the distributions' means [B, A]."""
        return losses.expected_value(self.network(observation), self._support)
