"""A pool of processes, one per trial and so many at a time, that survives what its trials do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path

from agents.experiment.trial import FAILURE, LOG, RESULT
from agents.files import write_text_atomically

__all__ = ["DirectoryInUse", "alone_in", "run_pool"]

ROOT = Path(__file__).resolve().parents[2]
CHILD = "from agents.experiment.trial import main; main()"
GRACE = 15  # seconds that an interrupted trial has to end by itself
PATIENCE = 10  # seconds for the trials of a killed sweep to be gone

OnChange = Callable[[Path, str], None]


class DirectoryInUse(ValueError):
    """Another sweep is running in the directory."""


def run_pool(payloads: Mapping[Path, bytes], jobs: int, lock: int | None, on_change: OnChange) -> None:
    """Run one process per directory, `jobs` at a time, until all have ended.

    Args:
        payloads: By the trial's directory, what its process reads from its standard input.
        jobs: Processes at a time.
        lock: A file descriptor that the processes hold open as long as they live.
        on_change: Told (directory, ``"running"``, ``"finished"`` or ``"failed"``) as it happens; from several threads.

    Raises:
        KeyboardInterrupt: Interrupted; the trials have been ended, and are not marked as failed.
    """
    running: dict[Path, subprocess.Popen[bytes]] = {}
    stopping: list[bool] = []

    def run(directory: Path, payload: bytes) -> None:
        if stopping:
            return
        (directory / FAILURE).unlink(missing_ok=True)
        on_change(directory, "running")
        begin = time.perf_counter()
        running[directory] = process = _start(directory, payload, lock)
        if stopping:  # since we looked
            process.terminate()
        code = process.wait()
        del running[directory]
        assert process.stdin is not None
        process.stdin.close()
        if stopping:
            return
        finished = code == 0 and (directory / RESULT).is_file()
        if not finished:
            with suppress(OSError):  # a full disk must not stop the others
                _record_failure(directory, code, time.perf_counter() - begin)
        on_change(directory, "finished" if finished else "failed")

    with ThreadPoolExecutor(jobs) as threads:
        futures = [threads.submit(run, directory, payload) for directory, payload in payloads.items()]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stopping.append(True)
            _end(list(running.values()))
            raise


def _start(directory: Path, payload: bytes, lock: int | None) -> subprocess.Popen[bytes]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    path = os.pathsep.join([str(ROOT), *(place or os.getcwd() for place in sys.path)])
    with open(directory / LOG, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **one_thread, "PYTHONPATH": path},
            start_new_session=True,  # an interrupt from the keyboard is for the sweep, which hands it on
            pass_fds=() if lock is None else (lock,),
        )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has died: its exit code says so
        process.stdin.write(len(payload).to_bytes(8, "little") + payload)
        process.stdin.flush()
    return process


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Interrupt processes, so that they may save what they have; kill those that take too long."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def _record_failure(directory: Path, code: int, seconds: float) -> None:
    lines = (directory / LOG).read_text(errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    error = said[-1] if said and code > 0 else f"killed by {signal.Signals(-code).name}" if code < 0 else "no result"
    facts = {"error": error, "exit_code": code, "seconds": seconds, "log": lines[-30:]}
    write_text_atomically(directory / FAILURE, json.dumps(facts, indent=1) + "\n")


@contextmanager
def alone_in(directory: Path) -> Iterator[int | None]:
    """Hold the directory's lock; trials inherit it, so that it is free only once they too are gone.

    Yields:
        The lock's file descriptor; None on Windows, which cannot hand it on.

    Raises:
        DirectoryInUse: It is held by others.
    """
    try:
        import fcntl
    except ImportError:
        yield None
        return
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as file:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise DirectoryInUse(f"base_dir {directory}: another sweep is running there: let it end") from None
                time.sleep(0.05)
        yield file.fileno()
