"""`Child`: how a process ended, and how one that is stopped goes on."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.fleet import child, supervised
from async_wrappers.fleet.starting import Children, unpickled
from async_wrappers.fleet.supervised import Child, RunFailed, enough_descriptors, raised_in
from tests.worlds.fleet_member import run_member


def start(target: Any, *arguments: Any) -> Child:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
    process.start()
    theirs.close()
    return Child("it", process, ours)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (sys.exit, "ended with exit code 3"),
        (signal.raise_signal, "was ended by signal 40 (exit code -40)"),
        (signal.SIGKILL, "was ended by SIGKILL (exit code -9), as the system does where memory runs out"),
        (signal.SIGTERM, "was ended by SIGTERM (exit code -15)"),
    ],
)
def test_how_a_process_ended_is_told_by_name(end: Any, told: str) -> None:
    if isinstance(end, signal.Signals):
        child = start(time.sleep, 600)
        os.kill(child.process.pid, end)
    else:
        child = start(end, 3 if end is sys.exit else 40)
    try:
        assert child.join(60)
        assert not child.is_alive()
        assert child.how_it_ended() == told
    finally:
        child.kill()
        child.close()


@pytest.mark.parametrize(
    ("parts", "named", "wanted", "fewer"),
    [
        ({"workers": 64}, "workers=64", 768, "workers"),
        ({"processes": 15, "accelerators": 16}, "processes=15 and accelerators=16", 504, "processes or accelerators"),
    ],
)
def test_where_descriptors_run_out_the_arguments_that_ask_for_them_are_named(
    parts: dict[str, int], named: str, wanted: int, fewer: str
) -> None:
    sentence = rf"^{named} need more open files than the \d+ .* \(`ulimit -n {wanted}`.*\), or take fewer {fewer}$"
    with pytest.raises(RunFailed, match=sentence), enough_descriptors(**parts):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_what_ends_a_childs_program_is_raised_in_its_parent_as_an_error(error: BaseException) -> None:
    raised = raised_in("worker 3", error, "its traceback")
    assert isinstance(raised, RunFailed)
    assert (str(raised), raised.__cause__) == (f"worker 3 raised {error!r}", error)
    assert "its traceback" in raised.__notes__[0]
    assert str(pickle.loads(pickle.dumps(raised))) == str(raised)


@pytest.mark.parametrize("descriptors", [True, False])
def test_a_stopped_process_goes_on_and_can_be_killed(descriptors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a descriptor of the process, or where the system has none."""
    if not descriptors:
        monkeypatch.setattr(supervised, "_process_descriptor", lambda pid: None)
    before = len(os.listdir("/dev/fd"))
    child = start(time.sleep, 600)
    try:
        assert child.is_alive()
        state = Path(f"/proc/{child.process.pid}/stat")
        for number, expected in ((signal.SIGSTOP, "T"), (signal.SIGCONT, "RS"), (signal.SIGSTOP, "T")):
            child.go_on() if number == signal.SIGCONT else os.kill(child.process.pid, number)
            deadline = time.monotonic() + 60
            while state.read_text().rpartition(")")[2].split()[0] not in expected:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        child.kill()
        assert child.join(60)
        child.kill()  # once more does no harm
    finally:
        child.kill()
        child.close()
    assert len(os.listdir("/dev/fd")) == before


class Refused:
    """A process that cannot be started, and the context that makes it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.Process = Refused

    def get_start_method(self) -> str:
        return "spawn"

    def is_alive(self) -> bool:
        return False

    def start(self) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_where_no_more_processes_may_run_a_sentence_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    resource_tracker.ensure_running()  # which stays
    before = len(os.listdir("/dev/fd"))
    children = Children("The test")
    monkeypatch.setattr(multiprocessing, "get_context", Refused)
    with pytest.raises(RunFailed, match=r"^worker 3 cannot be started, as no more processes may run: .*`ulimit -u`"):
        children.start("worker 3", print, (), shares_torch=False)
    children.close()
    assert len(os.listdir("/dev/fd")) == before


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_process_of_hosts_or_learners_without_room_for_a_thread_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(SystemExit, match=r"^process \d+: can't start new thread: raise the limit \(`ulimit -u`, "):
        child.become_child()


def test_a_child_without_room_for_a_thread_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(child, "ignore_signals", lambda: None)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    monkeypatch.setattr(os, "_exit", ended)
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        with pytest.raises(SystemExit), child.as_child(theirs):
            pytest.fail("it goes on")
        what, pickled, text, *_ = ours.recv()
    assert what == "failed" and str(unpickled(pickled)) == "can't start new thread" and "Traceback" in text


def test_all_descriptors_are_released_also_of_one_whose_place_another_one_has_taken() -> None:
    def open_ones() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    children = Children("The test")
    children.start("member 0", run_member, (0, 0, ""), shares_torch=True)
    before = open_ones() - 3  # of a child: its pipe, its sentinel and its descriptor
    for _ in range(2):
        children.start("member 0", run_member, (0, 0, ""), shares_torch=True)
    children.close()
    assert open_ones() <= before
