"""Environments whose observations say which episode and frame they are of, and vectors of them with tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Counting(gym.Env[Any, Any]):
    """Episodes of 1 to 11 frames, whose lengths, ends and rewards its row and the episode's number draw.

    An observation is (episode, frame, action received last).
    """

    def __init__(self, row: int) -> None:
        self.observation_space = Box(-1e9, 1e9, (3,), np.float64)
        self.action_space = Box(-1e9, 1e9, (1,), np.float64)
        self.row, self.episode = row, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode += 1
        self._draws = np.random.default_rng((self.row, self.episode))
        self.frame, self.received = 0, 0.0
        self._length, self._truncates = int(self._draws.integers(1, 12)), bool(self._draws.integers(2))
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.frame += 1
        self.received, over = float(action[0]), self.frame == self._length
        reward = float(self._draws.integers(1, 9))
        return self._shown(), reward, over and not self._truncates, over and self._truncates, {}

    def _shown(self) -> Any:
        return np.array([self.episode, self.frame, self.received])


class Tensors(gym.vector.VectorWrapper):
    """A vector that takes and gives arrays of another library, as simulators on a device do.

    Args:
        env: With NumPy's arrays.
        to: Converts an array of NumPy's.
        back: Converts one into it.
    """

    def __init__(self, env: Any, to: Callable[[Any], Any], back: Callable[[Any], Any]) -> None:
        super().__init__(env)
        self._to, self._back = to, back

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if options is not None:
            options = {**options, "reset_mask": self._back(options["reset_mask"])}
        observations, _ = self.env.reset(seed=seed, options=options)
        return self._to(observations.copy()), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, info = self.env.step(self._back(actions).copy())
        shown = {}
        if self.env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
            last = np.zeros_like(observations)
            for row, one in enumerate(info.get("final_obs", ())):
                if one is not None:
                    last[row] = one
            shown["final_obs"] = self._to(last)
        return self._to(observations.copy()), self._to(rewards), self._to(terminated), self._to(truncated), shown


def counting_vector(num_envs: int, mode: AutoresetMode) -> Any:
    """Return a vector of `Counting` with NumPy's arrays."""
    return SyncVectorEnv([partial(Counting, row) for row in range(num_envs)], autoreset_mode=mode)
