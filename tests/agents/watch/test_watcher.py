"""What is watched: found below the named directories, read when it is asked for, gone without harm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from async_wrappers.agents.watch import watcher as watcher_module
from async_wrappers.agents.watch.machine_load import Load
from async_wrappers.agents.watch.watcher import Watcher
from tests.worlds.made_up_sweep import made_up_sweep
from tests.worlds.recorded_run import hold, write_run


class Time:
    """A clock that stands until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_runs_and_sweeps_are_found_below_a_directory(tmp_path: Path) -> None:
    for name in ("b", "a", "deep/er/c", "too/deep/for/this"):
        write_run(tmp_path / name, iterations=1)
    made_up_sweep(tmp_path / "s")
    overview = Watcher([tmp_path]).read()
    assert [run.directory.relative_to(tmp_path).as_posix() for run in overview.runs] == ["a", "b", "deep/er/c"]
    assert [sweep.name for sweep in overview.sweeps] == ["s"]
    assert overview.machine.total > overview.machine.used > 0


@pytest.mark.parametrize(
    ("name", "what"), [("empty", "holds no run, .* and no recording"), ("missing", "is no directory")]
)
def test_a_directory_without_runs_is_refused_in_one_sentence(tmp_path: Path, name: str, what: str) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=rf"{name} {what}: name a --base_dir of train.py"):
        Watcher([tmp_path / "run", tmp_path / name])


def test_a_run_that_begins_later_is_found_and_one_that_goes_is_a_sentence(tmp_path: Path) -> None:
    time = Time()
    write_run(tmp_path / "a")
    watcher = Watcher([tmp_path], time)
    assert [run.name for run in watcher.read().runs] == ["a"]
    write_run(tmp_path / "b")
    time.now += 60
    assert [run.name for run in watcher.read().runs] == ["a", "b"]
    shutil.rmtree(tmp_path / "a")
    time.now += 1
    overview = watcher.read()
    assert ([run.name for run in overview.runs], overview.problems) == (["b"], (f"{tmp_path / 'a'} is gone",))


def test_several_readers_cost_no_more_than_one(tmp_path: Path) -> None:
    time = Time()
    watcher = Watcher([write_run(tmp_path)], time)
    first = watcher.read()
    assert watcher.read() is first
    time.now += 0.6
    assert watcher.read() is not first


def test_a_damaged_plan_is_a_sentence(tmp_path: Path) -> None:
    made_up_sweep(tmp_path)
    watcher = Watcher([tmp_path])
    (tmp_path / "sweep.json").write_text("{")
    (problem,) = watcher.read().problems
    assert "sweep.json is not the plan of a sweep" in problem


def test_of_very_many_runs_the_newest_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "_MOST", 2)
    for number in range(4):
        (tmp_path / f"{number}" / "metrics").mkdir(parents=True)
        os.utime(tmp_path / f"{number}", (number, number))
    overview = Watcher([tmp_path]).read()
    assert ([run.name for run in overview.runs], overview.left_out) == (["2", "3"], 2)


def test_the_load_of_a_runs_processes_is_shown_while_it_runs(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    hold(directory)
    load = Watcher([directory]).read().processes[directory]
    assert load.count >= 1
    assert load.memory > 10_000_000
    assert Load().processes(2**22 + 1) is None
