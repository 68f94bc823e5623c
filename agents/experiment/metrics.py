"""What a run writes about itself: TensorBoard scalars under Dopamine's tags, and one JSON line per iteration."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from async_wrappers.agents.files import naming, refuse_damage, write_text_atomically

__all__ = [
    "EventWriter",
    "Metrics",
    "add_evaluation",
    "add_iteration",
    "read_evaluations",
    "read_facts",
    "read_iterations",
    "write_facts",
]

_FILE = Path("metrics") / "iterations.jsonl"
_EVALUATIONS = Path("metrics") / "evaluations.jsonl"
_FACTS = Path("metrics") / "run.json"


class Metrics:
    """Writes ``base_dir/metrics``.

    Args:
        base_dir: The run's directory.
        history: Statistics of the iterations already done, as a checkpoint holds them; later lines are dropped.
    """

    def __init__(self, base_dir: Path, history: Iterable[Mapping[str, Any]] = ()) -> None:
        """See the class."""
        self._path = Path(base_dir) / _FILE
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.history = [dict(statistics) for statistics in history]
        frames = self.history[-1]["frames"] + 1 if self.history else 0
        # What an interrupted iteration wrote after the checkpoint is hidden by TensorBoard when it reads the purge.
        self._writer = EventWriter(self._path.parent / "tensorboard", purge_step=frames)

    def scalar(self, tag: str, value: float, frames: int) -> None:
        """Write one scalar against training frames."""
        self._writer.scalar(tag, value, frames)

    def iteration(self, statistics: Mapping[str, Any], scalars: Mapping[str, float]) -> None:
        """Add an iteration's statistics (a line of JSON) and its scalars (TensorBoard, against training frames)."""
        self.history.append(dict(statistics))
        _write(self._path, self.history)
        for tag, value in scalars.items():
            self.scalar(tag, value, statistics["frames"])
        self._writer.flush()

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


_FLUSH = 120.0  # seconds after which what was written can be seen, as with TensorBoard's writer
_numbers = count()  # of the files of this process, which TensorBoard reads in the order of their names


class EventWriter:
    """Writes TensorBoard's scalars against steps into a new file, in the caller's own thread.

    TensorBoard's writer has a thread, which prints a traceback where the disk is full, and its error names no file.

    Args:
        directory: Where the file goes; made if missing.
        purge_step: TensorBoard hides what older files of the directory hold from this step on.

    Raises:
        OSError: The file could not be written, now or in any other call; it is of that file and says why.
    """

    def __init__(self, directory: Path, purge_step: int) -> None:
        """See the class."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # only where something is written
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = Event, Summary
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers):06d}"
        self._path = directory / name
        with naming(self._path):
            self._file = open(self._path, "wb")  # noqa: SIM115  # closed by `close`
        self._records = RecordWriter(self._file)
        self._flushed = time.monotonic()
        self._write(file_version="brain.Event:2")
        self._write(step=purge_step, session_log=SessionLog(status=SessionLog.START))
        self.flush()

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Write one scalar."""
        each = self._summary.Value(tag=tag, simple_value=float(value))
        self._write(step=step, summary=self._summary(value=[each]))
        if time.monotonic() - self._flushed > _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Let readers of the file see what was written."""
        self._flushed = time.monotonic()
        with naming(self._path):
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with naming(self._path):
            self._file.close()

    def _write(self, **fields: Any) -> None:
        with naming(self._path):
            self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())


def add_iteration(base_dir: Path, **statistics: float) -> None:
    """Add an iteration to those of a directory, so that a scheduler can compare a trial of one's own with others."""
    lines = read_iterations(base_dir)
    path = Path(base_dir) / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, [*lines, {"iteration": len(lines), **statistics}])


def read_iterations(base_dir: Path) -> list[dict[str, Any]]:
    """Return the statistics of each iteration of a run, in order; empty where there are none yet.

    Raises:
        ValueError: The file is damaged.
    """
    return _read(Path(base_dir) / _FILE)


def add_evaluation(base_dir: Path, evaluation: Mapping[str, Any]) -> None:
    """Add an evaluation of a checkpoint to those that were made beside training."""
    _write(Path(base_dir) / _EVALUATIONS, [*read_evaluations(base_dir), evaluation])


def read_evaluations(base_dir: Path) -> list[dict[str, Any]]:
    """Return the evaluations that were made beside training, in order; empty where there are none.

    Raises:
        ValueError: The file is damaged.
    """
    return _read(Path(base_dir) / _EVALUATIONS)


def write_facts(base_dir: Path, facts: Mapping[str, str]) -> None:
    """Write what a run is, in words by name, so that figures can say it."""
    path = Path(base_dir) / _FACTS
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(facts, indent=1) + "\n")


def read_facts(base_dir: Path) -> dict[str, str]:
    """Return what a run is, in words by name; empty where it has not said so.

    Raises:
        ValueError: The file is damaged.
    """
    path = Path(base_dir) / _FACTS
    if not path.is_file():
        return {}
    with refuse_damage(path, "remove it"):
        return dict(json.loads(path.read_text(encoding="utf-8")))


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with refuse_damage(path, "remove the lines that are no JSON objects"):
        return [dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    write_text_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))
