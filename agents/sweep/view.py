"""A view of a sweep's table: which key is the x axis, which keys make curves, and which make panels.

A sweep has more keys than a figure has axes. One key of numbers lies along the x axis: the delay, if there is one. Each
arm makes a curve, and so does each interaction. The interaction is computed from the delay and the noops together
(asynchronous: noops = 0; sequential: noops = delay), because the noops of a sequential curve differ at every delay.
Keys whose value follows from x, as in linked axes, make nothing. All other keys make panels; without arms and
interactions, the first of them makes curves.

Random and no-op players do not learn, so they are levels across a panel: those of the arms of that name or, without
such arms, the means of the closing tables of all trials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from agents.experiment.evaluate import STATISTICS, bootstrap_interval
from agents.sweep.grid import plain
from agents.sweep.plan import SweepPlan

__all__ = ["BASELINES", "Level", "Panel", "Score", "View", "make_view"]

# Arms that are drawn as lines across the panel, not as curves.
BASELINES = {"random": "random", "no-op": "no-op", "noop": "no-op"}
# The default metric is the first of these that the sweep has.
SCORES = ("final_return", "training_return", "score")
# Metrics of baselines, which each run's closing table measures under the run's own delay.
LEVELS = {
    "random_return": "random, over all trials",
    "noop_return": "no-op, over all trials",
}


@dataclass(frozen=True)
class Score:
    """The scores of one point of a curve, one per trial.

    Attributes:
        x: Value of the key along the axis.
        scores: In the order of the seeds.
        value: Their mean, or the view's other statistic.
        low: Lower bound of its 95 % bootstrap interval over trials.
        high: Upper bound.
        trials: The trials' names.
    """

    x: float
    scores: tuple[float, ...]
    value: float
    low: float
    high: float
    trials: tuple[str, ...]


@dataclass(frozen=True)
class Level:
    """A baseline, which is the same along the axis."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Panel:
    """Curves of one panel, by name, and its baselines."""

    title: str
    curves: dict[str, list[Score]]
    levels: list[Level]


@dataclass(frozen=True)
class View:
    """A view of a sweep.

    Attributes:
        plan: The sweep.
        rows: Its table.
        x: The key along the axis.
        by: Keys whose values make curves, beside the arm and the interaction.
        apart: Keys whose values make panels.
        metric: The metric of the y axis.
        statistic: ``"mean"`` or ``"iqm"``, over trials.
    """

    plan: SweepPlan
    rows: Sequence[Mapping[str, Any]]
    x: str
    by: tuple[str, ...]
    apart: tuple[str, ...]
    metric: str
    statistic: str

    @cached_property
    def panels(self) -> list[Panel]:
        """The panels, each with its curves, in the order of the grid."""
        scores: dict[str, dict[str, dict[float, list[tuple[str, float]]]]] = {}
        levels: dict[str, dict[str, list[float]]] = {}
        for row in self._last_of_each_trial():
            title = self.title(row)
            if row["metric"] == self.metric and row["arm"] in BASELINES:
                levels.setdefault(title, {}).setdefault(BASELINES[row["arm"]], []).append(row["value"])
            elif row["metric"] == self.metric:
                for name in self.names(row):
                    at = scores.setdefault(title, {}).setdefault(name, {}).setdefault(row[self.x], [])
                    at.append((row["trial"], row["value"]))
            elif row["metric"] in LEVELS and self.metric == "final_return" and not self._has_baselines():
                levels.setdefault(title, {}).setdefault(LEVELS[row["metric"]], []).append(row["value"])
        return [
            Panel(
                title,
                {name: [self._score(x, curve[x]) for x in sorted(curve)] for name, curve in curves.items()},
                [Level(name, *self._statistic_with_interval(values)) for name, values in levels.get(title, {}).items()],
            )
            for title, curves in scores.items()
        ]

    def names(self, row: Mapping[str, Any]) -> list[str]:
        """Return the curves of a row; a point without delay and noops is drawn in the curve of every interaction."""
        words = [[row["arm"]]] if row["arm"] else []
        delay, noops = _key("delay", self.plan), _key("noops", self.plan)
        if delay and noops and noops in self.plan.axes:
            words.append(_interactions(row[delay], row[noops], self._all_interactions(delay, noops)))
        words += [[f"{key.rpartition('.')[2]} {row[key]}"] for key in self.by]
        return [", ".join(name) for name in product(*words)] if words else [self.metric_label]

    def title(self, row: Mapping[str, Any]) -> str:
        """Return the title of a row's panel."""
        return ", ".join(str(row[key]) for key in self.apart)

    @property
    def metric_label(self) -> str:
        """The metric in words."""
        return {
            "final_return": "return of an episode in the closing evaluation",
            "training_return": "return of an episode, all training episodes",
            "train_average_return": "return of an episode in training",
            "eval_average_return": "return of an episode in evaluation",
        }.get(self.metric, self.metric.replace("_", " "))

    @property
    def statistic_label(self) -> str:
        """The meaning of a marker and its bar, in words."""
        name = {"mean": "mean", "iqm": "interquartile mean"}[self.statistic]
        scores = (score for panel in self.panels for curve in panel.curves.values() for score in curve)
        counts = sorted({len(score.scores) for score in scores})
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        if counts == [1]:
            return "one seed, no interval"
        return f"{name} of {seeds} seeds, bars: 95 % bootstrap interval over seeds"

    @property
    def x_label(self) -> str:
        """The axis in words, with its unit."""
        return "delay (frames)" if self.x == _key("delay", self.plan) else self.x

    def _last_of_each_trial(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row per trial and metric, that of the last iteration."""
        last = {(row["trial"], row["metric"]): row for row in self.rows}
        yield from last.values()

    def _score(self, x: float, found: Sequence[tuple[str, float]]) -> Score:
        values = [value for _, value in found]
        return Score(x, tuple(values), *self._statistic_with_interval(values), tuple(trial for trial, _ in found))

    def _statistic_with_interval(self, values: Sequence[float]) -> tuple[float, float, float]:
        statistic = STATISTICS[self.statistic]
        return (float(statistic(values)), *bootstrap_interval(values, statistic))

    def _has_baselines(self) -> bool:
        return any(point.arm in BASELINES for point in self.plan.points)

    def _all_interactions(self, delay: str, noops: str) -> list[str]:
        points = [point.bindings for point in self.plan.points]
        pairs = [(plain(bindings.get(delay)), plain(bindings.get(noops))) for bindings in points]
        return list(dict.fromkeys(_interactions(*pair, [])[0] for pair in pairs))


def make_view(
    plan: SweepPlan,
    rows: Sequence[Mapping[str, Any]],
    *,
    metric: str | None = None,
    statistic: str = "mean",
    x: str | None = None,
) -> View:
    """Return a view of a sweep.

    Args:
        plan: The sweep.
        rows: Its table.
        metric: The metric of the y axis; None is the closing return, else the training return, else the first metric.
        statistic: ``"mean"`` or ``"iqm"``, over seeds.
        x: The key along the axis; None is the delay, or the axis with the most numbers if there is no delay.

    Raises:
        ValueError: A metric, statistic or key that the sweep does not have.
    """
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    metric = metric or next((name for name in (*SCORES, *metrics) if name in metrics), "")
    if metric not in metrics:
        raise ValueError(f"metric must be one of {', '.join(metrics)}, got {metric!r}")
    if statistic not in STATISTICS:
        raise ValueError(f"statistic must be one of {', '.join(STATISTICS)}, got {statistic!r}")
    delay, noops = _key("delay", plan), _key("noops", plan)
    numeric = [key for key in dict.fromkeys([delay, *plan.axes]) if key and _is_numeric(key, rows)]
    if x is None and not numeric:
        raise ValueError(f"x: no axis of this sweep holds numbers, of {', '.join(plan.axes)}: nothing lies along it")
    x = x or max(numeric, key=lambda key: (key == delay, len({row[key] for row in rows})))
    if x not in rows[0] or not _is_numeric(x, rows):
        raise ValueError(f"x must be a key with numbers, one of {', '.join(numeric)}, got {x!r}")
    arms = {row["arm"] for row in rows} - {""}
    curves = [row for row in rows if row["arm"] not in BASELINES]
    if not any(row["metric"] == metric for row in curves):
        raise ValueError(f"metric {metric}: no trial has it yet but those of random and no-op: let the sweep go on")
    # Where both keys vary, the interaction's name stands for the noops.
    interactions = noops in plan.axes and delay is not None
    hidden = {x, noops} if interactions else {x}
    others = [key for key in plan.axes if key not in hidden and not _follows(key, x, curves)]
    named = bool(arms) or interactions
    by, apart = ((), others) if named else (others[:1], others[1:])
    return View(plan, rows, x, tuple(by), tuple(apart), metric, statistic)


def _key(word: str, plan: SweepPlan) -> str | None:
    """Return the key whose parameter is `word`, such as ``RealtimeDelay.delay``; None if there is none."""
    keys = (key for point in plan.points for key in point.bindings)
    return next((key for key in keys if key.rpartition(".")[2] == word), None)


def _interactions(delay: Any, noops: Any, known: Sequence[str]) -> list[str]:
    """Return the interaction of a delay and noops by name; with neither, all known interactions."""
    if delay == noops == 0 and known:
        return list(known)
    if noops == 0:
        return ["asynchronous"]
    return ["sequential" if noops == delay else f"noops {noops}"]


def _is_numeric(key: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    values = [row.get(key) for row in rows if row["arm"] not in BASELINES]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _follows(key: str, x: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the value of `x` determines the key's value, as in linked axes."""
    pairs = {(row[x], repr(row[key])) for row in rows}
    return len(pairs) == len({at for at, _ in pairs})
