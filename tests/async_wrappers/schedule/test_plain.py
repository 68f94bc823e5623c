"""Tests of async_wrappers/schedule/plain.py."""

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers.checks import whole_frames
from async_wrappers.schedule.plain import PlainSchedule


@pytest.mark.parametrize(
    ("delay", "noops", "expected"),
    [
        (0, 0, [(0, 0), (1, 1), (2, 2), (3, 3)]),  # turn-based
        (3, 3, [(0, 3), (4, 7), (8, 11), (12, 15)]),  # sequential: observe, think, act, observe the result
        (3, 2, [(0, 3), (3, 6), (6, 9), (9, 12)]),  # one worker that never rests
        (8, 1, [(0, 8), (2, 10), (4, 12), (6, 14)]),  # four staggered workers
        (3, 0, [(0, 3), (1, 4), (2, 5), (3, 6)]),  # an action on every frame
        (0, 2, [(0, 0), (3, 3), (6, 6), (9, 9)]),
    ],
)
def test_the_plain_schedule_is_the_table_of_its_docstring(
    delay: int, noops: int, expected: list[tuple[int, int]]
) -> None:
    assert list(islice(PlainSchedule(delay, noops).decisions(), 4)) == expected


@settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(delay=st.integers(0, 10**6), noops=st.integers(0, 10**6))
def test_starts_are_evenly_spaced_from_frame_0_and_each_effect_is_delay_frames_later(delay: int, noops: int) -> None:
    decisions = list(islice(PlainSchedule(delay, noops).decisions(), 50))
    starts = [start for start, _ in decisions]
    assert starts[0] == 0
    assert {after - before for before, after in pairwise(starts)} == {noops + 1}
    assert {effect - start for start, effect in decisions} == {delay}


def test_two_streams_of_one_schedule_do_not_disturb_each_other() -> None:
    schedule = PlainSchedule(2, 1)
    first = schedule.decisions()
    next(first), next(first)
    second = schedule.decisions()
    assert next(second) == (0, 2)
    assert next(first) == (4, 6)


@pytest.mark.parametrize("value", [4, np.int64(4), np.uint8(4)])
def test_whole_numbers_of_numpy_become_plain_ints(value: int) -> None:
    frames = whole_frames("delay", value)
    assert frames == 4
    assert type(frames) is int


def test_a_small_unsigned_integer_does_not_wrap_around_in_the_arithmetic() -> None:
    schedule = PlainSchedule(np.uint8(200), np.uint8(200))  # type: ignore[arg-type]
    assert list(islice(schedule.decisions(), 3)) == [(0, 200), (201, 401), (402, 602)]


def test_the_representation_is_the_constructor_call() -> None:
    assert repr(PlainSchedule(8, noops=3)) == "PlainSchedule(delay=8, noops=3)"
