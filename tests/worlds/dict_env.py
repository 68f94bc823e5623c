"""`DictEnv`: `DriftingEnv` as seen through several arrays of all kinds, one of them an image; `TupleEnv`, in tuples."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from tests.worlds.drifting_env import DriftingEnv

SIZE = 29  # the least that is an image


class DictEnv(gym.ObservationWrapper[Any, Any, Any]):
    """Shows the same facts in a Dict: ``drift`` (floats), ``picture`` (uint8), ``push`` and more, one inside another.

    Args:
        picture: Whether there is an image.
        reuse: Return the same arrays each time, with new contents.
        arguments: Of `DriftingEnv`.
    """

    def __init__(self, picture: bool = True, reuse: bool = False, **arguments: Any) -> None:
        super().__init__(DriftingEnv(reuse=reuse, **arguments))
        self.lives = self.unwrapped.lives
        inner = {"push": Discrete(6, start=-1), "clock": MultiDiscrete([2, 3]), "odd": MultiBinary(1)}
        image = {"picture": Box(0, 255, (SIZE, SIZE), np.uint8)} if picture else {}
        self.observation_space = Dict(drift=Box(-np.inf, np.inf, (2,), np.float32), told=Dict(inner), **image)
        self._picture = picture
        self._reused = self.observation_space.sample() if reuse else None

    def observation(self, observation: Any) -> Any:
        drift, push, tenths = observation.tolist()
        frame = round(10 * tenths)
        shown = {
            "drift": np.array([drift, tenths], np.float32),
            "told": {
                "push": np.int64(push),
                "clock": np.array([frame % 2, frame % 3]),
                "odd": np.array([frame % 2], np.int8),
            },
        }
        if self._picture:
            shown["picture"] = np.zeros((SIZE, SIZE), np.uint8)
            shown["picture"][frame % SIZE] = 255
        if self._reused is None:
            return shown
        for key in ("drift", *(["picture"] if self._picture else [])):
            self._reused[key][:] = shown[key]
        for key in ("clock", "odd"):
            self._reused["told"][key][:] = shown["told"][key]
        self._reused["told"]["push"] = shown["told"]["push"]
        return self._reused


class TupleEnv(gym.ObservationWrapper[Any, Any, Any]):
    """Shows the same facts in tuples and dicts inside one another, the frame as an int64 Box.

    Args:
        arguments: Of `DriftingEnv`.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(DictEnv(picture=False, **arguments))
        self.lives = self.unwrapped.lives
        told = self.env.observation_space["told"]
        frame = Box(0, 10**6, (1,), np.int64)
        inner = Dict(clock=told["clock"], pair=Tuple((told["odd"], frame)))
        self.observation_space = Tuple((self.env.observation_space["drift"], told["push"], inner))

    def observation(self, observation: Any) -> Any:
        told = observation["told"]
        frame = np.array([round(10 * float(observation["drift"][1]))])
        return observation["drift"], told["push"], {"clock": told["clock"], "pair": (told["odd"], frame)}
