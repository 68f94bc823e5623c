"""A pool of processes, one per trial and so many at a time, that survives what its trials do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from agents.sweep.trial import FAILURE
from agents.sweep.trial_process import end_processes, python_path, record_end, record_failure, start_process

__all__ = ["run_pool"]

OnChange = Callable[[Path, str], None]


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
    path = python_path()

    def run(directory: Path, payload: bytes) -> None:
        if stopping:
            return
        (directory / FAILURE).unlink(missing_ok=True)
        on_change(directory, "running")
        begin = time.perf_counter()
        try:
            running[directory] = process = start_process(directory, payload, lock, path)
        except OSError as error:  # no room for its log, or no memory
            on_change(directory, record_failure(directory, str(error)))
            return
        if stopping:  # since we looked
            process.terminate()
        code = process.wait()
        del running[directory]
        assert process.stdin is not None
        process.stdin.close()
        if not stopping:
            on_change(directory, record_end(directory, code, time.perf_counter() - begin))

    with ThreadPoolExecutor(jobs) as threads:
        futures = [threads.submit(run, directory, payload) for directory, payload in payloads.items()]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stopping.append(True)
            end_processes(list(running.values()))
            raise
