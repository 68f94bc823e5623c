"""Realtime scheduling of the environment loop: its priority, its memory, its core, and the last moments of its waits.

A loop that sleeps until a deadline is as punctual as the system wakes it. Four things make that later than it need be,
and each has its setting: other processes have the core (``priority``), a page of memory has to be found (``lock``), the
core has to wake from a sleep of its own (``spin``), and other work has warmed the core's caches (``core``). Linux has
all four.
"""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_wrappers import checks
from async_wrappers.live.report.histogram import Histogram
from async_wrappers.needs import refuse
from async_wrappers.settings import Settings, documented, flag, setting, whole

_SHORTEST, _FIRST, _LONGEST = 50_000, 150_000, 300_000  # nanoseconds awake before a deadline, where it is measured
_EVERY = 1000  # wake-ups after which it is measured anew
_MOST_SPIN = 0.01  # seconds
_IPC_LOCK = 14  # number of the capability to lock memory
_LOCK_NOW, _LOCK_LATER = 1, 2  # MCL_CURRENT, MCL_FUTURE
_TIMER_SLACK = 29  # PR_SET_TIMERSLACK


def _priority(name: str, value: Any) -> int | None:
    return None if value is None else checks.whole(name, value, 1, 99)


def _spin(name: str, value: Any) -> float:
    wanted = f"a number of seconds from 0 to {_MOST_SPIN}, or None"
    return checks.number(name, value, wanted, lambda seconds: 0 <= seconds <= _MOST_SPIN)


@dataclass(frozen=True)
class _RealtimeArguments(Settings):
    priority: int | None = setting(
        50,
        "Priority of the environment loop's thread under SCHED_FIFO, before all ordinary processes; threads and "
        "processes that the environment starts do not inherit it. None: ordinary scheduling, with timers of 1 ns of "
        "slack.",
        _priority,
        "It must be from 1 to 99, or None.",
    )
    lock: bool = flag(True, "Whether the memory of the loop's process is locked, so that no page of it is swapped out.")
    spin: float | None = setting(
        None,
        "Seconds before each deadline in which the loop does not sleep, but keeps reading the clock and messages. 0: "
        "it sleeps. None: as long as the system takes to wake it (the p99.9 of its wake-ups so far, from 50 to 300 "
        "us).",
        _spin,
        "It must be from 0 to 0.01, or None.",
    )
    core: int | None = whole(
        None, "Core of the environment loop, from which workers and learners stay away. None: any core.", 0
    )


@documented(_RealtimeArguments)
@dataclass(frozen=True)
class Realtime(_RealtimeArguments):
    """Realtime scheduling for the environment loop of ``AsyncRunner(realtime=Realtime())``, on Linux.

    With ``backend="process"`` alone: the loop has a process of its own there. On the virtual clock nothing is late, and
    it is ignored.

    Raises:
        ValueError: An argument out of range.
    """

    def refuse(self) -> None:
        """Refuse what this process may not do, before anything is started.

        Raises:
            PermissionError: There is no right to the priority, or to lock memory.
            ValueError: The core is none that this process may use, or its only one; or the system is not Linux.
        """
        if not hasattr(os, "sched_setscheduler") or not hasattr(os, "sched_setaffinity"):
            raise ValueError(f"realtime must be None on systems other than Linux, got {self!r}")
        if self.core is not None:
            cores = sorted(os.sched_getaffinity(0))
            if self.core not in cores:
                raise ValueError(f"core must be one that this process may use, of {cores}, got {self.core}")
            refuse({"one core": len(cores) == 1}, {"core": self.core})
        if self.priority is not None and not may_schedule(self.priority):
            raise PermissionError(no_priority(self.priority))
        if self.lock and not may_lock():
            raise PermissionError(no_lock())

    def apply(self) -> None:
        """Schedule the calling thread, and lock this process's memory.

        Raises:
            PermissionError: The system refuses it.
        """
        if self.core is not None:
            os.sched_setaffinity(0, {self.core})
        library = ctypes.CDLL(None, use_errno=True)
        if self.priority is None:
            # Timers may be 50 us late otherwise; those of SCHED_FIFO are not.
            library.prctl(_TIMER_SLACK, ctypes.c_ulong(1), 0, 0, 0)
        else:
            try:
                os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(self.priority))
            except PermissionError:
                raise PermissionError(no_priority(self.priority)) from None
        if self.lock and library.mlockall(_LOCK_NOW | _LOCK_LATER):
            raise PermissionError(f"{no_lock()} ({os.strerror(ctypes.get_errno())})")


class Spin:
    """For how long before a deadline the loop stays awake.

    Args:
        seconds: Fixed, or None for the p99.9 of the measured wake-ups, from 50 to 300 us.

    Attributes:
        length: Nanoseconds.
    """

    def __init__(self, seconds: float | None) -> None:
        self._wakes = Histogram() if seconds is None else None
        self.length = _FIRST if seconds is None else round(seconds * 1e9)

    def note(self, late: int) -> None:
        """Note by how many nanoseconds a sleep has ended too late."""
        if self._wakes is None:
            return
        self._wakes.append(late)
        if self._wakes.count % _EVERY == 0:
            self.length = min(max(round(self._wakes.quantile(0.999)), _SHORTEST), _LONGEST)


def may_schedule(priority: int) -> bool:
    """Return whether this process may schedule a thread with SCHED_FIFO: a thread tries, and ends at once."""
    allowed: list[bool] = []

    def attempt() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
        except OSError:
            return
        allowed.append(True)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return bool(allowed)


def may_lock() -> bool:
    """Return whether this process may lock all its memory."""
    import resource  # not on Windows

    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY or _has_capability(_IPC_LOCK)


def no_priority(priority: int) -> str:
    """Return the sentence that refuses a priority, with the remedy."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
    return (
        f"realtime needs the right to SCHED_FIFO at priority={priority}, and `ulimit -r` is {limit} here: put the line "
        f"`{_user()} - rtprio {priority}` into /etc/security/limits.conf and log in again (in a container: --cap-add "
        "SYS_NICE), or give Realtime(priority=None)"
    )


def no_lock() -> str:
    """Return the sentence that refuses to lock memory, with the remedy."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return (
        f"realtime needs the right to lock all memory (lock=True), and `ulimit -l` is {limit // 1024} kB here: put the "
        f"line `{_user()} - memlock unlimited` into /etc/security/limits.conf and log in again (in a container: "
        "--ulimit memlock=-1), or give Realtime(lock=False)"
    )


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _has_capability(number: int, status: Path = Path("/proc/self/status")) -> bool:
    """Return whether this process has a capability of Linux's."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return False
    held = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(held, 16) >> number & 1)
