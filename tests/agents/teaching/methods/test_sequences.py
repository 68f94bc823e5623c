"""Students that learn from sequences, V-trace and R2D2: the agent contract, terms by hand, labels, resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from async_wrappers import RealtimeDelay
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.losses.loss import Networks
from async_wrappers.agents.losses.sequences import rescale_inverse
from async_wrappers.agents.losses.teaching import distillation, policy_distillation
from async_wrappers.agents.networks.cores import LSTMCore
from async_wrappers.agents.networks.sequence_network import create_actor_critic, create_recurrent_q_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.spaces.schema import STATE
from async_wrappers.agents.teaching.methods.sequence_students import KickstartingVTrace, QDaggerR2D2
from async_wrappers.agents.teaching.student_progress import LABEL, TeachingPhase
from tests.contracts.agent_contract import WORLDS, AgentContract, World, play
from tests.worlds.experiments import state
from tests.worlds.plain_data import assert_identical
from tests.worlds.teachers import ScriptedTeacher, TaughtEnv, lessons_of, students_runner, taught, teachers_run

SPACES = Box(-np.inf, np.inf, (3,), np.float32), Discrete(3)
RNG = np.random.default_rng(0)


def made(create: Any) -> Any:
    def network(shape: Any, actions: int) -> torch.nn.Module:
        module: torch.nn.Module = create(
            shape, actions, torso=lambda s: MLPTorso(s, (6,)), core=lambda size: LSTMCore(size, 4)
        )
        return module

    return network


SHARED: dict[str, Any] = {
    "stack_size": 2,
    "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.02),
    "device": "cpu",
    "summary_writing_frequency": 1,
}
OWN: dict[Any, dict[str, Any]] = {
    KickstartingVTrace: {"network": made(create_actor_critic), "unroll_length": 5, "batch_size": 2},
    QDaggerR2D2: {
        "network": made(create_recurrent_q_network),
        "burn_in": 2,
        "unroll_length": 5,
        "state_period": 3,
        "batch_size": 4,
        "min_replay_history": 20,
        "update_period": 5,
        "target_update_period": 20,
        "replay_capacity": 400,
    },
}


def student_of(kind: Any, environment: Any, **arguments: Any) -> Any:
    return taught(kind, environment, kind is QDaggerR2D2, **{**SHARED, **OWN[kind], **arguments})


class SequenceStudentContract(AgentContract):
    kind: Any
    arguments: dict[str, Any] = {}

    @pytest.fixture
    def world(self) -> World:
        return WORLDS["delay 2, noops 3"]

    def make_environment(self, **arguments: Any) -> Any:
        return TaughtEnv(**arguments)

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        agent: Agent = student_of(self.kind, environment, seed=seed, **self.arguments)
        return agent


class TestKickstartingVTrace(SequenceStudentContract):
    kind = KickstartingVTrace


class TestQDaggerR2D2(SequenceStudentContract):
    kind = QDaggerR2D2
    arguments = {"min_replay_history": 8}


# What lies beside a transition.


def drawn(agent: Any, environment: Any, episodes: int = 12) -> list[dict[str, Any]]:
    """Play, and return the batches that were learnt from."""
    batches = []
    sample = agent.learner.source.sample

    def noted() -> Any:
        batches.append(sample())
        return batches[-1]

    agent.learner.source.sample = noted
    play(agent, environment, range(episodes))
    return batches


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("delay", [None, (2, 3)])
def test_a_label_is_of_the_decisions_observation_beside_what_the_policy_leaves(kind: Any, delay: Any) -> None:
    env: Any = TaughtEnv()
    env = env if delay is None else RealtimeDelay(env, *delay, "random")
    batches = drawn(student_of(kind, env), env)
    assert len(batches) > 2 and any((batch["mask"] == 0).any() for batch in batches)
    for batch in batches:
        assert np.abs(batch[STATE]).sum() >= 0 and ("logits" in batch["extras"]) == (kind is KickstartingVTrace)
        rows = batch["mask"] > 0
        newest = batch["observation"][1:-1]  # of a stack of 2
        labels = ScriptedTeacher().values(newest.reshape(-1, 1, 3)).reshape(*rows.shape, 3)
        np.testing.assert_array_equal(batch["extras"][LABEL][rows], labels[rows])


def test_r2d2_is_taught_from_sequences_that_the_teacher_played() -> None:
    env = TaughtEnv()
    agent = student_of(QDaggerR2D2, env)
    lessons_of(agent).begin_phase(TeachingPhase.COLLECT)
    actions = play(agent, env, range(8))
    for life, chosen in zip(env.lives, actions, strict=True):
        best = ScriptedTeacher().values(np.array(life.observations[:-1])[:, None]).argmax(1)
        assert chosen == best.tolist()
    assert not len(agent.learner.replay)
    lessons_of(agent).begin_phase(TeachingPhase.OFFLINE)
    for _ in range(3):
        lessons_of(agent).learn_offline()
    assert agent.updates == 3 and {"DistillLoss", "StudentLoss", "TeacherLoss"} <= agent.learner.scalars.keys()


# The terms by hand.


class Counted:
    """A network that counts its calls."""

    def __init__(self, network: Any) -> None:
        self.network, self.calls = network, 0

    def __call__(self, *inputs: Any) -> Any:
        self.calls += 1
        return self.network(*inputs)


def a_batch(kind: Any) -> tuple[Any, Any, Any]:
    """A spec, its network, and a batch of tensors with a row that is no decision and one without a label."""
    env = TaughtEnv()
    agent = student_of(kind, env)
    arrays = drawn(agent, env)[0]
    arrays = {**arrays, "mask": arrays["mask"].copy(), "extras": dict(arrays["extras"])}
    arrays["mask"][3, 0] = 0
    labels = arrays["extras"][LABEL] = arrays["extras"][LABEL].copy()
    labels[4, 1] = np.nan
    batch = agent.learner.tensors(arrays)
    return agent.spec, agent.learner.network, batch


def test_vtraces_term_is_a_mean_over_decisions_and_the_network_is_run_once() -> None:
    spec, network, batch = a_batch(KickstartingVTrace)
    spec.distill_loss_coefficient, spec.distill_temperature = 2.0, 0.5
    inputs = [batch[name] for name in ("observation", "previous_action", "previous_reward", "first", STATE)]
    (logits, _), _ = network(*inputs)
    mask, labels = batch["mask"], batch["extras"][LABEL]
    expected = 0.0
    for t in range(5):
        for b in range(2):
            if mask[t, b] and torch.isfinite(labels[t, b]).all():
                expected += policy_distillation(labels[t, b][None], logits[t, b][None], 0.5).item()
    expected /= mask.sum().item()
    assert expected > 0
    spec.teaching.weight = 0.25
    counted = Counted(network)
    output = spec.loss(Networks(counted, None), batch, RNG)  # type: ignore[arg-type]
    own = VTrace.loss(spec, Networks(network, None), batch, RNG)  # type: ignore[arg-type]
    assert (output.loss.mean() - own.loss.mean()).item() == pytest.approx(0.25 * 2.0 * expected, rel=1e-4)
    assert counted.calls == 1


def test_r2d2s_term_is_of_the_values_before_their_rescaling_after_the_burn_in() -> None:
    spec, network, batch = a_batch(QDaggerR2D2)
    spec.distill_loss_coefficient, spec.distill_temperature = 2.0, 0.5
    q = spec.unrolled_values(network, batch)
    mask, labels = batch["mask"], batch["extras"][LABEL]
    expected = torch.zeros(4)
    for t in range(2, 7):
        for b in range(4):
            if mask[t, b] and torch.isfinite(labels[t, b]).all():
                values = rescale_inverse(q[t - 2, b], 1e-3)[None]
                expected[b] += distillation(labels[t, b][None], values, 0.5).item()
    assert expected.min() > 0
    spec.teaching.weight = 0.25
    counted, target = Counted(network), Counted(network)
    output = spec.loss(Networks(counted, target), batch, RNG)
    own = R2D2.loss(spec, Networks(network, network), batch, RNG)
    torch.testing.assert_close(output.loss, own.loss + 0.25 * 2.0 * expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(output.priority, own.priority)  # type: ignore[arg-type]
    assert (counted.calls, target.calls) == (2, 1)  # over the burn-in, over the unroll


# Runs, and what is refused.

QUICK = (
    "R2D2Agent.min_replay_history = 20",
    "R2D2Agent.burn_in = 2",
    "R2D2Agent.unroll_length = 5",
    "R2D2Agent.state_period = 4",
    "R2D2Agent.batch_size = 4",
    "VTraceAgent.unroll_length = 5",
    "LSTMCore.hidden = 4",
    "create_gym_environment.wrappers = [@RealtimeDelay]",
    "RealtimeDelay.delay = 0",
    "RealtimeDelay.noops = 0",
    "Runner.evaluation_episodes = None",
)
FILES = {"kickstarting_vtrace_cartpole": 0, "qdagger_r2d2_cartpole": 60}  # frames of collecting


@pytest.fixture(scope="module")
def teacher_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    threads = torch.get_num_threads()
    path = teachers_run(tmp_path_factory.mktemp("teacher") / "run", "Runner.num_iterations = 1")
    torch.set_num_threads(threads)
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_run_resumes_bit_for_bit_in_each_phase(name: str, teacher_dir: Path, tmp_path: Path) -> None:
    collects = FILES[name]
    bindings = (
        *QUICK,
        f"RunnerWithTeacher.teacher_steps = {collects}",
        f"RunnerWithTeacher.num_pretraining_iterations = {int(collects > 0)}",
        *(["QDaggerR2D2Agent.teacher_replay_scheme = 'prioritized'"] * bool(collects)),
    )
    states = []
    for directory, stops in (("whole", ()), ("parts", (1, 2, 3) if collects else (1,))):
        for stop in stops:
            part = students_runner(tmp_path / directory, teacher_dir, *bindings, gin_file=name)
            part.num_iterations = stop
            part.run_experiment()
        runner = students_runner(tmp_path / directory, teacher_dir, *bindings, gin_file=name)
        runner.run_experiment()
        states.append({**state(runner), "teaching": vars(lessons_of(runner.agent).teaching)})
    assert_identical(*states)
    phases = ["collect", "offline"] * bool(collects) + ["online", "online"]
    lines = read_iterations(tmp_path / "whole")
    assert [line["phase"] for line in lines] == phases and lines[-1]["train_updates"] > 0


@pytest.mark.parametrize(
    ("name", "bindings", "message"),
    [
        (
            "kickstarting_vtrace_cartpole",
            ["RunnerWithTeacher.teacher_steps = 0", "RunnerWithTeacher.num_pretraining_iterations = 1"],
            "must be 0 with agent 'kickstarting_vtrace', which learns once from what its own .* got 0 and 1",
        ),
        ("kickstarting_vtrace_cartpole", [], "must be 0 with agent 'kickstarting_vtrace'"),
        (
            "qdagger_r2d2_cartpole",
            ["RunnerWithTeacher.teacher_steps = 0"],
            "teacher_steps must be >= 1 frame with agent 'qdagger_r2d2' and offline updates: it learns from sequences",
        ),
        (
            "qdagger_r2d2_cartpole",
            ["R2D2Agent.learning_rate_decay = 50"],
            "learning_rate_decay must be None with agent 'qdagger_r2d2', whose learning rate follows lambda",
        ),
        (
            "kickstarting_vtrace_cartpole",
            ["KickstartingVTraceAgent.teacher_replay_scheme = 'prioritized'"],
            "teacher_replay_scheme must be 'uniform' with agent 'kickstarting_vtrace', which has no replay, got 'prio",
        ),
        (
            "kickstarting_vtrace_cartpole",
            ["KickstartingVTraceAgent.distill_temperature = 0.0"],
            "distill_temperature must be > 0, got 0.0",
        ),
        (
            "kickstarting_vtrace_cartpole",
            ["KickstartingVTraceAgent.distill_loss_coefficient = -1.0"],
            "distill_loss_coefficient must be >= 0 and finite, got -1.0",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    name: str, bindings: list[str], message: str, teacher_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        students_runner(tmp_path, teacher_dir, *QUICK, *bindings, gin_file=name)
