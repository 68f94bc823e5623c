"""Supervision of a child process: whether it lives and works, how it ended, and the file descriptors that it takes.

The kernel is asked about the process itself. multiprocessing takes its answers from the fork server, and if that is
killed, it reports all children as dead while they run on.

Each worker costs its supervisor a few file descriptors: many workers reach the system's limit.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from async_wrappers.checks import refuse_daemonic
from async_wrappers.live.run_spec import RunFailed

__all__ = ["Child", "Pulse", "assure_room", "enough_descriptors"]


STOPPED_FOR = 10.0  # seconds that a process may be stopped (SIGSTOP) before it counts as dead
IDLE_FOR = 600.0  # seconds that one which owes an answer may use no processor time
_STEP = 2.0  # seconds that lie at most between two looks, however late the second one is


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
        """See the class."""
        self._path = proc / str(pid) / "stat"
        self._looked = time.monotonic()
        self._used = -1
        self.stopped = 0.0
        """Seconds for which it has been stopped."""
        self.idle = 0.0
        """Seconds for which it has owed an answer, slept, and used no processor time."""

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


@dataclass(eq=False)
class Child:
    """A started process, the supervisor's end of its pipe, and its history.

    Attributes:
        name: Its name in messages.
        awaits_layout: Whether it waits for the layout of the weights before anything else.
        incarnation: How many were there before it under the same number.
        failures: How many of them in a row ended before they had done anything.
        updates: Made by those before it.
        restart_at: When the next one is to be started, in monotonic seconds; None while it lives.
        error: Its exception, if that could be pickled, and its traceback.
        unmade: Whether the exception came from making its policy.
        closes: Whether it has come to its environment's `close`.
    """

    name: str
    process: BaseProcess
    pipe: connection.Connection
    awaits_layout: bool = False
    incarnation: int = 0
    failures: int = 0
    updates: int = 0
    restart_at: float | None = None
    error: tuple[BaseException | None, str] | None = None
    unmade: bool = False
    closes: bool = False
    started: int = field(default_factory=time.monotonic_ns)

    def __post_init__(self) -> None:
        """Take hold of the process: a number could come to mean another one, a descriptor cannot."""
        assert self.process.pid is not None
        self.pulse = Pulse(self.process.pid)
        self._descriptor: int | None = None
        with suppress(AttributeError, ProcessLookupError, PermissionError):
            self._descriptor = _process_descriptor(self.process.pid)

    @property
    def sentinel(self) -> int:
        """The object that is ready for `connection.wait` when the process has ended."""
        return self.process.sentinel if self._descriptor is None else self._descriptor

    def is_alive(self) -> bool:
        """Return whether the process has not ended."""
        return not connection.wait([self.sentinel], 0)

    def join(self, seconds: float) -> bool:
        """Wait for the process to end, and return whether it has."""
        return bool(connection.wait([self.sentinel], seconds))

    def kill(self) -> None:
        """End the process by force, stopped or not."""
        self._send(signal.SIGKILL)

    def go_on(self) -> None:
        """Let the process go on if it is stopped."""
        self._send(signal.SIGCONT)

    def how_it_ended(self) -> str:
        """Return an end of a sentence, such as "was ended by SIGKILL"."""
        self.process.join(1)  # the fork server reports the exit code a little later
        code = self.process.exitcode
        if code is None or code == _UNKNOWN:
            return "ended"
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            name = signal.Signals(-code).name
            hint = ", as the system does where memory runs out" if -code == signal.SIGKILL else ""
            return f"was ended by {name} (exit code {code}){hint}"
        return f"was ended by signal {-code} (exit code {code})"

    def close(self) -> None:
        """Release the pipe and the process, which has ended."""
        self.pipe.close()
        self.process.join(1)
        with suppress(ValueError):  # the fork server has not said so yet
            self.process.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, number)
            elif self.process.is_alive():
                assert self.process.pid is not None
                os.kill(self.process.pid, number)


_UNKNOWN = 255  # exit code of a process whose fork server is gone, as multiprocessing has it


def _process_descriptor(pid: int) -> int | None:
    """Return a descriptor of a process: ready when it has ended, also if it has another parent (Linux)."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return None
        raise


_ONE_START = 16  # descriptors that starting a process takes, most of them for a moment
_EACH, _BESIDES = 8, 256  # descriptors that are asked for: by worker, and for all else; more than are needed


@contextmanager
def enough_descriptors(workers: int) -> Iterator[None]:
    """Name the remedy if the descriptors run out in the block.

    Raises:
        RunFailed: They have.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        import resource  # not on Windows, where no such limit is met

        limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _EACH * workers + _BESIDES
        most = "" if hard < 0 or wanted <= hard else f"; at most {hard} are allowed"
        raise RunFailed(
            f"workers={workers} need more open files than the {limit} that a process may have here: raise the limit "
            f"(`ulimit -n {wanted}`{most}), or take fewer workers"
        ) from None


def assure_room() -> None:
    """Raise the system's error if there are too few descriptors for starting a process.

    multiprocessing loses some if they run out while it starts one.

    Raises:
        OSError: There are too few.
        RuntimeError: This process is a daemon, which may start none.
    """
    refuse_daemonic()
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while len(taken) < _ONE_START:
            taken.append(os.dup(taken[0]))
    finally:
        for each in taken:
            os.close(each)
