"""One trial of a sweep: what runs, the process that it runs in, and the files that it leaves.

A trial's process runs `main`, below. Its standard input carries the pickled trial, after the pickle's length in eight
bytes, and then stays open. The trial ends when that input does, so that no trial outlives its sweep, even a sweep that
was killed with SIGKILL. A trial that is interrupted with SIGTERM sees a KeyboardInterrupt and may save what it has.

The files of a trial's directory say what became of it, and nothing else does: sweeps have no memory of their own. A
trial with ``result.json`` is finished, however its process ended, because the result is the last file that it writes.
A trial with ``failure.json`` alone has failed. Every other trial waits: it has not begun, or it was cut off.
"""

from __future__ import annotations

import json
import numbers
import os
import pickle
import runpy
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.experiment.metrics import read_iterations
from agents.files import write_text_atomically

__all__ = [
    "FAILURE",
    "LOG",
    "RESULT",
    "GinTrial",
    "Metrics",
    "OnChange",
    "Trial",
    "TrialFunction",
    "end_processes",
    "main",
    "python_path",
    "record_end",
    "record_failure",
    "record_stop",
    "run_metrics",
    "start_process",
    "trial_status",
]

RESULT = "result.json"
FAILURE = "failure.json"
LOG = "log.txt"

Metrics = Mapping[str, float | Sequence[float]]
"""Numbers by name: one per trial, or a list with one per iteration."""

TrialFunction = Callable[[dict[str, Any], int, Path], Metrics]
"""From (bindings of the point, seed, directory) to metrics."""

OnChange = Callable[[Path, str], None]
"""Called with a trial's directory and ``"running"``, ``"finished"`` or ``"failed"``, as it happens."""

# Seconds that an interrupted trial has to save what it has.
_GRACE = 15
_ROOT = Path(__file__).resolve().parents[2]
_CHILD = "from agents.sweep.trial import main; main()"
_METRICS_PER_ITERATION = (
    "average_return",
    "average_steps_per_second",
    "actions_per_frame",
    "updates_per_action",
    "wins",
    "losses",
    "encounter",
)
_METRIC_OF_AGENT = {"trained": "final_return", "random": "random_return", "no-op": "noop_return"}


@dataclass(frozen=True)
class Trial:
    """A point of the grid with a seed.

    Attributes:
        name: Name of its directory.
        arm: The point's arm.
        bindings: The point's bindings.
        seed_number: 0, 1, ...
        seed: Derived from the bindings and `seed_number`.
    """

    name: str
    arm: str
    bindings: dict[str, Any]
    seed_number: int
    seed: int


def trial_status(directory: Path) -> str:
    """Return whether the trial of a directory is ``"finished"``, ``"failed"`` or ``"waiting"``."""
    if (directory / RESULT).is_file():
        return "finished"
    return "failed" if (directory / FAILURE).is_file() else "waiting"


# What runs.


@dataclass(frozen=True)
class GinTrial:
    """A trial that is a run of train.py; its metrics are those of the iterations and of the closing table.

    Args:
        script: The path of train.py.
        arguments: ``--gin_files`` and ``--gin_bindings`` that all trials share.
    """

    script: str
    arguments: tuple[str, ...]

    def words(self, bindings: Mapping[str, Any], seed: int, base_dir: Path) -> list[str]:
        """Return the command line of a trial."""
        own = [word for key, value in bindings.items() for word in ("--gin_bindings", f"{key} = {value}")]
        # A sweep over agents has bindings that only some of its trials read; it has checked that each is read by one.
        seed_words = ["--seed", str(seed), "--allow_unread"]
        return [self.script, "--base_dir", str(base_dir), *self.arguments, *own, *seed_words]

    def __call__(self, bindings: dict[str, Any], seed: int, base_dir: Path) -> Metrics:
        """Run train.py, which continues a run that was cut off."""
        sys.argv = self.words(bindings, seed, base_dir)
        try:
            runpy.run_path(self.script, run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
        return run_metrics(base_dir)


def run_metrics(base_dir: Path) -> dict[str, float | list[float]]:
    """Return what a run of train.py measured: lists have a value per iteration."""
    lines = read_iterations(base_dir)
    metrics: dict[str, float | list[float]] = {}
    for name in ("frames", *(f"{phase}_{what}" for phase in ("train", "eval") for what in _METRICS_PER_ITERATION)):
        if lines and all(name in line for line in lines):
            metrics[name] = [line[name] for line in lines]
    returns = [score for line in lines for score in line.get("train_episode_returns", [])]
    if returns:
        metrics["training_return"] = statistics.fmean(returns)
    report = base_dir / "report.json"
    for row in json.loads(report.read_text()) if report.is_file() else []:
        metrics[_METRIC_OF_AGENT[row["agent"]]] = row["mean"]
    return metrics


# The trial's process, from inside.


def main() -> None:
    """Run the trial that the standard input describes; the exit code is 0 only once its result is on the disk."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    size = int.from_bytes(sys.stdin.buffer.read(8), "little")
    # The parent process made this pickle.
    trial, bindings, seed, base_dir = pickle.loads(sys.stdin.buffer.read(size))
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    begin = time.perf_counter()
    metrics = _checked(trial(bindings, seed, base_dir))
    _write_json(base_dir / RESULT, {"metrics": metrics, "seconds": time.perf_counter() - begin})


def _end_with_the_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _checked(metrics: Any) -> dict[str, float | list[float]]:
    if not isinstance(metrics, Mapping):
        raise ValueError(f"a trial must return a mapping of metrics, got {type(metrics).__name__}")
    return {str(name): _numbers(name, value) for name, value in metrics.items()}


def _numbers(name: str, value: Any) -> float | list[float]:
    if isinstance(value, numbers.Real):
        return float(value)
    try:
        return [float(number) for number in value]
    except (TypeError, ValueError):
        raise ValueError(f"metric {name!r} must be a number or a list of numbers, got {value!r}") from None


def _write_json(path: Path, facts: Mapping[str, Any]) -> None:
    write_text_atomically(path, json.dumps(facts, indent=1) + "\n")


# The trial's process, from outside: the engine that runs it starts it, ends it, and records its end.


def python_path() -> str:
    """Return the directories where this process finds its modules, for ``PYTHONPATH``."""
    return os.pathsep.join([str(_ROOT), *(place or os.getcwd() for place in sys.path)])


def start_process(
    directory: Path, payload: bytes, lock: int | None, path: str, where: str | None = None
) -> subprocess.Popen[bytes]:
    """Start a trial's process, on one thread.

    Args:
        directory: The trial's directory; what it prints goes to ``log.txt`` there.
        payload: The pickled trial, for its standard input.
        lock: A file descriptor that it holds open as long as it lives; None for none.
        path: Its ``PYTHONPATH``.
        where: Its working directory; None for the current one.
    """
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with open(directory / LOG, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=where,
            env={**os.environ, **one_thread, "PYTHONPATH": path},
            # An interrupt from the keyboard reaches the sweep alone, which then ends its trials in order.
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
        )
    assert process.stdin is not None
    # A process that has died already does not read; its exit code is looked at later.
    with suppress(BrokenPipeError):
        process.stdin.write(len(payload).to_bytes(8, "little") + payload)
        process.stdin.flush()
    return process


def end_processes(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupt processes, so that they can save what they have; kill those that take longer than 15 s."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def record_end(directory: Path, code: int, seconds: float) -> str:
    """Return ``"finished"`` for a trial with a result; record why another one failed, and return ``"failed"``."""
    if (directory / RESULT).is_file():
        with suppress(OSError):
            (directory / FAILURE).unlink(missing_ok=True)
        return "finished"
    lines = (directory / LOG).read_text(errors="replace").splitlines()
    printed = [line.strip() for line in lines if line.strip()]
    killed = f"killed by {signal.Signals(-code).name}" if code < 0 else "no result"
    return record_failure(directory, printed[-1] if printed and code > 0 else killed, lines, code, seconds)


def record_failure(
    directory: Path, error: str, log: Sequence[str] = (), code: int | None = None, seconds: float = 0.0
) -> str:
    """Record a trial's error and return ``"failed"``."""
    # A full disk must not stop the other trials.
    with suppress(OSError):
        _write_json(
            directory / FAILURE, {"error": error, "exit_code": code, "seconds": seconds, "log": list(log[-30:])}
        )
    return "failed"


def record_stop(directory: Path, seconds: float) -> None:
    """Record what a trial measured until a scheduler ended it: its iterations, and no closing score."""
    lines = read_iterations(directory)
    names = [name for name, value in lines[-1].items() if isinstance(value, int | float) and name != "iteration"]
    metrics = {name: [line[name] for line in lines] for name in names if all(name in line for line in lines)}
    _write_json(directory / RESULT, {"metrics": metrics, "seconds": seconds, "stopped_after": lines[-1]["iteration"]})
