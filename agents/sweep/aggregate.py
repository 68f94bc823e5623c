"""Scores over games: normalised, their interquartile mean, and how probable an improvement is.

Agarwal, Schwarzer, Castro, Courville, Bellemare, "Deep reinforcement learning at the edge of the statistical
precipice", NeurIPS 2021. A panel of the view is a *game*; a *way* is a curve at one value of the axis, such as
asynchronous at a delay of 8 frames.

    normalised score = (score - random) / (score without delay - random)

Random is the mean score of the random player and the score without delay the mean over seeds, both of the game's trials
where the axis is 0; both are taken as exact, as in the paper. A curve that is there alone, such as a smaller network
that is never late, is a way like others and no scale, unless every curve is. A game whose score without delay is not
above random, by the 95 % interval of the difference, has no such scale: it is named, and left out of all statistics
over games.

Intervals are 95 % percentile-bootstrap intervals, stratified: seeds are resampled within each game, and the games stay.
With one seed there is none.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.experiment.evaluate import interquartile_mean
from async_wrappers.agents.sweep.view import BASELINES, View, difference
from async_wrappers.files import write_text_atomically

_RESAMPLES = 2_000
_BATCH = 500  # resamples at a time, so that a large grid takes little memory
Scores = npt.NDArray[np.float64]


class Scale(NamedTuple):
    """The scores that are 0 and 1 on a game's normalised scale.

    Attributes:
        random: Mean score of the random player.
        without_delay: Mean score without delay.
        low: Lower bound of the 95 % interval of their difference.
        high: Upper bound.
    """

    random: float
    without_delay: float
    low: float
    high: float


class Way(NamedTuple):
    """One curve at one value of the axis, over games.

    Attributes:
        name: The curve's.
        x: The value.
        games: How many games it has scores of.
        value: Interquartile mean of the normalised scores.
        low: Lower bound of its 95 % interval.
        high: Upper bound.
    """

    name: str
    x: float
    games: int
    value: float
    low: float
    high: float


class Pair(NamedTuple):
    """One way beside another at the same value of the axis.

    Attributes:
        name: The first curve's.
        other: The second's.
        x: The value.
        difference: Interquartile mean of the first minus that of the second, with its 95 % interval.
        probability: Probability that a run of the first scores above one of the second on the same game, averaged over
            games, with its 95 % interval; 0.5 where they are equal.
    """

    name: str
    other: str
    x: float
    difference: tuple[float, float, float]
    probability: tuple[float, float, float]


@dataclass(frozen=True)
class Aggregate:
    """A sweep's scores over its games.

    Attributes:
        scales: The scale of each game, by its title, in the order of the panels.
        apart: Titles of games whose score without delay is not above random.
        scores: Normalised scores by (curve, x), and by game: one per seed.
    """

    scales: dict[str, Scale]
    apart: list[str]
    scores: dict[tuple[str, float], dict[str, Scores]]

    @cached_property
    def ways(self) -> list[Way]:
        """Each way, in the order of the grid, with the interquartile mean over games and seeds."""
        found = []
        for (name, x), games in self.scores.items():
            drawn = _resampled([games], lambda each: _iqm(each[0]))
            found.append(Way(name, x, len(games), float(_iqm([*games.values()])), *_middle(drawn)))
        return found

    @cached_property
    def pairs(self) -> list[Pair]:
        """Each curve beside each earlier one of the grid, on the games that both have."""
        found = []
        for x in dict.fromkeys(x for _, x in self.scores):
            names = [name for name, at in self.scores if at == x]
            for other, name in combinations(names, 2):
                first, second = self.scores[name, x], self.scores[other, x]
                shared = [game for game in first if game in second]
                if shared:
                    both = [{game: scores[game] for game in shared} for scores in (first, second)]
                    found.append(Pair(name, other, x, _compared(both, _difference), _compared(both, _probability)))
        return found


def aggregate_of(view: View) -> Aggregate | None:
    """Return the scores over games, or None where `why_no_aggregate` says why there are none."""
    tops = _tops(view)
    if len(view.panels) < 2 or not tops:
        return None
    scales, apart = {}, []
    for title, (random, without) in tops.items():
        gain = difference(without, random, "mean")
        scales[title] = Scale(float(np.mean(random)), float(np.mean(without)), gain.low, gain.high)
        if not (gain.value if math.isnan(gain.low) else gain.low) > 0:
            apart.append(title)
    scores: dict[tuple[str, float], dict[str, Scores]] = {}
    for panel in view.panels:
        if panel.title not in scales or panel.title in apart:
            continue
        scale = scales[panel.title]
        for name, curve in panel.curves.items():
            for score in curve:
                normalised = (np.array(score.scores) - scale.random) / (scale.without_delay - scale.random)
                scores.setdefault((name, score.x), {})[panel.title] = normalised
    return Aggregate(scales, apart, scores)


def why_no_aggregate(view: View) -> str:
    """Return the line that is printed for a sweep without scores over games."""
    return (
        "no scores over games: they need several games, each with a score without delay "
        f"({view.x} = 0) and a random player beside it (Runner.report_episodes, or an arm named random)"
    )


def write_aggregate(aggregate: Aggregate, path: Path) -> Path:
    """Write a row per game, way and pair, ``what, way, other, x, games, value, low, high``, as CSV; return the path."""
    rows: list[tuple[object, ...]] = [("what", "way", "other", "x", "games", "value", "low", "high")]
    for game, scale in aggregate.scales.items():
        what = "gain over random, apart" if game in aggregate.apart else "gain over random"
        rows.append((what, "", game, 0, 1, scale.without_delay - scale.random, scale.low, scale.high))
    for way in aggregate.ways:
        rows.append(("interquartile mean", way.name, "", way.x, way.games, way.value, way.low, way.high))
    for pair in aggregate.pairs:
        games = sum(game in aggregate.scores[pair.other, pair.x] for game in aggregate.scores[pair.name, pair.x])
        where = (pair.name, pair.other, pair.x, games)
        rows.append(("difference", *where, *pair.difference))
        rows.append(("probability of improvement", *where, *pair.probability))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        ["" if cell != cell else f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows
    )
    write_text_atomically(path, text.getvalue())
    return path


def improvement_probability(games: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """Return P(X > Y) + P(X = Y) / 2 of runs X and Y of the same game, averaged over games (Agarwal et al. 2021).

    Args:
        games: Scores of the runs of each game.
        others: Those of the runs that they are compared with.
    """
    return float(_probability([[np.asarray(each, float) for each in side] for side in (games, others)]))


def _tops(view: View) -> dict[str, tuple[list[float], list[float]]]:
    """Return the random player's scores and those without delay of each game that has both, by its title."""
    found = {}
    for panel in view.panels:
        late = [curve for curve in panel.curves.values() if any(score.x != 0 for score in curve)]
        without = [score for curve in late for score in curve if score.x == 0]
        without = without or [score for curve in panel.curves.values() for score in curve if score.x == 0]
        trials = {name for score in without for name in score.trials}
        if not trials:
            continue
        beside = [row["value"] for row in view.rows if row["trial"] in trials and row["metric"] == "random_return"]
        own = [
            row["value"]
            for row in view.rows
            if BASELINES.get(row["arm"]) == "random" and row["metric"] == view.metric and view.title(row) == panel.title
        ]
        # Where several curves share the point without delay, its trials are the same.
        values = {name: value for each in without for name, value in zip(each.trials, each.scores, strict=True)}
        if random := own or beside:
            found[panel.title] = (random, list(values.values()))
    return found


# Statistics of the scores of several games, [games][..., seeds]: the axes before the seeds are kept.


def _iqm(games: Sequence[Scores]) -> Scores:
    found: Scores = np.asarray(interquartile_mean(np.concatenate(list(games), axis=-1)))
    return found


def _difference(sides: Sequence[Sequence[Scores]]) -> Scores:
    return _iqm(sides[0]) - _iqm(sides[1])


def _probability(sides: Sequence[Sequence[Scores]]) -> Scores:
    games = []
    for scores, others in zip(*sides, strict=True):
        ours, theirs = scores[..., :, None], others[..., None, :]
        games.append((ours > theirs).mean(axis=(-2, -1)) + (ours == theirs).mean(axis=(-2, -1)) / 2)
    found: Scores = np.mean(games, axis=0)
    return found


def _compared(
    sides: Sequence[Mapping[str, Scores]], statistic: Callable[[Sequence[Sequence[Scores]]], Scores]
) -> tuple[float, float, float]:
    value = float(statistic([list(side.values()) for side in sides]))
    return value, *_middle(_resampled(sides, statistic))


def _resampled(
    sides: Sequence[Mapping[str, Scores]], statistic: Callable[[Sequence[Sequence[Scores]]], Scores]
) -> Scores:
    """Return the statistic of resamples, in each of which the seeds of each game are drawn anew, with replacement.

    The generator's seed is fixed, so that the same scores always give the same interval. With one seed of every game
    all resamples are alike, and the statistic has no interval: the result is NaN.
    """
    if all(len(scores) == 1 for side in sides for scores in side.values()):
        return np.array([math.nan])
    rng = np.random.default_rng(0)
    found = []
    for _ in range(_RESAMPLES // _BATCH):
        drawn = [
            [scores[rng.integers(len(scores), size=(_BATCH, len(scores)))] for scores in side.values()]
            for side in sides
        ]
        found.append(statistic(drawn))
    return np.concatenate(found)


def _middle(drawn: Scores) -> tuple[float, float]:
    low, high = np.percentile(drawn, (2.5, 97.5))
    return float(low), float(high)
