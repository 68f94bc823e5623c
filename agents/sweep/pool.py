"""The local engine of a sweep: a pool of processes, one per trial, which survives whatever a trial does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from agents.sweep.trial import (
    FAILURE,
    OnChange,
    end_processes,
    python_path,
    record_end,
    record_failure,
    start_process,
)

__all__ = ["run_pool"]


def run_pool(payloads: Mapping[Path, bytes], jobs: int, lock: int | None, on_change: OnChange) -> None:
    """Run one process per directory, `jobs` at a time, until all have ended.

    Args:
        payloads: Pickled trials, by the trial's directory.
        jobs: Processes at a time.
        lock: A file descriptor that the processes hold open as long as they live.
        on_change: Called when a trial begins or ends, from several threads.

    Raises:
        KeyboardInterrupt: Interrupted; the trials have been ended, and are not marked as failed.
    """
    running: dict[Path, subprocess.Popen[bytes]] = {}
    stopping: list[bool] = []
    path = python_path()

    def run(directory: Path, payload: bytes) -> None:
        if stopping:
            return
        (directory / FAILURE).unlink(missing_ok=True)
        on_change(directory, "running")
        begin = time.perf_counter()
        # There may be no room for its log, or no memory for another process.
        try:
            running[directory] = process = start_process(directory, payload, lock, path)
        except OSError as error:
            on_change(directory, record_failure(directory, str(error)))
            return
        # The pool may have been stopped since the look above, before this process was in the table.
        if stopping:
            process.terminate()
        code = process.wait()
        del running[directory]
        assert process.stdin is not None
        process.stdin.close()
        if not stopping:
            on_change(directory, record_end(directory, code, time.perf_counter() - begin))

    # A thread per trial only waits for its process, so that no time is lost between two trials.
    with ThreadPoolExecutor(jobs) as threads:
        futures = [threads.submit(run, directory, payload) for directory, payload in payloads.items()]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stopping.append(True)
            end_processes(list(running.values()))
            raise
