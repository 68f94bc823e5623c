"""Tests of the committed prefix: what is told is what happens, and what must be known is told."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import SyncVectorEnv
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from async_wrappers import CommittedPrefix, LimitAction, Limits, RealtimeDelay, TemporalEnsemble
from async_wrappers.schedule.stagger import Tickets
from async_wrappers.testing.staggers import MS, Played
from async_wrappers.wrappers.chunk import Chunk
from tests.worlds.ones_env import OnesEnv
from tests.worlds.recording_env import FRAME, MEANINGS, RecordingEnv, mixed
from tests.worlds.schedule_cases import CASES, Case, cases

SETTINGS = settings(max_examples=CASES // 4, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def chunk(observation: Any, length: int) -> Any:
    numbers = [*observation["observation"].tolist(), *observation["committed_prefix"].astype(int).ravel().tolist()]
    return np.array([mixed(*numbers, i) % len(MEANINGS) for i in range(length)])


def told(env: CommittedPrefix, length: int, chunk: Any = chunk) -> list[tuple[int, int, Any]]:
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


def assert_true(recorder: RecordingEnv, decisions: list[Any]) -> None:
    """Each row that is known is of the action which that frame received, and all others are zero but for the mask."""
    actions = recorder.actions
    for start, effect, rows in decisions:
        assert set(rows[:, -1].tolist()) <= {0, 1}
        assert not rows[rows[:, -1] == 1, :-1].any()
        for frame in range(start, min(effect, start + len(rows), len(actions))):
            *row, unknown = rows[frame - start].tolist()
            action = actions[frame]
            received = np.eye(len(MEANINGS))[action] if isinstance(action, int | np.integer) else np.float32(action)
            assert unknown or row == received.tolist()


@SETTINGS
@given(delay=st.integers(0, 8), noops=st.integers(0, 8), more=st.integers(0, 3), frames=st.integers(1, 40))
def test_with_constants_all_is_told_up_to_the_first_landing_of_a_decision_in_flight(
    delay: int, noops: int, more: int, frames: int
) -> None:
    recorder, length = RecordingEnv(frames), delay + noops + 1 + more
    env = CommittedPrefix(RealtimeDelay(recorder, delay, noops, Chunk(length)), max(delay, 1))
    decisions = told(env, length)
    assert_true(recorder, decisions)
    starts = [start for start, _, _ in decisions]
    for start, effect, rows in decisions:
        lands = [each + delay for each in range(0, start, noops + 1) if each + delay > start]
        unknown = [frame < delay or frame >= min(lands, default=effect) for frame in range(start, effect)]
        assert [row[-1] == 1 for row in rows[:delay].tolist()] == unknown
    assert starts == sorted(starts)


@SETTINGS
@given(case=cases(shortest=1), length=st.integers(1, 20), shown=st.integers(1, 14))
def test_with_random_latencies_what_is_told_is_what_happens(case: Case, length: int, shown: int) -> None:
    recorder = RecordingEnv(case.episodes[0])
    terms: dict[str, Any] = {"latency": Played(case.latencies), "workers": case.workers, "fps": case.fps}
    terms |= {"stagger": case.stagger(), "default_action": Chunk(length, "noop")}
    env = RealtimeDelay(recorder, **terms)
    assert_true(recorder, told(CommittedPrefix(env, shown), length))


NUMBERS = Box(-1, 1, (2,), np.float32)
LIMITS = st.builds(
    Limits,
    high=st.sampled_from([None, 0.5]),
    rate=st.sampled_from([0.1, 0.7]),
    jerk=st.sampled_from([None, 0.05]),
    unit=st.just("per frame"),
    soft_start=st.sampled_from([0.0, 0.1]),
)


def moved(observation: Any, length: int) -> Any:
    """Return a chunk of real actions that depends on all that is shown; a third of them are zeros."""
    numbers = [*observation["observation"].tolist(), *(1000 * observation["committed_prefix"]).astype(int).ravel()]
    hashed = np.array([mixed(*map(int, numbers), i) for i in range(length)])
    return np.float32([hashed % 3 / 2, hashed % 3 * -0.25]).T


@SETTINGS
@given(
    case=cases(shortest=1),
    length=st.integers(1, 16),
    shown=st.integers(1, 14),
    after=st.sampled_from(["noop", "repeat", np.float32([0.7, 0.7])]),
    mean=st.sampled_from([None, "average", TemporalEnsemble(0.3)]),
    limits=st.lists(LIMITS, max_size=2),
    max_age=st.none() | st.integers(9, 14),
)
def test_each_number_that_is_told_is_received_whatever_acts_in_between(
    case: Case, length: int, shown: int, after: Any, mean: Any, limits: list[Limits], max_age: int | None
) -> None:
    inside: Any = RecordingEnv(case.episodes, action_space=NUMBERS)
    recorder = inside
    for each in limits:
        inside = LimitAction(inside, each, 50)
    try:
        terms: dict[str, Any] = {"latency": Played(case.latencies), "workers": case.workers, "fps": case.fps}
        terms |= {"stagger": case.stagger(), "default_action": Chunk(length, after, mean), "max_age": max_age}
        env = RealtimeDelay(inside, **terms)
        prefix = CommittedPrefix(env, shown)
        for _ in case.episodes:
            assert_true(recorder, told(prefix, length, moved))
    except ValueError as error:
        assert "max_age must" in str(error)  # which refuses all actions
        reject()


def test_zeros_that_are_sent_are_told_from_frames_that_nothing_covers() -> None:
    env = CommittedPrefix(RealtimeDelay(RecordingEnv(action_space=NUMBERS), 2, 1, Chunk(4, after=np.float32([1, 1]))))
    assert env.reset()[0]["committed_prefix"].tolist() == [[0, 0, 1], [0, 0, 1]]
    assert env.step(np.zeros((4, 2), np.float32))[0]["committed_prefix"].tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_mean_is_not_known_while_an_older_chunk_that_lands_first_is_computed() -> None:
    """At 100 frames a second the first inference ends after frame 2 has begun, the second before it."""
    terms: dict[str, Any] = {"latency": Played([21 * MS, MS, 25 * MS]), "workers": 2, "fps": 100}
    terms |= {"stagger": Tickets(3, slot=1), "default_action": Chunk(5, mean="average")}
    env = RealtimeDelay(RecordingEnv(action_space=NUMBERS), **terms)
    prefix = CommittedPrefix(env, 3)
    starts = {}
    observation, info = prefix.reset(seed=0)
    for _ in range(3):
        starts[info["realtime"]["start"]] = observation["committed_prefix"]
        observation, *_, info = prefix.step(np.full((5, 2), 0.5, np.float32))
    assert starts[2][:, -1].tolist() == [1, 1, 1]  # frame 4 receives the mean of both


def test_with_limits_the_numbers_are_those_that_will_be_sent_up_to_the_first_that_is_not_known() -> None:
    recorder = RecordingEnv(action_space=NUMBERS)
    inside = LimitAction(recorder, Limits(rate=0.125, unit="per frame"), 50)
    env = CommittedPrefix(RealtimeDelay(inside, 2, 1, Chunk(4, after=0 * NUMBERS.high)), 4)
    env.reset()
    rows = env.step(np.ones((4, 2), np.float32))[0]["committed_prefix"]
    np.testing.assert_allclose(rows[:, 0], [0.125, 0.25, 0, 0], atol=1e-6)
    assert rows[:, -1].tolist() == [0, 0, 1, 1]
    rows = env.step(np.ones((4, 2), np.float32))[0]["committed_prefix"]
    np.testing.assert_array_equal(rows[:2, :2], recorder.actions[4:6])
    np.testing.assert_allclose(rows[:2, 0], [0.375, 0.5], atol=1e-6)


def test_in_a_vector_each_is_told_its_own() -> None:
    def make(number: int) -> CommittedPrefix:
        inside = LimitAction(
            RecordingEnv(action_space=NUMBERS), Limits(rate=0.125 * (number + 1), unit="per frame"), 50
        )
        return CommittedPrefix(RealtimeDelay(inside, 3, 2, "chunk"))

    envs = SyncVectorEnv([partial(make, number) for number in range(2)])
    envs.reset(seed=0)
    for chunks in np.random.default_rng(0).uniform(-1, 1, (6, 2, 6, 2)).astype(np.float32):
        told = envs.step(chunks)[0]["committed_prefix"]
        for env, rows in zip(envs.envs, told, strict=True):
            np.testing.assert_array_equal(rows, [[*action, 0] for action in env.unwrapped.actions[-3:]])


def test_one_worker_that_decides_every_nine_frames_is_told_both_frames_of_its_delay() -> None:
    recorder = RecordingEnv(30, action_space=Discrete(100))
    env = CommittedPrefix(RealtimeDelay(recorder, 2, 8, Chunk(11, after=0)))
    observation, _ = env.reset()
    assert np.flatnonzero(observation["committed_prefix"]).tolist() == [100, 201]  # neither is known
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
