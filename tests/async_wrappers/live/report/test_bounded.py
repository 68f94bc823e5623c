"""Bounded measurements against those that keep everything, of the same run, and their memory over many frames."""

from __future__ import annotations

import gc
import math
import tracemalloc
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner
from async_wrappers.latency import LogNormal
from async_wrappers.live.report.histogram import RELATIVE_ERROR
from async_wrappers.live.report.report import TimingReport
from async_wrappers.live.world.environment import FrameStatus
from async_wrappers.testing.staggers import Played
from tests.worlds.fake_transport import Stage
from tests.worlds.learners import Rating
from tests.worlds.recording_env import RecordingEnv
from tests.worlds.schedule_cases import CASES, Case, cases


def of_frames(report: TimingReport, frames: int) -> tuple[Any, ...]:
    """Return the inferences of the last frames' starts, in a time line that has all of them."""
    first, lived = {}, 0
    for episode in report.episodes:
        first[episode.number], lived = lived, lived + episode.frames
    return tuple(span for span in report.spans if first[span.episode] + span.start >= lived - frames)


def shown(spans: Any) -> tuple[Any, ...]:
    """Return places and effects apart: of two that read the same frame, a whole time line takes the first that ended.

    A strategy that holds actions back may have applied the other one.
    """
    places = sorted((each.episode, each.start, each.worker, each.began, each.ended) for each in spans)
    effects = [(each.episode, each.start, each.effect, each.applied, each.lag) for each in spans]
    return places, sorted(each for each in effects if each[2] is not None)


def assert_alike(bounded: TimingReport, whole: TimingReport) -> None:
    """Compare all but the time line: numbers are equal, quantiles within their error."""
    for name, value in whole.to_dict().items():
        found = bounded.to_dict()[name]
        if isinstance(value, dict) and "p50" in value:
            assert found == pytest.approx(value, rel=RELATIVE_ERROR * 1.01, abs=1e-9, nan_ok=True), name
            for exact in ("mean", "std", "max"):
                assert found[exact] == pytest.approx(value[exact], rel=1e-9, abs=1e-9, nan_ok=True), name
        elif name not in ("timeline_s", "loop_share"):
            assert repr(found) == repr(value), name


@settings(max_examples=min(CASES, 60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(case=cases(), held=st.integers(1, 40), pause=st.integers(1, 30))
def test_a_bounded_report_is_the_whole_one_but_for_the_time_line(case: Case, held: int, pause: int) -> None:
    def operator(status: FrameStatus) -> None:
        if status.frame % (2 * pause) == pause:
            status.pause()
        elif status.frame % pause == 0:
            status.resume()

    def play(**timeline: Any) -> TimingReport:
        env = RecordingEnv([max(1, frames) for frames in case.episodes])
        terms = {"latency": Played(case.latencies), "backend": "virtual", "stagger": case.stagger(), **timeline}
        runner = AsyncRunner(lambda: env, lambda: lambda o: 1, case.workers, case.fps, **terms)
        return runner.run(episodes=len(case.episodes), on_frame=operator)

    whole = play()
    bounded = play(timeline=held / float(case.fps) * (1 - 1e-9))
    assert_alike(bounded, whole)
    assert bounded.pauses == whole.pauses
    assert shown(bounded.spans) == shown(of_frames(whole, held))


class Learning:
    def load_weights(self, weights: Any, version: int) -> None:
        pass

    def act(self, observation: Any, decision: Any) -> int:
        return 1


def test_lags_and_updates_are_counted_too() -> None:
    def play(**timeline: Any) -> TimingReport:
        terms: dict[str, Any] = {"backend": "virtual", "latency": LogNormal(0.02, 0.5), "make_learner": Rating}
        terms |= {"learner_latency": LogNormal(0.007, 0.5)}
        runner = AsyncRunner(lambda: RecordingEnv(50), Learning, 3, 100, **terms, **timeline)
        with runner:
            return runner.run(episodes=3)

    whole, bounded = play(), play(timeline=0.2)
    assert_alike(bounded, whole)
    assert whole.lag_updates is not None and whole.lag_updates["max"] > 0
    assert whole.learner_step_ms is not None
    assert sorted(map(repr, bounded.spans)) == sorted(map(repr, of_frames(whole, 20)))


def test_a_real_clocks_late_frames_are_counted() -> None:
    records = []
    for timeline in (None, 0.004):
        stage = Stage(workers=2, latencies=(2_000_000,), timeline=timeline)
        stage.env.durations = {4: 2_600_000, 7: 1_100_000}
        records.append(stage.play(frames=40))
    whole, bounded = (record.report() for record in records)
    assert_alike(bounded, whole)
    assert whole.frames["missed_deadlines"] == 2 and whole.exchange_us is not None
    assert bounded.timeline_s == 0.004
    assert sorted(map(repr, bounded.spans)) == sorted(map(repr, of_frames(whole, 4)))


def test_the_report_says_what_its_percentiles_are_made_of() -> None:
    def text(**timeline: Any) -> str:
        runner = AsyncRunner(
            lambda: RecordingEnv(), lambda: lambda o: 1, 1, 100, backend="virtual", latency=0.01, **timeline
        )
        return str(runner.run(frames=100))

    assert "time line" not in text()
    assert "time line  the last 0.5 s; percentiles are of the whole run, within 0.4%" in text(timeline=0.5)


@pytest.mark.parametrize("timeline", ["none", 0, -1.0, math.nan, math.inf, True, None, [1]])
def test_a_time_line_of_no_length_is_refused(timeline: Any) -> None:
    with pytest.raises(ValueError, match=r"timeline must be 'all' or a number > 0 of seconds, got"):
        AsyncRunner(lambda: RecordingEnv(), lambda: lambda o: 1, 1, 100, timeline=timeline)


class Still(gym.Env[Any, Any]):
    """Returns the same observation for ever."""

    observation_space = gym.spaces.Box(-1, 1, (12,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(12, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(12, np.float32), 0.0, False, False, {}


def test_many_frames_leave_no_memory_and_no_garbage_behind() -> None:
    sizes, cycles, answer = [], [], np.zeros(6, np.float32)

    def look(status: FrameStatus) -> None:
        if status.frame in (1_500, 4_000):
            cycles.append(gc.collect())  # of cyclic garbage, which a phase of an endless episode never collects
            sizes.append(tracemalloc.get_traced_memory()[0])

    runner = AsyncRunner(
        Still,
        lambda: lambda observation: answer,
        2,
        1000,
        backend="virtual",
        latency=LogNormal(0.0012, 0.3),
        timeline=0.5,
    )
    gc.disable()
    tracemalloc.start()
    try:
        report = runner.run(frames=4_100, on_frame=look)
    finally:
        tracemalloc.stop()
        gc.enable()
    assert report.frames["total"] == 4_100 and len(report.spans) <= 500
    assert sizes[1] - sizes[0] < 30_000  # 2,500 frames: 8 bytes for each
    assert cycles[1] == 0


def test_spans_are_those_of_a_whole_time_line_where_it_is_long_enough() -> None:
    def play(timeline: Any) -> TimingReport:
        terms: dict[str, Any] = {"backend": "virtual", "latency": LogNormal(0.05, 0.9), "stagger": "none"}
        terms |= {"timeline": timeline}
        runner = AsyncRunner(lambda: RecordingEnv([7, 12]), lambda: lambda o: 1, 3, 50, **terms)
        return runner.run(episodes=6)

    assert play(1e6).spans == play("all").spans
    assert replace(play("all"), timeline_s=None) == play("all")
