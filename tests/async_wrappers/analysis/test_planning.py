"""Tests of async_wrappers/analysis/planning.py and of its command line."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import gin
import gymnasium as gym
import numpy as np
import pytest
from matplotlib.lines import Line2D

import async_wrappers
from async_wrappers import AsyncRunner, CommittedPrefix, FreshObservation, RealtimeDelay
from async_wrappers.__main__ import main
from async_wrappers.analysis import forecast, planning
from async_wrappers.analysis.planning import Forecast, Plan, plan
from async_wrappers.analysis.scaling import workers_against_latency
from async_wrappers.analysis.timeline import timeline
from async_wrappers.analysis.which_way import REMEDIES, SEQUENTIAL
from async_wrappers.latency import Constant, Latency, LogNormal, Spikes, Trace, Uniform
from async_wrappers.policy import Decision, Memory
from async_wrappers.schedule.simulated import SimulatedSchedule
from async_wrappers.wrappers.chunk import Chunk
from tests.worlds.experiments import load_gin
from tests.worlds.recording_env import RecordingEnv

ROOT = Path(async_wrappers.__file__).parents[1]
FRAME = 1 / 60


def rule(found: Plan, name: str) -> Forecast:
    return next(row for row in found.rules if row.rule == name)


def fresh_share(latency: Any, workers: int, playout: str, frames: int) -> float:
    """Return the share of fresh frames after the first, slow ones, counted by hand."""
    schedule = SimulatedSchedule(latency, workers, 60, "tickets", playout, seed=7)
    applied = [action is not None for action, _ in islice(schedule.steps(), frames + 100)]
    return sum(applied[100:]) / frames


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate less, where shares need not be exact."""
    monkeypatch.setattr(forecast, "LEAST_FRAMES", 600)


@pytest.fixture(scope="module")
def constant() -> Plan:
    return plan(0.120, fps=60, cores=16, learn_ms=400, model_mb=200)


@pytest.fixture(scope="module")
def scattered() -> Plan:
    return plan(LogNormal(0.120, 0.2), cores=16)


def test_a_constant_latency_of_120_ms_gives_the_numbers_of_a_hand_calculation(constant: Plan) -> None:
    table = {row.rule: (row.workers, round(row.fresh_share, 2), row.mean_delay_frames) for row in constant.rules}
    assert table == {
        "sequential": (1, 0.11, 8),  # 7.2 frames are 8: an action on each 9th frame
        "never_resting": (1, 0.14, 8),  # on each 7.2nd
        "max_time": (8, 1.00, 8),
        "max_time_known": (8, 1.00, 8),
        "expected_time": (8, 1.00, 8),
        "tickets": (10, 1.00, 8),
    }
    assert rule(constant, "sequential").fresh_share == pytest.approx(1 / 9, abs=1e-3)
    assert rule(constant, "never_resting").fresh_share == pytest.approx(1 / 7.2, abs=1e-3)
    assert rule(constant, "tickets").busy_workers == pytest.approx(7.2, abs=1e-6)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("latency", "fps", "workers", "delay"),
    [
        (0.1, 60, 6, 6),
        (0.1, 50, 5, 5),
        (0.05, 60, 3, 3),
        (6 / 59.7275, 59.7275, 6, 6),
        (0.3003, Fraction(30_000, 1001), 9, 9),
    ],
)
def test_a_constant_latency_of_whole_frames_needs_as_many_workers_and_has_that_delay(
    latency: float, fps: Any, workers: int, delay: int
) -> None:
    found = plan(latency, fps=fps, seconds=10)
    for name in ("max_time", "max_time_known", "expected_time"):
        row = rule(found, name)
        assert (row.workers, row.mean_delay_frames, row.p99_delay_frames) == (workers, delay, delay)
        assert row.fresh_share == pytest.approx(1.0, abs=2 * workers / 600)  # less the first spread over a guess
    assert rule(found, "max_time_known").fresh_share == 1.0


def test_eight_workers_are_enough_for_120_ms(constant: Plan) -> None:
    assert constant.enough is not None
    assert (constant.enough.workers, constant.enough.fresh_share, constant.playout) == (8, 1.0, "p99")
    assert constant.enough.playout_frames == 8
    assert constant.enough.mean_delay_ms == constant.enough.p99_delay_ms == pytest.approx(8 / 60 * 1000)
    assert constant.enough.first_action_s == pytest.approx(8 / 60)
    assert constant.enough.dropped_per_second == constant.enough.late_per_second == 0
    assert constant.enough.inferences_per_second == pytest.approx(60)


def test_with_one_worker_fewer_every_second_frame_goes_without() -> None:
    assert fresh_share(0.120, 8, "p99", 1000) == 1.0
    assert fresh_share(0.120, 7, "p99", 1000) == 0.5  # the slot is two frames


def test_the_workers_found_are_the_least_that_are_enough(scattered: Plan) -> None:
    found = scattered.enough
    assert found is not None and found.fresh_share >= 0.99
    assert fresh_share(LogNormal(0.120, 0.2), found.workers, scattered.playout, 30_000) >= 0.99
    assert fresh_share(LogNormal(0.120, 0.2), found.workers - 1, scattered.playout, 30_000) < 0.99


def test_an_algorithm_that_is_told_the_maximum_keeps_the_spacing_that_one_that_learns_it_loses(scattered: Plan) -> None:
    learned, known = rule(scattered, "max_time"), rule(scattered, "max_time_known")
    assert learned.workers == known.workers == 16  # 265.7 ms are 15.9 frames
    assert learned.fresh_share < 0.7 < 0.98 < known.fresh_share
    assert any("max_time loses" in sentence for sentence in scattered.advice)


@pytest.mark.usefixtures("quick")
def test_the_rules_count_the_largest_and_the_mean_latency_in_frames() -> None:
    found = plan(Trace([0.100] * 9 + [0.300]), seconds=10)  # 6 and 18 frames, 7.2 in the mean
    assert [row.workers for row in found.rules] == [1, 1, 18, 18, 8, 10]
    assert found.latency_ms["max"] == pytest.approx(300)
    assert any("'p95'" in sentence for sentence in plan(Spikes(0.120, 0.02, 3), seconds=10).advice)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("latency", "fps"), [(0.0, 60), (0.010, 60), (0.020, 50), (1 / 64, Fraction(64))])
def test_a_latency_of_a_frame_or_less_needs_one_worker_and_no_staggering(latency: float, fps: Any) -> None:
    found = plan(latency, fps=fps, seconds=10)
    assert found.enough is not None and found.enough.workers == 1
    assert rule(found, "never_resting").fresh_share == rule(found, "expected_time").fresh_share == 1.0
    assert found.advice[0] == "The latency is under a frame: one worker suffices, and staggering buys nothing."


@pytest.mark.usefixtures("quick")
def test_a_latency_a_nanosecond_above_a_frame_needs_two() -> None:
    found = plan(0.020000001, fps=50, seconds=10)
    assert found.enough is not None and found.enough.workers == 2


def test_one_update_per_frame_takes_as_many_learners_as_frames_pass_in_it(constant: Plan) -> None:
    assert constant.learners == 24  # 0.4 s at 60 fps
    assert constant.cores_needed == 8 + 24 + 1
    assert any("33 are needed, 16 here" in sentence for sentence in constant.advice)
    assert plan(0.0, learn_ms=1, cores=1).learners == 1


def test_memory_is_two_copies_of_the_weights_and_a_little_per_worker(constant: Plan) -> None:
    assert constant.memory_mb == {"weights": 400, "workers_measured": 8 * 13, "workers_budget": 8 * 300}
    assert constant.memory_gbs == pytest.approx(60 * 0.2)  # 7.2 busy workers, 200 MB each 0.12 s
    assert not any("GB/s" in sentence for sentence in constant.advice)


@pytest.mark.usefixtures("quick")
def test_reading_more_than_the_memory_gives_is_warned_of() -> None:
    found = plan(0.120, model_mb=200, memory_gbs=10, cores=16, seconds=10)
    assert "Reading the weights takes 12 GB/s where about 10 are typical" in found.advice[0]


@pytest.mark.usefixtures("quick")
def test_fewer_cores_than_busy_workers_cannot_help(scattered: Plan) -> None:
    found = plan(LogNormal(0.120, 0.2), cores=4)
    assert "cannot work on 4 cores: 7.2 workers are busy" in found.advice[0]
    assert not any("cannot work" in sentence for sentence in scattered.advice)


def test_workers_on_another_machine_need_no_cores_here() -> None:
    here, remote = (
        plan(LogNormal(0.120, 0.2), cores=2, learn_ms=20, seconds=10, remote=each) for each in (False, True)
    )
    assert here.rules == remote.rules
    assert remote.cores_needed == 2 + 1  # learners, and the loop
    assert "cores     3 needed: 2 learners (one update per frame), 1 environment loop; 2 here" in str(remote)
    assert any("The other machine must infer 7.2 at a time" in sentence for sentence in remote.advice)
    assert any("share cores: 3 are needed, 2 here" in sentence for sentence in remote.advice)
    assert not any("cannot work" in sentence or "per core" in sentence for sentence in remote.advice)


def test_fewer_workers_are_forecast_with_whole_and_with_even_slots() -> None:
    found = plan(2.3 * FRAME, cores=2, seconds=10)
    one, two = found.slots
    assert (one.workers, two.workers) == (1, 2)
    assert (one.sustained, two.sustained) == pytest.approx((1 / 2.3, 2 / 2.3))
    assert (one.whole.fresh_share, two.whole.fresh_share) == pytest.approx((1 / 3, 1 / 2), abs=1e-3)
    assert (one.even.fresh_share, two.even.fresh_share) == pytest.approx((1 / 2.3, 2 / 2.3), abs=1e-3)
    assert (two.whole.mean_delay_frames, two.even.mean_delay_frames) == (3, 4)
    assert "gives an action on 87.0% of the frames with slot='even', on 50.0% with whole slots" in found.advice[1]
    line = "            2         0.870           0.500 (3.0)       5           0.870 (4.0)       6"
    assert line in str(found).splitlines()
    assert found.to_dict()["slots"][1]["even"]["workers"] == 2


@pytest.mark.usefixtures("quick")
def test_even_slots_are_compared_where_workers_are_too_few_for_a_start_on_each_frame() -> None:
    assert plan(FRAME, seconds=10).slots == ()
    found = plan(30 * FRAME, cores=17, seconds=10)
    assert [row.workers for row in found.slots] == [1, 2, 3, 4, 15, 17, 29]
    assert {row.even.fresh_share - row.whole.fresh_share for row in found.slots if 30 % row.workers == 0} == {0.0}
    assert not any("slot='even'" in sentence for sentence in plan(30 * FRAME, cores=15, seconds=10).advice)


def test_a_latency_so_long_that_no_action_lands_has_no_delay_with_any_slot(constant: Plan) -> None:
    world = planning.Forecaster(SlowerThanItLooks(), 30, 10, 0)
    stuck = world.forecast("slots", 1, "tickets", slot="even")
    text = str(replace(constant, slots=(planning.Slots(1, 0.5, stuck, stuck),)))
    line = "            1         0.500                  none    none                  none    none"
    assert line in text.splitlines()


def test_a_chunk_is_as_long_as_delay_and_interval(constant: Plan) -> None:
    lengths = {row.rule: (row.chunk_frames, row.chunk_p99_frames) for row in constant.rules}
    assert lengths["sequential"] == (17, 17)  # 8 frames late, on each 9th
    assert lengths["never_resting"] == (16, 16)  # 8 frames late, on each 7th or 8th
    assert lengths["tickets"] == lengths["max_time_known"] == (9, 9)
    assert any(
        "One worker that never rests fills every frame with chunks of 16 actions, from 0.133 s on" in sentence
        for sentence in constant.advice
    )
    assert not any("chunks" in sentence for sentence in plan(0.010, seconds=10).advice)


@pytest.mark.parametrize(("stagger", "workers"), [("none", 1), ("sequential", 1), ("tickets", 1), ("tickets", 3)])
def test_chunks_of_the_length_found_leave_no_frame_to_the_default_action(stagger: str, workers: int) -> None:
    row = planning.Forecaster(Constant(0.046), 50, 10, 0).forecast("any", workers, stagger)
    assert row.chunk_frames is not None
    given: Any = {"latency": 0.046, "workers": workers, "fps": 50, "stagger": stagger}
    left = []
    for length in (row.chunk_frames, row.chunk_frames - 1):
        env = RealtimeDelay(RecordingEnv(length=None), default_action=Chunk(length, after=0), **given)
        env.reset(seed=0)
        chunk = np.zeros(length, np.int64)
        env.step(chunk)  # the first of them follows on the frames before the first effect
        left.append(sum(env.step(chunk)[-1]["realtime"]["default_frames"] for _ in range(100)))
    assert left[0] == 0 < left[1]


@pytest.mark.usefixtures("quick")
def test_with_random_latencies_the_length_is_the_largest_that_was_needed() -> None:
    latency = LogNormal(0.120, 0.4)
    world = planning.Forecaster(latency, 60, 60, 5)
    row = world.forecast("never_resting", 1, "none")
    schedule = SimulatedSchedule(latency, 1, 60, "none", seed=5)
    entries: dict[int, int] = {}  # by start: how many entries of its chunk lie before the next effect
    newest = None
    for frame, (applied, _) in enumerate(islice(schedule.steps(), world.settle + world.frames)):
        newest = newest if applied is None else applied[0]
        if newest is not None:
            entries[newest] = frame - newest + 1
    assert newest is not None
    del entries[newest]  # the next one has not landed
    assert row.chunk_frames == max(entries.values())
    assert row.chunk_p99_frames is not None
    longer = sum(length > row.chunk_p99_frames for length in entries.values())
    assert 0 < longer <= 0.01 * len(entries)


@pytest.mark.usefixtures("quick")
def test_a_number_of_workers_that_is_given_has_a_row_of_its_own() -> None:
    found = plan(6 * FRAME, workers=3, seconds=10)
    row = rule(found, "given")
    assert (row.workers, row.fresh_share, row.chunk_frames) == (3, 0.5, 8)
    assert found.enough is not None and found.enough.workers == 6


@pytest.mark.usefixtures("quick")
def test_a_release_must_fit_into_the_frame_beside_the_step() -> None:
    fits = plan(0.060, release=0.0005, step=0.002, seconds=10)
    assert "loop      release 0.5 ms, environment step 2 ms (p99); a frame has 16.67 ms" in str(fits)
    assert fits.release_ms is not None and fits.release_ms["max"] == pytest.approx(0.5)
    assert fits.to_dict()["step_ms"]["p99"] == pytest.approx(2.0)
    assert not any("do not fit" in sentence for sentence in fits.advice)
    found = plan(0.060, release=[0.005, 0.007], step=0.010, seconds=10)
    sentence = "The loop's release (7 ms) and step (10 ms) do not fit into a frame of 16.67 ms: take a smaller core"
    assert any(each.startswith(sentence) for each in found.advice)
    assert found.enough == fits.enough  # workers encode, and know nothing of it


class Halves:
    """A policy with memory that counts its releases."""

    def __init__(self) -> None:
        self.seen: list[Memory] = []

    def encode(self, observation: Any, decision: Decision) -> Any:
        return observation + 1

    def release(self, features: Any, memory: Memory, decision: Decision) -> Any:
        assert features == 4
        self.seen.append(memory)
        return SimpleNamespace(action=7, state=len(self.seen))


@pytest.mark.usefixtures("quick")
def test_a_policy_with_memory_is_measured_in_its_two_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(infer: Callable[[Any], Any], observation: Any) -> Trace:
        for _ in range(3):
            infer(observation)
        return Trace([0.120 if observation == 3 else 0.001])

    monkeypatch.setattr(planning, "measure", fake)
    policy = Halves()
    found = plan(policy, 3, 30, seconds=10)
    assert found.enough is not None and found.enough.workers == 4
    assert found.release_ms is not None and found.release_ms["p99"] == pytest.approx(1.0)
    first = Memory(None, 0.0, True, None)
    assert policy.seen == [first, Memory(7, 0.0, False, 1), Memory(7, 0.0, False, 2)]
    own = plan(policy, 3, 30, seconds=10, release=0.002)
    assert own.release_ms is not None and own.release_ms["p99"] == pytest.approx(2.0)


@pytest.mark.usefixtures("quick")
def test_each_half_of_a_policy_with_a_fast_path_has_a_delay_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(0.060, release=0.0005, fast_age=1, seconds=10)
    line = "fast path reads what is 1 frames (16.67 ms) old when its action lands; the slow half 4.0 frames (66.67 ms)"
    assert line in str(found) and found.to_dict()["fast_age"] == 1
    assert found.enough == plan(0.060, seconds=10).enough
    late = plan(0.060, release=0.040, fast_age=1, seconds=10)
    assert any(each.startswith("The fast path takes 40 ms, which is 2 frames, and says") for each in late.advice)
    assert not any("fast path" in each for each in found.advice)

    def fake(infer: Callable[[Any], Any], observation: Any) -> Trace:
        infer(observation)
        return Trace([0.120 if observation == 3 else 0.001])

    monkeypatch.setattr(planning, "measure", fake)
    policy = Halves()
    assert plan(policy, 3, 30, seconds=10).fast_age is None and policy.seen[-1].fresh is None
    policy.fast_age = 2  # type: ignore[attr-defined]
    assert plan(policy, 3, 30, seconds=10).fast_age == 2 and policy.seen[-1].fresh == 3


@pytest.mark.usefixtures("quick")
def test_an_episode_that_ends_before_the_first_action_is_said() -> None:
    assert "No action lands within 1 s: the earliest comes after 2 s." in plan(2.0, seconds=1).advice[0]
    only_slow = plan(LogNormal(1.0, 0.2), seconds=1.2)  # the playout is 1.6 s
    assert "Within 1.2 s no action of tickets workers lands" in only_slow.advice[0]


class LaterSlow:
    """One inference in 40 is slow, but only after the 6400th: fewer than 1 % of 10,000, more of many."""

    mean = 0.05

    def stream(self, seed: Any) -> LaterSlow:
        twin = LaterSlow()
        twin.drawn = 0
        return twin

    drawn = 0

    def draw(self) -> int:
        self.drawn += 1
        return 300_000_000 if self.drawn > 6400 and self.drawn % 40 == 0 else 50_000_000


def test_where_too_many_actions_miss_the_playout_a_longer_one_is_chosen() -> None:
    found = plan(LaterSlow(), cores=16, seconds=300)
    assert found.enough is not None and found.enough.fresh_share >= 0.99
    assert (found.playout, found.enough.playout_frames) == ("p99.5", 18)
    assert any("use playout 'p99.5'" in sentence for sentence in found.advice)


@pytest.mark.usefixtures("quick")
def test_a_latency_of_20_s_is_planned_with_more_than_a_thousand_workers() -> None:
    found = plan(20.0, fps=60)
    assert found.enough is not None
    assert (found.enough.workers, found.enough.fresh_share, found.enough.mean_delay_frames) == (1200, 1.0, 1200)
    assert found.simulated_frames == 3 * 1200


@pytest.mark.usefixtures("quick")
def test_a_policy_is_measured_on_the_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def fake(policy: Any, observation: Any) -> Trace:
        seen.extend((policy, observation))
        return Trace([0.120])

    def policy(observation: Any) -> int:
        return 0

    monkeypatch.setattr(planning, "measure", fake)
    observation = np.zeros(3)
    found = plan(policy, observation, 30)
    assert seen[0] is policy and seen[1] is observation
    assert found.enough is not None and found.enough.workers == 4


@pytest.mark.usefixtures("quick")
def test_a_quick_policy_needs_one_worker() -> None:
    found = plan(lambda observation: 0, np.zeros(3), fps=1)
    assert found.enough is not None and found.enough.workers == 1


@pytest.mark.usefixtures("quick")
def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    first, again, other = (plan(LogNormal(0.03, 0.5), seconds=10, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_plan_is_frozen_and_comes_back_from_json(scattered: Plan, tmp_path: Path) -> None:
    scattered.to_json(tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    assert content == scattered.to_dict()
    assert content["enough"]["workers"] == scattered.enough.workers  # type: ignore[union-attr]
    assert content["memory_mb"] is None and len(content["rules"]) == 6
    with pytest.raises(FrozenInstanceError):
        scattered.fps = 30  # type: ignore[misc]


class SlowerThanItLooks:
    """Ten milliseconds in a summary, for ever in the simulation."""

    mean = 0.01

    def __init__(self, nanoseconds: int = 10_000_000) -> None:
        self.nanoseconds = nanoseconds

    def stream(self, seed: Any) -> SlowerThanItLooks:
        return SlowerThanItLooks(10**18 if isinstance(seed, np.random.SeedSequence) else 10_000_000)

    def draw(self) -> int:
        return self.nanoseconds


def test_where_no_action_was_applied_the_delay_is_null(constant: Plan) -> None:
    world = planning.Forecaster(SlowerThanItLooks(), 60, 10, 0)
    row = world.forecast("stuck", 1, "none")
    assert (row.fresh_share, row.mean_delay_frames, row.mean_delay_ms, row.p99_delay_frames) == (0, None, None, None)
    assert (row.first_action_s, row.chunk_frames, row.chunk_p99_frames) == (None, None, None)
    stuck = replace(constant, rules=(row,), enough=None)
    assert '"mean_delay_ms": null' in json.dumps(stuck.to_dict(), allow_nan=False)
    assert "none" in str(stuck)


def test_the_text_holds_a_line_per_rule_and_every_sentence_of_advice(constant: Plan) -> None:
    text = str(constant)
    for name in ("sequential", "never_resting", "max_time", "max_time_known", "expected_time", "tickets", "enough"):
        assert sum(line.startswith(f"{name} ") for line in text.splitlines()) == 1
    assert all(f"* {sentence}" in text for sentence in constant.advice)
    assert "33 needed" in text and "400 MB of weights" in text and "12.0 GB/s" in text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("latency", "terms", "verdict"),
    [
        (
            0.120,
            {"cores": 16},
            "yes: 8 workers, playout 8 frames, an action on 100.0% of the frames, 8.0 frames (133 ms)",
        ),
        (0.010, {"cores": 1}, "yes: 1 worker, playout 1 frame, an action on 100.0% of the frames, 1.0 frames (17 ms)"),
        (0.120, {"cores": 1, "remote": True}, "yes, if the other machine infers 7.2 at a time: 8 workers, playout 8 f"),
        (
            0.120,
            {"cores": 2},
            "no: 7.2 workers are busy at a time, and there are 2 cores (8 workers, playout 8 frames,",
        ),
        (0.120, {"cores": 16, "seconds": 0.1}, "no: no action of theirs lands within 0.1 s (8 workers, playout 8"),
        (0.120, {"cores": 16, "step": 0.02}, "no: the loop's own work takes 20 ms, and a frame has 16.67 ms (8 work"),
        (None, {"cores": 16}, "no: no number of workers gives an action on 99% of the frames"),
    ],
)
def test_a_verdict_says_whether_it_works_and_what_the_policy_gets(
    latency: float | None, terms: dict[str, Any], verdict: str, constant: Plan
) -> None:
    found = replace(constant, enough=None) if latency is None else plan(latency, **terms)
    assert found.verdict.startswith(verdict)
    assert str(found).startswith(f"verdict   {found.verdict}\n")
    assert found.to_dict()["verdict"] == found.verdict
    assert ("play" in found.configuration) == found.verdict.startswith("yes")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("latency", "terms", "name", "delay"),
    [
        (0.010, {"cores": 1}, "a frame late", 1),
        (0.120, {"cores": 16, "fast_age": 0, "release": 0.001}, "fast path", 8),
        (0.120, {"cores": 16}, "told", 8),
        (0.120, {"cores": 1, "remote": True}, "told", 8),
        (0.120, {"cores": 2}, "chunks", 8),
        (LogNormal(0.120, 0.2), {"cores": 2}, "chunks", 11),
    ],
)
def test_a_plan_ends_with_its_row_of_the_ways(
    latency: float | Latency, terms: dict[str, Any], name: str, delay: int
) -> None:
    found = plan(latency, **terms)
    assert found.way is not None
    remedy, frames = found.way
    assert (remedy.name, frames) == (name, delay)
    *_, share, last = str(found).splitlines()
    assert remedy.share in share and last.endswith("docs/concepts/which_way.md")
    way = found.to_dict()["way"]
    assert way["name"] == name and f"RealtimeDelay.delay = {delay}" in way["lines"]
    names = {"RealtimeDelay": RealtimeDelay, "CommittedPrefix": CommittedPrefix, "FreshObservation": FreshObservation}
    env = eval(way["lines"][0], names | {"env": gym.make("CartPole-v1")})
    assert env.get_wrapper_attr("playout") == delay
    load_gin("configs/minatar/vtrace_fast.gin", bindings=way["lines"][1:])
    assert gin.query_parameter("RealtimeDelay.delay") == delay


@pytest.mark.usefixtures("quick")
def test_a_plan_that_cannot_work_ends_without_a_way(constant: Plan) -> None:
    assert plan(0.120, cores=16, seconds=0.1).way is None
    assert plan(0.120, cores=16, step=0.02).way is None
    none_lands = replace(constant, rules=(), enough=None)
    assert none_lands.way is None
    assert none_lands.to_dict()["way"] is None and "which way" not in str(none_lands)


@pytest.mark.usefixtures("quick")
def test_without_chunks_one_worker_plays_sequentially() -> None:
    found = plan(0.120, cores=2)
    alone = replace(found, rules=tuple(row for row in found.rules if row.rule != "never_resting"))
    assert alone.way == (SEQUENTIAL, 8)
    assert 'RealtimeDelay(env, delay=8, noops=8, default_action="repeat")' in str(alone)


def test_the_page_of_ways_has_the_rows_of_the_plan() -> None:
    text = (ROOT / "docs" / "concepts" / "which_way.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    shown = {row[0]: row[1:] for row in rows}
    for remedy in REMEDIES:
        name, wrapper, gin_lines, share = shown[remedy.case]
        lines = [line.replace("{d}", "d").replace("{n}", "d - 1") for line in (remedy.wrapper, *remedy.gin)]
        assert name.startswith(f"[{remedy.name}](") and wrapper == f"`{lines[0]}`"
        assert re.findall("`([^`]+)`", gin_lines) == lines[1:]
        assert share == remedy.share


def make_cart() -> Any:
    return gym.make("CartPole-v1", max_episode_steps=4000)


def played(environment: Any) -> tuple[int, set[int], int]:
    """Play 4,000 frames; return how many had an action, the delays, and the frames from the first action on."""
    environment.reset(seed=0)
    ages, fresh, frame, first = set[int](), 0, 0, None
    environment.unwrapped.step = lambda action: (np.zeros(4, np.float32), 0.0, False, False, {})  # it never falls
    truncated = False
    while not truncated:
        *_, truncated, info = environment.step(0)
        told = info["realtime"]
        frame, first = told["frame"], told["delay"] if first is None else first
        ages.add(told["delay"])
        fresh += 1
    return fresh, ages, frame - (first or 0)


@pytest.mark.parametrize("remote", [False, True])
def test_the_lines_of_a_plan_can_be_copied_and_give_what_it_forecasts(remote: bool) -> None:
    found = plan(LogNormal(0.120, 0.1), fps=50, cores=16, remote=remote)
    lines, enough = found.configuration, found.enough
    assert enough is not None
    names = {"env": make_cart(), "make_env": make_cart, "RealtimeDelay": RealtimeDelay, "LogNormal": LogNormal}
    fresh, ages, frames = played(eval(*lines["train under"], names))
    assert (fresh / frames, ages) == (1.0, {enough.playout_frames})
    names["env"] = make_cart()
    fresh, ages, frames = played(eval(*lines["or with missed frames"], names))
    assert fresh / frames == pytest.approx(enough.fresh_share, abs=0.005)
    assert min(ages) == enough.playout_frames
    # Live, on the virtual clock.
    virtual: dict[str, Any] = {"backend": "virtual", "latency": LogNormal(0.120, 0.1)}
    call = lines["play"][0].replace('"tcp://127.0.0.1:5555"', "make_policy")
    runner = eval(call, {**names, "make_policy": lambda: lambda o: 0, "AsyncRunner": partial(AsyncRunner, **virtual)})
    report = runner.run(frames=2000)
    assert report.delay_frames["p50"] == enough.playout_frames
    assert (runner.workers, report.fps) == (enough.workers, 50)
    assert ("serve" in lines) == remote and (not remote or "--workers 7 --threads" in lines["serve"][0])


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("cores", "remote"), [(16, False), (2, False), (2, True)])
def test_the_lines_for_one_worker_with_chunks_fill_every_frame(cores: int, remote: bool) -> None:
    found = plan(Uniform(0.08, 0.16), fps=50, cores=cores, remote=remote, seconds=20)
    assert (found.verdict[:2] == "no", found.chunk) == (cores == 2 and not remote, 17)
    assert found.verdict.endswith("; but one worker plays, with chunks of 17 actions") == (found.verdict[:2] == "no")
    *serve, play = found.configuration["or one worker with chunks"]
    assert [line.endswith("--workers 1") for line in serve] == [True] * remote
    make = partial(gym.make, "Pendulum-v1", max_episode_steps=500)
    names = {"Uniform": Uniform, "Chunk": Chunk, "RealtimeDelay": RealtimeDelay, "env": make(), "make_env": make}
    env = eval(*found.configuration["train it under"], names)
    env.reset(seed=0)
    env.step(env.action_space.sample())  # the first of them has the frames before the first effect
    left, truncated = 0, False
    while not truncated:
        *_, truncated, info = env.step(env.action_space.sample())
        left += info["realtime"]["default_frames"]
    assert left == 0
    # Live, on the virtual clock.
    names["AsyncRunner"] = partial(AsyncRunner, backend="virtual", latency=Uniform(0.08, 0.16))
    names["make_policy"] = lambda: lambda observation: np.zeros((17, 1), np.float32)
    runner = eval(play.replace('"tcp://127.0.0.1:5555"', "make_policy"), names)
    assert runner.workers == 1
    (episode,) = runner.run(frames=500).episodes
    assert episode.frames == 500


@pytest.mark.usefixtures("quick")
def test_a_plan_has_no_lines_for_chunks_where_one_worker_is_enough_or_acts_too_late() -> None:
    for found in (plan(0.010, cores=4, seconds=5), plan(0.5, cores=4, seconds=0.4), plan(0.1, step=0.02, seconds=5)):
        assert found.chunk is None
        assert "chunk" not in " ".join(found.configuration)


@pytest.mark.usefixtures("quick")
def test_a_plan_for_a_machine_that_takes_positions_holds_the_last_one() -> None:
    found = plan(0.100, fps=50, cores=16, seconds=5, positions=True)
    assert "RampDown" not in str(found)
    assert '"repeat" holds the last position' in str(found)
    assert found.to_dict()["positions"] is True
    assert "Chunk(10, after=RampDown(10))" in str(plan(0.100, fps=50, cores=16, seconds=5))


@pytest.mark.usefixtures("quick")
def test_the_command_line_takes_a_range_of_latencies(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "--latency-ms", "80-160", "--cores", "9", "--seconds", "10", "--positions") == 0
    printed = capsys.readouterr().out
    assert printed == f"{plan(Uniform(0.08, 0.16), cores=9, seconds=10, positions=True)}\n"


@pytest.mark.usefixtures("quick")
def test_the_lines_of_a_plan_are_gins() -> None:
    lines = plan(0.100, fps=50, cores=16).configuration
    load_gin("configs/dqn/cartpole.gin", bindings=lines["train under, in gin"])
    assert [gin.query_parameter(f"RealtimeDelay.{name}") for name in ("delay", "noops")] == [5, 0]
    load_gin("configs/live/cartpole.gin", bindings=lines["play, in gin"])
    names = ("workers", "fps", "playout", "default_action")
    assert [gin.query_parameter(f"AsyncRunner.{name}") for name in names] == [5, 50, 5, "repeat"]


@pytest.mark.usefixtures("quick")
def test_a_plan_of_a_trace_names_it_in_its_lines() -> None:
    found = plan(Trace(np.linspace(0.05, 0.06, 20)), fps=50, cores=16, seconds=10)
    assert 'latency=Trace("FILE"),' in found.configuration["or with missed frames"][0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan(-1.0), r"latency must be .* got -1.0"),
        (lambda: plan("fast"), r"latency must be a number of seconds.* got 'fast'"),
        (lambda: plan(lambda observation: 0), r"observation must be given for a policy"),
        (lambda: plan(LogNormal), r"observation must be given|latency must be"),
        (lambda: plan(3, np.zeros(3)), r"policy must have act\(observation, decision\) or be a function"),
        (lambda: plan(0.1, fps=0), r"fps must be > 0 frames per second, got 0"),
        (lambda: plan(0.1, seconds=0), r"seconds must be a finite number of seconds > 0, got 0"),
        (lambda: plan(0.1, seconds=float("nan")), r"seconds must be a finite number of seconds > 0, got nan"),
        (lambda: plan(0.1, learn_ms=-3), r"learn_ms must be a finite number of milliseconds > 0, got -3"),
        (lambda: plan(0.1, model_mb="big"), r"model_mb must be a finite number of megabytes > 0, got 'big'"),
        (lambda: plan(0.1, memory_gbs=True), r"memory_gbs must be a finite number .* > 0, got True"),
        (lambda: plan(0.1, workers=0), r"workers must be a whole number between 1 .* got 0"),
        (lambda: plan(0.1, release=-1.0), r"release: latency must be .* got -1.0"),
        (lambda: plan(0.1, release=0.001, fast_age=-1), r"fast_age must be a whole number of frames >= 0, got -1"),
        (lambda: plan(0.1, fast_age=1), r"release must be given with fast_age=1, .* got None"),
        (lambda: plan(0.1, step="slow"), r"step: latency must be a number of seconds.* got 'slow'"),
        (lambda: plan(0.1, cores=0), r"cores must be a whole number >= 1, got 0"),
        (lambda: plan(0.1, cores=1.5), r"cores must be a whole number >= 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: plan(0.1, seed=-1), r"seed must be a whole number >= 0, got -1"),
        (lambda: plan(0.1, seed=0.5), r"seed must be a whole number >= 0, got 0.5"),  # type: ignore[arg-type]
        (lambda: plan(2000.0), r"latency must stay under 100000 frames .* got up to 120000 at 60 fps"),
        (lambda: timeline({}), r"schedule must be one or several by title, got an empty mapping"),
        (lambda: timeline(SimulatedSchedule(0.1), frames=0), r"frames must be >= 1 to be drawn, got 0"),
        (lambda: timeline(SimulatedSchedule(0.1), frames=-2), r"frames must be >= 0 frames, got -2"),
    ],
)
def test_what_is_wrong_is_named_with_its_value(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_workers_grow_with_the_latency() -> None:
    needs = workers_against_latency([0.010, 0.100, 0.5], fps=60, seconds=60)
    assert [need.mean_rule for need in needs] == [1, 6, 30]
    assert [need.latency_s for need in needs] == [0.010, 0.100, 0.5]
    for need in needs:
        assert need.enough is not None and need.enough.fresh_share >= 0.99
        assert need.mean_rule <= need.enough.workers <= 1.5 * need.mean_rule + 2


def size_of_png(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def triangles(ax: Any) -> list[int]:
    return [int(line.get_xdata()[0]) for line in ax.lines if isinstance(line, Line2D) and line.get_marker() == "v"]


def test_the_time_line_marks_each_effect_and_hatches_the_frames_without_an_action(tmp_path: Path) -> None:
    figure = timeline(SimulatedSchedule(0.120, 1, 60, "sequential"), frames=20, path=tmp_path / "line.png")
    width, height = size_of_png(tmp_path / "line.png")
    assert 800 <= width <= 2000 and 200 <= height <= 2000
    (ax,) = figure.axes
    assert triangles(ax) == [8, 17]
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches if bar.get_hatch() is None]
    assert np.allclose(bars, [(0, 7.2), (9, 7.2), (18, 7.2), (8, 1), (17, 1)])
    hatched = [(bar.get_x(), bar.get_width()) for bar in ax.patches if bar.get_hatch() is not None]
    assert hatched == [(0, 8), (9, 8), (18, 2)]


def test_actions_that_are_dropped_are_drawn_dashed() -> None:
    (ax,) = timeline(SimulatedSchedule(0.100, 3, 60, "none"), frames=10).axes  # three at once: one is applied
    assert triangles(ax) == [6]
    assert [bar.get_linestyle() for bar in ax.patches].count("--") == 0  # equal starts: none is older
    (ax,) = timeline(SimulatedSchedule(Trace([0.300, 0.050]), 2, 60, "tickets", playout=4, seed=0), frames=40).axes
    assert [bar.get_linestyle() for bar in ax.patches].count("--") > 0


def test_a_picture_of_thousands_of_workers_shows_the_first_of_them(tmp_path: Path) -> None:
    figure = timeline({"many": SimulatedSchedule(10.0, 600)}, frames=1000, path=tmp_path / "many.png")
    assert figure.axes[0].get_ylabel() == "worker (first 24 of 600)"
    assert max(size_of_png(tmp_path / "many.png")) <= 2000


def run(*words: str) -> int:
    return main(list(words))


def test_the_command_line_prints_a_plan_without_matplotlib() -> None:
    words = ["-X", "importtime", "-m", "async_wrappers", "plan", "--latency-ms", "40", "--cores", "9", "--seconds", "5"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{plan(0.040, cores=9, seconds=5)}\n"
    assert "matplotlib" not in done.stderr and "torch" not in done.stderr


@pytest.mark.usefixtures("quick")
def test_the_command_line_passes_everything_on(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "plan --latency-ms 40 --fps 50 --cv 0.3 --spike-probability 0.02 --spike-factor 3 --learn-ms 100 --cores 3 "
        "--model-mb 100 --memory-gbs 1 --workers 2 --release-ms 4 --fast-age 1 --step-ms 2 --seconds 30 --seed 4 --json"
    )
    assert run(*words.split()) == 0
    latency = Spikes(LogNormal(0.040, 0.3), 0.02, 3)
    of_machine: Any = {"learn_ms": 100, "cores": 3, "model_mb": 100, "memory_gbs": 1}
    expected = plan(latency, fps=50, **of_machine, workers=2, release=0.004, fast_age=1, step=0.002, seconds=30, seed=4)
    assert json.loads(capsys.readouterr().out) == expected.to_dict()


@pytest.mark.usefixtures("quick")
def test_the_command_line_plans_for_another_machine_and_remarks_on_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "--latency-ms", ".12", "--cores", "1", "--seconds", "10", "--remote") == 0
    printed = capsys.readouterr()
    assert printed.out == f"{plan(0.12 / 1000, cores=1, seconds=10, remote=True)}\n"
    assert printed.err == "--latency-ms 0.12 is 0.12 ms; 0.12 s are --latency-ms 120\n"
    assert run("plan", "--latency-ms", "1", "--seconds", "10") == 0
    assert run("plan", "--latencies-ms", "0.5", "--seconds", "10") == 0
    assert capsys.readouterr().err == "--latencies-ms 0.5 is 0.5 ms; 0.5 s are --latencies-ms 500\n"


@pytest.mark.usefixtures("quick")
def test_the_command_line_reads_a_trace_and_writes_json_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Trace([0.050, 0.060]).to_json(tmp_path / "trace.json")
    written, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    words = ("--trace", str(tmp_path / "trace.json"), "--json", str(written), "--picture", str(picture))
    assert run("plan", "--cores", "4", "--seconds", "10", *words) == 0
    found = plan(Trace([0.050, 0.060]), cores=4, seconds=10)
    assert json.loads(written.read_text()) == found.to_dict()
    assert capsys.readouterr().out == f"{found}\n"
    assert size_of_png(picture)[0] >= 800


@pytest.mark.usefixtures("quick")
def test_the_command_line_prints_a_table_of_workers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "--latencies-ms", "10", "120", "--cv", "0", "--seconds", "60") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| 0.01 s | 1 | 1 | p99 | 1.000 | 1.0 | 0.0167 s | 0.6 |"
    assert lines[3] == "| 0.12 s | 8 | 8 | p99 | 1.000 | 8.0 | 0.133 s | 7.2 |"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "required"),
        ("guess", "invalid choice"),
        (
            "plan",
            "one of the arguments --latency-ms --trace --batch-ms --batch-trace --latencies-ms --networks is required",
        ),
        ("plan --latency-ms fast", "must be milliseconds, or a range such as 80-160, got 'fast'"),
        ("plan --latency-ms 160-80", "must be a range from the shortest to the longest, got 160-80"),
        ("plan --latency-ms 80-160 --cv 0.2", "--cv must go with one --latency-ms, got --cv 0.2 with a range"),
        ("plan --latencies-ms 5 --positions", "--positions is not for a table: leave it out"),
        ("plan --latency-ms -3", "argument --latency-ms: must be >= 0 milliseconds and finite, got -3"),
        ("plan --latency-ms 5 --trace x.json", "not allowed with argument"),
        ("plan --trace /nowhere.json", "/nowhere.json"),
        ("plan --trace x.json --cv 0.2", "--cv must go with one --latency-ms"),
        ("plan --latency-ms 5 --spike-factor 3", "must be given together"),
        ("plan --latency-ms 5 --fps 0", "fps must be > 0"),
        ("plan --latency-ms 5 --cores 0", "cores must be a whole number >= 1"),
        ("plan --latency-ms 5 --seconds 9 --json /nowhere/plan.json", "/nowhere/plan.json"),
        ("plan --latencies-ms 5 --cv -1", "--cv must be from 0 to 3, got -1"),
        (
            "plan --latency-ms 5 --cv 5",
            "--cv must be from 0 to 3, got 5, whose log-normal is almost always near 0: give",
        ),
        ("plan --latncy-ms 5", "there is no flag --latncy-ms; did you mean --latency-ms?"),
        ("probe CartPole-v1 --xyz=3", "there is no flag --xyz; python -m async_wrappers probe --help lists them"),
        ("plan --latencies-ms 5 --workers 2", "--workers is not for a table, got 2: leave it out"),
        ("plan --networks --envs 2", "--envs is not for a table, got 2: leave it out"),
        ("plan --latencies-ms 5 --picture a.png", "--picture is not for a table of latencies, got a.png: leave it out"),
        ("workers --latencies-ms 5", "the command 'workers' is 'plan --latencies-ms' now"),
        ("networks", "the command 'networks' is 'plan --networks' now"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        run(*words.split())
    assert raised.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("python -m async_wrappers") and error.count("\n") == 1 and message in error


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--latency-ms", "5", "--seconds", "9"),
        ("probe", "CartPole-v1", "--episodes", "1", "--max-frames", "5"),
        ("doctor", "--seconds", "0.1"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_what_ends_while_json_is_written_leaves_the_older_file(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "found.json"
    file.write_text("older")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemExit):
        run(*words, "--json", str(file))
    assert file.read_text() == "older"
    assert [each.name for each in tmp_path.iterdir()] == ["found.json"]


@pytest.mark.usefixtures("quick")
def test_a_missing_matplotlib_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit):
        run("plan", "--latency-ms", "5", "--seconds", "9", "--picture", "plan.png")
    assert "pip install 'async-wrappers[plot]'" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_a_model_is_planned_as_a_model_also_where_it_could_be_called() -> None:
    class Callable_(Constant):
        def __call__(self, observation: Any) -> int:
            return 0

    found = plan(Callable_(0.120), seconds=10)
    assert found.enough is not None and found.enough.workers == 8


@pytest.mark.usefixtures("quick")
def test_a_notebook_shows_a_table_of_the_forecasts() -> None:
    found = plan(LogNormal(0.120, 0.2), seconds=10)
    before, table, after = ElementTree.fromstring(f"<div>{found._repr_html_()}</div>")
    rows = [[cell.text or "" for cell in row] for row in table[1]]
    assert [row[0] for row in rows] == [each.rule for each in (*found.rules, found.enough) if each is not None]
    lines = str(found).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("rule "))
    assert [" ".join(row).split() for row in rows] == [line.split() for line in lines[first + 1 :][: len(rows)]]
    assert len(table[0][0]) == len(rows[0])
    assert (before.text or "").splitlines() == lines[: first - 1]
    assert (after.text or "").splitlines() == lines[first + len(rows) + 2 :]
