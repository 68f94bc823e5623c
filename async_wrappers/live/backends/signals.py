"""SIGINT and SIGTERM ask the main process to end, never its children: those are still needed to save what was learnt.

Both go to every process of a group (Ctrl-C; a batch system's SIGTERM), so children ignore them, and end with their
parent. A signal that arrives while a child is being started must not kill it either: it inherits a mask that blocks
both, until it ignores them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["blocked", "ignore"]

_ENDING = (signal.SIGINT, signal.SIGTERM)


def ignore() -> None:
    """Let this process, but none that it forks or starts, ignore SIGINT and SIGTERM, and receive them again.

    A handler and not SIG_IGN, which is inherited: an environment that starts its game as a program of its own could not
    end it with `Popen.terminate`.
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
        signal.siginterrupt(number, False)  # an environment's system calls do not fail with EINTR
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


@contextmanager
def blocked() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back in this thread, and in processes that it starts meanwhile until they `ignore`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
