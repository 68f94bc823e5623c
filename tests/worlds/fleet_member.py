"""A member of a fleet that does what it is told, also what no member should."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from multiprocessing import connection
from typing import Any

from async_wrappers.fleet.child import as_child


def run_member(number: int, incarnation: int, at_once: str, supervisor: connection.Connection) -> None:
    """Run a process of this machine."""
    with as_child(supervisor):
        live(number, incarnation, at_once, supervisor)


def live(number: int, incarnation: int, at_once: str, supervisor: connection.Connection) -> None:
    """Say who this is, do something at once, then whatever comes; end at None."""
    supervisor.send(("up", number, incarnation))
    obey(at_once, supervisor)
    while (what := supervisor.recv()) is not None:
        obey(what, supervisor)
    if at_once.startswith("lingers"):
        supervisor.send(("closes",))
        time.sleep(float(at_once.split()[1]))


def obey(what: Any, supervisor: connection.Connection) -> None:
    if what == "raise":
        raise LookupError("no such level")
    if what == "exit":
        sys.exit(3)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "leave heir":
        subprocess.Popen(["sleep", "60"], pass_fds=[supervisor.fileno()])
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "half":
        os.write(supervisor.fileno(), struct.pack("!i", 100) + b"the beginning")
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "hang":
        threading.Event().wait()
    if isinstance(what, int):
        supervisor.send(("answer", what + 1))
