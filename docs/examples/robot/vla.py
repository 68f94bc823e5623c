"""Stands for a vision-language-action model: a chunk of 25 positions of the arm, after 80 to 160 ms.

It sees no pictures, but knows the arm's geometry. In this folder ``python robot.py --policy vla:make_policy`` serves
and plays it, as it would one of your own (docs/live/robots.md).
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from async_wrappers import Uniform

CHUNK, FPS = 25, 50  # positions of a chunk, a frame each; frames per second
FASTEST = 2.0  # radians per second
LINK = 0.3  # metres
LATENCY = Uniform(0.080, 0.160)  # seconds


class Policy:
    """From an observation of `arm.Arm` [10] to both angles on the frames from there on, radians [25, 2]."""

    def __init__(self) -> None:
        self.latencies = LATENCY.stream(os.getpid())

    def act(self, observation: Any, decision: Any) -> np.ndarray:
        time.sleep(self.latencies.draw() / 1e9)
        angles = np.arctan2(observation[2:4], observation[:2])
        x, y = 2 * LINK * (observation[6:8] + observation[8:10])  # of the target
        bend = np.arccos(np.clip((x * x + y * y) / (2 * LINK * LINK) - 1, -1, 1))
        elbow = np.copysign(bend, angles[1])
        shoulder = np.arctan2(y, x) - elbow / 2
        way = np.array([np.arctan2(np.sin(shoulder), np.cos(shoulder)), elbow]) - angles
        furthest = FASTEST / FPS * np.arange(CHUNK)[:, None]
        return (angles + np.clip(way, -furthest, furthest)).astype(np.float32)


def make_policy() -> Policy:
    return Policy()
