"""The process of one trial: how it is started, ended, and what is recorded of its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agents.files import write_text_atomically
from agents.sweep.trial import FAILURE, LOG, RESULT

__all__ = ["end_processes", "python_path", "record_end", "record_failure", "start_process"]

ROOT = Path(__file__).resolve().parents[2]
CHILD = "from agents.sweep.trial import main; main()"
GRACE = 15  # seconds that an interrupted trial has to end by itself


def python_path() -> str:
    """Return where this process finds its modules, for ``PYTHONPATH``."""
    return os.pathsep.join([str(ROOT), *(place or os.getcwd() for place in sys.path)])


def start_process(
    directory: Path, payload: bytes, lock: int | None, path: str, where: str | None = None
) -> subprocess.Popen[bytes]:
    """Start a trial on one thread, and tell it what to do.

    Args:
        directory: The trial's; what it prints goes there.
        payload: What it reads from its standard input, which is kept open: the trial ends with it.
        lock: A file descriptor that it holds open as long as it lives.
        path: Its ``PYTHONPATH``.
        where: Its working directory, None for ours.
    """
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with open(directory / LOG, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=where,
            env={**os.environ, **one_thread, "PYTHONPATH": path},
            start_new_session=True,  # an interrupt from the keyboard is for the sweep, which hands it on
            pass_fds=() if lock is None else (lock,),
        )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has died: its exit code says so
        process.stdin.write(len(payload).to_bytes(8, "little") + payload)
        process.stdin.flush()
    return process


def end_processes(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupt processes, so that they may save what they have; kill those that take too long."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def record_end(directory: Path, code: int, seconds: float) -> str:
    """Return ``"finished"``, or record why it is ``"failed"``.

    A trial with a result is finished however its process ended: the result is the last thing that it writes.
    """
    if (directory / RESULT).is_file():
        with suppress(OSError):
            (directory / FAILURE).unlink(missing_ok=True)
        return "finished"
    lines = (directory / LOG).read_text(errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    killed = f"killed by {signal.Signals(-code).name}" if code < 0 else "no result"
    return record_failure(directory, said[-1] if said and code > 0 else killed, lines, code, seconds)


def record_failure(
    directory: Path, error: str, log: Sequence[str] = (), code: int | None = None, seconds: float = 0.0
) -> str:
    """Record a trial's error, unless the disk is full, which must not stop the others; return ``"failed"``."""
    facts = {"error": error, "exit_code": code, "seconds": seconds, "log": log[-30:]}
    with suppress(OSError):
        write_text_atomically(directory / FAILURE, json.dumps(facts, indent=1) + "\n")
    return "failed"
