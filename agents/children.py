"""Processes that this one starts: they find its modules, end with it, and ignore the signals that it handles."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import AbstractContextManager
from multiprocessing import connection, parent_process

from async_wrappers import posix
from async_wrappers.pulse import wake_servers
from async_wrappers.ray_cluster import python_path

__all__ = ["become_child", "python_path", "signals_blocked"]

_ENDING = (signal.SIGINT, signal.SIGTERM)


def become_child() -> None:
    """Ignore Ctrl+C and SIGTERM, which end the parent; end this process when the parent is gone, however that ended."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    posix.receive(_ENDING)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def signals_blocked() -> AbstractContextManager[None]:
    """Hold SIGINT and SIGTERM back in a process that is started, until it ignores them."""
    return posix.signals_blocked(_ENDING)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    wake_servers()
    os._exit(1)
