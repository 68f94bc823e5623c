"""`Dispatcher` decides as a naive search through all workers and actions does: the same starts, actions and counts.

It does so whether it knows the ends of inferences beforehand, as in the simulated schedule, or gets reports of them, as
in the live loop. Set HYPOTHESIS_CASES to play more or fewer cases than those of every day.
"""

from __future__ import annotations

import heapq
from copy import deepcopy
from fractions import Fraction
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers.schedule.dispatch import Dispatcher, Due
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.simulated import SimulatedSchedule, modelled_conditions
from async_wrappers.schedule.stagger import Conditions, ExpectedTime, MaxTime, NoStagger, Sequential, Stagger, Tickets
from async_wrappers.testing.staggers import MS, Played
from tests.worlds.naive_search import Frames, Naive
from tests.worlds.schedule_cases import CASES, RATES, Case, cases


class TicketsByEvents(Tickets):
    """Tickets that are simulated event by event: only the class itself takes the short cut."""


def simulated(case: Case, by_events: bool = False) -> tuple[list[Frames], int, int]:
    stagger = case.stagger()
    if by_events and isinstance(stagger, Tickets):
        stagger.__class__ = TicketsByEvents
    schedule = SimulatedSchedule(Played(case.latencies), case.workers, case.fps, stagger)
    played = [list(islice(schedule.steps(), frames)) for frames in case.episodes]
    return played, schedule.counts.dropped, schedule.counts.late


def by_the_rules(case: Case) -> tuple[list[Frames], int, int]:
    naive = Naive(case)
    played = [naive.play(frames) for frames in case.episodes]
    return played, naive.dropped, naive.late


class World:
    """Drives a dispatcher as a loop without delays of its own would: each thing at its very time."""

    def __init__(self, case: Case) -> None:
        self.clock = FrameClock(case.fps)
        latency = Played(case.latencies)
        stagger = case.stagger()
        stagger.prepare(modelled_conditions(latency, case.workers, self.clock))
        self.dispatcher = Dispatcher(self.clock, stagger)
        self.latencies, self.workers = latency.stream(None), case.workers

    def play(self, frames: int) -> Frames:
        self.dispatcher.begin(range(self.workers))
        self.running: list[tuple[int, int, int, int]] = []  # (ends, worker, start, began)
        played: Frames = []
        for frame in range(frames):
            self.frame, self.readers = frame, []
            now, end = self.clock.begin(frame), self.clock.begin(frame + 1)
            self.dispatcher.frame(frame)
            self.happen(now)
            due = self.dispatcher.choose()
            while (times := [time for time in self.next_times() if time < end]) != []:
                self.happen(min(times))
            played.append((due, self.readers))
        return played

    def next_times(self) -> list[int]:
        event = self.dispatcher.next_event()
        return [*([] if event is None else [event]), *(ends for ends, *_ in self.running)]

    def happen(self, now: int) -> None:
        """Report what has ended by now, and start whom the dispatcher names, until nothing more happens now."""
        while True:
            while self.running and self.running[0][0] <= now:
                ends, worker, start, began = heapq.heappop(self.running)
                self.dispatcher.finished(worker, start, began, ends)
            starting = self.dispatcher.starts(now)
            for worker in starting:
                self.readers.append(worker)
                heapq.heappush(self.running, (now + self.latencies.draw(), worker, self.frame, now))
            if not self.running or self.running[0][0] > now:
                return


def with_reports(case: Case) -> tuple[list[Frames], int, int]:
    world = World(case)
    played = [world.play(frames) for frames in case.episodes]
    return played, world.dispatcher.dropped, world.dispatcher.late


@settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_the_simulated_schedule_plays_frame_by_frame_what_a_naive_search_plays(case: Case) -> None:
    assert simulated(case) == simulated(case, by_events=True) == by_the_rules(case)


@settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(shortest=1))
def test_the_dispatcher_decides_the_same_where_ends_are_reported(case: Case) -> None:
    assert with_reports(case) == by_the_rules(case)


@settings(max_examples=-(-CASES // 3), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_it_does_so_where_inferences_take_no_time_unless_the_strategy_estimates_latencies(case: Case) -> None:
    """A simulation ends each such inference before the next worker starts, which a clock cannot; estimates notice."""
    if not isinstance(case.stagger(), MaxTime | ExpectedTime):
        assert with_reports(case) == by_the_rules(case)


@st.composite
def whole_cases(draw: st.DrawFn) -> tuple[Case, int]:
    """Draw a latency of so many whole frames, at any rate, and two episodes; the second may know it from the first."""
    fps = draw(st.one_of(RATES, st.fractions(Fraction(1, 3), 100, max_denominator=2000)))
    frames = draw(st.integers(1, 40))
    workers = draw(st.one_of(st.integers(1, 40), st.just(frames), st.integers(frames, frames + 3)))
    latency = int(frames * 10**9 / Fraction(str(fps)))
    stagger = draw(st.sampled_from([lambda: MaxTime(0.0), lambda: ExpectedTime(0.0), MaxTime, ExpectedTime]))
    stagger = stagger if latency >= 10 * MS else lambda: MaxTime(0.0)  # whose guess is 10 ms
    return Case([latency], workers, fps, stagger, [draw(st.integers(1, 100)), 6 * frames]), frames


@settings(max_examples=-(-CASES // 3), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(whole=whole_cases())
def test_both_act_on_every_frame_if_there_are_workers_enough_for_a_latency_of_whole_frames(
    whole: tuple[Case, int],
) -> None:
    case, frames = whole
    played, *counts = with_reports(case)
    assert (played, *counts) == simulated(case) == by_the_rules(case)
    last = played[-1]
    fresh = sum(due is not None for due, _ in last[4 * frames :])
    assert fresh == 2 * min(case.workers, frames)


# What only a real clock brings.


def dispatcher(stagger: Stagger | None = None, workers: int = 2, fps: int = 1000) -> Dispatcher:
    clock = FrameClock(fps)
    stagger = NoStagger() if stagger is None else stagger
    stagger.prepare(Conditions(workers, clock, MS, lambda q: MS))
    made = Dispatcher(clock, stagger)
    made.begin(range(workers))
    made.frame(0)
    return made


def test_a_worker_that_is_gone_while_idle_starts_nothing_and_comes_back_once() -> None:
    made = dispatcher(workers=2)
    made.gone(1)
    assert made.starts(0) == [0]
    made.free(1, 10)
    assert made.starts(10) == [1]
    made.frame(1)
    assert made.starts(20) == []


def test_a_worker_that_is_gone_while_its_action_is_held_back_is_not_freed_by_the_release() -> None:
    made = dispatcher(MaxTime(0.010), workers=1)
    assert made.starts(0) == [0]
    made.finished(0, 0, 0, MS)  # released at 10 ms
    made.gone(0)
    made.frame(10)
    assert made.starts(10 * MS) == []
    assert made.choose() == Due(0, 0)  # what it has inferred stays
    made.free(0, 11 * MS)
    made.frame(11)
    assert made.starts(11 * MS) == [0]


def test_a_worker_that_is_gone_while_its_action_is_held_back_and_comes_back_is_freed_by_its_new_action_alone() -> None:
    made = dispatcher(MaxTime(0.010), workers=1)
    assert made.starts(0) == [0]
    made.finished(0, 0, 0, MS)  # released at 10 ms
    made.gone(0)
    made.frame(2)
    made.free(0, 2 * MS)
    assert made.starts(2 * MS) == [0]
    made.finished(0, 2, 2 * MS, 3 * MS)  # released at 12 ms
    made.frame(11)
    assert made.starts(11 * MS) == []
    assert made.choose() == Due(0, 0)
    made.frame(12)
    assert made.starts(12 * MS) == [0]
    assert made.choose() == Due(2, 0)


def test_a_worker_that_is_gone_while_it_waits_for_its_offset_is_not_freed_by_the_offset() -> None:
    made = dispatcher(MaxTime(0.010), workers=2)
    assert made.starts(0) == [0]
    assert made.next_event() == 5 * MS
    made.gone(1)
    assert made.next_event() is None
    made.frame(6)
    assert made.starts(6 * MS) == []


@pytest.mark.parametrize("strategy", [MaxTime, ExpectedTime])
def test_a_worker_that_is_free_just_after_a_frame_began_starts_at_once_and_one_just_before_it_waits(
    strategy: type[MaxTime | ExpectedTime],
) -> None:
    made = dispatcher(strategy(0.0), workers=1, fps=60)
    begins = FrameClock(60).begin(1)
    made.gone(0)
    made.free(0, begins - 1)
    assert made.starts(begins - 1) == []  # it would read a frame that is over in a nanosecond
    assert made.next_event() == begins
    made.gone(0)
    made.frame(1)
    made.free(0, begins + 1000)
    assert made.starts(begins + 1000) == [0]


class Ends:
    """Says when inferences end whose latencies are a list, played round and round."""

    def __init__(self, latencies: list[int]) -> None:
        self.latencies = Played(latencies).stream(None)

    def __call__(self, worker: int, frame: int, now: int) -> int:
        return now + self.latencies.draw()


@settings(max_examples=-(-CASES // 3), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), at=st.integers(0, 59), latencies=st.lists(st.integers(0, 100 * MS), min_size=1))
def test_a_copy_goes_on_in_the_same_way_and_changes_nothing(case: Case, at: int, latencies: list[int]) -> None:
    clock, frames = FrameClock(case.fps), case.episodes[0]
    at = min(at, frames)

    def play(made: Dispatcher, first: int, last: int) -> Any:
        for frame in range(first, last):
            made.frame(frame)
            readers = made.starts(clock.begin(frame))
            due = made.choose()
            yield due, readers + made.starts_before(clock.begin(frame + 1)), made.ended, made.next_event()

    stagger = case.stagger()
    stagger.prepare(modelled_conditions(Played(case.latencies), case.workers, clock))
    ends = Ends(case.latencies)
    original = Dispatcher(clock, stagger, ends)
    original.begin(range(case.workers))
    list(play(original, 0, at))
    same, other = original.copy(deepcopy(ends)), original.copy(Ends(latencies))
    list(play(other, at, frames))
    expected = list(play(same, at, frames))
    assert list(play(original, at, frames)) == expected


def test_once_closed_it_starts_nothing_and_applies_only_what_started_later() -> None:
    made = dispatcher(NoStagger(), workers=3)
    assert made.starts(0) == [0, 1, 2]
    made.finished(0, 0, 0, MS)
    made.frame(1)
    assert made.starts(MS) == [0]
    made.finished(0, 1, MS, 2 * MS)
    made.close(after=0)
    made.finished(1, 0, 0, 2 * MS)
    assert made.pending()
    made.frame(2)
    assert made.starts(2 * MS) == []
    assert made.choose() == Due(1, 0)
    assert made.dropped == 2
    assert not made.pending()


def test_the_next_eventful_frame_is_that_of_an_event_an_action_or_an_offer() -> None:
    made = dispatcher(Tickets(20, slot=5), workers=1)
    assert made.next_eventful_frame(0) == 0  # an offer, and a worker that is idle
    assert made.starts(0) == [0]
    assert made.next_eventful_frame(1) == 1  # nothing ever happens unless it is reported
    made.finished(0, 0, 0, 7 * MS + 1)
    assert made.next_eventful_frame(1) == 7  # the release, in the middle of frame 7
    made.frame(7)
    assert made.starts(7 * MS + 1) == [0]
    assert made.next_eventful_frame(8) == 20  # the action is due


def test_a_lost_inference_frees_its_place_in_the_cycle_of_sequential_interaction() -> None:
    made = dispatcher(Sequential(), workers=2)
    assert made.starts(0) == [0]
    made.lost(0)
    made.gone(0)
    made.frame(1)
    assert made.starts(MS) == [1]


@pytest.mark.parametrize(
    ("due", "held", "running", "expected"),
    [
        ([], [], [], None),
        ([], [], [4, 2], 2),
        ([], [3], [4, 5], 3),
        ([7], [3], [2], 7),  # one that is due comes before those that are still on their way
    ],
)
def test_in_flight_is_what_would_be_applied_next(
    due: list[int], held: list[int], running: list[int], expected: int | None
) -> None:
    made = dispatcher(MaxTime(0.010), workers=9)
    for worker, start in enumerate(due):
        made.finished(worker, start, -20 * MS, 0)
    made.starts(0)
    for worker, start in enumerate(held):
        made.finished(5 + worker, start, 0, MS)
    assert made.in_flight(running) == expected
