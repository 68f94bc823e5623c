"""`RealtimeDelay` on a schedule and `AsyncRunner` on the virtual clock give the same frames, actions and rewards.

Set HYPOTHESIS_CASES to play more or fewer cases than the 500 of every day.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, RealtimeDelay
from async_wrappers.latency import Constant, Correlated, Gamma, LogNormal, Spikes, Trace, Uniform
from async_wrappers.live import Decision
from async_wrappers.live.loop.loop import episode_seed
from async_wrappers.live.report.report import TimingReport
from async_wrappers.schedule.stagger import Conditions, ExpectedTime, MaxTime, Sequential, Stagger, Tickets
from async_wrappers.testing.staggers import MS, Played
from tests.worlds.recording_env import FRAME, MEANINGS, RecordingEnv, mixed

CASES = int(os.environ.get("HYPOTHESIS_CASES", "200"))
SETTINGS = settings(max_examples=25, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


class Exploring:
    """A pure function of observation and decision that explores: its actions are noise, but always the same noise."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def act(self, observation: Any, decision: Decision) -> int:
        return mixed(self._seed, *map(int, decision), *observation.tolist()) % len(MEANINGS)


def reflex(observation: Any, last_action: int | None) -> int:
    return mixed(*observation.tolist(), -1 if last_action is None else last_action) % len(MEANINGS)


LATENCIES: dict[str, list[Any]] = {
    "constant": [Constant(0.0), Constant(1 / 60), Constant(0.05), Constant(0.12), Constant(0.3)],
    "uniform": [Uniform(0.0, 0.1), Uniform(0.05, 0.15), Uniform(0.0, 0.5)],
    "log-normal": [LogNormal(mean=0.12, cv=0.2), LogNormal(mean=0.03, cv=1.0), LogNormal(mean=0.1, cv=2.0)],
    "gamma": [Gamma(mean=0.05, cv=0.3), Gamma(mean=0.1, cv=1.0)],
    "spikes": [Spikes(0.05, 0.1, 5), Spikes(LogNormal(mean=0.03, cv=0.2), 0.2, 8), Spikes(1 / 60, 0.5, 3)],
    "trace": [Trace([0.01, 0.3, 0.02, 0.02, 0.1]), Trace([0.0, 0.05, 0.2], "shuffled")],
    "correlated": [Correlated(LogNormal(mean=0.08, cv=1.0), 0.9), Correlated(Gamma(mean=0.05, cv=0.5), 0.5)],
}
STAGGERS: dict[str, list[Any]] = {
    "sequential": ["sequential", Sequential],
    "none": ["none"],
    "max_time": ["max_time", MaxTime(0.0), MaxTime(0.1)],
    "expected_time": ["expected_time", ExpectedTime(0.0), ExpectedTime(0.1)],
    "tickets": ["tickets", "tickets", Tickets(4, slot=2), Tickets("p90", slot="even")],
}
DEFAULTS = ["noop", "repeat", "random", 4, reflex]


@dataclass(frozen=True)
class Case:
    """All that a run depends on."""

    latency: Any
    stagger: Any
    playout: int | str
    slot: int | None
    workers: int
    fps: Any
    default_action: Any
    lengths: list[int]
    rewards: list[float]
    reuse: bool
    seed: int
    eval_mode: bool
    frames: int | None = None  # the runner stops after so many, in the middle of an episode if need be

    def make_env(self) -> RecordingEnv:
        return RecordingEnv(self.lengths, [(True, False), (False, True)], self.rewards, reuse=self.reuse)

    def schedule(self) -> dict[str, Any]:
        names = ("latency", "stagger", "playout", "slot", "workers", "fps", "default_action")
        return {name: getattr(self, name) for name in names}


@st.composite
def cases(draw: st.DrawFn, stagger: str | None = None, latency: str | None = None) -> Case:
    stagger = stagger or draw(st.sampled_from(list(STAGGERS)))
    latency = latency or draw(st.sampled_from(list(LATENCIES)))
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    strategy = draw(st.sampled_from(STAGGERS[stagger]))
    return Case(
        latency=draw(st.sampled_from(LATENCIES[latency])),
        stagger=strategy,
        playout=draw(st.sampled_from([0, 1, 3, 6, 9, 12, "p80"])) if stagger == "tickets" else "p99",
        slot=draw(st.sampled_from([None, None, 1, 3])) if strategy == "tickets" else None,
        workers=draw(st.integers(1, 9)),
        fps=draw(st.sampled_from([60, 59.7275, 25, Fraction(60_000, 1001), 144])),
        default_action=draw(st.sampled_from(DEFAULTS)),
        lengths=lengths,
        rewards=draw(st.sampled_from([[1.0], [0.1, -0.7, 3.3], [float(k * k % 17) for k in range(41)]])),
        reuse=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32)),
        eval_mode=draw(st.booleans()),
        frames=draw(st.one_of(st.none(), st.none(), st.integers(1, sum(lengths)))),
    )


class Rewards(gym.Wrapper[Any, Any, Any, Any]):
    """Writes down the rewards that the environment pays, one list per episode."""

    def __init__(self, env: RecordingEnv) -> None:
        super().__init__(env)
        self.recorder, self.paid = env, []  # type: ignore[var-annotated]

    def reset(self, **kwargs: Any) -> Any:
        self.paid.append([])
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.paid[-1].append(result[1])
        return result


@dataclass
class Outcome:
    """What a run came to."""

    actions: list[list[int]]
    rewards: list[list[float]]
    landed: list[list[int]]  # delays of the actions applied


def by_the_runner(case: Case) -> tuple[Outcome, TimingReport, AsyncRunner]:
    recorder = Rewards(case.make_env())
    runner = AsyncRunner(
        lambda: recorder,
        lambda: Exploring(case.seed),
        backend="virtual",
        seed=case.seed,
        eval_mode=case.eval_mode,
        **case.schedule(),
    )
    report = runner.run(episodes=len(case.lengths)) if case.frames is None else runner.run(frames=case.frames)
    return Outcome(recorder.recorder.episodes, recorder.paid, []), report, runner


def by_the_wrapper(case: Case) -> tuple[Outcome, list[list[float]]]:
    """Play the same through the wrapper; return what the environment saw, and the rewards of the steps."""
    recorder = Rewards(case.make_env())
    env = RealtimeDelay(recorder, **case.schedule())
    policy = Exploring(case.seed)
    total, sums, landed = 0, [], []
    for episode in range(len(case.lengths)):
        if case.frames is not None and total >= case.frames:
            break
        observation, info = env.reset(seed=episode_seed(case.seed, int(case.eval_mode), episode))
        start, over, steps, delays = info["realtime"]["start"], False, [], []
        while not over:
            assert observation[FRAME] == start
            action = policy.act(observation, Decision(episode, start, total + start, case.eval_mode))
            observation, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
            start = info["realtime"]["start"]
            steps.append(reward)
            delays += [info["realtime"]["delay"]] * info["realtime"]["applied"]
        total += info["realtime"]["frame"]
        sums.append(steps)
        landed.append(delays)
    return Outcome(recorder.recorder.episodes, recorder.paid, landed), sums


def assert_agrees(case: Case) -> None:
    ran, report, _ = by_the_runner(case)
    wrapped, sums = by_the_wrapper(case)
    if case.frames is None:
        assert ran.actions == wrapped.actions
        assert ran.rewards == wrapped.rewards
        assert report.frames["fresh"] == sum(map(len, wrapped.landed))
        ages = [age for delays in wrapped.landed for age in delays]
        if ages:
            assert report.delay_frames["max"] == max(ages)
            assert report.delay_frames["mean"] == pytest.approx(np.mean(ages))
    else:  # the last episode is cut
        cut = len(ran.actions[-1])
        assert ran.actions[:-1] == wrapped.actions[:-1]
        assert ran.actions[-1] == wrapped.actions[-1][:cut]
        assert ran.rewards == [*wrapped.rewards[:-1], wrapped.rewards[-1][:cut]]
        assert report.frames["total"] == case.frames
    assert report.frames["total"] == sum(map(len, ran.actions))
    for episode, paid in zip(report.episodes, ran.rewards, strict=True):
        assert episode.frames == len(paid)
        assert episode.score == list(accumulate(paid, initial=0.0))[-1]
    for steps, paid in zip(sums, wrapped.rewards, strict=True):
        assert math.isclose(math.fsum(steps), math.fsum(paid), abs_tol=1e-9)


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("stagger", STAGGERS)
def test_wrapper_and_runner_give_the_same_frames_actions_and_rewards(stagger: str, latency: str) -> None:
    share = max(1, -(-CASES // (len(STAGGERS) * len(LATENCIES))))

    @settings(SETTINGS, max_examples=share)
    @given(case=cases(stagger, latency))
    def agree(case: Case) -> None:
        assert_agrees(case)

    agree()


class EveryThird(Stagger):
    """A user's own strategy: one start on each third frame."""

    playout = 4

    def offers(self, frame: int) -> int:
        return int(frame % 3 == 0)


class Alternating(Stagger):
    """A user's own strategy: worker p starts in its own share of each 100 ms."""

    def prepare(self, conditions: Conditions) -> None:
        super().prepare(conditions)
        self._begins = [100 * MS * worker // self.workers for worker in range(self.workers)]

    def start(self, worker: int, now: int) -> int:
        return now + (self._begins[worker] - now) % (100 * MS)


@SETTINGS
@given(case=cases(), stagger=st.sampled_from([EveryThird, Alternating]))
def test_wrapper_and_runner_agree_under_a_users_own_strategy(case: Case, stagger: type[Stagger]) -> None:
    assert_agrees(replace(case, stagger=stagger, slot=None))


@SETTINGS
@given(case=cases())
def test_no_decision_sees_a_frame_newer_than_its_start_and_each_is_told_where_it_is(case: Case) -> None:
    seen: list[tuple[int, Decision]] = []
    counted: list[int] = []

    class Watching(Exploring):
        def act(self, observation: Any, decision: Decision) -> int:
            assert observation[FRAME] == decision.start
            assert observation[0] == decision.episode
            seen.append((id(self), decision))
            return super().act(observation, decision)

    def make_policy() -> Watching:
        policy = Watching(case.seed)
        counted.append(id(policy))
        policies.append(policy)
        return policy

    policies: list[Watching] = []
    env = case.make_env()
    runner = AsyncRunner(
        lambda: env, make_policy, backend="virtual", seed=case.seed, eval_mode=case.eval_mode, **case.schedule()
    )
    report = runner.run(episodes=len(case.lengths))
    begins = [0, *accumulate(case.lengths)]
    assert len(counted) == case.workers  # one policy per worker
    for _, decision in seen:
        assert decision.frame == begins[decision.episode] + decision.start
        assert decision.eval_mode is case.eval_mode
    each = [(policy, decision.frame) for policy, decision in seen]
    assert len(set(each)) == len(each)  # no worker reads a frame twice
    assert len(seen) == len(report.spans)
    spans = [(counted[span.worker], span.episode, span.start) for span in report.spans]
    assert sorted(spans) == sorted((policy, decision.episode, decision.start) for policy, decision in seen)


@SETTINGS
@given(case=cases(), repeats=st.integers(1, 3))
def test_a_run_repeats_itself(case: Case, repeats: int) -> None:
    case = replace(case, lengths=case.lengths[:1])  # the environment counts its episodes over all runs
    ran, report, runner = by_the_runner(case)
    first = [list(actions) for actions in ran.actions]
    for _ in range(repeats):
        again = runner.run(episodes=1) if case.frames is None else runner.run(frames=case.frames)
        assert (again.episodes, again.frames, again.spans) == (report.episodes, report.frames, report.spans)
    other, other_report, _ = by_the_runner(case)
    assert (other.actions, other_report.episodes, other_report.spans) == (first, report.episodes, report.spans)


# What an environment or a policy may do with arrays.


class ClippingEnv(RecordingEnv):
    """Writes into the action array that it receives, as some environments do when they clip."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(action_space=Box(-2, 2, (2,), np.float64), **kwargs)

    def get_action_meanings(self) -> list[str]:
        return []

    def step(self, action: Any) -> Any:
        result = super().step(action)
        action *= 0.5
        return result


class Steering:
    """Returns a new array, or fills the same one each time."""

    def __init__(self, reuse: bool) -> None:
        self._reuse, self._array = reuse, np.zeros(2)

    def act(self, observation: Any, decision: Decision) -> Any:
        array = self._array if self._reuse else np.zeros(2)
        array[:] = mixed(*observation.tolist()) % 1000 / 1000, decision.start / 64
        return array


def steered(latency: Any, workers: int, default_action: Any, reuse: bool) -> tuple[Any, Any]:
    """Return the actions that wrapper and runner let the environment receive."""
    schedule = {"latency": latency, "workers": workers, "fps": 50, "playout": 4, "default_action": default_action}
    ran, wrapped = (ClippingEnv(length=[30, 20]) for _ in range(2))
    runner = AsyncRunner(lambda: ran, lambda: Steering(reuse), backend="virtual", seed=3, **schedule)
    runner.run(episodes=2)
    env, policy = RealtimeDelay(wrapped, **schedule), Steering(reuse)
    total = 0
    for episode in range(2):
        observation, info = env.reset(seed=episode_seed(3, 0, episode))
        over = False
        while not over:
            start = info["realtime"]["start"]
            action = policy.act(observation, Decision(episode, start, total + start, False))
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        total += info["realtime"]["frame"]
    return [[a.tolist() for a in episode] for episode in ran.episodes], [
        [a.tolist() for a in episode] for episode in wrapped.episodes
    ]


def swapped(observation: Any, last: Any) -> Any:
    return np.zeros(2) if last is None else np.array([last[1], last[0]])


@pytest.mark.parametrize("default_action", ["noop", "repeat", "random", [0.5, -0.5], swapped])
def test_both_agree_where_the_environment_writes_into_the_actions_it_receives(default_action: Any) -> None:
    ran, wrapped = steered(0.10, 2, default_action, reuse=False)
    assert ran == wrapped


def test_both_agree_where_a_policy_fills_the_same_array_each_time() -> None:
    # An action waits for its frame while the worker's next inference runs.
    ran, wrapped = steered(0.02, 1, "noop", reuse=True)
    assert ran == wrapped


# The report.

DISTRIBUTION = {"mean", "std", "p50", "p95", "p99", "max"}
SCHEMA = {
    "latency_ms": DISTRIBUTION,
    "interval_ms": DISTRIBUTION,
    "delay_frames": DISTRIBUTION,
    "learner_step_ms": None,
    "frames": {
        *("total", "fresh", "default", "paused"),
        *("dropped_actions", "late_actions", "too_old", "limited", "missed_deadlines", "skipped"),
    },
    "lateness_ms": DISTRIBUTION,
    "drift_ms": float,
    "fps": float,
    "workers": {"count", "restarts", "busy_share"},
    "episodes": list,
    "exchange_us": None,
    "playout_frames": int,
    "longest_gap": {"frames", "seconds", "at", "held_up"},
    "lost": dict,
    "updates": int,
    "lag_updates": None,
    "off_policy": dict,
    "stopped": None,
    "released": int,
    "timeline_s": None,
    "loop_share": None,
    "realtime": None,
    "sensors": dict,
    "recording": None,
    "journey_ms": dict,
    "updates_per_frame": float,
    "updates_per_action": float,
    "actions_per_frame": float,
    "wins": int,
    "losses": int,
    "phase_state": None,
    "notes": list,
}


def play(latency: Any = 0.05, workers: int = 3, fps: Any = 60, length: int = 40, **kwargs: Any) -> AsyncRunner:
    terms = {"backend": "virtual", "latency": latency, **kwargs}
    return AsyncRunner(lambda: RecordingEnv(length), lambda: Exploring(0), workers, fps, **terms)


def strictly(text: str) -> Any:
    """Return what JSON as the standard has it says: NaN and Infinity are no part of it."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_report_is_the_schema_of_the_design(tmp_path: Path) -> None:
    report = play(playout=4).run(episodes=3)
    told = report.to_dict()
    assert told.keys() == SCHEMA.keys()
    for name, wanted in SCHEMA.items():
        if isinstance(wanted, set):
            assert told[name].keys() == wanted
        elif wanted is None:
            assert told[name] is None
        else:
            assert isinstance(told[name], wanted)
    assert [episode.keys() for episode in told["episodes"]] == [{"return", "frames"}] * 3
    assert told["episodes"][0] == {"return": 40.0, "frames": 40}
    assert all(isinstance(value, int) for value in told["frames"].values())
    report.to_json(tmp_path / "report.json")
    assert strictly((tmp_path / "report.json").read_text()) == told
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_the_numbers_of_a_report_by_hand() -> None:
    """Three workers, 50 ms, 60 fps: a ticket on each frame, due four frames later."""
    report = play(playout=4, length=40).run(episodes=2)
    assert report.frames == {
        "total": 80,
        "fresh": 72,
        "default": 8,
        "paused": 0,
        "dropped_actions": 0,
        "late_actions": 0,
        "too_old": 0,
        "limited": 0,
        "missed_deadlines": 0,
        "skipped": 0,
    }
    assert report.latency_ms == dict.fromkeys(DISTRIBUTION, 50.0) | {"std": 0.0}
    assert report.delay_frames == dict.fromkeys(DISTRIBUTION, 4.0) | {"std": 0.0}
    assert report.interval_ms["mean"] == pytest.approx(1000 / 60)
    assert (report.fps, report.drift_ms) == (60.0, 0.0)
    assert report.workers["count"] == 3
    assert len(report.spans) == 80
    assert "80 at 60.00 fps" in str(report)


def test_dropped_and_late_actions_are_of_this_run_alone() -> None:
    runner = play(latency=Played([5 * MS] + [MS] * 50), workers=2, fps=1000, playout=2, slot=1, length=8)
    for _ in range(2):
        report = runner.run(episodes=2)
        assert (report.frames["late_actions"], report.frames["dropped_actions"]) == (2, 2)


@SETTINGS
@given(case=cases())
def test_a_report_adds_up(case: Case) -> None:
    _, report, _ = by_the_runner(case)
    frames = report.frames
    assert frames["fresh"] + frames["default"] == frames["total"]
    assert frames["fresh"] + frames["dropped_actions"] <= len(report.spans)
    assert frames["missed_deadlines"] == 0
    assert report.workers["count"] == case.workers
    assert report.workers["restarts"] == 0
    assert report.fps == pytest.approx(float(Fraction(str(case.fps))))
    assert set(report.lateness_ms.values()) == {0.0}
    assert str(report)
    assert 0 <= report.workers["busy_share"] <= 1 + 1e-6
    for worker in range(case.workers):
        mine = sorted((span.began, span.ended) for span in report.spans if span.worker == worker)
        for (_, ended), (began, _) in pairwise(mine):
            assert began >= ended - 1, "a reset ends them; a nanosecond: an episode begins on a whole one"


def test_a_trace_is_valid_and_has_an_event_for_each_inference(tmp_path: Path) -> None:
    report = play(playout=4, length=10).run(episodes=2)
    report.to_trace(tmp_path / "trace.json")
    trace = strictly((tmp_path / "trace.json").read_text())
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(report.spans) == 20
    for event in events:
        assert {"name", "ph", "ts", "dur", "pid", "tid"} <= event.keys()
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    first = events[0]
    assert (first["ts"], first["dur"], first["tid"]) == (0.0, 50_000.0, 0)
    assert first["args"] == {"episode": 0, "start": 0}


@pytest.mark.parametrize("length", [1, 3])
def test_a_report_of_a_run_without_actions_is_valid_json_too(tmp_path: Path, length: int) -> None:
    report = play(latency=10.0, length=length).run(episodes=1)
    report.to_json(tmp_path / "report.json")
    report.to_trace(tmp_path / "trace.json")
    assert strictly((tmp_path / "report.json").read_text())["frames"]["fresh"] == 0
    assert strictly((tmp_path / "trace.json").read_text())["traceEvents"]
    assert str(report)


# The length of a run.


@pytest.mark.parametrize(
    ("fps", "asked", "total"),
    [
        (60, {"frames": 100}, 100),
        (60, {"frames": 1}, 1),
        (60, {"frames": np.int64(41)}, 41),
        (60, {"seconds": 1}, 60),
        (60, {"seconds": 0.1}, 6),
        (60, {"seconds": 1 / 60}, 1),
        (59.7275, {"seconds": 1}, 60),  # a frame that has begun is played to its end
        (60, {"seconds": Fraction(1, 2)}, 30),
        (60, {"episodes": 2}, 80),
        (60, {"episodes": np.int64(1)}, 40),
        (60, {"seconds": 1e-9}, 1),
    ],
)
def test_a_run_lasts_as_long_as_it_is_asked_to(fps: float, asked: dict[str, Any], total: int) -> None:
    report = play(fps=fps).run(**asked)
    assert report.frames["total"] == total
    assert sum(episode.frames for episode in report.episodes) == total


@pytest.mark.parametrize("asked", [{}, {"frames": 3, "episodes": 1}, {"frames": 1, "seconds": 1, "episodes": 1}])
def test_exactly_one_length_must_be_given(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^give one of frames, seconds and episodes, got "):
        play().run(**asked)


# Bad arguments: those that are bad beside others.


@pytest.mark.parametrize("arguments", [{"max_age": 3}, {"max_age": 0, "backend": "thread"}])
def test_an_age_below_the_latency_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^max_age must .* got {arguments['max_age']}"):
        play(latency=0.1, **{"backend": "virtual", **arguments})
    with pytest.raises(ValueError, match=r"^max_age must .* got 3"):
        RealtimeDelay(RecordingEnv(), latency=0.01, fps=60, playout=4, max_age=3)


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy must .* got 3$"):
        AsyncRunner(RecordingEnv, lambda: 3, 1, 60, backend="virtual", latency=0.1)


@pytest.mark.parametrize("constants", [{"delay": 8}, {"noops": 2}, {"delay": 8, "noops": 8}])
def test_constants_and_a_latency_exclude_each_other(constants: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"^give delay and noops or a latency, got ") as error:
        RealtimeDelay(RecordingEnv(), **constants, latency=0.1, fps=60)
    assert all(f"{name}={value}" in str(error.value) for name, value in constants.items())


@pytest.mark.parametrize(
    "arguments",
    [
        {"workers": 4},
        {"fps": 60},
        {"slot": 1},
        {"slot": "even"},
        {"stagger": "none"},
        {"playout": 5},
        {"playout": 0},
        {"max_age": 9},
    ],
)
def test_what_needs_a_latency_is_refused_without_one(arguments: dict[str, Any]) -> None:
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=rf"^{name}={value!r} needs a latency"):
        RealtimeDelay(RecordingEnv(), delay=2, **arguments)


def test_one_worker_is_what_the_wrapper_takes_where_none_is_given() -> None:
    env = RealtimeDelay(RecordingEnv(), latency=0.05, fps=60)
    env.reset(seed=0)
    env.step(0)
    assert env.counts is not None
    assert set(env.counts.inferences) == {0}


# A latency of which no action can land.


@pytest.mark.parametrize("stagger", [*STAGGERS, EveryThird])
@pytest.mark.parametrize("latency", [10.0, 1e9, Spikes(1e6, 0.5, 500), Trace([1e9, 1e6])])
def test_a_latency_so_long_that_no_action_lands_is_allowed_and_quick(stagger: Any, latency: Any) -> None:
    report = play(latency=latency, stagger=stagger, length=20).run(episodes=2)
    assert report.frames["fresh"] == 0
    assert report.frames["default"] == report.frames["total"] == 40
    assert math.isnan(report.delay_frames["mean"])

    env = RealtimeDelay(RecordingEnv(20, rewards=[2.0]), latency=latency, workers=3, fps=60, stagger=stagger)
    for _ in range(2):
        env.reset(seed=1)
        _, reward, terminated, _, info = env.step(0)
        assert (reward, terminated) == (40.0, True)
        assert info["realtime"]["applied"] is False
        assert info["realtime"]["frame"] == 20
    assert env.counts is not None
    assert env.counts.fresh == 0
