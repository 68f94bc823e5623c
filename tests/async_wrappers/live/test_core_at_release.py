"""Core at release: with frozen weights a policy with memory makes the same decisions wherever and whenever it is asked.

Set HYPOTHESIS_CASES to play more or fewer cases than those of every day.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, RealtimeDelay
from async_wrappers.live import Decision, Memory
from async_wrappers.live.loop.release import Release
from async_wrappers.live.loop.workers import Action, Features
from async_wrappers.live.memory.exchange import Fate, ticket_of
from async_wrappers.live.memory.weights import Reading
from async_wrappers.testing.staggers import Played
from tests.worlds.fake_transport import Stage
from tests.worlds.hashing_policy import DEFAULTS
from tests.worlds.learners import Writing
from tests.worlds.recording_env import FRAME, MEANINGS, RecordingEnv
from tests.worlds.remembering import FEATURES, Remembering, Taken, around_the_wrapper, replayed
from tests.worlds.schedule_cases import RATES, STRATEGIES

CASES = int(os.environ.get("HYPOTHESIS_CASES", "10"))  # each takes a quarter of a second
ACTIONS = Discrete(len(MEANINGS))
ENDS = [(True, False), (False, True)]


@dataclass
class Case:
    """All that a run depends on."""

    latencies: list[int]  # nanoseconds
    workers: int
    fps: Any
    stagger: Any
    default: str
    lengths: list[int]
    rewards: list[float]
    seed: int
    eval_mode: bool
    fates: dict[int, Fate]  # of inferences on a real clock that give no action, by their number

    def make_env(self) -> RecordingEnv:
        return RecordingEnv(self.lengths, ENDS, self.rewards)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    fps = draw(RATES)
    frame = 1e9 / float(fps)
    whole = st.builds(lambda k, off: max(0, int(k * frame) + off), st.integers(0, 16), st.integers(-1, 2))
    lost = st.sampled_from([Fate.PASSED, Fate.DISCARDED])
    return Case(
        draw(st.lists(st.one_of(whole, st.integers(0, int(16 * frame))), min_size=1, max_size=40)),
        draw(st.integers(1, 16)),
        fps,
        draw(st.sampled_from(STRATEGIES)),
        draw(st.sampled_from(list(DEFAULTS))),
        draw(st.lists(st.integers(1, 50), min_size=1, max_size=3)),
        draw(st.sampled_from([[1.0], [0.1, -0.7, 3.3], [float(k * k % 17) / 7 for k in range(41)]])),
        draw(st.integers(0, 2**32)),
        draw(st.booleans()),
        draw(st.dictionaries(st.integers(0, 60), lost, max_size=10)),
    )


def assert_one_chain(case: Case) -> None:
    default, default_action = DEFAULTS[case.default]
    terms: dict[str, Any] = {"workers": case.workers, "fps": case.fps, "default_action": default}
    whole = {"seed": case.seed, "eval_mode": case.eval_mode}

    def again(effects: Any, frames: list[int]) -> tuple[list[Taken], list[list[Any]]]:
        """Return what the pairs of a run come to, frame by frame."""
        env, taken = case.make_env(), list[Taken]()
        replayed(env, Remembering(case.seed, taken), effects, default_action, frames, **whole)
        return taken, env.episodes

    # Around the wrapper.
    env = case.make_env()
    schedule = {"latency": Played(case.latencies), "stagger": case.stagger()}
    answers = around_the_wrapper(
        RealtimeDelay(env, **schedule, **terms), Remembering(case.seed), len(case.lengths), **whole
    )
    wrapped = [(answer.action, answer.state) for answer in answers], env.episodes

    # On the virtual clock.
    env, taken = case.make_env(), list[Taken]()
    schedule = {"latency": Played(case.latencies), "stagger": case.stagger()}
    runner = AsyncRunner(
        lambda: env,
        lambda: Remembering(case.seed, taken),
        backend="virtual",
        features=FEATURES,
        **schedule,
        **terms,
        **whole,
    )
    report = runner.run(episodes=len(case.lengths))
    assert ([(each.action, each.state) for each in taken], env.episodes) == wrapped
    assert len(taken) == report.frames["fresh"]
    effects: list[list[tuple[int, int]]] = [[] for _ in case.lengths]
    for span in report.spans:
        if span.applied is not None:
            effects[span.episode].append((span.start, span.effect))
    assert (taken, env.episodes) == again([sorted(pairs) for pairs in effects], case.lengths)

    # Live, on a clock of the test's, with inferences that are lost; and again on its recorded times.
    taken = []
    given: dict[str, Any] = {"env": {"ends": ENDS, "rewards": case.rewards}}
    given |= {"release": Release(Remembering(case.seed, taken), ACTIONS), "default_action": default, "seed": case.seed}
    given |= {"calibration_time": 0.0}
    stage = Stage(
        [max(1, latency) for latency in case.latencies],
        case.workers,
        case.stagger(),
        case.lengths,
        case.fps,
        Remembering(case.seed).encode,
        **given,
    )
    stage.transport.fates = case.fates
    record = stage.play(episodes=len(case.lengths), eval_mode=case.eval_mode, number=int(case.eval_mode))
    warm_up = len(taken) - record.accepted
    assert sum(map(len, record.effects)) == record.accepted and warm_up in (0, 3)  # 0 where no answer came before
    frames = [episode.frames for episode in record.episodes]
    assert (taken[warm_up:], stage.env.episodes) == again(record.effects, frames)


@settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_the_wrapper_the_virtual_clock_and_a_replayed_live_run_have_one_chain_of_states(case: Case) -> None:
    assert_one_chain(case)


def test_memory_is_of_the_decision_applied_last() -> None:
    taken: list[tuple[int, Memory]] = []

    class Recalling:
        def encode(self, observation: Any, decision: Decision) -> Any:
            return np.array([observation[FRAME], 0])

        def release(self, features: Any, memory: Memory, decision: Decision) -> Any:
            taken.append((int(features[0]), memory))
            return SimpleNamespace(action=decision.start % 5, state=decision.start)

    # One worker, whose inference takes 2.5 frames of 20 ms; frame k pays 2 ** k.
    runner = AsyncRunner(
        lambda: RecordingEnv(9, rewards=[2.0**k for k in range(9)]),
        Recalling,
        1,
        50,
        "sequential",
        backend="virtual",
        latency=0.050,
        features=FEATURES,
    )
    report = runner.run(episodes=2)
    assert [(span.start, span.effect) for span in report.spans if span.effect is not None][:2] == [(0, 3), (4, 7)]
    assert taken == 2 * [(0, Memory(None, 0.0, True, None)), (4, Memory(0, 2.0**7 - 1, False, 0))]


# Live: 4 workers of 60 ms.

EXTRAS = Dict({"state": Box(0, 10**9, (), np.int64)})


class Slow(Remembering):
    def encode(self, observation: Any, decision: Decision) -> Any:
        time.sleep(0.060)
        return super().encode(observation, decision)

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        pass


class Noting(Writing):
    """Writes down what was observed, in a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def observe(self, transition: Mapping[str, Any]) -> None:
        with self._file.open("a") as file:
            print(transition["observation"][FRAME], transition["action"], transition["extras"]["state"], file=file)


@pytest.mark.filterwarnings("ignore:workers=")
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_live_run_of_four_workers_is_replayed_bit_for_bit_on_its_recorded_times(backend: str, tmp_path: Path) -> None:
    taken: list[Taken] = []
    learning: dict[str, Any] = {}
    if backend == "process":
        learning = {"make_learner": lambda: Noting(tmp_path / "seen"), "extras": EXTRAS}
    terms: dict[str, Any] = {"backend": backend, "latency": 0.060, "features": FEATURES, "default_action": "repeat"}
    for fps in (60, 20, 6):  # at which a busy machine gives few actions, a slower clock gives more
        taken.clear()
        (tmp_path / "seen").unlink(missing_ok=True)
        runner = AsyncRunner(
            lambda: RecordingEnv([70, 50], rewards=[0.1, -0.7, 3.3]),
            lambda: Slow(3, taken),
            4,
            fps,
            **terms,
            **learning,
        )
        with runner:
            report = runner.run(episodes=2)
            if backend == "process":
                runner.save(tmp_path)
        if report.frames["fresh"] > 20:
            break
    effects: list[list[tuple[int, int]]] = [[], []]
    for span in report.spans:
        if span.applied is not None:
            effects[span.episode].append((span.start, span.effect))
    effects = [sorted(pairs) for pairs in effects]
    env = RecordingEnv([70, 50], rewards=[0.1, -0.7, 3.3])
    frames = [episode.frames for episode in report.episodes]
    expected = replayed(env, Remembering(3), effects, DEFAULTS["repeat"][1], frames)
    starts = [start for pairs in effects for start, _ in pairs]
    assert len(starts) == report.frames["fresh"] > 20
    if backend == "thread":
        assert [(each.action, each.state) for each in taken[3:]] == [(each.action, each.state) for each in expected]
        return
    seen = [tuple(map(int, line.split())) for line in (tmp_path / "seen").read_text().splitlines()]
    assert seen == [(start, answer.action, answer.state) for start, answer in zip(starts, expected, strict=True)]


# What is refused, and what leaves no trace.


class Answering(Remembering):
    """Answers what is no action, now and then."""

    def release(self, features: Any, memory: Memory, decision: Decision) -> Any:
        answer = super().release(features, memory, decision)
        if decision.start % 3 == 1:
            answer.action = 77
        return answer


def test_an_answer_that_is_no_action_leaves_no_trace() -> None:
    taken: list[Taken] = []
    env = RecordingEnv(20)
    runner = AsyncRunner(
        lambda: env, lambda: Answering(0, taken), 3, 60, backend="virtual", latency=0.04, features=FEATURES
    )
    with pytest.warns(RuntimeWarning, match="the policy's release answered 77 .* which is no action of Discrete"):
        report = runner.run(episodes=1)
    good = [each for each in taken if each.decision[1] % 3 != 1]
    assert report.frames["fresh"] == len(good) > 5 and report.lost["refused"] == len(taken) - len(good) > 2
    pairs = sorted((span.start, span.effect) for span in report.spans if span.applied is not None)
    again: list[Taken] = []
    replayed(RecordingEnv(20), Remembering(0, again), [pairs], DEFAULTS["noop"][1], [20])
    assert good == again


def test_features_that_are_none_are_refused_before_they_are_released() -> None:
    class Beyond(Remembering):
        def encode(self, observation: Any, decision: Decision) -> Any:
            return np.array([-1, 0])

    runner = AsyncRunner(lambda: RecordingEnv(200), Beyond, 2, 60, backend="virtual", latency=0.01, features=FEATURES)
    with (
        pytest.warns(RuntimeWarning, match="worker 0 answered .* which is no element of Box"),
        pytest.raises(RuntimeError, match="no action was ever accepted: worker 0 answered"),
    ):
        runner.run(episodes=1)


@pytest.mark.parametrize(
    ("make_policy", "features", "message"),
    [
        (
            lambda: Remembering(),
            None,
            r"features must be declared for a policy with encode and release, as in AsyncRunner",
        ),
        (
            lambda: lambda o: 1,
            FEATURES,
            r"make_policy must return a policy with encode\(observation, decision\) and rel",
        ),
        (lambda: Remembering(), 3, r"features must be a gymnasium.Space, what encode returns, or None, got 3"),
        (
            lambda: Remembering(),
            gym.spaces.Text(3),
            "features must be a Box, Discrete, MultiDiscrete, MultiBinary, or a",
        ),
    ],
)
def test_halves_and_their_features_are_declared_together(make_policy: Any, features: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        AsyncRunner(RecordingEnv, make_policy, 1, 60, backend="virtual", latency=0.01, features=features)


@pytest.mark.parametrize(
    ("answer", "extras", "message"),
    [
        (1, None, "release must return an object with the attributes action and state, got 1"),
        (
            SimpleNamespace(action=1),
            None,
            "release must return an object with the attributes action and state, got nam",
        ),
        (SimpleNamespace(action=1, state=2, extras={}), EXTRAS, "a policy's extras must be an element of Dict"),
    ],
)
def test_an_answer_without_its_parts_ends_the_run(answer: Any, extras: Any, message: str) -> None:
    class Wrong(Remembering):
        def release(self, features: Any, memory: Memory, decision: Decision) -> Any:
            return answer

    runner = AsyncRunner(
        lambda: RecordingEnv(9), Wrong, 1, 60, backend="virtual", latency=0.01, features=FEATURES, extras=extras
    )
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        runner.run(episodes=1)
    assert caught.value.__notes__ == ["raised in the environment loop, in which a policy with memory is released"]


# Weights, read in place.


class Board:
    """Weights of which a new version is published in the middle of the first readings."""

    def __init__(self, torn: int) -> None:
        self.version, self._torn, self.reads = 1, torn, False

    def weights(self, copy: int) -> Mapping[str, Any]:
        return {"w": copy}

    def updates(self, copy: int) -> int:
        return 0

    def begin_reading(self, reader: int) -> Reading:
        assert reader == 4 and not self.reads
        self.reads = True
        return Reading(self.version, self.version % 2, 0)

    def end_reading(self, reader: int, reading: Reading) -> bool:
        self.reads, whole = False, self._torn == 0
        self._torn -= not whole
        self.version += not whole
        return whole


class Weighing(Remembering):
    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.loaded = version


@pytest.mark.parametrize(("torn", "version"), [(0, 1), (1, 2), (2, None)])
def test_a_release_whose_weights_were_rewritten_is_made_again_or_leaves_no_trace(torn: int, version: Any) -> None:
    taken: list[Taken] = []
    board: Any = Board(torn)
    release = Release(Weighing(0, taken), ACTIONS, board=board, reader=4)
    features = Features(np.array([1, 2]), updates=7)
    released = release.decide(features, ticket_of(0, 0, 0, 0, 0, False), 0.0)
    if version is None:
        assert released is None
        released = release.decide(features, ticket_of(0, 0, 0, 0, 0, False), 5.0)  # still the first one
        version = 3
    assert released == Action(taken[0].action, None, version, updates=7)
    assert len(taken) == torn + 1 and set(taken) == {taken[0]} and not board.reads
