"""Who starts when, and which action a frame receives: the simulated schedule's rules, fed with the times of a clock.

No sleeping, no clock, no input or output. All times are nanoseconds since the episode began.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.stagger import Stagger

__all__ = ["Dispatcher", "Due"]

_RELEASE, _READY = 0, 1  # at the same time, in this order


class Due(NamedTuple):
    """An action that may be applied: the frame it saw, and who inferred it."""

    start: int
    worker: int


class Dispatcher:
    """One episode after another of a stagger strategy.

    One frame applies one action: of those due, the newest start, then the earliest finish, then the lowest worker. An
    action is applied only if its start is later than that of every action applied before. A worker never infers the
    same frame twice.

    Args:
        clock: The world's frames.
        stagger: The strategy, prepared.
    """

    def __init__(self, clock: FrameClock, stagger: Stagger) -> None:
        """See the class."""
        self._clock, self._stagger = clock, stagger
        self.dropped = 0
        self.late = 0

    def begin(self, free: Iterable[int]) -> None:
        """Begin an episode with these workers free at time 0."""
        self._applied = -1  # start of the newest action applied
        self._frame = -1
        self._offers: int | None = 0
        self._events: list[tuple[int, int, int, int, int]] = []  # (time, kind, worker, start, finished)
        self._idle: list[tuple[int, int]] = []  # (free since, worker)
        self._due: list[tuple[int, int, int, int, int]] = []  # (due frame, start, released, worker, finished)
        self._held: set[int] = set()  # workers that are free once their action is released
        self._read: dict[int, int] = {}  # the frame that each worker inferred last
        self._stagger.begin()
        for worker in free:
            self.free(worker, 0)

    def frame(self, frame: int) -> None:
        """A frame begins: its observation is there."""
        self._frame = frame
        self._offers = self._stagger.offers(frame)

    def free(self, worker: int, now: int) -> None:
        """A worker is free, and asks when it may start."""
        ready = max(now, self._stagger.start(worker, now))
        if ready > now:
            heapq.heappush(self._events, (ready, _READY, worker, 0, 0))
        else:
            heapq.heappush(self._idle, (now, worker))

    def finished(self, worker: int, start: int, started: int, ended: int) -> None:
        """An inference has ended with an action."""
        released = max(ended, self._stagger.finish(worker, started, ended))
        self._held.add(worker)
        heapq.heappush(self._events, (released, _RELEASE, worker, start, ended))

    def lost(self, start: int) -> None:
        """An inference gave no action, and never will."""
        self._stagger.lost(start)

    def gone(self, worker: int) -> None:
        """A worker is no more, until it is told to be free again; what it has inferred stays."""
        self._held.discard(worker)
        self._idle = [entry for entry in self._idle if entry[1] != worker]
        self._events = [entry for entry in self._events if entry[1] == _RELEASE or entry[2] != worker]
        heapq.heapify(self._idle)
        heapq.heapify(self._events)

    def starts(self, now: int) -> list[int]:
        """Return the workers that start now on the present frame: the one that has waited longest first."""
        return list(self.each_start(now))

    def each_start(self, now: int) -> Iterator[int]:
        """Yield the workers that start now, one by one, as in `starts`.

        Between two of them `finished` may be called: on a simulated clock an inference that takes no time has ended
        before the next worker starts.
        """
        self._advance(now)
        waiting: list[tuple[int, int]] = []
        while self._idle and self._offers != 0:
            since, worker = heapq.heappop(self._idle)
            if self._read.get(worker) == self._frame:
                waiting.append((since, worker))
                continue
            self._read[worker] = self._frame
            self._stagger.taken(self._frame)
            if self._offers is not None:
                self._offers -= 1
            yield worker
            self._advance(now)
        for free in waiting:
            heapq.heappush(self._idle, free)

    def next_event(self) -> int | None:
        """Return the time of the next event that needs no message, None if there is none."""
        return self._events[0][0] if self._events else None

    def choose(self) -> Due | None:
        """Return which action the present frame receives, None for the default action; call `starts` before."""
        best: tuple[int, int, int, int] | None = None
        while self._due and self._due[0][0] <= self._frame:
            _, start, released, worker, finished = heapq.heappop(self._due)
            candidate = (-start, released, worker, finished)
            self.dropped += best is not None or start <= self._applied
            if start > self._applied and (best is None or candidate < best):
                best = candidate
        if best is None:
            return None
        self._applied = -best[0]
        self._stagger.applied(self._frame)
        return Due(self._applied, best[2])

    def in_flight(self, running: Iterable[int]) -> int | None:
        """Return the start of the decision that would be applied next, None if there is none.

        Args:
            running: Starts of the inferences that go on; which of them ends first is not known, so the oldest counts.
        """
        finished = [(due, start) for due, start, *_ in self._due if start > self._applied]
        held = [start for _, kind, _, start, _ in self._events if kind == _RELEASE and start > self._applied]
        if finished:
            return min(finished)[1]
        return min([*held, *(start for start in running if start > self._applied)], default=None)

    def _advance(self, now: int) -> None:
        """Let everything happen that is to happen by `now`."""
        while self._events and self._events[0][0] <= now:
            time, kind, worker, start, finished = heapq.heappop(self._events)
            if kind == _RELEASE:
                self._release(worker, start, finished, time)
                if worker in self._held:
                    self._held.remove(worker)
                    self.free(worker, time)
            else:
                heapq.heappush(self._idle, (time, worker))

    def _release(self, worker: int, start: int, finished: int, now: int) -> None:
        arrival, playout = self._clock.frame_at(now), self._stagger.playout
        due = arrival if playout is None else max(arrival, start + playout)
        self.late += playout is not None and arrival > start + playout
        heapq.heappush(self._due, (due, start, now, worker, finished))
