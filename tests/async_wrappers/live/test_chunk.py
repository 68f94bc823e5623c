"""Chunks live: on the virtual clock the frames, transitions and prefixes are those of `RealtimeDelay`, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, CommittedPrefix, LimitAction, Limits, RealtimeDelay, TemporalEnsemble
from async_wrappers.live import Decision
from async_wrappers.live.loop.loop import episode_seed
from async_wrappers.schedule.simulated import SimulatedSchedule
from async_wrappers.schedule.stagger import ExpectedTime, MaxTime, NoStagger, Tickets
from async_wrappers.testing.staggers import MS, Played
from async_wrappers.wrappers.chunk import Chunk
from tests.worlds.learners import Writing
from tests.worlds.recording_env import FRAME, MEANINGS, Pressing, RecordingEnv, mixed
from tests.worlds.schedule_cases import CASES, Case, cases

# An inference that takes no time acts on the frame that it read, and may overtake what was committed for that frame.
# There is none on a real clock: hence `shortest`.

SETTINGS = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
NUMBERS = Box(-1, 1, (2,), np.float32)


class Chunking:
    """A policy whose chunk is a hash of all that it is shown."""

    def __init__(self, length: int, space: Any) -> None:
        self._length, self._space = length, space
        self.seen: list[Any] = []

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        pass

    def act(self, observation: Any, decision: Decision) -> Any:
        self.seen.append((decision.episode, decision.start, deepcopy(observation)))
        if isinstance(observation, dict):
            rows = observation["committed_prefix"]
            numbers = [*observation["observation"].tolist(), *(1000 * rows).astype(int).ravel().tolist()]
        else:
            numbers = (1000 * observation).astype(int).tolist()
        hashed = [mixed(*numbers, i) for i in range(self._length * 2)]
        if isinstance(self._space, Discrete):
            return np.array(hashed[: self._length]) % len(MEANINGS)
        return ((np.array(hashed, np.float32) % 201 - 100) / 100).astype(np.float32).reshape(self._length, 2)


def terms(case: Case, length: int, **chunks: Any) -> dict[str, Any]:
    return {
        "latency": Played(case.latencies),
        "workers": case.workers,
        "fps": case.fps,
        "stagger": case.stagger(),
        "default_action": Chunk(length, **chunks),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other)) and np.shape(one) == np.shape(other)


def by_the_wrapper(env: Any, case: Case, policy: Chunking) -> tuple[list[Any], list[Any]]:
    """Return (episode, start, observation) of each decision, and the transitions of those applied."""
    decided, transitions = [], []
    for episode in range(len(case.episodes)):
        observation, info = env.reset(seed=episode_seed(0, 0, episode))
        over = False
        while not over:
            start = info["realtime"]["start"]
            decided.append((episode, start, deepcopy(observation)))
            action = policy.act(observation, Decision(episode, start, 0, False))
            following, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
            realtime = info["realtime"]
            if realtime["applied"]:
                transitions.append(
                    {
                        "observation": observation,
                        "action": action,
                        "reward": reward,
                        "interval": realtime["interval"],
                        "terminal": terminated,
                        "next_observation": following,
                        "executed": realtime["executed"],
                    }
                )
            else:
                decided.pop()
            observation = following
    return decided, transitions


def assert_alike(
    case: Case, space: Any, length: int, prefix: int | None, flat: bool, limits: Limits | None = None, **chunks: Any
) -> None:
    kind = Discrete(len(MEANINGS)) if space is None else space
    recorders = [RecordingEnv(case.episodes, rewards=(1.0, 2.0, 4.0, 8.0), action_space=kind) for _ in range(2)]
    for recorder in recorders:
        recorder.get_action_meanings = lambda: list(MEANINGS)  # type: ignore[method-assign]
    policy, learns = Chunking(length, kind), chunks.get("mean") is None
    learner = Writing()
    learning: dict[str, Any] = {"make_learner": lambda: learner, "learner_latency": 0.01} if learns else {}
    given: dict[str, Any] = {"backend": "virtual", "committed_prefix": prefix, "flat_prefix": flat, "limits": limits}
    given |= {"learns_from": "drawn"}
    runner: Any = AsyncRunner(
        lambda: recorders[0], lambda: policy, **given, **learning, **terms(case, length, **chunks)
    )
    runner.run(episodes=len(case.episodes))
    inside: Any = recorders[1] if limits is None else LimitAction(recorders[1], limits, case.fps)
    env: Any = RealtimeDelay(inside, **terms(case, length, **chunks))
    if prefix is not None:
        env = CommittedPrefix(env, prefix, flat)
    decided, transitions = by_the_wrapper(env, case, Chunking(length, kind))
    np.testing.assert_equal(recorders[0].episodes, recorders[1].episodes)
    seen = {(episode, start): observation for episode, start, observation in reversed(policy.seen)}
    for episode, start, observation in decided:
        assert same(seen[episode, start], observation)
    if learns:
        with TemporaryDirectory() as directory:
            runner.save(directory)  # for which all is observed
        assert len(learner.seen) == len(transitions)
        for live, wrapped in zip(learner.seen, transitions, strict=True):
            assert all(same(live[name], value) for name, value in wrapped.items())


@settings(SETTINGS, max_examples=CASES // 8)
@given(
    case=cases(shortest=1),
    length=st.integers(1, 16),
    after=st.sampled_from(["noop", "repeat"]),
    prefix=st.one_of(st.none(), st.integers(1, 14)),
)
def test_discrete_chunks_executed_entries_and_prefixes_are_those_of_the_wrapper(
    case: Case, length: int, after: str, prefix: int | None
) -> None:
    assert_alike(case, None, length, prefix, flat=False, after=after)


@settings(SETTINGS, max_examples=CASES // 8)
@given(
    case=cases(shortest=1),
    length=st.integers(1, 16),
    prefix=st.one_of(st.none(), st.integers(1, 14)),
    mean=st.sampled_from([None, "weighted_average", TemporalEnsemble(0.3)]),
    limits=st.sampled_from([None, Limits(high=0.5), Limits(rate=0.25, jerk=0.125, unit="per frame")]),
)
def test_real_chunks_means_prefixes_and_limits_are_those_of_the_wrapper(
    case: Case, length: int, prefix: int | None, mean: Any, limits: Limits | None
) -> None:
    assert_alike(case, NUMBERS, length, prefix, flat=False, mean=mean, limits=limits)


def test_where_several_workers_read_a_frame_the_first_that_ends_rules_the_others_out() -> None:
    case = Case([11 * MS], 3, 60, MaxTime, [6])
    assert_alike(case, NUMBERS, 3, 4, flat=False)


def test_limits_of_the_runner_and_of_the_environment_are_foreseen() -> None:
    recorder = RecordingEnv(40, action_space=NUMBERS)
    policy = Chunking(9, NUMBERS)
    terms: dict[str, Any] = {"backend": "virtual", "latency": 0.05, "default_action": Chunk(9), "committed_prefix": 3}
    terms |= {"limits": Limits(high=0.5)}
    AsyncRunner(
        lambda: LimitAction(recorder, Limits(rate=0.125, unit="per frame"), 50), lambda: policy, 1, 50, **terms
    ).run(episodes=1)
    known = [
        (start, seen["committed_prefix"]) for _, start, seen in policy.seen if not seen["committed_prefix"][:, -1].any()
    ]
    assert len(known) > 8
    for start, rows in known:
        np.testing.assert_array_equal(rows[: 40 - start, :2], recorder.actions[start : start + 3])


class Recording(Writing):
    """A learner that writes down what it observes: starts, intervals and executed entries."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def observe(self, transition: Mapping[str, Any]) -> None:
        executed = np.flatnonzero(transition["executed"]).tolist()
        shown = transition["observation"]
        seen = [int(shown["observation"][FRAME]), transition["interval"], executed, transition["action"].tolist()]
        known = (shown["committed_prefix"][:, -1] == 0).tolist()
        with self._file.open("a") as file:
            print(json.dumps([*seen, known]), file=file)


def test_in_processes_each_transition_says_which_entries_its_frames_received(tmp_path: Path) -> None:
    class Noted(Pressing):
        def close(self) -> None:
            (tmp_path / "actions").write_text(json.dumps([int(action) for action in self.episodes[0]]))

    terms: dict[str, Any] = {"backend": "process", "latency": 0.01}
    terms |= {"make_learner": lambda: Recording(tmp_path / "seen"), "default_action": Chunk(12, after=0)}
    terms |= {"committed_prefix": 3}
    runner = AsyncRunner(lambda: Noted(40), lambda: Chunking(12, Discrete(len(MEANINGS))), 2, 100, **terms)
    with runner:
        runner.run(episodes=1)
        runner.save(tmp_path)
    actions = json.loads((tmp_path / "actions").read_text())
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert len(seen) > 3
    executed = {}
    for start, interval, entries, chunk, _ in seen:
        assert len(entries) == min(interval, 12) or entries[-1] == 11
        executed |= {start + entry: chunk[entry] for entry in entries}
    assert executed == {frame: actions[frame] for frame in executed}
    assert all(actions[frame] == 0 for frame in range(40) if frame not in executed)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"default_action": "chunk"},
            r"^default_action='chunk' .* delays vary: write default_action=Chunk\(length\)",
        ),
        ({"committed_prefix": 4}, r"^committed_prefix=4 needs default_action=Chunk\(length\), got 'noop'$"),
        ({"flat_prefix": True}, "^flat_prefix=True needs committed_prefix, got None$"),
        (
            {
                "default_action": Chunk(4),
                "committed_prefix": 4,
                "features": Box(0, 1, (2,)),
            },
            "^committed_prefix=4 needs actions that are known before they are due, .* leave one of the two out$",
        ),
        (
            {"default_action": Chunk(4, mean="average"), "make_learner": Writing},
            "^a Chunk with mean='average' is for acting alone, .* learners=1$",
        ),
        (
            {"default_action": Chunk(4, mean="average")},
            r"^Chunk.mean needs a Box of real actions, got 'average' for Discrete\(5\)",
        ),
    ],
)
def test_a_wrong_chunk_is_refused_in_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    latencies = {"learner_latency": 0.1} if "make_learner" in arguments else {}
    with pytest.raises(ValueError, match=sentence):
        AsyncRunner(RecordingEnv, lambda: None, 1, 60, backend="virtual", latency=0.1, **latencies, **arguments)


def test_a_wrapper_that_tells_the_prefix_of_another_delay_is_refused() -> None:
    def make_env() -> Any:
        return CommittedPrefix(RealtimeDelay(RecordingEnv(), 2, 2, "chunk"))

    with pytest.raises(ValueError, match=r"^make_env must not use CommittedPrefix .* committed_prefix$"):
        AsyncRunner(make_env, lambda: lambda observation: 0, 1, 60, backend="virtual", latency=0.1)


class Steady(Played):
    """Latencies whose mean, from which strategies are prepared, is that of others."""

    mean = 0.04


STRATEGIES = {"none": NoStagger, "max_time": MaxTime, "expected_time": ExpectedTime, "tickets": lambda: Tickets(4, 1)}


@settings(SETTINGS, max_examples=CASES // 8)
@given(st.integers(0, 2**32), st.sampled_from(sorted(STRATEGIES)), st.integers(1, 4), st.integers(0, 20))
def test_nothing_that_is_told_depends_on_an_inference_that_goes_on(
    seed: int, name: str, workers: int, after: int
) -> None:
    """Change all that has not ended when a frame begins: what the policy is told with that frame stays the same."""
    latencies, others = np.random.default_rng(seed).integers(1, 200 * MS, (2, 400)).tolist()
    schedule = SimulatedSchedule(Steady(latencies), workers, 25, STRATEGIES[name]())
    log, frames = schedule.keep_log(), schedule.frames(0)
    for _ in range(40):
        next(frames)
    # One by a worker that was free before: then it begins whatever the others come to.
    begins = schedule.clock.begin
    start = next((each.start for each in log if each.start >= after and each.started == begins(each.start)), 0)
    begin = begins(start)
    changed = [
        latencies[n] if each.finished <= begin else max(1, begin - each.started + 1) + others[n]
        for n, each in enumerate(log)
    ]
    told = []
    for played in (latencies, [*changed, *others]):
        policy = Chunking(9, Discrete(len(MEANINGS)))
        terms: dict[str, Any] = {"backend": "virtual", "latency": Steady(played), "default_action": Chunk(9)}
        terms |= {"committed_prefix": 8}
        AsyncRunner(
            lambda: RecordingEnv(40), lambda policy=policy: policy, workers, 25, STRATEGIES[name](), **terms
        ).run(episodes=1)
        told.append(next(observation for _, frame, observation in policy.seen if frame == start))
    assert same(*told)


def test_a_decision_before_a_pause_is_not_pending_after_it() -> None:
    read: dict[int, list[list[float]]] = {}

    class Policy:
        def act(self, observation: Any, decision: Any) -> Any:
            read[decision.start] = observation["committed_prefix"].tolist()
            return np.full((12, 2), 0.5, np.float32)

    def on_frame(status: Any) -> None:
        if status.frame == 20:
            status.pause()
        if status.frame == 21:
            status.resume()

    chunks = {"default_action": Chunk(12), "committed_prefix": 4, "playout": 8}
    AsyncRunner(
        lambda: RecordingEnv(action_space=NUMBERS), Policy, 3, 50, backend="virtual", latency=0.15, **chunks
    ).run(frames=40, on_frame=on_frame)
    after, beginning = sorted(start for start in read if start > 20), sorted(read)
    # As at the beginning of an episode, nothing is known to land.
    assert [read[start] for start in after[:4]] == [read[start] for start in beginning[:4]]


def test_a_policy_with_memory_reads_the_chunk_that_was_sent() -> None:
    read: list[Any] = []

    class Policy:
        def encode(self, observation: Any, decision: Any) -> Any:
            return np.zeros(1, np.float32)

        def release(self, features: Any, memory: Any, decision: Any) -> Any:
            read.append(memory.previous_action)
            return SimpleNamespace(action=np.full((6, 2), 0.75, np.float32), state=0)

    terms: dict[str, Any] = {"backend": "virtual", "latency": 0.05, "default_action": Chunk(6)}
    terms |= {"features": Box(-1, 1, (1,), np.float32), "limits": Limits(high=0.5)}
    AsyncRunner(lambda: RecordingEnv(action_space=NUMBERS), Policy, 2, 50, **terms).run(frames=20)
    assert read[0] is None
    assert all(chunk.shape == (6, 2) for chunk in read[1:])
    sent = read[-1][:, 0].tolist()  # three frames old when it lands, and the next lands after three more
    assert 0.5 in sent
    assert set(sent) == {0.5, 0.75}
