"""One trial of a sweep, in a process of its own: what runs there, and what it leaves behind.

The process is told on its standard input what to do, and ends when that input does: no trial outlives its sweep, even
one that was killed.
"""

from __future__ import annotations

import json
import numbers
import os
import pickle
import runpy
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
    "Trial",
    "TrialFunction",
    "main",
    "record_stop",
    "run_metrics",
    "state",
]

RESULT = "result.json"  # of a finished trial; written last
FAILURE = "failure.json"
LOG = "log.txt"

Metrics = Mapping[str, float | Sequence[float]]
TrialFunction = Callable[[dict[str, Any], int, Path], Metrics]


@dataclass(frozen=True)
class Trial:
    """A point of the grid with a seed.

    Attributes:
        name: Of its directory.
        arm: Of the point.
        bindings: Of the point.
        seed_number: 0, 1, ...
        seed: Derived from the bindings and `seed_number`.
    """

    name: str
    arm: str
    bindings: dict[str, Any]
    seed_number: int
    seed: int


def state(directory: Path) -> str:
    """Return whether the trial of a directory is ``"finished"``, ``"failed"`` or ``"waiting"``."""
    if (directory / RESULT).is_file():
        return "finished"
    return "failed" if (directory / FAILURE).is_file() else "waiting"


@dataclass(frozen=True)
class GinTrial:
    """A trial that is a run of train.py: returns the statistics of its iterations, and of its closing table.

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
        """Run train.py, or let it go on."""
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
    for name in ("frames", *(f"{phase}_{what}" for phase in ("train", "eval") for what in _PER_ITERATION)):
        if lines and all(name in line for line in lines):
            metrics[name] = [line[name] for line in lines]
    returns = [score for line in lines for score in line.get("train_episode_returns", [])]
    if returns:
        metrics["training_return"] = statistics.fmean(returns)
    report = base_dir / "report.json"
    for row in json.loads(report.read_text()) if report.is_file() else []:
        metrics[_OF_THE_TABLE[row["agent"]]] = row["mean"]
    return metrics


def record_stop(directory: Path, seconds: float) -> None:
    """Record what a trial measured until a scheduler ended it: its iterations, and no closing score."""
    lines = read_iterations(directory)
    names = [name for name, value in lines[-1].items() if isinstance(value, int | float) and name != "iteration"]
    metrics = {name: [line[name] for line in lines] for name in names if all(name in line for line in lines)}
    facts = {"metrics": metrics, "seconds": seconds, "stopped_after": lines[-1]["iteration"]}
    write_text_atomically(directory / RESULT, json.dumps(facts, indent=1) + "\n")


_PER_ITERATION = (
    "average_return",
    "average_steps_per_second",
    "actions_per_frame",
    "updates_per_action",
    "wins",
    "losses",
    "encounter",
)
_OF_THE_TABLE = {"trained": "final_return", "random": "random_return", "no-op": "noop_return"}


def main() -> None:
    """Run the trial that the standard input describes; the exit code is 0 only once its result is on the disk."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    size = int.from_bytes(sys.stdin.buffer.read(8), "little")
    trial, bindings, seed, base_dir = pickle.loads(sys.stdin.buffer.read(size))  # of our parent's making
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    begin = time.perf_counter()
    metrics = trial(bindings, seed, base_dir)
    facts = {"metrics": _checked(metrics), "seconds": time.perf_counter() - begin}
    write_text_atomically(base_dir / RESULT, json.dumps(facts, indent=1) + "\n")


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
