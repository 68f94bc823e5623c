"""The metrics of a run: TensorBoard scalars, one JSON line per iteration, one row of a table per episode."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from async_wrappers.agents.play.play import EpisodeRow
from async_wrappers.files import named, naming, refuse_damage, write_atomically, write_text_atomically

_FILE = Path("metrics") / "iterations.jsonl"
_EVALUATIONS = Path("metrics") / "evaluations.jsonl"
_FACTS = Path("metrics") / "run.json"
FRAME_RATE = "frame_rate"  # a fact: frames per second of the environment's own time


class Metrics:
    """Writes ``base_dir/metrics``.

    Args:
        base_dir: The run's directory.
        history: Statistics of the iterations already done, as a checkpoint holds them; later lines are dropped.
    """

    def __init__(self, base_dir: Path, history: Iterable[Mapping[str, Any]] = ()) -> None:
        self._path = Path(base_dir) / _FILE
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.history = [dict(statistics) for statistics in history]
        frames = self.history[-1]["frames"] + 1 if self.history else 0
        # By the purge TensorBoard hides the scalars that an interrupted iteration wrote after the checkpoint.
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


_FLUSH = 120.0  # seconds between two flushes, as with TensorBoard's writer
_EVENTS = "events.out.tfevents."


def new_events(directory: Path, suffix: str = "") -> Path:
    """Return the path of a new file of TensorBoard's; its directory is made if missing.

    TensorBoard, which reads the files in the order of their names, names them by the time. A clock may be set back, and
    the newest file has to be the last one; so its number is above those that are there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    numbers = [re.match(re.escape(_EVENTS) + r"(\d{10})\.", path.name) for path in directory.glob(f"{_EVENTS}*")]
    number = max([int(time.time()), *(int(found[1]) + 1 for found in numbers if found)])
    return directory / f"{_EVENTS}{number:010d}.{socket.gethostname()}.{os.getpid()}{suffix}"


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
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # only where something is written
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = Event, Summary
        self._path = new_events(directory)
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


EPISODES = "episodes.csv"


class EpisodeTable:
    """Writes ``base_dir/episodes.csv``, whole lines at a time.

    When a run is resumed, rows of episodes that its checkpoint does not hold are dropped: it plays them again.

    Args:
        base_dir: The run's directory.
        kept: Episodes that the run has played, by phase; rows of later ones are dropped.

    Raises:
        OSError: The file could not be written, now or in any other call; it is of that file and says why.
    """

    def __init__(self, base_dir: Path, kept: Mapping[str, int]) -> None:
        self._path = Path(base_dir) / EPISODES
        self._next = dict(kept)
        header = (",".join(EpisodeRow._fields) + "\n").encode()
        written = self._path.read_bytes() if self._path.is_file() else b""
        good = [header, *(line for line in written.splitlines(keepends=True) if _is_kept(line, kept))]
        if (whole := b"".join(good)) != written:
            write_atomically(self._path, lambda file: file.write(whole))
        with naming(self._path):
            # Unbuffered: each call of `add` is one write of whole lines at the file's end.
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115  # closed by `close`

    def add(self, rows: Iterable[EpisodeRow]) -> None:
        """Append rows; those whose numbers are in the file already are left out."""
        lines = []
        for row in rows:
            if row.episode >= self._next.get(row.phase, 0):
                self._next[row.phase] = row.episode + 1
                plain = row._replace(won=None if row.won is None else int(row.won), seconds=round(row.seconds, 3))  # type: ignore[arg-type]
                lines.append(",".join(["" if value is None else str(value) for value in plain]) + "\n")
        if lines:
            try:
                self._file.write("".join(lines).encode())
            except OSError as error:
                raise named(error, self._path) from error

    def count(self, phase: str) -> int:
        """Return the number of the next episode of a phase."""
        return self._next.get(phase, 0)

    def close(self) -> None:
        """Close the file."""
        with naming(self._path):
            self._file.close()


def _is_kept(line: bytes, kept: Mapping[str, int]) -> bool:
    """Return whether a line of the file is a whole row, of an episode that the run has played."""
    cells = line.decode(errors="replace").rstrip("\n").split(",")
    if not line.endswith(b"\n") or len(cells) != len(EpisodeRow._fields) or not cells[1].isdigit():
        return False
    return int(cells[1]) < kept.get(cells[0], 0)


class ProgressFile:
    """A run's progress in ``progress.json``, for a sweep that it is a trial of, written every two seconds at most.

    The file holds ``doing``, a text, ``frames``, ``rate`` (frames a second) and ``left`` (seconds, or null). It is
    there while the run is.

    Args:
        base_dir: The run's directory.
        clock: Gives the time in seconds.
    """

    NAME = "progress.json"

    def __init__(self, base_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock, self._due = base_dir / self.NAME, clock, -math.inf

    def write(self, doing: str, frames: int, rate: float, left: float | None) -> None:
        """Write the progress, if it is due. A disk that is full, or a directory that was moved, ends no run here."""
        if (now := self._clock()) < self._due:
            return
        self._due = now + 2.0
        with suppress(OSError):
            facts = {"doing": doing, "frames": frames, "rate": rate, "left": left}
            write_text_atomically(self._path, json.dumps(facts) + "\n")

    def remove(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


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
    """Add an evaluation of a checkpoint to those made in parallel with training."""
    _write(Path(base_dir) / _EVALUATIONS, [*read_evaluations(base_dir), evaluation])


def read_evaluations(base_dir: Path) -> list[dict[str, Any]]:
    """Return the evaluations made in parallel with training, in order; empty where there are none.

    Raises:
        ValueError: The file is damaged.
    """
    return _read(Path(base_dir) / _EVALUATIONS)


def write_facts(base_dir: Path, facts: Mapping[str, str]) -> None:
    """Write a run's facts, in words by name, for the figures."""
    path = Path(base_dir) / _FACTS
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(facts, indent=1) + "\n")


def read_facts(base_dir: Path) -> dict[str, str]:
    """Return a run's facts, in words by name; empty where it has written none.

    Raises:
        ValueError: The file is damaged.
    """
    path = Path(base_dir) / _FACTS
    if not path.is_file():
        return {}
    with refuse_damage(path, "remove it"):
        return dict(json.loads(path.read_text(encoding="utf-8")))


def name_in(fact: str) -> str:
    """Return the name in a run's fact, without the numbers of environments or weights; it may have commas itself."""
    return re.sub(r", [\d,]+ (at once|weights).*", "", fact)


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with refuse_damage(path, "remove the lines that are no JSON objects"):
        return [dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    write_text_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))
