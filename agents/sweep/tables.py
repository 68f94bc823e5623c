"""Results from elsewhere, a CSV with named columns, as runs; and several sweeps and such tables as one sweep's table.

A row of a table is a measurement. Its columns are

* ``return``, or the metric that is asked for; a return of ours (`METRICS`) may also stand in ``return``;
* ``frames``, how many were played in training until then, for a learning curve; or the key along the axis, ``delay``
  (frames) as a rule, for a score;
* if there are several: ``seed``, ``environment``, ``agent``, ``delay``, ``noops``.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from async_wrappers.agents.experiment.metrics import name_in, read_facts
from async_wrappers.agents.sweep.grid import Point
from async_wrappers.agents.sweep.plan import PLAN, SweepPlan, read_plan
from async_wrappers.agents.sweep.results import read_rows
from async_wrappers.agents.sweep.view import BASELINES, ENVIRONMENTS, METRICS, SCORES

RETURN, FRAMES = "return", "frames"


def is_table(place: Path) -> bool:
    """Return whether a place is a table, by its name."""
    return place.suffix.lower() == ".csv" and not place.is_dir()


def refuse_missing(place: Path) -> None:
    """Refuse a place that is not there.

    Raises:
        ValueError: It is not.
    """
    if not place.exists():
        raise ValueError(f"there is no directory {place}: name a --base_dir of train.py, or a CSV")


def read_table(path: Path, wanted: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of a table, with numbers as numbers.

    Args:
        path: The CSV; lines that begin with ``#`` are left out.
        wanted: Columns that it must have.

    Raises:
        ValueError: It is not there, lacks a column or has it twice, has no row, or a cell of these columns is no finite
            number.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a table ({error}): name a CSV with named columns") from None
    lines = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    columns, wanted = [name.strip() for name in lines.fieldnames or ()], list(wanted)
    if missing := [name for name in wanted if name not in columns]:
        raise ValueError(
            f"{path} must have {'a column' if len(wanted) == 1 else 'columns'} {' and '.join(wanted)}, got "
            f"{', '.join(columns) or 'none'}, without {' and '.join(missing)}: name them in its first line"
        )
    if twice := [name for name in wanted if columns.count(name) > 1]:
        raise ValueError(f"{path} must have one column {twice[0]}, got {columns.count(twice[0])}: rename the others")
    lines.fieldnames = columns
    try:
        rows = [{name: _value(cell) for name, cell in row.items() if name} for row in lines]
    except csv.Error as error:
        raise ValueError(f"{path} cannot be read as a table ({error}): name a CSV with named columns") from None
    for number, row in enumerate(rows, 1):
        if wrong := [name for name in wanted if not _is_finite(row[name])]:
            raise ValueError(f"{path} must have numbers in {wrong[0]}, got {row[wrong[0]]!r:.40} in row {number}")
    if not rows:
        raise ValueError(f"{path} has no row below the names of its columns: add its results")
    return rows


def columns_of(path: Path) -> set[str]:
    """Return the names of a table's columns.

    Raises:
        ValueError: As `read_table`.
    """
    return set(read_table(path, ())[0])


def column_of(path: Path, metric: str | None) -> str:
    """Return the column of a table that holds a metric.

    Raises:
        ValueError: As `read_table`.
    """
    return RETURN if metric is None or (metric in METRICS and metric not in columns_of(path)) else metric


_MOST = 1e300  # what is drawn is added up and squared


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and -_MOST < value < _MOST


def _value(cell: str | None) -> Any:
    for kind in (int, float):
        try:
            return kind(cell or "")
        except ValueError:
            continue
    return (cell or "").strip()


def runs_in(path: Path, metric: str | None) -> list[tuple[dict[str, str], list[dict[str, Any]]]]:
    """Return the runs in a table: the facts of each, in words, and its lines.

    Args:
        path: The CSV.
        metric: The metric of the values; None for `RETURN`.

    Raises:
        ValueError: As `read_table`.
    """
    value = column_of(path, metric)
    runs: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(read_table(path, (FRAMES, value)), key=lambda row: row[FRAMES]):
        facts = {name: str(row[name]) for name in ("environment", "agent", "seed") if row.get(name, "") != ""}
        facts = {"agent": path.stem, **facts, **delay_fact(row)}
        lines = runs[tuple(sorted(facts.items()))]
        lines.append({"iteration": len(lines), FRAMES: row[FRAMES], value: row[value]})
    return [(dict(facts), lines) for facts, lines in runs.items()]


def delay_fact(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the delay, if it is known, as a run's facts say it (`play.delay_in_words`)."""
    named = {key.rpartition(".")[2]: value for key, value in values.items()}
    if not isinstance(delay := named.get("delay"), int | float):
        return {}
    noops = named.get("noops") or 0
    frames = f"{delay:g} frame{'s' * (delay != 1)}"
    return {"delay": f"{frames}, {noops} no-op{'s' * (noops != 1)}" if noops else frames if delay else "none"}


# Several sweeps and tables as one sweep's table.


def gather(places: Sequence[Path], x: str, metric: str | None) -> tuple[SweepPlan, list[dict[str, Any]]]:
    """Return several sweeps and tables as a sweep: its plan, and its rows, of one metric, named by the first place.

    Keys are named by their last word, such as ``delay``. A place of several is an arm, by its name, and environments
    are a key of their own where there are several; what does not say its environment is of the only one that is known.

    Args:
        places: Directories of sweeps, and tables.
        x: The key along the axis.
        metric: The metric; None for each place's own: the closing return, the score or the return.

    Raises:
        ValueError: A place lacks the key or the metric.
    """
    rows: list[dict[str, Any]] = []
    axes: list[str] = []
    for place in places:
        new, keys = _of_table(place, x, metric) if is_table(place) else _of_sweep(place, x, metric)
        axes += [key for key in keys if key not in axes]
        several = len(places) > 1
        for row in new:
            words = [row.pop("agent", None) or place.resolve().stem] if several and row["arm"] not in BASELINES else []
            row["arm"] = ", ".join(filter(None, [*words, row["arm"]]))
            row["trial"] = f"{place}/{row['trial']}"
        rows += new
    known = list(dict.fromkeys(row["environment"] for row in rows if row["environment"]))
    for row in rows:
        row["environment"] = row["environment"] or ("unknown environment" if len(known) > 1 else "".join(known))
        row["metric"] = rows[0]["metric"]
        for key in axes:
            row.setdefault(key, 0 if key == "noops" else "")
    if len({row["environment"] for row in rows}) > 1:
        axes = [key for key in axes if key not in ENVIRONMENTS or key == "environment"]
        axes = [*axes, "environment"] if "environment" not in axes else axes
    else:
        axes = [key for key in axes if key != "environment"]
    points = {(row["arm"], *(row[key] for key in axes)): row for row in rows}
    plan = [Point(row["arm"], {key: row[key] for key in axes}) for row in points.values()]
    return SweepPlan(plan, axes, max(row["seed"] for row in rows) + 1, [], ""), rows


def _of_table(path: Path, x: str, metric: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a table's rows as those of a sweep, and its keys."""
    value = column_of(path, metric)
    table = read_table(path, (x, value))
    keys = [key for key in (x, "delay", "noops") if key in table[0]]
    found = []
    for number, row in enumerate(table):
        about = {"arm": "", "agent": row.get("agent", ""), "environment": str(row.get("environment", ""))}
        about |= {key: row[key] for key in keys}
        about |= {"seed": number, "iteration": None, "metric": value, "value": row[value], "trial": f"{number}"}
        found.append(about)
    return found, list(dict.fromkeys(keys))


def _of_sweep(place: Path, x: str, metric: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a sweep's rows of one metric, with the environment of each trial, and its keys by their last words."""
    plan, table = read_plan(place), read_rows(place)
    metrics = list(dict.fromkeys(row["metric"] for row in table))
    value = metric or next(name for name in (*SCORES, RETURN, *metrics) if name in metrics)
    if value not in metrics:
        raise ValueError(f"metric must be one of {', '.join(metrics)} in {place}, got {value!r}")
    short = {key: key.rpartition(".")[2] for key in plan.keys}
    short = {key: name if [*short.values()].count(name) == 1 else key for key, name in short.items()}
    if x not in short.values():
        raise ValueError(f"{place} has no key {x}, but {', '.join(short.values())}: name another with --x")
    facts = {row["trial"]: read_facts(place / "trials" / row["trial"]) for row in table}
    found = []
    for row in {(row["trial"], row["metric"]): row for row in table}.values():  # of several iterations the last
        if row["metric"] == value:
            named = {short.get(key, key): each for key, each in row.items()}
            own = next((str(named[key]) for key in ENVIRONMENTS if named.get(key)), "")
            own = name_in(facts[row["trial"]].get("environment", own))
            found.append({**named, "iteration": None, "environment": own})
    return found, [short[key] for key in plan.axes]


def is_sweep(place: Path) -> bool:
    """Return whether a place is the directory of a sweep."""
    return (place / PLAN).is_file()
