"""Agents with a fast path, in every way of playing: they train, go on, and act alike in turn and among others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.experiment.checkpoint import newest_bundle
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.experiment.pretraining import Pretraining
from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.registry import create_runner
from tests.worlds.experiments import load_gin, timeless
from tests.worlds.plain_data import assert_identical, differs

SMALL = (
    "MLPTorso.hidden = (8,)",
    "Runner.num_iterations = 2",
    "Runner.training_episodes = 5",
    "Runner.evaluation_episodes = 2",
    "Runner.report_episodes = 0",
    "Runner.max_steps_per_episode = 40",
    "Runner.exact_resume = True",
    "create_gym_environment.wrappers = [@RealtimeDelay]",
    "RealtimeDelay.delay = 3",
    "RealtimeDelay.default_action = 'repeat'",
    "VTraceAgent.unroll_length = 5",
    "VTraceAgent.batch_size = 4",
    "ImpactAgent.unroll_length = 5",
    "ImpactAgent.batch_size = 4",
    "PPOAgent.update_period = 20",
    "PPOAgent.batch_size = 10",
    "PPOAgent.unroll_length = 5",
    "PPOAgent.num_epochs = 2",
    "R2D2Agent.min_replay_history = 40",
    "R2D2Agent.batch_size = 4",
    "R2D2Agent.burn_in = 2",
    "R2D2Agent.unroll_length = 6",
    "R2D2Agent.state_period = 4",
    "R2D2Agent.update_period = 8",
    "R2D2Agent.replay_capacity = 1_000",
    "LSTMCore.hidden = 6",
    "SACAgent.min_replay_history = 40",
    "SACAgent.random_frames = 40",
    "SACAgent.batch_size = 8",
    "SACAgent.hidden_units = 8",
    "SACAgent.update_period = 8",
    "SACAgent.replay_capacity = 1_000",
)
AGENTS = {
    "vtrace": ("configs/vtrace/cartpole.gin", "create_actor_critic"),
    "impact": ("configs/impact/cartpole.gin", "create_actor_critic"),
    "ppo": ("configs/ppo/cartpole.gin", "create_policy_value_network"),
    "r2d2": ("configs/r2d2/cartpole_no_velocity.gin", "create_recurrent_q_network"),
    "sac": ("configs/sac/pendulum_delay.gin", "create_box_actor_critic"),
}
STEPS = ("Runner.training_episodes = None", "Runner.training_steps = 100")
LIVE = (
    *STEPS,
    "create_gym_environment.wrappers = []",
    "create_runner.schedule = 'realtime'",
    "LiveRunner.create_async_runner_fn = @AsyncRunner",
    "AsyncRunner.backend = 'virtual'",
    "AsyncRunner.workers = 2",
    "AsyncRunner.fps = 50",
    "AsyncRunner.latency = 0.03",
    "AsyncRunner.learner_latency = 0.04",
    "AsyncRunner.default_action = 'repeat'",
    "Runner.exact_resume = False",
)


CHUNKS = "Chunk.length = 5", "create_actor_critic.action_window = None"
LOCKSTEP = (
    "VectorRunner.num_envs = 3",
    "VectorRunner.create_vector_fn = @create_gym_vector",
    "create_gym_vector.environment_id = 'CartPole-v1'",
    "create_gym_vector.wrappers = [@VectorRealtimeDelay]",
    "VectorRealtimeDelay.delay = 3",
    "VectorRealtimeDelay.default_action = 'repeat'",
)


def make(base_dir: Path, agent: str, schedule: str, *bindings: str, age: int = 1) -> Any:
    file, network = AGENTS[agent]
    fast = f"{network}.fast = @fast/MLPTorso", "fast/MLPTorso.hidden = (4,)", f"{network}.fast_age = {age}"
    own: tuple[str, ...] = (f"{network}.action_window = 3",)
    if agent == "sac":  # whose episodes have 40 frames each
        own = "SACAgent.action_window = 3", "Runner.training_episodes = 3"
    schedule = f"create_runner.schedule = {schedule!r}"
    load_gin(file, bindings=[*SMALL, *fast, *own, schedule, *bindings])
    return create_runner(base_dir)


def learnt(runner: Any) -> dict[str, Any]:
    learner = runner.agent.learner
    return {"learner": learner.state_dict(), "replay": learner.replay.state_dict()}


@pytest.mark.parametrize("agent", AGENTS)
def test_one_environment_is_the_turn_based_run_which_goes_on_as_if_uninterrupted(tmp_path: Path, agent: str) -> None:
    whole = make(tmp_path / "whole", agent, "continuous_train_and_eval")
    whole.run_experiment()
    assert whole.agent.updates > 3 and whole.agent.spec.fast_age == 1
    make(tmp_path / "parts", agent, "continuous_train_and_eval", "Runner.num_iterations = 1").run_experiment()
    parts = make(tmp_path / "parts", agent, "continuous_train_and_eval")
    parts.run_experiment()
    assert_identical(learnt(parts), learnt(whole))
    one = make(tmp_path / "one", agent, "vector", "VectorRunner.num_envs = 1", "VectorRunner.evaluation_envs = 1")
    one.run_experiment()
    assert_identical(learnt(one), learnt(whole))
    if agent == "sac":
        return  # the returns of many environments are sums of rewards in float32
    for line, other in zip(*map(read_iterations, (one.base_dir, whole.base_dir)), strict=True):
        # Frames up to the first landing are played in a reset, which many environments have done at a checkpoint.
        names = [name for name in timeless(other) if name not in ("frames", "train_actions_per_frame")]
        assert {name: line[name] for name in names} == {name: other[name] for name in names}


def test_decisions_by_held_features_train_alike_in_turn_and_among_many(tmp_path: Path) -> None:
    held = "RealtimeDelay.noops = 3", "RealtimeDelay.max_features_age = 5"  # three frames of four
    turns = make(tmp_path / "turns", "vtrace", "continuous_train_and_eval", *held)
    turns.run_experiment()
    one = make(
        tmp_path / "one", "vtrace", "vector", *held, "VectorRunner.num_envs = 1", "VectorRunner.evaluation_envs = 1"
    )
    one.run_experiment()
    assert turns.agent.updates > 3
    assert_identical(learnt(one), learnt(turns))


@pytest.mark.parametrize("agent", AGENTS)
def test_a_run_of_many_environments_goes_on_as_if_uninterrupted(tmp_path: Path, agent: str) -> None:
    def run(directory: str, iterations: int) -> Any:
        runner = make(
            tmp_path / directory,
            agent,
            "vector",
            "VectorRunner.num_envs = 3",
            *STEPS,
            f"Runner.num_iterations = {iterations}",
        )
        runner.run_experiment()
        return runner

    whole = run("whole", 2)
    run("parts", 1)
    assert_identical(learnt(run("parts", 2)), learnt(whole))
    assert whole.agent.updates > 3


@pytest.mark.parametrize("agent", ["vtrace", "ppo", "r2d2"])
def test_a_vector_in_lockstep_trains_and_goes_on_as_if_uninterrupted(tmp_path: Path, agent: str) -> None:
    def run(directory: str, iterations: int) -> Any:
        number = f"Runner.num_iterations = {iterations}"
        runner = make(tmp_path / directory, agent, "vector", *STEPS, *LOCKSTEP, number)
        runner.run_experiment()
        return runner

    whole = run("whole", 2)
    run("parts", 1)
    assert_identical(learnt(run("parts", 2)), learnt(whole))
    assert whole.agent.updates > 3


@pytest.mark.parametrize("agent", AGENTS)
def test_both_halves_learn_in_a_live_run(tmp_path: Path, agent: str) -> None:
    runner = make(tmp_path, agent, "continuous_train", *LIVE)
    before = runner.agent.learner.state_dict()["network"]
    runner.run_experiment()
    after = newest_bundle(tmp_path)[1]["learners"][0]["network"]
    for part in ("actor.head.",) if agent == "sac" else ("torso.", "fast."):
        names = [name for name in before if part in name]
        assert names and all(differs(before[name], after[name]) for name in names)


@pytest.mark.parametrize(
    ("schedule", "bindings", "words"),
    [
        (
            "continuous_train",
            ("RealtimeDelay.default_action = @Chunk()", *CHUNKS),
            "fast_age must not be given where actions are chunks, whose later actions land on frames that are not",
        ),
        (
            "realtime",
            (*LIVE, "AsyncRunner.default_action = @Chunk()", *CHUNKS),
            "fast must be None with agent 'vtrace' where actions are chunks, whose later actions land on frames that",
        ),
        (
            "continuous_train",
            ("RealtimeDelay.max_features_age = 3",),
            "max_features_age must be > 3, the age in frames of features when their action lands, got 3",
        ),
        (
            "realtime",
            (*LIVE, "AsyncRunner.max_features_age = 0"),
            "max_features_age must be a whole number >= 1, or None, got 0",
        ),
        (
            "continuous_train",
            ("RealtimeDelay.max_features_age = 9", "create_actor_critic.fast = None"),
            "max_features_age must be None with agent 'vtrace' without a fast path, which reads nothing new, got 9",
        ),
        (
            "realtime",
            (*LIVE, "AsyncRunner.max_features_age = 9", "create_actor_critic.fast = None"),
            r"max_features_age must be None with a policy without a fast path \(fast_age\), which reads nothing new",
        ),
        (
            "continuous_train",
            ("create_actor_critic.fast = 'nature'",),
            r"observation_shape must be \[C, H, W\], .*, got \[1, 4\]",
        ),
        ("continuous_train", ("RealtimeDelay.delay = 0",), r"fast_age must be <= 0, the frames of the delay, .* got 1"),
        (
            "continuous_train",
            ("create_gym_environment.wrappers = []",),
            "fast_age must be 0 where nothing delays actions, got 1",
        ),
        (
            "vector",
            (*LOCKSTEP, "RealtimeDelay.delay = 0", "VectorRealtimeDelay.delay = 0"),
            r"fast_age must be <= 0, the frames of the delay, .* got 1",
        ),
        (
            "vector",
            (*LOCKSTEP, "create_gym_environment.wrappers = []", "create_gym_vector.wrappers = []"),
            "fast_age must be 0 where nothing delays actions, got 1",
        ),
        (
            "continuous_train",
            ("create_gym_environment.wrappers = [@DelayObservation]", "DelayObservation.delay = 2"),
            "fast must be None where DelayObservation delays, which shows no fresh observations, got a fast path",
        ),
        (
            "continuous_train",
            ("create_gym_environment.wrappers = [@RealtimeDelay, @CommittedActions]", "CommittedActions.length = 2"),
            "fast must be None where CommittedActions changes observations outside the delay",
        ),
        (
            "realtime",
            (*LIVE, "VTraceAgent.stack_size = 2"),
            "stack_size must be 1 with agent 'vtrace' and a fast path where",
        ),
    ],
    ids=[
        *("chunks", "live chunks", "young features", "no features", "no fast path", "none live", "another space"),
        *("older", "no delay", "older, a vector", "no delay, a vector", "another delay", "wrapped", "live stacks"),
    ],
)
def test_what_shows_nothing_fresh_is_refused(tmp_path: Path, schedule: str, bindings: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        make(tmp_path, "vtrace", schedule, *bindings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("schedule", "bindings"), [("vector", ("VectorRunner.num_envs = 2",)), ("realtime", LIVE)])
def test_a_teacher_elsewhere_than_in_turn_is_refused(tmp_path: Path, schedule: str, bindings: Any) -> None:
    runner = make(tmp_path, "vtrace", schedule, *bindings)
    with pytest.raises(ValueError, match=r"^fast must be None with agent 'vtrace' and a teacher .*: teach it in turn$"):
        runner.play.teach(Lesson(None))


def test_demonstrations_are_refused(tmp_path: Path) -> None:
    runner = make(tmp_path, "sac", "continuous_train", "SACAgent.action_window = None")
    with pytest.raises(ValueError, match=r"is for an agent that reads what a demonstration holds, .* has a fast path"):
        Pretraining("ds", 1).load(runner.agent, runner.settings.create_environment_fn, 0)


@pytest.mark.parametrize("acts", ["Hosts.block_length = 1", "Hosts.inference = 'learner'"])
def test_one_host_plays_as_many_environments_do(tmp_path: Path, acts: str) -> None:
    many = (*STEPS, "VectorRunner.num_envs = 3", "Runner.evaluation_episodes = 0")
    here = make(tmp_path / "here", "vtrace", "vector", *many)
    here.run_experiment()
    one = "Hosts.engine = 'local'", "Hosts.num_hosts = 1", acts
    hosted = make(tmp_path / "hosted", "vtrace", "hosts", *many, *one)
    hosted.run_experiment()
    assert here.agent.updates > 3
    assert_identical(hosted.agent.learner.state_dict(), here.agent.learner.state_dict())
