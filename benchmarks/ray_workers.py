"""Round trips to a worker on Ray, beside the project's own wire over TCP and a bare call of a Ray actor.

All are on this machine, with the same payloads, in turns. The bare call is ``ray.get(actor.act.remote(observation))``;
a worker's round trip has besides what a run does with it: the action is checked against its space, the parts of the
round trip are booked, and the environment loop waits for no call.

Ray is an extra: ``pip install -e '.[ray]' -c constraints.txt``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import cloudpickle
import numpy as np

from async_wrappers import RayWorkers
from async_wrappers.live.memory.layout import SharedLayout
from async_wrappers.live.ray.ray_transport import RayTransport
from async_wrappers.live.run_spec import LoopConfig
from async_wrappers.schedule.stagger import NoStagger
from benchmarks.remote_policy import SIZES, Constant, ours, timed, trips_of

ROUNDS = 7


@contextmanager
def on_ray(sizes: tuple[Any, Any], observation: Any) -> Iterator[Callable[[], Any]]:
    layout = SharedLayout(*sizes, workers=1, learners=0, journal_capacity=8)
    payload = cloudpickle.dumps(partial(Constant, sizes[1]))
    transport = RayTransport(layout, LoopConfig(1, 50, NoStagger()), RayWorkers(), print, payload)
    try:
        yield trips_of(transport, observation)
    finally:
        transport.close()


@contextmanager
def bare(sizes: tuple[Any, Any], observation: Any) -> Iterator[Callable[[], Any]]:
    """Call an actor of the Ray that is up."""
    import ray

    actor = ray.remote(Constant).remote(sizes[1])
    yield lambda: ray.get(actor.act.remote(observation, None))
    ray.kill(actor)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fifo", type=int, help="real-time priority of all ends alike, for a machine with other work")
    options = parser.parse_args()
    if options.fifo is not None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(options.fifo))
    made = {"ours, TCP": ours, "a worker on Ray": on_ray, "a bare call of a Ray actor": bare}
    print("| payload | way | p50, us | p99, us |\n|---|---|---|---|")
    for size, spaces in SIZES.items():
        spaces[0].seed(0)
        observation = spaces[0].sample()
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
        with ExitStack() as held_open:
            trips = {name: held_open.enter_context(make(spaces, observation)) for name, make in made.items()}
            for _ in range(ROUNDS):
                for name, go in trips.items():
                    found[name].append(timed(go))
        for name, rows in found.items():
            p50, p99 = np.median(rows, axis=0)
            print(f"| {size} | {name} | {p50:.0f} | {p99:.0f} |")
        for peer in ("a bare call of a Ray actor", "ours, TCP"):
            p50, p99 = np.median(np.divide(found["a worker on Ray"], found[peer]), axis=0)
            print(f"{size}: a worker on Ray / {peer}, medians of {ROUNDS} rounds: p50 {p50:.2f}, p99 {p99:.2f}")
        print(f"load average {os.getloadavg()[0]:.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
