"""The table of a sweep, and the manifest of versions, commands and machines.

The table is in long form, one number per row, because trials differ in their metrics and iterations. It
is made from the trials' files, and can be made again at any time.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from agents.files import refuse_damage, write_atomically, write_text_atomically
from agents.sweep.grid import plain
from agents.sweep.plan import SweepPlan, read_plan
from agents.sweep.trial import RESULT

__all__ = ["MANIFEST", "is_wall_time", "read_csv", "read_rows", "rows", "write_manifest", "write_results"]

CSV, PARQUET, MANIFEST = "results.csv", "results.parquet", "manifest.json"
_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "pyboy", "gin-config", "ray", "async-wrappers")


def rows(base_dir: Path, plan: SweepPlan) -> Iterator[dict[str, Any]]:
    """Yield arm, value of each key, seed, iteration, metric and value of all finished trials, in order.

    `seed` is the seed's number; `iteration` is None for a metric that is measured once per trial.
    """
    keys = list(dict.fromkeys(key for point in plan.points for key in point.bindings))
    for trial in plan.trials():
        path = base_dir / "trials" / trial.name / RESULT
        if not path.is_file():
            continue
        with refuse_damage(path, "remove it, and let the sweep run that trial again"):
            facts = json.loads(path.read_text(encoding="utf-8"))
            measured = {**facts["metrics"], "seconds": facts["seconds"]}
        where = {"arm": trial.arm, **{key: plain(trial.bindings.get(key)) for key in keys}, "seed": trial.seed_number}
        for metric, value in measured.items():
            series = enumerate(value) if isinstance(value, list) else [(None, value)]
            for iteration, number in series:
                yield {**where, "iteration": iteration, "metric": metric, "value": number, "trial": trial.name}


def is_wall_time(metric: str) -> bool:
    """Return whether a metric depends on the machine and not on the seed."""
    return metric == "seconds" or metric.endswith("_per_second")


def write_results(base_dir: Path, plan: SweepPlan) -> Path:
    """Write ``results.csv``, and ``results.parquet`` where pyarrow is installed; return the former's path."""
    table = list(rows(base_dir, plan))
    keys = list(dict.fromkeys(key for point in plan.points for key in point.bindings))
    columns = ["arm", *keys, "seed", "iteration", "metric", "value", "trial"]
    lines = [columns, *([row[name] for name in columns] for row in table)]
    text = "".join(_line([_quoted(value) for value in line]) for line in lines)
    write_text_atomically(base_dir / CSV, text)
    _write_parquet(base_dir / PARQUET, columns, table)
    return base_dir / CSV


def _line(cells: Sequence[Any]) -> str:
    """Return a line of the table, which ends in a line feed."""
    # csv quotes a text with a character of the line end in it. With "\n" alone, carriage returns would not be quoted.
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a ``results.csv``, without the quotes that keep a spreadsheet from reading formulas."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{_unquoted(name): _unquoted(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


# A spreadsheet takes a cell that begins with one of these for a formula, unless a quote comes first.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def _quoted(value: Any) -> Any:
    """Put a quote before a text that a spreadsheet would take for a formula; return other values as they are."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(_FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _unquoted(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # A tab before a number would begin a formula.
    return text.isprintable()


def _write_parquet(path: Path, columns: list[str], table: list[dict[str, Any]]) -> None:
    """Write the table, if the extra `parquet` is installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return
    arrays = pyarrow.table({name: _of_one_type([row[name] for row in table]) for name in columns})
    write_atomically(path, partial(parquet.write_table, arrays))


def _of_one_type(values: list[Any]) -> list[Any]:
    """Return values as text if they are of several types: a column has one type."""
    kinds = {float if isinstance(value, int) and not isinstance(value, bool) else type(value) for value in values}
    return values if len(kinds - {type(None)}) <= 1 else [None if value is None else str(value) for value in values]


def read_rows(base_dir: Path) -> list[dict[str, Any]]:
    """Return the table of a sweep's directory, from its trials, so that a running sweep can be plotted too.

    Raises:
        ValueError: There is no sweep, or no trial of it has finished.
    """
    table = list(rows(Path(base_dir), read_plan(base_dir)))
    if not table:
        raise ValueError(f"{base_dir}: no trial of this sweep has finished yet")
    return table


def write_manifest(base_dir: Path, jobs: int | None, engine: str = "local") -> None:
    """Add this start to ``manifest.json``: versions, command, git revision and machine."""
    path = base_dir / MANIFEST
    starts = json.loads(path.read_text())["starts"] if path.is_file() else []
    start = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "engine": engine,
        "jobs": jobs,
        "revision": _revision(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
    }
    write_text_atomically(path, json.dumps({"starts": [*starts, start]}, indent=1) + "\n")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _revision() -> str | None:
    """Return the git revision of this clone, with a mark if files have changed; None if it is no clone."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    """Return the processor's name, or its architecture if the system has no name for it."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.is_file() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
