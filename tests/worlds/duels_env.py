"""`Duels`: encounters one after the other, won or lost by the seed of the episode, as an environment tells them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

FRAMES = 4  # of a duel


class Duels(gym.Env[Any, Any]):
    """Four frames each; a reward of 1 or -1 on the last, `encounter` goes on after a win. It remembers what it played.

    The next encounter is one further only when that is asked or an episode begins, as in `GameBoyEnv`.
    """

    def __init__(self) -> None:
        self.observation_space = Box(0, 100, (2,), np.float32)
        self.action_space = Discrete(2)
        self.played: list[int] = []
        self._number, self._won = 1, False

    @property
    def encounter(self) -> int:
        return self._number + self._won

    @encounter.setter
    def encounter(self, number: int | None) -> None:
        self._number, self._won = 1 if number is None else number, False

    @property
    def phase_state(self) -> int:
        return self.encounter

    @phase_state.setter
    def phase_state(self, number: int | None) -> None:
        self.encounter = number

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._number, self._won, self._frame = self.encounter, False, 0
        self._wins = won_by(seed)
        self.played.append(self._number)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._frame += 1
        if self._frame < FRAMES:
            return self._observe(), 0.0, False, False, {}
        self._won = self._wins is True
        reward = 0.0 if self._wins is None else 1.0 if self._wins else -1.0
        return self._observe(), reward, True, False, {"won": self._wins}

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "FIRE"]

    def _observe(self) -> Any:
        return np.array([self._number, self._frame], np.float32)


gym.register("Duels-v0", Duels)


def won_by(seed: int | None) -> bool | None:
    """Whether the episode of a seed is won; None if it is neither won nor lost."""
    return (True, False, None)[(seed or 0) % 3]
