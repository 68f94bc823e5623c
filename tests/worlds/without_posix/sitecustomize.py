"""On the path of a process, this hides from our code what Windows lacks: modules, and functions.

The libraries have versions of their own for Windows, so they keep their modules; the functions are gone for all.
"""

import builtins
import fcntl
import os
import signal
import sys
from types import ModuleType
from typing import Any

MODULES = {"fcntl", "grp", "pwd", "resource", "termios"}
FUNCTIONS = [
    *[(os, name) for name in dir(os) if name.startswith(("sched_", "SCHED_"))],
    *[(os, name) for name in ("fork", "getloadavg", "memfd_create", "mkfifo", "nice", "pidfd_open")],
    *[(os, name) for name in ("posix_fallocate", "pread", "pwrite")],
    *[(signal, name) for name in ("pthread_kill", "pthread_sigmask", "siginterrupt", "pidfd_send_signal")],
    *[(signal, name) for name in ("SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGSTOP")],
]
OURS = ("__main__", "agents", "async_wrappers", "tests", "train")

_import = builtins.__import__


def _without(name: str, globals: Any = None, *others: Any, **named: Any) -> Any:
    if str((globals or {}).get("__name__")).split(".")[0] in OURS:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name == "msvcrt":
            return _Locks("msvcrt")
    return _import(name, globals, *others, **named)


class _Locks(ModuleType):
    """Windows' locks: of bytes from the file's position on."""

    LK_NBLCK = 2

    @staticmethod
    def locking(descriptor: int, mode: int, count: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, 0, os.SEEK_CUR)


builtins.__import__ = _without
for place, name in FUNCTIONS:
    if hasattr(place, name):
        delattr(place, name)
assert sys.platform != "win32"
