"""What an action space is to an agent: to its replay, to its network, and to the environment.

An action has two forms. The *environment's* is an element of the action space. The *stored* one is what a replay keeps
and a network reads and gives:

====================  =========================  ===================================================================
action space          stored                     a network reads
====================  =========================  ===================================================================
Discrete              int64 (), counted from 0   A numbers, one-hot
MultiDiscrete [A]*H   int64 (H,)                 H A numbers, one-hot each: a chunk of H actions
Box (A,)              float32 (A,)               A numbers
Box (H, A)            float32 (H, A)             H A numbers: a chunk of H actions
====================  =========================  ===================================================================

A number of a Box with two bounds is stored so that the bounds are -1 and 1, whatever their unit; one without is stored
as it is. A stored number may lie outside, as a Gaussian's does: the environment receives it clipped, in its own dtype.
`box_actions.py` has the actions of a Box.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor

from async_wrappers.agents.spaces.schema import WHOLE_NUMBER, Column


class Actions(Protocol):
    """An action space, as an agent sees it.

    Attributes:
        column: Shape and dtype of a stored action.
        inputs: Numbers that a network reads of one action.
        chunk: Actions that a decision gives at once, H; None for one.
        none: What stands in each place of a stored action where there was none before: networks read zeros of it.
        facts: The space as plain data, for what two runs must share.
    """

    column: Column
    inputs: int
    chunk: int | None
    none: int
    facts: Any

    def stored(self, action: Any) -> Any:
        """Return environment's actions `[...]` as they are stored."""

    def environment(self, stored: Any) -> Any:
        """Return stored actions `[...]` as the environment takes them."""

    def read(self, stored: Tensor) -> Tensor:
        """Return what a network reads of R stored actions, `[R, inputs]`; zeros where there was none."""

    def blank(self, rows: int) -> npt.NDArray[Any]:
        """Return environment's actions `[rows, ...]` that stand where there was none before."""


class DiscreteActions:
    """Discrete actions, or chunks of them.

    Args:
        first: Number of the first action.
        number: Actions, A.
        chunk: Actions of a decision, H; None for one.
    """

    none = -1

    def __init__(self, first: int, number: int, chunk: int | None = None) -> None:
        """See the class."""
        self.first, self.number, self.chunk = first, number, chunk
        self.column = WHOLE_NUMBER if chunk is None else WHOLE_NUMBER._replace(shape=(chunk,))
        self.inputs = number * (chunk or 1)
        self.facts: Any = number if chunk is None else [number] * chunk

    def stored(self, action: Any) -> Any:
        """See `Actions`."""
        return action - self.first

    def environment(self, stored: Any) -> Any:
        """See `Actions`."""
        return stored + self.first

    def read(self, stored: Tensor) -> Tensor:
        """See `Actions`."""
        numbers = torch.arange(self.number, device=stored.device)
        return (stored.reshape(len(stored), -1, 1) == numbers).flatten(1)

    def blank(self, rows: int) -> npt.NDArray[Any]:
        """See `Actions`."""
        return np.zeros((rows, *self.column.shape), np.int64)


# From an action space to its `Actions`, or to a refusal.

_IN_A_WRAPPER = "turn them into one number in an ActionWrapper of your own"


def agents_of(space: gym.Space[Any]) -> str:
    """Return the agents that take an action space, in quotes, as ``"'sac' or 'ppo'"``; empty where none does."""
    if isinstance(space, Discrete):
        return "'dqn' or 'ppo'"
    if isinstance(space, MultiDiscrete):
        return "'ppo' or 'vtrace'" if _are_alike(space) else ""
    if not isinstance(space, Box) or not math.prod(space.shape):
        return ""
    return "'sac' or 'ppo'" if space.is_bounded() and len(space.shape) < 2 else "'ppo'"


def _are_alike(space: MultiDiscrete) -> bool:
    return space.nvec.ndim == 1 and len(np.unique(space.start)) == len(np.unique(space.nvec)) == 1


def discrete_actions(space: gym.Space[Any], agent: str) -> DiscreteActions:
    """Return Discrete actions.

    Raises:
        ValueError: The space is another one.
    """
    if not isinstance(space, Discrete):
        remedy, instead = _IN_A_WRAPPER, agents_of(space)
        if isinstance(space, Box) and instead:
            remedy = f"take agent {instead}"
            if "sac" in instead:
                remedy += (
                    ", or discretise them with Gymnasium's DiscretizeAction, in gin create_gym_environment.wrappers = "
                    "[@DiscretizeAction, @RealtimeDelay] and DiscretizeAction.bins = 3"
                )
        raise ValueError(f"agent {agent!r} needs Discrete actions, got {space}: {remedy}")
    return DiscreteActions(int(space.start), int(space.n))


def chunk_actions(space: gym.Space[Any], agent: str) -> DiscreteActions:
    """Return Discrete actions, or chunks of them.

    A chunk is a MultiDiscrete ``[A] * H``, as ``RealtimeDelay(default_action="chunk")`` makes it.

    Raises:
        ValueError: The space is another one.
    """
    if not isinstance(space, MultiDiscrete):
        return discrete_actions(space, agent)
    if not _are_alike(space):
        raise ValueError(
            f"agent {agent!r} needs Discrete actions, or a chunk of them that are alike, got {space}: {_IN_A_WRAPPER}"
        )
    return DiscreteActions(int(space.start[0]), int(space.nvec[0]), len(space.nvec))
