"""Heads: networks from features to Q-values, or to the outputs of a distribution of values per action.

A head is an ``nn.Module`` built from the torso's ``output_size``, the number of actions and, for a distribution, the
number of outputs per action (atoms, quantiles).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import gin
from torch import Tensor, nn

from agents.networks.inputs import check_sizes

__all__ = ["DuelingHead", "HeadFactory", "LinearHead"]

HeadFactory = Callable[..., nn.Module]


@gin.configurable(module="agents")
class LinearHead(nn.Module):
    """One linear layer from features `[B, input_size]` to Q-values `[B, num_actions]`, or to N outputs per action.

    Args:
        input_size: Number of features.
        num_actions: Number of actions.
        outputs: N; None gives one value per action, without an axis for it.

    Raises:
        ValueError: If a size is not positive.
    """

    def __init__(self, input_size: int, num_actions: int, outputs: int | None = None) -> None:
        super().__init__()
        self._shape = _head_shape(input_size, num_actions, outputs)
        self.values = nn.Linear(input_size, math.prod(self._shape))

    def forward(self, features: Tensor) -> Tensor:
        """Map features `[B, input_size]` to `[B, num_actions]` or `[B, num_actions, outputs]`."""
        values: Tensor = self.values(features)
        return values.view(-1, *self._shape)


@gin.configurable(module="agents")
class DuelingHead(nn.Module):
    """Dueling head (Wang et al. 2016, arXiv 1511.06581, eq. 9): Q = V + A - mean of A over the actions.

    Maps features `[B, input_size]` to Q-values `[B, num_actions]`, or to N outputs per action, each dueling by itself
    (Hessel et al. 2018, "Rainbow"). Both streams are one linear layer on the torso's hidden layer, as in Dopamine,
    whereas in the papers each stream has a hidden layer of its own.

    Args:
        input_size: Number of features.
        num_actions: Number of actions.
        outputs: N; None gives one value per action, without an axis for it.

    Raises:
        ValueError: If a size is not positive.
    """

    def __init__(self, input_size: int, num_actions: int, outputs: int | None = None) -> None:
        super().__init__()
        self._shape = _head_shape(input_size, num_actions, outputs)
        self.value = nn.Linear(input_size, math.prod(self._shape[1:]))
        self.advantage = nn.Linear(input_size, math.prod(self._shape))

    def forward(self, features: Tensor) -> Tensor:
        """Map features `[B, input_size]` to `[B, num_actions]` or `[B, num_actions, outputs]`."""
        value: Tensor = self.value(features).view(-1, 1, *self._shape[1:])
        advantage: Tensor = self.advantage(features).view(-1, *self._shape)
        return value + (advantage - advantage.mean(dim=1, keepdim=True))


def _head_shape(input_size: int, num_actions: int, outputs: int | None) -> tuple[int, ...]:
    """Return the shape of a head's values, without the batch."""
    check_sizes("input_size", [input_size])
    shape = check_sizes("num_actions", [num_actions])
    return shape if outputs is None else (*shape, *check_sizes("outputs", [outputs]))
