"""Realtime scheduling of the loop's process: rights and refusals, what is applied to whom, and the wait that spins."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from async_wrappers import AsyncRunner, Realtime
from async_wrappers.live.loop.loop import EnvironmentLoop
from async_wrappers.live.run_spec import PhaseSpec
from async_wrappers.live.world import realtime as realtime_module
from async_wrappers.live.world.environment import FrameStatus
from async_wrappers.live.world.realtime import Spin, may_schedule
from async_wrappers.testing.staggers import MS
from tests.worlds.fake_transport import FakeTransport, Stage
from tests.worlds.recording_env import RecordingEnv

US = 1000  # nanoseconds
PLAIN = Realtime(priority=None, lock=False, spin=0)  # which everybody may have


def run(realtime: Any, backend: str = "process", frames: int = 20, **terms: Any) -> Any:
    runner = AsyncRunner(
        lambda: RecordingEnv(), lambda: lambda o: 1, 1, 200, backend=backend, latency=0.001, realtime=realtime, **terms
    )
    return runner.run(frames=frames, on_frame=scheduled)


def scheduled(status: FrameStatus) -> Any:
    """Return the scheduling of the environment's process, and of a process that it starts."""
    if status.frame != 5:
        return None
    shown = "import os; print(os.sched_getscheduler(0))"
    inherited = int(subprocess.run([sys.executable, "-c", shown], capture_output=True, check=True).stdout)
    return [os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, sorted(os.sched_getaffinity(0)), inherited]


def test_the_loop_has_its_core_and_the_others_stay_away() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert len(cores) > 1, "these tests need two cores"
    spec = replace(PLAIN, core=cores[-1])
    terms: dict[str, Any] = {"latency": 0.001, "realtime": spec, "pin": True}
    with AsyncRunner(lambda: RecordingEnv(), lambda: lambda o: 1, 2, 100, **terms) as runner:
        report = runner.run(frames=20, on_frame=scheduled)
        pids = runner.pids
        assert os.sched_getaffinity(pids["the environment"]) == {cores[-1]}
        for worker in ("worker 0", "worker 1"):
            assert cores[-1] not in os.sched_getaffinity(pids[worker])
    assert report.notes[0][1][:3] == [os.sched_getscheduler(0), 0, [cores[-1]]]
    assert report.realtime == {"priority": None, "lock": False, "core": cores[-1], "spin_us": 0.0}
    assert 0 < report.loop_share < 1 and "ordinary priority, core" in str(report)
    assert os.sched_getaffinity(0) == set(cores)


def test_the_loop_has_its_priority_and_its_children_do_not_or_it_is_refused() -> None:
    if not may_schedule(3):
        with pytest.raises(PermissionError, match="rtprio 3"):
            run(Realtime(priority=3, lock=False))
        return
    begun_with = os.sched_getscheduler(0)  # SCHED_OTHER, or the class that the tests were begun in, such as SCHED_IDLE
    report = run(Realtime(priority=3, lock=False))
    policy, priority, _, inherited = report.notes[0][1]
    assert (policy & ~os.SCHED_RESET_ON_FORK, priority, inherited) == (os.SCHED_FIFO, 3, os.SCHED_OTHER)
    assert report.realtime["spin_us"] == 150 and "SCHED_FIFO 3" in str(report)
    assert os.sched_getscheduler(0) == begun_with


@pytest.mark.parametrize(
    ("lacks", "sentence"),
    [
        (
            "may_schedule",
            r"priority=50, and `ulimit -r` is \d+ here: put the line `\w+ - rtprio 50` into /etc/security",
        ),
        ("may_lock", r"lock=True\), and `ulimit -l` is -?\d+ kB here: put the line `\w+ - memlock unlimited` into"),
    ],
)
def test_a_missing_right_is_refused_with_its_remedy_before_anything_starts(
    lacks: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime_module, "may_schedule", lambda priority: True)
    monkeypatch.setattr(realtime_module, "may_lock", lambda: True)
    monkeypatch.setattr(realtime_module, lacks, lambda *_: False)
    with pytest.raises(PermissionError, match=sentence):
        run(Realtime())


def test_a_user_without_rights_has_none() -> None:
    asked = "import os; from resource import *; os.getuid() or os.setuid(65534); setrlimit(RLIMIT_RTPRIO, (0, 0)); "
    asked += "setrlimit(RLIMIT_MEMLOCK, (65536, 65536)); print(r.may_schedule(1), r.may_lock())"
    script = f"import async_wrappers.live.world.realtime as r; {asked}"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.split() == ["False", "False"]


def test_a_core_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"core must be one that this process may use, of \[.*\], got 4096"):
        run(replace(PLAIN, core=4096))


def test_threads_refuse_it_and_the_virtual_clock_ignores_it() -> None:
    with pytest.raises(ValueError, match=r"realtime must be None with backend='thread', .*, got Realtime\("):
        run(PLAIN, backend="thread")
    with pytest.raises(ValueError, match=r"realtime must be a Realtime, such as Realtime\(\), or None, got 50"):
        run(50)
    report = run(PLAIN, backend="virtual")
    assert (report.realtime, report.loop_share) == (None, None)
    assert report == run(None, backend="virtual")


class Ticking(FakeTransport):
    """A clock on which each look takes three microseconds."""

    def now(self) -> int:
        self.time += 3 * US
        return self.time


def test_the_loop_stays_awake_before_a_deadline_and_handles_messages_meanwhile() -> None:
    stage = Stage(workers=1)
    transport = Ticking(lambda o, d: 1, [2 * MS - 60 * US], [0])  # ends in the last moments of a frame
    stage.env.transport = transport
    config = replace(stage.config, realtime=Realtime(priority=None, lock=False, spin=100e-6), stop_after_missed=None)
    record = EnvironmentLoop(stage.env, transport, config, now=transport.now).play(PhaseSpec(frames=20))
    assert max(record.lateness) <= 30 * US
    waits = [(each[1] - record.begin, each[2] - record.begin) for each in transport.log if each[0] == "collect"]
    frame = [(now, until) for now, until in waits if 10 * MS < now < 11 * MS]
    sleeps = [(now, until) for now, until in frame if until > now]
    assert [until for _, until in sleeps] == [11 * MS - 100 * US] * len(sleeps) and sleeps
    awake = [now for now, until in frame if until <= now and now >= 11 * MS - 100 * US]
    assert len(awake) >= 5
    starts = [time - record.begin for what, time, *_ in transport.log if what == "start"][2:]
    # The worker that ends 60 us before a deadline starts again at once, on the frame before.
    assert any(MS - 100 * US < start % MS < MS - 10 * US for start in starts)


def test_the_time_awake_is_the_p99_9_of_the_wake_ups_within_bounds() -> None:
    spin = Spin(None)
    assert spin.length == 150 * US
    for late, length in ((70, 70), (10, 50), (4000, 300)):
        spin = Spin(None)
        for _ in range(999):
            spin.note(late * US)
        assert spin.length == 150 * US
        spin.note(late * US)
        assert spin.length == pytest.approx(length * US, rel=0.01)
    fixed = Spin(20e-6)
    for _ in range(2000):
        fixed.note(MS)
    assert fixed.length == 20 * US
