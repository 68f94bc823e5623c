"""Rows of several environments as they were lived, and the blocks that a source of sequences is given of them."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

SPACE = Box(0, 9000, (2,), np.float32)
EXTRAS = Dict(logits=Box(-9, 9, (2,), np.float32), state=Box(-9, 9, (3,), np.float32))


class World:
    """Environments whose every observation is a number of its own, and what a replay is given of them."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.num_envs, self._rng = num_envs, np.random.default_rng(seed)
        self._count = np.zeros(num_envs, int)  # observations of each environment
        self.running = np.zeros(num_envs, bool)
        # Rows of each environment: observation, decision or None, whether it is the first of an episode.
        self.rows: list[list[tuple[float, dict[str, Any] | None, bool]]] = [[] for _ in range(num_envs)]

    def _observation(self, env_id: int) -> float:
        self._count[env_id] += 1
        return float(1000 * env_id + self._count[env_id])

    def block(self) -> dict[str, Any]:
        """A step of some of the environments."""
        chosen = np.flatnonzero(self._rng.random(self.num_envs) < 0.8)
        chosen = chosen if len(chosen) else np.arange(self.num_envs)
        r = len(chosen)
        end = self._rng.choice(3, r, p=[0.7, 0.15, 0.15])
        block: dict[str, Any] = {
            "env_ids": chosen,
            "action": self._rng.integers(2, size=r),
            "reward": self._rng.normal(size=r).astype(np.float32),
            "interval": self._rng.integers(1, 4, size=r),
            "terminal": end == 1,
            "truncated": end == 2,
            "extras": {
                "logits": self._rng.normal(size=(r, 2)).astype(np.float32),
                "state": self._rng.normal(size=(r, 3)).astype(np.float32),
            },
            "final": {},
        }
        observation = np.zeros((r, 2), np.float32)
        for row, env_id in enumerate(chosen.tolist()):
            observation[row] = here = self._observation(env_id)
            step = {name: block[name][row] for name in ("action", "reward", "interval", "terminal")}
            step |= {name: values[row] for name, values in block["extras"].items()}
            self.rows[env_id].append((here, step, not self.running[env_id]))
            self.running[env_id] = not end[row]
            if end[row]:
                self._end(env_id, final := self._observation(env_id))
                block["final"][env_id] = np.full(2, final, np.float32)
        return {**block, "observation": observation}

    def _end(self, env_id: int, final: float) -> None:
        self.rows[env_id].append((final, None, False))
        self.running[env_id] = False

    def cut(self, env_id: int) -> Any:
        """The last observation of an episode that is cut."""
        if not self.running[env_id]:
            return np.zeros(2, np.float32)
        self._end(env_id, final := self._observation(env_id))
        return np.full(2, final, np.float32)


def trained(mixture: Any, world: World, blocks: int) -> list[dict[str, Any]]:
    """The batches of a learner that updates whenever it can."""
    drawn = []
    for _ in range(blocks):
        mixture.extend(world.block())
        while mixture.drawable:
            drawn.append(mixture.sample())
    return drawn


class AtOnce(Executor):
    """A thread that is none."""

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        return future


class AtLast(Executor):
    """The slowest thread: it computes when somebody waits for the result, and not before."""

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        class Late(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                if not self.done():
                    self.set_result(function(*arguments, **named))
                return super().result(timeout)

        return Late()
