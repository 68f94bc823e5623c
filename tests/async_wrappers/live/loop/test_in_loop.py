"""``workers=0``: the policy in the loop plays as without delay, on both clocks, in processes and in the simulation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, Chunk, RealtimeDelay
from async_wrappers.live.loop.loop import episode_seed
from async_wrappers.live.report.report import TimingReport
from async_wrappers.live.world.environment import FrameStatus
from tests.worlds.learners import Counting
from tests.worlds.recording_env import FRAME, HISTORY, MEANINGS, NOOP, RecordingEnv, mixed
from tests.worlds.remembering import FEATURES, Remembering

FPS = 4000  # a test in real time takes milliseconds
LENGTHS = [17, 9, 30]
EXTRAS = Dict(count=Box(0, np.inf, (1,), np.float64))


def act(observation: Any) -> int:
    return mixed(*observation.tolist()) % len(MEANINGS)


def play(backend: str, make_policy: Any = lambda: act, **terms: Any) -> tuple[TimingReport, list[list[Any]]]:
    env = RecordingEnv(LENGTHS, rewards=[0.5, -1.0, 3.0])
    runner = AsyncRunner(lambda: env, make_policy, 0, FPS, backend=backend, seed=4, **terms)
    return runner.run(episodes=3), env.episodes


def simulated(policy: Any = act, **terms: Any) -> tuple[list[float], list[list[Any]]]:
    """Return returns and actions under `RealtimeDelay`."""
    recorder = RecordingEnv(LENGTHS, rewards=[0.5, -1.0, 3.0])
    env, returns = RealtimeDelay(recorder, **terms), []
    for episode in range(3):
        observation, _ = env.reset(seed=episode_seed(4, 0, episode))
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns, recorder.episodes


@pytest.mark.parametrize("backend", ["thread", "virtual"])
def test_a_policy_in_the_loop_plays_as_without_delay(backend: str) -> None:
    report, actions = play(backend)
    assert ([episode.score for episode in report.episodes], actions) == simulated(delay=0)
    assert (report.delay_frames["max"], report.actions_per_frame, report.workers["count"]) == (0, 1.0, 0)
    assert report.frames["default"] == report.frames["dropped_actions"] == report.frames["late_actions"] == 0
    assert all(span.effect == span.start for span in report.spans) and len(report.spans) == sum(LENGTHS)


def test_so_it_does_in_a_process() -> None:
    report = AsyncRunner(
        lambda: RecordingEnv(LENGTHS, rewards=[0.5, -1.0, 3.0]), lambda: act, workers=0, fps=FPS, seed=4
    )
    with report as runner:
        told = runner.run(episodes=3, on_frame=last_history)
        assert set(runner.pids) == {"the environment"} and runner.workers == 0
    assert [episode.score for episode in told.episodes] == simulated(delay=0)[0]
    report_virtual, _ = play("virtual")
    assert told.frames["fresh"] == report_virtual.frames["fresh"] == sum(LENGTHS)
    env = RecordingEnv(LENGTHS)
    histories = []
    for length in LENGTHS:
        observation, _ = env.reset()
        for _ in range(length):
            histories.append(int(observation[HISTORY]))
            observation = env.step(act(observation))[0]
    assert [note for _, note in told.notes] == histories  # the very actions


def last_history(status: FrameStatus) -> Any:
    return status._env.unwrapped._history


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(playout=st.integers(0, 4))
def test_a_playout_delays_it_as_the_simulation_does(playout: int) -> None:
    for backend in ("thread", "virtual"):
        report, actions = play(backend, playout=playout)
        assert actions == simulated(delay=playout)[1]
        assert report.delay_frames["mean"] == playout


def test_a_slot_lets_it_decide_on_every_third_frame() -> None:
    for backend in ("thread", "virtual"):
        report, actions = play(backend, slot=3, default_action="repeat")
        assert actions == simulated(delay=0, noops=2, default_action="repeat")[1]
        assert {span.start % 3 for span in report.spans} == {0}


def test_chunks_are_played_from_their_own_frame_on() -> None:
    def chunk(observation: Any) -> Any:
        return [act(observation + k) for k in range(4)]

    for backend in ("thread", "virtual"):
        _, actions = play(backend, lambda: chunk, slot=3, default_action=Chunk(4))
        assert actions == simulated(chunk, delay=0, noops=2, default_action=Chunk(4))[1]


def test_stacks_and_a_pause_are_those_of_the_virtual_clock() -> None:
    def operator(status: FrameStatus) -> None:
        if status.frame in (5, 30):
            status.pause()
        elif status.frame in (8, 36):
            status.resume()

    def last(stack: Any) -> int:
        assert stack.shape == (3, 3)
        return mixed(*stack.ravel().tolist()) % len(MEANINGS)

    played = []
    for backend in ("thread", "virtual"):
        env = RecordingEnv(LENGTHS)
        terms: dict[str, Any] = {"backend": backend, "stack_size": 3, "pause_action": NOOP}
        report = AsyncRunner(lambda env=env: env, lambda: last, 0, FPS, **terms).run(frames=50, on_frame=operator)
        played.append((env.episodes, report.frames["paused"]))
    assert played[0] == played[1] and played[0][1] > 0


def test_a_policy_with_memory_encodes_and_releases_in_the_loop() -> None:
    made = [play(backend, lambda: Remembering(7), features=FEATURES) for backend in ("thread", "virtual")]
    assert made[0][1] == made[1][1] and made[0][0].delay_frames["max"] == 0


class Checking(Counting):
    def observe(self, transition: Any) -> None:
        assert transition["observation"][FRAME] + transition["interval"] >= 1


class Played:
    def load_weights(self, weights: Any, version: int) -> None:
        self.count = weights["count"]

    def act(self, observation: Any, decision: Any) -> Any:
        return SimpleNamespace(action=int(self.count[0]) % 5, extras={"count": self.count.copy()})


@pytest.mark.parametrize("backend", ["process", "virtual"])
def test_learners_learn_beside_it(backend: str) -> None:
    terms: dict[str, Any] = {"learner_latency": 0.002} if backend == "virtual" else {}
    terms |= {"make_learner": Checking, "extras": EXTRAS, "backend": backend, "updates_per_transition": 1.0}
    with AsyncRunner(lambda: RecordingEnv(40), Played, 0, 400, **terms) as runner:
        for _ in range(100):  # a learner on a busy machine may have no turn in half a second
            report = runner.run(frames=200)
            if report.updates > 3:
                break
    assert report.updates > 3 and report.frames["fresh"] >= 190  # but for answers whose weights were written meanwhile
    assert report.lag_updates is not None and report.delay_frames["max"] == 0


def test_its_errors_are_raised_and_its_mistakes_refused() -> None:
    def raises(observation: Any) -> int:
        raise KeyError("a mistake")

    for backend in ("thread", "process"):
        with pytest.raises(KeyError, match="a mistake") as raised:
            play(backend, lambda: raises)
        assert "with workers=0" in " ".join(raised.value.__notes__)

    def wrong(observation: Any) -> int:
        return 9 if observation[FRAME] % 2 else 1

    with pytest.warns(RuntimeWarning, match="the policy answered 9"):
        report, actions = play("thread", lambda: wrong)
    assert actions[0] == [1, NOOP] * 8 + [1] and report.refused == sum(length // 2 for length in LENGTHS)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"latency": 0.001}, r"latency must be None with workers=0, .*, got .*: give workers=1"),
        ({"stagger": "max_time"}, r"stagger must be 'tickets' with workers=0, .*, got 'max_time'"),
        ({"workers": -1}, r"workers must be .*, got -1"),
    ],
)
def test_what_means_nothing_beside_it_is_refused(terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AsyncRunner(lambda: RecordingEnv(), lambda: act, **{"workers": 0, "fps": FPS, **terms})


def test_a_policy_on_another_machine_is_not_in_the_loop() -> None:
    with pytest.raises(ValueError, match=r"workers must be >= 1 with a policy on another machine \('tcp://.*, got 0"):
        AsyncRunner(lambda: RecordingEnv(), "tcp://127.0.0.1:5555", workers=0, fps=FPS)


def test_its_report_says_so_and_can_be_drawn(tmp_path: Any) -> None:
    report, _ = play("virtual")
    assert "workers    none: the policy runs in the loop" in str(report)
    report.to_trace(tmp_path / "trace.json")
    report.to_png(tmp_path / "picture.png", seconds=0.01)
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_nothing_newer_than_the_frame_can_be_kept_by_the_policy() -> None:
    seen: list[Any] = []

    def keeps(observation: Any) -> int:
        seen.append(observation)
        return 1

    env = RecordingEnv(20, reuse=True)  # writes into the array that it has shown
    AsyncRunner(lambda: env, lambda: keeps, 0, FPS, backend="thread").run(episodes=1)
    assert [int(each[FRAME]) for each in seen[-20:]] == list(range(20))
    assert (
        AsyncRunner(lambda: env, lambda: keeps, 0, FPS, backend="virtual", max_age=0).run(frames=5).frames["fresh"] == 5
    )
