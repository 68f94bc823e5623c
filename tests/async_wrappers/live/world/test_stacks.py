"""Stacks live: what a decision reads is that of turn-based play, and depends on nothing that is not yet known."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from hypothesis import example, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, RealtimeDelay
from async_wrappers.live.world.stacks import Stacks
from async_wrappers.testing.staggers import MS, ChangesLater, Played
from tests.worlds.recording_env import FRAME, RecordingEnv, mixed

K = 4
FPS = 100  # frames of 10 ms


class Reads:
    """Acts by the whole stack, and keeps what it has read, by episode and start."""

    def __init__(self, read: dict[tuple[int, int], Any]) -> None:
        self._read = read

    def act(self, stack: Any, decision: Any) -> int:
        self._read[decision.episode, decision.start] = stack.copy()
        return act(stack)


def act(stack: Any) -> int:
    return mixed(*stack.ravel().tolist()) % 5


def live(latency: Any, workers: int, lengths: list[int], **arguments: Any) -> tuple[RecordingEnv, dict[Any, Any], Any]:
    read: dict[tuple[int, int], Any] = {}
    env = RecordingEnv(lengths)
    timing = {"latency": latency, "backend": "virtual", **arguments}
    report = AsyncRunner(lambda: env, lambda: Reads(read), workers, FPS, stack_size=K, **timing).run(
        episodes=len(lengths)
    )
    return env, read, report


def in_turn(env: Any, episodes: int) -> dict[tuple[int, int], Any]:
    """Play, and return the stack of the last K decisions by episode and start."""
    read = {}
    for episode in range(episodes):
        stack = deque([np.zeros(3, np.int64)] * K, maxlen=K)
        observation, info = env.reset(seed=episode)  # which restarts estimates, as live
        while True:
            stack.append(observation.copy())
            read[episode, info["realtime"]["start"]] = np.stack(stack)
            observation, _, terminated, truncated, info = env.step(act(np.stack(stack)))
            if terminated or truncated:
                break
    return read


@pytest.mark.parametrize(
    ("milliseconds", "workers", "timing"),
    [
        (25, 3, {}),
        (25, 2, {"slot": 2}),
        (40, 3, {"slot": "even"}),
        (37, 2, {"stagger": "none"}),
        (31, 3, {"stagger": "expected_time"}),
        (25, 1, {"stagger": "sequential"}),
        (0, 1, {}),
    ],
)
def test_a_worker_reads_the_stack_of_turn_based_play(milliseconds: int, workers: int, timing: dict[str, Any]) -> None:
    lengths = [40, 3, 25]
    latency = milliseconds / 1000
    env, read, report = live(latency, workers, lengths, **timing)
    turn_env = RecordingEnv(lengths)
    expected = in_turn(RealtimeDelay(turn_env, latency=latency, workers=workers, fps=FPS, **timing), len(lengths))
    assert env.episodes == turn_env.episodes
    applied = {(span.episode, span.start) for span in report.spans if span.effect is not None}
    assert len(applied) > 10
    for key in applied:
        np.testing.assert_array_equal(read[key], expected[key], err_msg=str(key))


@example(latencies=[20 * MS + 1], same=0, others=[20 * MS + 1, 0], workers=2, stagger="none")
@settings(max_examples=60, deadline=None, database=None)
@given(
    latencies=st.lists(st.integers(0, 80 * MS), min_size=1, max_size=20),
    same=st.integers(0, 12),
    others=st.lists(st.integers(0, 80 * MS), min_size=1, max_size=20),
    workers=st.integers(1, 5),
    stagger=st.sampled_from(["none", "tickets", "expected_time"]),
)
def test_no_stack_depends_on_a_latency_that_is_not_yet_known(
    latencies: list[int], same: int, others: list[int], workers: int, stagger: str
) -> None:
    arguments: dict[str, Any] = {"stagger": stagger}
    if stagger == "tickets":
        arguments["playout"] = 4
    latency = ChangesLater(latencies, same, others)
    before = live(latency, workers, [30], **arguments)
    latency.changed = True
    after = live(latency, workers, [30], **arguments)
    changed = [span.ended for run in (before, after) for span in run[2].spans[same:]]
    known = min(changed, default=10**18)  # a later inference may end first, beside the first that changed
    for key in before[1].keys() & after[1].keys():
        if key[1] * 10 * MS < known:
            stacks = before[1][key], after[1][key]
            np.testing.assert_array_equal(stacks[0][:, FRAME], stacks[1][:, FRAME])


def test_each_row_is_of_a_decision_that_was_applied_or_is_in_flight() -> None:
    slow_then_quick = Played([90 * MS, 20 * MS, 20 * MS, 20 * MS])  # overtaken by the second worker's
    _, read, report = live(slow_then_quick, 2, [60], stagger="none")
    applied = [span for span in report.spans if span.effect is not None]
    dropped = {span.start for span in report.spans if span.effect is None and span.ended < 500 * MS}
    assert dropped - {span.start for span in applied}
    for (_, start), stack in read.items():
        rows = [int(frame) for frame in stack[:, FRAME] if frame]
        for frame in rows[:-1]:
            spans = [span for span in report.spans if span.start == frame]
            begins = start * 10 * MS
            assert any(
                (span.effect is not None and span.effect < start)  # it was applied
                or (
                    span.began < begins  # it is in flight, or waits, and nothing newer has been applied
                    and not any(other.start > frame and (other.effect or 10**9) < start for other in applied)
                )
                for span in spans
            ), (start, frame)


def test_a_pause_begins_stacks_anew() -> None:
    def halts(status: Any) -> None:
        if status.frame == 10:
            status.pause()
        if status.frame == 14:
            status.resume()

    read: dict[tuple[int, int], Any] = {}
    runner = AsyncRunner(
        lambda: RecordingEnv(30), lambda: Reads(read), 2, FPS, stack_size=K, latency=0.02, backend="virtual"
    )
    runner.run(episodes=1, on_frame=halts)
    assert read[0, 9][:, FRAME].tolist() == [6, 7, 8, 9]
    assert 10 not in {start for _, start in read}
    assert read[0, 14][:, FRAME].tolist() == [0, 0, 0, 14]
    assert read[0, 15][:, FRAME].tolist() == [0, 0, 14, 15]


def test_stacks_of_dicts_tuples_and_numbers_have_zeros_before_the_episode() -> None:
    space = Dict({"a": Box(-1, 1, (2,)), "b": Tuple((Discrete(5), Box(0, 9, (), np.int64)))})
    stacks = Stacks(space, 3)
    one = {"a": np.ones(2, np.float32), "b": (4, np.array(7))}
    first = stacks.join(one)
    stacks.started(0, first)
    second = stacks.join({"a": np.zeros(2, np.float32), "b": (2, np.array(1))}, [0])
    assert first["b"][0].tolist() == [0, 0, 4]
    assert second["b"][0].tolist() == [0, 4, 2]
    assert second["b"][1].tolist() == [0, 7, 1]
    assert second["a"].tolist() == [[0, 0], [1, 1], [0, 0]]
    assert stacks.space.contains(second)


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_stacks_are_played_on_a_real_clock(backend: str) -> None:
    def checks() -> Any:
        def policy(stack: Any) -> int:
            frames = stack[:, FRAME]
            rising = all(one < other for one, other in pairwise(frames) if one)
            return 1 if stack.shape == (K, 3) and rising and (frames[-1] < 8 or frames[0] > 0) else 0

        return policy

    env = RecordingEnv(60)
    runner = AsyncRunner(lambda: env, checks, 1, 50, stack_size=K, backend=backend, default_action="noop")
    report = runner.run(episodes=1)
    assert report.frames["fresh"] > 20
    if backend == "thread":
        assert 0 not in env.actions


def test_the_spaces_of_a_policy_are_those_of_stacks() -> None:
    env = RecordingEnv()
    seen, acts = AsyncRunner.policy_spaces(env.observation_space, env.action_space, stack_size=3)
    assert seen.shape == (3, 3)
    assert acts == env.action_space


def test_the_stacks_of_a_life_begin_afresh() -> None:
    class Lives(RecordingEnv):
        def step(self, action: Any) -> Any:
            observation, reward, _, truncated, info = super().step(action)
            over = observation[FRAME] == 10
            return observation, reward, over, truncated, {**info, "game_over": False} if over else info

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if seed is None:  # the game goes on
                return self.show()
            return super().reset(seed=seed)

    read: dict[tuple[int, int], Any] = {}
    AsyncRunner(Lives, lambda: Reads(read), 1, FPS, stack_size=K, backend="virtual", latency=1 / FPS).run(frames=16)
    frames = {start: stack[:, FRAME].tolist() for (_, start), stack in read.items()}
    assert [frames[start] for start in (9, 10, 11, 12)] == [
        [6, 7, 8, 9],
        [0, 0, 0, 10],
        [0, 0, 10, 11],
        [0, 10, 11, 12],
    ]
