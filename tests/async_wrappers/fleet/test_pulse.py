"""`Pulse`: who is stopped and who hangs, by the system's own account; who wakes multiprocessing's own processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.fleet.pulse import Pulse, await_dead_fork_server

ROOT = Path(__file__).parents[3]
LOOKS = st.lists(
    st.tuples(
        st.floats(0, 100),  # seconds since the look before
        st.sampled_from("RSSSDTTtZ"),  # the state, as in /proc
        st.integers(0, 1),  # ticks of processor time used since
        st.booleans(),  # whether it owes an answer
    ),
    min_size=1,
    max_size=30,
)


class Clock:
    """A clock that is told the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def tell(proc: Path, state: str, used: int) -> None:
    (proc / "7").mkdir(exist_ok=True)
    fields = [state, *("1",) * 10, str(used // 2), str(used - used // 2), "0", "0"]
    (proc / "7" / "stat").write_text(f"7 (a name) S 3 (x)) {' '.join(fields)}\n")


@settings(deadline=None)
@given(LOOKS)
def test_time_is_counted_from_look_to_look_and_begins_anew_when_it_goes_on(
    looks: list[tuple[float, str, int, bool]],
) -> None:
    """The reference looks back from each look for the longest row that ends with it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        clock = Clock(monkeypatch)
        proc = Path(os.environ.get("TMPDIR", "/tmp")) / f"pulse_{os.getpid()}"
        proc.mkdir(exist_ok=True)
        pulse, used = Pulse(7, proc), 0
        row: list[tuple[float, str, int, bool]] = []
        for passed, state, ticks, owes in looks:
            clock.now += passed
            used += ticks
            tell(proc, state, used)
            pulse.look(owes)
            row.append((passed, state, ticks, owes))

            def since(holds: Any, row: list[tuple[float, str, int, bool]] = row) -> float:
                total = 0.0
                for number in reversed(range(len(row))):
                    if not holds(number, row[number]):
                        break
                    total += min(row[number][0], 2.0)
                return total

            assert pulse.stopped == pytest.approx(since(lambda number, look: look[1] == "T"))
            assert pulse.idle == pytest.approx(since(lambda number, look: number > 0 and look[1:] == ("S", 0, True)))


@pytest.mark.parametrize(
    ("state", "seconds", "owes", "ailment"),
    [
        ("T", 9.5, True, None),
        ("T", 10, False, "has been stopped (SIGSTOP) for 10 s"),
        ("t", 2_000, True, None),  # a debugger
        ("S", 599, True, None),
        ("S", 600, True, "has neither answered nor used any processor time for 600 s"),
        ("S", 2_000, False, None),  # it waits, as it may
        ("D", 2_000, True, None),  # it waits for a disk
    ],
)
def test_what_makes_a_process_pass_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, seconds: float, owes: bool, ailment: str | None
) -> None:
    clock = Clock(monkeypatch)
    pulse = Pulse(7, tmp_path)
    tell(tmp_path, "R", 5)
    pulse.look(owes)
    tell(tmp_path, state, 5)
    for _ in range(int(2 * seconds)):
        clock.now += 0.5
        pulse.look(owes)
    assert pulse.ailment() == ailment


def test_a_supervisor_that_was_stopped_itself_blames_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-Z and fg a child may go on a moment later than its supervisor, and the clock has gone on for both."""
    clock = Clock(monkeypatch)
    pulse = Pulse(7, tmp_path)
    tell(tmp_path, "S", 5)
    pulse.look(True)
    clock.now += 3600
    tell(tmp_path, "T", 5)
    pulse.look(True)
    assert pulse.ailment() is None


def test_where_the_system_does_not_tell_everybody_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pulse = Pulse(7, tmp_path)
    for _ in range(1000):
        clock.now += 1
        pulse.look(True)
    assert pulse.ailment() is None


def test_multiprocessings_own_processes_go_on_and_end_with_the_one_that_started_them() -> None:
    """A stopped one would stay for ever: it does not notice the end."""
    code = """
import os, signal
from multiprocessing import forkserver, resource_tracker
from async_wrappers.fleet.pulse import wake_servers

if __name__ == "__main__":
    wake_servers()  # there are none yet
    resource_tracker.ensure_running()
    forkserver.ensure_running()
    pids = resource_tracker._resource_tracker._pid, forkserver._forkserver._forkserver_pid
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    print(*pids, flush=True)
    wake_servers()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=30)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []


def test_a_fork_server_that_takes_long_to_end_is_waited_for_and_left_for_multiprocessing_to_reap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{Pulse.__module__}.FREES_FOR", 60.0)
    with subprocess.Popen(["sleep", "50"]) as server:
        monkeypatch.setattr(f"{Pulse.__module__}._FORK_SERVER", SimpleNamespace(_forkserver_pid=server.pid))
        threading.Timer(0.3, server.kill).start()
        await_dead_fork_server()
        assert os.waitpid(server.pid, os.WNOHANG)[0] == server.pid
        await_dead_fork_server()  # whose end has been read: at once
        server.returncode = -9
    monkeypatch.setattr(f"{Pulse.__module__}._FORK_SERVER", SimpleNamespace(_forkserver_pid=None))
    await_dead_fork_server()


def test_a_fork_server_that_lives_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{Pulse.__module__}.FREES_FOR", 0.1)
    with subprocess.Popen(["sleep", "50"]) as server:
        monkeypatch.setattr(f"{Pulse.__module__}._FORK_SERVER", SimpleNamespace(_forkserver_pid=server.pid))
        await_dead_fork_server()
        assert server.poll() is None
        server.kill()
