"""`SeededEnv`: an environment that follows from its seed and its actions, in every form of observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

__all__ = ["SeededEnv"]


class SeededEnv(gym.Env[Any, Any]):
    """Episodes of random lengths; each observation and reward depends on all actions since the reset.

    Args:
        form: Of observations: ``"array"``, ``"dict"``, ``"tuple"`` or ``"number"``.
        shortest: Frames of the shortest episode.
        longest: Frames of the longest episode.
        action_space: Three actions, of which number 1 is the no-op, where none is given.

    Attributes:
        paid: The sum of all rewards since it was made.
    """

    def __init__(
        self, form: str = "array", shortest: int = 1, longest: int = 8, action_space: gym.Space[Any] | None = None
    ) -> None:
        numbers = Box(-(2**40), 2**40, (3,), np.int64)
        self.observation_space = {
            "array": numbers,
            "dict": Dict({"numbers": numbers, "part": Tuple((Discrete(5), Box(-9, 9, (1,), np.float32)))}),
            "tuple": Tuple((numbers, Discrete(5))),
            "number": Discrete(1000),
        }[form]
        self.action_space = Discrete(3) if action_space is None else action_space
        self.noop_action = 1
        self.paid = 0.0
        self._form, self._lengths = form, (shortest, longest + 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._frame, self._history = 0, int(self.np_random.integers(1000))
        self._length = int(self.np_random.integers(*self._lengths))
        self._ends = [(True, False), (False, True), (True, True)][int(self.np_random.integers(3))]
        return self._observation(), {"drawn": self._history}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        number = int(np.asarray(action).sum() * 10)
        self._frame += 1
        self._history = (self._history * 31 + number * 7 + self._frame) % 99991
        reward = float(self._history % 9 - 4)
        self.paid += reward
        over = self._frame >= self._length
        terminated, truncated = self._ends if over else (False, False)
        return self._observation(), reward, terminated, truncated, {"history": self._history}

    def _observation(self) -> Any:
        numbers = np.array([self._length, self._frame, self._history])
        if self._form == "array":
            return numbers
        if self._form == "dict":
            part = (self._history % 5, np.array([self._frame / 8], np.float32))
            return {"numbers": numbers, "part": part}
        return (numbers, self._history % 5) if self._form == "tuple" else self._history % 1000
