"""What a Linux system says of itself that makes a loop late, each with its remedy; read from files below a root."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from async_wrappers import posix

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
    quota, _, period = _text(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not quota:
        quota = _text(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _text(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us")
    try:
        shares = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        shares = -1.0
    if shares <= 0:
        return Finding("quota", "none")
    return Finding("quota", f"{shares:g} cores", "start the container without --cpus (CPUQuota= of a service)")


def _governor(root: Path) -> Finding:
    files = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
    governors = sorted({_text(file) for file in files})
    if not governors:
        return Finding("governor", "not shown, as on most virtual machines")
    slow = governors != ["performance"]
    return Finding("governor", ", ".join(governors), "`cpupower frequency-set -g performance`" if slow else None)


def _isolation(root: Path, cores: int) -> Finding:
    isolated = _text(root / "sys/devices/system/cpu/isolated")
    if isolated:
        return Finding("isolated", f"cores {isolated}: give one of them as Realtime(core=...)")
    # Of the cores that this process may use.
    last = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores - 1
    remedy = f"for the rarest delays: boot with `isolcpus={last} nohz_full={last}`, and give Realtime(core={last})"
    return Finding("isolated", "no core", remedy if cores > 1 else None)


def _clock(root: Path) -> Finding:
    source = _text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not source:
        return Finding("clock", "not shown")
    remedy = f"reading {source} takes microseconds: boot with `clocksource=tsc`, if the processor's is stable"
    return Finding("clock", source, None if source in _CLOCKS else remedy)


def _kernel(root: Path) -> Finding:
    if _text(root / "sys/kernel/realtime") == "1":
        return Finding("kernel", f"{platform.release()}, PREEMPT_RT")
    runtime = _text(root / "proc/sys/kernel/sched_rt_runtime_us")
    limit = f"; SCHED_FIFO may take {int(runtime) / 1e4:g} % of a core" if runtime.isdigit() else ""
    return Finding("kernel", f"{platform.release()}, without PREEMPT_RT{limit}")


def stolen_ticks(root: Path) -> tuple[int, int] | None:
    """Return ticks stolen by the host and all ticks, over all cores; None where they are not shown."""
    line = _text(root / "proc/stat").partition("\n")[0].split()
    if len(line) < 9 or line[0] != "cpu":
        return None
    ticks = [int(each) for each in line[1:9]]
    return ticks[7], sum(ticks)


def stolen_share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    """Return the share of the ticks between two readings of `stolen_ticks` that the host has stolen."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])


def _text(path: Path) -> str:
    """Return what a file of the system says; nothing if it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
