"""A machine whose two sensors are late, each by a latency of its own, and stamped by a clock of its own."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np

FPS = 50
BEGIN = 1_000.0  # seconds of its clock


class Stamping:
    """Shows how many frames had begun when each reading was taken; a frame passes with each `observe`.

    Args:
        latencies: Seconds of the camera's readings, in turn.
        rate: Of the camera, readings a second.
        joints: Latency of the joints in seconds, which are read as each frame begins.
    """

    observation_space = gym.spaces.Dict({name: gym.spaces.Box(0, 1e9, (1,)) for name in ("camera", "joints")})
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    noop_action = np.zeros(1, np.float32)
    fps = FPS
    timed_sensors: Any = ("camera", "joints")

    def __init__(self, latencies: Any = (0.06,), rate: Any = 25, joints: float = 0.02) -> None:
        self.latencies = [Fraction(str(each)) * FPS for each in latencies]  # frames, as all that follows
        self.apart, self.joints = FPS / Fraction(str(rate)), Fraction(str(joints)) * FPS
        self.most = 2 * math.ceil(max(self.latencies) / self.apart) + 1  # readings back to one that has arrived
        self.frame = 0

    def now(self) -> float:
        """Return the time of its clock."""
        return BEGIN + self.frame / FPS

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.frame = 0
        return self.read()

    def send(self, action: Any) -> None:
        pass

    def observe(self) -> Any:
        self.frame += 1
        observation, info = self.read()
        return observation, 0.0, False, False, info

    def read(self) -> Any:
        """Return the newest readings that have arrived, those of the first frame before, and their stamps."""
        taken = {"camera": Fraction(0), "joints": max(self.frame - Fraction(math.ceil(self.joints)), Fraction(0))}
        newest = int(self.frame / self.apart)
        for number in range(max(newest - self.most, 0), newest + 1):
            when = number * self.apart
            if when + self.latencies[number % len(self.latencies)] <= self.frame:
                taken["camera"] = max(taken["camera"], when)
        observation = {name: np.array([math.floor(each)], np.float32) for name, each in taken.items()}
        return observation, {"sensor_stamps": {name: BEGIN + float(each / FPS) for name, each in taken.items()}}

    def close(self) -> None:
        pass


def make_still() -> Any:
    """Make a policy that holds the machine; for processes that import no test."""
    return lambda observation: Stamping.noop_action
