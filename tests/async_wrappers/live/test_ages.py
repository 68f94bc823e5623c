"""Two ages of each action, and actions that are too old, in a run: on the virtual clock, and in processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, RealtimeDelay
from async_wrappers.live import Decision
from async_wrappers.live.loop.loop import episode_seed
from async_wrappers.live.report.report import TimingReport
from async_wrappers.testing.staggers import MS, Played
from tests.worlds.learners import Rating
from tests.worlds.recording_env import FRAME, MEANINGS, RecordingEnv, mixed

CASES = int(os.environ.get("HYPOTHESIS_CASES", "25"))
SETTINGS = settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
PAIR = Box(-1, 100_000, (2,), np.int64)
NONE = np.array([-1, -1])  # the default action


class Telling:
    """A policy whose action is the frame that it read and the updates in the weights that it had."""

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.weights = weights["count"]

    def act(self, observation: Any, decision: Decision) -> Any:
        return np.array([observation[FRAME], self.weights[0]], np.int64)


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a run of learners on the virtual clock, at 1,000 frames a second."""
    lengths = st.lists(st.integers(0, 7_000_000), min_size=1, max_size=6)
    return {
        "workers": draw(st.integers(1, 5)),
        "fps": 1000,
        "latency": Played(draw(lengths)),
        "stagger": draw(st.sampled_from(["none", "tickets", "sequential"])),
        "learner_latency": Played(draw(st.lists(st.integers(100_000, 5_000_000), min_size=1, max_size=4))),
        "learners": draw(st.integers(1, 3)),
        "updates_per_transition": draw(st.sampled_from([None, 0.5, 3])),
        "max_age": draw(st.sampled_from([None, 7, 8])),
    }


@SETTINGS
@given(run=runs())
def test_both_ages_of_each_action_are_those_that_a_naive_look_at_every_frame_finds(run: dict[str, Any]) -> None:
    env = RecordingEnv([30, 17], action_space=PAIR)
    runner = AsyncRunner(
        lambda: env, Telling, backend="virtual", make_learner=Rating, default_action=NONE, seed=3, **run
    )
    made: list[int] = []  # updates by the beginning of each frame
    report = runner.run(episodes=2, on_frame=lambda status: made.append(status.updates))
    ages, lags, spans = [], [], []
    for episode, actions in enumerate(env.episodes):
        for frame, (start, updates) in enumerate(np.asarray(actions).tolist()):
            if start >= 0:
                ages.append(frame - start)
                lags.append(made[30 * episode + frame] - updates)
                spans.append((episode, start, frame, lags[-1]))
    told = [(span.episode, span.start, span.effect, span.lag) for span in report.spans if span.effect is not None]
    assert sorted(told) == sorted(spans)
    assert report.lag_updates is not None
    if ages:
        assert report.delay_frames["mean"] == pytest.approx(np.mean(ages))
        assert (report.delay_frames["max"], report.lag_updates["max"]) == (max(ages), max(lags))
        assert report.lag_updates["mean"] == pytest.approx(np.mean(lags))
    assert max(ages, default=0) <= (run["max_age"] or np.inf)
    assert min(lags, default=0) >= 0


def test_what_says_how_far_off_the_policy_was_is_averaged_over_the_updates_of_a_phase() -> None:
    terms: dict[str, Any] = {"backend": "virtual", "latency": 0.002, "make_learner": Rating, "learner_latency": 0.001}
    terms |= {"updates_per_transition": 0.5, "default_action": NONE}
    with AsyncRunner(lambda: RecordingEnv(20, action_space=PAIR), Telling, 2, 1000, **terms) as runner:
        first, second = runner.run(episodes=1), runner.run(episodes=1)
        evaluation = runner.run(episodes=1, eval_mode=True)
    total = first.updates + second.updates
    assert first.off_policy == {"Rho": pytest.approx(np.mean(np.arange(1, first.updates + 1)))}
    assert second.off_policy == {"Rho": pytest.approx(np.mean(np.arange(first.updates + 1, total + 1)))}
    assert evaluation.off_policy == {}
    assert evaluation.lag_updates is not None and evaluation.lag_updates["max"] == 0


def test_without_learners_weights_have_no_age() -> None:
    runner = AsyncRunner(RecordingEnv, lambda: lambda o: 1, 1, 60, backend="virtual", latency=0.02)
    report = runner.run(frames=20)
    assert report.lag_updates is None
    assert {span.lag for span in report.spans} == {None}


class Remembering(RecordingEnv):
    """Keeps the actions of its episodes as what it hands on from phase to phase."""

    @property
    def phase_state(self) -> Any:
        return [np.asarray(actions).tolist() for actions in self.episodes]


def updates_so_far(status: Any) -> int:
    updates: int = status.updates
    return updates


def test_in_processes_the_age_of_weights_is_that_of_the_updates_in_them() -> None:
    terms: dict[str, Any] = {"latency": 0.01, "make_learner": Rating, "learners": 2, "updates_per_transition": 3}
    terms |= {"default_action": NONE, "start_timeout": 60}
    runner = AsyncRunner(lambda: Remembering(40, action_space=PAIR), Telling, 2, 20, **terms)
    report = runner.run(episodes=1, on_frame=updates_so_far)
    made = [updates for _, updates in report.notes]
    (actions,) = report.phase_state
    applied = [(frame, start, updates) for frame, (start, updates) in enumerate(actions) if start >= 0]
    lags = {span.effect: span.lag for span in report.spans if span.effect is not None}
    assert len(applied) > 10
    for frame, _, updates in applied:
        later = made[frame + 1] if frame + 1 < len(made) else report.updates
        assert made[frame] - updates <= lags[frame] <= later - updates
    assert report.lag_updates is not None and report.lag_updates["max"] == max(lags.values())


# Too old, in wrapper and runner.


def noisy(observation: Any, decision: Decision) -> int:
    return mixed(decision.episode, decision.start, decision.frame, *observation.tolist()) % len(MEANINGS)


class Noisy:
    act = staticmethod(noisy)


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a schedule under which some actions are too old: playout 2, latencies of up to 9 frames."""
    whole = st.builds(lambda k, off: max(0, k * MS + off), st.integers(0, 9), st.integers(-1, 1))
    stagger = draw(st.sampled_from(["tickets", "none", "sequential"]))
    return {
        "latency": Played([MS, *draw(st.lists(whole, min_size=1, max_size=12))]),
        "workers": draw(st.integers(1, 6)),
        "fps": 1000,
        "stagger": stagger,
        "playout": 2,
        "slot": draw(st.sampled_from([None, 1])) if stagger == "tickets" else None,
        "max_age": draw(st.integers(2, 8)),
        "default_action": draw(st.sampled_from(["noop", "repeat", "random", 4])),
    }


@SETTINGS
@given(schedule=schedules(), lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_the_wrapper_and_the_virtual_clock_refuse_the_same_actions(
    schedule: dict[str, Any], lengths: list[int]
) -> None:
    played, wrapped = RecordingEnv(lengths), RecordingEnv(lengths)
    runner = AsyncRunner(lambda: played, Noisy, backend="virtual", seed=3, **schedule)
    report = runner.run(episodes=len(lengths))
    env = RealtimeDelay(wrapped, **schedule)
    total = 0
    for episode in range(len(lengths)):
        observation, info = env.reset(seed=episode_seed(3, 0, episode))
        over = False
        while not over:
            start = info["realtime"]["start"]
            action = noisy(observation, Decision(episode, start, total + start, False))
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        total += info["realtime"]["frame"]
    assert played.episodes == wrapped.episodes
    assert env.counts is not None
    assert report.frames["too_old"] == env.counts.too_old
    assert report.frames["fresh"] == env.counts.fresh
    assert report.frames["dropped_actions"] == env.counts.dropped


def test_a_run_in_which_every_action_is_too_old_goes_on_and_says_so() -> None:
    runner = AsyncRunner(
        lambda: RecordingEnv(30), Noisy, 2, 60, "none", backend="virtual", latency=0.1, max_age=5, default_action=4
    )
    report = runner.run(episodes=1)
    assert (report.frames["fresh"], report.frames["default"]) == (0, 30)
    assert report.frames["too_old"] == 4  # on frames 6, 12, 18 and 24
    assert "4 too old" in str(report)


def told(report: TimingReport) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in str(report).splitlines())


def test_the_report_tells_both_ages_side_by_side(tmp_path: Any) -> None:
    terms: dict[str, Any] = {"backend": "virtual", "latency": 0.002, "make_learner": Rating}
    terms |= {"learner_latency": 0.0005, "default_action": NONE}
    runner = AsyncRunner(lambda: RecordingEnv(60, action_space=PAIR), Telling, 2, 1000, **terms)
    report = runner.run(episodes=1)
    lines = told(report)
    names = list(lines)
    assert names[names.index("delay") + 1] == "lag"
    assert lines["lag"].startswith("mean ") and lines["lag"].endswith(" updates")
    assert lines["ratios"] == f"Rho {report.off_policy['Rho']:.3f}"
    assert report.to_dict()["lag_updates"] == report.lag_updates
    assert report.to_dict()["off_policy"] == report.off_policy
    assert ">lag<" in report._repr_html_()
    report.to_png(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size
