"""Stacks of observations live: a policy reads those of the last k decisions.

The stack of frame s holds o_s, and before it the observations of the k - 1 newest decisions that started on earlier
frames of the episode, oldest first: of those that were applied, and of those that are in flight as the frame begins and
may still be. Where starts lie m frames apart and none is dropped these are o_s, o_{s-m}, ..., o_{s-(k-1)m}. A stack
holds only observations that are known on its frame, also if decisions in flight are dropped later. Before an episode's
first decision, and before the first one after a pause, there are zeros, as in a replay.

A decision in flight whose observation is in a later stack may be dropped, so stacks do not follow from the transitions.
A transition's observation is therefore the whole stack that the policy read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Dict, Tuple
from gymnasium.vector.utils import batch_space


def stacked_space(space: gym.Space[Any], stack_size: int) -> gym.Space[Any]:
    """Return the space of stacks `[k, *shape]` of a space's observations."""
    return batch_space(space, stack_size)


class Stacks:
    """Stacks the observations of an episode's decisions.

    Args:
        space: Of one observation, without stacks.
        stack_size: Observations in a stack, k.

    Attributes:
        space: Of a stack: arrays `[k, *shape]` in the place of those of an observation.
    """

    def __init__(self, space: gym.Space[Any], stack_size: int) -> None:
        self.space = stacked_space(space, stack_size)
        self._one, self._size = space, stack_size
        self.begin()

    def begin(self) -> None:
        """Clear all observations, as an episode begins or a pause ends."""
        self._read: dict[int, Any] = {}  # by start: the stacks of decisions that were applied or are in flight
        self._applied: list[int] = []  # starts of the newest k - 1 that were applied

    def started(self, start: int, stack: Any) -> None:
        """Note that a decision has started on a frame and reads its stack."""
        self._read[start] = stack

    def applied(self, start: int) -> None:
        """Note that a decision takes effect; decisions in flight that started before it never will."""
        self._applied = [*self._applied, start][-self._size + 1 :] if self._size > 1 else []

    def join(self, observation: Any, in_flight: Sequence[int] = ()) -> Any:
        """Return the stack that ends with the observation of a frame that begins.

        Args:
            observation: Of the frame; it is copied.
            in_flight: Starts of the decisions of the episode that may still be applied.
        """
        newest = self._applied[-1] if self._applied else -1
        alive = {*self._applied, *(start for start in in_flight if start > newest)}
        self._read = {start: stack for start, stack in self._read.items() if start in alive}
        earlier = sorted(self._read)[-self._size + 1 :] if self._size > 1 else []
        return _join(self._one, self._size, [*(_newest(self._one, self._read[each]) for each in earlier), observation])


def _newest(space: gym.Space[Any], stack: Any) -> Any:
    """Return the last observation of a stack."""
    if isinstance(space, Dict):
        return {key: _newest(inner, stack[key]) for key, inner in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_newest(inner, each) for inner, each in zip(space.spaces, stack, strict=True))
    return stack[-1]


def _join(space: gym.Space[Any], size: int, observations: Sequence[Any]) -> Any:
    """Return observations, the newest ones of a stack of `size`, as one with zeros before them."""
    if isinstance(space, Dict):
        return {key: _join(each, size, [one[key] for one in observations]) for key, each in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_join(each, size, [one[at] for one in observations]) for at, each in enumerate(space.spaces))
    stack = np.zeros((size, *(space.shape or ())), space.dtype)
    for row, observation in enumerate(observations, size - len(observations)):
        stack[row] = observation
    return stack
