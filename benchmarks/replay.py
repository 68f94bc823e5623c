"""What a million Atari transitions take in memory, and how fast the replay stores and samples.

``memory``: beside Stable-Baselines3's ``ReplayBuffer``, as it is and with ``optimize_memory_usage=True``. All hold 84 x
84 grey frames in stacks of four; a sample is a batch of 32, each library's own ``sample()`` (Stable-Baselines3's ends
with the copy into tensors), of the prioritised replay with new priorities for the batch before. Bytes per transition
are the growth of the process's resident memory while the buffer is filled from empty to full; bytes for a million are
computed from the arrays' sizes. Sampling is timed call by call, in interleaved bursts, from buffers far larger than the
processor's caches. Hold: <= 7.2 GB (10^9 bytes) for 1 M transitions, with priorities too; a batch <= 100 us (median),
with priorities <= 150 us.

``packed``: a ring of Pong's 84 x 84 frames under random actions (Breakout, Seaquest and others by ``--games``) with
``compression="lz4"`` beside one without; bytes are those of the frames alone. Hold: Pong's frames <= 1/4 of the bytes
and a batch <= 500 us.

    python -m benchmarks.replay [memory] [packed]
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import psutil
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.buffers import ReplayBuffer

from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.envs import create_atari_environment
from benchmarks.measuring import interleave, print_hold, print_table, run_parts

STACK, SIDE, BATCH, EPISODE = 4, 84, 32, 1000
OURS, PRIORITISED = "ours", "ours, prioritised"
Frames = Iterator[tuple[np.ndarray, bool]]


def ours(size: int, **arguments: Any) -> Any:
    """Return a ring of `size` observations."""
    space = Box(0, 255, (SIDE, SIDE), np.uint8)
    return create_replay(space, capacity=size, stack_size=STACK, batch_size=BATCH, **arguments)


def noise() -> Frames:
    """Yield frames for ever, each with whether its episode ends; what they show does not matter."""
    shown = np.random.default_rng(0).integers(256, size=(64, SIDE, SIDE), dtype=np.uint8)
    for number, frame in enumerate(cycle(shown)):
        yield frame, number % EPISODE == EPISODE - 1


def played(game: str) -> Frames:
    """Yield the frames of a game under random actions for ever."""
    env = create_atari_environment(game)
    env.action_space.seed(0)
    for seed in iter(int, None):
        frame, _ = env.reset(seed=seed)
        over = False
        while not over:
            shown = np.array(frame)
            frame, _, terminal, truncated, _ = env.step(env.action_space.sample())
            over = terminal or truncated
            yield shown, over


def timed(call: Callable[[], Any]) -> float:
    """Return the microseconds of a call."""
    begin = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - begin)


def observe(replay: Any, frames: Frames) -> Iterator[float]:
    """Store transitions, yielding the microseconds that each took."""
    for number, (frame, over) in enumerate(frames):
        transition = {"observation": frame, "action": number % 18, "reward": 1.0, "interval": 1, "terminal": over}
        transition |= {"truncated": False, "next_observation": frame if over else None}
        yield timed(partial(replay.observe, transition))


def make_peer(size: int, optimized: bool) -> Any:
    """Return Stable-Baselines3's buffer of `size` transitions."""
    own = {"optimize_memory_usage": optimized, "handle_timeout_termination": not optimized}
    return ReplayBuffer(size, Box(0, 255, (STACK, SIDE, SIDE), np.uint8), Discrete(18), device="cpu", **own)


def add(buffer: Any) -> Iterator[float]:
    """Store transitions in a peer's buffer, yielding the microseconds that each took."""
    shown = (frame for frame, _ in noise())
    stack = np.stack(list(islice(shown, STACK)))[None]
    for number, frame in enumerate(shown):
        following = np.concatenate([stack[:, 1:], frame[None, None]], axis=1)
        transition = (stack, following, np.array([number % 18]), np.array([1.0]), np.array([False]), [{}])
        yield timed(partial(buffer.add, *transition))
        stack = following


def fill(name: str, size: int, nbytes: int, storing: Iterator[float]) -> None:
    """Fill a replay and print its bytes and how long a transition takes to store."""
    process = psutil.Process()
    before = process.memory_info().rss
    took = list(islice(storing, size))
    grown = process.memory_info().rss - before
    print(
        f"{name:38} {size:7d} stored: {grown / size:8.0f} bytes each resident, "
        f"{nbytes / size:8.0f} in arrays; store: median {statistics.median(took):5.1f} us"
    )


def memory(args: Namespace) -> None:
    """Print bytes, and the time of a batch."""
    torch.set_num_threads(1)
    rings = {OURS: ours(args.transitions), PRIORITISED: ours(args.transitions, selector="prioritized")}
    name = "SB3 ReplayBuffer"
    peers = {name: make_peer(args.peer_transitions, False)}
    peers[f"{name}, optimize_memory_usage"] = make_peer(args.peer_transitions, True)
    for name, ring in rings.items():
        fill(name, args.transitions, ring.nbytes, observe(ring, noise()))
    for name, peer in peers.items():
        arrays = [value for value in vars(peer).values() if isinstance(value, np.ndarray)]
        fill(name, args.peer_transitions, sum(array.nbytes for array in arrays), add(peer))
    priorities = cycle(np.random.default_rng(0).random((101, BATCH)) + 0.01)

    def prioritised() -> None:
        batch = rings[PRIORITISED].sample()
        rings[PRIORITISED].set_priorities(batch["index"], next(priorities))

    sample = {OURS: rings[OURS].sample, PRIORITISED: prioritised}
    sample |= {name: partial(peer.sample, BATCH) for name, peer in peers.items()}
    took: dict[str, list[float]] = {name: [] for name in sample}

    def burst(name: str) -> float:
        found = [timed(sample[name]) for _ in range(args.calls)]
        took[name] += found
        return statistics.median(found)

    bursts = {name: partial(burst, name) for name in sample}
    print_table(f"sample({BATCH}), us", interleave(bursts, args.rounds), OURS, digits=1)
    for name, each in took.items():
        print(f"{name:38} 90th percentile of all calls: {np.percentile(each, 90):.0f} us")
    for name, selector, most in ((OURS, "uniform", 100), (PRIORITISED, "prioritized", 150)):
        # Its pages are untouched and take no memory.
        print_hold(f"{name}: GB for 1 M transitions", ours(1_000_000, selector=selector).nbytes / 1e9, most=7.2)
        print_hold(f"{name}: us to sample, median of all calls", statistics.median(took[name]), most=most)


def packed(args: Namespace) -> None:
    """Print what packing a game's frames saves, and what it costs a batch and a transition."""
    count = args.frames
    for game in args.games:
        replays = {"plain": ours(count), "lz4": ours(count, compression="lz4")}
        took = {
            name: statistics.median(islice(observe(replay, played(game)), count)) for name, replay in replays.items()
        }
        other = replays["plain"].nbytes - count * SIDE * SIDE  # all columns but the frames
        share = (replays["lz4"].nbytes - other) / (count * SIDE * SIDE)
        stored = ", ".join(f"{name} {each:.1f}" for name, each in took.items())
        print(f"\n{game}, {count:,} frames: packed frames take 1/{1 / share:.1f} of the bytes; us to store: {stored}")

        def burst(replay: Any) -> float:
            return statistics.median(timed(replay.sample) for _ in range(args.calls))

        samples = interleave({name: partial(burst, each) for name, each in replays.items()}, args.rounds)
        print_table(f"sample({BATCH}) of stacks of {STACK}, us", samples, "plain", digits=1)
        if game == "Pong":
            print_hold("share of the bytes that Pong's packed frames take", share, most=0.25)
            print_hold("us for a batch of Pong's packed frames", statistics.median(samples["lz4"]), most=500)


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"memory": memory, "packed": packed},
        transitions=(100_000, "in our replays"),
        peer_transitions=(50_000, "in each peer's; 56 kB each by default"),
        rounds=(15, "interleaved bursts of samples"),
        calls=(100, "samples per burst"),
        games=(("Pong",), "whose frames are packed"),
        frames=(20_000, "of each game"),
    )
