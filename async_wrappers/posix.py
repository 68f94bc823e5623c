"""What POSIX systems have and others lack: locks of files, signals that are held back, the cores of a process.

Where a system lacks one of them, what can be done without is done without, and the rest is refused in one sentence.
"""

from __future__ import annotations

import errno
import math
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # all others
    msvcrt = None  # type: ignore[assignment]

_BYTE = 2**30  # that is locked on Windows, where nobody can read a locked one

LOCKED = (errno.EAGAIN, errno.EACCES)
"""The system's errors where others hold a lock."""


def lock(descriptor: int) -> None:
    """Lock an open file until it is closed, or its holder dies.

    Raises:
        OSError: It is locked by others (`LOCKED`), or its file system has no locks.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif msvcrt is not None:
        os.lseek(descriptor, _BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        raise OSError("the system has no locks of files")


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def has_fork_server() -> bool:
    """Return whether processes can share memory, and be forked by a server, as live play and its like need it."""
    return hasattr(os, "fork")


def needs_fork_server(what: str, remedy: str) -> None:
    """Refuse what needs processes that a system does not have.

    Args:
        what: The argument and its value.
        remedy: What to do instead.

    Raises:
        ValueError: The system is not POSIX.
    """
    if not has_fork_server():
        raise ValueError(f"{what} needs a POSIX system (Linux, macOS, or WSL on Windows), which this is not: {remedy}")


@contextmanager
def signals_blocked(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Hold signals back in this thread, and in processes that it starts until they `receive` them; on POSIX alone."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def receive(numbers: Sequence[signal.Signals]) -> None:
    """Let this thread receive signals that were held back when it was started."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def cores() -> int:
    """Return how many cores this process may use: of a quota, such as a container's, a part counts as one.

    Where the system does not say, it is how many there are.
    """
    given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = quota()
    return given if limit is None else min(given, math.ceil(limit))


def quota(root: Path = Path("/")) -> float | None:
    """Return the cores whose time the control groups of this process have; None where no group has a limit.

    Args:
        root: Where the system's files are.
    """
    groups = root / "sys/fs/cgroup"
    # A container may see its own group as the topmost one, and its path on the host beside it.
    places = [groups / "cpu.max", groups / "cpu/cpu.cfs_quota_us"]
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        own = path.strip("/")
        if not kinds:
            places += [each / "cpu.max" for each in ((groups / own), *(groups / own).parents)]
        elif "cpu" in kinds.split(","):
            places += [each / "cpu.cfs_quota_us" for each in ((groups / "cpu" / own), *(groups / "cpu" / own).parents)]
    limits = []
    for place in places:
        time, _, period = text_of(place).partition(" ")
        with suppress(ValueError, ZeroDivisionError):
            limits.append(int(time) / int(period or text_of(place.with_name("cpu.cfs_period_us"))))
    return min((each for each in limits if each > 0), default=None)


def text_of(path: Path) -> str:
    """Return what a file of the system says; nothing if it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
