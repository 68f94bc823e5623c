"""Free memory: a store that is too large for it is refused before a run begins."""

from __future__ import annotations

import os
from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Return the bytes that this process can still allocate; None where that is not known.

    That is the least of the free bytes of the machine, of the process's control group and of its address-space limit.
    """
    found = [_of_machine(), _of_group(), _of_process()]
    return min((each for each in found if each is not None), default=None)


def check_memory(size: int, what: str, remedy: str) -> None:
    """Refuse an allocation of more bytes than are available.

    Raises:
        ValueError: There are too few; the message ends with the remedy.
    """
    available = available_memory()
    if available is not None and size > available:
        raise ValueError(
            f"memory must hold {what}: that is {size / 1e9:,.1f} GB, and {available / 1e9:,.1f} GB are free; {remedy}"
        )


def _of_machine() -> int | None:
    try:
        lines = _MEMORY.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _of_group() -> int | None:
    try:
        most = (_CGROUP / "memory.max").read_text().strip()
        return None if most == "max" else int(most) - int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return None


def _of_process() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return most
    return most - pages * os.sysconf("SC_PAGE_SIZE")
