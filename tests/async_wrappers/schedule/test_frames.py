"""`FrameClock`: frame k begins at the ceiling of k / fps in nanoseconds, and the two ways back agree with it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers.schedule.frames import FrameClock

SECOND = 10**9
SETTINGS = settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
GAME_BOY = 59.7275

FRACTIONS = st.fractions(Fraction(1, 10_000), 100_000, max_denominator=100_000)
FLOATS = st.one_of(
    st.sampled_from([GAME_BOY, 60.0, 50.0, 0.1, 29.97, 1e-6, 1e6, 1e9, 1.5e9, 7e9]),
    st.floats(1e-6, 1e7, allow_nan=False, allow_subnormal=False),
)
RATES = st.one_of(FRACTIONS, FLOATS, st.integers(1, 10**10))
FRAMES = st.one_of(st.integers(0, 300), st.integers(0, 10**9))
TIMES = st.one_of(st.integers(0, 10**9), st.integers(0, 10**18))


def written(fps: Fraction | float | int) -> Fraction:
    """Return frames per second as one reads them: 59.7275 is 597275 / 10000."""
    return fps if isinstance(fps, Fraction) else Fraction(Decimal(repr(fps)))


@SETTINGS
@given(fps=RATES, frame=FRAMES)
def test_a_frame_begins_at_the_ceiling_of_its_number_over_fps(fps: Fraction | float, frame: int) -> None:
    begin = FrameClock(fps).begin(frame)
    assert type(begin) is int
    assert begin == math.ceil(Fraction(frame) / written(fps) * SECOND)


@SETTINGS
@given(fps=RATES, time=TIMES)
def test_frame_at_is_the_first_frame_that_begins_at_a_time_or_later(fps: Fraction | float, time: int) -> None:
    clock = FrameClock(fps)
    frame = clock.frame_at(time)
    assert type(frame) is int
    assert clock.begin(frame) >= time
    assert frame == 0 or clock.begin(frame - 1) < time


@SETTINGS
@given(fps=RATES, time=TIMES)
def test_frames_are_exact_and_whole_where_a_duration_was_rounded_down_from_whole_frames(
    fps: Fraction | float, time: int
) -> None:
    frames = FrameClock(fps).frames(time)
    exact = time * written(fps) / SECOND
    whole = math.ceil(exact)
    assert frames == (whole if math.floor(whole / written(fps) * SECOND) == time else exact)


@SETTINGS
@given(fps=RATES, frames=st.integers(0, 10**6))
def test_whole_frames_rounded_down_to_nanoseconds_are_whole_frames(fps: Fraction | float, frames: int) -> None:
    duration = math.floor(frames / written(fps) * SECOND)
    whole = FrameClock(fps).frames(duration)
    # where a frame is less than a nanosecond, several numbers of frames are rounded down to one duration
    assert whole == frames if written(fps) < SECOND else whole.denominator == 1


@SETTINGS
@given(fps=RATES, time=TIMES)
def test_frame_in_is_the_last_frame_that_has_begun_at_a_time(fps: Fraction | float, time: int) -> None:
    clock = FrameClock(fps)
    frame = clock.frame_in(time)
    assert type(frame) is int
    assert clock.begin(frame) <= time < clock.begin(frame + 1)


@SETTINGS
@given(fps=st.one_of(FRACTIONS, st.floats(0.01, 1e6)), frame=FRAMES)
def test_a_frame_is_found_at_its_begin_one_nanosecond_before_and_one_after(fps: Fraction | float, frame: int) -> None:
    clock = FrameClock(fps)
    begin = clock.begin(frame)
    assert (clock.frame_at(begin), clock.frame_in(begin)) == (frame, frame)
    assert (clock.frame_at(begin + 1), clock.frame_in(begin + 1)) == (frame + 1, frame)
    if frame:
        assert (clock.frame_at(begin - 1), clock.frame_in(begin - 1)) == (frame, frame - 1)


def test_times_of_the_game_boy_and_of_60_hertz_by_hand() -> None:
    clock = FrameClock(GAME_BOY)
    assert clock.fps == Fraction(597_275, 10_000)
    assert [clock.begin(frame) for frame in (0, 1, 2)] == [0, 16_742_707, 33_485_413]  # 16742706.458.. each
    assert clock.begin(597_275) == 10_000 * SECOND
    clock = FrameClock(60)
    assert [clock.begin(frame) for frame in range(4)] == [0, 16_666_667, 33_333_334, 50_000_000]
    assert [clock.frame_at(time) for time in (0, 1, 16_666_667, 16_666_668, 50_000_000)] == [0, 1, 1, 2, 3]
    assert [clock.frame_in(time) for time in (0, 1, 16_666_666, 16_666_667, 50_000_000)] == [0, 0, 0, 1, 3]


def test_the_clock_does_not_drift_in_a_year_of_frames() -> None:
    clock = FrameClock(Fraction(60_000, 1001))
    assert clock.begin(60_000 * 31_536) == 1001 * 31_536 * SECOND


@pytest.mark.parametrize("fps", [GAME_BOY, np.float64(GAME_BOY), "59.7275", Decimal("59.7275"), Fraction(23891, 400)])
def test_fps_is_taken_as_it_is_written(fps: object) -> None:
    assert FrameClock(fps).fps == Fraction(23891, 400)


@pytest.mark.parametrize(
    "fps", ["1e99999999", "1e-99999999", Decimal("1e99999999"), f"{'9' * 400}/1", 10**400, "inf", "nan", "1/0", "60 /s"]
)
@pytest.mark.timeout(20)
def test_a_number_beyond_every_float_is_refused_before_its_digits_are_written_out(fps: object) -> None:
    with pytest.raises(ValueError, match=r"^fps must be "):
        FrameClock(fps)


@SETTINGS
@given(fps=st.fractions(1, 10**6, max_denominator=1000), frame=st.integers(0, 10**6), off=st.integers(-5, 5))
def test_aligned_moves_a_time_to_a_frame_from_two_nanoseconds_before_where_frames_are_rounded(
    fps: Fraction, frame: int, off: int
) -> None:
    clock = FrameClock(fps)
    begin, rounded = clock.begin(frame), (SECOND / fps).denominator > 1
    time = begin + off
    assert clock.aligned(time) == (begin if rounded and -2 <= off <= 0 else time)
    lagging = begin + 3 if (-2 if rounded else 0) <= off <= 3 else time
    assert clock.aligned(time, lag=3) == lagging


@SETTINGS
@given(fps=st.fractions(Fraction(1, 100), 10**6, max_denominator=1000), frames=st.integers(0, 1000))
def test_whole_is_the_number_of_frames_if_only_rounding_to_nanoseconds_hides_that_it_is_whole(
    fps: Fraction, frames: int
) -> None:
    clock = FrameClock(fps)
    exact = frames * SECOND / fps
    assert clock.whole(math.floor(exact)) == clock.whole(math.ceil(exact)) == frames
    assert clock.whole(math.floor(exact) - 1) == (frames if frames == 0 else 0)
    assert clock.whole(math.ceil(exact) + 1) == 0
