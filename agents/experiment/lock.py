"""One process at a time in a directory, by a lock that the kernel frees when its holder dies, however it dies.

A second one is refused at once while the holder lives. Processes that a killed holder started may take a moment to end,
and are waited for.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from async_wrappers import posix

LOCK = "lock"
PATIENCE = 10  # seconds for the children of a killed holder to be gone

NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


class DirectoryInUse(ValueError):
    """Another process is running in the directory; the message is one sentence."""


@dataclass(eq=False)
class _Held:
    """A lock that the caller may hold again."""

    descriptor: int | None


_all: list[_Held] = []  # a context may outlive what was held in it, and a copy of the process has none
_within: ContextVar[dict[Path, _Held]] = ContextVar("_within", default={})  # noqa: B039  # never changed in place


@contextmanager
def alone_in(directory: Path, name: str = LOCK, *, nested: bool = False) -> Iterator[int | None]:
    """Hold the directory's lock.

    The file holds the holder's process id while it is held. Forked processes do not share the lock; a child that is
    given the descriptor does, so that it is free only once the child too is gone. Where the file system has no locks,
    or the directory cannot be written, there is only a warning.

    Args:
        directory: Made if it is missing, and removed again if nothing was written into it.
        name: Of the lock's file.
        nested: Whether the caller may hold it already.

    Yields:
        The lock's file descriptor; None where there is none.

    Raises:
        DirectoryInUse: It is held by others.
        OSError: The directory cannot be made.
    """
    path = directory.resolve() / name
    within = {each: lock for each, lock in _within.get().items() if lock in _all}
    if nested and path in within:
        yield within[path].descriptor
        return
    made = _make(directory)
    try:
        lock = _acquire(directory, path)
        _all.append(lock)
        _within.set({**within, path: lock})
        try:
            yield lock.descriptor
        finally:
            _release(lock, path, remove=bool(made))
    finally:
        _remove(made)


def is_in_use(directory: Path) -> bool:
    """Return whether a process of this machine holds the directory's lock."""
    path = directory / LOCK
    try:
        holder = path.read_text(errors="replace").split()
    except FileNotFoundError:
        return False
    return _is_locked(path) if sys.platform == "win32" else lives(holder)


def _is_locked(path: Path) -> bool:
    """Return whether somebody holds a lock, by trying to take it; where a process cannot be asked whether it lives."""
    with suppress(OSError), open(path, "rb") as file:
        posix.lock(file.fileno())
        return False
    return True


def _make(directory: Path) -> list[Path]:
    """Make a directory, and return those that were missing, the innermost first."""
    missing = [each for each in (directory, *directory.parents) if not os.path.exists(each)]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        _remove(missing)
        raise
    return missing


def _remove(directories: list[Path]) -> None:
    for each in directories:
        with suppress(OSError):  # it is not there, or something was written there
            each.rmdir()


def _acquire(directory: Path, path: Path) -> _Held:
    deadline = time.monotonic() + PATIENCE
    while True:
        descriptor = _open(path)
        if descriptor is None:
            return _Held(None)
        try:
            posix.lock(descriptor)
        except OSError as error:
            os.lseek(descriptor, 0, os.SEEK_SET)
            holder = os.read(descriptor, 300).decode(errors="replace").split()
            os.close(descriptor)
            if error.errno not in posix.LOCKED:
                logging.warning("%s cannot be locked (%s): see to it that nothing else runs there", path, error)
                return _Held(None)
            if lives(holder) or time.monotonic() > deadline:
                raise DirectoryInUse(_in_use(directory, holder)) from None
            time.sleep(0.05)
            continue
        if posix.is_at(descriptor, path):
            with suppress(OSError):  # a full disk; the name of the holder is for the message alone
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
                os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
            return _Held(descriptor)
        os.close(descriptor)  # its last holder has removed it since it was opened


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
    with suppress(OSError):
        return os.open(path, os.O_RDONLY)  # another user's, which can be locked all the same
    return None  # nothing can be written there


def _release(lock: _Held, path: Path, remove: bool) -> None:
    """Give a lock back, and remove its file if that is all that its directory holds."""
    _all.remove(lock)
    if lock.descriptor is None:
        return
    with suppress(OSError):
        os.ftruncate(lock.descriptor, 0)
        if remove and os.listdir(path.parent) == [path.name]:
            path.unlink()
    os.close(lock.descriptor)


def lives(holder: list[str]) -> bool:
    """Return whether the holder, in the words of a lock, is known to live; that of another machine is not known."""
    if len(holder) != 2 or not holder[0].isdecimal() or holder[1] != socket.gethostname():
        return False
    if sys.platform == "win32":  # whose `os.kill` would end it
        return False
    try:
        os.kill(int(holder[0]), 0)
    except PermissionError:
        return True  # another user's
    except (OSError, OverflowError, ValueError):  # of what is no process id
        return False
    # A zombie, which has ended but was not waited for, counts as dead; known on Linux alone.
    with suppress(OSError, IndexError):
        return Path(f"/proc/{holder[0]}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _in_use(directory: Path, holder: list[str]) -> str:
    who = ""
    if len(holder) == 2:
        who = f", process {holder[0]}" + ("" if holder[1] == socket.gethostname() else f" on {holder[1]}")
    return f"base_dir {directory} is in use (by another run or sweep{who}): let it end, or choose another base_dir"


def _close_in_fork() -> None:
    """Close the locks in a copy of the process: it must not hold them on when this one has died."""
    for lock in _all:
        if lock.descriptor is not None:
            os.close(lock.descriptor)
    _all.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_fork)
