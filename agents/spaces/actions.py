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
`BoxActions` has the actions of a Box.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor

from async_wrappers.agents.spaces.schema import WHOLE_NUMBER, Column


class DiscreteActions:
    """Discrete actions, or chunks of them.

    Args:
        first: Number of the first action.
        number: Actions, A.
        chunk: Actions of a decision, H; None for one.

    Attributes:
        column: Shape and dtype of a stored action.
        inputs: Numbers that a network reads of one action.
        chunk: As given.
        none: What stands in each place of a stored action where there was none before: networks read zeros of it.
        facts: The space as plain data, for what two runs must share.
    """

    none = -1

    def __init__(self, first: int, number: int, chunk: int | None = None) -> None:
        self.first, self.number, self.chunk = first, number, chunk
        self.column = WHOLE_NUMBER if chunk is None else WHOLE_NUMBER._replace(shape=(chunk,))
        self.inputs = number * (chunk or 1)
        self.facts: Any = number if chunk is None else [number] * chunk

    def stored(self, action: Any) -> Any:
        """Return environment's actions `[...]` as they are stored."""
        return action - self.first

    def environment(self, stored: Any) -> Any:
        """Return stored actions `[...]` as the environment takes them."""
        return stored + self.first

    def read(self, stored: Tensor) -> Tensor:
        """Return what a network reads of R stored actions, `[R, inputs]`; zeros where there was none."""
        numbers = torch.arange(self.number, device=stored.device)
        return (stored.reshape(len(stored), -1, 1) == numbers).flatten(1)

    def blank(self, rows: int) -> npt.NDArray[Any]:
        """Return environment's actions `[rows, ...]` that stand where there was none before."""
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


# Real-valued actions: what an action space that is a Box is to an agent; see `actions`.


class NotFinite(ValueError):
    """An agent chose an action that is no finite number."""


class BoxActions:
    """Real-valued actions, or chunks of them; attributes and methods are those of `DiscreteActions`, and further ones.

    Args:
        space: Of the environment; one with two dimensions is a chunk of H actions.
        agent: The agent's name, for messages.

    Attributes:
        size: Numbers of one action, A.
        bounded: Whether every number has two bounds.
        low: The least stored action, -inf where there is no bound, float32 `[*column.shape]`.
        high: The largest one.

    Raises:
        ValueError: An action has no numbers.
    """

    none = 0

    def __init__(self, space: Box, agent: str) -> None:
        self._space, self._agent = space, agent
        if 0 in space.shape:
            raise ValueError(
                f"agent {agent!r} needs an action of one number at least, got {space}: give the environment's action "
                "a number that it may ignore"
            )
        self.chunk = space.shape[0] if len(space.shape) > 1 else None
        self.size = math.prod(space.shape[1:] if self.chunk is not None else space.shape)
        shape = (self.size,) if self.chunk is None else (self.chunk, self.size)
        self.column, self.inputs = Column(shape, np.dtype(np.float32)), math.prod(shape)
        # Of equal shapes, another box gives the same stored numbers another meaning.
        self.facts: Any = {"box": list(space.shape), "low": _plain(space.low), "high": _plain(space.high)}
        self._least, self._most = space.low.reshape(shape), space.high.reshape(shape)
        # An integer box without a bound has its dtype's limit in the bound's place.
        finite = (space.bounded_below & space.bounded_above).reshape(shape)
        self.bounded = bool(finite.all())
        # Bounds are halved first: neither their sum nor their difference need be a finite number.
        low, high = (bound.astype(np.float64) / 2 for bound in (self._least, self._most))
        self._middle = np.add(low, high, out=np.zeros(shape), where=finite)
        self._half = np.subtract(high, low, out=np.ones(shape), where=finite)
        # Where there is one value alone, any half-width brings it back, and 1 keeps what is stored finite.
        self._half = np.where(self._half > 0, self._half.clip(min=np.finfo(np.float32).tiny), 1.0)
        self.low = np.where(finite, -1.0, self._least).astype(np.float32)
        self.high = np.where(finite, 1.0, self._most).astype(np.float32)
        # Whether a stored bound gives the environment's own: all between is then between, for rounding keeps the order.
        self._keeps_bounds = self._space.dtype.kind == "f" and all(
            np.array_equal(self._scaled(stored).astype(self._space.dtype), bound)
            for stored, bound in ((self.low, self._least), (self.high, self._most))
        )

    def stored(self, action: Any) -> Any:
        """Return environment's actions `[..., *shape]` as they are stored, `[..., *column.shape]`.

        Raises:
            ValueError: A number is not finite, or beyond float32.
        """
        given = np.asarray(action, np.float64)
        leading = given.shape[: given.ndim - len(self._space.shape)]
        with np.errstate(over="ignore"):
            stored = (given.reshape((*leading, *self.column.shape)) - self._middle) / self._half
            stored = stored.astype(np.float32)
        if not np.isfinite(stored).all():
            raise ValueError(f"action must be finite float32 numbers with agent {self._agent!r}, got {_short(given)}")
        return stored

    def environment(self, stored: Any) -> Any:
        """Return stored actions `[..., *column.shape]` as the environment takes them: clipped, in its dtype.

        Raises:
            NotFinite: A number is not finite.
        """
        given = np.asarray(stored)
        if not np.isfinite(given).all():
            raise NotFinite(
                f"agent {self._agent!r} chose an action that is no finite number, {_short(given)}: its weights have "
                "diverged, take a smaller create_optimizer.learning_rate"
            )
        leading = given.shape[: given.ndim - len(self.column.shape)]
        # Functions of two arrays, which for a small array take a fraction of the time of `clip` and `where`.
        action = self._scaled(np.minimum(np.maximum(given, self.low), self.high))
        if self._keeps_bounds:
            return action.astype(self._space.dtype).reshape((*leading, *self._space.shape))
        if self._space.dtype.kind in "iu":
            with np.errstate(invalid="ignore"):  # no float64 is the largest int64, which is put in below
                action = np.rint(action).astype(self._space.dtype)
        # Rounding to the environment's dtype may step over a bound, or miss it.
        action = np.minimum(np.maximum(action.astype(self._space.dtype), self._least), self._most)
        np.copyto(action, self._most, where=given >= self.high)
        np.copyto(action, self._least, where=given <= self.low)
        return action.reshape((*leading, *self._space.shape))

    def _scaled(self, stored: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        scaled: npt.NDArray[np.float64] = self._middle + self._half * stored
        return scaled

    def read(self, stored: Tensor) -> Tensor:
        return stored.flatten(1)

    def blank(self, rows: int) -> npt.NDArray[Any]:
        return np.zeros((rows, *self._space.shape), self._space.dtype)


Actions = DiscreteActions | BoxActions
"""An action space, as an agent sees it."""


def _plain(bounds: npt.NDArray[Any]) -> float | list[float]:
    """Return bounds as plain data: one number where they are equal."""
    numbers = [float(each) for each in bounds.flat]
    return numbers[0] if len(set(numbers)) == 1 else numbers


def _short(numbers: npt.NDArray[Any]) -> str:
    """Return numbers in one short line, as `[0 nan 3.14 ...]`."""
    shown = " ".join(f"{number:.3g}" for number in numbers.flat[:8])
    return f"[{shown}{' ...' if numbers.size > 8 else ''}]"


def real_actions(space: gym.Space[Any], agent: str, instead: str) -> BoxActions:
    """Return real-valued actions, or chunks of them.

    Args:
        space: Of the environment.
        agent: The agent's name, for messages.
        instead: The agents that take another space, in quotes (`actions.agents_of`).

    Raises:
        ValueError: The space is another one.
    """
    if not isinstance(space, Box):
        remedy = f"take agent {instead}" if instead else "turn them into such a Box in an ActionWrapper of your own"
        raise ValueError(f"agent {agent!r} needs a Box of real-valued actions, got {space}: {remedy}")
    return BoxActions(space, agent)
