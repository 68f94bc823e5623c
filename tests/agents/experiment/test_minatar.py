"""The gin files of MinAtar have the settings and the networks of its authors; `test_gin_files` lets them learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gin
import pytest
import torch

from async_wrappers.agents.networks.q_network import count_parameters
from async_wrappers.agents.registry import create_runner
from tests.worlds.experiments import load_gin

SHORT = ("Runner.num_iterations = 1", "Runner.evaluation_steps = 0", "Runner.report_episodes = 0")


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
def test_vtrace_has_the_convolutions_of_minatars_authors(name: str, tmp_path: Path) -> None:
    load_gin(f"configs/minatar/{name}.gin", bindings=[*SHORT, "VectorRunner.num_envs = 4"])
    runner: Any = create_runner(tmp_path)
    network = runner.agent.learner.network
    convolutions = [each for each in network.modules() if isinstance(each, torch.nn.Conv2d)]
    assert [(each.in_channels, each.out_channels, each.kernel_size) for each in convolutions] == [(4, 16, (3, 3))]
    assert (network.state_size > 0) == (name == "vtrace_lstm")


@pytest.mark.parametrize("name", ["impact", "ppo"])
def test_other_actor_critics_see_what_vtrace_sees_that_is_told(name: str, tmp_path: Path) -> None:
    seen = []
    for each in ("vtrace_told", name):
        load_gin(f"configs/minatar/{each}.gin", bindings=[*SHORT, "VectorRunner.num_envs = 4"])
        runner: Any = create_runner(tmp_path / each)
        assert runner.environment.get_wrapper_attr("playout") == 8
        network = runner.agent.learner.network
        network = getattr(network, "network", network)
        seen.append((network.action_window, [layer.weight.shape for layer in network.modules() if _is_layer(layer)]))
    (window, shapes), (other_window, others) = seen
    assert window == other_window == 8 and shapes == others


def _is_layer(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Conv2d | torch.nn.Linear)
