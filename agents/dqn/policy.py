"""DQN's policy: epsilon-greedy on the Q-values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from agents.compute import Compute
from agents.decision import Decision
from agents.exploration import DecisionRandom

__all__ = ["DQNPolicy"]


class DQNPolicy:
    """Chooses ``argmax_a Q(o, a)``, or with probability epsilon an action drawn uniformly.

    It holds weights and nothing that acting changes: two calls with the same observation and decision give the same
    action, in whatever order decisions are asked for.

    Args:
        network: From observations [B, k, *shape] to Q-values [B, A]; read in place.
        num_actions: A.
        epsilon: The probability of a random action, as a function of the decision.
        seed: Of the exploration.
        compute: Where the forward pass runs; the network must have been placed there.
    """

    def __init__(
        self,
        network: nn.Module,
        num_actions: int,
        epsilon: Callable[[Decision], float],
        seed: int = 0,
        compute: Compute | None = None,
    ) -> None:
        """See the class."""
        self._network = network
        self._num_actions = num_actions
        self._epsilon = epsilon
        self._random = DecisionRandom(seed)
        self._compute = compute or Compute()

    def act(self, observation: npt.NDArray[Any], decision: Decision) -> int:
        """Return the index of the chosen action for one stacked observation [k, *shape]."""
        uniform, random_action = self._random.uniform_and_action(
            self._num_actions, decision.episode, decision.start, decision.eval_mode
        )
        if uniform < self._epsilon(decision):
            return random_action
        return int(self.q_values(observation).argmax())

    @torch.inference_mode()
    def q_values(self, observation: npt.NDArray[Any]) -> Tensor:
        """Return the Q-values [A] of one stacked observation [k, *shape]."""
        with self._compute.autocast():
            q_values: Tensor = self._network(self._compute.tensor(observation[None]))
        return q_values[0]

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Copy weights into the network; `version` is not needed."""
        self._network.load_state_dict(weights)
