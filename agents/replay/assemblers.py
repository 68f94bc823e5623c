"""Assemblers: how a batch is put together from the columns of a ring.

An assembler is its parameters and nothing else. Two of them, how far a transition reaches back and ahead, decide which
transitions a ring lets be drawn; with the positions of those it reads the columns.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agents.replay.ring import TERMINAL, Ring
from agents.replay.selectors import Positions

__all__ = ["NStep"]


class NStep:
    """Transitions of n decisions (Sutton 1988) between two stacks of k observations (Mnih et al. 2015).

    With m <= n decisions, fewer than n only at the end of an episode, the transition at decision t has

        reward    R = sum_{i<m} gamma^{c_i} r_{t+i}
        discount  gamma^{c_m}, or 0 if the episode terminated within those m decisions

    so that its target is R + discount * V(o_{t+m}). The exponent c_i counts the decisions, c_i = i, or the frames, the
    sum of the first i intervals.

    Args:
        stack_size: observations in a stack, k.
        update_horizon: decisions in a return, n.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        *,
        stack_size: int = 1,
        update_horizon: int = 1,
        gamma: float = 0.99,
        discount_by: Literal["decision", "frame"] = "decision",
    ) -> None:
        """See the class."""
        if stack_size < 1:
            raise ValueError(f"stack_size must be >= 1 observation, got {stack_size}")
        if update_horizon < 1:
            raise ValueError(f"update_horizon must be >= 1 decision, got {update_horizon}")
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must lie in [0, 1], got {gamma}")
        if discount_by not in ("decision", "frame"):
            raise ValueError(f"discount_by must be 'decision' or 'frame', got {discount_by!r}")
        self.stack_size, self.update_horizon = stack_size, update_horizon
        self._gamma, self._discount_by = gamma, discount_by
        # A batch reads each stack and its next stack in one go; one step apart, they share all but one observation.
        stack = np.arange(1 - stack_size, 1)
        self._window = np.append(stack, 1 if update_horizon == 1 else stack)

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {
            "stack_size": self.stack_size,
            "update_horizon": self.update_horizon,
            "gamma": self._gamma,
            "discount_by": self._discount_by,
        }

    def assemble(self, ring: Ring, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """See `Replay.sample` for what a batch holds."""
        steps = ring.steps.take(positions)
        if update_horizon is not None:
            steps = np.minimum(steps, update_horizon)
        observation, next_observation = self._stacks(ring, positions, steps)
        reward, discount = self._returns(ring, positions, steps)
        batch = {
            "observation": observation,
            "action": ring.action.take(positions),
            "reward": reward,
            "discount": discount,
            "next_observation": next_observation,
            "interval": ring.interval.take(positions).astype(np.int64),
            "index": ring.slots_at(positions),
        }
        if ring.schema.extras:
            batch["extras"] = ring.schema.extras.nest([array.take(positions, axis=0) for array in ring.extras])
        return batch

    def _stacks(self, ring: Ring, positions: Positions, steps: npt.NDArray[np.int32]) -> tuple[Any, Any]:
        """Return the stacks at `positions` and `steps` later, views of one array, with zeros before an episode."""
        around = positions[:, None] + self._window
        if self.update_horizon > 1:
            around[:, self.stack_size :] += steps[:, None]
        age = ring.age.take(positions)
        begins = age.min() < self.stack_size - 1
        windows = []
        for array in ring.observation:
            window = array.take(around, axis=0, mode="wrap")
            if begins:
                self._blank(window, age, steps)
            windows.append(window)
        nest = ring.schema.observation.nest
        observation = nest([window[:, : self.stack_size] for window in windows])
        return observation, nest([window[:, -self.stack_size :] for window in windows])

    def _blank(self, window: npt.NDArray[Any], age: npt.NDArray[np.int64], steps: npt.NDArray[np.int32]) -> None:
        """Set to zero what lies before the episode's first observation."""
        missing = self.stack_size - 1 - age
        for row in np.flatnonzero(missing > 0):
            window[row, : missing[row]] = 0
            if self.update_horizon > 1:
                window[row, self.stack_size : self.stack_size + max(0, missing[row] - steps[row])] = 0

    def _returns(
        self, ring: Ring, positions: Positions, steps: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the discounted sums of rewards and the discounts of the bootstrap, summed in double precision."""
        if self.update_horizon == 1 and self._discount_by == "decision":
            terminal = ring.kind.take(positions) == TERMINAL
            return ring.reward.take(positions), np.where(terminal, np.float32(0), np.float32(self._gamma))
        reward = np.zeros(len(positions))
        discount = np.ones(len(positions))
        for step in range(self.update_horizon):
            at, taken = positions + step, steps > step
            reward += np.where(taken, discount * ring.reward.take(at, mode="wrap"), 0.0)
            discount *= np.where(taken, self._step_discount(ring, at), 1.0)
        terminal = ring.kind.take(positions + steps - 1, mode="wrap") == TERMINAL
        discount[terminal] = 0.0
        return reward.astype(np.float32), discount.astype(np.float32)

    def _step_discount(self, ring: Ring, positions: Positions) -> npt.NDArray[np.floating[Any]] | float:
        if self._discount_by == "decision":
            return self._gamma
        return self._gamma ** ring.interval.take(positions, mode="wrap")
