"""Sweeps of plain functions: what is run, what is kept, what is refused, and what an interruption changes (nothing)."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.config.config import ConfigError
from async_wrappers.agents.experiment.lock import DirectoryInUse, alone_in
from async_wrappers.agents.sweep.plan import Sweep, read_plan
from async_wrappers.agents.sweep.results import read_rows
from async_wrappers.agents.sweep.sweeping import estimated_seconds, forget_replay, sweep
from async_wrappers.agents.sweep.trial import TrialsCutOff
from async_wrappers.posix import cores
from tests.worlds import forks
from tests.worlds.forks import fork_trials
from tests.worlds.sweeps import GRID, facts, play, play_and_count, play_but_fail_at_8

__all__ = ["fork_trials"]

ROOT = Path(__file__).parents[3]


class TestSweep:
    @pytest.mark.usefixtures("fork_trials")
    def test_every_point_runs_with_every_seed_and_the_table_has_each_number(self, tmp_path: Path) -> None:
        table = sweep(play, GRID, 2, tmp_path / "s", jobs=2)
        with open(table) as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == ["arm", "delay", "agent", "seed", "iteration", "metric", "value", "trial", "check"]
        scores = {(row["delay"], row["agent"], row["seed"]) for row in rows if row["metric"] == "score"}
        assert len(scores) == 8
        assert sum(row["metric"] == "score" for row in rows) == 8
        curve = [
            (row["iteration"], row["value"]) for row in rows if row["metric"] == "curve" and row["trial"] == "0000"
        ]
        assert curve == [("0", "1.0"), ("1", "2.5")]
        assert {row["iteration"] for row in rows if row["metric"] in ("score", "seconds")} == {""}

        # The same again runs nothing; more seeds run those alone.
        before = facts(tmp_path / "s")
        sweep(play, GRID, 2, tmp_path / "s")
        assert facts(tmp_path / "s") == before
        sweep(play, GRID, 3, tmp_path / "s", jobs=2)
        assert facts(tmp_path / "s")[: len(before)] == before
        starts = [path.read_text() for path in (tmp_path / "s" / "trials").glob("*/starts")]
        assert starts == ["x"] * 12

        start = json.loads((tmp_path / "s" / "manifest.json").read_text())["starts"][0]
        assert start["command"] == sys.argv
        assert start["packages"]["numpy"]
        assert start["machine"]["cores"] == cores()

    @pytest.mark.usefixtures("fork_trials")
    @pytest.mark.parametrize(("order", "expected"), [("seeds", [0, 1, 2, 3]), ("points", [0, 2, 1, 3])])
    def test_the_first_seeds_or_the_first_points_run_first(
        self, order: str, expected: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sweep(play, {"delay": [1, 8]}, 2, tmp_path / "s", order=order)
        ended = [int(name) for name in re.findall(r"^trial (\d+) finished", capsys.readouterr().out, re.MULTILINE)]
        assert ended == expected
        rows = read_rows(tmp_path / "s")
        assert [row["trial"] for row in rows if row["metric"] == "score"] == ["0000", "0001", "0002", "0003"]

    @pytest.mark.usefixtures("fork_trials")
    def test_points_may_be_given_one_by_one(self, tmp_path: Path) -> None:
        points = [{"delay": 1, "noops": 0}, {"delay": 8, "noops": 8}]
        sweep(play, points, 1, tmp_path / "s")
        assert {(row["delay"], row["noops"]) for row in read_rows(tmp_path / "s")} == {(1, 0), (8, 8)}

    @pytest.mark.usefixtures("fork_trials")
    def test_a_trial_that_fails_is_recorded_and_the_others_go_on(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        grid, base_dir = {"delay": [8, 1]}, tmp_path / "s"
        sweep(play_but_fail_at_8, grid, 1, base_dir)
        assert {row["delay"] for row in read_rows(base_dir)} == {1}
        failure = json.loads((base_dir / "trials" / "0000" / "failure.json").read_text())
        assert failure["error"] == "ZeroDivisionError: the game broke"
        assert failure["log"][0] == "on my way"
        assert "trial 0000 failed" in capsys.readouterr().out

        sweep(play_but_fail_at_8, grid, 1, base_dir)  # not again by itself
        (base_dir / "trials" / "0000" / "mended").touch()
        assert "2 trials (2 points x 1 seeds), 0 to run" in capsys.readouterr().out
        sweep(play_but_fail_at_8, grid, 1, base_dir, retry_failed=True)
        assert {row["delay"] for row in read_rows(base_dir)} == {1, 8}
        assert not (base_dir / "trials" / "0000" / "failure.json").exists()

    @pytest.mark.parametrize(
        ("trial", "error"),
        [
            (lambda *_: os.kill(os.getpid(), signal.SIGABRT), "killed by SIGABRT"),
            (lambda *_: sys.exit("no more"), "no more"),
            (lambda *_: sys.exit("no more\n  In call to configurable 'game' (<function game>)"), "no more"),
            (lambda *_: 5, "ValueError: a trial must return a mapping of metrics, got int"),
            (lambda *_: {"score": "high"}, "ValueError: metric 'score' must be a number or a list of numbers"),
        ],
    )
    def test_whatever_a_trial_does_is_its_own_failure(self, tmp_path: Path, trial: Any, error: str) -> None:
        sweep(trial, {"delay": [1]}, 1, tmp_path / "s")
        failure = json.loads((tmp_path / "s" / "trials" / "0000" / "failure.json").read_text())
        assert failure["error"].startswith(error)

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_a_trial_that_is_killed_from_outside_goes_on_in_the_next_call(
        self, tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def trial(point: dict[str, Any], seed: int, directory: Path) -> dict[str, float]:
            if point["delay"] == 1 and not (directory / "begun").exists():
                (directory / "begun").touch()
                os.kill(os.getpid(), number)
                time.sleep(60)  # until the signal is handled
            return {"score": 1.0}

        with pytest.raises(TrialsCutOff, match=r"^trial 0000 was killed from outside"):
            sweep(trial, {"delay": [1, 2]}, 1, tmp_path)
        assert "trial 0000 was cut off, and has not failed" in capsys.readouterr().out
        assert {row["delay"] for row in read_rows(tmp_path)} == {2}
        sweep(trial, {"delay": [1, 2]}, 1, tmp_path)
        assert {row["delay"] for row in read_rows(tmp_path)} == {1, 2}

    def test_the_seconds_of_a_trial_are_those_of_all_its_processes(self, tmp_path: Path) -> None:
        def trial(point: dict[str, Any], seed: int, directory: Path) -> dict[str, float]:
            if not (directory / "begun").exists():
                (directory / "begun").touch()
                raise KeyboardInterrupt
            return {"score": 1.0}

        noted = tmp_path / "trials" / "0000" / "spent.json"
        with pytest.raises(TrialsCutOff):
            sweep(trial, {"delay": [1]}, 1, tmp_path)
        assert 0 < json.loads(noted.read_text())["seconds"] < 1000
        noted.write_text('{"seconds": 1000}')
        sweep(trial, {"delay": [1]}, 1, tmp_path)
        (seconds,) = (row["value"] for row in read_rows(tmp_path) if row["metric"] == "seconds")
        assert seconds > 1000
        assert not noted.exists()

    def test_a_trial_runs_on_one_thread(self, tmp_path: Path) -> None:
        sweep(lambda *_: {"threads": float(os.environ["OMP_NUM_THREADS"])}, {"delay": [1]}, 1, tmp_path / "s")
        assert [row["value"] for row in facts(tmp_path / "s")] == [1.0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full to write to")
@pytest.mark.usefixtures("fork_trials")
def test_a_disk_that_is_too_full_to_record_a_failure_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "trials" / "0000"
    directory.mkdir(parents=True)
    (directory / "failure.json.tmp").symlink_to("/dev/full")
    sweep(play_but_fail_at_8, {"delay": [8, 1]}, 1, tmp_path)
    assert "trial 0000 failed after 0 s (delay = 8, seed 0): which could not be recorded" in capsys.readouterr().out
    assert {row["delay"] for row in read_rows(tmp_path)} == {1}
    (directory / "failure.json.tmp").unlink(missing_ok=True)
    sweep(play_but_fail_at_8, {"delay": [8, 1]}, 1, tmp_path)  # what is not recorded runs again
    assert json.loads((directory / "failure.json").read_text())["error"] == "ZeroDivisionError: the game broke"


def play_and_be_killed_after_the_result(_: dict[str, Any], __: int, directory: Path) -> dict[str, float]:
    """Be killed by somebody as soon as the result is on the disk."""

    def kill() -> None:
        while not (directory / "result.json").is_file():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill).start()  # which the process waits for
    return {"score": 1.0}


@pytest.mark.usefixtures("fork_trials")
def test_a_trial_that_is_killed_just_after_its_result_is_finished(tmp_path: Path) -> None:
    sweep(play_and_be_killed_after_the_result, {"delay": [1]}, 1, tmp_path)
    directory = tmp_path / "trials" / "0000"
    assert (directory / "result.json").is_file()
    assert not (directory / "failure.json").exists()
    assert {row["value"] for row in read_rows(tmp_path) if row["metric"] == "score"} == {1.0}


@pytest.mark.usefixtures("fork_trials")
def test_a_trial_whose_log_cannot_be_opened_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "trials" / "0000" / "log.txt").mkdir(parents=True)
    sweep(play, {"delay": [8, 1]}, 1, tmp_path)
    assert {row["delay"] for row in read_rows(tmp_path)} == {1}
    assert "log.txt" in json.loads((tmp_path / "trials" / "0000" / "failure.json").read_text())["error"]


@pytest.mark.skipif(shutil.which("false") is None, reason="no program that ends at once")
def test_processes_that_end_before_they_read_their_input_are_failed_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen.__init__

    def start_and_wait(self: Any, *arguments: Any, **more: Any) -> None:
        start(self, *arguments, **more)
        self.wait()

    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    monkeypatch.setattr(subprocess.Popen, "__init__", start_and_wait)
    sweep(play, {"delay": [1, 8]}, 1, tmp_path)
    monkeypatch.undo()
    for name in ("0000", "0001"):
        assert json.loads((tmp_path / "trials" / name / "failure.json").read_text())["error"] == "no result"


@pytest.mark.usefixtures("fork_trials")
def test_a_sweep_whose_trials_failed_says_how_many_and_why_and_how_to_go_on(tmp_path: Path, capsys: Any) -> None:
    sentence = (
        rf"^ZeroDivisionError: the game broke \(2 trials, see {re.escape(str(tmp_path))}/trials/0001\); 2 of 4 trials "
        r"failed \(0001, 0003\): mend the cause, and add retry_failed=True$"
    )
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=sentence) as warned:
            sweep(play_but_fail_at_8, {"delay": [1, 8]}, 2, tmp_path, jobs=2)
        assert warned[0].filename == __file__
    assert "0 to run (2 failed before, which --retry-failed, retry_failed=True, runs again)" in capsys.readouterr().out
    (tmp_path / "trials" / "0001" / "mended").touch()
    (tmp_path / "trials" / "0003" / "mended").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep(play_but_fail_at_8, {"delay": [1, 8]}, 2, tmp_path, jobs=2, retry_failed=True)


def test_what_a_script_imports_at_its_top_reaches_its_trials(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"environment_{name}.py").write_text(
            "import gymnasium as gym\n"
            "from gymnasium.envs.classic_control import CartPoleEnv\n"
            f"gym.register('{name}-v0', CartPoleEnv)\n"
            "def named(): pass\n"
        )
    script, place = tmp_path / "script.py", tmp_path / "place"
    script.write_text(
        "import sys\n"
        "import gymnasium as gym\n"
        "import environment_one\n"
        "from environment_two import named\n"
        "from async_wrappers.agents.sweep.sweeping import sweep\n"
        "def trial(point, seed, directory):\n"
        "    return {name: gym.make(f'{name}-v0').reset(seed=seed)[0].size for name in point['envs'].split()}\n"
        "if __name__ == '__main__':\n"
        "    sweep(trial, {'envs': ['one two']}, 1, sys.argv[1])\n"
    )
    path = os.pathsep.join((str(tmp_path), str(ROOT)))  # a script's own folder is the first
    with forks.running(script, tmp_path, (str(place),), {**os.environ, "PYTHONPATH": path}) as running:
        code, out, err = running.end()
    assert code == 0, err
    assert [row["value"] for row in facts(place)] == [4.0, 4.0], out + err


class TestRefusals:
    @pytest.mark.parametrize(
        ("grid", "said"),
        [
            ({}, "grid: it is empty"),
            ([], "grid: it is empty"),
            ({"delay": []}, "grid: it is empty"),
            ({"delay": 8}, "grid['delay'] must be a list of values, got 8"),
            ({"delay": "8"}, "grid['delay'] must be a list of values"),
            ({"delay": [print]}, "grid['delay'] must hold numbers"),
            ({"delay": [(1, 2)]}, "grid['delay'] must hold numbers"),
            ([{"delay": 1}, {"noops": 1}], "all points must have the keys delay, got noops"),
        ],
    )
    def test_a_grid_that_is_none_is_refused_before_anything_is_written(
        self, tmp_path: Path, grid: Any, said: str
    ) -> None:
        with pytest.raises(ConfigError, match=re.escape(said)):
            sweep(play, grid, 1, tmp_path / "s")
        assert not (tmp_path / "s").exists()

    @pytest.mark.parametrize("seeds", [0, 1.5, True])
    def test_seeds_are_counted(self, tmp_path: Path, seeds: Any) -> None:
        with pytest.raises(ConfigError, match=r"Sweep.seeds must be a whole number >= 1"):
            sweep(play, GRID, seeds, tmp_path / "s")

    def test_jobs_are_counted(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="jobs must be >= 1, got 0"):
            sweep(play, GRID, 1, tmp_path / "s", jobs=0)

    @pytest.mark.usefixtures("fork_trials")
    def test_another_sweeps_directory_is_refused_naming_the_key(self, tmp_path: Path) -> None:
        sweep(play, {"delay": [1]}, 2, tmp_path / "s", jobs=2)
        before = (tmp_path / "s" / "sweep.json").read_bytes()
        for grid, seeds, trial, said in (
            ({"delay": [1, 2]}, 2, play, "another grid (delay = 1 there, 1, 2 here)"),
            ({"noops": [1]}, 2, play, "another grid (delay = 1 there, None here)"),
            ({"delay": [1]}, 1, play, "2 seeds"),
            ({"delay": [1]}, 2, play_and_count, "another experiment"),
        ):
            with pytest.raises(ConfigError, match=re.escape(said)):
                sweep(trial, grid, seeds, tmp_path / "s")
        assert (tmp_path / "s" / "sweep.json").read_bytes() == before

    def test_a_runs_directory_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "config.gin").touch()
        with pytest.raises(ConfigError, match="holds a run, not a sweep"):
            sweep(play, GRID, 1, tmp_path)

    def test_a_file_is_no_directory_for_a_sweep(self, tmp_path: Path) -> None:
        (tmp_path / "s").touch()
        with pytest.raises(ConfigError, match="base_dir must be a directory, got the file"):
            sweep(play, GRID, 1, tmp_path / "s")

    def test_a_directory_without_a_sweep_has_no_plan(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="holds no sweep"):
            read_plan(tmp_path)

    def test_two_sweeps_are_not_run_in_one_directory_at_a_time(self, tmp_path: Path) -> None:
        with (
            alone_in(tmp_path),
            pytest.raises(DirectoryInUse, match=r"is in use \(by another run or sweep, process"),
            alone_in(tmp_path),
        ):
            pass
        with alone_in(tmp_path):
            pass

    @pytest.mark.parametrize("grid", ["RealtimeDelay.delay = 1", [5], None])
    def test_a_grid_in_gin_is_a_list_of_texts(self, grid: Any) -> None:
        with pytest.raises(ConfigError, match=r"Sweep\.grid must be a list of texts"):
            Sweep(grid=grid)

    @pytest.mark.parametrize("arms", [["RealtimeDelay.noops = 0"], {"asynchronous": "RealtimeDelay.noops = 0"}])
    def test_arms_in_gin_are_lists_of_texts_by_name(self, arms: Any) -> None:
        with pytest.raises(ConfigError, match=r"Sweep\.arms must be lists of texts by name"):
            Sweep(arms=arms)

    @pytest.mark.parametrize("exclude", ["RealtimeDelay.delay = 1", ["RealtimeDelay.delay = 1"], None])
    def test_exclusions_in_gin_are_lists_of_lists_of_texts(self, exclude: Any) -> None:
        with pytest.raises(ConfigError, match=r"Sweep\.exclude must be a list of lists of texts"):
            Sweep(exclude=exclude)

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"search": "random"}, "Sweep.search = 'random' is Ray Tune's work: add --engine ray"),
            ({"scheduler": "asha"}, "Sweep.scheduler = 'asha' is Ray Tune's work: add --engine ray"),
            ({"address": "10.0.0.1:6379"}, "address 10.0.0.1:6379 is that of a Ray cluster: add --engine ray"),
            ({"engine": "slurm"}, "engine must be one of 'local', 'ray', got 'slurm'"),
            ({"search": "bayes"}, "Sweep.search must be one of 'grid', 'random', got 'bayes'"),
            ({"scheduler": "pbt"}, "Sweep.scheduler must be one of None, 'asha', got 'pbt'"),
            ({"grace_period": 0}, "Sweep.grace_period must be a whole number >= 1, got 0"),
            ({"reduction_factor": 1}, "Sweep.reduction_factor must be a whole number >= 2, got 1"),
            ({"trial_seconds": "60"}, "Sweep.trial_seconds must be a number of seconds > 0, or None, got '60'"),
            ({"trial_seconds": 0}, "Sweep.trial_seconds must be a number of seconds > 0, or None, got 0"),
            ({"wandb_project": 5}, "Sweep.wandb_project must be a text, or None, got 5"),
            ({"keep_checkpoints": "some"}, "Sweep.keep_checkpoints must be one of True, False, got 'some'"),
        ],
    )
    def test_what_the_pool_does_not_do_is_refused_in_one_sentence(
        self, tmp_path: Path, settings: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(ConfigError, match=re.escape(said)):
            sweep(play, GRID, 1, tmp_path / "s", **settings)
        assert not (tmp_path / "s").exists()


@pytest.mark.usefixtures("fork_trials")
class TestCheckpoints:
    def keep(self, _: Any, __: int, directory: Path) -> dict[str, float]:
        """Leave what a run of two iterations does, but for what is in the files."""
        checkpoints = directory / "checkpoints"
        (checkpoints / "replay" / "segments").mkdir(parents=True)
        for name in ("ckpt.0", "ckpt.1", "sentinel_checkpoint_complete.0", "sentinel_checkpoint_complete.1", "ckpt.2"):
            (checkpoints / name).touch()
        if directory.name == "0001":
            raise ZeroDivisionError("the game broke")
        return {"score": 1.0}

    def left(self, base_dir: Path, name: str) -> list[str]:
        return sorted(path.name for path in (base_dir / "trials" / name / "checkpoints").iterdir())

    def test_a_finished_trial_may_keep_the_newest_weights_alone_and_a_failed_one_keeps_all(
        self, tmp_path: Path
    ) -> None:
        sweep(self.keep, {"delay": [1, 8]}, 1, tmp_path, jobs=2)
        assert len(self.left(tmp_path, "0000")) == 6  # the default
        sweep(self.keep, {"delay": [1, 8]}, 1, tmp_path, keep_checkpoints=False)  # also of those that finished before
        assert self.left(tmp_path, "0000") == ["ckpt.1", "sentinel_checkpoint_complete.1"]
        assert len(self.left(tmp_path, "0001")) == 6

    def test_what_is_no_checkpoint_of_a_run_is_left_to_whose_it_is(self, tmp_path: Path) -> None:
        own = tmp_path / "checkpoints" / "model.zip"
        own.parent.mkdir()
        own.touch()
        forget_replay(tmp_path)
        assert own.is_file()


def test_the_estimate_comes_from_finished_trials_or_else_from_the_settings(tmp_path: Path) -> None:
    assert estimated_seconds(tmp_path, 10, 2, None) is None
    assert estimated_seconds(tmp_path, 10, 2, 60.0) == 300.0
    for number, seconds in enumerate((10.0, 20.0)):
        directory = tmp_path / "trials" / str(number)
        directory.mkdir(parents=True)
        (directory / "result.json").write_text(json.dumps({"metrics": {}, "seconds": seconds}))
    assert estimated_seconds(tmp_path, 10, 2, 60.0) == 75.0
    assert estimated_seconds(tmp_path, 1, 2, 60.0) == 15.0
    (taken := tmp_path / "trials" / "2").mkdir()
    (taken / "result.json").write_text(json.dumps({"metrics": {}, "seconds": 900.0, "elsewhere": True}))
    assert estimated_seconds(tmp_path, 10, 2, 60.0) == 75.0
    (directory / "result.json").write_text("{")
    with pytest.raises(ValueError, match=r"1/result.json is damaged .*: remove it, and let the sweep run that trial"):
        estimated_seconds(tmp_path, 10, 2, None)


SCRIPT = """
import sys
from pathlib import Path
from async_wrappers.agents.sweep.sweeping import sweep
from tests.worlds.sweeps import play_and_count

sweep(play_and_count, {"delay": list(range(int(sys.argv[2])))}, 1, Path(sys.argv[1]), jobs=2)
"""


def started(base_dir: Path, trials: int) -> AbstractContextManager[forks.Running]:
    script = base_dir.parent / "sweep.py"
    script.write_text(SCRIPT)
    return forks.running(script, ROOT, (str(base_dir), str(trials)), os.environ)


def after_kills(base_dir: Path, trials: int, kills: int) -> None:
    """Kill the sweep once more of its trials have begun, so many times, and let it end."""
    for kill in range(kills):
        wanted = (kill + 1) * trials // (kills + 1)
        deadline = time.monotonic() + 100
        with started(base_dir, trials) as running:  # which is killed at the end of the block
            while len(list(base_dir.glob("trials/*/made"))) < wanted and running.alive:
                assert time.monotonic() < deadline
                time.sleep(0.002)
    with started(base_dir, trials) as running:
        code, _, err = running.end()
    assert code == 0, err


@pytest.mark.usefixtures("fork_trials")
@pytest.mark.parametrize(("trials", "kills"), [(4, 1), pytest.param(24, 5, marks=pytest.mark.slow)])
def test_a_sweep_that_was_killed_ends_as_an_undisturbed_one(tmp_path: Path, trials: int, kills: int) -> None:
    after_kills(tmp_path / "killed", trials, kills)
    sweep(play_and_count, {"delay": list(range(trials))}, 1, tmp_path / "straight", jobs=2)
    assert facts(tmp_path / "killed") == facts(tmp_path / "straight")
    assert {row["value"] for row in facts(tmp_path / "killed") if row["metric"] == "steps"} == {10.0}
    starts = json.loads((tmp_path / "killed" / "manifest.json").read_text())["starts"]
    assert len(starts) == kills + 1
