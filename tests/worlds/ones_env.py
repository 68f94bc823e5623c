"""An environment whose observations are all ones, for what is joined to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from tests.worlds.recording_env import RecordingEnv

__all__ = ["OnesEnv", "one_hot"]


class OnesEnv(RecordingEnv):
    """Shows ones of any data type and shape."""

    def __init__(self, dtype: Any = np.float32, shape: tuple[int, ...] = (2,), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation_space = Box(0, 3, shape, dtype)

    def show(self) -> tuple[Any, dict[str, Any]]:
        return np.ones(self.observation_space.shape, self.observation_space.dtype), {}


def one_hot(action: int, size: int) -> list[float]:
    return [float(number == action) for number in range(size)]
