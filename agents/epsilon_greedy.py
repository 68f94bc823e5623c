"""The policy of every agent that learns Q-values or their distributions: epsilon-greedy, noisy or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from agents.compute import Compute
from agents.decision import Decision
from agents.exploration import DecisionRandom
from agents.networks.noisy import noisy_layers, resample_noise
from agents.observations import each_array

__all__ = ["EpsilonGreedyPolicy"]


class EpsilonGreedyPolicy:
    """Chooses ``argmax_a Q(o, a)``, or with probability epsilon an action drawn uniformly.

    It holds weights and nothing that acting changes: two calls with the same observation and decision give the same
    action, in whatever order decisions are asked for. All that it draws (epsilon's coin, the noise of noisy layers,
    quantiles) is drawn anew for each decision, as a function of (seed, episode, start). Evaluation is without noise.

    Args:
        network: What `values` reads; in place.
        num_actions: A.
        epsilon: The probability of a random action, as a function of the decision.
        seed: Of the exploration.
        compute: Where the forward pass runs; the network must have been placed there.
        first_action: Number of the first action.
        read: Turns batches of stacks into what the network reads; None is for arrays that it reads as they are.
    """

    def __init__(
        self,
        network: nn.Module,
        num_actions: int,
        epsilon: Callable[[Decision], float],
        seed: int = 0,
        compute: Compute | None = None,
        first_action: int = 0,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        """See the class."""
        self.network = network
        self._noisy_layers = noisy_layers(network)
        self._num_actions = num_actions
        self._epsilon = epsilon
        self._random = DecisionRandom(seed)
        self.compute = compute or Compute()
        self._first_action = first_action
        self._read = read or self.compute.tensor

    def values(self, observation: Any, rng: np.random.Generator) -> Tensor:
        """Return Q-values [B, A] of what `read` gave for stacks [B, k, *shape]; what is drawn is drawn from `rng`."""
        raise NotImplementedError

    def act(self, observation: Any, decision: Decision) -> int:
        """Return the number of the chosen action for one stacked observation [k, *shape], or for a dict of them."""
        episode = max(decision.episode, 0)  # an inference to warm up belongs to none, and is numbered -1
        rng = self._random.draw(episode, decision.start, decision.eval_mode)
        uniform, random_action = rng.random(), int(rng.integers(self._num_actions))
        if uniform < self._epsilon(decision):
            return self._first_action + random_action
        return self._first_action + int(self._q_values(observation, rng, noisy=not decision.eval_mode).argmax())

    def q_values(self, observation: Any) -> Tensor:
        """Return the Q-values [A] of one stacked observation [k, *shape], without noise."""
        return self._q_values(observation, self._random.draw(0, 0, eval_mode=True), noisy=False)

    @torch.inference_mode()
    def _q_values(self, observation: Any, rng: np.random.Generator, noisy: bool) -> Tensor:
        resample_noise(self._noisy_layers, rng if noisy else None)
        with self.compute.autocast():
            return self.values(self._read(each_array(_batch_of_one, observation)), rng)[0]

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied. `version` is not needed."""
        device = self.compute.torch_device
        here = {name: tensor.to(device) for name, tensor in weights.items()}
        self.network.requires_grad_(False).load_state_dict(here, assign=True)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights in the layout that inference reads; not a copy."""
        weights: dict[str, Tensor] = self.network.state_dict()
        return weights


def _batch_of_one(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array[None]
