"""`max_age`: an action that is too old on its frame is refused, in every simulation as in a naive search."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay
from async_wrappers.latency import Constant
from async_wrappers.schedule.dispatch import Dispatcher
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.simulated import SimulatedSchedule, modelled_conditions
from async_wrappers.schedule.stagger import NoStagger, Sequential, Stagger, Tickets
from async_wrappers.testing.staggers import MS, Played
from tests.worlds.naive_search import Frames, Naive
from tests.worlds.recording_env import RecordingEnv
from tests.worlds.schedule_cases import CASES, Case, cases

SETTINGS = settings(
    max_examples=-(-CASES // 6), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
AGES = st.integers(0, 14)


class Refusing(Naive):
    """The naive search, whose choice on a frame is refused where it is too old."""

    def __init__(self, case: Case, max_age: int) -> None:
        super().__init__(case)
        self.max_age, self.too_old = max_age, 0

    def chooses(self) -> tuple[int, int] | None:
        newest, applied = self.newest, self.stagger.applied
        self.stagger.applied = lambda frame: None  # type: ignore[method-assign]
        chosen = super().chooses()
        self.stagger.applied = applied  # type: ignore[method-assign]
        if chosen is None:
            return None
        if self.frame - chosen[0] > self.max_age:
            self.newest = newest
            self.too_old += 1
            self.stagger.lost(chosen[0])
            return None
        applied(self.frame)
        return chosen


def by_the_rule(case: Case, max_age: int) -> tuple[list[Frames], int, int, int]:
    naive = Refusing(case, max_age)
    return [naive.play(frames) for frames in case.episodes], naive.dropped, naive.late, naive.too_old


class ByEvents(Tickets):
    """Tickets, which as a subclass is simulated event by event."""


def simulated(case: Case, max_age: int, by_events: bool = False) -> tuple[list[Frames], int, int, int]:
    stagger = case.stagger()
    if by_events and type(stagger) is Tickets:
        stagger.__class__ = ByEvents
    schedule = SimulatedSchedule(Played(case.latencies), case.workers, case.fps, stagger, max_age=max_age)
    played: list[Frames] = []
    for frames in case.episodes:
        steps = schedule.steps()
        played.append([next(steps) for _ in range(frames)])
    return played, schedule.counts.dropped, schedule.counts.late, schedule.counts.too_old


def is_possible(case: Case, max_age: int) -> bool:
    stagger = case.stagger()
    stagger.prepare(modelled_conditions(Played(case.latencies), case.workers, FrameClock(case.fps)))
    return stagger.playout is None or stagger.playout <= max_age


@SETTINGS
@given(case=cases(), max_age=AGES)
def test_the_simulations_refuse_what_a_naive_search_refuses(case: Case, max_age: int) -> None:
    assume(is_possible(case, max_age))
    expected = by_the_rule(case, max_age)
    assert simulated(case, max_age) == simulated(case, max_age, by_events=True) == expected
    ages = [frame - due[0] for episode in expected[0] for frame, (due, _) in enumerate(episode) if due is not None]
    assert max(ages, default=0) <= max_age


@SETTINGS
@given(case=cases())
def test_a_limit_that_no_action_reaches_changes_nothing(case: Case) -> None:
    played, dropped, late, too_old = simulated(case, 10_000)
    unlimited = SimulatedSchedule(Played(case.latencies), case.workers, case.fps, case.stagger())
    for frames, expected in zip(case.episodes, played, strict=True):
        steps = unlimited.steps()
        assert [next(steps) for _ in range(frames)] == expected
    assert (unlimited.counts.dropped, unlimited.counts.late, 0) == (dropped, late, too_old)


def test_the_frame_of_an_action_that_is_too_old_receives_the_default_action_by_hand() -> None:
    """One worker, 1,000 fps: inferences of 2, 5 and 2 ms in turn; an action may be 3 frames old."""
    env = RecordingEnv(12)
    delayed = RealtimeDelay(
        env, latency=Played([2 * MS, 5 * MS, 2 * MS]), fps=1000, stagger="none", default_action=4, max_age=3
    )
    delayed.reset(seed=0)
    for _ in range(3):
        *_, info = delayed.step(1)
    # Actions land on frames 2, 7 (read on 2: refused), 9 and 11.
    assert env.actions == [4, 4, 1, 4, 4, 4, 4, 4, 4, 1, 4, 1]
    assert delayed.counts is not None
    assert (delayed.counts.too_old, delayed.counts.fresh) == (1, 3)
    assert info["realtime"]["frame"] == 12


def test_what_is_in_flight_and_would_be_too_old_is_not_bootstrapped_on() -> None:
    class Held(Stagger):
        """Holds each action for six frames more."""

        def finish(self, worker: int, started: int, now: int) -> int:
            return now + 6 * MS

    for max_age, expected in ((9, 0), (4, None)):
        clock = FrameClock(1000)
        stagger = Held()
        dispatcher = Dispatcher(clock, stagger, max_age=max_age)
        stagger.prepare(modelled_conditions(Constant(0.001), 1, clock))
        dispatcher.begin([0])
        dispatcher.frame(0)
        assert dispatcher.starts(0) == [0]
        dispatcher.finished(0, 0, 0, MS)
        dispatcher.frame(6)
        dispatcher.starts(6 * MS)
        assert dispatcher.choose() is None
        assert dispatcher.in_flight([]) == expected
        assert dispatcher.in_flight([0]) == expected  # one that goes on may still come on the next frame


@SETTINGS
@given(case=cases(), max_age=st.integers(0, 6), frames=st.integers(1, 40))
def test_tickets_and_events_agree_on_what_would_be_applied_next_where_an_episode_ends(
    case: Case, max_age: int, frames: int
) -> None:
    both: list[int | None] = []
    for kind in (Tickets, ByEvents):
        stagger = kind(min(2, max_age), slot=1)
        schedule = SimulatedSchedule(Played(case.latencies), case.workers, case.fps, stagger, max_age=max_age)
        steps = schedule.frames()
        applied = [start for start, _ in (next(steps) for _ in range(frames)) if start is not None]
        both.append(schedule.in_flight(applied[-1] if applied else -1, frames))
    assert both[0] == both[1]


def test_a_limit_below_the_playout_is_refused_when_the_schedule_is_made() -> None:
    with pytest.raises(ValueError, match=r"max_age must be >= the playout of 6 frames, .* got 5: every action"):
        SimulatedSchedule(0.1, 2, 60, max_age=5)
    assert SimulatedSchedule(0.1, 2, 60, max_age=6).max_age == 6


@pytest.mark.parametrize("stagger", [NoStagger(), Sequential(), Tickets(2, slot=1)])
def test_where_every_action_is_too_old_the_search_for_a_first_one_ends_in_a_sentence(stagger: Stagger) -> None:
    env = RealtimeDelay(RecordingEnv(None), latency=0.1, fps=60, stagger=stagger, max_age=3)
    with pytest.raises(ValueError, match=r"^max_age must let some action be applied, got 3 frames: 10,000 in a row"):
        env.reset(seed=0)


@SETTINGS
@given(case=cases(), max_age=AGES)
def test_a_dispatcher_is_copied_with_its_limit(case: Case, max_age: int) -> None:
    """`first` looks ahead on a copy: what it says is what then happens."""
    assume(is_possible(case, max_age))
    schedule = SimulatedSchedule(Played(case.latencies), case.workers, case.fps, case.stagger(), max_age=max_age)
    assume(
        any(due is not None for episode in simulated(replace(case, episodes=[120]), max_age)[0] for due, _ in episode)
    )
    frames = schedule.frames()
    start, effect = schedule.first()
    played = [next(frames)[0] for _ in range(effect + 1)]
    assert played == [None] * effect + [start]
