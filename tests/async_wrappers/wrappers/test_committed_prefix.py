"""Tests of the committed prefix: what is told is what happens, and what must be known is told."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import CommittedPrefix, RealtimeDelay
from async_wrappers.testing.played import Played
from async_wrappers.wrappers.chunk import Chunk
from tests.worlds.ones_env import OnesEnv
from tests.worlds.recording_env import FRAME, MEANINGS, RecordingEnv, mixed
from tests.worlds.schedule_cases import CASES, Case, cases

SETTINGS = settings(max_examples=CASES // 4, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def chunk(observation: Any, length: int) -> Any:
    numbers = [*observation["observation"].tolist(), *observation["committed_prefix"].astype(int).ravel().tolist()]
    return np.array([mixed(*numbers, i) % len(MEANINGS) for i in range(length)])


def told(env: CommittedPrefix, length: int) -> list[tuple[int, int, Any]]:
    """Play an episode; return (start, effect, rows) of each decision that was applied, in order."""
    observation, info = env.reset(seed=0)
    decisions, over = [], False
    while not over:
        start, rows = info["realtime"]["start"], observation["committed_prefix"]
        assert env.observation_space.contains(observation)
        observation, _, terminated, truncated, info = env.step(chunk(observation, length))
        over = terminated or truncated
        if info["realtime"]["applied"]:
            decisions.append((start, start + info["realtime"]["delay"], rows))
    return decisions


def assert_true(recorder: RecordingEnv, decisions: list[Any], after: int) -> None:
    """Each row that is known is of the action which that frame received; where it is empty the base default acted."""
    for start, effect, rows in decisions:
        for frame in range(start, min(effect, start + len(rows), len(recorder.actions))):
            row = rows[frame - start].tolist()
            action = recorder.actions[frame]
            if row[-1] == 0:
                assert np.flatnonzero(row).tolist() == ([action] if any(row) else [])
                assert any(row) or action == after


@SETTINGS
@given(delay=st.integers(0, 8), noops=st.integers(0, 8), more=st.integers(0, 3), frames=st.integers(1, 40))
def test_with_constants_all_is_told_up_to_the_first_landing_of_a_decision_in_flight(
    delay: int, noops: int, more: int, frames: int
) -> None:
    recorder, length = RecordingEnv(frames), delay + noops + 1 + more
    env = CommittedPrefix(RealtimeDelay(recorder, delay, noops, Chunk(length)), max(delay, 1))
    decisions = told(env, length)
    assert_true(recorder, decisions, after=2)
    starts = [start for start, _, _ in decisions]
    for start, effect, rows in decisions:
        in_flight = [each + delay for each in range(0, start, noops + 1) if each + delay > start]
        pending = [frame >= min(in_flight) for frame in range(start, effect)] if in_flight else [False] * delay
        assert [row[-1] == 1 for row in rows[:delay].tolist()] == pending
    assert starts == sorted(starts)


@SETTINGS
@given(case=cases(shortest=1), length=st.integers(1, 20), shown=st.integers(1, 14))
def test_with_random_latencies_what_is_told_is_what_happens(case: Case, length: int, shown: int) -> None:
    recorder = RecordingEnv(case.episodes[0])
    env = RealtimeDelay(
        recorder,
        latency=Played(case.latencies),
        workers=case.workers,
        fps=case.fps,
        stagger=case.stagger(),
        default_action=Chunk(length, "noop"),
    )
    assert_true(recorder, told(CommittedPrefix(env, shown), length), after=2)


def test_one_worker_that_decides_every_nine_frames_is_told_both_frames_of_its_delay() -> None:
    recorder = RecordingEnv(30, action_space=Discrete(100))
    env = CommittedPrefix(RealtimeDelay(recorder, 2, 8, Chunk(11, after=0)))
    observation, _ = env.reset()
    assert not observation["committed_prefix"].any()
    observation, *_ = env.step(np.arange(50, 61))
    assert [np.flatnonzero(row).tolist() for row in observation["committed_prefix"]] == [[59], [60]]
    assert recorder.actions == [0, 0, *range(52, 61)]


def test_the_length_is_the_delay_and_the_flat_form_appends_rows() -> None:
    env = CommittedPrefix(RealtimeDelay(OnesEnv(np.float32), 3, 4, Chunk(8, after=0)))
    assert isinstance(env.observation_space, Dict)
    actions = env.env.env.action_space.n
    assert env.observation_space["committed_prefix"].shape == (3, actions + 1)
    flat = CommittedPrefix(RealtimeDelay(OnesEnv(np.float32), 3, 4, Chunk(8, after=0)), flat=True)
    observations, chunked = [env.reset()[0], flat.reset()[0]], np.ones(8, int)
    observations[0], observations[1] = env.step(chunked)[0], flat.step(chunked)[0]
    rows = observations[0]["committed_prefix"]
    np.testing.assert_array_equal(observations[1], [*observations[0]["observation"], *rows.ravel()])
    assert flat.observation_space.contains(observations[1])
    assert rows.any()


def test_a_one_of_whole_numbers_is_the_types_largest() -> None:
    env = CommittedPrefix(RealtimeDelay(OnesEnv(np.uint8), 3, 4, Chunk(8, after=0)), flat=True)
    env.reset()
    observation = env.step(np.ones(8, int))[0]
    assert observation.dtype == np.uint8
    assert set(observation[2:].tolist()) == {0, 255}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: CommittedPrefix(RecordingEnv()), "^CommittedPrefix must be around a RealtimeDelay, got "),
        (lambda: CommittedPrefix(RealtimeDelay(RecordingEnv(), 2)), "^CommittedPrefix needs chunks inside: give "),
        (
            lambda: CommittedPrefix(RealtimeDelay(RecordingEnv(), 0, 2, "chunk")),
            "^length must be given, .* None$",
        ),
        (lambda: CommittedPrefix(RealtimeDelay(RecordingEnv(), 2, 2, "chunk"), 0), "^length must be .* got 0$"),
    ],
)
def test_a_prefix_that_cannot_be_told_is_refused_in_a_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize("arguments", [{"delay": 3, "noops": 1}, {"latency": 0.07, "workers": 3, "fps": 50}])
def test_a_copy_is_told_the_same(arguments: dict[str, Any]) -> None:
    space = Box(-1, 1, (1,), np.float32)
    env = CommittedPrefix(RealtimeDelay(RecordingEnv(60, action_space=space), default_action=Chunk(9), **arguments), 5)
    env.reset(seed=0)
    chunks = np.random.default_rng(0).uniform(-1, 1, (12, 9, 1)).astype(np.float32)
    for each in chunks[:4]:
        env.step(each)
    twin = deepcopy(env)
    for each in chunks[4:]:
        one, other = env.step(each)[0], twin.step(each)[0]
        np.testing.assert_array_equal(one["committed_prefix"], other["committed_prefix"])
        assert one["observation"][FRAME] == other["observation"][FRAME]
