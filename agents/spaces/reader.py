"""How a network reads observations: numbers as floats, one-hot where they are kinds, images as they are."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

from async_wrappers.agents.spaces.compute import Compute
from async_wrappers.agents.spaces.schema import (
    blank_observation,
    each_array,
    refuse_empty,
    remedy,
    space_without_tuples,
    without_tuples,
)


class Reader:
    """Turns stacks of a space's observations into a network's input: a tensor, or a dict of tensors by key.

    A Box of uint8 (which a network scales to 0 to 1) or of floats is read as it is, a Box of other whole numbers or of
    booleans as the same numbers in float32; Discrete and each number of MultiDiscrete as one-hot floats, MultiBinary as
    floats. A Tuple is read as a Dict whose keys are the positions "0", "1" and so on.

    Args:
        space: One of these, or a Dict or Tuple of them.
        stack_size: k.
        compute: Where the tensors go.

    Attributes:
        shape: The shape that the network is built for: that of one stack [k, *shape], or a dict of such by key.

    Raises:
        ValueError: Another space; the message names its key.
    """

    def __init__(self, space: gym.Space[Any], stack_size: int, compute: Compute) -> None:
        """See the class."""
        self._given, self._space = space, space_without_tuples(space)
        self.shape: Any = _shape(self._space, stack_size, "")
        self._stack_size = stack_size
        self._compute = compute
        # As Python's numbers: a trace of the network for an export would take NumPy's for data.
        self._one_hots = each_array(_one_hots_of, self._space)

    def __call__(self, stacks: Any) -> Any:
        """Return tensors [B, k, *shape] of stacks [B, k, *shape]."""
        return each_array(self._tensor, self._space, self._one_hots, stacks)

    def without_tuples(self, observation: Any) -> Any:
        """Return one observation of the space with a dict by position for each tuple; most have none."""
        return observation if self._given is self._space else without_tuples(self._given, observation)

    def blank(self) -> Any:
        """Return the observation that stands before an episode's first: zeros."""
        return blank_observation(self._space)

    def blank_stacks(self) -> Any:
        """Return a batch of one stack of zeros."""
        return each_array(lambda array: np.stack([array] * self._stack_size)[None], self.blank())

    def read_tensors(self, stacks: Any) -> Any:
        """Return the network's input from stacks that are tensors already, in the dtypes of the space."""
        return each_array(_read, self._space, self._one_hots, stacks)

    def _tensor(self, space: gym.Space[Any], one_hots: _OneHots, stacks: npt.NDArray[Any]) -> Tensor:
        return _read(space, one_hots, self._compute.tensor(stacks))


_OneHots = list[tuple[int, int]]  # (start, n) of each number that is read one-hot


def _one_hots_of(space: gym.Space[Any]) -> _OneHots:
    if isinstance(space, Discrete):
        return [(int(space.start), int(space.n))]
    if isinstance(space, MultiDiscrete):
        return list(zip(space.start.ravel().tolist(), space.nvec.ravel().tolist(), strict=True))
    return []


def _read(space: gym.Space[Any], one_hots: _OneHots, tensor: Tensor) -> Tensor:
    """Return a tensor of an array's stacks as a network reads it."""
    if isinstance(space, Discrete):
        return _one_hot(tensor, *one_hots[0])
    if isinstance(space, MultiDiscrete):
        columns = zip(tensor.flatten(2).unbind(-1), one_hots, strict=True)
        return torch.cat([_one_hot(column, *one_hot) for column, one_hot in columns], dim=-1)
    return tensor if tensor.dtype == torch.uint8 and isinstance(space, Box) else _floats(tensor)


def _floats(tensor: Tensor) -> Tensor:
    """Return a tensor of floats as it is, and any other in float32."""
    return tensor if tensor.is_floating_point() else tensor.float()


def _one_hot(numbers: Tensor, start: int, count: int) -> Tensor:
    return (numbers.unsqueeze(-1) == torch.arange(start, start + count, device=numbers.device)).float()


def _shape(space: gym.Space[Any], stack_size: int, name: str) -> Any:
    if isinstance(space, Dict):
        refuse_empty(f"observation space{name}", space)
        return {key: _shape(inner, stack_size, f"{name}[{key!r}]") for key, inner in space.spaces.items()}
    if isinstance(space, Discrete):
        return (stack_size, int(space.n))
    if isinstance(space, MultiDiscrete):
        return (stack_size, int(space.nvec.sum()))
    if isinstance(space, Box | MultiBinary):
        refuse_empty(f"observation space{name}", space)
        return (stack_size, *space.shape)
    raise ValueError(
        f"observation space{name} must be a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, "
        f"got {space}: {remedy(space)}"
    )
