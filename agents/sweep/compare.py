"""Two results side by side, with their difference and its 95 % interval."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agents.experiment.evaluate import STATISTICS, bootstrap_interval, difference_interval
from agents.files import refuse_damage
from agents.sweep.plan import PLAN, read_plan
from agents.sweep.results import read_rows
from agents.sweep.view import make_view

__all__ = ["Difference", "compare", "comparison_table"]

Scores = Mapping[str, Sequence[float]]


class Difference(NamedTuple):
    """A point that two results share.

    Attributes:
        point: Its name.
        first: Scores there, of the first result.
        others: Scores there, of the second.
    """

    point: str
    first: Sequence[float]
    others: Sequence[float]


def compare(first: Path, second: Path, *, metric: str | None = None, statistic: str = "mean") -> list[Difference]:
    """Return the points that two results share: sweeps (a score per trial) or runs (a score per episode of the report).

    Args:
        first: Directory of a sweep or run.
        second: Another.
        metric: Metric of a sweep; None is the closing return, else the training return, else the first metric.
        statistic: ``"mean"`` or ``"iqm"``.

    Raises:
        ValueError: A directory without a result, or results that share nothing.
    """
    a, b = (_scores(Path(place), metric, statistic) for place in (first, second))
    shared = [Difference(point, a[point], b[point]) for point in a if point in b]
    if not shared:
        raise ValueError(f"{first} and {second} share no point: {_few(a)} there, {_few(b)} here")
    return shared


def comparison_table(found: Sequence[Difference], statistic: str = "mean") -> str:
    """Return the comparison as text: both with 95 % intervals, and the second minus the first with its interval."""
    width = max(len("point"), *(len(each.point) for each in found))
    heads = f"{'A':>10}  {'95 % interval':<22}{'n':>3}{'B':>12}  {'95 % interval':<22}{'n':>3}  B minus A"
    return "\n".join([f"{'point':<{width}}{heads}", *(_line(each, width, statistic) for each in found)])


def _line(each: Difference, width: int, statistic: str) -> str:
    low, high = difference_interval(each.others, each.first, STATISTICS[statistic])
    of = STATISTICS[statistic]
    difference = float(of(each.others) - of(each.first))
    sides = [f"{float(of(side)):>10.2f}  {_interval(side, statistic):<22}{len(side):>3}" for side in each[1:]]
    return f"{each.point:<{width}}{'  '.join(sides)}  {difference:.2f} [{low:.2f}, {high:.2f}]"


def _interval(scores: Sequence[float], statistic: str) -> str:
    low, high = bootstrap_interval(scores, STATISTICS[statistic])
    return f"[{low:.2f}, {high:.2f}]"


def _scores(place: Path, metric: str | None, statistic: str) -> Scores:
    if (place / PLAN).is_file():
        view = make_view(read_plan(place), read_rows(place), metric=metric, statistic=statistic)
        return {
            ", ".join(filter(None, [panel.title, name, f"{view.x.rpartition('.')[2]} {score.x:g}"])): score.scores
            for panel in view.panels
            for name, curve in panel.curves.items()
            for score in curve
        }
    report = place / "report.json"
    if report.is_file():
        with refuse_damage(report, "remove it, and let the run go on: it writes another one"):
            return {row["agent"]: row["scores"] for row in json.loads(report.read_text(encoding="utf-8"))}
    raise ValueError(f"{place} holds no result: neither a sweep ({PLAN}) nor a run with a closing table (report.json)")


def _few(scores: Scores) -> str:
    names = list(scores)
    return "; ".join(names[:3]) + ("; ..." if len(names) > 3 else "")
