"""Modules beside a gin file are found from any working directory, by every command; what nobody names is not run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.config.gin_text import places_in
from tests.worlds import forks
from tests.worlds.command_line import ROOT, bound, call, in_a_fork, in_a_process, iterations, place, refused, start

__all__ = ["call", "place"]

SHORT = ("--gin_bindings", "Runner.num_iterations = 1")
# What is imported is seen without an agent that learns and a closing table.
SHORTEST = (
    *SHORT,
    *bound("create_agent.agent_name = 'random'", "Runner.report_episodes = 0"),
)


@pytest.fixture
def elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that has neither the gin file nor its module, which are in `place`."""
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    # The module shows that what lies beside it is found too.
    module = place / f"{module_of(place)}.py"
    module.write_text("import beside_" + module.stem + "\n" + module.read_text())
    (place / f"beside_{module.stem}.py").write_text("")
    return place / "elsewhere"


def module_of(place: Path) -> str:
    return "module_" + place.name


def forget(place: Path) -> None:
    """Let the next command find the module as a new process would."""
    for name in (module_of(place), "beside_" + module_of(place)):
        sys.modules.pop(name, None)
    sys.path[:] = [each for each in sys.path if not each.startswith(str(place))]


def begin(place: Path, call: Any, *words: str) -> None:
    done = call("--base_dir", "run", "--gin_files", str(place / "mine.gin"), *SHORT, *words)
    assert done.code == 0, done.err
    forget(place)


def test_every_command_finds_the_module_of_a_named_file(place: Path, elsewhere: Path, call: Any) -> None:
    begin(place, call)
    files = ("--gin_files", str(place / "mine.gin"))
    for words in (
        ("evaluate", "--base_dir", "run", "--episodes", "1", *files),
        ("record", "--base_dir", "run", "--dataset", "./played", "--episodes", "1", *files),
        ("record", "--dataset", "./random", "--player", "random", "--episodes", "1", *files),
        ("--base_dir", "run", "--gin_bindings", "Runner.num_iterations = 2", *files),
    ):
        done = call(*words)
        assert done.code == 0, done.err
        forget(place)
    assert len(iterations(elsewhere / "run")) == 2


@pytest.mark.parametrize("naming", ["module", "trust"])
def test_a_run_remembers_where_its_module_was(place: Path, elsewhere: Path, call: Any, naming: str) -> None:
    begin(place, call)
    module = module_of(place)
    assert places_in(elsewhere / "run" / "config.gin") == {module: place}
    evaluate = ("evaluate", "--base_dir", "run", "--episodes", "1")
    message = refused(call(*evaluate))
    assert message.startswith(f"run/config.gin imports {module} (of {place}), which is code")
    assert module not in sys.modules and str(place) not in sys.path
    words = {"module": ("--gin_bindings", f"import {module}"), "trust": ("--trust",)}[naming]
    for more in (evaluate, ("--base_dir", "run", "--gin_bindings", "Runner.num_iterations = 2")):
        done = call(*more, *words)
        assert done.code == 0, done.err
        forget(place)
    assert places_in(elsewhere / "run" / "config.gin") == {module: place}


def test_a_notebook_loads_the_agent_from_anywhere(place: Path, elsewhere: Path, call: Any) -> None:
    begin(place, call)
    # Three notebooks, of which each is a fork of one that has imported what an agent that learns needs.
    code = """
import os
from async_wrappers.agents.load import load_agent
for given in ({{"gin_bindings": ["import {0}"]}}, {{"trust": True}}, {{"gin_bindings": ["RealtimeDelay.delay = 1"]}}):
    if os.fork() == 0:
        load_agent("run", **given)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
    notebook = elsewhere / "notebook.py"
    notebook.write_text(code.format(module_of(place)))
    with forks.running(notebook, elsewhere, (), {"PYTHONPATH": str(ROOT)}) as running:
        _, out, err = running.end()
    assert out.split() == ["0", "0", "1"], err


def test_a_sweep_and_its_trials_find_the_module(place: Path, elsewhere: Path, call: Any) -> None:
    words = ("--gin_files", str(place / "mine.gin"), *SHORTEST)
    grid = ("--grid", "RealtimeDelay.delay = 2", "--seeds", "1", "--jobs", "1")
    with forks.trials_as_forks():
        done = call("sweep", "--base_dir", "sweep", *words, *grid)
    assert done.code == 0, done.err + done.out
    forget(place)
    assert len([*(elsewhere / "sweep" / "trials").glob("*/result.json")]) == 1
    (elsewhere / "further").mkdir()
    for result in (elsewhere / "sweep" / "trials").glob("*/result.json"):
        result.unlink()
    # The next trial is a new interpreter.
    goes_on = in_a_fork(elsewhere / "further", "sweep", "--base_dir", "../sweep", "--trust", "--jobs", "1")
    assert goes_on.code == 0, goes_on.err + goes_on.out


@pytest.mark.slow  # processes import torch
def test_the_processes_of_a_live_run_find_the_module(place: Path, elsewhere: Path) -> None:
    live = (
        "create_runner.schedule = 'realtime'",
        "create_gym_environment.wrappers = []",
        "LiveRunner.create_async_runner_fn = @AsyncRunner",
        "AsyncRunner.workers = 1",
        "AsyncRunner.fps = 100",
        "AsyncRunner.default_action = 'repeat'",
        "AsyncRunner.backend = 'process'",
        "DQNAgent.epsilon_warmup = 10",
        "Runner.report_episodes = 0",
        "Runner.evaluation_steps = 0",
    )
    words = bound(*live)
    files = ("--gin_files", str(place / "mine.gin"))
    # The server that workers are forked from imports this package before it is told where it lies.
    process = start(elsewhere, "--base_dir", "run", *files, *SHORT, *words, "--allow_unread", path=str(ROOT))
    try:
        _, errors = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert len(iterations(elsewhere / "run")) == 1


# What nobody has named.


def test_a_folder_is_searched_only_for_a_file_that_names_code_and_the_working_directory_never(
    place: Path, elsewhere: Path
) -> None:
    for folder in (place, elsewhere):  # TensorBoard imports it where it is
        (folder / "tensorflow.py").write_text(f"open({str(place / 'ran')!r}, 'a').close()\n")
    ours = place / "ours.gin"
    ours.write_text("include 'configs/dqn/cartpole.gin'\nRunner.training_steps = 20\nRunner.evaluation_steps = 0\n")
    done = in_a_process(elsewhere, "--base_dir", "run", "--gin_files", str(ours), *SHORTEST)
    assert done.code == 0, done.err
    assert not (place / "ran").exists()


def test_a_module_beside_a_file_shadows_no_library(
    place: Path, elsewhere: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = place / f"{module_of(place)}.py"
    for name in ("wave", "cycler"):  # Python's, and one that was installed
        monkeypatch.delitem(sys.modules, name, raising=False)
        (place / f"{name}.py").write_text(f"open({str(place / 'ran')!r}, 'a').close()\n")
        module.write_text(f"import {name}\n" + module.read_text())
    done = call("--base_dir", "run", "--gin_files", str(place / "mine.gin"), *SHORTEST)
    assert done.code == 0, done.err
    assert not (place / "ran").exists()
    forget(place)


@pytest.mark.parametrize("noted", ["inside the run", "relative", "of another module", "no directory", "no JSON"])
def test_a_place_that_comes_with_the_directory_is_not_searched(
    place: Path, elsewhere: Path, call: Any, noted: str
) -> None:
    begin(place, call)
    config, module = elsewhere / "run" / "config.gin", module_of(place)
    hostile = elsewhere / "run" if noted == "inside the run" else elsewhere / "hostile"
    hostile.mkdir(exist_ok=True)
    (hostile / f"{module}.py").write_text(f"open({str(place / 'ran')!r}, 'a').close()\n")
    text, true_note = config.read_text(), f"# Imported from {json.dumps(str(place))}: {module}\n"
    assert true_note in text
    note = {
        "inside the run": f"# Imported from {json.dumps(str(hostile))}: {module}\n",
        "relative": f'# Imported from "hostile": {module}\n',
        "of another module": f"# Imported from {json.dumps(str(hostile))}: other\n",
        "no directory": f"# Imported from {json.dumps(str(hostile / 'none'))}: {module}\n",
        "no JSON": f'# Imported from "{hostile}\\x": {module}\n',
    }[noted]
    config.write_text(text.replace(true_note, note))
    done = call("evaluate", "--base_dir", "run", "--episodes", "1", "--gin_bindings", f"import {module}")
    assert f"No module named {module!r}" in refused(done)
    assert not (place / "ran").exists()
