"""The walks of the page on design name files that a decision passes through."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import gin
import pytest

import async_wrappers.agents.configurables
import async_wrappers.configurables  # noqa: F401
from async_wrappers.agents.registry import create_runner
from tests.worlds.bindings import no_bindings  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "design.md"
DELAYED = (
    "create_gym_environment.wrappers = [@RealtimeDelay]",
    "RealtimeDelay.delay = 2",
    "RealtimeDelay.default_action = 'repeat'",
    "Runner.num_iterations = 1",
    "Runner.report_episodes = 0",
)
TURN_BASED = (
    *DELAYED,
    "Runner.training_steps = 200",
    "Runner.evaluation_steps = 0",
    "DQNAgent.min_replay_history = 50",
)
ON_MANY = (
    *DELAYED,
    "Runner.training_steps = 2_000",
    "Runner.evaluation_episodes = 1",
    "VectorRunner.num_envs = 32",
    "VTraceAgent.batch_size = 4",
)


def walk(heading: str) -> set[Path]:
    """Return the files that a walk names; a short name continues a folder of the name before it."""
    section = PAGE.read_text().partition(f"### {heading}\n")[2].partition("\n#")[0]
    files: list[Path] = []
    for line in section.splitlines():
        if line.startswith("|"):
            for name in re.findall(r"`([\w/]+\.py)`", line):
                folders = [ROOT, *(files[-1].parents if files else ())]  # a whole name, or the nearest folder
                found = [folder / name for folder in folders if (folder / name).is_file()]
                assert found, f"{name} of {PAGE.name} is no file"
                files.append(found[0])
    return set(files)


def entered(tmp_path: Path, gin_file: str, bindings: tuple[str, ...]) -> set[Path]:
    """Return the project's files whose functions a run has called."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        called.add(frame.f_code.co_filename)

    gin.parse_config_files_and_bindings([str(ROOT / gin_file)], bindings)
    runner = create_runner(tmp_path)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        runner.run_experiment()
    finally:
        sys.setprofile(before)
    return {Path(name).resolve() for name in called}


def test_the_table_of_places_names_what_its_files_have() -> None:
    section = PAGE.read_text().partition("## Where is it?\n")[2].partition("\n#")[0]
    places = re.findall(r"`([\w/]+\.py)`(?: \(`([\w.]+)`\))?", section)
    assert len(places) >= 6
    for file, name in places:
        found = next(folder / file for folder in (ROOT, ROOT / "async_wrappers") if (folder / file).is_file())
        for part in filter(None, name.split(".")):
            assert re.search(rf"(?:class|def) {part}\b", found.read_text()), f"{file} has no {part}"


@pytest.mark.parametrize(
    ("heading", "most", "gin_file", "bindings"),
    [
        ("Turn-based, under delay", 17, "configs/dqn/cartpole.gin", TURN_BASED),
        ("32 environments with V-trace", 15, "configs/vtrace/cartpole.gin", ON_MANY),
    ],
)
def test_a_run_enters_each_file_of_a_walk(
    heading: str, most: int, gin_file: str, bindings: tuple[str, ...], tmp_path: Path
) -> None:
    files = walk(heading)
    assert 10 < len(files) <= most
    assert files <= entered(tmp_path, gin_file, bindings)


@pytest.mark.parametrize(
    ("heading", "most"), [("Live, with a core at release", 22), ("A signal to a run of two learners", 12)]
)
def test_a_walk_over_several_processes_names_files_that_are_there(heading: str, most: int) -> None:
    assert 10 < len(walk(heading)) <= most
