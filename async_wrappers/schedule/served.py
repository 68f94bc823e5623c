"""Many environments on a few accelerators, simulated: when each observation is read, and where its action lands.

`ServedSchedule` plays the rule of `async_wrappers.schedule.batching` against a model of how long batches take
(`async_wrappers.latency.batches`). No environment is stepped: decisions and their times depend on the latencies alone.
"""

# The time line of an environment
# ===============================
#
# Environment i begins its frame k at phase_i + k / fps. Its frames k = 0, every, 2 every, ... are inferred. An action
# that reads frame k is due on frame k + playout, and is in time if it has been computed when that frame begins. A late
# action lands on the first frame that begins after its end. Of the actions that could land on a frame the newest does,
# and no action lands after a newer one: the same choice as with workers (`async_wrappers.schedule.dispatch`).
#
# Of one nanosecond the ends come first, then the observations, then the starts: environments that tick together are
# inferred together.

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from async_wrappers.checks import whole
from async_wrappers.latency.batches import BatchLatency
from async_wrappers.schedule.batching import Batcher
from async_wrappers.schedule.frames import FrameClock

Whole = NDArray[np.int64]
_NEVER = 2**62  # nanoseconds


class TimedBatch(NamedTuple):
    """Observations that are inferred together, from `began` to `ended`; (environment, frame) of each."""

    began: int
    ended: int
    frames: list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class ServedDecisions:
    """What a server did in a while. Arrays have an entry for each decision [N], in the order in which batches began.

    Attributes:
        environment: Whose frame was read.
        start: That frame.
        effect: The frame on which its action lands, unless a newer one has landed.
        began: When its batch began, in nanoseconds.
        ended: When it ended.
        deadline: When it should have ended.
        batch: The number of observations in its batch.
        frames: Frames that each environment played.
        first: The first frame that is counted.
        environments: How many there are.
        every: Frames between two observations of an environment that are inferred; with 1 each one is.
        playout: Frames from an observation to its action.
        busy: Share of the accelerators' time in which they computed, over the whole while.
    """

    environment: Whole
    start: Whole
    effect: Whole
    began: Whole
    ended: Whole
    deadline: Whole
    batch: Whole
    frames: int
    first: int
    environments: int
    every: int
    playout: int
    busy: float

    @cached_property
    def applied(self) -> NDArray[np.bool_]:
        """Whether its action landed: none that is newer had landed, or lands with it [N]."""
        order = np.lexsort((self.start, self.effect, self.environment))
        environment, effect = self.environment[order], self.effect[order]
        # Of one frame the newest action, which comes last.
        newest = np.ones(len(order), bool)
        newest[:-1] = (environment[1:] != environment[:-1]) | (effect[1:] != effect[:-1])
        # In one line of numbers, where those of the next environment are above all of this one.
        place = self.start[order] + environment * (self.frames + 1)
        before = np.concatenate(([-1], np.maximum.accumulate(place)[:-1])) if len(place) else place
        landed = np.empty(len(order), bool)
        landed[order] = newest & (place > before)
        return landed & (self.effect < self.frames)

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Whether it began after the beginning, and was due before the end [N]."""
        return (self.start >= self.first) & (self.start + self.playout < self.frames)

    @property
    def in_time(self) -> float:
        """Share of the frames to be inferred whose action was computed by its deadline."""
        asked = len(range(-(-self.first // self.every) * self.every, self.frames - self.playout, self.every))
        return float((self.counted & (self.ended <= self.deadline)).sum() / max(asked * self.environments, 1))

    @property
    def in_time_by_environment(self) -> NDArray[np.float64]:
        """The same for each environment."""
        asked = len(range(-(-self.first // self.every) * self.every, self.frames - self.playout, self.every))
        hits = self.environment[self.counted & (self.ended <= self.deadline)]
        return np.bincount(hits, minlength=self.environments) / max(asked, 1)

    @property
    def fresh(self) -> float:
        """Share of all frames on which an action lands; at most 1 / every."""
        landed = self.applied & (self.effect >= self.first)
        return float(landed.sum() / max((self.frames - self.first) * self.environments, 1))

    @property
    def delays(self) -> Whole:
        """Delays of the actions that landed, in frames: effect - start."""
        landed = self.applied & self.counted
        return (self.effect - self.start)[landed]

    @property
    def lateness(self) -> Whole:
        """Nanoseconds from the deadline of each counted decision to its end; below 0 where it was in time."""
        return (self.ended - self.deadline)[self.counted]

    @property
    def mean_batch(self) -> float:
        """Observations of a batch, on average over batches."""
        counted = self.batch[self.counted]
        return float(len(counted) / (1 / counted).sum()) if len(counted) else 0.0

    def stream(self, environment: int) -> list[tuple[int, int]]:
        """Return (start, effect) of each action of an environment that landed, in order."""
        mine = self.applied & (self.environment == environment)
        return sorted(zip(self.start[mine].tolist(), self.effect[mine].tolist(), strict=True))


class ServedSchedule:
    """Environments that accelerators serve by the batching rule, on simulated time.

    Args:
        latency: How long a batch of b observations takes: a `LinearBatches`, a `MeasuredBatches` or another
            `BatchLatency`.
        environments: How many.
        fps: Frames per second of each.
        playout: Frames from an observation to its action, >= 1.
        accelerators: How many compute, one batch at a time each.
        every: Frames between two observations of an environment that are inferred; with 1 each one is.
        phases: ``"spread"``: the environments' observations are spread evenly over the time between two of the same
            one. ``"together"``: all environments begin their frames at once. Or nanoseconds by which the frames of each
            environment begin later.
        most: Greatest number of observations in a batch; None for no limit.
        seed: Of the latencies.

    Raises:
        ValueError: A number out of range, or phases of another number of environments, or below 0, or as long as the
            time between two observations.
    """

    def __init__(
        self,
        latency: BatchLatency,
        environments: int,
        fps: Any,
        playout: int = 1,
        *,
        accelerators: int = 1,
        every: int = 1,
        phases: str | Sequence[int] = "spread",
        most: int | None = None,
        seed: int = 0,
    ) -> None:
        self.latency = latency
        self.environments = whole("environments", environments, 1)
        self.clock = FrameClock(fps)
        self.playout, self.every = whole("playout", playout, 1, unit="frames"), whole("every", every, 1, unit="frames")
        self.accelerators = whole("accelerators", accelerators, 1)
        self.phases = _phases(phases, self.environments, self.clock.begin(self.every))
        self.most, self.seed = most, whole("seed", seed, 0)
        Batcher(self.accelerators, most)  # refuses a wrong number at once

    def play(self, frames: int, first: int = 0) -> ServedDecisions:
        """Play so many frames of each environment.

        Args:
            frames: How many.
            first: The first one that counts: those before are a beginning in which no batch is under way yet.

        Raises:
            ValueError: `frames` is not a whole number >= 1, or `first` not one below it.
        """
        frames = whole("frames", frames, 1)
        first = whole("first", first, 0, frames - 1, unit="frames")
        rows = array("q")  # a decision after the other, its numbers in the order of `ServedDecisions`
        busy = 0
        for batch in self.batches(frames):
            busy += batch.ended - batch.began
            for environment, frame in batch.frames:
                rows.extend((*self.decision(environment, frame, batch.ended), len(batch.frames), batch.began))
        return self.decisions(rows, busy, frames, first)

    def batches(self, frames: int | None = None) -> Iterator[TimedBatch]:
        """Yield the batches in the order in which they begin.

        Args:
            frames: How many of each environment are played; None for no end.
        """
        batcher, draw = Batcher(self.accelerators, self.most), self.latency.stream(self.seed).draw
        ends: list[tuple[int, int]] = []  # (when, accelerator), a heap
        observations = self._observations(frames)
        following = next(observations, None)
        while following is not None or ends:
            now = min(following[0] if following else _NEVER, ends[0][0] if ends else _NEVER)
            while ends and ends[0][0] == now:
                batcher.finished(heappop(ends)[1])
            while following is not None and following[0] == now:
                batcher.observe(*following[1:])
                following = next(observations, None)
            for accelerator, read in batcher.starts():
                ended = now + draw(len(read))
                heappush(ends, (ended, accelerator))
                yield TimedBatch(now, ended, read)

    def decision(self, environment: int, frame: int, ended: int) -> tuple[int, int, int, int, int]:
        """Return (environment, start, effect, ended, deadline) of an observation that was inferred.

        Args:
            environment: Whose.
            frame: Of the observation, the start.
            ended: When its batch ended, in nanoseconds.
        """
        phase, due = self.phases[environment], frame + self.playout
        return environment, frame, max(due, self.clock.frame_at(ended - phase)), ended, phase + self.clock.begin(due)

    def decisions(self, rows: Any, busy: int, frames: int, first: int) -> ServedDecisions:
        """Return decisions as their numbers.

        Args:
            rows: One decision after the other, seven numbers each: those of `decision`, the observations of its batch,
                and when that began.
            busy: Nanoseconds for which accelerators computed.
            frames: That each environment played.
            first: The first frame that counts.
        """
        whose, start, lands, ended, deadline, size, began = np.array(rows, np.int64).reshape(-1, 7).T
        share = min(busy / (self.accelerators * self.clock.begin(frames)), 1.0)
        asked = frames, first, self.environments, self.every, self.playout
        return ServedDecisions(whose, start, lands, began, ended, deadline, size, *asked, share)

    def _observations(self, frames: int | None) -> Iterator[tuple[int, int, int, int]]:
        """Yield (when, environment, frame, deadline) of the observations to be inferred, in order."""
        begin, order = self.clock.begin, sorted(range(self.environments), key=self.phases.__getitem__)
        for frame in count(0, self.every) if frames is None else range(0, frames, self.every):
            begun, due = begin(frame), begin(frame + self.playout)
            for environment in order:
                phase = self.phases[environment]
                yield begun + phase, environment, frame, due + phase


def _phases(phases: str | Sequence[int], environments: int, period: int) -> list[int]:
    """Return by how many nanoseconds each environment's frames begin later; `period` lies between two observations."""
    listed = phases.tolist() if isinstance(phases, np.ndarray) else phases
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        if phases not in ("spread", "together"):
            raise ValueError(f'phases must be "spread", "together" or a list of nanoseconds, got {phases!r}')
        return [period * number // environments if phases == "spread" else 0 for number in range(environments)]
    if len(listed) != environments:
        raise ValueError(
            f"phases must have an entry for each of the {environments} environments, got {len(listed)}: {phases!r:.80}"
        )
    return [whole("phases", phase, 0, period - 1, unit="nanoseconds") for phase in listed]
