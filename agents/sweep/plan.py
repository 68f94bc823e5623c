"""The plan of a sweep: its points, its seeds and the command line that its trials share, kept in ``sweep.json``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agents.experiment.config import CONFIG, ConfigError
from agents.files import write_text_atomically
from agents.sweep.grid import Point
from agents.sweep.trial import Trial

__all__ = ["PLAN", "SweepPlan", "is_continued", "read_plan", "write_plan"]

PLAN = "sweep.json"

_REMEDY = "bring back the file that the sweep wrote, or choose another base_dir"
_OPTIONS = ("--gin_files", "--gin_bindings")


@dataclass(frozen=True)
class SweepPlan:
    """The plan of a sweep. While the sweep is continued, `seeds` may grow and nothing else may change.

    Attributes:
        points: The grid.
        axes: Its keys, without those that only arms bind.
        seeds: Seeds per point.
        arguments: The options that every trial's command line has; empty for trials in Python.
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
        ConfigError: There is none, or no sweep has written it.
    """
    path = Path(base_dir) / PLAN
    if not path.is_file():
        raise ConfigError(f"{base_dir} holds no sweep (no {PLAN}): run train.py sweep --base_dir {base_dir} first")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        plan = SweepPlan(**{**facts, "points": [Point(**point) for point in facts["points"]]})
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path} is not the plan of a sweep ({error!r}): {_REMEDY}") from None
    if fault := _fault(plan):
        raise ConfigError(f"{path} is not the plan of a sweep ({fault}): {_REMEDY}")
    return plan


def _fault(plan: SweepPlan) -> str | None:
    """Return what is wrong with a plan that was read, or None.

    The file may be a stranger's, and its arguments become a command line.
    """
    texts = (plan.axes, plan.arguments)
    if not all(isinstance(each, list) and all(isinstance(text, str) for text in each) for each in texts):
        return "axes and arguments must be lists of texts"
    if not all(isinstance(point.arm, str) and isinstance(point.bindings, dict) for point in plan.points):
        return "points must have an arm, a text, and bindings by name"
    if not isinstance(plan.seeds, int) or isinstance(plan.seeds, bool) or plan.seeds < 1:
        return f"seeds must be at least 1, got {plan.seeds!r}"
    if not isinstance(plan.function, str):
        return f"function must be a text, got {plan.function!r}"
    if plan.function != "train.py":
        return None
    options, values = plan.arguments[::2], plan.arguments[1::2]
    like_options = any(value.startswith("-") for value in values)
    if len(options) != len(values) or not set(options) <= {*_OPTIONS} or like_options:
        return f"arguments must be pairs of {' or '.join(_OPTIONS)} and a value, got {plan.arguments!r}"
    return None


def write_plan(plan: SweepPlan, base_dir: Path) -> None:
    """Write ``sweep.json``."""
    write_text_atomically(base_dir / PLAN, json.dumps(asdict(plan), indent=1) + "\n")


def is_continued(plan: SweepPlan, base_dir: Path) -> bool:
    """Return whether the directory holds this sweep already, with as many seeds or fewer.

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
    """Derive a trial's seed from its bindings and its number, so that arms that bind the same play the same."""
    text = json.dumps([sorted(point.bindings.items()), number])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") & 0x7FFFFFFF
