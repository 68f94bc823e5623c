"""The environment loop's punctuality, and what the exchange of one decision costs.

* ``loop``: 59.7275 frames a second for 60 s with 32 workers (100 ms of simulated inference) and one learner that works
  all the time. Hold: p99 lateness at most 1 ms, no drift.
* ``exchange``: one worker that answers at once: from ticket to action, less the inference. Hold: p50 at most 50 us.
  The peer, in the same run: the same through ``multiprocessing.Manager`` values, as the published runner has it.

    python -m benchmarks.frame_loop [loop] [exchange] [--seconds 60]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
import warnings
from typing import Any

import numpy as np

from async_wrappers import AsyncRunner
from benchmarks.staggered_workers import Screens, Sleeper


class BusyLearner:
    """Multiplies matrices, for about 20 ms an update."""

    def __init__(self) -> None:
        self._matrix = np.random.default_rng(0).normal(size=(500, 500)).astype(np.float32)

    def observe(self, transition: Any) -> None:
        """Keep nothing."""

    def update(self) -> dict[str, float]:
        """Work for 20 ms."""
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            self._matrix @ self._matrix
        return {}

    def weights(self) -> dict[str, Any]:
        """Return the matrix."""
        return {"matrix": self._matrix}

    def load_weights(self, weights: Any) -> None:
        """Take over the matrix."""
        self._matrix = weights["matrix"]

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Take nothing over."""

    def close(self) -> None:
        """Release nothing."""


class Learning(Sleeper):
    """A policy with weights."""

    def load_weights(self, weights: Any, version: int) -> None:
        """Read them in place."""
        self._weights = weights


def loop(seconds: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = AsyncRunner(Screens, lambda: Learning(lambda _: 0.1), 32, 59.7275, make_learner=BusyLearner)
    report = runner.run(seconds=seconds)
    print(f"\n32 workers and a learner, {seconds:g} s\n{report}")


def exchange() -> None:
    frames = 20_000
    runner = AsyncRunner(Screens, lambda: lambda observation: 1, 1, 20_000, "sequential", calibration_time=0.1)
    report = runner.run(frames=frames)
    assert report.exchange_us is not None
    ours = report.exchange_us["p50"]
    manager = managed_exchange(2_000)
    print(
        f"\nexchange of one decision, us: p50 {ours:.1f}, p99 {report.exchange_us['p99']:.1f}; through a Manager's "
        f"values p50 {manager:.1f}; ratio {manager / ours:.1f}"
    )


def _answer(state: Any, ticket: Any, action: Any, stop: Any) -> None:
    done = 0
    while not stop.value:
        if ticket.value > done:
            done = ticket.value
            _ = state[0]
            action.value = done


def managed_exchange(count: int) -> float:
    """Return the median microseconds of an exchange through a Manager."""
    manager = multiprocessing.Manager()
    state, ticket, action, stop = (
        manager.list([None]),
        manager.Value("i", 0),
        manager.Value("i", 0),
        manager.Value("i", 0),
    )
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(state, ticket, action, stop))
    process.start()
    frame = np.zeros((84, 84, 1), np.uint8)
    took = []
    for number in range(1, count + 1):
        begin = time.perf_counter()
        state[0] = frame
        ticket.value = number
        while action.value < number:
            pass
        took.append((time.perf_counter() - begin) * 1e6)
    stop.value = 1
    process.join(10)
    manager.shutdown()
    return statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], choices=[[], "loop", "exchange"])
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    parts = arguments.parts or ["loop", "exchange"]
    if "exchange" in parts:
        exchange()
    if "loop" in parts:
        loop(arguments.seconds)


if __name__ == "__main__":
    main()
