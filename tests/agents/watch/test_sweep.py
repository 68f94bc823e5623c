"""A sweep is read while it goes on: its plan, how far each trial is, and what is left."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from async_wrappers.agents.experiment.metrics import ProgressFile
from async_wrappers.agents.watch.reading import Folder
from async_wrappers.agents.watch.watched_sweep import SweepNow, is_sweep, read_sweep
from async_wrappers.agents.watch.watcher import Watcher
from tests.worlds.made_up_sweep import D, N, made_up_sweep
from tests.worlds.recorded_run import hold, write_run


def sweep_amid(directory: Path) -> SweepNow:
    """Return a sweep of three points with two seeds: three trials done, one failed, one running, one waiting."""
    made_up_sweep(directory, ("DQNAgent.gamma = 0.5, 0.9, 0.99",), seeds=2)
    trials = directory / "trials"
    (trials / "0003" / "result.json").unlink()
    (trials / "0003" / "failure.json").write_text(json.dumps({"error": "the game broke", "seconds": 3.0}))
    shutil.rmtree(trials / "0004")
    write_run(trials / "0004", iterations=1)
    (trials / "0004" / "log.txt").write_text("")
    shutil.rmtree(trials / "0005")
    (trials / "0005").mkdir()
    hold(trials / "0004")
    hold(directory)
    return read_sweep(Folder(directory))


def test_each_trial_stands_at_its_point_with_its_state_and_score(tmp_path: Path) -> None:
    sweep = sweep_amid(tmp_path / "s")
    assert (sweep.name, sweep.state, sweep.total, sweep.problems) == ("s", "running", 6, ())
    assert sweep.what == "configs/dqn/cartpole.gin"
    assert [point.name for point in sweep.points] == ["gamma 0.5", "gamma 0.9", "gamma 0.99"]
    states = [[trial.state for trial in point.trials] for point in sweep.points]
    assert states == [["finished", "failed"], ["finished", "running"], ["finished", "waiting"]]
    assert sweep.counts == {"finished": 3, "failed": 1, "running": 1, "waiting": 1}
    failed, running = sweep.points[0].trials[1], sweep.points[1].trials[1]
    assert (failed.error, running.score, running.done) == ("the game broke", 2.0, 1)
    assert sweep.points[0].trials[0].score == 100.0


def test_a_point_is_named_by_its_arm_and_by_what_the_arm_does_not_say(tmp_path: Path) -> None:
    arms = {"late": [f"{N} = 0"], "sequential": [f"{N} = {D}"]}
    made_up_sweep(tmp_path, (f"{D} = 1, 8",), arms, seeds=1)
    names = [point.name for point in read_sweep(Folder(tmp_path)).points]
    assert names == ["late, delay 1", "sequential, delay 1", "late, delay 8", "sequential, delay 8"]


def test_a_trial_in_python_that_prints_nothing_for_long_is_running(tmp_path: Path) -> None:
    sweep_amid(tmp_path)
    place = tmp_path / "trials" / "0005"
    (place / "log.txt").write_text("")
    os.utime(place / "log.txt", (0, 0))
    states = [read_sweep(Folder(tmp_path)).points[2].trials[1].state]
    ProgressFile(place).write("", 0, 0.0, None)
    states += [read_sweep(Folder(tmp_path)).points[2].trials[1].state]
    assert states == ["stopped", "running"]


def test_what_is_left_takes_as_long_as_what_is_done(tmp_path: Path) -> None:
    assert sweep_amid(tmp_path).left == pytest.approx(12.0 * 1.5)  # one waits, one runs and is half done on average


def test_a_sweep_that_nobody_runs_is_stopped_or_finished(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    sweep_amid(directory)
    (directory / "lock").write_text("")
    (directory / "trials" / "0004" / "lock").write_text("")
    sweep = read_sweep(Folder(directory))
    assert (sweep.state, sweep.points[1].trials[1].state) == ("stopped", "stopped")
    done = read_sweep(Folder(made_up_sweep(tmp_path / "done")))
    assert (done.state, done.left) == ("finished", None)


def test_a_damaged_result_is_a_sentence_and_the_other_trials_are_shown(tmp_path: Path) -> None:
    directory = made_up_sweep(tmp_path)
    (directory / "trials" / "0001" / "result.json").write_text("{")
    sweep = read_sweep(Folder(directory))
    (problem,) = sweep.problems
    assert "0001/result.json is damaged" in problem
    assert sweep.counts["finished"] == sweep.total - 1


def test_trials_that_have_begun_are_watched_as_runs(tmp_path: Path) -> None:
    sweep_amid(tmp_path)
    assert is_sweep(Folder(tmp_path))
    overview = Watcher([tmp_path]).read()
    assert [sweep.directory for sweep in overview.sweeps] == [tmp_path]
    assert [run.name for run in overview.runs] == [f"{tmp_path.name}/0004"]
