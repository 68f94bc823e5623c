"""Machines of tests: an environment cut into two halves, and a joint that turns in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from async_wrappers.wrappers.default_action import find_noop

__all__ = ["Arm", "Halved", "Turning"]


class Halved:
    """An environment as a machine on simulated time: `send` keeps the action, `observe` makes the step.

    Args:
        env: The environment.
        changes: From an action to what is really sent, None where that is the same.
        now: Tells the time; `sends` and `reads` hold when each half was called.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        changes: Callable[[Any], Any] = lambda action: None,
        now: Callable[[], int] = lambda: 0,
    ) -> None:
        self.env, self._changes, self._now = env, changes, now
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.received: list[list[Any]] = []  # by episode, what came after its last frame too
        self.sends: list[int] = []
        self.reads: list[int] = []
        self.closes = 0

    @property
    def noop_action(self) -> Any:
        if (noop := find_noop(self.env)) is None:
            raise AttributeError("the environment has no no-op")
        return noop

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.received.append([])
        return self.env.reset(seed=seed, options=options)

    def send(self, action: Any) -> Any:
        self.sends.append(self._now())
        sent = self._changes(action)
        self._action = action if sent is None else sent
        self.received[-1].append(self._action)
        return sent

    def observe(self) -> Any:
        self.reads.append(self._now())
        return self.env.step(self._action)

    def close(self) -> None:
        self.closes += 1


class Arm:
    """An arm that is driven by places, and goes there at once: the action is the place, and the reading too.

    Args:
        place: Where it is when it is made; a reset leaves it there.
        says: Whether it says how it is held.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-180.0, 180.0, (2,), np.float32)
    fps = 50

    def __init__(self, place: Any = (80.0, -60.0), says: bool = True) -> None:
        self.place = np.array(place, np.float32)
        self.received: list[list[float]] = []
        self.closes = 0
        if says:
            self.hold_action = np.copy

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.place.copy(), {}

    def send(self, action: Any) -> None:
        self.received.append(action.tolist())
        self.place[:] = action
        action[:] = 0  # what it does with its array is its own affair

    def observe(self) -> Any:
        return self.place.copy(), 0.0, False, False, {}

    def close(self) -> None:
        self.closes += 1


class Turning:
    """A joint that turns at the speed it was sent last, in a thread that waits for nobody.

    It is read as ``[angle, seconds of the monotonic clock]``, and pays for being near 0.

    Args:
        fails: Name of the method that raises at its third call, if any.
        notes: A file where it writes what happens, if any.
        rests: Seconds that it takes to come to rest.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    noop_action = np.zeros(1, np.float32)
    fps = 50

    def __init__(self, fails: str | None = None, notes: Path | None = None, rests: float = 0.0) -> None:
        self._fails, self._notes, self._rests = fails, notes, rests
        self._calls = {"send": 0, "observe": 0}
        self.angle = self.speed = 0.0
        self.closes = 0
        self.reads: list[int] = []
        self.speeds: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._turn, daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        before = time.monotonic()
        while not self._over.wait(0.002):
            now = time.monotonic()
            self.angle += self.speed * (now - before)
            before = now

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.angle = self.speed = 0.0
        return self._reading(), {}

    def send(self, action: Any) -> None:
        self._count("send")
        self.speed = float(action[0])
        self.speeds.append(self.speed)

    def observe(self) -> Any:
        self._count("observe")
        return self._reading(), -abs(self.angle), False, False, {}

    def close(self) -> None:
        self.closes += 1
        self.speed = 0.0
        self._over.set()
        self._thread.join(5)
        time.sleep(self._rests)
        if self._notes is not None:
            with self._notes.open("a") as file:
                print(f"closed after {self._calls['send']} sends", file=file)

    def _reading(self) -> Any:
        self.reads.append(time.monotonic_ns())
        return np.array([self.angle, time.monotonic()])

    def _count(self, method: str) -> None:
        self._calls[method] += 1
        if method == self._fails and self._calls[method] == 3:
            raise OSError("the cable is cut")
