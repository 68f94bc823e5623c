"""Agents whose critic reads the frames of effect, in the runners: they train, go on, and refuse what reports none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.experiment.checkpoint import newest_bundle
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.live import Live, LiveRunner
from async_wrappers.agents.registry import AGENTS, create_runner
from tests.worlds.experiments import load_gin
from tests.worlds.plain_data import assert_identical, differs

SMALL = (
    "MLPTorso.hidden = (8,)",
    "DQNAgent.min_replay_history = 20",
    "DQNAgent.batch_size = 8",
    "DQNAgent.replay_capacity = 640",
    "DQNAgent.epsilon_warmup = 20",
    "Runner.num_iterations = 2",
    "Runner.training_steps = 100",
    "Runner.evaluation_episodes = 2",
    "Runner.report_episodes = 0",
)
DELAY = (
    "create_gym_environment.wrappers = [@RealtimeDelay]",
    "RealtimeDelay.delay = 2",
    "RealtimeDelay.default_action = 'repeat'",
)
VECTOR = (*DELAY, "create_runner.schedule = 'vector'", "VectorRunner.num_envs = 3")
LIVE = (
    "create_gym_environment.wrappers = []",
    "create_runner.schedule = 'realtime'",
    "LiveRunner.create_async_runner_fn = @AsyncRunner",
    "AsyncRunner.backend = 'virtual'",
    "AsyncRunner.workers = 2",
    "AsyncRunner.fps = 50",
    "AsyncRunner.latency = 0.03",
    "AsyncRunner.learner_latency = 0.02",
    "AsyncRunner.default_action = 'repeat'",
)


class Effective(DQN):
    """DQN that checks that its batches hold the effects, and learns from the starts."""

    needs_effect = True

    def loss(self, networks: Any, batch: Any, rng: Any) -> Any:
        here, there = batch["observation"], batch["next_observation"]
        assert here["start"].shape == here["effect"].shape == there["start"].shape == there["effect"].shape
        assert (here["start"] != here["effect"]).any()  # under delay
        return super().loss(networks, {**batch, "observation": here["start"], "next_observation": there["start"]}, rng)


@pytest.fixture(autouse=True)
def effective(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(AGENTS, "dqn", Effective)
    yield


def make(base_dir: Path, *bindings: str) -> Any:
    load_gin("configs/dqn/cartpole.gin", bindings=[*SMALL, *bindings])
    return create_runner(base_dir)


@pytest.mark.parametrize("bindings", [DELAY, (*VECTOR, "Runner.exact_resume = True")], ids=["turns", "vector"])
def test_a_run_that_is_continued_equals_one_that_was_not(tmp_path: Path, bindings: tuple[str, ...]) -> None:
    whole = make(tmp_path / "whole", *bindings)
    whole.run_experiment()
    make(tmp_path / "parts", *bindings, "Runner.num_iterations = 1").run_experiment()
    parts = make(tmp_path / "parts", *bindings)
    parts.run_experiment()
    assert whole.agent.updates > 10
    learnt = [
        {"learner": run.agent.learner.state_dict(), "replay": run.agent.learner.replay.state_dict()}
        for run in (whole, parts)
    ]
    assert_identical(*learnt)


def test_the_policy_and_its_learning_are_those_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for kind in (Effective, DQN):
        monkeypatch.setitem(AGENTS, "dqn", kind)
        runner = make(tmp_path / kind.__name__, *DELAY)
        runner.run_experiment()
        found.append(runner.agent.learner.state_dict()["network"])
    assert_identical(*found)


def test_a_live_run_learns_from_the_effects(tmp_path: Path) -> None:
    runner = make(tmp_path, *LIVE)
    before = runner.agent.learner.state_dict()["network"]
    runner.run_experiment()
    assert runner.agent.spec.needs_effect
    assert differs(before, newest_bundle(tmp_path)[1]["learners"][0]["network"])


@pytest.mark.parametrize(
    ("bindings", "words"),
    [
        (
            ("create_gym_environment.wrappers = [@DelayObservation]", "DelayObservation.delay = 2"),
            r"critic_at must be 'start' with agent 'dqn' .* where DelayObservation delays",
        ),
        (
            (*VECTOR, "VectorRunner.create_vector_fn = @create_gym_vector"),
            "VectorRunner.create_vector_fn must be None with agent 'dqn' and critic_at='effect'",
        ),
        ((*LIVE, "DQNAgent.stack_size = 2"), "stack_size must be 1 with agent 'dqn' and critic_at='effect' where"),
    ],
    ids=["another delay", "a vector", "live stacks"],
)
def test_what_reports_no_effect_is_refused_before_anything_is_written(
    tmp_path: Path, bindings: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        make(tmp_path, *bindings)
    assert not list(tmp_path.iterdir())


def test_a_live_runner_of_ones_own_that_takes_no_report_effect_is_refused(tmp_path: Path) -> None:
    def own(make_env: Any, make_policy: Any, *, make_learner: Any, seed: int, extras: Any, features: Any) -> Any:
        raise AssertionError("it is not made")

    runner = make(tmp_path, *LIVE)
    with pytest.raises(ValueError, match=r"^critic_at must be 'start' .* takes no report_effect, got 'effect'"):
        Live(LiveRunner(create_async_runner_fn=own), runner)
