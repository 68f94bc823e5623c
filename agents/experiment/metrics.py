"""What a run writes about itself: TensorBoard scalars under Dopamine's tags, and one JSON line per iteration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agents.experiment.events import EventWriter
from agents.files import refuse_damage, write_text_atomically

__all__ = ["Metrics", "add_iteration", "read_iterations"]

_FILE = Path("metrics") / "iterations.jsonl"


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
    path = Path(base_dir) / _FILE
    if not path.is_file():
        return []
    with refuse_damage(path, "remove the lines that are no JSON objects"):
        return [dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    write_text_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))
