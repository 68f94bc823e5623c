"""How old a machine's reading is when inference begins, as a `Machine` and as an environment whose step reads at once.

A joint turns in a thread of its own, and each reading holds the time at which it was taken. One worker infers for a
millisecond, and answers with the age of its reading; the environment's process collects the ages. Hold, at 50 Hz: p99
at most 1 ms as a `Machine`. The environment beside it, in turns, is a whole frame behind.

    python -m benchmarks.machine_age [--fps 50] [--seconds 10] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import AsyncRunner


class Joint:
    """Turns by itself at 1 kHz; the action is the age of a reading, in seconds, and 0 is none."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(0.0, np.inf, (1,), np.float64)
    noop_action = np.zeros(1)

    def __init__(self) -> None:
        self.phase_state: list[float] = []
        self._angle, self._over = 0.0, threading.Event()
        threading.Thread(target=self._turn, daemon=True).start()

    def _turn(self) -> None:
        while not self._over.wait(0.001):
            self._angle += 0.001

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        return self._reading(), {}

    def send(self, action: Any) -> None:
        """Collect the age."""
        if action[0] > 0:
            self.phase_state.append(float(action[0]))

    def observe(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Read the joint."""
        return self._reading(), 0.0, False, False, {}

    def close(self) -> None:
        """Come to rest."""
        self._over.set()

    def _reading(self) -> Any:
        return np.array([self._angle, time.monotonic()])


class JointEnv(gym.Env[Any, Any]):
    """The same joint, whose step sends and reads at once."""

    observation_space, action_space = Joint.observation_space, Joint.action_space

    def __init__(self) -> None:
        self._joint = Joint()
        self.phase_state = self._joint.phase_state

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        return self._joint.reset()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Send, and read."""
        self._joint.send(action)
        return self._joint.observe()

    def close(self) -> None:
        """Come to rest."""
        self._joint.close()


def make_policy() -> Any:
    def act(observation: Any) -> Any:
        age = time.monotonic() - observation[1]
        time.sleep(0.001)
        return np.array([age])

    return act


def ages(kind: type, fps: float, seconds: float) -> list[float]:
    """Return the ages of a run, in milliseconds."""
    make = partial(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = AsyncRunner(make, make_policy, 1, fps, calibration_time=0.5, default_action=np.zeros(1))
    return [age * 1e3 for age in runner.run(seconds=seconds).phase_state]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fps", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {"Machine": [], "environment": []}
    for _ in range(arguments.rounds):
        for name, kind in (("Machine", Joint), ("environment", JointEnv)):
            p50, p99 = np.percentile(ages(kind, arguments.fps, arguments.seconds), [50, 99])
            found[name].append((float(p50), float(p99)))
    print(f"age of the reading as inference begins, {arguments.fps:g} Hz, ms; load {os.getloadavg()[0]:.1f}")
    for name, rounds in found.items():
        p50, p99 = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(
            f"{name:<12} p50 {p50:7.3f}   p99 {p99:7.3f}   p99 of each round {[round(each, 3) for _, each in rounds]}"
        )
    held = statistics.median(p99 for _, p99 in found["Machine"]) <= 1
    print("held" if held else "MISSED", "(bar: p99 of the Machine <= 1 ms)")


if __name__ == "__main__":
    main()
