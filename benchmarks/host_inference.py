"""The added latency of inference beside the learner: from sending actions to hosts until their rows are back.

One host steps 8 or 32 environments, which cost nothing and show a frame of 84 x 84 bytes each, as Atari hosts send it:
the learner stacks frames. The host is in this process, in another one of this machine, or a Ray actor on it. What a
trip adds is its time without the host's own for the step. All contestants take turns within one run; what is printed is
the median over the rounds of each round's p50 and p99. Ray's workers run at this process's priority (Ray's default is a
niceness of 15). Ray is an extra: ``pip install -e '.[ray]' -c constraints.txt``.

    python -m benchmarks.host_inference [--rounds 7] [--trips 150] [--without Ray] [--fifo 40]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.agents.play.hosts.local import LocalHosts
from async_wrappers.agents.play.hosts.processes import ProcessHosts
from async_wrappers.batched.hosted import HostedEnvs
from async_wrappers.batched.local import LocalEnvs
from benchmarks.interleave import print_load

FRAME = gym.spaces.Box(0, 255, (84, 84), np.uint8)
SIZES = 8, 32
LOCAL, PROCESSES, RAY = "this process", "a process", "Ray"


class Still(gym.Env[Any, Any]):
    """Shows the same frame for ever, at once."""

    observation_space = FRAME
    action_space = gym.spaces.Discrete(6)

    def __init__(self) -> None:
        self._frame = np.random.default_rng(0).integers(0, 256, FRAME.shape).astype(np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        return self._frame, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        return self._frame, 0.0, False, False, {}


def make_envs(num_envs: int) -> LocalEnvs:
    return LocalEnvs(Still, num_envs)


class Contestant:
    """Environments on a host, which have begun."""

    def __init__(self, make_engine: Callable[[Any], Any], num_envs: int, stack: ExitStack) -> None:
        self._envs = stack.enter_context(closing(HostedEnvs(make_engine, make_envs, num_envs, 1)))
        self._envs.begin(range(num_envs))
        self._shown = self._envs.recv()
        self._actions = np.zeros(num_envs, np.int64)
        self.rounds: list[tuple[float, float]] = []

    def trip(self) -> float:
        """Return the seconds that a trip adds to the environments' own."""
        own, begin = self._envs.seconds, time.perf_counter()
        self._envs.send(self._shown.env_ids, self._actions)
        self._shown = self._envs.recv()
        return time.perf_counter() - begin - (self._envs.seconds - own)

    def measure(self, trips: int) -> None:
        """Keep p50 and p99 of some trips, in microseconds."""
        added = [1e6 * self.trip() for _ in range(trips)]
        self.rounds.append((float(np.percentile(added, 50)), float(np.percentile(added, 99))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each")
    parser.add_argument("--trips", type=int, default=150, help="of a turn")
    parser.add_argument("--without", nargs="*", default=[], choices=[RAY])
    parser.add_argument("--fifo", type=int, help="real-time priority of all ends alike, for a machine with other work")
    args = parser.parse_args()
    if args.fifo is not None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(args.fifo))
    engines: dict[str, Any] = {LOCAL: LocalHosts, PROCESSES: ProcessHosts}
    with ExitStack() as stack:
        if RAY not in args.without and importlib.util.find_spec("ray"):
            from async_wrappers.agents.play.hosts.on_ray import RayHosts
            from async_wrappers.ray_cluster import connected_to_ray

            stack.enter_context(connected_to_ray(None, len(SIZES), niceness=0))  # as hosts of a Ray of one's own
            engines[RAY] = partial(RayHosts, num_hosts=1)
        made = {(size, name): Contestant(make, size, stack) for size in SIZES for name, make in engines.items()}
        for number in range(-1, args.rounds):
            for each in made.values():
                each.measure(args.trips if number >= 0 else args.trips // 5)
        print("| rows of 7,056 bytes | the host is in | p50, us | p99, us |\n|---|---|---|---|")
        for (size, name), each in made.items():
            p50, p99 = np.median(each.rounds[1:], axis=0)
            print(f"| {size} | {name} | {p50:,.0f} | {p99:,.0f} |")
    print(f"{args.rounds} rounds of {args.trips} trips")
    print_load()


if __name__ == "__main__":
    main()
