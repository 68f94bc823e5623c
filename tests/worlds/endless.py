"""An endless environment, learners that call functions, and runners of both, for processes that import no test."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import AsyncRunner
from async_wrappers.live import Decision
from tests.worlds.learners import Counting

__all__ = ["Counter", "Endless", "make_learning", "make_lingering", "make_runner"]


class Endless(gym.Env[Any, Any]):
    """Pays what an action says, and calls a function on each frame."""

    def __init__(self, on_frame: Callable[[int], None] = lambda frame: None) -> None:
        self.observation_space = gym.spaces.Box(0, 10**9, (1,), np.int64)
        self.action_space = gym.spaces.Discrete(8)
        self._on_frame = on_frame

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", *"1234567"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.frame = 0
        return np.array([0]), {}

    def step(self, action: Any) -> Any:
        self._on_frame(self.frame)
        self.frame += 1
        return np.array([self.frame]), float(action), False, False, {}


def make_runner(make_env: Any, make_policy: Any, workers: int = 2, fps: int = 100, **kwargs: Any) -> AsyncRunner:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="workers=")
        return AsyncRunner(make_env, make_policy, workers, fps, playout=1, slot=1, latency=0.005, **kwargs)


class Counter(Counting):
    """A learner that counts its updates, on which it calls a function; so does its making."""

    def __init__(self, on_start: Callable[[], None], on_update: Callable[[int], None], on_save: Callable[[], None]):
        on_start()
        super().__init__()
        self._on_update, self._on_save = on_update, on_save
        self.updates = self.saves = 0
        self.told: list[Mapping[str, Any]] = []

    def tell(self, facts: Mapping[str, Any]) -> None:
        self.told.append(facts)

    def apply(self, gradients: Any) -> Mapping[str, float]:
        self.updates += 1
        scalars = super().apply(gradients)
        self._on_update(self.updates)
        time.sleep(0.001)
        return scalars

    def state_dict(self) -> dict[str, Any]:
        self.saves += 1
        self._on_save()
        return {
            "updates": self.updates,
            "count": self.count,
            "pid": os.getpid(),
            "saves": self.saves,
            "told": self.told,
        }


def nothing(*_: Any) -> None:
    pass


def make_learning(
    on_start: Callable[[], None] = nothing,
    on_update: Callable[[int], None] = nothing,
    on_save: Callable[[], None] = nothing,
    **kwargs: Any,
) -> AsyncRunner:
    class Reader:
        def load_weights(self, weights: Any, version: int) -> None:
            pass

        def act(self, observation: Any, decision: Decision) -> int:
            return 1

    kwargs.setdefault("make_learner", lambda: Counter(on_start, on_update, on_save))
    return make_runner(lambda: Endless(), lambda: Reader(), workers=1, **kwargs)


class Lingers(Counter):
    """A learner whose `close` takes a while, and is over once a file is there."""

    def __init__(self, closed: Path, seconds: float) -> None:
        super().__init__(nothing, nothing, nothing)
        self._closed, self._seconds = closed, seconds

    def close(self) -> None:
        time.sleep(self._seconds)
        self._closed.touch()


def make_lingering(closed: Path, seconds: float) -> AsyncRunner:
    return make_learning(make_learner=lambda: Lingers(closed, seconds))
