"""Processes that begin as forks of the test's own, which has imported PyTorch: a new interpreter takes seconds for it.

What a test says about the process itself, its first imports or its death, needs a real one: see `command_line.start`.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import IO, Any

import gin
import pytest
import torch

from async_wrappers.agents.sweep.trial import TrialProcess

__all__ = ["Running", "fork_trials", "running", "trials_as_forks"]

_FORK = multiprocessing.get_context("fork")
# What a run imports besides PyTorch for its report.
_LIBRARIES = ("matplotlib.figure", "scipy.stats", "torch.utils.tensorboard")


def _begin(stdin: int, stdout: int, stderr: int, variables: Mapping[str, str], keep: tuple[int, ...]) -> None:
    """Be as a new interpreter is: one thread, the given files, variables and modules' places, and nothing bound."""
    for number, target in enumerate((stdin, stdout, stderr)):
        os.dup2(target, number)
    first = 3
    for number in sorted(keep):
        os.closerange(first, number)
        first = number + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    encoding, _, errors = variables.get("PYTHONIOENCODING", "").partition(":")
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", 1, encoding or None, errors or None)
    sys.stderr = os.fdopen(2, "w", 1, encoding or None, "backslashreplace")
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:0] = variables.get("PYTHONPATH", "").split(os.pathsep)
    torch.set_num_threads(1)
    gin.clear_config()
    tracker: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    tracker._fd = tracker._pid = None  # the pipe to the parent's is closed


def _import_libraries() -> None:
    for name in _LIBRARIES:
        importlib.import_module(name)


class _Fork(subprocess.Popen[bytes]):
    """A fork in the place of `TrialProcess`'s base, with what the engines call of it."""

    def __init__(
        self,
        command: list[str],
        *,
        stdin: int,
        stdout: IO[bytes],
        stderr: int,
        cwd: str | None,
        env: Mapping[str, str],
        start_new_session: bool,
        pass_fds: tuple[int, ...],
    ) -> None:
        assert (stdin, stderr, start_new_session) == (subprocess.PIPE, subprocess.STDOUT, True)
        read, write = os.pipe()

        def run() -> None:
            os.setsid()
            os.chdir(cwd or ".")
            _begin(read, stdout.fileno(), stdout.fileno(), env, pass_fds)
            exec(command[-1], {"__name__": "__main__"})

        self._process = _FORK.Process(target=run)
        self._process.start()
        os.close(read)
        self.stdin, self.stdout, self.stderr = os.fdopen(write, "wb"), None, None
        self.pid, self.returncode = self._process.pid, None
        self._child_created = False  # for the base, which would look for its own child

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def poll(self) -> int | None:
        self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        while self.poll() is None:
            if timeout is not None:
                raise subprocess.TimeoutExpired("a trial", timeout)
            time.sleep(0.001)  # a thread that starts another one has reaped it, and is about to note its end
        return self.returncode


@contextmanager
def trials_as_forks() -> Iterator[None]:
    """Let trials of sweeps be forks."""
    _import_libraries()
    bases = TrialProcess.__bases__
    TrialProcess.__bases__ = (_Fork,)
    yield
    TrialProcess.__bases__ = bases


@pytest.fixture
def fork_trials() -> Iterator[None]:
    """Trials of sweeps are forks."""
    with trials_as_forks():
        yield


class Running:
    """A script in a fork."""

    def __init__(self, process: Any, out: IO[str], err: IO[str]) -> None:
        self._process, self._out, self._err = process, out, err
        self.pid: int = process.pid

    def printed(self) -> str:
        """Return what it has printed so far."""
        return _text_of(self._out)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end, and return its exit code and what it printed."""
        self._process.join(200)
        assert self._process.exitcode is not None, "it does not end"
        return self._process.exitcode, self.printed(), _text_of(self._err)

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return bool(self._process.is_alive())


def _text_of(file: IO[str]) -> str:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()  # the fork writes where the file stands


@contextmanager
def running(
    script: Path,
    place: Path,
    words: tuple[str, ...],
    variables: Mapping[str, str],
    descriptors: int | None = None,
    memory: int | None = None,
) -> Iterator[Running]:
    """Run a script in a fork, which is killed at the end of the block.

    Args:
        script: Its path.
        place: Its working directory.
        words: Its arguments.
        variables: Its environment.
        descriptors: How many it may open; None leaves the limit.
        memory: Bytes that it may have beside those of this process; None leaves the limit.
    """
    _import_libraries()
    with open(os.devnull) as nothing, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:

        def run() -> None:
            os.chdir(place)
            _begin(nothing.fileno(), out.fileno(), err.fileno(), variables, ())
            signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs the tests may ignore it
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
            if memory is not None:
                allowed = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + memory
                resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
            sys.argv = [str(script), *words]
            runpy.run_path(str(script), run_name="__main__")

        process = _FORK.Process(target=run)
        process.start()
        try:
            yield Running(process, out, err)
        finally:
            process.kill()
            process.join()
