"""`SteeredEnv`: `DriftingEnv` under real-valued actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from tests.worlds.drifting_env import DriftingEnv


class SteeredEnv(gym.ActionWrapper[Any, Any, Any]):
    """A point that is pushed by the first number of an action; the second one has no effect.

    Args:
        bounded: Whether the numbers have bounds, of different ranges.
        arguments: Of `DriftingEnv`, whose actions it takes in the place of its own.
    """

    def __init__(self, bounded: bool = True, **arguments: Any) -> None:
        super().__init__(DriftingEnv(**{**arguments, "actions": 3, "first_action": 0}))
        self.lives = self.unwrapped.lives
        low, high = ([-2.0, 0.0], [2.0, 3.0]) if bounded else ([-np.inf] * 2, [np.inf] * 2)
        self.action_space = Box(np.array(low, np.float32), np.array(high, np.float32))
        self.received: list[Any] = []

    def action(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.received.append(action)
        return int(np.clip(np.rint(action[0]), -1, 1)) + 1
