"""Engines of hosts: what one plays the others play, and a host that dies is reported once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import closing
from multiprocessing import forkserver
from typing import Any

import pytest

from async_wrappers.agents.play.hosts.engine import HostsFailed, Lost, Player
from async_wrappers.agents.play.hosts.host import ActingPlan
from async_wrappers.agents.play.hosts.host_processes import ProcessHosts
from async_wrappers.agents.play.hosts.local_hosts import LocalHosts
from async_wrappers.fleet import pulse
from tests.contracts.hosts_contract import HostsContract, collected, nothing_played, plan_of, weights_of


class TestLocalHosts(HostsContract):
    def make_engine(self, plan: ActingPlan) -> LocalHosts:
        return LocalHosts(plan)


@pytest.mark.usefixtures("fork_server")
class TestProcessHosts(HostsContract):
    def make_engine(self, plan: ActingPlan) -> ProcessHosts:
        return ProcessHosts(plan)


class Broken:
    """A plan whose hosts cannot be made."""

    def make_host(self, *arguments: object) -> Player:
        raise KeyError("rom")


def test_a_host_that_cannot_be_made_is_named() -> None:
    named = pytest.raises(HostsFailed, match=r"^host 1 raised KeyError: 'rom'\n")
    with closing(LocalHosts(Broken())) as engine, named:
        engine.start(1, 0, {})


@pytest.mark.usefixtures("fork_server")
def test_a_process_that_is_killed_is_lost_and_none_is_left_at_the_end() -> None:
    plan = plan_of()
    engine = ProcessHosts(plan)
    engine.publish(weights_of(plan, 0), 0)
    for host in range(2):
        engine.start(host, 0, nothing_played(plan))
        engine.submit(host)
    collected(engine, 2)
    pids = engine.pids
    os.kill(pids[0], signal.SIGKILL)
    (lost,) = collected(engine, 1)
    assert lost == Lost(0, 0, f"(process {pids[0]}) was ended by SIGKILL")
    begin = time.monotonic()
    engine.close()
    assert time.monotonic() - begin < 5.0  # a host that does nothing ends when it is asked to
    for pid in pids.values():
        assert not os.path.exists(f"/proc/{pid}")


def test_a_host_that_is_stopped_is_ended_reported_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "STOPPED_FOR", 1.0)
    plan = plan_of()
    with closing(ProcessHosts(plan)) as engine:
        engine.publish(weights_of(plan, 0), 0)
        for host in range(2):
            engine.start(host, 0, nothing_played(plan))
            engine.submit(host)
        collected(engine, 2)
        pid = engine.pids[1]
        os.kill(pid, signal.SIGSTOP)
        engine.submit(1)
        why = f"(process {pid}) has been stopped (SIGSTOP) for 1 s, and was ended"
        assert collected(engine, 1) == [Lost(1, 0, why)]
        engine.start(1, 1, nothing_played(plan))
        for host in range(2):
            engine.submit(host)
        assert sorted((each.host, each.incarnation) for each in collected(engine, 2)) == [(0, 0), (1, 1)]


def test_a_host_in_a_daemonic_process_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    engine = ProcessHosts(plan)
    engine.publish(weights_of(plan, 0), 0)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(
        RuntimeError,
        match=r"^no process can be started from MainProcess, .* with daemon=False \(a multiprocessing.Pool cannot\)",
    ):
        engine.start(0, 0, nothing_played(plan))
    engine.close()


def fork_server() -> int:
    """Return the process id of the fork server."""
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    assert isinstance(pid, int)
    return pid


def test_a_fork_server_that_is_stopped_or_killed_holds_no_host_up() -> None:
    plan = plan_of()
    engine = ProcessHosts(plan)
    engine.publish(weights_of(plan, 0), 0)
    for host in range(2):
        engine.start(host, 0, nothing_played(plan))
        engine.submit(host)
    collected(engine, 2)
    pids = engine.pids
    os.kill(fork_server(), signal.SIGSTOP)
    os.kill(pids[0], signal.SIGKILL)
    (lost,) = collected(engine, 1)
    assert lost[:2] == (0, 0)
    assert lost[2] in (f"(process {pids[0]}) was ended by SIGKILL", f"(process {pids[0]}) has ended")
    engine.start(0, 1, nothing_played(plan))
    for host in range(2):
        engine.submit(host)
    assert sorted((each.host, each.incarnation) for each in collected(engine, 2)) == [(0, 1), (1, 0)]
    pids |= {2: engine.pids[0]}
    os.kill(fork_server(), signal.SIGKILL)
    engine.kill(1, "hangs")  # whose end the fork server does not report any more
    (lost,) = collected(engine, 1)
    assert lost == Lost(1, 0, "hangs")
    engine.close()
    assert not [pid for pid in pids.values() if os.path.exists(f"/proc/{pid}") and is_running(pid)]


def is_running(pid: int) -> bool:
    """Return whether a process is more than an entry that nobody has read."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


def test_a_start_is_tried_again_where_the_fork_server_ends_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, connect, failures = plan_of(), forkserver.connect_to_new_process, [EOFError(), ConnectionResetError()]

    def fail_twice(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return connect(*arguments)

    monkeypatch.setattr(forkserver, "connect_to_new_process", fail_twice)
    monkeypatch.setattr(pulse, "FREES_FOR", 0.01)  # the fork server lives
    engine = ProcessHosts(plan)
    engine.publish(weights_of(plan, 0), 0)
    engine.start(0, 0, nothing_played(plan))
    engine.submit(0)
    assert [each.host for each in collected(engine, 1)] == [0]
    engine.close()
    failures += [EOFError() for _ in range(5)]
    with pytest.raises(HostsFailed, match="host 0 could not be started, as the fork server ended 5 times over it"):
        ProcessHosts(plan).start(0, 0, nothing_played(plan))
