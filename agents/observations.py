"""Observations of any space that agents take: an array, or a Dict of arrays, which may hold further ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

from agents.compute import Compute
from agents.trees import each_array

__all__ = ["Reader", "are_equal", "batch_of_one", "blank_observation", "copied", "first_array", "stacked"]


def first_array(observation: Any) -> Any:
    """Return one of an observation's arrays or tensors, to ask for what all have in common."""
    while isinstance(observation, Mapping):
        observation = next(iter(observation.values()))
    return observation


def copied(observation: Any) -> Any:
    """Return an observation in arrays of its own: the environment may reuse those that it gave."""
    return each_array(np.array, observation)


def stacked(observations: Iterable[Any]) -> Any:
    """Return observations [*shape] as one stack [k, *shape]."""
    return each_array(lambda *arrays: np.stack(arrays), *observations)


def batch_of_one(observation: Any) -> Any:
    """Return an observation or a stack [...] as a batch [1, ...]; not a copy."""
    return each_array(lambda array: array[None], observation)


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two observations of a space are the same."""
    if not isinstance(one, Mapping):
        return np.array_equal(one, other)
    return all(are_equal(one[key], other[key]) for key in one)


class Reader:
    """Turns stacks of a space's observations into what a network reads: a tensor, or a dict of tensors by key.

    Box is read as it is, which networks want in uint8 (for 0 to 1) or in floats; Discrete and each number of
    MultiDiscrete as one-hot floats, MultiBinary as floats.

    Args:
        space: One of these, or a Dict of them.
        stack_size: k.
        compute: Where the tensors go.

    Attributes:
        shape: What the network is built for: the shape of one stack [k, *shape], or a dict of such by key.

    Raises:
        ValueError: Another space; the sentence names its key.
    """

    def __init__(self, space: gym.Space[Any], stack_size: int, compute: Compute) -> None:
        """See the class."""
        self.shape: Any = _shape(space, stack_size, "")
        self._space = space
        self._stack_size = stack_size
        self._compute = compute

    def __call__(self, stacks: Any) -> Any:
        """Return tensors [B, k, *shape] of stacks [B, k, *shape]."""
        return self._read(self._space, stacks)

    def blank(self) -> Any:
        """Return the observation that stands before an episode's first: zeros."""
        return blank_observation(self._space)

    def blank_stacks(self) -> Any:
        """Return a batch of one stack of zeros."""
        return each_array(lambda array: np.stack([array] * self._stack_size)[None], self.blank())

    def _read(self, space: gym.Space[Any], stacks: Any) -> Any:
        if isinstance(space, Dict):
            return {key: self._read(inner, stacks[key]) for key, inner in space.spaces.items()}
        tensor = self._compute.tensor(stacks)
        if isinstance(space, Discrete):
            return _one_hot(tensor, int(space.start), int(space.n))
        if isinstance(space, MultiDiscrete):
            columns = zip(tensor.flatten(2).unbind(-1), space.start.ravel(), space.nvec.ravel(), strict=True)
            return torch.cat([_one_hot(column, int(start), int(n)) for column, start, n in columns], dim=-1)
        return tensor.float() if isinstance(space, MultiBinary) else tensor


def _one_hot(numbers: Tensor, start: int, count: int) -> Tensor:
    return (numbers.unsqueeze(-1) == torch.arange(start, start + count, device=numbers.device)).float()


def _shape(space: gym.Space[Any], stack_size: int, name: str) -> Any:
    if isinstance(space, Dict) and space.spaces:
        return {key: _shape(inner, stack_size, f"{name}[{key!r}]") for key, inner in space.spaces.items()}
    if isinstance(space, Discrete):
        return (stack_size, int(space.n))
    if isinstance(space, MultiDiscrete):
        return (stack_size, int(space.nvec.sum()))
    if isinstance(space, Box | MultiBinary):
        return (stack_size, *space.shape)
    raise ValueError(
        f"observation space{name} must be a Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these, got {space}: "
        "turn it into one in a wrapper, such as Gymnasium's FlattenObservation"
    )


def blank_observation(space: gym.Space[Any]) -> Any:
    """Return the zeros of a space of arrays, or of a Dict of such."""
    if isinstance(space, Dict):
        return {key: blank_observation(inner) for key, inner in space.spaces.items()}
    return np.zeros(space.shape or (), space.dtype)
