"""Whether a process is stopped, or hangs, by the system's own account; and how multiprocessing's own ones go on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

_FORK_SERVER = getattr(forkserver, "_forkserver", None)
_TRACKER = getattr(resource_tracker, "_resource_tracker", None)

STOPPED_FOR = 10.0  # seconds that a process may be stopped (SIGSTOP) before it counts as dead
IDLE_FOR = 600.0  # seconds that one which owes an answer may use no processor time
_LOOK = 1.0  # seconds between two looks
_STEP = 2.0  # seconds that lie at most between two looks, however late the second one is
FREES_FOR = 1.0  # seconds for which a start that failed waits for the fork server's end


class Pulse:
    """Whether a process is stopped, or hangs.

    A limit on the time of an answer cannot tell: an update of a large network takes tens of seconds, saving a replay
    minutes, and a heartbeat from a thread stops while the interpreter's lock is held. The kernel can: a process that
    works uses processor time, a stopped one has a state of its own, and one in a deadlock uses no processor time.

    Time is counted in looks, not read from the clock: after Ctrl-Z and `fg` the clock has gone on for all processes,
    and none of them has hung. Without /proc every process counts as one at work.

    Args:
        pid: Of the process.
        proc: The system's directory of processes.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._path = proc / str(pid) / "stat"
        self._looked = time.monotonic()
        self._used = -1
        self.stopped = 0.0
        """Seconds for which it has been stopped."""
        self.idle = 0.0
        """Seconds for which it has owed an answer, slept, and used no processor time."""

    def is_due(self) -> bool:
        """Return whether the last look is a second ago."""
        return time.monotonic() - self._looked >= _LOOK

    def look(self, owes: bool) -> None:
        """Look again; to be called about once a second, or more often.

        Args:
            owes: Whether it owes an answer, and does not just wait for something to do.
        """
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _STEP), now
        try:
            fields = self._path.read_text().rpartition(")")[2].split()  # a command's name may hold anything
            state, used = fields[0], int(fields[11]) + int(fields[12])
        except (OSError, IndexError, ValueError):
            state, used = "", -1
        self.stopped = self.stopped + passed if state == "T" else 0.0  # not "t": a debugger looks at it
        rests = owes and state == "S" and used == self._used  # not "D": it waits for a disk
        self.idle = self.idle + passed if rests else 0.0
        self._used = used

    def ailment(self) -> str | None:
        """Return in a few words why the process counts as dead, or None."""
        if self.stopped >= STOPPED_FOR:
            return f"has been stopped (SIGSTOP) for {STOPPED_FOR:g} s"
        if self.idle >= IDLE_FOR:
            return f"has neither answered nor used any processor time for {IDLE_FOR:g} s"
        return None


def wake_servers() -> None:
    """Let the fork server and the resource tracker of this process go on if they are stopped.

    Whoever starts a process, or asks how one ended, waits for the first; both stay for ever if they are stopped when
    this process ends.
    """
    pids = getattr(_FORK_SERVER, "_forkserver_pid", None), getattr(_TRACKER, "_pid", None)
    for pid in pids:
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def await_dead_fork_server() -> None:
    """Wait a while for the end of a fork server over which a start has failed, so that the next start finds it gone.

    One that is killed frees its memory first, and until then multiprocessing takes it for one at work.
    """
    pid = getattr(_FORK_SERVER, "_forkserver_pid", None)
    begin = time.monotonic()
    with suppress(ChildProcessError):  # its end has been read already
        while pid is not None and time.monotonic() - begin < FREES_FOR:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            time.sleep(0.01)
