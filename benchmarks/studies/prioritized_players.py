"""The contestants of `benchmarks.studies.prioritized_replay`: each keeps a million transitions in a process of its own.

A process reads lines ``BATCH CALLS`` and answers each with the median microseconds of one ``update sample``: what it
takes to set the priorities of the batch drawn last, and to draw the next one with its importance weights. It stands
still in between. Only the contestant's own library and NumPy are imported, so its Python may lack everything else.

    python -m benchmarks.studies.prioritized_players ours

All keep the same transitions: two observations of four float32, an action, a reward and an end. A capacity of
1,000,000 is filled, and every transition has been given a priority of its own; alpha 0.6, beta 0.4.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

CAPACITY, WIDTH, EPISODE = 1_000_000, 4, 1000
ALPHA, BETA = 0.6, 0.4


class Player(Protocol):
    """A replay that is full."""

    def update(self, priority: np.ndarray) -> None:
        """Set the priorities of the batch drawn last."""
        ...

    def sample(self, batch_size: int) -> None:
        """Draw a batch with its weights."""
        ...


def observations() -> np.ndarray:
    """Return as many observations as there are transitions, and one more, [N + 1, 4]."""
    return np.random.default_rng(0).random((CAPACITY + 1, WIDTH), dtype=np.float32)


def priorities() -> np.ndarray:
    """Return a priority for each transition."""
    return np.random.default_rng(1).random(CAPACITY) + 0.01


class Ours:
    """Our prioritised replay, drawing as `sampling` says."""

    def __init__(self, sampling: Any) -> None:
        from gymnasium.spaces import Box

        from async_wrappers.agents.replay.replay import create_replay

        self._replay = create_replay(
            Box(-np.inf, np.inf, (WIDTH,)),
            selector="prioritized",
            capacity=CAPACITY,
            priority_exponent=ALPHA,
            importance_exponent=BETA,
            sampling=sampling,
        )
        shown = observations()
        for number in range(CAPACITY):
            self._replay.observe(
                {
                    "observation": shown[number],
                    "action": number % 18,
                    "reward": 1.0,
                    "interval": 1,
                    "terminal": number % EPISODE == EPISODE - 1,
                    "truncated": False,
                    "next_observation": shown[number + 1],
                }
            )
        slots = self._replay.valid_slots()
        self._replay.set_priorities(slots, priorities()[: len(slots)])
        self._index = slots

    def update(self, priority: np.ndarray) -> None:
        """See `Player`."""
        self._replay.set_priorities(self._index, priority)

    def sample(self, batch_size: int) -> None:
        """See `Player`."""
        self._index = self._replay.sample(batch_size)["index"]


class Cpprb:
    """cpprb's ``PrioritizedReplayBuffer`` (C++)."""

    def __init__(self) -> None:
        from cpprb import PrioritizedReplayBuffer

        fields: dict[str, dict[str, Any]] = {
            "obs": {"shape": WIDTH},
            "act": {"dtype": np.int64},
            "rew": {},
            "next_obs": {"shape": WIDTH},
            "done": {},
        }
        self._buffer = PrioritizedReplayBuffer(CAPACITY, fields, alpha=ALPHA)
        shown = observations()
        number = np.arange(CAPACITY)
        self._buffer.add(
            obs=shown[:-1],
            act=number % 18,
            rew=np.ones(CAPACITY),
            next_obs=shown[1:],
            done=number % EPISODE == EPISODE - 1,
        )
        self._buffer.update_priorities(number, priorities())

    def update(self, priority: np.ndarray) -> None:
        """See `Player`."""
        self._buffer.update_priorities(self._index, priority)

    def sample(self, batch_size: int) -> None:
        """See `Player`."""
        self._index = self._buffer.sample(batch_size, BETA)["indexes"]


class TorchRL:
    """TorchRL's ``PrioritizedSampler`` (C++) over a storage of tensors."""

    def __init__(self) -> None:
        import torch
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        from torchrl.data.replay_buffers.samplers import PrioritizedSampler

        torch.set_num_threads(1)
        self._buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(CAPACITY),
            sampler=PrioritizedSampler(CAPACITY, alpha=ALPHA, beta=BETA),
            batch_size=32,
        )
        shown, number = torch.from_numpy(observations()), torch.arange(CAPACITY)
        fields = {
            "obs": shown[:-1],
            "act": number % 18,
            "rew": torch.ones(CAPACITY),
            "next_obs": shown[1:],
            "done": number % EPISODE == EPISODE - 1,
        }
        self._buffer.extend(TensorDict(fields, batch_size=[CAPACITY]))
        self._buffer.update_priority(number, torch.from_numpy(priorities()).float())
        self._tensor = torch.from_numpy

    def update(self, priority: np.ndarray) -> None:
        """See `Player`."""
        self._buffer.update_priority(self._index, self._tensor(priority))

    def sample(self, batch_size: int) -> None:
        """See `Player`."""
        self._index = self._buffer.sample(batch_size)["index"]


PLAYERS: Mapping[str, Callable[[], Player]] = {
    "ours": lambda: Ours("stratified"),
    "ours, iid": lambda: Ours("iid"),
    "cpprb": Cpprb,
    "TorchRL": TorchRL,
}


def play(player: Player, batch_size: int, calls: int) -> tuple[float, float]:
    """Return the median microseconds of an update and of a sample."""
    rng = np.random.default_rng()
    updates, samples = [], []
    player.sample(batch_size)
    for _ in range(calls):
        priority = rng.random(batch_size, dtype=np.float32) + np.float32(0.01)
        begin = time.perf_counter()
        player.update(priority)
        middle = time.perf_counter()
        player.sample(batch_size)
        updates.append(middle - begin)
        samples.append(time.perf_counter() - middle)
    return 1e6 * statistics.median(updates), 1e6 * statistics.median(samples)


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # read when a library is imported, below
    player = PLAYERS[sys.argv[1]]()
    print("ready", flush=True)
    for line in sys.stdin:
        batch_size, calls = map(int, line.split())
        print(*play(player, batch_size, calls), flush=True)


if __name__ == "__main__":
    main()
