"""Every gin file of a student runs a hundred frames with a small teacher, and the seed's commands have counterparts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gin
import pytest
import torch

from async_wrappers.agents.config.config import save_config
from async_wrappers.agents.experiment.closing_report import compare_with_baselines, table
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.networks.q_network import count_parameters
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.teaching.student import Student
from async_wrappers.agents.teaching.teaching import Reincarnation
from tests.worlds.atari_games import games_loaded_once
from tests.worlds.experiments import load_gin
from tests.worlds.teachers import MODULES

__all__ = ["games_loaded_once"]

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("games_loaded_once")
ALL = sorted(path.stem for path in (ROOT / "configs" / "reincarnation").glob("*.gin"))
FILES = [name for name in ALL if "minatar" not in name]  # whose teacher ships
# And the file of their teacher.
GAMES = {"cartpole": "dqn/cartpole", "kung_fu_master": "dqn/kung_fu_master", "atari": "dqn/atari"}
QUICK = (
    *(f"import {module.__name__}" for module in MODULES),
    "Runner.num_iterations = 1",
    "Runner.training_steps = 100",
    "Runner.evaluation_steps = 10",
    "Runner.evaluation_episodes = None",
    "Runner.max_steps_per_episode = 100",  # few episodes: an Atari game takes a while to begin
    "Runner.report_episodes = 1",
    "DQNAgent.min_replay_history = 16",
    "R2D2Agent.min_replay_history = 32",
    "DQNAgent.replay_capacity = 1_000",
    "DQNAgent.batch_size = 2",
    "create_network.torso = @MLPTorso",
    "MLPTorso.hidden = (8,)",
)


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A teacher of each game, as its file makes it, after a hundred frames."""
    threads = torch.get_num_threads()
    made = {}
    for game, gin_file in GAMES.items():
        base_dir = made[game] = tmp_path_factory.mktemp(game)
        load_gin(f"configs/{gin_file}.gin", bindings=QUICK)
        runner = create_runner(base_dir)
        save_config(base_dir)
        runner.run_experiment()
        gin.clear_config()
    torch.set_num_threads(threads)
    return made


def game_of(name: str) -> str:
    return next((game for game in GAMES if game in name), "atari")


def test_there_is_a_file_for_each_of_the_seeds() -> None:
    seeds = ("dqfd_dqn", "jsrl_dqn", "kickstarting_dqn", "pretrained_dqn", "qdagger_dqn", "reloaded_dqn")
    assert {
        *seeds,
        "reloaded_dqn_nature",
        "qdagger_rainbow",
        "qdagger_drq",
        *(f"{name}_cartpole" for name in seeds),
    } <= {*FILES}


@pytest.mark.parametrize("name", FILES)
def test_a_file_runs_a_hundred_frames_and_to_its_closing_table(
    name: str, teachers: dict[str, Path], tmp_path: Path
) -> None:
    bindings = [*QUICK, f"RunnerWithTeacher.teacher_checkpoint_dir = '{teachers[game_of(name)]}'"]
    load_gin(f"configs/reincarnation/{name}.gin", bindings=bindings)
    offline = gin.query_parameter("RunnerWithTeacher.num_pretraining_iterations")
    small = [*bindings, f"RunnerWithTeacher.num_pretraining_iterations = {min(offline, 1)}"]
    if collects := _bound("RunnerWithTeacher.teacher_steps"):
        small.append("RunnerWithTeacher.teacher_steps = 60")
    if _bound("RunnerWithTeacher.num_pretraining_steps"):
        small.append("RunnerWithTeacher.num_pretraining_steps = 3")
    if "nature" in name:  # whose teacher has another optimiser
        small.append("ReloadedDQNAgent.reload_optimizer = False")
    load_gin(f"configs/reincarnation/{name}.gin", bindings=small)
    runner = create_runner(tmp_path)
    assert isinstance(runner.teaching, Reincarnation)
    runner.run_experiment()
    lines = read_iterations(tmp_path)
    assert [line["phase"] for line in lines] == ["collect"] * bool(collects) + ["offline"] * min(offline, 1) + [
        "online"
    ]
    assert lines[-1]["frames"] >= 100 and lines[-1]["train_updates"] > 0
    assert "trained minus this" in table(compare_with_baselines(runner))


def _bound(parameter: str) -> Any:
    """What gin binds a parameter to; None for nothing."""
    try:
        return gin.query_parameter(parameter)
    except ValueError:
        return None


@pytest.mark.parametrize("name", [name for name in FILES if game_of(name) == "atari"])
def test_on_atari_a_student_has_the_network_of_its_agent_without_a_teacher(name: str, tmp_path: Path) -> None:
    load_gin(f"configs/reincarnation/{name}.gin", bindings=["DQNAgent.replay_capacity = 1_000"])
    runner = create_runner(tmp_path)
    assert isinstance(runner.agent.spec, Student)
    weights = {"qdagger_rainbow": 4_200_402, "qdagger_drq": 4_047_015}
    assert count_parameters(runner.agent.learner.network) == weights.get(name, 4_046_502)


def test_a_student_of_an_agent_that_ships_learns_on_many_environments(tmp_path: Path) -> None:
    small = (
        "VectorRunner.num_envs = 4",
        "VectorRunner.evaluation_envs = 2",
        "VTraceAgent.batch_size = 2",
        "LSTMCore.hidden = 8",
        "Runner.num_iterations = 1",
        "Runner.training_steps = 200",
        "Runner.evaluation_steps = 10",
        "create_minatar_environment.max_episode_steps = 40",
    )
    load_gin("configs/reincarnation/kickstarting_vtrace_minatar.gin", bindings=small)
    runner = create_runner(tmp_path)
    assert isinstance(runner.teaching, Reincarnation)
    runner.run_experiment()
    (line,) = read_iterations(tmp_path)
    assert line["phase"] == "online" and line["frames"] >= 200 and line["train_updates"] > 2
    assert runner.teaching.teacher is not None and runner.teaching.teacher.identity()["agent"] == "VTraceAgent"
    assert {"DistillLoss", "StudentLoss", "TeacherLoss"} <= runner.agent.learner.scalars.keys()
