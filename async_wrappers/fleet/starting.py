"""Starting a process and ending it, with its function and its exceptions as pickles of this machine's own."""

from __future__ import annotations

import errno
import importlib.util
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle

from async_wrappers.fleet import waits
from async_wrappers.fleet.child import signals_blocked
from async_wrappers.fleet.pulse import await_dead_fork_server, wake_servers
from async_wrappers.fleet.supervised import Child, RunFailed, assure_room

_NO_GUARD = 86  # exit code of a process that was about to start others while it imported a main script
PRELOAD = ("torch", "async_wrappers.live.backends.mains", "async_wrappers.fleet.fork_server")
_REMEDY = "raise the limit (`ulimit -u`, or a container's), or start fewer"
_TRIES = 5  # attempts to start one process, if the fork server ends meanwhile
_LONGEST = 104 - 1  # bytes that a socket's path may have on every system
_BELOW = len("/pymp-12345678/listener-12345678")  # of it, below the directory of temporary files


class Children:
    """The processes that one user has started: none of them outlives it, in whatever way it ends.

    Args:
        user: The class that starts them, in the sentence for a script without a main guard.
    """

    def __init__(self, user: str) -> None:
        """Begin without any."""
        if getattr(multiprocessing.process.current_process(), "_inheriting", False):
            os._exit(_NO_GUARD)  # the parent raises the error that explains it
        self._user = user
        self._started: list[Child | BaseProcess] = []  # that are not forgotten; the newest one is perhaps not yet up
        # At exit multiprocessing sends SIGTERM to children that are left and waits for them without limit. Ours ignore
        # SIGTERM, so they are killed before.
        util.Finalize(self, _kill, (self._started,), exitpriority=10)

    def __len__(self) -> int:
        """Return how many there are that have not been forgotten."""
        return len(self._started)

    def start(
        self,
        name: str,
        main: Callable[..., None],
        arguments: Sequence[Any],
        *,
        shares_torch: bool,
        preload: Sequence[str] = PRELOAD,
        daemon: bool = True,
    ) -> Child:
        """Start a process; again, if the fork server ends over it.

        Args:
            name: Of the process, in messages.
            main: Its main function, called with the arguments and its end of a pipe.
            arguments: See `main`.
            shares_torch: Whether it is forked by a server that has torch loaded; else it is a new interpreter.
            preload: Modules that the fork server, if it is started now, imports once for all that it forks.
            daemon: False for one that may start others.

        Raises:
            RunFailed: It cannot be started.
        """
        context: Any = multiprocessing.get_context("forkserver" if shares_torch else "spawn")
        spawned = context.get_start_method() == "spawn"
        for _ in range(_TRIES):
            assure_room()
            ours, theirs = multiprocessing.Pipe()
            process = context.Process(target=main, args=(*arguments, theirs), name=name, daemon=daemon)
            self._started.append(process)  # also if the start is interrupted
            try:
                resource_tracker.ensure_running()  # before signals are blocked, as its start unblocks them
                if not spawned:
                    _start_fork_server(preload)
                # a process that is spawned inherits the mask; one that is forked has the server's
                with _main_without_file(), signals_blocked() if spawned else nullcontext():
                    process.start()
                child = Child(name, process, ours)
                self._started[self._started.index(process)] = child
                return child
            except (EOFError, ConnectionError) as error:
                self._started.remove(process)
                ours.close()
                if spawned:
                    raise RunFailed(f"{name} ended while it was being started: see what it said above") from error
                await_dead_fork_server()
            except BaseException as error:
                ours.close()
                if isinstance(error, OSError) and error.errno == errno.EAGAIN:
                    raise RunFailed(f"{name} cannot be started, as no more processes may run: {_REMEDY}") from None
                raise
            finally:
                theirs.close()
        raise RunFailed(
            f"{name} could not be started, as the fork server ended {_TRIES} times over it: see what it said above, "
            "and whether there is room for more processes (`ulimit -u`) and memory"
        )

    def how_it_ended(self, child: Child) -> str:
        """Return how a process ended, as `Child.how_it_ended`.

        Raises:
            RuntimeError: It has imported a main script without a guard, which would have started others.
        """
        how = child.how_it_ended()
        if child.process.exitcode == _NO_GUARD:
            raise RuntimeError(
                f"{self._user} starts processes, which import the main script again: put what the script does under "
                "`if __name__ == '__main__':`"
            ) from None
        return how

    def forget(self, child: Child) -> None:
        """Release what a process took that has ended."""
        if child in self._started:
            self._started.remove(child)
            child.close()

    def join(self, children: Iterable[Child], seconds: float = waits.PATIENCE) -> None:
        """Wait for the ends of processes that were asked to end."""
        deadline = time.monotonic() + seconds
        for child in children:
            child.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End all that are left by force, and release what they took."""
        _kill(self._started)
        for child in [each for each in self._started if isinstance(each, Child)]:
            self.forget(child)
        self._started.clear()


def _kill(started: Sequence[Child | BaseProcess]) -> None:
    """End by force all that have not ended."""
    left = [each for each in started if each.is_alive()]
    for each in left:
        each.kill()
    for each in left:
        each.join(waits.PATIENCE)


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        RunFailed: No more threads may run.
    """
    try:
        thread.start()
    except RuntimeError:
        raise RunFailed(f"{thread.name} cannot be started, as no more threads may run: {_REMEDY}") from None


def pickled(name: str, value: Any) -> bytes:
    """Return a factory's bytes, or raise a ValueError that names the part that cannot be pickled."""
    try:
        payload: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise ValueError(
            f"{name} cannot be sent to another process: {error}; make what cannot be pickled inside the function"
        ) from error
    return payload


def unpickled(payload: bytes | None) -> BaseException | None:
    """Return a child's exception; None if it could not be pickled."""
    with suppress(Exception):
        error: BaseException | None = None if payload is None else cloudpickle.loads(payload)
        return error
    return None


def shorten_socket_paths() -> None:
    """Let multiprocessing put its sockets into ``/tmp`` where TMPDIR is too long for their paths.

    It has one directory for them in a program, which children take over, and removes it at the end.

    Raises:
        RunFailed: ``/tmp`` takes none, or that directory has been made in TMPDIR.
    """
    before = tempfile.gettempdir()
    if len(os.fsencode(before)) + _BELOW <= _LONGEST:
        return
    tempfile.tempdir = "/tmp"
    try:
        made = len(os.fsencode(util.get_temp_dir())) <= _LONGEST
    except OSError:
        made = False
    finally:
        tempfile.tempdir = before
    if not made:
        raise RunFailed(
            f"TMPDIR must be at most {_LONGEST - _BELOW} bytes long for the sockets of processes, as /tmp cannot take "
            f"their place, got {before!r}: set it to a shorter directory"
        )


def _start_fork_server(preload: Sequence[str]) -> None:
    """Start the fork server, if it is not running; see `fork_server` for why signals are blocked meanwhile."""
    forkserver.set_forkserver_preload([name for name in preload if importlib.util.find_spec(name)])
    shorten_socket_paths()
    with signals_blocked():
        forkserver.ensure_running()
    wake_servers()


@contextmanager
def _main_without_file() -> Iterator[None]:
    """Hide the name of a main script that is no file (standard input), so that children do not try to import it."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or os.path.exists(file):
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = file
