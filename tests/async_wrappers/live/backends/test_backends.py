"""The backends of the package keep the public contract."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.live.backends import thread
from async_wrappers.testing.backends import BackendContract
from tests.worlds.endless import Endless, make_runner


class TestVirtual(BackendContract):
    backend = "virtual"


class TestThread(BackendContract):
    backend = "thread"


class TestProcess(BackendContract):
    backend = "process"


def test_threads_that_hang_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    over, waits, clock = threading.Event(), [], [0.0]

    class Hangs:
        def act(self, observation: Any, decision: Any) -> int:
            if not decision.eval_mode:  # as the warm-up is
                over.wait(60)
            return 1

    def join(hanging: threading.Thread, timeout: float) -> None:
        waits.append(timeout)
        clock[0] += timeout

    try:
        with make_runner(Endless, Hangs, workers=3, backend="thread") as runner:
            runner.run(frames=6)
            monkeypatch.setattr(threading.Thread, "join", join)
            monkeypatch.setattr(thread, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        assert waits == [5.0, 0.0, 0.0]
    finally:
        over.set()


def test_a_run_whose_threads_cannot_be_started_names_the_limit_and_closes_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed, start = [], threading.Thread.start

    class Closes(Endless):
        def close(self) -> None:
            closed.append(self)

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "worker 1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = set(threading.enumerate())  # threads of earlier tests may end meanwhile
    runner = make_runner(Closes, lambda: lambda observation: 1, workers=3, backend="thread")
    with pytest.raises(RunFailed, match=r"^worker 1 cannot be started, as no more threads may run: .*ulimit -u"):
        runner.run(frames=1)
    assert len(closed) == 1
    assert set(threading.enumerate()) <= before
