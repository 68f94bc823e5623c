"""Forecasts of a plan: what each way of running workers would give a policy of some latency, simulated.

The usual rules are formulas: one worker for each frame that passes in the mean, or the longest, inference. Whether an
action then lands on each frame depends on the spread of latencies, so every number here is simulated, with the schedule
that the wrapper and the runner use.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from async_wrappers.checks import positive, whole
from async_wrappers.latency import Latency, nanoseconds, summary
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.simulated import Counts, SimulatedSchedule
from async_wrappers.schedule.stagger import MaxTime

FRESH = 0.99  # the share of frames with an action that is enough
PLAYOUTS = ("p99", "p99.5", "p99.9", "p100")  # the first with which enough workers are enough
LEAST_FRAMES = 10_000  # simulated: a share of 0.99 is then known to 0.001
MOST_FRAMES = 1_000_000  # simulated, however long an episode lasts
LONGEST_FRAMES = 100_000  # a latency that can still be simulated in seconds


@dataclass(frozen=True)
class Forecast:
    """The simulation of one rule, without its first inferences.

    Attributes:
        rule: Its name.
        workers: How many.
        stagger: The strategy they run under.
        playout_frames: Frames from an observation to its action, where the rule fixes them.
        fresh_share: Share of the frames that receive the action of a new decision.
        mean_delay_frames: Mean age of the observation behind an applied action; None if none was applied.
        mean_delay_ms: The same in milliseconds.
        p99_delay_frames: The age that 99 % of the applied actions do not exceed.
        p99_delay_ms: The same in milliseconds.
        dropped_per_second: Actions computed in full and never applied.
        late_per_second: Actions that missed their playout, applied or not.
        busy_workers: Workers that infer at a time, on average: the cores they use.
        inferences_per_second: Begun by all workers.
        first_action_s: When an episode's first action lands, in seconds; None if not while the simulation settled.
        chunk_frames: The chunk length that left no frame to the default action once the first chunk had landed: the
            largest delay + interval, from a decision's start to the next one's effect; None if fewer than two landed.
        chunk_p99_frames: The delay + interval that 99 % of the decisions do not exceed.
    """

    rule: str
    workers: int
    stagger: str
    playout_frames: int | None
    fresh_share: float
    mean_delay_frames: float | None
    mean_delay_ms: float | None
    p99_delay_frames: float | None
    p99_delay_ms: float | None
    dropped_per_second: float
    late_per_second: float
    busy_workers: float
    inferences_per_second: float
    first_action_s: float | None
    chunk_frames: int | None
    chunk_p99_frames: int | None


@dataclass(frozen=True)
class Slots:
    """Whole against even slots, with fewer tickets workers than a mean inference has frames.

    Attributes:
        workers: How many.
        sustained: Actions per frame that they can make: ``min(1, workers / (mean latency * fps))``.
        whole: The forecast for whole slots, the default.
        even: The forecast for ``slot="even"``.
    """

    workers: int
    sustained: float
    whole: Forecast
    even: Forecast


class Forecaster:
    """Forecasts of rules for one latency at a frame rate."""

    def __init__(self, latency: Latency, fps: Any, seconds: float, seed: int) -> None:
        self.latency, self.clock = latency, FrameClock(fps)
        self.draws = summary(latency)  # in seconds
        longest = self.clock.frame_at(nanoseconds(self.draws["max"]))
        if longest > LONGEST_FRAMES:
            raise ValueError(
                f"latency must stay under {LONGEST_FRAMES} frames to be simulated, got up to {longest} at "
                f"{float(self.clock.fps):g} fps: plan with fewer frames per second"
            )
        self.settle = longest + 1  # frames until everything has been through once
        episode = self.clock.frame_at(nanoseconds(positive("seconds", seconds, "seconds")))
        # Frames that count, after those.
        self.frames = max(min(episode, MOST_FRAMES), 3 * self.clock.frame_at(nanoseconds(latency.mean)), LEAST_FRAMES)
        self.seed = whole("seed", seed, 0)

    @property
    def mean_rule(self) -> int:
        """Workers by the mean: as many as there are frames in a mean latency, at least one."""
        return max(1, self.clock.frame_at(nanoseconds(self.latency.mean)))

    def rules(self) -> Iterator[Forecast]:
        """Yield a forecast for each rule; the last is of tickets. The largest latency is that of 10,000 draws."""
        largest = self.draws["max"]
        max_rule = max(1, self.clock.frame_at(nanoseconds(largest)))
        yield self.forecast("sequential", 1, "sequential")
        yield self.forecast("never_resting", 1, "none")
        yield self.forecast("max_time", max_rule, "max_time")
        yield self.forecast("max_time_known", max_rule, MaxTime(initial_latency=largest))
        yield self.forecast("expected_time", self.mean_rule, "expected_time")
        yield self.forecast("tickets", self.mean_rule + 2, "tickets")

    def enough(self) -> tuple[str, Forecast | None]:
        """Search the least number of tickets workers with enough fresh frames, and the playout that this takes."""
        for playout in PLAYOUTS:
            if (found := self._least(playout)) is not None:
                return playout, found
        return PLAYOUTS[-1], None

    def slots(self, cores: int) -> Iterator[Slots]:
        """Yield forecasts of whole and even slots for fewer workers than the mean rule's, one per core among them."""
        few = {1, 2, 3, 4, cores, self.mean_rule // 2, self.mean_rule - 1}
        mean = float(self.clock.frames(nanoseconds(self.latency.mean)))
        for workers in sorted(few & set(range(1, self.mean_rule))):
            whole_slots, even = (self.forecast("slots", workers, "tickets", slot=slot) for slot in (None, "even"))
            yield Slots(workers, workers / mean, whole_slots, even)

    def _least(self, playout: str) -> Forecast | None:
        """Search between a number that is too small and one that is enough; None if more workers change nothing."""
        too_few = self.mean_rule - 1  # with fewer than the mean rule, a slot is two frames: half of them at most
        step = max(1, math.isqrt(self.mean_rule) // 2)
        trial = self.forecast("enough", self.mean_rule, "tickets", playout)
        while trial.fresh_share < FRESH:
            if trial.inferences_per_second >= self._per_second(self.frames):
                return None  # every frame was read: the missing actions came later than their playout
            too_few = trial.workers
            trial = self.forecast("enough", trial.workers + step, "tickets", playout)
            step *= 2
        best = trial
        while best.workers - too_few > 1:
            trial = self.forecast("enough", (too_few + best.workers) // 2, "tickets", playout)
            if trial.fresh_share >= FRESH:
                best = trial
            else:
                too_few = trial.workers
        return best

    def forecast(
        self, rule: str, workers: int, stagger: Any, playout: str = PLAYOUTS[0], slot: str | None = None
    ) -> Forecast:
        """Simulate so many workers under a strategy, and return what the policy would get."""
        schedule = SimulatedSchedule(self.latency, workers, self.clock.fps, stagger, playout, slot, self.seed)
        steps, seen = enumerate(schedule.steps()), _Effects()
        seen.note(islice(steps, self.settle))
        first = seen.first
        before = deepcopy(schedule.counts)
        seen.note(islice(steps, self.frames))
        longest, p99_longest = seen.chunk_lengths()
        counts = _difference(schedule.counts, before)
        mean, mean_ms = self._delay(counts.mean_delay)
        p99, p99_ms = self._delay(counts.delay_quantile(0.99))
        return Forecast(
            rule=rule,
            workers=workers,
            stagger=stagger if isinstance(stagger, str) else repr(stagger),
            playout_frames=schedule.stagger.playout if stagger == "tickets" else None,
            fresh_share=counts.fresh_share,
            mean_delay_frames=mean,
            mean_delay_ms=mean_ms,
            p99_delay_frames=p99,
            p99_delay_ms=p99_ms,
            dropped_per_second=self._per_second(counts.dropped),
            late_per_second=self._per_second(counts.late),
            busy_workers=self._per_second(sum(counts.busy.values())) / 1e9,
            inferences_per_second=self._per_second(sum(counts.inferences.values())),
            first_action_s=None if first is None else float(first / self.clock.fps),
            chunk_frames=longest,
            chunk_p99_frames=p99_longest,
        )

    def _per_second(self, count: int) -> float:
        return float(count * self.clock.fps / self.frames)

    def _delay(self, frames: float) -> tuple[float | None, float | None]:
        """Return a delay in frames and in milliseconds, None for nan."""
        return (None, None) if math.isnan(frames) else (float(frames), frames * 1000 / float(self.clock.fps))


class _Effects:
    """The effects of an episode, and how long a chunk of each decision must be to last until the next one lands.

    Attributes:
        first: The frame of the first effect; None before it.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._newest: int | None = None  # start of the decision applied last
        self._needed: Counter[int] = Counter()  # delay + interval, how often

    def note(self, steps: Iterable[tuple[int, tuple[tuple[int, int] | None, Any]]]) -> None:
        """Count frames: pairs of a frame and an item of `SimulatedSchedule.steps`."""
        for frame, (applied, _) in steps:
            if applied is not None:
                if self._newest is None:
                    self.first = frame
                else:
                    self._needed[frame - self._newest] += 1
                self._newest = applied[0]

    def chunk_lengths(self) -> tuple[int | None, int | None]:
        """Return the largest delay + interval and the one that 99 % do not exceed; None if there was none."""
        if not self._needed:
            return None, None
        lengths = np.repeat(list(self._needed), list(self._needed.values()))
        return int(lengths.max()), int(np.quantile(lengths, 0.99, method="inverted_cdf"))


def _difference(after: Counts, before: Counts) -> Counts:
    """Return the difference of two counts of one schedule."""
    return Counts(
        after.frames - before.frames,
        after.fresh - before.fresh,
        after.dropped - before.dropped,
        after.late - before.late,
        {age: n - before.delay.get(age, 0) for age, n in after.delay.items()},
        {worker: n - before.inferences.get(worker, 0) for worker, n in after.inferences.items()},
        {worker: n - before.busy.get(worker, 0) for worker, n in after.busy.items()},
    )
