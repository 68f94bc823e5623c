"""A fast path goes on with the last features: which frames it decides on, by what, in the simulation and live.

An action of these policies says what it was made of: the frame of the features, and the frame of the fresh observation.
"""

from __future__ import annotations

import runpy
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, Chunk, FreshObservation, LogNormal, NoAction, RealtimeDelay
from tests.worlds.landing import DEFAULT, ENDS, game
from tests.worlds.latency_models import FAST
from tests.worlds.recording_env import FRAME, RecordingEnv
from tests.worlds.remembering import around_the_wrapper

ROOT = Path(__file__).parents[3]
FEATURES = Box(0, 1000, (1,), np.int64)
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=3)
Log = list[list[int]]


class Halves:
    """Its slow half answers the frame that it sees, or nothing on some; its state is its action."""

    def __init__(self, age: int | None = 0, refuses: frozenset[int] = frozenset()) -> None:
        self.fast_age, self._refuses = age, refuses

    def encode(self, observation: Any, decision: Any) -> Any:
        assert observation[FRAME] == decision.start
        if decision.start in self._refuses:
            raise NoAction("the server is away")
        return observation[FRAME : FRAME + 1]

    def release(self, features: Any, memory: Any, decision: Any) -> Any:
        assert features[0] == decision.start
        action = int(100 * features[0] + memory.fresh[FRAME])
        assert memory.first or memory.state == memory.previous_action
        return SimpleNamespace(action=action, state=action)


def live(lengths: list[int], age: int, longest: int | None, refuses: Any = frozenset(), **schedule: Any) -> Any:
    """Return the log of actions of each episode on the virtual clock, and the report."""
    world = game(lengths)
    runner = AsyncRunner(
        lambda: world,
        lambda: Halves(age, refuses),
        backend="virtual",
        features=FEATURES,
        default_action=DEFAULT,
        max_features_age=longest,
        **schedule,
    )
    with runner:
        report = runner.run(episodes=3)
    return world.episodes[-3:], report


def told(log: Log) -> list[list[tuple[int, int] | None]]:
    """Return the frames that each action was made of."""
    return [[None if action == DEFAULT else divmod(action, 100) for action in of_one] for of_one in log]


def by_hand(plain: Log, longest: int, age: int) -> list[list[tuple[int, int] | None]]:
    """Return what each frame's action is made of, from the actions that land where no features are held."""
    expected = []
    for of_one in told(plain):
        frames: list[tuple[int, int] | None] = []
        newest: int | None = None
        for frame, landed in enumerate(of_one):
            newest = newest if landed is None else landed[0]
            young = newest is not None and frame - newest <= longest
            frames.append((newest, max(0, frame - age)) if young and newest is not None else landed)
        expected.append(frames)
    return expected


@settings(FAST, max_examples=20)
@given(
    mean=st.floats(0.005, 0.2),
    cv=st.floats(0.1, 1.0),
    workers=st.integers(1, 4),
    stagger=st.sampled_from(["tickets", "none", "sequential", "max_time"]),
    lengths=LENGTHS,
    age=st.integers(0, 1),
    more=st.integers(1, 12),
)
def test_the_simulation_and_the_virtual_clock_go_on_alike(
    mean: float, cv: float, workers: int, stagger: str, lengths: list[int], age: int, more: int
) -> None:
    schedule: dict[str, Any] = {"latency": LogNormal(mean=mean, cv=cv), "workers": workers, "fps": 60}
    schedule["stagger"] = stagger
    plain, without = live(lengths, age, None, **schedule)
    playout = RealtimeDelay(game(), **schedule, default_action=DEFAULT).playout
    longest = more + (playout or age)
    found, report = live(lengths, age, longest, **schedule)
    assert told(found) == by_hand(plain, longest, age)
    world = game(lengths)
    env = RealtimeDelay(world, **schedule, default_action=DEFAULT, max_features_age=longest)
    env.fresh_age = age
    around_the_wrapper(env, Halves(age), 3)
    assert world.episodes == found
    actions, before = (sum(each != DEFAULT for log in every for each in log) for every in (found, plain))
    assert report.frames["held"] == env.held == actions - before
    assert report.frames["fresh"] == actions and report.frames["default"] == sum(map(len, found)) - actions
    assert "held" not in without.frames and str(report.delay_frames) == str(without.delay_frames)


@settings(FAST, max_examples=20)
@given(
    delay=st.integers(0, 5),
    refuses=st.frozensets(st.integers(1, 40), max_size=30),
    lengths=st.lists(st.integers(6, 40), min_size=1, max_size=3),
    more=st.integers(1, 12),
)
@pytest.mark.filterwarnings("ignore:.*has no action:RuntimeWarning")
def test_it_goes_on_where_the_slow_half_gives_no_action(
    delay: int, refuses: frozenset[int], lengths: list[int], more: int
) -> None:
    longest, workers = delay + more, max(1, delay)
    schedule: dict[str, Any] = {"latency": delay / 60, "workers": workers, "fps": 60, "playout": delay}
    found, report = live(lengths, 0, longest, refuses, **schedule)
    expected = []
    for number in range(3):
        frames: list[tuple[int, int] | None] = []
        for frame in range(lengths[number % len(lengths)]):
            known = [start for start in range(frame - delay + 1) if start not in refuses]
            young = bool(known) and frame - known[-1] <= longest
            frames.append((known[-1], frame) if young else None)
        expected.append(frames)
    assert told(found) == expected
    on_time = sum(each is not None and each[1] - each[0] == delay for log in expected for each in log)
    assert report.frames["held"] == report.frames["fresh"] - on_time
    assert ("by held features" in str(report)) == (report.frames["held"] > 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 4), st.integers(0, 5), st.data(), LENGTHS)
def test_each_frame_between_two_decisions_is_one_of_its_own(
    delay: int, noops: int, data: st.DataObject, lengths: list[int]
) -> None:
    """The slow half is asked every few frames, and the fast path on each."""
    age, longest = data.draw(st.integers(0, delay)), delay + data.draw(st.integers(1, 8))
    plain, world = game(lengths), game(lengths)
    env = FreshObservation(RealtimeDelay(world, delay, noops, DEFAULT, max_features_age=longest), age)
    assert env.get_wrapper_attr("decision_interval") == (None if noops and delay + noops > longest else 1)
    for delayed in (RealtimeDelay(plain, delay, noops, DEFAULT), env.env):
        delayed.fresh_age = age
        around_the_wrapper(delayed, Halves(age), 3)
    assert told(world.episodes) == by_hand(plain.episodes, longest, age)


def test_rewards_intervals_and_observations_are_of_the_held_decisions() -> None:
    world = RecordingEnv(9, ENDS, rewards=[1.0, 2.0, 4.0, 8.0, 16.0])
    env = RealtimeDelay(world, 2, 3, 0, max_features_age=4)
    env.fresh_age = 1
    observation, info = env.reset()
    rows = []
    while True:
        before = observation.copy()
        observation[:] = -1  # a policy may write into what it was given
        observation, reward, terminated, truncated, info = env.step(3)
        realtime = info["realtime"]
        told = realtime["delay"], realtime["interval"], realtime["default_frames"], realtime["held"]
        rows.append((int(before[FRAME]), *told, reward, int(realtime["fresh_observation"][FRAME])))
        if terminated or truncated:
            break
    # It lands on frames 2 and 6; features are held on 3 and 4, 7 and 8, and are too old on 5. At the end the next
    # decision with features of its own, which began on frame 8, has been seen.
    assert realtime["start"] == observation[FRAME] == 8
    assert rows == [
        (0, 2, 1, 0, False, 7.0, 2),
        (0, 3, 1, 0, True, 8.0, 3),
        (0, 4, 2, 1, True, 17.0, 5),
        (4, 2, 1, 0, False, 2.0, 6),
        (4, 3, 1, 0, True, 4.0, 7),
        (4, 4, 1, 0, True, 8.0, 8),
    ]
    assert env.held == 4


@pytest.mark.filterwarnings("ignore:.*has no action:RuntimeWarning")
def test_nothing_is_held_over_a_pause() -> None:
    world = game([40])
    runner = AsyncRunner(
        lambda: world,
        lambda: Halves(0, frozenset(range(10, 40))),
        1,
        60,
        playout=0,
        latency=0.0,
        backend="virtual",
        features=FEATURES,
        default_action=DEFAULT,
        max_features_age=40,
    )

    counted = []

    def on_frame(status: Any) -> None:
        counted.append(status.actions)
        if status.frame in (20, 25):
            (status.pause if status.frame == 20 else status.resume)()

    with runner:
        report = runner.run(episodes=1, on_frame=on_frame)
    assert told(world.episodes[-1:]) == [[*((k, k) for k in range(10)), *((9, k) for k in range(10, 20)), *[None] * 20]]
    assert counted == [*range(21), *[20] * 19]
    assert report.frames["held"] == 10 and report.frames["paused"] == 5


def test_the_example_of_a_policy_of_ones_own_is_bound_in_gin_and_plays_as_the_simulation_does() -> None:
    gin.clear_config()  # a test before may have left it locked
    example = runpy.run_path(str(ROOT / "docs" / "examples" / "two_speeds" / "two_speeds.py"), run_name="two_speeds")
    try:
        report = example["main"]("AsyncRunner.seed = 3")
    finally:
        gin.clear_config()
    schedule: dict[str, Any] = {"latency": 0.06, "workers": 2, "fps": 50, "playout": 4}
    env = RealtimeDelay(gym.make("CartPole-v1"), **schedule, default_action="repeat", max_features_age=25)
    env.fresh_age = 0
    applied = around_the_wrapper(env, example["TwoSpeeds"](), 5, seed=3)
    assert [episode.score for episode in report.episodes] == [500.0] * 5
    assert (len(applied), env.held) == (report.frames["fresh"], report.frames["held"]) == (2480, 1240)


def test_what_cannot_be_held_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^max_features_age must be a whole number of frames >= 1, or None, got 0$"):
        RealtimeDelay(game(), 2, default_action=0, max_features_age=0)
    with pytest.raises(ValueError, match=r"^max_features_age must be > 2, the age in frames .* got 2$"):
        RealtimeDelay(game(), 2, default_action=0, max_features_age=2)
    with pytest.raises(ValueError, match=r"^max_features_age must be None where actions are chunks"):
        RealtimeDelay(game(), 1, 1, default_action=Chunk(4, after=0), max_features_age=9)
    with pytest.raises(ValueError, match=r"^max_features_age must be None where nothing shows a fast path the fresh"):
        RealtimeDelay(game(), 2, default_action=0, max_features_age=9).reset()
    terms: dict[str, Any] = {"features": FEATURES, "default_action": 0, "playout": 2, "latency": 0.01}

    def runner(**other: Any) -> AsyncRunner:
        return AsyncRunner(game, Halves, 1, 60, backend="virtual", **{**terms, "max_features_age": 9, **other})

    with pytest.raises(ValueError, match=r"^max_features_age must be > 2, the age in frames .* got 1$"):
        runner(max_features_age=1)
    with pytest.raises(ValueError, match=r"^max_features_age must be None where actions are chunks"):
        runner(default_action=Chunk(4, after=0))
    with pytest.raises(ValueError, match=r"^max_features_age=9 needs features, with which a fast path goes on"):
        runner(features=None)
    with pytest.raises(ValueError, match=r"^max_features_age must be None with a policy without a fast path"):
        AsyncRunner(game, lambda: Halves(None), 1, 60, backend="virtual", max_features_age=9, **terms).run(frames=1)
    with pytest.raises(ValueError, match=r"^max_features_age must be > 6, the age in frames .* got 5$"):
        runner(playout="p99", latency=0.1, max_features_age=5).run(frames=1)


class SlowHalves(Halves):
    """Its slow half takes six frames."""

    def encode(self, observation: Any, decision: Any) -> Any:
        time.sleep(0.1)
        return super().encode(observation, decision)


def test_a_measured_playout_under_which_nothing_is_held_is_warned_of() -> None:
    terms: dict[str, Any] = {"features": FEATURES, "default_action": 0, "calibration_time": 0.3, "backend": "thread"}
    with (
        pytest.warns(RuntimeWarning, match=r"max_features_age must be > \d+, the age in frames .* got 1"),
        AsyncRunner(game, SlowHalves, 1, 60, max_features_age=1, **terms) as runner,
    ):
        runner.run(frames=3)
