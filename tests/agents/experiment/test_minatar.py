"""The gin files of MinAtar play and learn, with the network of its authors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gin
import pytest
import torch

from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.networks.q_network import count_parameters
from async_wrappers.agents.registry import create_runner
from tests.worlds.experiments import load_gin

SHORT = ("Runner.num_iterations = 1", "Runner.evaluation_steps = 0", "Runner.report_episodes = 0")
FEW = ("VectorRunner.num_envs = 4", "VTraceAgent.batch_size = 2", "Runner.training_steps = 400")


def trained(name: str, base_dir: Path, *bindings: str) -> Any:
    load_gin(f"configs/minatar/{name}.gin", bindings=[*SHORT, *bindings])
    runner = create_runner(base_dir)
    runner.run_experiment()
    return runner


@pytest.mark.parametrize("name", ["dqn", "rainbow"])
def test_agents_of_values_learn_for_some_hundred_frames(name: str, tmp_path: Path) -> None:
    runner = trained(name, tmp_path, "Runner.training_steps = 300", "DQNAgent.min_replay_history = 250")
    assert runner.agent.updates >= 40
    assert read_iterations(tmp_path)[0]["train_average_return"] >= 0


def test_dqn_has_the_settings_and_the_network_of_minatars_authors(tmp_path: Path) -> None:
    load_gin("configs/minatar/dqn.gin", bindings=[*SHORT, "DQNAgent.replay_capacity = 100"])
    agent: Any = create_runner(tmp_path).agent
    assert count_parameters(agent.learner.network) == 16 * (4 * 9 + 1) + 128 * (1024 + 1) + 3 * (128 + 1)
    (group,) = agent.learner.state_dict()["optimizer"]["param_groups"]
    assert agent.learner.optimizer_name == "RMSprop"
    assert {name: group[name] for name in ("lr", "alpha", "eps", "centered")} == {
        "lr": 0.00025,
        "alpha": 0.95,
        "eps": 0.01,
        "centered": True,
    }
    expected = {
        "gamma": 0.99,
        "batch_size": 32,
        "update_period": 1,
        "target_update_period": 1_000,
        "min_replay_history": 5_000,
        "epsilon_train": 0.1,
        "epsilon_decay_period": 100_000,
    }
    assert {name: gin.query_parameter(f"DQNAgent.{name}") for name in expected} == expected


@pytest.mark.parametrize("name", ["vtrace", "vtrace_lstm", "vtrace_chunk"])
def test_vtrace_learns_for_some_hundred_frames(name: str, tmp_path: Path) -> None:
    more = ("VTraceAgent.unroll_length = 4",)  # a decision of a chunk spans eight frames
    runner = trained(name, tmp_path, *FEW, *more)
    assert runner.agent.updates > 0
    network = runner.agent.learner.network
    convolutions = [each for each in network.modules() if isinstance(each, torch.nn.Conv2d)]
    assert [(each.in_channels, each.out_channels, each.kernel_size) for each in convolutions] == [(4, 16, (3, 3))]
    assert (network.state_size > 0) == (name == "vtrace_lstm")
