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

from async_wrappers.checks import refuse_daemonic
from async_wrappers.fleet.pulse import Pulse, wake_servers


@dataclass(eq=False)
class Child:
    """A started process, and the supervisor's end of its pipe.

    Attributes:
        name: Its name in messages.
        incarnation: How many were there before it under the same number.
        started: When, in monotonic nanoseconds.
    """

    name: str
    process: BaseProcess
    pipe: connection.Connection
    incarnation: int = 0
    started: int = field(default_factory=time.monotonic_ns)
    reported_within = 1.0  # seconds after its end

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

    @property
    def pid(self) -> int | None:
        """The process's id."""
        return self.process.pid

    @property
    def place(self) -> str:
        """Which process it is, in words."""
        return f"process {self.process.pid}"

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

    def ended_by(self) -> str | None:
        """Return the name of the signal that has ended the process, if one has and that is known."""
        wake_servers()
        self.process.join(1)  # the fork server reports the exit code a little later
        code = self.process.exitcode
        return None if code is None or code >= 0 else _name_of(-code)

    def ended_in_short(self) -> str:
        """Return an end of a sentence: "has ended", or "was ended by SIGKILL"."""
        name = self.ended_by()
        return "has ended" if name is None else f"was ended by {name}"

    def how_it_ended(self) -> str:
        """Return an end of a sentence, such as "was ended by SIGKILL (exit code -9)"."""
        self.ended_by()
        code = self.process.exitcode
        if code is None or code == _UNKNOWN:
            return "ended"
        if code >= 0:
            return f"ended with exit code {code}"
        hint = ", as the system does where memory runs out" if -code == signal.SIGKILL else ""
        return f"was ended by {_name_of(-code)} (exit code {code}){hint}"

    def close(self) -> None:
        """Release the pipe and the process, which has ended."""
        self.pipe.close()
        wake_servers()
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


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


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
_EACH, _BESIDES = 8, 256  # descriptors that are asked for: by process, and for all else; more than are needed


@contextmanager
def enough_descriptors(**parts: int) -> Iterator[None]:
    """Name the remedy if the descriptors run out in the block.

    Args:
        **parts: By argument of the caller's user, how many processes, or threads, it asks for.

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
        wanted = _EACH * sum(parts.values()) + _BESIDES
        most = "" if hard < 0 or wanted <= hard else f"; at most {hard} are allowed"
        raise RunFailed(
            f"{' and '.join(f'{name}={count}' for name, count in parts.items())} need more open files than the {limit} "
            f"that a process may have here: raise the limit (`ulimit -n {wanted}`{most}), or take fewer "
            f"{' or '.join(parts)}"
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


# The exception of a run that cannot go on.


class RunFailed(RuntimeError):
    """A part of the run has ended for good; its exception, if it raised one, is the cause."""


class Exited(RunFailed):
    """A child has ended itself by what ends programs, as ``sys.exit`` does; raised here that would end this one too.

    Args:
        name: Of the child.
        how: An end of a sentence, such as "raised SystemExit(0)".
    """

    def __init__(self, name: str, how: str) -> None:
        super().__init__(name, how)
        self.how = how

    def __str__(self) -> str:
        return " ".join(self.args)


def as_raised(name: str, error: BaseException) -> Exception:
    """Return the exception to raise for one of a child's: itself, or `Exited` with its words where it ends programs."""
    if isinstance(error, Exception):
        return error
    exited = Exited(name, f"raised {error!r:.200}")
    exited.__cause__ = error
    return exited


def raised_in(name: str, error: BaseException | None, text: str) -> Exception:
    """Return the exception to raise for one of another process's, with its traceback; None if it was not pickled."""
    if error is None:
        return RunFailed(f"{name} raised:\n{text}")
    raised = as_raised(name, error)
    raised.add_note(f"raised in {name}; its traceback:\n{text}")
    return raised
