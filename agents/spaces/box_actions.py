"""Real-valued actions: what an action space that is a Box is to an agent; see `actions`."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box
from torch import Tensor

from async_wrappers.agents.spaces.schema import Column


class NotFinite(ValueError):
    """An agent chose an action that is no finite number."""


class BoxActions:
    """Real-valued actions, or chunks of them.

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
        """See the class."""
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
        action = self._middle + self._half * np.minimum(np.maximum(given, self.low), self.high)
        if self._space.dtype.kind in "iu":
            with np.errstate(invalid="ignore"):  # no float64 is the largest int64, which is put in below
                action = np.rint(action).astype(self._space.dtype)
        # Rounding to the environment's dtype may step over a bound, or miss it.
        action = np.minimum(np.maximum(action.astype(self._space.dtype), self._least), self._most)
        np.copyto(action, self._most, where=given >= self.high)
        np.copyto(action, self._least, where=given <= self.low)
        return action.reshape((*leading, *self._space.shape))

    def read(self, stored: Tensor) -> Tensor:
        """See `Actions`."""
        return stored.flatten(1)

    def blank(self, rows: int) -> npt.NDArray[Any]:
        """See `Actions`."""
        return np.zeros((rows, *self._space.shape), self._space.dtype)


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
