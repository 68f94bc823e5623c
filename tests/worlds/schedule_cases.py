"""Random cases of N staggered workers: latencies, a frame rate, a strategy and episodes, for Hypothesis."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from async_wrappers.schedule.stagger import ExpectedTime, MaxTime, NoStagger, Sequential, Stagger, Tickets
from async_wrappers.testing.staggers import MS

__all__ = ["CASES", "RATES", "STRATEGIES", "Case", "cases"]

# Of each property that holds two computations of the same schedule against each other.
CASES = int(os.environ.get("HYPOTHESIS_CASES", "75"))
RATES = st.sampled_from([60, 59.7275, 50, 1000, Fraction(60_000, 1001), 0.5])


class Alternating(Stagger):
    """A user's own strategy: worker p starts in its own share of each 40 ms, and its action is held for 3 ms."""

    playout = 2

    def start(self, worker: int, now: int) -> int:
        return now + (40 * MS * worker // self.workers - now) % (40 * MS)

    def finish(self, worker: int, started: int, now: int) -> int:
        return now + 3 * MS


STRATEGIES = [
    Sequential,
    NoStagger,
    MaxTime,
    lambda: MaxTime(0.0),
    lambda: MaxTime(0.1),
    ExpectedTime,
    lambda: ExpectedTime(0.1),
    Tickets,
    lambda: Tickets(0),
    lambda: Tickets(3, slot=2),
    lambda: Tickets("p50", slot=1),
    lambda: Tickets(3, slot="even"),
    lambda: Tickets("p90", slot="even"),
    Alternating,
]


@dataclass
class Case:
    latencies: list[int]
    workers: int
    fps: Any
    stagger: Any
    episodes: list[int]  # frames of each


@st.composite
def cases(draw: st.DrawFn, shortest: int = 0, rates: Any = RATES) -> Case:
    """Draw latencies of up to 12 frames: none, whole frames, a nanosecond off, anything."""
    fps = draw(rates)
    frame = 1e9 / float(fps)
    whole = st.builds(lambda k, off: max(shortest, int(k * frame) + off), st.integers(0, 12), st.integers(-1, 2))
    anything = st.integers(shortest, int(12 * frame))
    return Case(
        draw(st.lists(st.one_of(st.just(shortest), whole, anything), min_size=1, max_size=40)),
        draw(st.integers(1, 7)),
        fps,
        draw(st.sampled_from(STRATEGIES)),
        draw(st.lists(st.integers(1, 60), min_size=1, max_size=4)),
    )
