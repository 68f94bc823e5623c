"""An agent of a user's own, a Q-learner with a table outside the repository: trained, evaluated, swept, live."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worlds.command_line import ROOT, Done, bound, in_a_fork, iterations, refused
from tests.worlds.forks import fork_trials
from tests.worlds.plain_data import assert_identical, differs

__all__ = ["fork_trials"]

EXAMPLE = ROOT / "docs" / "examples" / "table_q"
pytestmark = pytest.mark.timeout(600)
SHORT = ("--gin_bindings", "Runner.training_steps = 500")  # frames


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory of the user's, with nothing but the example's files."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    return tmp_path


def done(place: Path, *words: str) -> Done:
    finished = in_a_fork(place, *words)
    assert finished.code == 0, finished.err
    return finished


def table(base_dir: Path) -> Any:
    newest = max((base_dir / "checkpoints").glob("ckpt.*"), key=lambda path: int(path.suffix[1:]))
    return torch.load(newest, weights_only=True)["agent"]["learner"]["table"]


def test_it_is_short() -> None:
    assert len((EXAMPLE / "table_q.py").read_text().splitlines()) < 80


def test_it_is_trained_and_evaluated_by_a_gin_file(place: Path) -> None:
    done(place, "--base_dir", "run", "--gin_files", "table_q.gin")
    assert table(place / "run").any()
    done(place, "evaluate", "--base_dir", "run", "--gin_bindings", "import table_q", "--episodes", "2")
    returns = json.loads((place / "run" / "evaluation.json").read_text())["returns"]
    assert returns == [-13.0, -13.0]  # the shortest way along the cliff


@pytest.mark.parametrize("file", ["table_q.gin", "table_q_live.gin"])
def test_its_run_is_continued(place: Path, file: str) -> None:
    words = "--base_dir", "run", "--gin_files", file, *SHORT, "--gin_bindings"
    done(place, *words, "Runner.num_iterations = 1")
    before = table(place / "run")
    done(place, *words, "Runner.num_iterations = 2")
    assert differs(before, table(place / "run"))
    assert len(iterations(place / "run")) == 2


def test_a_parameter_that_its_class_has_not_is_refused_with_the_one_that_was_meant(place: Path) -> None:
    refusal = refused(in_a_fork(place, "--gin_files", "table_q.gin", "--gin_bindings", "TableQ.gama = 0.5"))
    assert refusal == "gin configuration: TableQ has no parameter 'gama'; did you mean TableQ.gamma?"


def test_several_learners_are_refused_where_its_learner_takes_no_gradients(place: Path) -> None:
    words = "--gin_files", "table_q_live.gin", "--gin_bindings", "AsyncRunner.learners = 2"
    refusal = refused(in_a_fork(place, "--base_dir", "run", *words))
    assert "AsyncRunner.learners must be 1 with agent 'table_q', whose learner has no load_weights" in refusal


@pytest.mark.usefixtures("fork_trials")
def test_it_is_swept_over_delays(place: Path) -> None:
    words = "create_gym_environment.wrappers = [@RealtimeDelay]", "RealtimeDelay.default_action = 'random'"
    bindings = bound(*words, "Runner.num_iterations = 1")
    done(
        place,
        "sweep",
        "--base_dir",
        "sweep",
        "--gin_files",
        "table_q.gin",
        *SHORT,
        *bindings,
        "--grid",
        "RealtimeDelay.delay = 0, 2",
    )
    with open(place / "sweep" / "results.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["RealtimeDelay.delay"] for row in rows} == {"0", "2"}


def test_on_the_virtual_clock_its_run_is_a_function_of_seed_and_latencies(place: Path) -> None:
    short = (*SHORT, "--gin_bindings", "Runner.num_iterations = 1")
    for name, seconds in (("one", 0.02), ("again", 0.02), ("slower", 0.5)):
        latency = f"AsyncRunner.learner_latency = {seconds}"
        done(place, "--base_dir", name, "--gin_files", "table_q_live.gin", *short, "--gin_bindings", latency)
    one, again, slower = (table(place / name) for name in ("one", "again", "slower"))
    assert one.any()
    assert_identical(one, again)
    assert differs(one, slower)
