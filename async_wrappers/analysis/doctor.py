"""`examine`: how punctual an environment loop is on this machine at a frame rate, and which setting of it is missing.

An environment that does nothing is played at that rate by a policy in the loop, plainly and with each half of
`Realtime`, as far as this process may have it: what is late then is the system's lateness. Beside it stands what
`find` reads from the system's settings.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import checks, posix
from async_wrappers.analysis.sensing import sense_machine
from async_wrappers.live.report.report import as_json
from async_wrappers.live.report.sensor_readings import in_words
from async_wrappers.live.world.realtime import Realtime, may_lock, may_schedule, no_lock, no_priority

_PRIORITY = 50
_PUNCTUAL = 0.1  # frames by which the p99 may be late where a rate is held
_MOST_MISSED = 0.001  # share of the frames


@dataclass(frozen=True)
class Measured:
    """The lateness of a loop under one setting.

    Attributes:
        setting: Its name.
        realtime: The argument of `AsyncRunner` as text, None for none.
        lateness_us: p50, p99 and max, in microseconds; None where the setting is not permitted.
        missed: Frames that began more than half a frame late.
        frames: Frames in all.
        share: Share of a core that the loop used.
    """

    setting: str
    realtime: str | None
    lateness_us: dict[str, float] | None = None
    missed: int = 0
    frames: int = 0
    share: float | None = None

    def holds(self, hz: float) -> bool:
        """Return whether the p99 is a tenth of a frame at most, and one frame in 1,000 missed."""
        late = self.lateness_us
        return late is not None and late["p99"] <= _PUNCTUAL * 1e6 / hz and self.missed <= _MOST_MISSED * self.frames


@dataclass(frozen=True)
class Examination:
    """The result of `examine`.

    Attributes:
        hz: Frames per second.
        measured: By setting, from the plain one to all that `Realtime` has.
        findings: About the system.
        sensors: Of a machine, by name: ``age_ms``, ``rate`` and ``lost``; empty without one.
    """

    hz: float
    measured: tuple[Measured, ...]
    findings: tuple[Finding, ...]
    sensors: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What the machine holds, in a sentence."""
        held = next((each for each in self.measured if each.holds(self.hz)), None)
        if held is not None:
            how = "as it is" if held.realtime is None else f"with AsyncRunner(realtime={held.realtime})"
            return f"This machine holds {self.hz:g} frames a second {how}."
        permitted = [each for each in self.measured if each.lateness_us is not None]
        best = min(permitted, key=lambda each: (each.missed, each.lateness_us and each.lateness_us["p99"]))
        missing = ": see the remedies below" if any(each.remedy for each in self.findings) else ""
        return (
            f"This machine does not hold {self.hz:g} frames a second; best is {best.setting}, {best.missed} of "
            f"{best.frames} frames missed{missing}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "sensors": as_json(self.sensors), "verdict": self.verdict}

    def __str__(self) -> str:
        """Return a table, the verdict, and the findings with their remedies."""
        lines = [f"{'lateness, us':<22}{'p50':>9}{'p99':>9}{'max':>9}{'missed':>16}{'of a core':>11}"]
        lines += map(_row, self.measured)
        lines += ["", self.verdict, ""]
        lines += [f"{'sensor':<12} {name}: {in_words(seen)}" for name, seen in self.sensors.items()]
        for each in self.findings:
            lines.append(f"{each.name:<12} {each.found}")
            if each.remedy is not None:
                lines.append(f"{'':<12} -> {each.remedy}")
        return "\n".join(lines)


def _row(measured: Measured) -> str:
    late = measured.lateness_us
    if late is None:
        return f"{measured.setting:<22}{'not permitted':>27}"
    numbers = "".join(f"{late[name]:>9.0f}" for name in ("p50", "p99", "max"))
    share = "" if measured.share is None else f"{measured.share:.0%}"
    return f"{measured.setting:<22}{numbers}{f'{measured.missed} / {measured.frames}':>16}{share:>11}"


def examine(
    hz: float = 1000.0,
    seconds: float = 10.0,
    root: Path = Path("/"),
    make_machine: Callable[[], Any] | None = None,
) -> Examination:
    """Measure this machine's lateness at a frame rate, and look at its settings.

    Args:
        hz: Frames per second.
        seconds: Seconds of each of the four measurements.
        root: Where the system's files are.
        make_machine: Makes a `Machine` that stamps its readings, whose ages are measured too, for as long; it is sent
            what is safe alone. None for no machine.

    Raises:
        ValueError: A rate or a length that is no positive number, a system other than Linux, or a machine without
            stamps or a safe action.
    """
    hz = checks.number("hz", hz, "a number of frames per second from 1 to 100000", lambda rate: 1 <= rate <= 100_000)
    seconds = checks.positive("seconds", seconds, "seconds")
    if not sys.platform.startswith("linux"):
        raise ValueError(f"doctor needs Linux, whose settings it knows, got {sys.platform}")
    # First, as it may be refused, and the rest takes most of a minute.
    sensors = {} if make_machine is None else sense_machine(make_machine, hz, seconds)
    priority, lock = may_schedule(_PRIORITY), may_lock()
    settings: dict[str, Realtime | None] = {
        "as it is": None,
        "spin": Realtime(priority=None, lock=False),
        "SCHED_FIFO": Realtime(lock=lock, spin=0.0),
        "SCHED_FIFO and spin": Realtime(lock=lock),
    }
    before = stolen_ticks(root)
    measured = []
    for name, realtime in settings.items():
        written = None if realtime is None else _written(realtime)
        if realtime is not None and realtime.priority is not None and not priority:
            measured.append(Measured(name, written))
        else:
            measured.append(_measure(name, written, realtime, hz, seconds))
    refused = (None if priority else no_priority(_PRIORITY), None if lock else no_lock())
    findings = find(root, stolen_share(before, stolen_ticks(root)), *refused)
    return Examination(hz, tuple(measured), tuple(findings), sensors)


class _Still(gym.Env[Any, Any]):
    """A robot of six joints that nobody moves."""

    observation_space = gym.spaces.Box(-1, 1, (12,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (6,), np.float32)

    def __init__(self) -> None:
        self._observation = np.zeros(12, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observation, 0.0, False, False, {}


def _measure(name: str, written: str | None, realtime: Realtime | None, hz: float, seconds: float) -> Measured:
    from async_wrappers.live.runner import AsyncRunner

    answer = np.zeros(6, np.float32)
    runner = AsyncRunner(_Still, lambda: lambda observation: answer, 0, hz, realtime=realtime, timeline=1.0)
    report = runner.run(seconds=seconds)
    late = {key: report.lateness_ms[key] * 1000 for key in ("p50", "p99", "max")}
    return Measured(name, written, late, report.frames["missed_deadlines"], report.frames["total"], report.loop_share)


def _written(realtime: Realtime) -> str:
    """Return the call that makes it, without the arguments that are at their defaults."""
    plain = Realtime()
    given = [
        f"{name}={getattr(realtime, name)!r}"
        for name in ("priority", "lock", "spin", "core")
        if getattr(realtime, name) != getattr(plain, name)
    ]
    return f"Realtime({', '.join(given)})"


# What a Linux system says of itself that makes a loop late, each with its remedy; read from files below a root.


_STOLEN = 0.002  # share of the time that a host may take
_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen")  # read without a system call


@dataclass(frozen=True)
class Finding:
    """A setting of the system.

    Attributes:
        name: What it is.
        found: Its value, in words.
        remedy: What to do about it; None if it is as it should be, or nothing can be done.
    """

    name: str
    found: str
    remedy: str | None = None


def find(root: Path, stolen: float | None, no_priority: str | None, no_lock: str | None) -> Iterator[Finding]:
    """Yield what the system says.

    Args:
        root: Where its files are.
        stolen: Share of the time that the host gave to others while a loop was measured; None if that is not known.
        no_priority: Why this process may not have SCHED_FIFO, with the remedy; None if it may.
        no_lock: The same of locking its memory.
    """
    cores, load = posix.cores(), os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    crowded = None if cores > 1 else "a loop that spins, and its workers, need two cores"
    yield Finding("cores", f"{cores}, load average {load:.1f}", crowded)
    yield Finding("priority", "SCHED_FIFO permitted" if no_priority is None else "refused", no_priority)
    yield Finding("memory", "may be locked" if no_lock is None else "may not be locked", no_lock)
    yield _container(root, no_priority is None)
    yield _quota(root)
    yield _governor(root)
    yield _isolation(root, cores)
    yield _clock(root)
    if stolen is not None:
        remedy = "the host gives this machine's processors to others: a dedicated core, or a real machine"
        yield Finding("stolen time", f"{stolen:.2%}", remedy if stolen > _STOLEN else None)
    yield _kernel(root)


def _container(root: Path, priority: bool) -> Finding:
    if not any((root / name).exists() for name in (".dockerenv", "run/.containerenv")):
        return Finding("container", "none")
    return Finding("container", "yes", None if priority else "start it with --cap-add SYS_NICE --ulimit memlock=-1")


def _quota(root: Path) -> Finding:
    """Look for a limit on processor time, which stops a process for the rest of each 100 ms."""
    shares = posix.quota(root)
    if shares is None:
        return Finding("quota", "none")
    return Finding("quota", f"{shares:g} cores", "start the container without --cpus (CPUQuota= of a service)")


def _governor(root: Path) -> Finding:
    files = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
    governors = sorted({posix.text_of(file) for file in files})
    if not governors:
        return Finding("governor", "not shown, as on most virtual machines")
    slow = governors != ["performance"]
    return Finding("governor", ", ".join(governors), "`cpupower frequency-set -g performance`" if slow else None)


def _isolation(root: Path, cores: int) -> Finding:
    isolated = posix.text_of(root / "sys/devices/system/cpu/isolated")
    if isolated:
        return Finding("isolated", f"cores {isolated}: give one of them as Realtime(core=...)")
    # Of the cores that this process may use.
    last = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores - 1
    remedy = f"for the rarest delays: boot with `isolcpus={last} nohz_full={last}`, and give Realtime(core={last})"
    return Finding("isolated", "no core", remedy if cores > 1 else None)


def _clock(root: Path) -> Finding:
    source = posix.text_of(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not source:
        return Finding("clock", "not shown")
    remedy = f"reading {source} takes microseconds: boot with `clocksource=tsc`, if the processor's is stable"
    return Finding("clock", source, None if source in _CLOCKS else remedy)


def _kernel(root: Path) -> Finding:
    if posix.text_of(root / "sys/kernel/realtime") == "1":
        return Finding("kernel", f"{platform.release()}, PREEMPT_RT")
    runtime = posix.text_of(root / "proc/sys/kernel/sched_rt_runtime_us")
    limit = f"; SCHED_FIFO may take {int(runtime) / 1e4:g} % of a core" if runtime.isdigit() else ""
    return Finding("kernel", f"{platform.release()}, without PREEMPT_RT{limit}")


def stolen_ticks(root: Path) -> tuple[int, int] | None:
    """Return ticks stolen by the host and all ticks, over all cores; None where they are not shown."""
    line = posix.text_of(root / "proc/stat").partition("\n")[0].split()
    if len(line) < 9 or line[0] != "cpu":
        return None
    ticks = [int(each) for each in line[1:9]]
    return ticks[7], sum(ticks)


def stolen_share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    """Return the share of the ticks between two readings of `stolen_ticks` that the host has stolen."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])
