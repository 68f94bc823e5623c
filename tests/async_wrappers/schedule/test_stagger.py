"""Tests of async_wrappers/schedule/stagger.py: tables worked by hand, and the contract that every strategy keeps."""

from __future__ import annotations

import math
from copy import deepcopy
from fractions import Fraction
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, RealtimeDelay
from async_wrappers.latency import Constant, LogNormal, Uniform
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.plain import PlainSchedule
from async_wrappers.schedule.simulated import SimulatedSchedule
from async_wrappers.schedule.stagger import (
    Conditions,
    ExpectedTime,
    MaxTime,
    NoStagger,
    Sequential,
    Stagger,
    Tickets,
    make_stagger,
)
from async_wrappers.testing.staggers import MS, Played, StaggerContract
from tests.worlds.recording_env import RecordingEnv

SETTINGS = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
RATES = st.sampled_from([Fraction(60), Fraction("59.7275"), Fraction(1000), Fraction(60_000, 1001), Fraction(5000, 3)])
PER_MS = 1000  # frames per second, so that a frame is a millisecond


def at_work(stagger: Stagger, workers: int, mean_ms: float = 0, quantile_ms: float = 0, fps: Any = PER_MS) -> Any:
    """Return the strategy, prepared and at the beginning of an episode."""
    conditions = Conditions(workers, FrameClock(fps), mean_ms * MS, lambda q: int(quantile_ms * MS))
    stagger.prepare(conditions)
    stagger.begin()
    return stagger


def milliseconds(schedule: SimulatedSchedule, frames: int) -> list[tuple[int, float]]:
    """Run so many frames and return (worker, start) of each inference, in milliseconds."""
    log = schedule.keep_log()
    for _ in islice(schedule.steps(), frames):
        pass
    return [(inference.worker, inference.started / MS) for inference in log]


# Sequential.


def test_sequential_offers_one_start_and_the_next_on_the_frame_after_the_actions() -> None:
    stagger = at_work(Sequential(), workers=3)
    assert (stagger.offers(0), stagger.opens(0)) == (1, 0)
    stagger.taken(0)
    assert [stagger.offers(frame) for frame in (0, 1, 7)] == [0, 0, 0]
    assert stagger.opens(1) is None
    stagger.applied(7)
    assert [stagger.offers(frame) for frame in (7, 8, 9)] == [0, 1, 1]
    assert [stagger.opens(frame) for frame in (7, 8, 9)] == [8, 8, 9]
    assert stagger.finish(0, 5 * MS, 9 * MS) == 9 * MS
    assert stagger.start(0, 9 * MS) == 9 * MS
    stagger.taken(8)
    stagger.begin()
    assert stagger.offers(0) == 1  # a reset discards what is in flight


@SETTINGS
@given(
    latency=st.integers(0, 400 * MS),
    workers=st.integers(1, 4),
    fps=st.sampled_from([60, 59.7275, 25, Fraction(1001, 30)]),
)
def test_sequential_with_a_constant_latency_is_the_plain_schedule_with_delay_d_and_noops_d(
    latency: int, workers: int, fps: Any
) -> None:
    clock = FrameClock(fps)
    simulated = list(islice(SimulatedSchedule(Played([latency]), workers, fps, "sequential").decisions(), 20))
    for start, effect in simulated:
        assert effect == clock.frame_at(clock.begin(start) + latency)
    delay = math.ceil(Fraction(latency, 10**9) * clock.fps)
    if latency + 1 < clock.begin(delay):  # a ceiling to whole nanoseconds can not tip it over
        assert simulated == list(islice(PlainSchedule(delay, delay).decisions(), 20))


def test_sequential_by_hand() -> None:
    schedule = SimulatedSchedule(Played([2 * MS, 2 * MS + 1, 0, 5 * MS]), 1, PER_MS, "sequential")
    assert list(islice(schedule.decisions(), 5)) == [(0, 2), (3, 6), (7, 7), (8, 13), (14, 16)]


# None.


def test_none_lets_every_worker_start_at_once_and_releases_at_once() -> None:
    stagger = at_work(NoStagger(), workers=4)
    assert [stagger.start(worker, 7) for worker in range(4)] == [7] * 4
    assert stagger.finish(2, 7, 19) == 19
    assert stagger.offers(3) is None
    assert stagger.opens(3) == 3


def test_none_by_hand() -> None:
    schedule = SimulatedSchedule(Played([3 * MS, 2 * MS + 1, 0, 4 * MS]), 2, PER_MS, "none")
    steps_played = list(islice(schedule.steps(), 8))
    # In ms, worker 0: 0 .. 3, 3 .. 6, 6 .. 8.000001; worker 1: 0 .. 2.000001, then frame 2 at once, and as that takes
    # no time it waits for frame 3, where it has waited longer: 3 .. 7; then frame 7 in no time.
    assert [readers for _, readers in steps_played] == [[0, 1], [], [1], [1, 0], [], [], [0], [1]]
    assert [applied for applied, _ in steps_played] == [None, None, None, (2, 1), None, None, (3, 0), (7, 1)]
    assert schedule.counts.dropped == 3  # both of frame 0, and worker 1's of frame 3, which is no newer


@pytest.mark.parametrize(("workers", "frames"), [(1, 5), (2, 1), (8, 8), (32, 2)])
def test_equal_workers_without_staggering_bunch_up_and_serve_one_frame_in_l_times_fps(
    workers: int, frames: int
) -> None:
    schedule = SimulatedSchedule(Played([frames * MS]), workers, PER_MS, "none")
    for frame, (_, readers) in enumerate(islice(schedule.steps(), 400 * frames)):
        assert readers == (list(range(workers)) if frame % frames == 0 else [])
    assert schedule.counts.fresh == 399  # all but the first
    assert schedule.counts.dropped == 399 * (workers - 1)


@SETTINGS
@given(latency=st.integers(MS, 12 * MS), workers=st.integers(1, 6))
def test_equal_workers_without_staggering_are_worth_no_more_than_one(latency: int, workers: int) -> None:
    """The fresh share is 1 / (latency fps): a worker that finishes in the middle of a frame starts there at once."""
    one, many = (SimulatedSchedule(Played([latency]), n, PER_MS, "none") for n in (1, workers))
    frames = 300
    assert list(islice(one.frames(), frames)) == list(islice(many.frames(), frames))
    assert abs(many.counts.fresh - frames * MS / latency) <= 2


# Maximum time.


def test_max_time_spreads_the_first_starts_over_the_initial_latency() -> None:
    stagger = at_work(MaxTime(0.100), workers=4)
    assert [stagger.start(worker, 0) for worker in range(4)] == [0, 25 * MS, 50 * MS, 75 * MS]
    assert [stagger.start(worker, 90 * MS) for worker in range(4)] == [90 * MS] * 4  # an offset is waited for once


def test_max_time_holds_an_action_back_to_the_largest_latency_so_far() -> None:
    stagger = at_work(MaxTime(0.100), workers=4)
    assert stagger.finish(0, 0, 80 * MS) == 100 * MS
    assert stagger.finish(1, 25 * MS, 125 * MS) == 125 * MS
    assert stagger.finish(2, 50 * MS, 190 * MS) == 190 * MS  # a new maximum, 140 ms: at once
    assert stagger.finish(0, 100 * MS, 150 * MS) == 240 * MS
    assert stagger.finish(0, 240 * MS, 240 * MS) == 380 * MS


@pytest.mark.parametrize("slow", range(4))
def test_a_worker_d_places_behind_a_new_maximum_waits_d_quarters_of_the_excess(slow: int) -> None:
    stagger = at_work(MaxTime(0.100), workers=4)
    for worker in range(4):
        stagger.start(worker, 0)
    stagger.finish(slow, 0, 140 * MS)
    waits = [stagger.start((slow + behind) % 4, 200 * MS) - 200 * MS for behind in range(4)]
    assert waits == [0, 10 * MS, 20 * MS, 30 * MS]


def test_corrections_of_two_new_maxima_add_up() -> None:
    stagger = at_work(MaxTime(0.100), workers=4)
    for worker in range(4):
        stagger.start(worker, 0)
    stagger.finish(0, 0, 140 * MS)  # workers 1, 2, 3: 10, 20, 30 ms
    stagger.finish(2, 50 * MS, 270 * MS)  # 220 ms, 80 more; workers 3, 0, 1: 20, 40, 60 ms
    assert [stagger.start(worker, 0) for worker in range(4)] == [40 * MS, 70 * MS, 20 * MS, 50 * MS]


def test_max_time_keeps_exact_spacing_after_an_overrun_as_the_paper_says() -> None:
    """N = 4, inferences of the maximum, one overrun of less than a slot: spacings are a quarter of the new maximum."""
    schedule = SimulatedSchedule(Played([110 * MS] + [100 * MS] * 1000), 4, PER_MS, MaxTime(0.100))
    starts = milliseconds(schedule, 500)
    first, second = [(0, 0), (1, 25), (2, 50), (3, 75)], [(0, 110), (1, 137.5), (2, 165), (3, 192.5)]
    assert starts[:10] == [*first, *second, (0, 220), (1, 247.5)]
    assert {after - before for (_, before), (_, after) in pairwise(starts[4:])} == {27.5}


def test_max_time_keeps_its_estimate_over_episodes_and_forgets_it_on_restart() -> None:
    stagger = at_work(MaxTime(0.100), workers=2)
    stagger.finish(0, 0, 300 * MS)
    stagger.begin()
    assert [stagger.start(worker, 0) for worker in range(2)] == [0, 150 * MS]
    stagger.restart()
    stagger.begin()
    assert [stagger.start(worker, 0) for worker in range(2)] == [0, 50 * MS]


# Expected time.


def test_expected_time_releases_at_once_and_moves_offsets_by_the_running_mean() -> None:
    stagger = at_work(ExpectedTime(0.100), workers=2)
    assert [stagger.start(worker, 0) for worker in range(2)] == [0, 50 * MS]
    assert stagger.finish(0, 0, 200 * MS) == 200 * MS  # the first latency replaces the guess: mean 200, worker 1 + 50
    assert stagger.start(1, 220 * MS) == 270 * MS
    assert stagger.finish(1, 270 * MS, 370 * MS) == 370 * MS  # mean 150: worker 0 - 25, a debt
    assert stagger.start(0, 400 * MS) == 400 * MS
    assert stagger.finish(1, 400 * MS, 670 * MS) == 670 * MS  # 270: mean 190, worker 0 + 20, 5 still owed
    assert stagger.start(0, 700 * MS) == 700 * MS
    assert stagger.finish(1, 0, 310 * MS) == 310 * MS  # mean (200 + 100 + 270 + 310) / 4 = 220: worker 0 + 15
    assert stagger.start(0, 800 * MS) == 810 * MS


def test_expected_time_begins_an_episode_with_the_mean_and_forgets_it_on_restart() -> None:
    stagger = at_work(ExpectedTime(0.100), workers=4)
    for latency in (200, 100, 240):
        stagger.finish(0, 0, latency * MS)
    stagger.begin()
    assert [stagger.start(worker, 0) for worker in range(4)] == [0, 45 * MS, 90 * MS, 135 * MS]
    stagger.restart()
    stagger.begin()
    assert [stagger.start(worker, 0) for worker in range(4)] == [0, 25 * MS, 50 * MS, 75 * MS]
    stagger.finish(0, 0, 40 * MS)
    stagger.begin()
    assert stagger.start(1, 0) == 10 * MS  # the first latency after a restart replaces the guess again


@pytest.mark.parametrize("workers", [1, 3, 12])
@pytest.mark.parametrize("stagger", [MaxTime(0.0), MaxTime(0.012), MaxTime(0.120), ExpectedTime(0.012)])
def test_a_constant_latency_spaces_starts_by_latency_over_workers(workers: int, stagger: Stagger) -> None:
    schedule = SimulatedSchedule(Played([120 * MS]), workers, PER_MS, stagger)
    starts = milliseconds(schedule, 1000)[workers:]  # the first cycle has the initial latency's spacing
    assert {after - before for (_, before), (_, after) in pairwise(starts)} == {120 / workers}
    assert [worker for worker, _ in starts[:workers]] == list(range(workers))
    if isinstance(stagger, MaxTime):
        assert set(schedule.counts.delay) == {120}


# Latencies of whole frames: every start lies on a frame or between two for ever, and a nanosecond decides.

WHOLE_RATES = st.one_of(
    st.sampled_from([60, 59.7275, 50, Fraction(30_000, 1001), Fraction(7, 3), 24, 120]),
    st.fractions(Fraction(1, 3), 100, max_denominator=2000),
)


def whole(frames: int, fps: Any) -> Played:
    """Return a constant latency of so many frames, rounded down to nanoseconds."""
    return Played([int(frames * 10**9 / Fraction(str(fps)))])


def after_the_first_spread(schedule: SimulatedSchedule, frames: int, span: int) -> tuple[float, set[int]]:
    """Return the fresh share and the delays of so many frames, after those that a latency of `frames` takes to settle.

    A first spread over the guess takes a latency, the corrected one another, and the first actions of it a third.
    """
    steps_played = list(islice(schedule.frames(), 4 * frames + span))[4 * frames :]
    delays = [frame - start for frame, (start, _) in enumerate(steps_played, 4 * frames) if start is not None]
    return len(delays) / span, set(delays)


@settings(SETTINGS, max_examples=75)
@given(
    strategy=st.sampled_from([MaxTime, ExpectedTime]),
    frames=st.integers(1, 64),
    workers=st.one_of(st.integers(1, 64), st.integers(-2, 2)),  # the latter beside the number of frames
    fps=WHOLE_RATES,
    guess=st.sampled_from([0, 1, 2, 3, 7]),  # of the latency in sevenths
)
def test_a_latency_of_whole_frames_gives_every_frame_an_action_or_as_many_as_there_are_workers(
    strategy: Any, frames: int, workers: int, fps: Any, guess: int
) -> None:
    workers = workers if workers > 2 else max(1, frames + workers)
    latency = whole(frames, fps)
    schedule = SimulatedSchedule(latency, workers, fps, strategy(latency.mean * guess / 7))
    log = schedule.keep_log()
    share, delays = after_the_first_spread(schedule, frames, frames * max(2, 60 // frames))
    assert share == min(workers, frames) / frames
    if workers < frames:
        assert delays <= {frames, frames + 1}
    elif guess in (0, 7):  # else the guess may have needed a lag
        assert delays == {frames if workers % frames == 0 else frames + 1}
    for worker in range(workers):
        starts = [inference.start for inference in log if inference.worker == worker]
        assert {after - before for before, after in pairwise(starts[1:])} <= {frames}

    again, delays = after_the_first_spread(schedule, frames, frames)  # a reset: the latency is known now
    assert again == min(workers, frames) / frames
    assert workers < frames or delays == {frames if workers % frames == 0 else frames + 1}


@settings(SETTINGS, max_examples=50)
@given(
    frames=st.integers(1, 9),
    workers=st.integers(1, 12),
    fps=st.sampled_from([150, 300, 600, 700, 1000, 1200, Fraction(60_000, 101)]),
)
def test_expected_time_spreads_the_workers_where_the_guess_was_longer_than_the_latency(
    frames: int, workers: int, fps: Any
) -> None:
    schedule = SimulatedSchedule(whole(frames, fps), workers, fps, ExpectedTime(0.010))
    frames_played = schedule.frames()
    list(islice(frames_played, 30 + 4 * frames))
    before = schedule.counts.fresh
    list(islice(frames_played, 20 * frames))
    assert schedule.counts.fresh - before == 20 * min(workers, frames)


@pytest.mark.parametrize("strategy", [MaxTime, ExpectedTime])
@pytest.mark.parametrize(
    ("frames", "workers", "fps", "played"),
    [
        (5, 5, 60, 30_000),  # 83,333,333 and a third of a nanosecond, 6,000 times
        (5, 7, 59.7275, 10_000),
        # Frames so short that what rounding takes from each latency soon adds up to several of them.
        (3, 5, 700_000, 10_000),
        (3, 6, 700_000, 10_000),
        (5, 3, 700_000, 10_000),
        (64, 63, 900_000, 10_000),
        (63, 64, 1_100_000, 10_000),
    ],
)
def test_a_latency_of_whole_frames_does_not_drift_in_long_episodes(
    strategy: Any, frames: int, workers: int, fps: Any, played: int
) -> None:
    latency = whole(frames, fps)
    schedule = SimulatedSchedule(latency, workers, fps, strategy(latency.mean))
    for span in (played, 1000):
        share, _ = after_the_first_spread(schedule, frames, span // frames * frames)
        assert share == min(workers, frames) / frames


@SETTINGS
@given(
    latencies=st.lists(st.integers(0, 10**10), min_size=1, max_size=60),
    workers=st.integers(1, 70),
    strategy=st.sampled_from([MaxTime, ExpectedTime]),
)
def test_corrections_add_up_to_the_spread_of_the_estimate_without_a_rest(
    latencies: list[int], workers: int, strategy: Any
) -> None:
    stagger = at_work(strategy(0.0), workers, fps=Fraction(1, 100))  # a frame is longer than all of it
    for latency in latencies:
        stagger.finish(0, 0, latency)
    estimate = max(latencies) if strategy is MaxTime else sum(latencies) // len(latencies)
    waits = [stagger.start(worker, 0) for worker in range(workers)]
    assert waits == [-(-worker * estimate // workers) for worker in range(workers)]
    stagger.begin()
    assert [stagger.start(worker, 0) for worker in range(workers)] == waits


@pytest.mark.parametrize(
    ("fps", "early", "starts"),
    [
        (60, 0, 16_666_667),
        (60, 1, 16_666_667),
        (60, 2, 16_666_667),
        (60, 3, 16_666_664),
        (60, -1, 16_666_668),
        (60, -1000, 16_667_667),  # a real worker that is free a microsecond after the frame does not wait for the next
        (50, 1, 19_999_999),  # frames begin on whole nanoseconds
        (50, -1, 20_000_001),
    ],
)
@pytest.mark.parametrize("strategy", [MaxTime, ExpectedTime])
def test_a_start_moves_to_the_next_frame_from_within_rounding_of_it_only(
    strategy: Any, fps: int, early: int, starts: int
) -> None:
    stagger = at_work(strategy(0.0), 1, fps=fps)
    assert stagger.start(0, FrameClock(fps).begin(1) - early) == starts


@pytest.mark.parametrize("strategy", [MaxTime, ExpectedTime])
def test_the_longest_guess_is_only_a_guess(strategy: Any) -> None:
    stagger = at_work(strategy(1e9), workers=1000)  # seconds: 31 years
    assert stagger.start(0, 0) == 0
    assert stagger.start(999, 0) == 999 * 10**15
    assert stagger.finish(0, 0, MS) == (10**18 if strategy is MaxTime else MS)
    assert stagger.start(1, 0) > 0


def test_a_guess_in_seconds_is_taken_to_the_nanosecond_as_the_draws_of_a_model() -> None:
    for latency in (0.1, 0.29, 1.001, 16_666_667e-9, 6 / 59.7275):
        assert at_work(MaxTime(latency), 1).finish(0, 0, 0) == Constant(latency).stream(0).draw()


# Tickets.


def test_tickets_are_offered_one_per_slot_until_one_is_taken() -> None:
    stagger = at_work(Tickets(playout=4, slot=3), workers=2)
    assert (stagger.offers(0), stagger.opens(0)) == (1, 0)
    stagger.taken(0)
    assert [stagger.offers(frame) for frame in range(1, 6)] == [0, 0, 1, 1, 1]
    assert [stagger.opens(frame) for frame in range(1, 6)] == [3, 3, 3, 4, 5]
    stagger.taken(5)
    assert [stagger.offers(frame) for frame in range(6, 9)] == [0, 0, 1]
    assert stagger.start(1, 17) == 17
    assert stagger.finish(1, 17, 99) == 99
    stagger.begin()
    assert stagger.offers(0) == 1


@SETTINGS
@given(mean=st.integers(0, 10**10), fps=st.fractions(1, 1000, max_denominator=100), workers=st.integers(1, 100))
def test_a_slot_is_the_formula_of_the_design(mean: int, fps: Fraction, workers: int) -> None:
    stagger = at_work(Tickets(playout=0), workers, mean / MS, fps=fps)
    assert abs(mean * fps / 10**9 / workers - stagger.slot) < 1 or stagger.slot == 1
    begin = FrameClock(fps).begin
    assert mean <= begin(stagger.slot * workers)  # the latency fits
    assert stagger.slot == 1 or mean > begin((stagger.slot - 1) * workers)  # and not into less


@pytest.mark.parametrize(("nanoseconds", "slot"), [(16_666_667, 1), (16_666_668, 2), (33_333_334, 2), (33_333_335, 3)])
def test_a_slot_takes_the_mean_of_a_model_to_the_nanosecond_as_its_draws(nanoseconds: int, slot: int) -> None:
    latency = Constant(nanoseconds / 1e9)
    assert latency.stream(0).draw() == nanoseconds
    stagger = SimulatedSchedule(latency, 1, 60, "tickets").stagger
    assert isinstance(stagger, Tickets)
    assert stagger.slot == slot


def test_a_given_slot_is_kept() -> None:
    assert at_work(Tickets(playout=0, slot=5), workers=8, mean_ms=120, fps=60).slot == 5


def test_a_playout_is_frames_or_the_frames_that_a_quantile_of_the_latency_takes() -> None:
    asked: list[float] = []

    def quantile(q: float) -> int:
        asked.append(q)
        return 120 * MS

    for playout, frames in ((0, 0), (6, 6), ("p99", 8), ("p50", 8), ("p99.9", 8), ("p100", 8)):
        stagger = Tickets(playout)
        stagger.prepare(Conditions(4, FrameClock(60), 1, quantile))
        assert stagger.playout == frames
    assert asked == pytest.approx([0.99, 0.50, 0.999, 1.0])


@pytest.mark.parametrize(
    ("latency", "playout", "frames"),
    [
        (Constant(0.120), "p99", 8),
        (Constant(0.100), "p99", 6),  # exactly on a boundary is in time
        (Constant(0.0), "p99", 0),
        (Uniform(0.0, 1.0), "p50", 30),
        (LogNormal(mean=0.120, cv=0.2), "p99", 12),
        (Played([1 * MS, 2 * MS, 3 * MS, 4 * MS, 50 * MS]), "p50", 1),
        (Played([1 * MS, 20 * MS, 30 * MS, 40 * MS, 50 * MS]), "p50", 2),
        (Played([1 * MS, 20 * MS, 30 * MS, 40 * MS, 50 * MS]), "p99", 3),
    ],
)
def test_a_quantile_is_one_of_the_latency_models(latency: Any, playout: str, frames: int) -> None:
    stagger = SimulatedSchedule(latency, 4, 60, "tickets", playout).stagger
    assert abs(stagger.playout - frames) <= (playout == "p50" and frames == 30)


def test_tickets_by_hand_with_a_late_action_that_is_dropped() -> None:
    schedule = SimulatedSchedule(Played([5 * MS] + [MS] * 50), 2, PER_MS, "tickets", playout=2, slot=1)
    steps_played = list(islice(schedule.steps(), 8))
    assert [readers for _, readers in steps_played] == [[0], [1], [1], [1], [1], [0], [1], [0]]
    assert [applied for applied, _ in steps_played] == [None, None, None, (1, 1), (2, 1), (3, 1), (4, 1), (5, 0)]
    assert (schedule.counts.late, schedule.counts.dropped) == (1, 1)  # worker 0's: due on frame 2, there on 5


def test_tickets_by_hand_with_late_actions_that_are_applied_on_arrival() -> None:
    schedule = SimulatedSchedule(Played([5 * MS, MS, 3 * MS + 1]), 1, PER_MS, "tickets", playout=2, slot=1)
    steps_played = list(islice(schedule.steps(), 12))
    assert [frame for frame, (_, readers) in enumerate(steps_played) if readers] == [0, 5, 6, 9]
    assert [(frame, *applied) for frame, (applied, _) in enumerate(steps_played) if applied] == [
        (5, 0, 0),  # due on 2
        (7, 5, 0),  # in time
        (10, 6, 0),  # due on 8
    ]
    assert (schedule.counts.late, schedule.counts.dropped) == (2, 0)


def test_an_action_that_is_in_time_to_the_nanosecond_is_not_late() -> None:
    for latency, playout, late in ((2 * MS, 2, 0), (2 * MS + 1, 2, 1), (0, 0, 0), (1, 0, 1)):
        schedule = SimulatedSchedule(Played([latency] + [0] * 20), 1, PER_MS, "tickets", playout, slot=1)
        list(islice(schedule.steps(), 5))
        assert schedule.counts.late == late


@pytest.mark.parametrize("strategy", ["sequential", "none", "max_time", "expected_time"])
def test_an_action_that_is_due_when_it_has_finished_is_never_late(strategy: str) -> None:
    schedule = SimulatedSchedule(Played([5 * MS, 1, 9 * MS]), 2, PER_MS, strategy)
    list(islice(schedule.steps(), 100))
    assert schedule.counts.fresh > 0
    assert schedule.counts.late == 0


@SETTINGS
@given(
    latencies=st.lists(st.integers(0, 15 * MS), min_size=1, max_size=30),
    workers=st.integers(1, 6),
    playout=st.integers(0, 12),
    slot=st.integers(1, 4),
)
def test_tickets_have_one_reader_per_slot_and_no_action_before_its_playout(
    latencies: list[int], workers: int, playout: int, slot: int
) -> None:
    schedule = SimulatedSchedule(Played(latencies), workers, PER_MS, "tickets", playout, slot)
    log = schedule.keep_log()
    steps_played = list(islice(schedule.steps(), 100))
    read = [frame for frame, (_, readers) in enumerate(steps_played) if readers]
    assert all(len(readers) <= 1 for _, readers in steps_played)
    assert all(after - before >= slot for before, after in pairwise(read))
    effects = {applied[0]: frame for frame, (applied, _) in enumerate(steps_played) if applied is not None}
    late = 0
    for inference in log:
        arrival = -(-inference.finished // MS)
        due = max(arrival, inference.start + playout)
        if inference.start in effects:
            assert effects[inference.start] == due
        elif due < 100:
            assert any(start > inference.start and effect <= due for start, effect in effects.items())
        late += arrival > inference.start + playout and inference.finished < 100 * MS
    assert schedule.counts.late == late


class OtherTickets(Tickets):
    """The same, which the simulation cannot know: it goes event by event."""


@settings(max_examples=75, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    latencies=st.lists(st.one_of(st.integers(0, 30 * MS), st.integers(0, 30).map(lambda ms: ms * MS)), min_size=1),
    workers=st.integers(1, 6),
    playout=st.integers(0, 12),
    slot=st.one_of(st.integers(1, 4), st.just("even")),
    episodes=st.lists(st.tuples(st.none() | st.just(7), st.integers(0, 60)), min_size=1, max_size=3),
    fps=st.sampled_from([1000, 59.7275, 60]),
)
def test_tickets_are_simulated_as_any_strategy_is(
    latencies: list[int],
    workers: int,
    playout: int,
    slot: int | str,
    episodes: list[tuple[int | None, int]],
    fps: float,
) -> None:
    def live(stagger: Stagger) -> Any:
        schedule = SimulatedSchedule(Played(latencies), workers, fps, stagger)
        log = schedule.keep_log()
        for seed, frames in episodes:
            steps = schedule.steps(seed)
            yield schedule.first()
            for frame in range(frames):
                steps_played = next(steps)
                newest = -1 if steps_played[0] is None else steps_played[0][0]
                look_ahead = [schedule.in_flight(after, frame + 1) for after in (-1, newest, frame - 2)]
                yield steps_played, look_ahead, schedule.finished(), deepcopy(schedule.counts), len(log)
        yield log

    for one, other in zip(live(Tickets(playout, slot)), live(OtherTickets(playout, slot)), strict=True):
        assert one == other


# Even slots.


def test_two_workers_of_2_3_frames_start_every_1_15_frames_by_hand() -> None:
    schedule = SimulatedSchedule(Played([2_300_000]), 2, PER_MS, "tickets", "p99", "even")
    starts = milliseconds(schedule, 16)
    assert starts == [
        (0, 0),
        (1, 2),  # due at 1.15
        (0, 3),
        (1, 4.3),  # offered on frame 4, taken when the worker is free
        (0, 5.3),
        (1, 6.6),
        (0, 7.6),
        (1, 9),  # due at 8.05: free at 8.9, and nothing is offered
        (0, 10),
        (1, 11.3),
        (0, 12.3),
        (1, 13.6),
        (0, 14.6),
        (1, 15.9),
    ]
    assert schedule.playout == 4  # 2.3 frames from the end of a frame
    assert schedule.counts.delay == {4: 10}
    whole = SimulatedSchedule(Played([2_300_000]), 2, PER_MS, "tickets")
    assert milliseconds(whole, 16)[:4] == [(0, 0), (1, 2), (0, 4), (1, 6)]


@pytest.mark.parametrize(
    ("latency", "workers", "asked", "playout"),
    [
        (Constant(2.3 / 60), 2, "p99", 4),
        (Constant(2.3 / 60), 2, "p50", 4),  # constant: no action is late
        (Constant(2.3 / 60), 3, "p99", 3),  # enough workers: starts lie on frames
        (Constant(0.1), 4, "p99", 6),  # so they do where a latency is whole frames
        (LogNormal(2.3 / 60, 0.2), 2, "p99", 5),  # 4 for the latency alone, 3.6 frames
        (LogNormal(2.3 / 60, 0.2), 3, "p99", 4),
        (LogNormal(0.1, 0.2), 4, "p99", 10),  # 9.4 frames: room enough
        (Played([4 * MS, 6 * MS]), 2, "p50", 1),  # 0.24 and 0.36 frames, and a worker for each
        # 3.6 and 7.2 frames. Four frames hold the first of a start that is up to 0.4 of a frame late: 0.2 of all.
        (Played([60 * MS, 120 * MS]), 1, "p15", 4),
        (Played([60 * MS, 120 * MS]), 1, "p25", 5),
        (Constant(2.3 / 60), 2, 3, 3),  # frames are as given
    ],
)
def test_a_playout_of_even_slots_holds_lateness_within_a_frame(
    latency: Any, workers: int, asked: int | str, playout: int
) -> None:
    assert SimulatedSchedule(latency, workers, 60, "tickets", asked, "even").playout == playout


def test_a_late_start_is_made_up_for_by_up_to_a_slot() -> None:
    stagger = at_work(Tickets(playout=0, slot="even"), workers=2, mean_ms=3)
    assert stagger.slot == Fraction(3, 2)
    assert stagger.opens(0) == 0
    for taken, opens in ((0, 2), (2, 3), (4, 5), (5, 6), (6, 8), (12, 13), (13, 14), (14, 15), (15, 17)):
        stagger.taken(taken)
        assert stagger.opens(taken) == opens
        assert [stagger.offers(frame) for frame in (opens - 1, opens, opens + 7)] == [0, 1, 1]
    # 0, 1.5, 3, 4.5, 6, 7.5 are when the first ones are due; that of 7.5, taken on 12, is late by 4.5 and counts as
    # late by a slot, so the next ones are due at 12, 13.5, 15 and 16.5
    stagger.begin()
    assert stagger.opens(0) == 0


@SETTINGS
@given(latency=st.integers(0, 12 * MS), workers=st.integers(1, 9), fps=RATES)
def test_with_a_constant_latency_each_even_start_is_within_a_frame_of_even_and_each_action_in_time(
    latency: int, workers: int, fps: Fraction
) -> None:
    schedule = SimulatedSchedule(Played([latency]), workers, fps, "tickets", "p99", "even")
    log = schedule.keep_log()
    frame = 10**9 / fps
    list(islice(schedule.steps(), 400))
    assert isinstance(schedule.stagger, Tickets)
    slot, playout = schedule.stagger.slot, schedule.stagger.playout
    # the rate is what N workers sustain, to a nanosecond in each latency, and a frame each at most
    sustained = max(Fraction(1), Fraction(latency) / frame / workers)
    assert sustained <= slot <= max(Fraction(1), Fraction(latency + 1) / frame / workers)
    assert [inference.start for inference in log] == [math.ceil(j * slot) for j in range(len(log))]
    assert len(log) == math.floor(399 / slot) + 1
    assert playout is not None and playout <= math.ceil(latency / frame) + 1
    assert set(schedule.counts.delay) <= {playout}
    assert (schedule.counts.late, schedule.counts.dropped) == (0, 0)
    if latency == math.floor(round(latency / frame) * frame):  # whole frames
        assert playout == round(latency / frame)
        assert all(inference.started == schedule.clock.begin(inference.start) for inference in log)


@SETTINGS
@given(frames=st.integers(1, 12), workers=st.integers(1, 12), fps=RATES)
def test_even_slots_that_come_out_whole_are_the_whole_slots(frames: int, workers: int, fps: Fraction) -> None:
    latency = whole(frames * workers, fps)
    runs = [SimulatedSchedule(latency, workers, fps, slot=slot) for slot in (None, "even")]
    one, other = (list(islice(run.steps(), 4 * frames * workers)) for run in runs)
    assert one == other
    assert runs[0].counts == runs[1].counts


@SETTINGS
@given(
    latencies=st.lists(st.integers(0, 8 * MS), min_size=1, max_size=30),
    more=st.integers(0, 3),
    playout=st.sampled_from([3, "p50", "p99"]),
)
def test_with_a_worker_for_each_frame_of_the_mean_latency_even_slots_change_nothing(
    latencies: list[int], more: int, playout: int | str
) -> None:
    workers = max(1, math.ceil(Fraction(sum(latencies), len(latencies) * MS))) + more
    schedules = [
        SimulatedSchedule(Played(latencies), workers, PER_MS, "tickets", playout, slot) for slot in (1, "even")
    ]
    one, other = (list(islice(schedule.steps(), 100)) for schedule in schedules)
    assert one == other
    assert schedules[0].counts == schedules[1].counts


@SETTINGS
@given(
    latencies=st.lists(st.integers(0, 15 * MS), min_size=1, max_size=30),
    workers=st.integers(1, 6),
    playout=st.one_of(st.integers(0, 12), st.just("p75")),
    fps=RATES,
)
def test_even_starts_are_one_a_frame_and_no_more_than_the_sustained_rate_up_to_one_that_is_made_up_for(
    latencies: list[int], workers: int, playout: int | str, fps: Fraction
) -> None:
    schedule = SimulatedSchedule(Played(latencies), workers, fps, "tickets", playout, "even")
    readers = [len(readers) for _, readers in islice(schedule.steps(), 150)]
    assert max(readers) <= 1
    started = [0, *np.cumsum(readers).tolist()]
    mean = Fraction(sum(latencies), len(latencies))
    slot = max(Fraction(1), mean * fps / 10**9 / workers)
    for first in range(150):
        for last in (150, *range(first + 1, 150, 7)):
            most = Fraction(last - first - 1) / slot + (1 if first == 0 else 2)
            assert started[last] - started[first] <= most


@pytest.mark.parametrize(("workers", "frames"), [(1, 2.3), (2, 2.3), (3, 2.3), (4, 6.0)])
@pytest.mark.parametrize(("cv", "share"), [(0, 0.99), (0.2, 0.93)])
def test_even_slots_give_the_share_of_what_the_workers_sustain_that_the_design_asks(
    workers: int, frames: float, cv: float, share: float
) -> None:
    latency = LogNormal(frames / 60, cv) if cv else Constant(frames / 60)
    schedule = SimulatedSchedule(latency, workers, 60, slot="even")
    list(islice(schedule.frames(seed=0), 6000))
    in_time = schedule.counts.delay[schedule.playout]  # type: ignore[index]
    assert in_time / 6000 >= share * min(1, workers / frames)


@pytest.mark.parametrize("stagger", ["none", "sequential", Tickets, Tickets(), MaxTime(), lambda: Tickets()])
def test_even_slots_with_another_strategy_are_refused_in_one_sentence(stagger: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^slot='even' needs stagger='tickets' or Tickets\(slot='even'\), got "
    ) as error:
        make_stagger(stagger, slot="even")
    assert str(error.value).endswith(f"got stagger={stagger!r}")


# The table of the design: 60 frames a second, 350 s, an action on each frame wanted.


@pytest.mark.parametrize(
    ("latency", "workers", "playout", "share", "delay"),
    [
        (Constant(0.120), 8, "p99", 1.00, 8),
        (LogNormal(mean=0.120, cv=0.2), 10, "p99", 0.996, 12),
    ],
)
def test_tickets_give_the_fresh_shares_and_delays_of_the_designs_table(
    latency: Any, workers: int, playout: str, share: float, delay: float
) -> None:
    schedule = SimulatedSchedule(latency, workers, 60, "tickets", playout)
    for _ in islice(schedule.frames(seed=0), 60 * 350):
        pass
    assert schedule.counts.fresh_share == pytest.approx(share, abs=0.001)
    assert schedule.counts.mean_delay == pytest.approx(delay, abs=0.01)


# Names and objects.


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("tickets", Tickets),
        ("sequential", Sequential),
        ("none", NoStagger),
        ("max_time", MaxTime),
        ("expected_time", ExpectedTime),
    ],
)
def test_a_strategy_is_named_or_given_as_an_object_a_class_or_a_function(name: str, strategy: type[Stagger]) -> None:
    assert type(make_stagger(name)) is strategy
    assert type(make_stagger(strategy)) is strategy
    assert type(make_stagger(lambda: strategy())) is strategy
    stagger = strategy()
    assert make_stagger(stagger) is stagger


def test_playout_and_slot_go_to_tickets() -> None:
    stagger = make_stagger("tickets", playout=5, slot=2)
    assert isinstance(stagger, Tickets)
    at_work(stagger, workers=1, mean_ms=50)
    assert (stagger.playout, stagger.slot) == (5, 2)


@pytest.mark.parametrize("stagger", ["ticket", "max-time", "", None, 3, lambda: 3, lambda: None, ["tickets"], object])
def test_anything_else_is_refused_with_the_names_there_are(stagger: Any) -> None:
    with pytest.raises(ValueError, match=r"^stagger must be one of 'tickets', 'sequential', 'none', ") as error:
        make_stagger(stagger)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("typed", "meant"), [("ticket", "tickets"), ("max-time", "max_time"), ("expected", None)])
def test_a_misspelt_name_is_put_right(typed: str, meant: str | None) -> None:
    with pytest.raises(ValueError, match=rf"got '{typed}'") as error:
        make_stagger(typed)
    if meant is not None:
        assert str(error.value).endswith(f"; did you mean {meant!r}?")


def test_one_object_serves_two_schedules_without_being_shared() -> None:
    stagger = MaxTime(0.010)
    one = SimulatedSchedule(Played([300 * MS, 20 * MS]), 2, PER_MS, stagger)
    list(islice(one.frames(), 700))
    fresh = SimulatedSchedule(Played([40 * MS]), 2, PER_MS, MaxTime(0.010))
    other = SimulatedSchedule(Played([40 * MS]), 2, PER_MS, stagger)
    assert list(islice(other.frames(), 200)) == list(islice(fresh.frames(), 200))


# The contract, for all five and for a user's own.


class OwnFrames(Stagger):
    """A user's strategy: worker p starts on frames p, p + N, p + 2N, ...; one that is late waits for its next frame."""

    def prepare(self, conditions: Conditions) -> None:
        super().prepare(conditions)
        self._clock = conditions.clock

    def begin(self) -> None:
        self._next = [0] * self.workers

    def start(self, worker: int, now: int) -> int:
        frame = max(self._clock.frame_at(now), self._next[worker])
        frame += (worker - frame) % self.workers
        self._next[worker] = frame + 1
        return self._clock.begin(frame)


def test_a_users_own_strategy_of_a_few_lines_works() -> None:
    latency = Played([3 * MS, 3 * MS, 3 * MS, 3 * MS, 3 * MS + 1] + [3 * MS] * 50)
    schedule = SimulatedSchedule(latency, 4, PER_MS, OwnFrames)
    steps_played = list(islice(schedule.steps(), 16))
    assert [readers for _, readers in steps_played[:12]] == [[0], [1], [2], [3], [0], [1], [2], [3], [0], [1], [2], [3]]
    assert [applied for applied, _ in steps_played[3:8]] == [(0, 0), (1, 1), (2, 2), (3, 3), None]
    assert steps_played[8][0] == (5, 1)  # worker 0's came a nanosecond too late for frame 7, and is older


class TestSequential(StaggerContract):
    def make_stagger(self) -> Stagger:
        return Sequential()


class TestNone(StaggerContract):
    def make_stagger(self) -> Stagger:
        return NoStagger()


class TestMaxTime(StaggerContract):
    def make_stagger(self) -> Stagger:
        return MaxTime(0.02)


class TestExpectedTime(StaggerContract):
    def make_stagger(self) -> Stagger:
        return ExpectedTime(0.02)


class TestTickets(StaggerContract):
    def make_stagger(self) -> Stagger:
        return Tickets("p90")


class TestEvenTickets(StaggerContract):
    def make_stagger(self) -> Stagger:
        return Tickets(playout=5, slot="even")


class TestOwnFrames(StaggerContract):
    def make_stagger(self) -> Stagger:
        return OwnFrames()


@pytest.mark.parametrize("stagger", ["none", "sequential", NoStagger, Tickets(2, 3)])
def test_a_slot_beside_another_strategy_is_refused_wherever_it_is_given(stagger: Any) -> None:
    timing: dict[str, Any] = {"latency": 0.03, "workers": 2, "fps": 50, "stagger": stagger, "slot": 3}
    sentence = r"^slot=3 needs stagger='tickets' or Tickets\(slot=3\), got stagger="
    with pytest.raises(ValueError, match=sentence):
        SimulatedSchedule(**timing)
    with pytest.raises(ValueError, match=sentence):
        RealtimeDelay(RecordingEnv(), **timing)
    with pytest.raises(ValueError, match=sentence):
        AsyncRunner(RecordingEnv, lambda: lambda observation: 0, backend="virtual", **timing)
