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
        first_action: Number of the first action.
    """

    def __init__(
        self,
        network: nn.Module,
        num_actions: int,
        epsilon: Callable[[Decision], float],
        seed: int = 0,
        compute: Compute | None = None,
        first_action: int = 0,
    ) -> None:
        """See the class."""
        self._network = network
        self._num_actions = num_actions
        self._epsilon = epsilon
        self._random = DecisionRandom(seed)
        self._compute = compute or Compute()
        self._first_action = first_action

    def act(self, observation: npt.NDArray[Any], decision: Decision) -> int:
        """Return the number of the chosen action for one stacked observation [k, *shape]."""
        uniform, random_action = self._random.uniform_and_action(
            self._num_actions, decision.episode, decision.start, decision.eval_mode
        )
        if uniform < self._epsilon(decision):
            return self._first_action + random_action
        return self._first_action + int(self.q_values(observation).argmax())

    @torch.inference_mode()
    def q_values(self, observation: npt.NDArray[Any]) -> Tensor:
        """Return the Q-values [A] of one stacked observation [k, *shape]."""
        with self._compute.autocast():
            q_values: Tensor = self._network(self._compute.tensor(observation[None]))
        return q_values[0]

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied. `version` is not needed."""
        device = self._compute.torch_device
        here = {name: tensor.to(device) for name, tensor in weights.items()}
        self._network.requires_grad_(False).load_state_dict(here, assign=True)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights in the layout that inference reads; not a copy."""
        weights: dict[str, Tensor] = self._network.state_dict()
        return weights
