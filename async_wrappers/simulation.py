"""The simulated schedule: N workers whose inferences take random times, thinned to the decisions that take effect."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from async_wrappers.latency import Latency, LatencyStream, as_latency, nanoseconds
from async_wrappers.schedule import FrameClock
from async_wrappers.stagger import Conditions, Stagger, make_stagger

__all__ = ["Counts", "Inference", "SimulatedSchedule", "modelled_conditions"]

_PLAYOUT_DRAWS = 10_000


@dataclass
class Counts:
    """What happened since the schedule was made, over all episodes.

    Attributes:
        frames: Frames asked for.
        fresh: Frames on which an action was applied; the others received the default action.
        dropped: Actions computed in full and never applied: a newer one had been, or was applied instead.
        late: Actions released after they were due, applied or not.
        delay: How often an action of each age was applied, in frames.
        inferences: By worker.
        busy: Nanoseconds of inference begun, by worker.
    """

    frames: int = 0
    fresh: int = 0
    dropped: int = 0
    late: int = 0
    delay: dict[int, int] = field(default_factory=dict)
    inferences: dict[int, int] = field(default_factory=dict)
    busy: dict[int, int] = field(default_factory=dict)

    @property
    def fresh_share(self) -> float:
        """Share of the frames that received an action of the agent's."""
        return self.fresh / self.frames if self.frames else 0.0

    @property
    def mean_delay(self) -> float:
        """Mean age of the observation behind an applied action, in frames; nan if none was applied."""
        return sum(age * n for age, n in self.delay.items()) / self.fresh if self.fresh else float("nan")

    def delay_quantile(self, q: float) -> float:
        """Return a quantile of that age, in frames; nan if no action was applied."""
        reached = 0
        for age in sorted(self.delay):
            reached += self.delay[age]
            if reached >= q * self.fresh:
                return age
        return float("nan")


class Inference(NamedTuple):
    """One run of the policy: which worker, on which frame's observation, from when to when in nanoseconds."""

    worker: int
    start: int
    started: int
    finished: int


def modelled_conditions(latency: Latency, workers: int, clock: FrameClock) -> Conditions:
    """Return what a strategy may know where latencies come from a model: quantiles are those of 10,000 fixed draws."""

    def quantile(q: float) -> int:
        stream = latency.stream(np.random.SeedSequence(0))
        draws = sorted(stream.draw() for _ in range(_PLAYOUT_DRAWS))
        return draws[min(int(q * _PLAYOUT_DRAWS), _PLAYOUT_DRAWS - 1)]

    return Conditions(workers, clock, nanoseconds(latency.mean), quantile)


class SimulatedSchedule:
    """The schedule of N workers under a latency model, a stagger strategy and a frame rate; deterministic by seed.

    One frame applies one action: of those due, the newest start, then the earliest finish, then the lowest worker. An
    inference takes effect only if its start is later than that of every action applied before. A worker never infers
    the same frame twice. A reset discards what is in flight; the latencies and the strategy's estimates go on.

    Args:
        latency: A model, or a number of seconds.
        workers: How many.
        fps: Frames per second.
        stagger: A strategy, by name or as an object.
        playout: For tickets: frames, or a quantile of the latency.
        slot: For tickets: least distance between two starts, in frames.
        seed: Of the latencies, until an episode brings its own.

    Raises:
        ValueError: An argument out of range.
    """

    def __init__(
        self,
        latency: Any,
        workers: int = 1,
        fps: Any = 60,
        stagger: Any = "tickets",
        playout: int | str = "p99",
        slot: int | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        if not isinstance(workers, int | np.integer) or isinstance(workers, bool) or workers < 1:
            raise ValueError(f"workers must be a whole number >= 1, got {workers!r}")
        self.latency: Latency = as_latency(latency)
        self.workers = int(workers)
        self.clock = FrameClock(fps)
        self.stagger = deepcopy(make_stagger(stagger, playout, slot))  # a strategy serves one schedule
        self.stagger.prepare(modelled_conditions(self.latency, self.workers, self.clock))
        self._seed = np.random.SeedSequence(seed)
        self._simulation = _Simulation(self.clock, self.workers, self.stagger, self.latency.stream(self._seed))

    @property
    def counts(self) -> Counts:
        """What happened so far."""
        return self._simulation.counts

    def keep_log(self) -> list[Inference]:
        """Keep every inference from now on in a list, and return that list."""
        self._simulation.log = []
        return self._simulation.log

    def frames(self, seed: int | None = None) -> Iterator[tuple[int | None, bool]]:
        """Begin an episode; see `Schedule.frames`."""
        return ((applied and applied[0], bool(readers)) for applied, readers in self.steps(seed))

    def steps(self, seed: int | None = None) -> Iterator[tuple[tuple[int, int] | None, list[int]]]:
        """Begin an episode and tell, frame by frame, who does what.

        Yields:
            (start, worker) of the action applied on the frame, or None; and the workers that read the frame.
        """
        if seed is not None:
            self._simulation.restart(self.latency.stream(np.random.SeedSequence((seed, 0x1A7E))))
        self._simulation.begin()
        return iter(self._simulation.step, None)

    def first(self) -> tuple[int, int]:
        """Return (start, effect) of the first decision that takes effect; asked before any frame of the episode."""
        return self._simulation.copy().run_to_next_action()

    def in_flight(self, after: int, end: int) -> int | None:
        """Return the start of the decision begun that would be applied first; see `Schedule.in_flight`."""
        future = self._simulation.copy()
        future.close(after)
        return future.run_to_next_action()[0] if future.pending() else None

    def finished(self) -> int:
        """Return the first frame that began when the inference behind the action applied last had ended."""
        return self.clock.frame_at(self._simulation.finished)


_FINISH, _RELEASE, _READY = 0, 1, 2  # at the same time, in this order


class _Tape:
    """The draws of a stream by their number, so that what a look ahead has drawn is drawn again by what follows."""

    def __init__(self, stream: LatencyStream) -> None:
        self._stream = stream
        self._drawn: deque[int] = deque()
        self._forgotten = 0

    def draw(self, number: int) -> int:
        while len(self._drawn) <= number - self._forgotten:
            self._drawn.append(self._stream.draw())
        return self._drawn[number - self._forgotten]

    def forget(self, number: int) -> None:
        """Forget the draws before `number`."""
        while self._drawn and self._forgotten < number:
            self._drawn.popleft()
            self._forgotten += 1


class _Simulation:
    """One episode after another, event by event; copied to look ahead."""

    def __init__(self, clock: FrameClock, workers: int, stagger: Stagger, latencies: LatencyStream) -> None:
        self._clock, self._workers = clock, workers
        self.stagger, self._tape, self._draws = stagger, _Tape(latencies), 0
        self.counts = Counts()
        self.log: list[Inference] | None = None
        self.begin()

    def restart(self, latencies: LatencyStream) -> None:
        self._tape, self._draws = _Tape(latencies), 0
        self.stagger.restart()

    def copy(self) -> _Simulation:
        """Return what goes on in the same way, with the same draws, and changes nothing here."""
        future = copy(self)
        future.stagger, future.counts, future.log = deepcopy(self.stagger), Counts(), None
        future._events, future._idle = self._events.copy(), self._idle.copy()
        future._due, future._read = self._due.copy(), self._read.copy()
        return future

    def begin(self) -> None:
        self._tape.forget(self._draws)
        self.frame = 0
        self._applied = -1  # start of the newest action applied
        self.finished = 0  # when its inference had ended
        self._open = True
        self._events: list[tuple[int, int, int, int, int]] = []  # (time, kind, worker, start, started or finished)
        self._idle: list[tuple[int, int]] = []  # (free since, worker)
        self._due: list[tuple[int, int, int, int, int]] = []  # (due frame, start, released, worker, finished)
        self._read = [-1] * self._workers  # the frame that each worker inferred last
        self.stagger.begin()
        for worker in range(self._workers):
            self._free(worker, 0)

    def close(self, after: int) -> None:
        """Let nothing start any more, and nothing that began up to start `after` be applied."""
        self._open = False
        self._applied = max(self._applied, after)

    def pending(self) -> bool:
        """Return whether an action in flight can still be applied."""
        running = any(kind != _READY and start > self._applied for _, kind, _, start, _ in self._events)
        return running or any(start > self._applied for _, start, *_ in self._due)

    def run_to_next_action(self) -> tuple[int, int]:
        """Run, jumping over frames on which nothing happens, until an action is applied; return (start, effect)."""
        while True:
            frame = self.frame
            applied, _ = self.step()
            if applied is not None:
                return applied[0], frame
            self.frame = max(self.frame, self._next_eventful_frame())

    def _next_eventful_frame(self) -> int:
        """Return the first frame, from the present one on, on which something may happen."""
        frames = [self._clock.frame_in(self._events[0][0])] if self._events else []
        if self._due:
            frames.append(self._due[0][0])
        opens = self.stagger.opens(self.frame) if self._idle and self._open else None
        return min(frames if opens is None else [*frames, opens], default=self.frame)

    def step(self) -> tuple[tuple[int, int] | None, list[int]]:
        """Run one frame: return (start, worker) of the action applied on it, and the workers that read it."""
        frame = self.frame
        now, end = self._clock.begin(frame), self._clock.begin(frame + 1)
        offers = self.stagger.offers(frame) if self._open else 0
        readers: list[int] = []
        self._run_events(now)
        self._start_idle(frame, now, offers, readers)
        applied = self._apply(frame)
        while self._events and self._events[0][0] < end:
            now = self._events[0][0]
            self._run_events(now)
            self._start_idle(frame, now, offers, readers)
        self.frame += 1
        self.counts.frames += 1
        return applied, readers

    def _run_events(self, now: int) -> None:
        """Let everything happen that is to happen by `now`."""
        while self._events and self._events[0][0] <= now:
            time, kind, worker, start, started = heapq.heappop(self._events)
            if kind == _FINISH:
                released = max(time, self.stagger.finish(worker, started, time))
                heapq.heappush(self._events, (released, _RELEASE, worker, start, time))
            elif kind == _RELEASE:
                self._release(worker, start, started, time)
                self._free(worker, time)
            else:
                heapq.heappush(self._idle, (time, worker))

    def _free(self, worker: int, now: int) -> None:
        ready = max(now, self.stagger.start(worker, now))
        if ready > now:
            heapq.heappush(self._events, (ready, _READY, worker, 0, 0))
        else:
            heapq.heappush(self._idle, (now, worker))

    def _start_idle(self, frame: int, now: int, offers: int | None, readers: list[int]) -> None:
        """Start the workers that may: the one that has waited longest first, each on a frame it has not inferred."""
        waiting: list[tuple[int, int]] = []
        while self._idle and (offers is None or len(readers) < offers):
            since, worker = heapq.heappop(self._idle)
            if self._read[worker] == frame:
                waiting.append((since, worker))
                continue
            self._read[worker] = frame
            readers.append(worker)
            self.stagger.taken(frame)
            latency = self._tape.draw(self._draws)
            self._draws += 1
            self.counts.inferences[worker] = self.counts.inferences.get(worker, 0) + 1
            self.counts.busy[worker] = self.counts.busy.get(worker, 0) + latency
            if self.log is not None:
                self.log.append(Inference(worker, frame, now, now + latency))
            heapq.heappush(self._events, (now + latency, _FINISH, worker, frame, now))
            self._run_events(now)  # an inference that takes no time has ended
        for free in waiting:
            heapq.heappush(self._idle, free)

    def _release(self, worker: int, start: int, finished: int, now: int) -> None:
        arrival, due = self._clock.frame_at(now), start + self.stagger.playout
        if self.stagger.playout and arrival > due:
            self.counts.late += 1
        heapq.heappush(self._due, (max(arrival, due), start, now, worker, finished))

    def _apply(self, frame: int) -> tuple[int, int] | None:
        """Choose among the actions that are due, and count."""
        best: tuple[int, int, int, int] | None = None
        while self._due and self._due[0][0] <= frame:
            _, start, released, worker, finished = heapq.heappop(self._due)
            candidate = (-start, released, worker, finished)
            self.counts.dropped += best is not None or start <= self._applied
            if start > self._applied and (best is None or candidate < best):
                best = candidate
        if best is None:
            return None
        self._applied, self.finished = -best[0], best[3]
        self.stagger.applied(frame)
        age = frame - self._applied
        self.counts.fresh += 1
        self.counts.delay[age] = self.counts.delay.get(age, 0) + 1
        return self._applied, best[2]
