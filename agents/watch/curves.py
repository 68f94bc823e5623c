"""What is drawn of runs: curves with intervals against training frames, rates, and the times of parts of a round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from async_wrappers.agents.experiment.evaluate import bootstrap_interval
from async_wrappers.agents.sweep.runs import IN_WORDS, RETURNS, RecordedRun, by_environment, series_of, together
from async_wrappers.agents.sweep.view import summary
from async_wrappers.agents.timing import PARTS, rate_in_words
from async_wrappers.agents.watch.scalars import Series
from async_wrappers.agents.watch.watched_run import WatchedRun

_MOST_POINTS, _MOST_DOTS, _MOST_PANELS = 80, 300, 40
_MANY = 200  # scores whose mean is as good as normal, so that no resampling is needed
_ELSEWHERE = ("Train/", "Eval/", "Time/", "Vector/", "TrainTiming/", "EvalTiming/", "Pretraining/")


class CurvePoint(NamedTuple):
    """A point of a curve, with the bounds of its 95 % interval; the value itself where there is one score alone."""

    x: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A curve; its name is empty where its panel has no other."""

    name: str
    points: Sequence[CurvePoint]


@dataclass(frozen=True)
class Panel:
    """A panel of curves.

    Attributes:
        title: What is drawn.
        curves: Against training frames.
        dots: Frames and return of single episodes.
        note: What the curves and bands are.
    """

    title: str
    curves: Sequence[Curve]
    dots: Sequence[tuple[float, float]] = ()
    note: str = ""


def panels_of(runs: Sequence[WatchedRun]) -> list[Panel]:
    """Return the panels of returns: of one run with its episodes, of several with a curve for each kind.

    Each environment has panels of its own, whose titles name it where there are several.
    """
    if len(runs) == 1:
        panels = [_of_one(runs[0], metric) for metric in RETURNS]
    else:
        panels = [panel for metric in RETURNS for panel in _of_several(runs, metric)]
    return [panel for panel in panels if panel.curves or panel.dots]


def _of_one(run: WatchedRun, metric: str) -> Panel:
    phase = metric.partition("_")[0]
    lines = [line for line in run.recorded.lines if metric in line and line.get(f"{phase}_episode_returns")]
    points = []
    for line in _thinned(lines, _MOST_POINTS):
        low, high = _interval(line[f"{phase}_episode_returns"])
        points.append(CurvePoint(line["frames"], line[metric], low, high))
    played = [(each.frames, each.score) for each in run.episodes if each.phase == phase and each.score is not None]
    note = "mean of an iteration, band: 95 % interval over its episodes, dots: episodes"
    return Panel(IN_WORDS[metric], [Curve("", points)] if points else [], _thinned(played, _MOST_DOTS), note)


def _of_several(runs: Sequence[WatchedRun], metric: str) -> list[Panel]:
    begun = [run.recorded for run in runs if any(metric in line for line in run.recorded.lines)]
    environments = by_environment(begun) if begun else {}
    return [
        _of_kinds(f"{IN_WORDS[metric]}, {environment}" if len(environments) > 1 else IN_WORDS[metric], kinds, metric)
        for environment, kinds in environments.items()
    ]


def _of_kinds(title: str, kinds: Mapping[str, Sequence[RecordedRun]], metric: str) -> Panel:
    curves, most = [], 1
    for name, group in kinds.items():
        most = max(most, len(group))
        found = together(series_of(run, metric) for run in group)
        points = [CurvePoint(x, *_summary(tuple(values))) for x, values in _thinned(found, _MOST_POINTS)]
        curves.append(Curve(name, points))
    note = f"mean of up to {most} runs, bands: 95 % interval over runs" if most > 1 else "a run for each curve"
    return Panel(title, curves, note=note)


def _interval(scores: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of an iteration's scores."""
    if len(scores) <= _MANY:
        return _bootstrapped(tuple(scores))
    mean, error = float(np.mean(scores)), float(np.std(scores)) / math.sqrt(len(scores))
    return mean - 1.96 * error, mean + 1.96 * error


_bootstrapped = lru_cache(maxsize=4096)(bootstrap_interval)


@lru_cache(maxsize=4096)
def _summary(values: tuple[float, ...]) -> tuple[float, float, float]:
    value, low, high = summary(values, "mean")
    return (value, value, value) if len(values) == 1 else (value, low, high)


def scalars_of(run: WatchedRun) -> list[Panel]:
    """Return a panel for each scalar of the updates, such as the loss, and for each rate of the iterations."""
    own = {tag: series for tag, series in run.scalars.items() if not tag.startswith(_ELSEWHERE)}
    return [Panel(tag, [Curve("", _plain(series))]) for tag, series in sorted(own.items())]


def rates_of(run: WatchedRun) -> list[Panel]:
    """Return the frames a second of each phase, and the rates of many environments, a panel each."""
    found: dict[str, Series] = {}
    for line in run.recorded.lines:
        for phase, words in (("train", "training"), ("eval", "evaluation")):
            if (rate := line.get(f"{phase}_average_steps_per_second")) is not None:
                found.setdefault(f"frames/s in {words}", []).append((line["frames"], rate))
        for name, rate in line.get("train_rates", {}).items():
            found.setdefault(rate_in_words(name, rate)[0], []).append((line["frames"], rate))
    return [Panel(title, [Curve("", _plain(series))]) for title, series in list(found.items())[:_MOST_PANELS]]


def times_of(run: WatchedRun) -> dict[str, float]:
    """Return the seconds of each part of the newest training phase, in words; the rest of the phase as ``"other"``."""
    newest = {name: run.scalars[f"Time/{name}"][-1][1] for name in PARTS if f"Time/{name}" in run.scalars}
    times = {PARTS[name]: seconds for name, seconds in newest.items() if seconds > 0}
    last: Mapping[str, Any] = run.last
    if times and (rate := last.get("train_average_steps_per_second", 0.0)) > 0:
        lines = run.recorded.lines
        whole = (last["frames"] - (lines[-2]["frames"] if len(lines) > 1 else 0)) / rate
        if whole > sum(times.values()):
            times["other"] = whole - sum(times.values())
    return times


def _plain(series: Series) -> list[CurvePoint]:
    return [CurvePoint(x, value, value, value) for x, value in _thinned(series, _MOST_POINTS)]


def _thinned(values: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of the values, evenly spread, with the first and the last one."""
    if len(values) <= most:
        return list(values)
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]
