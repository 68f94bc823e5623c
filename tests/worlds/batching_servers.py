"""Small servers of many environments, at random, for Hypothesis; all of their times are whole milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import strategies as st

from async_wrappers.latency.batches import LinearBatches
from async_wrappers.schedule.served import ServedSchedule

MS = 1_000_000  # nanoseconds


@dataclass(frozen=True)
class Setting:
    """A small server; all times are whole milliseconds."""

    fixed: int
    each: int
    period: int
    phases: tuple[int, ...]
    playout: int
    accelerators: int
    every: int
    most: int | None

    def schedule(self) -> ServedSchedule:
        return ServedSchedule(
            LinearBatches(self.fixed / 1000, self.each / 1000),
            len(self.phases),
            Fraction(1000, self.period),
            self.playout,
            accelerators=self.accelerators,
            every=self.every,
            phases=[phase * MS for phase in self.phases],
            most=self.most,
        )


@st.composite
def servers(draw: st.DrawFn) -> Setting:
    period, every = draw(st.integers(2, 20)), draw(st.integers(1, 3))
    count = draw(st.integers(1, 7))
    phases = draw(st.lists(st.integers(0, period * every - 1), min_size=count, max_size=count))
    fixed = draw(st.integers(0, 30))
    each = draw(st.integers(0 if fixed else 1, 8))
    return Setting(
        fixed, each, period, tuple(phases), draw(st.integers(1, 4)), draw(st.integers(1, 3)), every,
        draw(st.none() | st.integers(1, 4)),
    )  # fmt: skip
