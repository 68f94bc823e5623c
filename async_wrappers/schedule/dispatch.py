"""The event core: which worker starts when, and which decision lands on each frame.

`Dispatcher` holds the rules of N staggered workers for both of their users: the simulated schedule, whose latencies
come from a model, and the live loop, whose workers are real. It takes times and returns times, workers and actions. It
owns no clock, never sleeps, and does no input or output. All times are whole nanoseconds since the episode began.
"""

# The time line of a frame
# ========================
#
#   begin(k)                                                       begin(k + 1)
#      |                                                                |
#   ---+-----------o------------------o---------------o-----------------+-----------> time
#      |           |                  |               |
#    1, 2, 3       4                  4               4
#
# 1. `frame(k)`     The observation of frame k is there. The strategy is asked, once, how many workers may start on
#                   it.
# 2. `starts(now)`  Everything due by now happens: inferences end, actions are released, workers become free. Then
#                   idle workers start on frame k, as many as the strategy offers starts.
# 3. `choose()`     Frame k receives one action or the default action. Nothing changes this choice any more.
# 4. `starts(now)`  The same as 2, at each later event of the frame. An action released here is for frame k + 1 or
#                   later.
#
# Events come before the choice, so that an inference which ends at the nanosecond at which a frame begins is in time
# for this frame. Starts come before the choice too, so that an inference which takes no time acts on the frame that
# it read: as latencies go to zero, play becomes turn-based.
#
#
# The life of an inference and of its worker
# ==========================================
#
#                   starts             end               RELEASE            choose
#   inference:        o----- running ---o---- held back ----o---- due ---------o  applied, or dropped
#                                                           |
#   worker:      idle o--------------- busy ----------------o---- waits ---------------o idle
#                                                                                    READY
#
# * A simulation knows the end of an inference when it starts: the function `ends` returns it, and the dispatcher
#   books a FINISH event. A real worker reports the end afterwards: the live loop calls `finished`. Both ways lead to
#   the same code.
# * From the end to the release the strategy may hold the action back, and the worker with it. "max_time" does so
#   until the longest latency so far has passed: holding the worker keeps the distances between the workers' starts.
# * From the release to its frame an action waits alone, while its worker infers again. "tickets" has such a playout.
# * When a worker is free, the strategy says from when on it may start; at that time it becomes idle. Idle workers start
#   as soon as the strategy offers a start on a frame that they have not read.
#
#
# Events at the same nanosecond
# =============================
#
# FINISH comes before RELEASE, RELEASE before READY, and within a kind the lowest worker comes first. Ends are first
# because a strategy that estimates latencies should know all of them before it decides how long a worker waits.
# Releases are next so that every worker that becomes free now has asked the strategy before one starts. For the rest
# of the order there is no reason but that there must be one: the same latencies have to give the same frames, on
# every machine, and in the live loop as in the simulation.
#
#
# The choice
# ==========
#
# An action is applied only if its start is later than that of every action applied before. Starts and effects of the
# agent's decisions then both increase strictly, so the decisions are the steps of one decision process. Of the
# actions due on a frame, the newest start wins, then the earliest release, then the lowest worker. The others are
# dropped at once, because the winner rules them out on every later frame.
#
# With `max_age`, the winner is refused if its observation is older than `max_age` frames, and the frame receives the
# default action. The others are older still, so none takes its place, now or later.
#
#
# The books
# =========
#
#   _events     heap of (time, kind, worker, start, time of the start or the end): events whose time is known
#   _idle       heap of (free since, worker): the worker that has waited longest starts first, so none starves
#   _released   heap of (due frame, start, released, worker, ended): released actions that wait for their frame
#   _read       worker -> the frame that it read last. Without this rule a worker of latency 0 would infer the same
#               frame again and again, and time would stand still
#   _ownerless  (worker, start) of actions that are held back though their worker is gone (a process died): the
#               release applies the action and frees no worker
#   _applied    start of the newest action applied, -1 before the first
#   _offers     starts left on the present frame, None for any number
#   _skips      (frame, n): before this frame the world went on for n frames that nobody played
#
# Inferences whose end will be reported are in none of these books: the live loop keeps them, with their observations.
# A book is a heap or a hash table, so that an event with 10,000 workers costs little more than one with ten.

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy, deepcopy
from functools import partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Self

from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.stagger import Stagger

_FINISH, _RELEASE, _READY = 0, 1, 2  # at the same time, in this order


class Due(NamedTuple):
    """An action that is applied: the frame that it saw, and the worker that inferred it."""

    start: int
    worker: int


# Makes a Due of a pair in half the time of Due(...), which counts where it is done on each frame.
_new_due = partial(tuple.__new__, Due)


def refuse_old_playout(max_age: int | None, playout: int | None) -> None:
    """Refuse a `max_age` under which no action could ever be applied, because each waits longer for its frame.

    Raises:
        ValueError: The playout is longer.
    """
    if max_age is not None and playout is not None and playout > max_age:
        raise ValueError(
            f"max_age must be >= the playout of {playout} frames, for which each action waits, got {max_age}: every "
            "action would be too old"
        )


def refuse_early_stop(stop_after_missed: int | None, delay: int | None) -> None:
    """Refuse a `stop_after_missed` that would end every run before its first action.

    Args:
        stop_after_missed: Frames in a row without an action after which a run ends; None for no end.
        delay: Frames of an episode before its first action lands, at least; None if they are unknown.

    Raises:
        ValueError: The delay is as long.
    """
    if stop_after_missed is not None and delay is not None and stop_after_missed <= delay:
        raise ValueError(
            f"stop_after_missed must be > the delay of {delay} frames before an episode's first action, got "
            f"{stop_after_missed}: the run would end before it"
        )


class Dispatcher:
    """One episode after another of a stagger strategy.

    Each frame: call `frame`, then `starts`, then `choose`. Call `starts` again at the time of each `next_event`, and
    after each `finished`, `free` or `gone`.

    Args:
        clock: The world's frames.
        stagger: The strategy, prepared.
        ends: From (worker, frame, now) to the time, `now` or later, at which the inference that starts now will end,
            for a simulation; called once for each inference, in the order of starts. None: ends are reported with
            `finished`.
        max_age: Frames from an action's start to its frame at most; None for no limit.

    Attributes:
        dropped: Actions computed in full and never applied, over all episodes: a newer one had been, or was applied
            instead.
        late: Actions released after they were due, over all episodes, applied or not.
        too_old: Actions that would have been applied, and were refused as older than `max_age`, over all episodes.
        ended: When the inference behind the action applied last had ended, in nanoseconds; 0 before the first.
    """

    def __init__(
        self,
        clock: FrameClock,
        stagger: Stagger,
        ends: Callable[[int, int, int], int] | None = None,
        max_age: int | None = None,
    ) -> None:
        self._clock, self._stagger, self._ends, self._max_age = clock, stagger, ends, max_age
        self.dropped = 0
        self.late = 0
        self.too_old = 0

    def begin(self, free: Iterable[int]) -> None:
        """Begin an episode with these workers free at time 0."""
        self._applied = -1
        self.ended = 0
        self._frame = -1
        self._offers: int | None = 0
        self._closed = False
        self._events: list[tuple[int, int, int, int, int]] = []
        self._idle: list[tuple[int, int]] = []
        self._released: list[tuple[int, int, int, int, int]] = []
        self._ownerless: set[tuple[int, int]] = set()
        self._read: dict[int, int] = {}
        self._skips: list[tuple[int, int]] = []
        self._stagger.begin()
        for worker in free:
            self.free(worker, 0)

    def copy(self, ends: Callable[[int, int, int], int] | None = None) -> Self:
        """Return a dispatcher that goes on in the same way, with `ends` of its own; nothing that changes is shared."""
        twin = copy(self)
        twin._ends = ends
        twin._stagger = deepcopy(self._stagger)
        twin._events, twin._idle, twin._released = self._events.copy(), self._idle.copy(), self._released.copy()
        twin._ownerless, twin._read = self._ownerless.copy(), self._read.copy()
        return twin

    def skip(self, frame: int, frames: int) -> None:
        """Note that the world went on for so many frames more before a frame began, for the age of actions."""
        if self._max_age is not None:
            oldest = frame - self._max_age
            self._skips = [each for each in self._skips if each[0] > oldest] + [(frame, frames)]

    def frame(self, frame: int) -> None:
        """Begin a frame: its observation is there."""
        self._frame = frame
        self._offers = 0 if self._closed else self._stagger.offers(frame)

    def free(self, worker: int, now: int) -> None:
        """Note that a worker is free, and ask the strategy when it may start."""
        ready = max(now, self._stagger.start(worker, now))
        if ready > now:
            heappush(self._events, (ready, _READY, worker, 0, 0))
        else:
            heappush(self._idle, (now, worker))

    def finished(self, worker: int, start: int, started: int, ended: int) -> None:
        """Report that an inference has ended with an action.

        Args:
            worker: Who inferred.
            start: The frame that it read.
            started: When it started, in nanoseconds.
            ended: When it ended.
        """
        # A report comes some time after the end, so the strategy may name a moment that is past. The release is then
        # due at once, but keeps its own time: due frames and ties do not depend on how fast the report came.
        released = max(ended, self._stagger.finish(worker, started, ended))
        heappush(self._events, (released, _RELEASE, worker, start, ended))

    def lost(self, start: int) -> None:
        """Report that an inference gave no action, and never will."""
        self._stagger.lost(start)

    def gone(self, worker: int) -> None:
        """Remove a worker that has died, until it is reported as free again; its actions stay."""
        kept = [entry for entry in self._events if entry[1] == _RELEASE or entry[2] != worker]
        self._ownerless |= {
            (worker, start) for _, kind, owner, start, _ in kept if kind == _RELEASE and owner == worker
        }
        self._events, self._idle = kept, [entry for entry in self._idle if entry[1] != worker]
        heapify(self._events)
        heapify(self._idle)

    def starts(self, now: int) -> list[int]:
        """Process all events due by `now`; return the workers that start now on the present frame, in order.

        The one that has waited longest comes first.
        """
        events = self._events
        starting: list[int] = []
        if events and events[0][0] <= now:
            self._advance(now)
        idle, offers = self._idle, self._offers
        if not idle or offers == 0:
            return starting
        read, frame, ends = self._read, self._frame, self._ends
        passed: list[tuple[int, int]] = []  # those that have read this frame; they stay idle
        while idle and offers != 0:
            free = heappop(idle)
            worker = free[1]
            if read.get(worker) == frame:
                passed.append(free)
                continue
            read[worker] = frame
            starting.append(worker)
            self._stagger.taken(frame)
            if offers is not None:
                offers -= 1
            if ends is not None:
                ended = ends(worker, frame, now)
                heappush(events, (ended, _FINISH, worker, frame, now))
                # An inference that takes no time ends before the next worker starts: its latency may change for how
                # long the strategy lets the others wait.
                if ended <= now:
                    self._advance(now)
        self._offers = offers
        for free in passed:
            heappush(idle, free)
        return starting

    def starts_before(self, end: int) -> list[int]:
        """Play the rest of the present frame, event by event; return the workers that start, in order.

        Only for a simulation, in which all events before `end` have been booked.
        """
        events = self._events
        starting: list[int] = []
        while events and (now := events[0][0]) < end:
            self._advance(now)
            # The same test as in `starts`: most events start no worker, and a call costs more than the test.
            if self._idle and self._offers != 0:
                starting += self.starts(now)
        return starting

    def next_event(self) -> int | None:
        """Return the time of the next event that needs no report, None if there is none."""
        return self._events[0][0] if self._events else None

    def choose(self, held_up: int = 0) -> Due | None:
        """Return which action the present frame receives, None for the default action; call `starts` before.

        Args:
            held_up: Frames that have passed since the frame began, for the age of the action.
        """
        best: tuple[int, int, int, int] | None = None
        while self._released and self._released[0][0] <= self._frame:
            _, start, released, worker, ended = heappop(self._released)
            candidate = (-start, released, worker, ended)
            self.dropped += best is not None or start <= self._applied
            if start > self._applied and (best is None or candidate < best):
                best = candidate
        if best is None:
            return None
        if self._max_age is not None and self._is_too_old(-best[0], self._frame + held_up):
            self.too_old += 1
            self._stagger.lost(-best[0])
            return None
        self._applied, self.ended = -best[0], best[3]
        self._stagger.applied(self._frame)
        return _new_due((-best[0], best[2]))

    def coming(self, now: int) -> list[tuple[int, int, int]]:
        """Return (due frame, start, worker) of the actions to be applied whose inferences have ended by `now`."""
        future = self
        if any(kind == _FINISH and time <= now for time, kind, *_ in self._events):  # the next `starts` lets them end
            future = self.copy()
            future._advance(now)
        waiting = [(due, start, worker) for due, start, _, worker, _ in future._released]
        held = [
            (max(self._clock.frame_at(time), start + (self._stagger.playout or 0)), start, worker)
            for time, kind, worker, start, _ in future._events
            if kind == _RELEASE
        ]
        coming: list[tuple[int, int, int]] = []
        newest = self._applied
        for due, start, worker in sorted(waiting + held, key=lambda each: (each[0], -each[1])):
            if self._is_too_old(start, due):
                continue
            if start > newest:  # else a newer one comes on the same frame or before
                newest = start
                coming.append((due, start, worker))
        return coming

    def in_flight(self, running: Iterable[int]) -> int | None:
        """Return the start of the decision that would be applied next, None if there is none.

        Args:
            running: Starts of the inferences that go on; which of them ends first is not known, so the oldest counts.
        """
        newest, following = self._applied, self._frame + 1

        def may_be_applied(start: int, frame: int = following) -> bool:
            return start > newest and not self._is_too_old(start, frame)

        finished = [(due, start) for due, start, *_ in self._released if may_be_applied(start, max(due, following))]
        held = [start for _, kind, _, start, _ in self._events if kind == _RELEASE and may_be_applied(start)]
        if finished:
            return min(finished)[1]
        return min([*held, *filter(may_be_applied, running)], default=None)

    def next_start(self, after: int = -1) -> int | None:
        """Return the start, later than `after`, of the decision begun that would be applied next, None if none.

        Only for a simulation: all ends are booked, so the frames to come can be played with nothing new started.
        """
        future = self.copy()
        future.close(after)
        frame = self._frame + 1
        while future.pending():
            frame = future.next_eventful_frame(frame)
            future.frame(frame)
            future.starts(self._clock.begin(frame))
            if (due := future.choose()) is not None:
                return due.start
            future.starts_before(self._clock.begin(frame + 1))
            frame += 1
        return None

    @property
    def applied(self) -> int:
        """Start of the newest action applied: one that is no newer never is. -1 before the first."""
        return self._applied

    def close(self, after: int) -> None:
        """Start no more inferences, and apply none that started on frame `after` or before."""
        self._closed = True
        self._applied = max(self._applied, after)

    def reopen(self, now: int) -> None:
        """Let workers start again after `close`, from `now` on, as at the beginning of an episode.

        Free workers would otherwise all start on one frame, and strategies that hold distances would keep them bunched.
        """
        self._closed = False
        self._stagger.begin()
        free = [worker for _, worker in self._idle] + [event[2] for event in self._events if event[1] == _READY]
        self._idle, self._events = [], [event for event in self._events if event[1] != _READY]
        heapify(self._events)
        for worker in sorted(free):
            self.free(worker, now)

    def pending(self) -> bool:
        """Return whether an action, of an inference that runs or has ended, can still be applied."""
        coming = any(kind != _READY and start > self._applied for _, kind, _, start, _ in self._events)
        return coming or any(start > self._applied for _, start, *_ in self._released)

    def next_eventful_frame(self, frame: int) -> int:
        """Return the first frame, `frame` or later, on which something may happen; `frame` if nothing ever will."""
        frames = [self._clock.frame_in(self._events[0][0])] if self._events else []
        if self._released:
            frames.append(self._released[0][0])
        opens = self._stagger.opens(frame) if self._idle and not self._closed else None
        return max(frame, min(frames if opens is None else [*frames, opens], default=frame))

    def _is_too_old(self, start: int, frame: int) -> bool:
        """Return whether what a decision read on frame `start` is older than `max_age` on this frame."""
        if self._max_age is None:
            return False
        return frame - start + sum(frames for at, frames in self._skips if start < at) > self._max_age

    def _advance(self, now: int) -> None:
        """Process all events due by `now`."""
        events = self._events
        while events and events[0][0] <= now:
            time, kind, worker, start, other = heappop(events)
            if kind == _FINISH:
                released = max(time, self._stagger.finish(worker, other, time))
                # The usual case, without a way through the heap: the release would be the very next event.
                if released == time and not (events and events[0][0] == time):
                    self._release(worker, start, time, time)
                    self.free(worker, time)
                else:
                    heappush(events, (released, _RELEASE, worker, start, time))
            elif kind == _RELEASE:
                self._release(worker, start, other, time)
                if not self._ownerless or (worker, start) not in self._ownerless:
                    self.free(worker, time)
            else:
                heappush(self._idle, (time, worker))

    def _release(self, worker: int, start: int, ended: int, now: int) -> None:
        """Enter an action among those that wait for their frame: the first one that begins now or later, or playout."""
        due, playout = self._clock.frame_at(now), self._stagger.playout
        if playout is not None:
            if due > start + playout:
                self.late += 1
            else:
                due = start + playout
        heappush(self._released, (due, start, now, worker, ended))
