"""What frames receive, a new decision's action, a going chunk's or the default action, is counted alike everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, Chunk, RealtimeDelay, load_recording
from async_wrappers.live import Decision
from async_wrappers.live.loop.loop import episode_seed
from async_wrappers.testing.staggers import Played
from tests.async_wrappers.live.test_chunk import SETTINGS
from tests.worlds.recording_env import FRAME, RecordingEnv
from tests.worlds.schedule_cases import CASES, Case, cases

NUMBERS = Box(0, 1_000, (1,), np.float64)
THREE = ("fresh", "chunk", "default")


def act(observation: Any, length: int | None) -> Any:
    """Return an action, or a chunk of actions, that names the frame which was read; 0 is the default action."""
    start = np.array([float(observation[FRAME]) + 1])
    return start if length is None else np.tile(start, (length, 1))


class Naming:
    def __init__(self, length: int | None) -> None:
        self._length = length

    def load_weights(self, weights: Any, version: int) -> None:
        pass

    def act(self, observation: Any, decision: Decision) -> Any:
        return act(observation, self._length)


def by_hand(episodes: Sequence[Sequence[Any]]) -> Counter[str]:
    """Count the frames of each kind by the actions that an environment received."""
    found: Counter[str] = Counter()
    for actions in episodes:
        known = set[float]()
        for (action,) in actions:
            found["default" if action == 0 else "chunk" if action in known else "fresh"] += 1
            known.add(action)
    return found


def counted(frames: Any) -> Counter[str]:
    return Counter({name: frames[name] for name in THREE if name in frames})


def simulated(env: Any, episodes: int, length: int | None) -> Counter[str]:
    """Count the frames of each kind by ``info["realtime"]``."""
    found: Counter[str] = Counter()
    for episode in range(episodes):
        observation, info = env.reset(seed=episode_seed(0, 0, episode))
        over, before = False, info["realtime"]["frame"]
        found["default"] += before  # a reset plays the frames until the first decision that is not overtaken
        while not over:
            observation, _, terminated, truncated, info = env.step(act(observation, length))
            over, told = terminated or truncated, info["realtime"]
            going, default = told.get("chunk_frames", 0), told["default_frames"]
            found += Counter({"chunk": going, "default": default, "fresh": told["frame"] - before - going - default})
            before = told["frame"]
    return found


@settings(SETTINGS, max_examples=CASES // 6)
@given(case=cases(shortest=1), length=st.one_of(st.none(), st.integers(1, 16)))
def test_the_three_shares_sum_to_one_and_are_those_of_frames_simulation_and_recording(
    case: Case, length: int | None
) -> None:
    default = np.zeros(1) if length is None else Chunk(length, after=np.zeros(1))
    given_: dict[str, Any] = {"fps": case.fps, "default_action": default}
    envs = [RecordingEnv(case.episodes, action_space=NUMBERS) for _ in range(2)]
    with TemporaryDirectory() as directory:
        place = Path(directory, "run")
        terms = {**given_, "latency": Played(case.latencies), "stagger": case.stagger(), "record": place}
        with AsyncRunner(lambda: envs[0], lambda: Naming(length), case.workers, backend="virtual", **terms) as runner:
            report = runner.run(episodes=len(case.episodes))
        recorded = load_recording(place).frames()
    expected = by_hand(envs[0].episodes)
    assert counted(report.frames) == counted(recorded) == expected
    assert sum(expected.values()) == report.frames["total"] == recorded["total"] == sum(case.episodes)
    assert sum(report.shares.values()) == pytest.approx(1)
    assert ("chunk" in report.shares) == (length is not None)
    latency = {"latency": Played(case.latencies), "workers": case.workers, "stagger": case.stagger()}
    delayed = RealtimeDelay(envs[1], **latency, **given_)
    assert simulated(delayed, len(case.episodes), length) == expected


def test_a_chunk_that_has_ended_when_it_lands_leaves_its_frame_to_the_default_action() -> None:
    env = RecordingEnv(12, action_space=NUMBERS)
    terms: dict[str, Any] = {"latency": 0.08, "fps": 50, "default_action": Chunk(3, after=np.zeros(1))}
    report = AsyncRunner(lambda: env, lambda: Naming(3), 1, backend="virtual", **terms).run(episodes=1)
    assert report.delay_frames["mean"] == 4
    assert (counted(report.frames), report.shares["default"]) == (Counter(default=12), 1.0)
    assert report.frames["ended"] == 2 and ", 2 after their chunk's end" in str(report)


def test_frames_of_a_pause_are_in_none_of_the_three_shares(tmp_path: Path) -> None:
    def operator(status: Any) -> None:
        if status.frame == 5:
            status.pause()
        if status.frame == 8:
            status.resume()

    env = RecordingEnv(20, action_space=NUMBERS)
    terms: dict[str, Any] = {"default_action": Chunk(4, after=np.zeros(1)), "slot": 3, "playout": 1, "record": tmp_path}
    with AsyncRunner(lambda: env, lambda: Naming(4), 1, 50, backend="virtual", latency=0.01, **terms) as runner:
        report = runner.run(episodes=1, on_frame=operator)
    counts = {"fresh": 6, "chunk": 9, "default": 2, "paused": 3}
    assert {name: report.frames[name] for name in counts} == counts
    assert load_recording(tmp_path).frames() == {"total": 20, **counts, "limited": 0, "missed_deadlines": 0}
    assert report.shares == {"fresh": 6 / 17, "chunk": 9 / 17, "default": 2 / 17}
    assert "20 at 50.00 fps: 35.3% new decision, 52.9% going chunk, 11.8% default action (2 frames), 3 paused" in str(
        report
    )
