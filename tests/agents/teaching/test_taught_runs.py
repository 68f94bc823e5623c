"""Runs of students in each way of playing: phases, labels, lambda, and going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from async_wrappers import AsyncRunner
from async_wrappers.agents.experiment.metrics import Metrics, read_iterations
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.teaching.student_lessons import with_labels
from async_wrappers.agents.teaching.student_progress import LABEL
from tests.contracts.taught_run_contract import TaughtRunContract
from tests.worlds.event_files import scalars
from tests.worlds.experiments import QUICK_LIVE, build_live, load_gin
from tests.worlds.teachers import ScriptedTeacher, students_runner, teachers_run

MANY = (
    "create_runner.schedule = 'vector'",
    "Runner.evaluation_episodes = 2",
    "VectorRunner.num_envs = 4",
    "VectorRunner.evaluation_envs = 2",
)
DELAYED = (
    "create_gym_environment.wrappers = [@RealtimeDelay]",
    "RealtimeDelay.delay = 2",
    "RealtimeDelay.noops = 1",
)
ON_HOSTS = (*MANY, "create_runner.schedule = 'hosts'", "Hosts.num_hosts = 2", "Hosts.engine = 'local'")


@pytest.fixture(scope="module")
def teacher_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    threads = torch.get_num_threads()
    path = teachers_run(tmp_path_factory.mktemp("teacher") / "run", "Runner.num_iterations = 1")
    torch.set_num_threads(threads)
    return path


class TestInTurn(TaughtRunContract):
    bindings = ("Runner.num_iterations = 2",)


class TestInTurnUnderDelay(TaughtRunContract):
    bindings = DELAYED


class TestOneOfMany(TaughtRunContract):
    bindings = (*MANY, "VectorRunner.num_envs = 1", "VectorRunner.evaluation_envs = 1")


class TestMany(TaughtRunContract):
    bindings = MANY


class TestManyUnderDelay(TaughtRunContract):
    bindings = (*MANY, *DELAYED, "DQNAgent.stack_size = 1")


@pytest.mark.usefixtures("children_of_a_server")
class TestTwoLearners(TaughtRunContract):
    bindings = (*MANY, "VectorRunner.learners = 2")
    learners = 2


class TestHosts(TaughtRunContract):
    bindings = (*ON_HOSTS, *DELAYED)


class TestHostsThatStep(TaughtRunContract):
    bindings = (*ON_HOSTS, "Hosts.inference = 'learner'")


# What only some can do.


class _InProcesses(TaughtRunContract):
    bindings = (*MANY, *DELAYED, "VectorRunner.processes = 2")


@pytest.mark.usefixtures("children_of_a_server")
def test_views_come_from_environments_in_processes(teacher_dir: Path, tmp_path: Path) -> None:
    _InProcesses().test_the_phases_and_what_they_leave(teacher_dir, tmp_path)


LIVE = (
    *("AsyncRunner.backend = 'virtual'", "AsyncRunner.fps = 50", "AsyncRunner.latency = 0.03"),
    *("AsyncRunner.learner_latency = 0.015", "Runner.num_iterations = 2"),
    "create_agent.agent_name = 'qdagger_dqn'",
    "QDaggerDQNAgent.method_type = 'ql_plus_dagger'",
    "RunnerWithTeacher.teacher_checkpoint_dir = 'cartpole'",
    "RunnerWithTeacher.num_pretraining_iterations = 0",
)


def test_a_student_learns_live_from_labels_of_the_batches_that_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags: set[str] = set()
    monkeypatch.setattr(Metrics, "scalar", lambda self, tag, value, frames: tags.add(tag))
    runner: Any = build_live(tmp_path, *LIVE, "DQNAgent.summary_writing_frequency = 10")
    runner.run_experiment()
    lines = read_iterations(tmp_path)
    assert [line["phase"] for line in lines] == ["online"] * 2
    assert all(line["teacher_weight"] == 1 and "eval_normalized_score" in line for line in lines)
    assert lines[-1]["train_updates"] > 50
    assert {"DistillLoss", "StudentLoss", "TeacherLoss"} <= tags


LEAVES = tuple(line for line in LIVE if not line.startswith(("create_agent", "QDagger")))


@pytest.mark.parametrize(
    ("name", "agent", "bindings"),
    [
        ("cartpole", "qdagger_dqn", ("QDaggerDQNAgent.distill_decay_period = 100",)),
        ("cartpole", "qdagger_dqn", ("QDaggerDQNAgent.distill_decay_period = 100", "AsyncRunner.learners = 2")),
        ("cartpole", "dqfd_dqn", ("DQfDAgent.decay_period = 100", "DQfDAgent.lr_decay = True")),
        ("cartpole_vtrace", "kickstarting_vtrace", ("KickstartingVTraceAgent.distill_decay_period = 100",)),
        ("cartpole_vtrace", "kickstarting_ppo", ("KickstartingPPOAgent.distill_decay_period = 100",)),
    ],
)
def test_a_live_student_leaves_its_teacher_in_time(
    name: str, agent: str, bindings: tuple[str, ...], tmp_path: Path
) -> None:
    def make(*more: str) -> Any:
        chosen = f"create_agent.agent_name = '{agent}'"
        short = ("VTraceAgent.unroll_length = 5", "PPOAgent.update_period = 64", "PPOAgent.unroll_length = 1")
        load_gin(f"configs/live/{name}.gin", bindings=[*QUICK_LIVE, *LEAVES, chosen, *bindings, *short, *more])
        return create_runner(tmp_path)

    make("Runner.num_iterations = 1").run_experiment()
    runner = make()
    runner.run_experiment()  # lambda is in the checkpoint
    first, second = read_iterations(tmp_path)
    assert (first["teacher_weight"], second["teacher_weight"]) == (1.0, 0.0)
    assert first["train_updates"] > 0 and second["train_updates"] > 0
    found = scalars(tmp_path)
    taught = found["MarginLoss" if agent == "dqfd_dqn" else "DistillLoss"]
    assert max(step for step, _ in taught) <= first["frames"] < max(step for step, _ in found["LearningRate"])
    assert runner.agent.lessons.teaching.online_steps == first["train_actions"] + second["train_actions"]
    if agent == "dqfd_dqn":  # its rate follows lambda
        (_, before), *_, (_, after) = found["LearningRate"]
        assert before != after


def test_labels_at_draw_are_the_teachers_values_of_each_row_and_sequence() -> None:
    teacher = ScriptedTeacher()
    rows = np.arange(12, dtype=np.float32).reshape(4, 1, 3) / 10
    batch = with_labels(dict, teacher, {"observation": rows, "extras": {"other": 1}})
    np.testing.assert_array_equal(batch["extras"][LABEL], teacher.values(rows))
    assert batch["extras"]["other"] == 1
    sequences = np.arange(36, dtype=np.float32).reshape(4, 3, 3) / 10  # T + 1 rows of B sequences
    given = {"observation": sequences, "mask": np.ones((3, 3)), "first": np.zeros((4, 3), bool)}
    labels = with_labels(dict, teacher, given)["extras"][LABEL]
    for t in range(3):
        np.testing.assert_array_equal(labels[t], teacher.values(sequences[t][:, None]))


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (["create_agent.agent_name = 'jsrl_dqn'"], "'jsrl_dqn' must learn from its teacher's labels alone where"),
        (["create_agent.agent_name = 'reloaded_dqn'"], "'reloaded_dqn' must learn from its teacher's labels alone"),
        (["RunnerWithTeacher.label_at = 'effect'"], "the teacher must read what its student reads where create_runner"),
        (["RunnerWithTeacher.teacher_steps = 10", "RunnerWithTeacher.num_pretraining_iterations = 1"],
         "teacher_steps, num_pretraining_iterations and teacher_data_ratio must be 0 where create_runner"),
    ],
)  # fmt: skip
def test_what_cannot_be_taught_live_is_refused(bindings: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        build_live(tmp_path, *LIVE, *bindings).resume()


def test_a_live_runner_that_tells_its_learners_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncRunner, "offers", AsyncRunner.offers - {"tell"})
    with pytest.raises(ValueError, match=r"^LiveRunner.create_async_runner_fn must make a runner with tell\(facts\)"):
        build_live(tmp_path, *LEAVES, "create_agent.agent_name = 'qdagger_dqn'").resume()


def test_a_vector_that_shows_no_teacher_what_it_reads_is_refused(teacher_dir: Path, tmp_path: Path) -> None:
    bindings = (
        *(
            *MANY,
            "VectorRunner.create_vector_fn = @create_gym_vector",
            "create_gym_vector.environment_id = 'CartPole-v1'",
        ),
        "create_gym_environment.environment_id = 'CartPole-v1'",
        "RunnerWithTeacher.teacher_checkpoint_dir = 'cartpole'",
        "RunnerWithTeacher.num_pretraining_iterations = 0",
        "DQNAgent.stack_size = 2",
        "create_gym_environment.wrappers = []",
    )
    load_gin("configs/reincarnation/qdagger_dqn_cartpole.gin", bindings=bindings)
    with pytest.raises(ValueError, match="create_vector_fn must be None where the teacher reads something else"):
        create_runner(tmp_path).resume()


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (
            ["VectorRunner.learners = 2", "RunnerWithTeacher.teacher_steps = 0"],
            "teacher_steps must be >= 1 frame where VectorRunner.learners = 2, each of which learns from what its own",
        ),
        (
            ["create_agent.agent_name = 'reloaded_dqn'", "RunnerWithTeacher.teacher_steps = 0"],
            "load_replay must be False with agent 'reloaded_dqn' and VectorRunner.num_envs = 4, whose replay has",
        ),
    ],
)
def test_what_one_learner_alone_can_take_over_is_refused(
    bindings: list[str], message: str, teacher_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        students_runner(tmp_path, teacher_dir, *MANY, *bindings).resume()
