"""`sense`: how old each sensor's reading is as frames begin, and how many come in a second.

`probe` asks it of an environment whose sensors are late, and `doctor` of a machine that stamps its readings, at rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from async_wrappers.gymnasium_api import begun, stepped
from async_wrappers.live.report.report import distribution
from async_wrappers.live.report.sensor_readings import SensorReadings, note_readings
from async_wrappers.live.world.environment import timed_sensors_of
from async_wrappers.live.world.machine import MachineEnv
from async_wrappers.wrappers.default_action import find_noop

Sensed = dict[str, dict[str, Any]]
"""By sensor: ``age_ms`` (mean, std, p50, p95, p99, max), ``rate`` and ``lost``, as in a live run's report."""


def sense(env: gym.Env[Any, Any], act: Callable[[], Any], frames: int, fps: float, seed: int | None = None) -> Sensed:
    """Return the ages of an environment's sensors over some frames; empty if it reports none.

    Args:
        env: The environment, or a `MachineEnv`.
        act: Returns the next frame's action.
        frames: How many.
        fps: Frames per second.
        seed: Of the first episode.
    """
    sensors = {name: SensorReadings(name, numbers) for name, numbers in timed_sensors_of(env).items()}
    if not sensors:
        return {}
    length, stamped = 1e9 / fps, isinstance(env, MachineEnv)
    note_readings(sensors, begun(env, seed=seed)[1], 0.0, length, True, stamped)
    frame = 0
    for _ in range(frames):
        frame += 1
        *_, terminated, truncated, info = stepped(env, act())
        note_readings(sensors, info, frame * length, length, False, stamped)
        if terminated or truncated:
            frame = 0
            note_readings(sensors, begun(env)[1], 0.0, length, True, stamped)
    return {
        name: {"age_ms": distribution(age / 1e6 for age in seen.ages), "rate": seen.rate, "lost": seen.lost}
        for name, seen in sensors.items()
    }


def sense_machine(make_machine: Callable[[], Any], fps: float, seconds: float) -> Sensed:
    """Return the ages of a machine's sensors on a real clock. It is sent what is safe alone, and closed at the end.

    Args:
        make_machine: Makes the machine.
        fps: Frames per second.
        seconds: How long.

    Raises:
        ValueError: It is no machine, stamps no readings, or says of no action that it is safe.
    """
    env = MachineEnv(make_machine(), fps)
    try:
        if not timed_sensors_of(env):
            raise ValueError(
                f"make_machine must make a Machine with timed_sensors, whose readings it stamps, got {env.machine!r}"
            )
        noop = None if env.holds else find_noop(env)
        if noop is None and not env.holds:
            raise ValueError(f"make_machine must make a Machine with noop_action or hold_action, got {env.machine!r}")
        return sense(env, lambda: env.held if env.holds else noop, max(3, round(fps * seconds)), fps)
    finally:
        env.close()
