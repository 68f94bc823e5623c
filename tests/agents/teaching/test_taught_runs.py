"""Runs of students in each way of playing: phases, labels, lambda, and going on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.contracts.taught_run_contract import TaughtRunContract
from tests.worlds.teachers import teachers_run

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


class TestManyInProcesses(TaughtRunContract):
    bindings = (*MANY, *DELAYED, "VectorRunner.processes = 2")


class TestTwoLearners(TaughtRunContract):
    bindings = (*MANY, "VectorRunner.learners = 2")
    learners = 2


class TestHosts(TaughtRunContract):
    bindings = (*ON_HOSTS, *DELAYED)


class TestHostsThatStep(TaughtRunContract):
    bindings = (*ON_HOSTS, "Hosts.inference = 'learner'")
