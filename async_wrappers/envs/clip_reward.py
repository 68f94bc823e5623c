"""Rewards clipped frame by frame, with the unclipped return kept for the scores."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

__all__ = ["ClipReward"]


class ClipReward(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Clips each frame's reward and reports the unclipped return in ``info["episode_return"]``.

    It belongs inside `RealtimeDelay`: a decision's reward is the sum of its frames' clipped rewards, not the clipped
    sum. ``info["episode_return"]`` is the sum of the unclipped rewards of the episode so far.

    Args:
        env: The environment to wrap.
        low: The least reward of a frame.
        high: The largest reward of a frame.
    """

    def __init__(self, env: gym.Env[Any, Any], low: float = -1.0, high: float = 1.0) -> None:
        """See the class."""
        gym.utils.RecordConstructorArgs.__init__(self, low=low, high=high)
        gym.Wrapper.__init__(self, env)
        if not low < high:
            raise ValueError(f"low must be < high, got low={low} and high={high}")
        self._low, self._high = low, high
        self._episode_return = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and the return."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode_return = 0.0
        return observation, {**info, "episode_return": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment by one frame and clip its reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._episode_return += float(reward)
        clipped = float(np.clip(float(reward), self._low, self._high))
        return observation, clipped, terminated, truncated, {**info, "episode_return": self._episode_return}
