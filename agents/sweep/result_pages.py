"""Reports of results: one HTML page of a sweep, and two results side by side.

The page needs no other file: it holds figures, table, and the command behind each number. ``page.html.jinja``, beside
this file, holds its text and layout. Jinja escapes all values that it puts into the page, since names and errors come
from trials.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from async_wrappers.agents.sweep.aggregate import Aggregate
from async_wrappers.agents.sweep.plan import PLAN, SweepPlan, Trial, read_plan
from async_wrappers.agents.sweep.results import MANIFEST, read_rows
from async_wrappers.agents.sweep.tables import column_of, is_sweep, is_table, read_table, refuse_missing
from async_wrappers.agents.sweep.trial import FAILURE, GinTrial, trial_status
from async_wrappers.agents.sweep.view import BASELINES, View, difference, make_view, summary, with_interval
from async_wrappers.files import path_of, refuse_damage, write_text_atomically


def write_report(base_dir: Path, view: View, figures: Mapping[str, Path], aggregate: Aggregate | None = None) -> Path:
    """Write ``report.html`` and return its path.

    Args:
        base_dir: The sweep's directory.
        view: The view that the table shows.
        figures: SVG files by caption.
        aggregate: The scores over games, where there are several.
    """
    import jinja2

    trials = {trial.name: trial for trial in view.plan.trials()}
    failures = {}
    for name in trials:
        directory = base_dir / "trials" / name
        if trial_status(directory) == "failed":
            failures[name] = json.loads((directory / FAILURE).read_text())["error"]
    # A value per trial and metric, that of the last iteration.
    values = {(row["trial"], row["metric"]): row["value"] for row in view.rows}
    measured = [
        (name, value, values[name, "seconds"], _command(view.plan, trials[name]))
        for (name, metric), value in values.items()
        if metric == view.metric
    ]
    manifest = base_dir / MANIFEST
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = Path(__file__).with_name("page.html.jinja").read_text(encoding="utf-8")
    page = environment.from_string(template).render(
        name=base_dir.resolve().name,
        view=view,
        aggregate=aggregate,
        trials=len(trials),
        finished=len({row["trial"] for row in view.rows}),
        figures={caption: base64.b64encode(path.read_bytes()).decode() for caption, path in figures.items()},
        failures=failures,
        measured=measured,
        manifest=json.dumps(json.loads(manifest.read_text()) if manifest.is_file() else {}, indent=1),
    )
    write_text_atomically(base_dir / "report.html", page)
    return base_dir / "report.html"


def _command(plan: SweepPlan, trial: Trial) -> str:
    """Return the command that measures a trial's numbers again."""
    if plan.function != "train.py":
        return f"{plan.function}({trial.bindings!r}, {trial.seed}, directory)"
    words = GinTrial("", tuple(plan.arguments)).words(trial.bindings, trial.seed, Path("again") / trial.name)
    return shlex.join(["python", "train.py", *words])


# Two results side by side, with their difference and its 95 % interval.


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

    A point of a table (`async_wrappers.agents.sweep.tables`) has a score per row. A run has one point, its agent,
    beside the baselines, which is compared with the only one of another result.

    Args:
        first: Directory of a sweep or run, or a CSV.
        second: Another.
        metric: Metric of a sweep; None is the closing return, else the training return, else the first metric.
        statistic: ``"mean"`` or ``"iqm"``.

    Raises:
        ValueError: A directory without a result, or results that share nothing.
    """
    a, b = (_scores(path_of(place), metric, statistic) for place in (first, second))
    shared = [Difference(point, a[point], b[point]) for point in a if point in b]
    one, other = ([point for point in each if point not in BASELINES] for each in (a, b))
    is_of_a_run = not all(is_sweep(path_of(place)) or is_table(path_of(place)) for place in (first, second))
    if not shared and is_of_a_run and len(one) == len(other) == 1:  # a run names its point by its agent alone
        shared = [Difference(f"{one[0]} and {other[0]}", a[one[0]], b[other[0]])]
    if not shared:
        remedy = ": a run is compared with what has one point beside the baselines" if is_of_a_run else ""
        raise ValueError(f"{first} and {second} share no point: {_few(a)} there, {_few(b)} here{remedy}")
    return shared


def comparison_table(found: Sequence[Difference], statistic: str = "mean") -> str:
    """Return the comparison as text: both with 95 % intervals, and the second minus the first with its interval."""
    width = max(len("point"), *(len(each.point) for each in found))
    heads = f"{'A':>10}  {'95 % interval':<22}{'n':>3}{'B':>12}  {'95 % interval':<22}{'n':>3}  B minus A"
    return "\n".join([f"{'point':<{width}}{heads}", *(_line(each, width, statistic) for each in found)])


def _line(each: Difference, width: int, statistic: str) -> str:
    value, low, high = difference(each.others, each.first, statistic)
    sides = [_side(scores, statistic) for scores in (each.first, each.others)]
    return f"{each.point:<{width}}{'  '.join(sides)}  {with_interval(value, low, high)}"


def _side(scores: Sequence[float], statistic: str) -> str:
    value, _, interval = with_interval(*summary(scores, statistic)).partition(" ")
    return f"{value:>10}  {interval:<22}{len(scores):>3}"


def _scores(place: Path, metric: str | None, statistic: str) -> Mapping[str, Sequence[float]]:
    if is_table(place):
        points: dict[str, list[float]] = {}
        column = column_of(place, metric)
        for row in read_table(place, (column,)):
            words = [str(row[name]) for name in ("environment", "agent") if row.get(name, "") != ""]
            words += [f"{name} {row[name]}" for name in ("delay", "noops") if row.get(name, "") != ""]
            points.setdefault(", ".join(words) or place.stem, []).append(row[column])
        return points
    if (place / PLAN).is_file():
        view = make_view(read_plan(place), read_rows(place), metric=metric, statistic=statistic)
        return {
            ", ".join(filter(None, [panel.title, name, f"{view.x.rpartition('.')[2]} {score.x:g}"])): score.scores
            for panel in view.panels
            for name, curve in panel.curves.items()
            for score in curve
        }
    refuse_missing(place)
    report = place / "report.json"
    if report.is_file():
        with refuse_damage(report, "remove it, and let the run go on: it writes another one"):
            return {row["agent"]: row["scores"] for row in json.loads(report.read_text(encoding="utf-8"))}
    raise ValueError(
        f"{place} holds no result: neither a sweep ({PLAN}) nor a run with a closing table (report.json), and is no CSV"
    )


def _few(scores: Mapping[str, Sequence[float]]) -> str:
    names = list(scores)
    return "; ".join(names[:3]) + ("; ..." if len(names) > 3 else "")
