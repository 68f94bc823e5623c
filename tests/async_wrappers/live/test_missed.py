"""Frames without a fresh action: held, ramped down, answered by a function, and what ends a run."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, RampDown, RealtimeDelay, VectorRealtimeDelay
from async_wrappers.latency import Uniform
from async_wrappers.testing.staggers import MS, Played
from async_wrappers.wrappers.default_action import make_default_action
from tests.worlds.fake_transport import Stage
from tests.worlds.recording_env import NOOP, RecordingEnv

JOINTS = Box(np.array([-1.0, 0.5], np.float32), np.array([2.0, 3.0], np.float32), dtype=np.float32)
SPEED = Box(-1.0, 1.0, (1,), np.float32)


class Robot(RecordingEnv):
    """Two joints, whose rest is not at zero."""

    noop_action = np.array([0.0, 1.0], np.float32)

    def __init__(self) -> None:
        super().__init__(action_space=JOINTS)


def test_a_ramp_is_worked_by_hand() -> None:
    ramp = make_default_action(RampDown(4, hold=2), Robot())
    last = np.array([2.0, 3.0], np.float32)
    sent = [ramp(None, last, missed).tolist() for missed in range(1, 9)]
    assert sent == [[2, 3], [2, 3], [1.5, 2.5], [1, 2], [0.5, 1.5], [0, 1], [0, 1], [0, 1]]
    assert ramp(None, None, 3).tolist() == [0, 1]  # before the first action
    assert {action.dtype for action in (ramp(None, last, 1), ramp(None, last, 4), ramp(None, last, 9))} == {
        JOINTS.dtype
    }
    ramp(None, last, 1)[:] = 9  # an environment may write into what it receives
    ramp(None, last, 9)[:] = 9
    assert ramp(None, last, 1).tolist() == [2, 3] and ramp(None, last, 9).tolist() == [0, 1]


@settings(max_examples=50, deadline=None, database=None)
@given(
    frames=st.integers(1, 50),
    hold=st.integers(0, 10),
    missed=st.integers(1, 80),
    share=st.lists(st.floats(0, 1, width=32), min_size=2, max_size=2),
)
def test_a_ramp_stays_within_the_bounds_and_never_turns_back(
    frames: int, hold: int, missed: int, share: list[float]
) -> None:
    ramp = make_default_action(RampDown(frames, hold), Robot())
    last = (JOINTS.low + np.array(share, np.float32) * (JOINTS.high - JOINTS.low)).clip(JOINTS.low, JOINTS.high)
    now, then = ramp(None, last, missed), ramp(None, last, missed + 1)
    assert JOINTS.contains(now)
    rest = Robot.noop_action
    assert (np.abs(then - rest) <= np.abs(now - rest) + 1e-6).all()


def test_all_that_delays_ramps_down_alike() -> None:
    """An inference of 5 frames: 5 default frames before the first action, then 4 between two."""
    expected = [0, 0, 0, 0, 0, *[1, 0.75, 0.5, 0.25, 0] * 3]
    constant = RealtimeDelay(RecordingEnv(action_space=SPEED), delay=5, noops=4, default_action=RampDown(4))
    latency = RealtimeDelay(
        RecordingEnv(action_space=SPEED), latency=0.005, fps=1000, default_action=RampDown(4), stagger="none"
    )
    for env in (constant, latency):
        env.reset(seed=0)
        for _ in range(3):
            env.step(np.ones(1, np.float32))
        assert [float(action[0]) for action in env.unwrapped.actions[:20]] == expected  # type: ignore[attr-defined]
    vector = SyncVectorEnv([lambda: RecordingEnv(action_space=SPEED) for _ in range(2)])
    delayed = VectorRealtimeDelay(vector, delay=5, noops=4, default_action=RampDown(4))
    delayed.reset(seed=0)
    for _ in range(3):
        delayed.step(np.array([[1.0], [-1.0]], np.float32))
    for env, sign in zip(vector.envs, (1, -1), strict=True):
        assert [sign * float(action[0]) for action in env.unwrapped.actions[:20]] == expected  # type: ignore[attr-defined]
    played = RecordingEnv(action_space=SPEED)
    AsyncRunner(
        lambda: played,
        lambda: lambda observation: np.ones(1),
        1,
        1000,
        "none",
        backend="virtual",
        latency=0.005,
        default_action=RampDown(4),
    ).run(frames=20)
    assert [float(action[0]) for action in played.actions] == expected
    stage = Stage([5 * MS], 1, env={"action_space": SPEED}, act=lambda o, d: np.ones(1), default_action=RampDown(4))
    stage.play(frames=20)
    assert [float(action[0]) for action in stage.env.actions] == expected


def test_a_vector_counts_the_frames_of_each_sub_environment() -> None:
    vector = SyncVectorEnv([lambda: RecordingEnv(9, action_space=SPEED), lambda: RecordingEnv(action_space=SPEED)])
    asked: list[tuple[Any, int]] = []

    def reflex(observation: Any, last_action: Any, missed: int) -> Any:
        asked.append((last_action is None, missed))
        return np.zeros(1, np.float32)

    delayed = VectorRealtimeDelay(vector, delay=3, noops=1, default_action=reflex)
    delayed.reset(seed=0)
    for _ in range(8):
        delayed.step(np.ones((2, 1), np.float32))
    assert all(missed == 1 for first, missed in asked if not first)
    assert [missed for first, missed in asked if first][:6] == [1, 1, 2, 2, 3, 3]
    assert [missed for first, missed in asked if first][6:9] == [1, 2, 3]  # of the one whose episode is its second


def test_a_function_that_takes_missed_is_told_the_frames_in_a_row_and_others_are_called_as_before() -> None:
    def counting(observation: Any, last_action: Any, missed: int) -> int:
        return missed % 5

    env = RealtimeDelay(RecordingEnv(), delay=3, noops=2, default_action=counting)
    env.reset(seed=0)
    env.step(0)
    env.step(0)
    assert env.unwrapped.actions == [1, 2, 3, 0, 1, 2, 0, 1, 2]  # type: ignore[attr-defined]
    env = RealtimeDelay(RecordingEnv(), delay=3, noops=2, default_action=lambda observation, last=None, other=3: other)
    env.reset(seed=0)
    env.step(0)
    assert env.unwrapped.actions == [3, 3, 3, 0, 3, 3]  # type: ignore[attr-defined]


@pytest.mark.parametrize("space", [Discrete(3), Box(0, 9, (1,), np.int64), Box(0.5, 1.0, (1,), np.float32)])
def test_a_ramp_needs_real_numbers_and_a_place_to_end(space: gym.Space[Any]) -> None:
    with pytest.raises(ValueError, match=r"^default_action=RampDown\(frames=5, hold=0\) needs actions of a Box"):
        RealtimeDelay(RecordingEnv(action_space=space), delay=2, default_action=RampDown(5))


# The end of a run.


def test_a_run_ends_with_the_reason_after_so_many_frames_without_an_action() -> None:
    env = RecordingEnv()
    terms: dict[str, Any] = {"backend": "virtual", "latency": Played([3 * MS, 3 * MS, 20 * MS]), "default_action": 4}
    terms |= {"stop_after_missed": 6}
    runner = AsyncRunner(lambda: env, lambda: lambda observation: 1, 1, 1000, "none", **terms)
    report = runner.run(frames=100)
    assert env.actions == [4, 4, 4, 1, 4, 4, 1, *[4] * 6]
    assert report.frames["total"] == 13
    assert report.stopped == "no action for 6 frames in a row (stop_after_missed=6)"
    assert report.to_dict()["stopped"] == report.stopped
    assert f"stopped    {report.stopped}" in str(report).splitlines()


def test_frames_are_counted_anew_in_each_episode_and_an_end_comes_first() -> None:
    terms: dict[str, Any] = {"backend": "virtual", "latency": 0.005, "stop_after_missed": 6, "default_action": 4}
    runner = AsyncRunner(lambda: RecordingEnv(5), lambda: lambda observation: 1, 1, 1000, **terms)
    report = runner.run(episodes=3)
    assert (report.stopped, report.frames["total"], report.frames["default"]) == (None, 15, 15)


@pytest.mark.parametrize(
    ("given", "delay"),
    [
        ({"playout": 9}, 9),
        ({"latency": 0.007}, 7),
        ({"latency": 0.0065, "stagger": "none"}, 7),
        ({"latency": Uniform(0.006, 0.02), "stagger": "expected_time", "workers": 3}, 7),
    ],
)
def test_an_end_that_would_come_before_the_first_action_is_refused_with_both_numbers(
    given: dict[str, Any], delay: int
) -> None:
    terms: dict[str, Any] = {"backend": "virtual", "latency": 0.001, "workers": 1, "default_action": 4, **given}

    def play(most: int) -> Any:
        runner = AsyncRunner(lambda: RecordingEnv(30), lambda: lambda _: 1, fps=1000, stop_after_missed=most, **terms)
        return runner.run(episodes=1)

    for most in (delay, 1):
        named = f"the delay of {delay} frames before an episode's first action, got {most}"
        with pytest.raises(ValueError, match=f"^stop_after_missed must be > {named}: the run would end before it$"):
            play(most)
    assert play(40).stopped is None


def test_an_end_before_the_first_action_is_warned_of_where_the_playout_is_measured() -> None:
    stage = Stage([9 * MS], 1, "tickets", stop_after_missed=6, calibration_time=0.1)
    with pytest.warns(RuntimeWarning, match="stop_after_missed must be > the delay of 9 frames .* got 6"):
        assert stage.play(frames=50).reason == "no action for 6 frames in a row (stop_after_missed=6)"


def test_on_frame_is_told_how_many_frames_were_missed() -> None:
    missed: list[int] = []
    runner = AsyncRunner(
        RecordingEnv, lambda: lambda observation: 1, 1, 1000, "none", backend="virtual", latency=0.003, default_action=4
    )
    runner.run(frames=8, on_frame=lambda status: missed.append(status.missed))
    assert missed == [0, 1, 2, 3, 0, 1, 2, 0]


def test_a_real_loop_ends_too() -> None:
    stage = Stage([2 * MS, 30 * MS], 1, stop_after_missed=5)
    record = stage.play(frames=50)
    assert record.report().stopped == "no action for 5 frames in a row (stop_after_missed=5)"
    assert [action for _, action in stage.env.steps] == [NOOP, NOOP, 1, *[NOOP] * 5]
