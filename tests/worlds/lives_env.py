"""`LivesEnv`: a game of three lives that pays for each frame, and remembers how it was begun and played."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

LIVES, LENGTH = 3, 4  # frames of each life but the first, which has one more


class LivesEnv(gym.Env[Any, Any]):
    """A life is lost after so many frames, whatever the actions are; the last one ends the game.

    The observation is float32 ``[frame of the game, lives]``. A frame pays 3.
    """

    def __init__(self) -> None:
        self.observation_space = Box(0, 100, (2,), np.float32)
        self.action_space = Discrete(3)
        self.seeds: list[int | None] = []
        self.actions: list[int] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self._frame = 0
        return self._show()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._lives == 0:
            raise RuntimeError("stepped after the end of a game")
        self.actions.append(int(action))
        self._frame += 1
        observation, info = self._show()
        return observation, 3.0, self._lives == 0, False, info

    @property
    def _lives(self) -> int:
        return LIVES - max(self._frame - 1, 0) // LENGTH

    def _show(self) -> tuple[Any, dict[str, Any]]:
        return np.array([self._frame, self._lives], np.float32), {"lives": self._lives}


FRAMES = LIVES * LENGTH + 1  # of a game
RETURN = 3.0 * FRAMES
