"""The page of TensorBoard's tags has what runs of each family write, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gin
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from async_wrappers.agents.registry import create_runner
from tests.worlds.experiments import load_gin
from tests.worlds.teachers import students_runner, teachers_run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tensorboard.md"
ALWAYS = ""
SMALL = (
    "Runner.num_iterations = 1",
    "Runner.report_episodes = 0",
    "Runner.max_steps_per_episode = 40",
    "MLPTorso.hidden = (4,)",
    "DQNAgent.min_replay_history = 20",
    "DQNAgent.batch_size = 4",
    "DQNAgent.summary_writing_frequency = 2",
    "SACAgent.min_replay_history = 20",
    "SACAgent.batch_size = 4",
    "SACAgent.hidden_units = 4",
    "SACAgent.summary_writing_frequency = 2",
    "VTraceAgent.summary_writing_frequency = 2",
    "VTraceAgent.unroll_length = 4",
    "VTraceAgent.batch_size = 2",
    "VectorRunner.num_envs = 4",
    "LSTMCore.hidden = 4",
)
EVALUATES = ("Runner.training_steps = 100", "Runner.evaluation_steps = 20", "Runner.evaluation_episodes = 1")
VIRTUAL = (
    "AsyncRunner.backend = 'virtual'",
    "AsyncRunner.latency = 0.03",
    "AsyncRunner.learner_latency = 0.015",
    "Runner.training_steps = 120",
    "Runner.evaluation_steps = 20",
)


def told() -> dict[str, dict[str, str]]:
    """The page's tags by section, each with where it is written."""
    sections = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {
        name: dict(re.findall(r"^\| `([^`]+)` \| [^|]* \| (?:(.*) )?\|$", text, re.MULTILINE))
        for name, text in zip(sections[::2], sections[1::2], strict=True)
    }


def written(base_dir: Path) -> set[str]:
    events = EventAccumulator(str(base_dir / "metrics" / "tensorboard")).Reload()
    return {tag.replace("EvalTiming/", "TrainTiming/") for tag in events.Tags()["scalars"]}


def play(base_dir: Path, file: str, *bindings: str) -> set[str]:
    load_gin(f"configs/{file}.gin", bindings=[*SMALL, *bindings])
    runner: Any = create_runner(base_dir)
    runner.run_experiment()
    return written(base_dir)


ALL_OF_VTRACE = (
    "VTraceAgent.terms = (@TargetEntropy(), @PolicyCloning(), @ValueCloning(), @KLMask())",
    "TargetEntropy.target = 0.5",
    "VTraceAgent.store_version = True",
    "KLMask.threshold = 1.0",
    "VTraceAgent.sources = [('queue', 0.5), ('standard', 0.5)]",
    "StandardReplay.capacity = 8",
)
FAMILIES: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "in turn": (("Every run", "Time", "Agents that learn"), "dqn/cartpole", EVALUATES),
    "SAC": (("Every run", "Time", "Agents that learn", "SAC"), "sac/pendulum", EVALUATES),
    "PPO": (
        ("Every run", "Time", "Agents that learn", "PPO"),
        "ppo/pendulum",
        (
            *EVALUATES,
            "PPOAgent.update_period = 16",
            "PPOAgent.batch_size = 8",
            "PPOAgent.store_version = True",
            "PPOAgent.network = @create_policy_value_network",
            "create_policy_value_network.core = 'gru'",
            "GRUCore.hidden = 4",
            "PPOAgent.unroll_length = 4",
        ),
    ),
    "many environments": (
        ("Every run", "Time", "Agents that learn", "Many environments"),
        "apex/cartpole",
        EVALUATES,
    ),
    "V-trace": (
        ("Every run", "Time", "Agents that learn", "Many environments", "V-trace"),
        "vtrace/cartpole",
        (*EVALUATES, *ALL_OF_VTRACE),
    ),
    "live": (("Every run", "Time", "Agents that learn", "Live"), "live/cartpole", VIRTUAL),
    "live chunks": (("Every run", "Time", "Agents that learn", "Live", "V-trace"), "live/cartpole_chunk", VIRTUAL),
    "live V-trace": (
        ("Every run", "Time", "Agents that learn", "Live", "V-trace"),
        "live/cartpole_vtrace_lstm",
        VIRTUAL,
    ),
}
STUDENTS = ("qdagger_dqn_cartpole", "dqfd_dqn_cartpole", "pretrained_dqn_cartpole", "reloaded_dqn_cartpole")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[tuple[str, ...], set[str]]]:
    """What runs of each family have written, and the sections of the page that say so."""
    threads = torch.get_num_threads()
    place = tmp_path_factory.mktemp("families")
    tags = {name: (of, play(place / name, file, *bindings)) for name, (of, file, bindings) in FAMILIES.items()}
    teacher = teachers_run(place / "teacher", "DQNAgent.summary_writing_frequency = 2")
    for student in STUDENTS:
        collects = "RunnerWithTeacher.teacher_steps = 0" if "reloaded" in student else "Runner.num_iterations = 1"
        offline = "RunnerWithTeacher.num_pretraining_iterations = " + ("0" if "reloaded" in student else "1")
        runner = students_runner(place / student, teacher, collects, offline, gin_file=student)
        runner.run_experiment()
        tags[student] = ("Every run", "Time", "Agents that learn", "Students"), written(place / student)
    gin.clear_config()
    torch.set_num_threads(threads)
    return tags


@pytest.mark.parametrize("family", [*FAMILIES, *STUDENTS])
def test_a_run_writes_the_tags_of_its_family(family: str, found: Any) -> None:
    sections, tags = found[family]
    page = told()
    listed = {tag: where for section in sections for tag, where in page[section].items()}
    assert tags <= listed.keys()
    assert {tag for tag, where in listed.items() if where == ALWAYS} <= tags


def test_each_tag_of_the_page_is_written_by_a_run_of_its_family(found: Any) -> None:
    for section, listed in told().items():
        if section != "Pretraining":
            tags = set().union(*(tags for sections, tags in found.values() if section in sections))
            assert listed.keys() <= tags, section


def test_pretraining_writes_the_tags_of_a_run_of_its_own() -> None:
    source = (PAGE.parents[2] / "agents" / "experiment" / "pretraining.py").read_text()
    assert 'f"Pretraining/{name}"' in source and told()["Pretraining"] == {"Pretraining/Loss": ALWAYS}
