"""In a process that another one has started: signals are its parent's, and it ends with its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import connection, parent_process
from typing import Any

import cloudpickle

from async_wrappers import posix
from async_wrappers.fleet import waits
from async_wrappers.fleet.pulse import wake_servers

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def as_child(supervisor: connection.Connection, on_orphaned: Callable[[], None] | None = None) -> Iterator[None]:
    """Ignore SIGINT and SIGTERM, exit when the parent exits, report exceptions."""
    ignore_signals()
    try:
        threading.Thread(target=_watch_parent, args=(on_orphaned,), daemon=True).start()
        yield
    except BaseException as error:
        if report(supervisor, error):
            wake_servers()
            os._exit(1)


def report(supervisor: connection.Connection, error: BaseException) -> bool:
    """Tell the supervisor of an exception; return False if it says no more than that the supervisor is gone."""
    if isinstance(error, EOFError | BrokenPipeError | ConnectionResetError) and _is_over(supervisor):
        return False
    try:
        pickled = cloudpickle.dumps(error)
    except Exception:
        pickled = None
    said = ""
    with suppress(Exception):
        said = str(error)
    with suppress(OSError):
        supervisor.send(("failed", pickled, traceback.format_exc(), f"{type(error).__name__}: {said}"))
    return True


def _is_over(supervisor: connection.Connection) -> bool:
    """Return whether the supervisor has ended, or has asked this child to end."""
    try:
        return supervisor.poll(0)
    except OSError:
        return True


def _watch_parent(on_orphaned: Callable[[], None] | None = None) -> None:
    """End this process when its parent has ended, in any way."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    wake_servers()
    if on_orphaned is not None:
        on_orphaned()
        time.sleep(waits.PATIENCE)
    os._exit(1)


def ignore_signals() -> None:
    """Let this process, but none of its children, ignore SIGINT and SIGTERM, and receive them again.

    A handler and not SIG_IGN, which is inherited: an environment that starts its game as a program of its own could not
    end it with SIGTERM.
    """
    owner = os.getpid()

    def handle(number: int, frame: Any) -> None:
        if os.getpid() == owner:
            return
        if number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in _ENDING:
        signal.signal(number, handle)
        if hasattr(signal, "siginterrupt"):
            signal.siginterrupt(number, False)  # an environment's system calls do not fail with EINTR
    posix.receive(_ENDING)


def signals_blocked() -> AbstractContextManager[None]:
    """Hold SIGINT and SIGTERM back in this thread, and in processes that it starts until they `ignore_signals`."""
    return posix.signals_blocked(_ENDING)


def one_thread() -> None:
    """Keep torch, where it is loaded, to one thread: workers share the cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def become_child() -> None:
    """Ignore Ctrl+C and SIGTERM, which end the parent; end this process when the parent is gone, however that ended."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    posix.receive(_ENDING)
    try:
        threading.Thread(target=_watch_parent, daemon=True).start()
    except RuntimeError as error:
        # Its parent tells that it has ended.
        sys.exit(f"process {os.getpid()}: {error}: raise the limit (`ulimit -u`, or a container's)")
