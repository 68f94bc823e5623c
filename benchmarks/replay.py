"""What a million Atari transitions take in memory, and how fast the replay stores and samples.

Beside it: Stable-Baselines3's ``ReplayBuffer``, as it is and with ``optimize_memory_usage=True``. All hold 84 x 84 grey
frames in stacks of four; a sample is a batch of 32, each library's own ``sample()`` (Stable-Baselines3's ends with the
copy into tensors). Bytes per transition are the growth of the process's resident memory while the buffer is filled
from empty to full; bytes for a million are computed from the arrays' sizes. Sampling is timed call by call, in
interleaved bursts, from buffers far larger than the processor's caches.

    python -m benchmarks.replay

Hold: <= 7.2 GB (10^9 bytes) for 1 M transitions; a batch <= 100 us (median).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import psutil
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.buffers import ReplayBuffer

from async_wrappers.agents.replay.replay import create_replay
from benchmarks.interleave import interleave, print_hold, print_load, print_table

STACK, SIDE, BATCH, EPISODE = 4, 84, 32, 1000
OURS = "ours"


def frames() -> Iterator[np.ndarray]:
    """Yield frames for ever; what they show does not matter, only that they are written."""
    shown = np.random.default_rng(0).integers(256, size=(64, SIDE, SIDE), dtype=np.uint8)
    while True:
        yield from shown


class Ours:
    """A ring of `size` observations, with priorities or without."""

    def __init__(self, size: int, prioritized: bool = False) -> None:
        self.size = size
        space = Box(0, 255, (SIDE, SIDE), np.uint8)
        selector = "prioritized" if prioritized else "uniform"
        self.replay = create_replay(space, selector=selector, capacity=size, stack_size=STACK, batch_size=BATCH)
        self.nbytes = self.replay.nbytes
        self.sample = self.replay.sample

    def observe_each(self) -> Iterator[float]:
        """Store transitions for ever, yielding the seconds that each took."""
        for number, frame in enumerate(frames()):
            terminal = number % EPISODE == EPISODE - 1
            transition = {
                "observation": frame,
                "action": number % 18,
                "reward": 1.0,
                "interval": 1,
                "terminal": terminal,
                "truncated": False,
                "next_observation": frame if terminal else None,
            }
            begin = time.perf_counter()
            self.replay.observe(transition)
            yield time.perf_counter() - begin


class Peer:
    """Stable-Baselines3's buffer of `size` transitions."""

    def __init__(self, size: int, optimized: bool) -> None:
        self.size = size
        self._buffer = ReplayBuffer(
            size,
            Box(0, 255, (STACK, SIDE, SIDE), np.uint8),
            Discrete(18),
            device="cpu",
            optimize_memory_usage=optimized,
            handle_timeout_termination=not optimized,
        )
        arrays = [value for value in vars(self._buffer).values() if isinstance(value, np.ndarray)]
        self.nbytes = sum(array.nbytes for array in arrays)
        self.sample = partial(self._buffer.sample, BATCH)

    def observe_each(self) -> Iterator[float]:
        """Store transitions for ever, yielding the seconds that each took."""
        shown = frames()
        stack = np.stack(list(islice(shown, STACK)))[None]
        for number, frame in enumerate(shown):
            next_stack = np.concatenate([stack[:, 1:], frame[None, None]], axis=1)
            transition = (stack, next_stack, np.array([number % 18]), np.array([1.0]), np.array([False]), [{}])
            begin = time.perf_counter()
            self._buffer.add(*transition)
            yield time.perf_counter() - begin
            stack = next_stack


def fill(name: str, replay: Ours | Peer) -> None:
    """Fill a replay and print its bytes and how long a transition takes to store."""
    process = psutil.Process()
    before = process.memory_info().rss
    seconds = list(islice(replay.observe_each(), replay.size))
    grown = process.memory_info().rss - before
    print(
        f"{name:38} {replay.size:7d} stored: {grown / replay.size:8.0f} bytes each resident, "
        f"{replay.nbytes / replay.size:8.0f} in arrays; store: median {1e6 * statistics.median(seconds):5.1f} us"
    )


def million_bytes(prioritized: bool = False) -> int:
    """Return the bytes of our replay of a million; its pages are untouched and take no memory."""
    nbytes: int = Ours(1_000_000, prioritized).nbytes
    return nbytes


class Timed:
    """Samples in bursts and keeps the time of every call."""

    def __init__(self, sample: Callable[[], Any], calls: int) -> None:
        self._sample, self._calls = sample, calls
        self.microseconds: list[float] = []

    def __call__(self) -> float:
        """Return the median of one burst in microseconds."""
        burst = [self._one() for _ in range(self._calls)]
        self.microseconds += burst
        return statistics.median(burst)

    def _one(self) -> float:
        begin = time.perf_counter()
        self._sample()
        return 1e6 * (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=100_000, help="in our replay")
    parser.add_argument("--peer-transitions", type=int, default=50_000, help="in each peer's; 56 kB each by default")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved bursts of samples")
    parser.add_argument("--calls", type=int, default=100, help="samples per burst")
    args = parser.parse_args()
    torch.set_num_threads(1)
    replays = {
        OURS: Ours(args.transitions),
        "SB3 ReplayBuffer": Peer(args.peer_transitions, optimized=False),
        "SB3 ReplayBuffer, optimize_memory_usage": Peer(args.peer_transitions, optimized=True),
    }
    for name, replay in replays.items():
        fill(name, replay)
    timed = {name: Timed(replay.sample, args.calls) for name, replay in replays.items()}
    print_table(f"sample({BATCH}), us", interleave(timed, args.rounds), OURS, digits=1)
    for name, each in timed.items():
        print(f"{name:38} 90th percentile of all calls: {np.percentile(each.microseconds, 90):.0f} us")
    print_hold("GB for 1 M transitions", million_bytes() / 1e9, most=7.2)
    print_hold("us to sample, median of all calls", statistics.median(timed[OURS].microseconds), most=100)
    print_load()


if __name__ == "__main__":
    main()
