"""Pause and resume: the environment goes on with the safe action, nobody infers, and nothing is learnt across."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner
from async_wrappers.live import Decision, Memory
from async_wrappers.live.report.report import Measurements
from async_wrappers.testing.staggers import MS, Played
from tests.worlds.fake_transport import BEGIN, Stage
from tests.worlds.learners import Writing
from tests.worlds.recording_env import FRAME, NOOP, RecordingEnv
from tests.worlds.remembering import FEATURES, Remembering

CASES = int(os.environ.get("HYPOTHESIS_CASES", "30"))
SETTINGS = settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
LENGTH = 40
SAFE, AGENT = 4, 1
POWERS = [2.0**frame for frame in range(LENGTH)]  # a sum says of which frames it is


def switch(status: Any, pauses: list[tuple[int, int]]) -> None:
    """Pause on the first frame of each pair, and resume on the second."""
    if any(status.frame == begin for begin, _ in pauses):
        status.pause()
    if any(status.frame == end for _, end in pauses):
        status.resume()


class Starting:
    """A policy that writes down on which frames its decisions start."""

    def __init__(self, starts: list[tuple[int, int]]) -> None:
        self._starts = starts

    def load_weights(self, weights: Any, version: int) -> None:
        """There are none."""

    def act(self, observation: Any, decision: Decision) -> int:
        self._starts.append((decision.episode, decision.start))
        return AGENT


@st.composite
def runs(draw: st.DrawFn) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Draw a run at 1,000 frames a second, and pauses of it."""
    cuts = sorted(draw(st.sets(st.integers(0, 2 * LENGTH), max_size=6)))
    stagger = draw(st.sampled_from(["none", "tickets", "sequential", "max_time", "expected_time"]))
    run = {
        "workers": draw(st.integers(1, 5)),
        "latency": Played(draw(st.lists(st.integers(0, 9 * MS), min_size=1, max_size=6))),
        "stagger": stagger,
        "max_age": draw(st.sampled_from([None, 9])),
    }
    return run, list(zip(cuts[::2], [*cuts[1::2], 3 * LENGTH], strict=False))


@SETTINGS
@given(drawn=runs())
def test_a_pause_is_a_gap_for_everybody_but_the_environment(
    drawn: tuple[dict[str, Any], list[tuple[int, int]]],
) -> None:
    run, pauses = drawn
    env = RecordingEnv(LENGTH, rewards=POWERS)
    starts: list[tuple[int, int]] = []
    seen: list[Any] = []
    terms: dict[str, Any] = {"fps": 1000, "backend": "virtual", "make_learner": lambda: Writing(seen)}
    terms |= {"learner_latency": 0.001, "pause_action": SAFE, "default_action": "repeat"}
    runner = AsyncRunner(lambda: env, lambda: Starting(starts), **terms, **run)
    report = runner.run(episodes=2, on_frame=partial(switch, pauses=pauses))
    paused = [any(begin <= frame < end for begin, end in pauses) for frame in range(2 * LENGTH)]
    actions = env.episodes[0] + env.episodes[1]
    assert [action == SAFE for action in actions] == paused
    assert report.frames["paused"] == sum(paused)
    assert report.frames["fresh"] + report.frames["default"] + sum(paused) == 2 * LENGTH
    assert not any(paused[LENGTH * episode + start] for episode, start in starts)
    for span in report.spans:
        if span.effect is not None:  # no pause lies between a decision's start and its effect
            frames = range(LENGTH * span.episode + span.start, LENGTH * span.episode + span.effect + 1)
            assert not any(paused[frame] for frame in frames)
    # What the learners see: sums of rewards of neighbouring frames, none of which were paused.
    learnt: list[int] = []
    for transition in seen:
        frames = [frame for frame in range(LENGTH) if int(transition["reward"]) >> frame & 1]
        assert frames == list(range(frames[0], frames[-1] + 1))
        learnt.append(len(frames))
        assert transition["interval"] <= len(frames)
        episode, read = transition["observation"][:2].tolist()
        before = LENGTH * episode
        assert not any(paused[before + frame] for frame in range(read, frames[-1] + 1))
        ends = transition["terminal"] or transition["truncated"]
        assert ends == (frames[-1] == LENGTH - 1 or paused[before + frames[-1] + 1])
        assert transition["terminal"] == (frames[-1] == LENGTH - 1)
        assert transition["next_observation"][FRAME] <= frames[-1] + 1
    assert sum(learnt) <= 2 * LENGTH - sum(paused)
    assert sum(episode.score for episode in report.episodes) == 2 * sum(POWERS)


def test_without_a_pause_a_learner_sees_every_frame() -> None:
    """The check of the test above can fail: all rewards are in transitions, but for the two not yet handed on."""
    seen: list[Any] = []
    terms: dict[str, Any] = {"backend": "virtual", "latency": 0.002, "make_learner": lambda: Writing(seen)}
    terms |= {"learner_latency": 0.001}
    AsyncRunner(lambda: RecordingEnv(LENGTH, rewards=POWERS), lambda: Starting([]), 2, 1000, **terms).run(episodes=1)
    assert sum(transition["reward"] for transition in seen) == sum(POWERS[:-2])


def play(pauses: list[tuple[int, int]], frames: int = 30, length: int | None = None, **terms: Any) -> Any:
    """Return the environment and the report of a run on the virtual clock: 4 workers of 4 frames."""
    env = RecordingEnv(length)
    arguments = {"latency": 0.004, "pause_action": SAFE, **terms}
    runner = AsyncRunner(lambda: env, lambda: Starting([]), 4, 1000, backend="virtual", **arguments)
    return env, runner.run(frames=frames, on_frame=partial(switch, pauses=pauses))


def test_after_a_pause_a_run_begins_as_an_episode_does_by_hand() -> None:
    env, report = play([(10, 15)], default_action="repeat")
    # Four frames to the first action; before it the no-op, although the last action before the pause was another.
    assert env.actions == [NOOP] * 4 + [AGENT] * 6 + [SAFE] * 5 + [NOOP] * 4 + [AGENT] * 11
    assert report.frames["dropped_actions"] == 4  # in flight as the pause began
    assert report.interval_ms["max"] == 1  # an interval across the pause is none
    assert report.pauses == ((10 * MS, 15 * MS),)
    assert report.actions_per_frame == 17 / 25
    assert "5 paused" in str(report)


@pytest.mark.parametrize("stagger", ["max_time", "none", "tickets"])
def test_after_a_pause_the_strategy_spreads_the_workers_as_at_the_beginning(stagger: str) -> None:
    _, report = play([(15, 23)], 60, stagger=stagger)
    effects = [span.effect for span in report.spans if span.effect is not None]
    after = [effect - 23 for effect in effects if effect >= 23]
    assert [effect for effect in after if effect < 15] == [effect for effect in effects if effect < 15]


def test_what_a_strategy_has_learnt_of_latencies_it_keeps_over_a_pause() -> None:
    _, report = play([(15, 23)], 60, stagger="expected_time")
    effects = [span.effect for span in report.spans if span.effect is not None]
    assert [effect for effect in effects if effect >= 23] == list(range(27, 60))  # an action on each frame


def test_the_default_action_is_the_safe_one_if_none_is_given_and_counts_the_frames_of_the_pause() -> None:
    asked: list[tuple[int, Any]] = []

    def reflex(observation: Any, last_action: Any, missed: int) -> int:
        asked.append((missed, last_action))
        return SAFE

    play([(10, 13)], 20, pause_action=None, default_action=reflex)
    before, in_it, after = asked[:4], asked[4:7], asked[7:]
    assert before == after == [(missed, None) for missed in (1, 2, 3, 4)]
    assert in_it == [(missed, AGENT) for missed in (1, 2, 3)]


def test_on_the_virtual_clock_the_next_episode_begins_in_the_pause() -> None:
    env, report = play([(6, 14)], 30, length=10)
    assert [episode.count(SAFE) for episode in env.episodes] == [4, 4, 0]
    assert report.pauses == ((6 * MS, 10 * MS), (10 * MS, 14 * MS))


def test_the_frames_of_a_pause_miss_no_deadline_and_end_no_run() -> None:
    env, report = play([(10, 25)], 40, stop_after_missed=8)
    assert report.stopped is None
    assert len(env.actions) == 40


# On a clock of the test.


def stage(length: int | None, pause: int, resume: int) -> tuple[Stage, Measurements]:
    """Play 20 frames at 1,000 fps; the pause begins and ends so many ms after the first frame."""
    first = 2 * MS  # both workers infer once before
    times = ((pause, True), (resume, False))
    happens = [(first + at * MS - 1, lambda stage, on=on: stage.loop.pause(on)) for at, on in times]
    made = Stage(length=length, happens=happens, pause_action=SAFE)
    return made, made.play(frames=20)


def test_on_a_clock_frames_of_a_pause_keep_their_deadlines_and_nobody_infers() -> None:
    made, record = stage(None, 6, 12)
    assert [time - made.begin for time, _ in made.env.steps] == [frame * MS for frame in range(20)]
    assert [frame for frame, (_, action) in enumerate(made.env.steps) if action == SAFE] == list(range(6, 12))
    assert not [time for time, *_ in made.starts() if 6 * MS <= time < 12 * MS]
    assert record.pauses == [[(6, 12)]]
    assert record.report().fps == 1000


def test_on_a_clock_nothing_is_reset_in_a_pause() -> None:
    made, record = stage(8, 6, 30)
    second = made.env.resets[1][0] - made.begin
    assert 30 * MS - 1 <= second < 60 * MS
    assert [episode.frames for episode in record.episodes] == [8, 8, 4]
    assert SAFE not in made.env.episodes[1]
    assert record.report().fps == pytest.approx(1000, rel=0.01)  # the wait for the end of the pause is no frame


def test_a_run_that_is_stopped_while_it_waits_for_the_end_of_a_pause_resets_nothing() -> None:
    asked: list[int] = []

    def stops() -> bool:
        asked.append(0)
        return len(asked) > 40

    made = Stage(length=5, happens=[(3 * MS, lambda stage: stage.loop.pause(True))], stops=stops)
    record = made.play(frames=20)
    assert record.stopped
    assert len(made.env.resets) == 1
    assert made.transport.time > BEGIN


# Live.


class Pace:
    """A policy that takes 20 ms."""

    def act(self, observation: Any, decision: Decision) -> int:
        time.sleep(0.02)
        return AGENT


class Kept(RecordingEnv):
    """Keeps the actions of its episodes as what it hands on from phase to phase, and a byte for each in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("ab", buffering=0)

    def step(self, action: Any) -> Any:
        self._file.write(b".")
        return super().step(action)

    @property
    def phase_state(self) -> Any:
        return [list(map(int, actions)) for actions in self.episodes]


@pytest.mark.filterwarnings("ignore:workers=")
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_another_thread_pauses_a_run_and_lets_it_go_on(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "frames"
    with AsyncRunner(
        partial(Kept, path), Pace, 2, 50, backend=backend, latency=0.02, default_action=NOOP, pause_action=SAFE
    ) as runner:
        runner.start()
        runner.pause()  # before the first frame: nothing is reset until it is over

        def operate() -> None:
            time.sleep(0.1)
            runner.resume()
            await_frames(50)
            runner.pause()
            await_frames(path.stat().st_size + 30)
            runner.stop()

        def await_frames(count: int) -> None:
            while path.stat().st_size < count:
                time.sleep(0.01)

        operator = threading.Thread(target=operate)
        operator.start()
        report = runner.run(frames=10_000, on_frame=resumes_after(10))
        operator.join()
    (actions,) = report.phase_state
    assert report.frames["paused"] == actions.count(SAFE) >= 10
    begin = actions.index(SAFE)
    assert actions[begin : begin + actions.count(SAFE)] == [SAFE] * actions.count(SAFE)
    assert AGENT in actions[:begin]


def resumes_after(frames: int) -> Any:
    """Return an `on_frame` that lets a pause go on for so many frames."""
    paused: list[int] = []

    def on_frame(status: Any) -> None:
        if status.paused:
            paused.append(status.frame)
            if len(paused) > frames:
                status.resume()

    return on_frame


def test_a_pause_without_a_run_is_refused_and_a_resume_does_nothing() -> None:
    runner = AsyncRunner(RecordingEnv, Pace, 1, 50, backend="thread")
    with pytest.raises(RuntimeError, match=r"^pause\(\) needs a run that goes on"):
        runner.pause()
    runner.resume()


def test_a_backend_that_cannot_pause_says_so() -> None:
    class Bare:
        def __init__(self, spec: Any) -> None:
            """Nothing runs."""

        def close(self) -> None:
            """Nothing is held."""

    with AsyncRunner(RecordingEnv, Pace, 1, 50, backend=Bare) as runner:
        runner.start()
        with pytest.raises(RuntimeError, match=r"needs a backend with a method pause\(paused\), got <.*Bare"):
            runner.pause()


def test_after_a_pause_memory_starts_afresh() -> None:
    class Noting(Remembering):
        def release(self, features: Any, memory: Memory, decision: Decision) -> Any:
            firsts.append((decision.start, memory.first))
            return super().release(features, memory, decision)

    firsts: list[tuple[int, bool]] = []
    runner = AsyncRunner(
        lambda: RecordingEnv([LENGTH], [(True, False)]),
        Noting,
        2,
        1000,
        latency=0.002,
        backend="virtual",
        features=FEATURES,
    )
    runner.run(episodes=1, on_frame=partial(switch, pauses=[(10, 15)]))
    assert [start for start, first in firsts if first] == [0, 15]
    assert len(firsts) > 20
