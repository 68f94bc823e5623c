"""What a sweep is: its grid, its seeds and what its trials have in common, as ``sweep.json`` keeps it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agents.experiment.config import CONFIG, ConfigError
from agents.experiment.grid import Point
from agents.experiment.trial import Trial
from agents.files import write_text_atomically

__all__ = ["SweepPlan", "is_continued", "read_plan", "write_plan"]

PLAN = "sweep.json"


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep is: all that must not change while it is continued, but for `seeds`, which may grow.

    Attributes:
        points: The grid.
        axes: Its keys, other than those that only arms set.
        seeds: Seeds per point.
        arguments: What every trial's command line has in common; empty for trials in Python.
        function: Name of the trial in Python; ``"train.py"`` otherwise.
    """

    points: list[Point]
    axes: list[str]
    seeds: int
    arguments: list[str]
    function: str

    def trials(self) -> list[Trial]:
        """Return all trials, every point's first seed first."""
        return [
            Trial(f"{number * len(self.points) + index:04d}", point.arm, point.bindings, number, _seed(point, number))
            for number in range(self.seeds)
            for index, point in enumerate(self.points)
        ]


def read_plan(base_dir: Path) -> SweepPlan:
    """Return the plan of the sweep in a directory.

    Raises:
        ValueError: There is none.
    """
    path = Path(base_dir) / PLAN
    if not path.is_file():
        raise ValueError(f"{base_dir} holds no sweep (no {PLAN}): run train.py sweep --base_dir {base_dir} first")
    facts = json.loads(path.read_text())
    return SweepPlan(**{**facts, "points": [Point(**point) for point in facts["points"]]})


def write_plan(plan: SweepPlan, base_dir: Path) -> None:
    """Write ``sweep.json``."""
    write_text_atomically(base_dir / PLAN, json.dumps(asdict(plan), indent=1) + "\n")


def is_continued(plan: SweepPlan, base_dir: Path) -> bool:
    """Return whether the directory holds this very sweep, with no more seeds.

    Raises:
        ConfigError: It holds another sweep, or a run, or is a file.
    """
    if base_dir.exists() and not base_dir.is_dir():
        raise ConfigError(f"base_dir must be a directory, got the file {base_dir}")
    if not (base_dir / PLAN).is_file():
        if (base_dir / CONFIG).is_file():
            raise ConfigError(f"base_dir {base_dir} holds a run, not a sweep: choose another base_dir")
        return False
    there = read_plan(base_dir)
    if there.seeds > plan.seeds:
        raise ConfigError(
            f"base_dir {base_dir} holds a sweep with {there.seeds} seeds, not {plan.seeds}: give no fewer"
        )
    if (there.function, there.arguments) != (plan.function, plan.arguments):
        old, new = (" ".join([each.function, *each.arguments]) for each in (there, plan))
        raise ConfigError(f"base_dir {base_dir} holds a sweep of another experiment ({old} there, {new} here)")
    if there.points != plan.points:
        raise ConfigError(
            f"base_dir {base_dir} holds a sweep with another grid ({_difference(there.points, plan.points)}): choose "
            "another base_dir"
        )
    return True


def _difference(there: Sequence[Point], here: Sequence[Point]) -> str:
    """Name the first key whose values differ."""
    for key in sorted({key for point in (*there, *here) for key in point.bindings}):
        old, new = (sorted({str(point.bindings.get(key)) for point in points}) for points in (there, here))
        if old != new:
            return f"{key} = {', '.join(old)} there, {', '.join(new)} here"
    return f"{len(there)} points there, {len(here)} here, in another order or other combinations"


def _seed(point: Point, number: int) -> int:
    """Derive a trial's seed from what the trial is; arms that bind the same play the same."""
    text = json.dumps([sorted(point.bindings.items()), number])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") & 0x7FFFFFFF
