"""`DoubleBuffered`: one half of the environments steps while the actions of the other half are computed.

As in Sample Factory (Petrenko et al. 2020, arXiv 2006.11751, section 3.1). The halves take turns, always in the same
order, so each shows the same as alone: nothing depends on which is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from async_wrappers.batched.protocol import BatchedEnvs, Shown
from async_wrappers.batched.rows import numbered, together
from async_wrappers.batched.vector_envs import VectorEnvs, seeds_of
from async_wrappers.wrapper_statistics import Statistics, give_statistics, statistics_of_envs


class DoubleBuffered:
    """Two `BatchedEnvs` as one, which take turns: `recv` returns rows of the first, of the second, of the first, ...

    While this process computes actions for the rows of one half, the other half steps: `ProcessEnvs` in its processes,
    an ``AtariVectorEnv`` in its threads, another vector in a thread of this process (`VectorEnvs.work_ahead`), which
    helps as far as it releases the interpreter's lock. Two halves of ``AtariVectorEnv`` each want half of the cores
    (``num_threads``).

        loop: rows of a -> send -> rows of b -> send -> rows of a -> ...

    Args:
        a: The first half, environments 0 to ``a.num_envs - 1``.
        b: The second half, whose environments follow.

    Raises:
        ValueError: Halves with other spaces, or twice the same half.
    """

    def __init__(self, a: BatchedEnvs, b: BatchedEnvs) -> None:
        if a is b:
            raise ValueError(f"b must be other environments than a, got {b!r} for both")
        for name in ("observation_space", "action_space"):
            if getattr(a, name) != getattr(b, name):
                raise ValueError(f"b must have the {name} of a, {getattr(a, name)}, got {getattr(b, name)}")
        self.observation_space, self.action_space = a.observation_space, a.action_space
        self.num_envs = a.num_envs + b.num_envs
        self._halves = (_Half(a, 0), _Half(b, a.num_envs))
        self._turn = 0  # whose rows are next

    def begin(self, seeds: Sequence[int]) -> None:
        given = seeds_of(seeds, self.num_envs)
        for half in self._halves:
            half.envs.begin(given[half.first : half.first + half.envs.num_envs].tolist())
        self._turn = 0

    def recv(self) -> Shown:
        half = self._halves[self._turn]
        shown = half.numbered(half.envs.recv())
        self._turn = 1 - self._turn
        return shown

    def send(self, env_ids: NDArray[np.int64], actions: Any) -> None:
        """The rows of the last `recv` of their half may be answered before or after the next."""
        if not len(env_ids):
            raise ValueError("env_ids must be those of the last recv(), got none")
        half = self._halves[int(env_ids[0] >= self._halves[1].first)]
        half.envs.send(env_ids - half.first, actions)

    def cut(self) -> Shown:
        return together([half.numbered(half.envs.cut()) for half in self._halves])

    def statistics(self) -> list[Statistics]:
        return [each for half in self._halves for each in statistics_of_envs(half.envs)]

    def load_statistics(self, statistics: Sequence[Statistics], frozen: bool = False) -> None:
        for half in self._halves:
            give_statistics(half.envs, statistics[half.first : half.first + half.envs.num_envs], frozen)

    @property
    def restarts(self) -> int:
        """Processes of both halves that were replaced."""
        return sum(getattr(half.envs, "restarts", 0) for half in self._halves)

    def close(self) -> None:
        for half in self._halves:
            half.envs.close()


class _Half:
    """One half; environment i of it is number ``first + i`` of all."""

    def __init__(self, envs: BatchedEnvs, first: int) -> None:
        self.envs, self.first = envs, first
        if isinstance(envs, VectorEnvs):
            envs.work_ahead()

    def numbered(self, shown: Shown) -> Shown:
        """Return rows with the numbers that they have among all."""
        return numbered(shown, self.first)
