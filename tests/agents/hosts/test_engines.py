"""Engines of hosts: what one plays the others play, and a host that dies is reported once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import closing

import pytest

from async_wrappers.agents.hosts.engine import HostsFailed, Lost, Player
from async_wrappers.agents.hosts.host import Plan
from async_wrappers.agents.hosts.local import LocalHosts
from async_wrappers.agents.hosts.processes import ProcessHosts
from tests.contracts.hosts_contract import HostsContract, collected, nothing_played, plan_of, weights_of


class TestLocalHosts(HostsContract):
    def make_engine(self, plan: Plan) -> LocalHosts:
        return LocalHosts(plan)


class TestProcessHosts(HostsContract):
    def make_engine(self, plan: Plan) -> ProcessHosts:
        return ProcessHosts(plan)


class Broken:
    """A plan whose hosts cannot be made."""

    def make_host(self, *arguments: object) -> Player:
        raise KeyError("rom")


def test_a_host_that_cannot_be_made_is_named() -> None:
    named = pytest.raises(HostsFailed, match=r"^host 1 raised KeyError: 'rom'\n")
    with closing(LocalHosts(Broken())) as engine, named:
        engine.start(1, 0, {})


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
