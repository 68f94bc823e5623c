"""One process at a time in a directory: refused at once while the holder lives, free as soon as it is dead."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import gin
import pytest

from async_wrappers import posix
from async_wrappers.agents.experiment import lock as lock_module
from async_wrappers.agents.experiment.lock import DirectoryInUse, alone_in
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import experiment
from tests.worlds.lock_holder import holder
from tests.worlds.scripted_agent import ScriptedAgent

ROOT = Path(__file__).parents[3]
FORK = "import os; child = os.fork(); (time.sleep(600), os._exit(0)) if not child else print(child, flush=True)"


def test_a_second_process_is_refused_with_the_first_ones_number_and_nothing_is_touched(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, _):
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(DirectoryInUse) as caught, alone_in(tmp_path):
            pass
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert str(caught.value) == (
        f"base_dir {tmp_path} is in use (by another run or sweep, process {process.pid}): let it end, or choose "
        "another base_dir"
    )


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, _):
        process.kill()
        process.wait(60)
        with alone_in(tmp_path):
            pass


def test_a_forked_child_does_not_hold_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    with holder(tmp_path, FORK) as (process, said):
        child = int(said[0])
        try:
            process.kill()
            process.wait(60)
            os.kill(child, 0)  # it lives on
            with alone_in(tmp_path):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_child_that_is_given_the_lock_holds_it_after_its_killed_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "PATIENCE", 0)
    give = "import subprocess; c = subprocess.Popen(['sleep', '600'], pass_fds=[descriptor]); print(c.pid, flush=True)"
    with holder(tmp_path, give) as (process, said):
        process.kill()
        process.wait(60)
        try:
            with pytest.raises(DirectoryInUse), alone_in(tmp_path):
                pass
        finally:
            os.kill(int(said[0]), signal.SIGKILL)
    monkeypatch.setattr(lock_module, "PATIENCE", 60)
    with alone_in(tmp_path):  # as soon as it too is gone
        pass


def test_it_is_held_again_only_where_that_is_asked_for(tmp_path: Path) -> None:
    with alone_in(tmp_path) as descriptor:
        with alone_in(tmp_path, nested=True) as same:
            assert same == descriptor
        with pytest.raises(DirectoryInUse), alone_in(tmp_path):
            pass
    with alone_in(tmp_path, nested=True):
        pass


def test_a_directory_that_was_made_for_nothing_is_removed_and_any_other_stays(tmp_path: Path) -> None:
    with alone_in(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not list(tmp_path.iterdir())
    with alone_in(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "written").touch()
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {"written", "lock"}
    assert (tmp_path / "a" / "b" / "lock").read_bytes() == b""


def test_of_many_that_begin_at_once_one_at_a_time_is_alone(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # a new interpreter would import PyTorch four times
    with context.Pool(4) as pool:
        told = pool.map_async(_count_alone, [tmp_path / "shared"] * 4).get(timeout=300)
    assert sum(told) == int((tmp_path / "shared" / "count").read_text())


def _count_alone(directory: Path) -> int:
    """Add to a count that only somebody who is alone can add to, and return how often."""
    added = 0
    for _ in range(200):
        with suppress(DirectoryInUse), alone_in(directory):
            path = directory / "count"
            before = int(path.read_text()) if path.exists() else 0
            path.write_text(str(before + 1))
            added += 1
    return added


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told_of_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def none(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(posix.fcntl, "flock", none)
    with caplog.at_level("WARNING"), alone_in(tmp_path) as descriptor:
        assert descriptor is None
    assert "cannot be locked" in caplog.text


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_what_cannot_be_written_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def none(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock_module.os, "open", none)
    with alone_in(tmp_path) as descriptor:
        assert descriptor is None


def test_a_holder_on_another_machine_is_named_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "PATIENCE", 0)
    with alone_in(tmp_path):
        (tmp_path / "lock").write_text(f"12 not-{socket.gethostname()}\n")
        with pytest.raises(DirectoryInUse, match=f"process 12 on not-{socket.gethostname()}"), alone_in(tmp_path):
            pass


def test_a_runner_in_python_is_alone_in_its_directory(tmp_path: Path) -> None:
    gin.clear_config()
    runner = experiment(tmp_path, DriftingEnv, lambda environment, seed: ScriptedAgent(), num_iterations=1)
    with holder(tmp_path), pytest.raises(DirectoryInUse):
        runner.run_experiment()
    assert {path.name for path in tmp_path.iterdir()} == {"lock"}
