"""The simulated schedule: N workers whose inferences take random times, thinned to the decisions that take effect."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import cache
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Any, NamedTuple, Self

import numpy as np

from async_wrappers.checks import whole, whole_frames
from async_wrappers.latency import Latency, LatencyStream, as_latency, nanoseconds
from async_wrappers.schedule.dispatch import Dispatcher, refuse_old_playout
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.stagger import Conditions, Stagger, Tickets, keeps_playout, make_stagger

MOST_WORKERS = 1_000_000

# Draws behind the quantiles of a model, so that p99 rests on 100 of them. Their seed is fixed: the playout of a
# configuration must not depend on a run's seed.
_PLAYOUT_DRAWS = 10_000

_HOPELESS = 10_000  # actions in a row that were too old, after which the search for a younger one is given up


@dataclass
class Counts:
    """Frames, actions and inferences since the schedule was made, over all episodes.

    Attributes:
        frames: Frames asked for.
        fresh: Frames that received the action of a new decision; the others a going chunk's, or the default action.
        dropped: Actions computed in full and never applied: a newer one had been, or was applied instead.
        late: Actions released after they were due, applied or not.
        delay: How often an action of each age was applied, in frames.
        inferences: By worker.
        busy: Nanoseconds of inference begun, by worker.
        too_old: Actions that would have been applied, and were refused as older than ``max_age``.
    """

    frames: int = 0
    fresh: int = 0
    dropped: int = 0
    late: int = 0
    delay: dict[int, int] = field(default_factory=dict)
    inferences: dict[int, int] = field(default_factory=dict)
    busy: dict[int, int] = field(default_factory=dict)
    too_old: int = 0

    @property
    def fresh_share(self) -> float:
        """Share of the frames that received the action of a new decision: ``fresh / frames``; 0 without frames."""
        return self.fresh / self.frames if self.frames else 0.0

    @property
    def mean_delay(self) -> float:
        """Mean delay of the applied actions, ``mean(e_j - s_j)``, in frames; nan if none was applied."""
        return sum(age * n for age, n in self.delay.items()) / self.fresh if self.fresh else float("nan")

    def delay_quantile(self, q: float) -> float:
        """Return the least delay that a share `q` of the applied actions does not exceed, in frames; nan if none."""
        reached = 0
        for age in sorted(self.delay):
            reached += self.delay[age]
            if reached >= q * self.fresh:
                return age
        return float("nan")


class SimulatedInference(NamedTuple):
    """One run of the policy: which worker, on which frame's observation, from when to when in nanoseconds."""

    worker: int
    start: int
    started: int
    finished: int


def modelled_conditions(latency: Latency, workers: int, clock: FrameClock) -> Conditions:
    """Return the conditions of workers whose latencies come from a model; quantiles are those of 10,000 fixed draws."""

    @cache
    def draws() -> list[int]:
        stream = latency.stream(np.random.SeedSequence(0))
        return sorted(stream.draw() for _ in range(_PLAYOUT_DRAWS))

    def quantile(q: float) -> int:
        return draws()[min(int(q * _PLAYOUT_DRAWS), _PLAYOUT_DRAWS - 1)]

    return Conditions(workers, clock, nanoseconds(latency.mean), quantile)


def worker_count(workers: Any) -> int:
    """Return a number of workers as an int from 1 to a million, or raise a ValueError.

    Raises:
        ValueError: It is not a whole number, less than one, or more than a million.
    """
    return whole("workers", workers, 1, MOST_WORKERS)


class SimulatedSchedule:
    """The schedule of N workers under a latency model, a stagger strategy and a frame rate; deterministic by seed.

    `async_wrappers.schedule.dispatch` has the rules: one frame applies one action, of those due the one with the newest
    start; an inference takes effect only if its start is later than that of every action applied before; a worker never
    infers the same frame twice. A reset discards all inferences in flight; the latencies and the strategy's estimates
    continue.

    Args:
        latency: A model, or a number of seconds.
        workers: How many.
        fps: Frames per second.
        stagger: A strategy, by name or as an object.
        playout: For tickets: frames from an observation to the frame on which its action is due, or a quantile of the
            latency.
        slot: For tickets: least distance between two starts, in frames, or ``"even"``.
        seed: Of the latencies, until an episode brings its own.
        max_age: Greatest age in frames that an observation may have when its action is applied. An older action is
            refused, and the frame receives the default action. None for no limit.

    Raises:
        ValueError: An argument out of range, a strategy that waits for a learner (a simulated schedule has
            none), or a `max_age` that the playout exceeds; in an episode, 10,000 actions in a row that were too old.
    """

    def __init__(
        self,
        latency: Any,
        workers: int = 1,
        fps: Any = 60,
        stagger: Any = "tickets",
        playout: int | str = "p99",
        slot: int | str | None = None,
        seed: int | None = None,
        max_age: int | None = None,
    ) -> None:
        self.latency: Latency = as_latency(latency)
        self.max_age = None if max_age is None else whole_frames("max_age", max_age)
        self.workers = worker_count(workers)
        self.clock = FrameClock(fps)
        self.stagger = deepcopy(make_stagger(stagger, playout, slot))  # a strategy serves one schedule
        if self.stagger.granted is not None:
            raise ValueError(
                f"stagger={self.stagger!r} waits for a learner, and none learns beside a simulated schedule: give "
                "'sequential'"
            )
        self.stagger.prepare(modelled_conditions(self.latency, self.workers, self.clock))
        refuse_old_playout(self.max_age, self.stagger.playout)
        try:
            entropy = np.random.SeedSequence(seed)
        except (TypeError, ValueError):
            raise ValueError(f"seed must be a whole number >= 0, or None, got {seed!r}") from None
        latencies = self.latency.stream(entropy)
        self._simulation: _TicketSimulation | _EventSimulation
        # A subclass of `Tickets` may override any rule, so it is simulated event by event.
        if type(self.stagger) is Tickets:
            self._simulation = _TicketSimulation(self.clock, self.workers, self.stagger, latencies, self.max_age)
        else:
            self._simulation = _EventSimulation(self.clock, self.workers, self.stagger, latencies, self.max_age)

    @property
    def playout(self) -> int | None:
        return self.stagger.playout

    @property
    def keeps_playout(self) -> bool:
        return keeps_playout(self.stagger)

    @property
    def most_in_flight(self) -> int | None:
        """Effects strictly increase, so there are at most `max_age`."""
        return self.max_age

    @property
    def decision_interval(self) -> None:
        return None

    @property
    def counts(self) -> Counts:
        """Frames, actions and inferences so far."""
        return self._simulation.counts

    def keep_log(self) -> list[SimulatedInference]:
        """Keep every inference from now on in a list, and return that list."""
        self._simulation.log = []
        return self._simulation.log

    def unfinished(self, frame: int, landed: int = -1) -> list[tuple[int, int]]:
        """See `PlainSchedule.unfinished`; call `keep_log` before; entries that are no longer needed leave the log.

        The log must hold the running episode alone.
        """
        log = self._simulation.log
        assert log is not None
        log[:] = [each for each in log if each.start > landed]
        if not self.keeps_playout:
            return [(each.start, frame + 1) for each in log if each.start < frame]
        begin, playout = self.clock.begin(frame), self.stagger.playout or 0
        going_on = (each for each in log if each.start < frame and each.finished > begin)
        return [(each.start, max(each.start + playout, frame + 1)) for each in going_on]

    def frames(self, seed: int | None = None) -> Iterator[tuple[int | None, bool]]:
        """Begin an episode; see `PlainSchedule.frames`."""
        self._begin(seed)
        return self._simulation.frames()

    def frames_from(self, frame: int) -> Iterator[tuple[int | None, bool]]:
        """The simulation knows which frame is the next."""
        return self._simulation.frames()

    def steps(self, seed: int | None = None) -> Iterator[tuple[tuple[int, int] | None, list[int]]]:
        """Begin an episode, frame by frame.

        Yields:
            (start, worker) of the action applied on the frame, or None; and the workers that read the frame.
        """
        self._begin(seed)
        return self._simulation.steps()

    def decisions(self, seed: int | None = None) -> Iterator[tuple[int, int]]:
        """Begin an episode; yield ``(start, effect) = (s_j, e_j)`` of its decisions, without end."""
        return ((start, effect) for effect, (start, _) in enumerate(self.frames(seed)) if start is not None)

    def _begin(self, seed: int | None) -> None:
        if seed is not None:
            self._simulation.restart(self.latency.stream(np.random.SeedSequence((seed, 0x1A7E))))
        self._simulation.begin()

    def first(self) -> tuple[int, int]:
        """Return (start, effect) of the first decision that takes effect; asked before any frame of the episode."""
        return self._simulation.first()

    def in_flight(self, after: int, end: int) -> int | None:
        """Return the start of the decision begun that would be applied first; see `PlainSchedule.in_flight`."""
        return self._simulation.in_flight(after)

    def finished(self) -> int:
        return self._simulation.finished()


class _Draws:
    """Latencies, one after the other, which can be looked at before they are taken; a deep copy goes on identically."""

    def __init__(self, latencies: LatencyStream) -> None:
        self._draw = latencies.draw
        self._ahead: deque[int] = deque()  # looked at, and not yet taken

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        return self._ahead.popleft() if self._ahead else self._draw()

    def ahead(self) -> Iterator[int]:
        """Yield the next draws without taking them; invalid once one is taken."""
        for place in count():
            if place == len(self._ahead):
                self._ahead.append(self._draw())
            yield self._ahead[place]


class _Simulation:
    """One episode after another, frame by frame; copied to look ahead. A subclass simulates the frames."""

    frame: int  # the next one

    def __init__(self, clock: FrameClock, workers: int, latencies: LatencyStream, max_age: int | None) -> None:
        self._clock, self._workers, self._max_age = clock, workers, max_age
        self._refused = 0  # too old, in a row
        self._latencies: Iterator[int] = _Draws(latencies)
        self.counts = Counts()
        self.log: list[SimulatedInference] | None = None

    def restart(self, latencies: LatencyStream) -> None:
        """Forget all estimates, and go on with these latencies."""
        self._latencies = _Draws(latencies)
        self._refused = 0

    def frames(self) -> Iterator[tuple[int | None, bool]]:
        """Yield the frames from the present one on; see `PlainSchedule.frames`."""
        raise NotImplementedError

    def next_eventful_frame(self) -> int:
        """Return the first frame, from the present one on, on which something may happen."""
        raise NotImplementedError

    def refuse(self) -> None:
        """Count an action that was too old.

        Raises:
            ValueError: 10,000 actions in a row were too old.
        """
        self.counts.too_old += 1
        self._refused += 1
        if self._refused >= _HOPELESS:
            raise ValueError(
                f"max_age must let some action be applied, got {self._max_age} frames: {_HOPELESS:,} in a row were "
                "older; raise it, or take a shorter latency"
            )

    def copy(self) -> Self:
        """Return a simulation with the same future and the same draws, valid until this one goes on."""
        future = copy(self)
        assert isinstance(self._latencies, _Draws)
        future._latencies = self._latencies.ahead()
        future.counts, future.log = Counts(), None
        return future

    def first(self) -> tuple[int, int]:
        """Return (start, effect) of the next action that is applied."""
        future = self.copy()
        # Frames on which nothing happens are jumped over: with a latency of hours, they are millions. A new `frames()`
        # begins at `future.frame`.
        while True:
            for start, _ in future.frames():
                if start is not None:
                    return start, future.frame - 1
                eventful = future.next_eventful_frame()
                if eventful > future.frame:
                    future.frame = eventful
                    break


class _TicketSimulation(_Simulation):
    """`Tickets` without events: the same frames, counts and log as `_EventSimulation`, in half the time.

    When a worker takes a ticket, all consequences are known: when the inference ends, when the worker is free again,
    and on which frame the action lands. So neither ends nor releases are events; there is a heap of workers by the time
    at which they are free, and a table of actions by the frame on which they land.
    """

    # Three facts make one entry per frame of that table enough. At most one worker starts on a frame, so starts are
    # distinct and entries are made in their order: the newest action of a landing frame is the one entered last, and
    # that one is applied, if any is. The others are dropped, so a number is enough for them. And an action that lands
    # on a frame is dropped if a newer one was applied before: late ones may be.

    def __init__(
        self, clock: FrameClock, workers: int, tickets: Tickets, latencies: LatencyStream, max_age: int | None
    ) -> None:
        assert tickets.playout is not None
        self._tickets, self._playout = tickets, tickets.playout
        # `following` gives the same for whole slots; without the call, a frame takes 0.9 of the time.
        self._whole_slot = 0 if tickets.even else int(tickets.slot)
        super().__init__(clock, workers, latencies, max_age)
        self.begin()

    def begin(self) -> None:
        """Begin an episode."""
        self.frame = 0
        self._offered = 0  # from this frame on there is a ticket
        self._due = 0  # when it was due, in the unit of `Tickets.following`
        self._free = [(0, worker) for worker in range(self._workers)]  # (from when on, worker), a heap
        # by the frame on which they land, of the newest action: (start, worker, frame by which it is ready, older ones)
        self._landing: dict[int, tuple[int, int, int, int]] = {}
        self._late: list[int] = []  # when actions will have finished that miss their playout, a heap
        self._applied = (-1, 0, 0, 0)  # the newest action applied
        self._reader = 0  # the worker that took the last ticket

    def copy(self) -> Self:
        future = super().copy()
        future._free, future._landing, future._late = self._free.copy(), self._landing.copy(), self._late.copy()
        return future

    def frames(self) -> Iterator[tuple[int | None, bool]]:
        frame_at = self._clock.frame_at
        free, landing, late, counts = self._free, self._landing, self._late, self.counts
        inferences, busy, delay = counts.inferences, counts.busy, counts.delay
        playout, whole_slot, following = self._playout, self._whole_slot, self._tickets.following
        max_age = self._max_age
        begins = self._clock.begins(self.frame)
        end = next(begins)
        for frame in count(self.frame):
            begin, end = end, next(begins)
            read = frame >= self._offered and free[0][0] < end
            # The ticket goes to the worker that has been free for longest, else to the one that is free first.
            if read:
                since, worker = free[0]
                latency = next(self._latencies)
                started = since if since > begin else begin
                finished = started + latency
                heapreplace(free, (finished, worker))
                if whole_slot:
                    self._offered = frame + whole_slot
                else:
                    self._offered, self._due = following(frame, self._due)
                self._reader = worker
                ready, lands = frame_at(finished), frame + playout
                if ready > lands:
                    lands = ready
                    heappush(late, finished)
                older = landing[lands][3] + 1 if lands in landing else 0
                landing[lands] = (frame, worker, ready, older)
                inferences[worker] = inferences.get(worker, 0) + 1
                busy[worker] = busy.get(worker, 0) + latency
                if self.log is not None:
                    self.log.append(SimulatedInference(worker, frame, started, finished))
            start = None
            if frame in landing:
                landed = landing.pop(frame)
                if landed[0] > self._applied[0] and max_age is not None and frame - landed[0] > max_age:
                    self.refuse()
                elif landed[0] > self._applied[0]:
                    self._refused = 0
                    self._applied, start = landed, landed[0]
                    counts.fresh += 1
                    age = frame - start
                    delay[age] = delay.get(age, 0) + 1
                else:
                    counts.dropped += 1
                if landed[3]:
                    counts.dropped += landed[3]
            while late and late[0] < end:
                heappop(late)
                counts.late += 1
            counts.frames += 1
            self.frame = frame + 1
            yield start, read

    def steps(self) -> Iterator[tuple[tuple[int, int] | None, list[int]]]:
        """Yield the frames from the present one on; see `SimulatedSchedule.steps`."""
        for start, read in self.frames():
            applied = None if start is None else self._applied[:2]
            yield applied, [self._reader] if read else []

    def finished(self) -> int:
        return self._applied[2]

    def in_flight(self, after: int) -> int | None:
        """Return the start, later than `after`, of the decision begun that would be applied first, or None."""
        after = max(after, self._applied[0])
        landing = [(lands, newest[0]) for lands, newest in self._landing.items() if newest[0] > after]
        if self._max_age is not None:
            landing = [(lands, start) for lands, start in landing if lands - start <= self._max_age]
        return min(landing)[1] if landing else None

    def next_eventful_frame(self) -> int:
        return min([max(self._offered, self._clock.frame_in(self._free[0][0])), *self._landing])


class _EventSimulation(_Simulation):
    """Any strategy: a `Dispatcher` that is given the times at which inferences will end."""

    def __init__(
        self, clock: FrameClock, workers: int, stagger: Stagger, latencies: LatencyStream, max_age: int | None
    ) -> None:
        self._stagger, self._dispatcher = stagger, Dispatcher(clock, stagger, self._draw_end, max_age)
        super().__init__(clock, workers, latencies, max_age)
        self.begin()

    def restart(self, latencies: LatencyStream) -> None:
        super().restart(latencies)
        self._stagger.restart()

    def begin(self) -> None:
        """Begin an episode."""
        self.frame = 0
        self._dispatcher.begin(range(self._workers))

    def copy(self) -> Self:
        future = super().copy()
        future._dispatcher = self._dispatcher.copy(future._draw_end)
        return future

    def frames(self) -> Iterator[tuple[int | None, bool]]:
        return ((applied and applied[0], bool(readers)) for applied, readers in self.steps())

    def steps(self) -> Iterator[tuple[tuple[int, int] | None, list[int]]]:
        """Yield the frames from the present one on; see `SimulatedSchedule.steps`."""
        dispatcher, counts = self._dispatcher, self.counts
        begins = self._clock.begins(self.frame)
        end = next(begins)
        for frame in count(self.frame):
            begin, end = end, next(begins)
            dispatcher.frame(frame)
            readers = dispatcher.starts(begin)
            refused = dispatcher.too_old
            applied = dispatcher.choose()
            if dispatcher.too_old > refused:
                self.refuse()
            readers += dispatcher.starts_before(end)
            if applied is not None:
                self._refused = 0
                age = frame - applied[0]
                counts.fresh += 1
                counts.delay[age] = counts.delay.get(age, 0) + 1
            counts.dropped, counts.late = dispatcher.dropped, dispatcher.late
            counts.frames += 1
            self.frame = frame + 1
            yield applied, readers

    def finished(self) -> int:
        return self._clock.frame_at(self._dispatcher.ended)

    def in_flight(self, after: int) -> int | None:
        """Return the start, later than `after`, of the decision begun that would be applied first, or None."""
        return self._dispatcher.next_start(after)

    def next_eventful_frame(self) -> int:
        return self._dispatcher.next_eventful_frame(self.frame)

    def _draw_end(self, worker: int, frame: int, now: int) -> int:
        """Draw the latency of an inference that starts now, count it, and return when it will end."""
        latency = next(self._latencies)
        inferences, busy = self.counts.inferences, self.counts.busy
        inferences[worker] = inferences.get(worker, 0) + 1
        busy[worker] = busy.get(worker, 0) + latency
        if self.log is not None:
            self.log.append(SimulatedInference(worker, frame, now, now + latency))
        return now + latency
