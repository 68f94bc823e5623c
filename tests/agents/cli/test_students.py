"""The commands of reincarnating_rl's README, to run and to debug, as docs/algorithms/reincarnation.md maps them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.experiment.metrics import read_iterations
from tests.worlds.atari_games import games_loaded_once
from tests.worlds.command_line import bound, call, place, refused

__all__ = ["call", "games_loaded_once", "place"]

SMALL = (
    "Runner.num_iterations = 1",
    "Runner.training_steps = 60",
    "Runner.evaluation_steps = 10",  # theirs
    "Runner.max_steps_per_episode = 30",
    "Runner.report_episodes = 0",
    "DQNAgent.min_replay_history = 20",
    "DQNAgent.replay_capacity = 1_000",
    "DQNAgent.batch_size = 2",
)
DEBUG = ("RunnerWithTeacher.num_pretraining_iterations = 2", "RunnerWithTeacher.num_pretraining_steps = 10")  # theirs
NETWORK = ("create_network.torso = @MLPTorso", "MLPTorso.hidden = (4,)")


@pytest.mark.usefixtures("games_loaded_once")
@pytest.mark.parametrize(
    "network", [NETWORK, pytest.param(("create_network.torso = @ImpalaTorso",), marks=pytest.mark.slow)]
)
def test_the_command_that_debugs_a_student_of_rainbow(network: tuple[str, ...], place: Path, call: Any) -> None:
    pytest.importorskip("ale_py")
    teacher = call("--base_dir", "teacher", "--gin_files", "configs/dqn/atari.gin", *bound(*SMALL, *NETWORK))
    assert teacher.code == 0
    named = bound(
        "RunnerWithTeacher.teacher_checkpoint_dir = 'teacher'", "RunnerWithTeacher.teacher_checkpoint_number = 0"
    )
    words = (
        "--gin_files",
        "configs/reincarnation/qdagger_rainbow.gin",
        "--seed",
        "1",
        *bound(*SMALL, *DEBUG, *network),
    )
    done = call("--base_dir", "student", *words, *named)
    assert done.code == 0 and re.search(r"^teacher: return \S+, random play -20\.7$", done.out, re.MULTILINE)
    assert [line["phase"] for line in read_iterations(place / "student")] == ["offline", "offline", "online"]
    again = call("--base_dir", "student")
    assert "finished: all 3 iterations are done" in again.out and "Runner.num_iterations = 2" in again.out
    assert call("--base_dir", "student", *bound("Runner.num_iterations = 2")).code == 0
    assert len(read_iterations(place / "student")) == 4
    assert call("evaluate", "--base_dir", "student", "--episodes", "2").code == 0
    assert json.loads((place / "student" / "evaluation.json").read_text())["mean"] is not None


def test_a_student_without_a_teacher_is_refused_in_a_sentence(call: Any) -> None:
    file = ("--base_dir", "student", "--gin_files", "configs/reincarnation/qdagger_dqn_cartpole.gin")
    assert "teacher_checkpoint_dir must be bound to the directory of a run that teaches, got None" in refused(
        call(*file)
    )
    missing = bound("RunnerWithTeacher.teacher_checkpoint_dir = 'nowhere'")
    message = refused(call(*file, *missing))
    assert "teacher_checkpoint_dir must be a run's directory or one of its checkpoints, a .safetensors file" in message
    assert message.endswith(", got 'nowhere'") and "cartpole, " in message
