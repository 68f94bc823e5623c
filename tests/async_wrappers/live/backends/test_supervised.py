"""`Pulse`: who is stopped and who hangs, by the system's own account; `Child`: how a process ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.live.backends import supervised
from async_wrappers.live.backends.supervised import Child, Pulse

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
        monkeypatch.setattr(supervised.time, "monotonic", lambda: self.now)


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
