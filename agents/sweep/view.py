"""A view of a sweep's table: which key is the x axis, which keys make curves, and which make panels.

A sweep has more keys than a figure has axes. One key of numbers lies along the x axis: the delay, if there is one. Each
arm makes a curve, and so does each interaction. The interaction is computed from the delay and the noops together
(asynchronous: noops = 0; sequential: noops = delay), because the noops of a sequential curve differ at every delay.
Keys whose value follows from x, as in linked axes, are ignored. A key that names the environment makes panels, since
scores of two games cannot be compared. All other keys make curves as long as colours tell these apart, and then panels.

Random and no-op players do not learn, so they are levels across a panel: those of the arms of that name or, without
such arms, the means of the closing tables of all trials.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple

from async_wrappers.agents.experiment.evaluate import STATISTICS, bootstrap_interval, difference_interval
from async_wrappers.agents.sweep.grid import plain
from async_wrappers.agents.sweep.plan import SweepPlan

# Arms that are drawn as lines across the panel, not as curves.
BASELINES = {"random": "random", "no-op": "no-op", "noop": "no-op"}
# Keys whose value is the name of an environment.
ENVIRONMENTS = ("environment", "environment_id", "env_id", "game", "game_name")
NO_INTERVAL = (math.nan, math.nan)
MOST_CURVES = 8  # in a panel: as many as there are colours
METRICS = {
    "final_return": "return of an episode in the closing evaluation",
    "training_return": "return of an episode, all training episodes",
    "train_average_return": "return of an episode in training",
    "eval_average_return": "return of an episode in evaluation",
}
# The default metric is the first of these that the sweep has.
SCORES = ("final_return", "training_return", "score")
ASYNCHRONOUS, SEQUENTIAL, NO_DELAY = "asynchronous", "sequential", "no delay"
# Metrics of baselines, which each run's closing table measures under the run's own delay.
LEVELS = {"random_return": "random, over all trials", "noop_return": "no-op, over all trials"}


Row = Mapping[str, Any]
"""A row of a sweep's table."""


class Summary(NamedTuple):
    """A statistic of scores, and its 95 % bootstrap interval; of one score there is none, and its bounds are NaN."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Score:
    """The scores of one point of a curve, one per trial.

    Attributes:
        x: Value of the key along the axis.
        scores: In the order of the seeds.
        value: Their mean, or the view's other statistic.
        low: Lower bound of its 95 % bootstrap interval over trials; NaN for one trial.
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
class SweepPanel:
    """Curves of one panel, by name, and its baselines by name, which are the same along the axis."""

    title: str
    curves: dict[str, list[Score]]
    levels: dict[str, Summary]


# The regret ladder of a sweep: the cost of delay, and the cost of inaction on top of it, as numbers.
#
# Riemer, Subbaraj, Berseth, Rish, arXiv 2412.14355, Theorem 1: realtime regret has a term from delay and a term from
# inaction. With S(d, n) for the score with a delay of d frames and n no-ops between two actions, the ladder of a delay
# d goes from S(0, 0) down to S(d, 0), the score of asynchronous interaction, and on to S(d, d), that of sequential
# interaction:
#
#     cost of delay    = S(0, 0) - S(d, 0)
#     cost of inaction = S(d, 0) - S(d, d)
#
# Each rung was trained where it plays, so a cost is what remains after learning. `async_wrappers.analysis.regret`
# measures one fixed policy on all rungs instead.


class Rung(NamedTuple):
    """One delay: the scores of asynchronous and of sequential interaction, and the cost of each step.

    A cost is a loss of score, positive where the lower rung does worse, and its interval.
    """

    asynchronous: Score
    sequential: Score
    delay: Summary
    inaction: Summary


class Ladder(NamedTuple):
    """All rungs of an agent in a panel, the score without delay at the top, and that of random play, if it is known.

    `frame_rate` is that of `View`.
    """

    title: str
    top: Score
    rungs: list[Rung]
    random: Summary | None
    frame_rate: float | None

    def in_words(self) -> list[str]:
        """Return a sentence on play without delay, and two for each delay, with what is left of its gain."""
        subject, random = f"{self.title}: " if self.title else "", self.random
        play = f", and random play {random.value:.4g}" if random else ""
        sentences = [f"{subject}Without delay the agent scores {_of(self.top)}{play}."]
        for rung in self.rungs:
            late = f"{subject}{frames_in_words(rung.asynchronous.x, self.frame_rate)} late"
            for way, score in ((_SEQUENTIALLY, rung.sequential), (_ASYNCHRONOUSLY, rung.asynchronous)):
                sentences.append(f"{late} it scores {_of(score)} {way}{self._left(score.value)}.")
        return sentences

    def _left(self, score: float) -> str:
        """Return which share of the gain over random play is left, where there is a gain."""
        if self.random is None or self.top.value <= self.random.value:
            return ""
        return f": {share_in_words(score, self.top.value, self.random.value)} of the gain over random play is left"


def share_in_words(score: float, top: float, random: float) -> str:
    """Return the share of the gain of `top` over `random` that a score keeps."""
    share = (score - random) / (top - random)
    return f"{100 * share:.0f} %" if share > 0 else "nothing"


def frames_in_words(frames: float, frame_rate: float | None) -> str:
    """Return a number of frames in words, with its milliseconds if the frames per second are known."""
    milliseconds = f" ({1_000 * frames / frame_rate:.0f} ms)" if frame_rate else ""
    return f"{frames:g} frame{'s' * (frames != 1)}{milliseconds}"


_SEQUENTIALLY = "sequentially (it observes again only when its action has landed)"
_ASYNCHRONOUSLY = "asynchronously (an action on every frame)"


# The view.


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
        frame_rate: Frames per second of the environment's own time; None if they are not known.
    """

    plan: SweepPlan
    rows: Sequence[Row]
    x: str
    by: tuple[str, ...]
    apart: tuple[str, ...]
    metric: str
    statistic: str
    frame_rate: float | None = None

    @cached_property
    def panels(self) -> list[SweepPanel]:
        """The panels, each with its curves, in the order of the grid."""
        scores: dict[tuple[str, str, float], list[Row]] = defaultdict(list)
        levels: dict[tuple[str, str], list[float]] = defaultdict(list)
        played_baselines = any(point.arm in BASELINES for point in self.plan.points)
        # A row per trial and metric, that of the last iteration.
        for row in {(row["trial"], row["metric"]): row for row in self.rows}.values():
            title = self.title(row)
            if row["metric"] == self.metric and row["arm"] in BASELINES:
                levels[title, BASELINES[row["arm"]]].append(row["value"])
            elif row["metric"] == self.metric:
                for name in self.names(row):
                    scores[title, name, row[self.x]].append(row)
            elif row["metric"] in LEVELS and self.metric == "final_return" and not played_baselines:
                levels[title, LEVELS[row["metric"]]].append(row["value"])
        panels = {title: SweepPanel(title, {}, {}) for title, _, _ in scores}
        for (title, name, x), rows in scores.items():
            values, trials = [row["value"] for row in rows], [row["trial"] for row in rows]
            score = Score(x, tuple(values), *summary(values, self.statistic), tuple(trials))
            panels[title].curves.setdefault(name, []).append(score)
        for (title, name), values in levels.items():
            # A baseline may have finished before the first trial of a curve.
            if title in panels:
                panels[title].levels[name] = summary(values, self.statistic)
        for curve in (curve for panel in panels.values() for curve in panel.curves.values()):
            curve.sort(key=attrgetter("x"))
        return list(panels.values())

    def names(self, row: Row) -> list[str]:
        """Return the curves of a row; a point without delay and noops is drawn in the curve of every interaction."""
        return self._names(row, self._all_interactions)

    def own_name(self, row: Row) -> str:
        """Return the name of a row's own curve, with ``no delay`` in it where there are neither delay nor noops."""
        name = self._names(row, [NO_DELAY])[0]
        if self._interaction_keys or not self.is_without_delay(row):
            return name
        return NO_DELAY if name == self.metric_label else f"{NO_DELAY}, {name}"

    def is_without_delay(self, row: Row) -> bool:
        """Return whether a row has neither delay nor noops, in a sweep along the delay."""
        delay, noops = (_key(word, self.plan) for word in ("delay", "noops"))
        return delay == self.x and row[self.x] == 0 and (noops is None or not row.get(noops))

    def _names(self, row: Row, without_delay: Sequence[str]) -> list[str]:
        words = [[row["arm"]]] if row["arm"] else []
        if self._interaction_keys:
            delay, noops = (row[key] for key in self._interaction_keys)
            words.append([*without_delay] if delay == noops == 0 else [_interaction(delay, noops)])
        words += [[_value_in_words(key, row)] for key in self.by if row[key] != ""]  # a place of several may lack a key
        return [", ".join(name) for name in product(*words)] if words else [self.metric_label]

    def title(self, row: Row) -> str:
        """Return the title of a row's panel."""
        return ", ".join(_value_in_words(key, row) for key in self.apart)

    @cached_property
    def games(self) -> dict[str, str]:
        """The environment of each panel, by its title; scores of the same one can be compared."""
        keys = [key for key in self.apart if _is_environment(key)]
        return {self.title(row): ", ".join(str(row[key]) for key in keys) for row in self.rows}

    @property
    def metric_label(self) -> str:
        """The metric in words."""
        return METRICS.get(self.metric, self.metric.replace("_", " "))

    @property
    def statistic_label(self) -> str:
        """The meaning of a marker and its bar, in words."""
        scores = (score for panel in self.panels for curve in panel.curves.values() for score in curve)
        return self.note("{statistic} of {seeds} seeds, bars: 95 % bootstrap interval over seeds", scores)

    def note(self, text: str, scores: Iterable[Score]) -> str:
        """Return a text with the statistic and the number of seeds of the scores put in."""
        counts = {len(score.scores) for score in scores}
        if counts == {1}:
            return "one seed, no interval"
        seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
        return text.format(statistic={"mean": "mean", "iqm": "interquartile mean"}[self.statistic], seeds=seeds)

    @property
    def x_label(self) -> str:
        """The axis in words, with its unit."""
        return "delay (frames)" if self.x == _key("delay", self.plan) else self.x

    def x_in_words(self, x: float) -> str:
        """Return a value along the axis in words, such as ``delay 2 frames (133 ms)``."""
        if not self.x_label.startswith("delay"):
            return f"{self.x} {x:g}"
        return f"delay {frames_in_words(x, self.frame_rate if x else None)}"

    @cached_property
    def ladders(self) -> list[Ladder]:
        """The regret ladders, if there are a score without delay and, at another delay, both interactions."""
        if not self.x_label.startswith("delay"):
            return []
        ladders = []
        for panel in self.panels:
            for name, curve in panel.curves.items():
                agent, _, last = name.rpartition(", ")
                other = panel.curves.get(name.removesuffix(ASYNCHRONOUS) + SEQUENTIAL, [])
                with_noops = {score.x: score for score in other}
                tops = [score for score in curve if score.x == 0]
                pairs = [(score, with_noops[score.x]) for score in curve if score.x > 0 and score.x in with_noops]
                if last == ASYNCHRONOUS and tops and pairs:
                    rungs = [_rung(tops[0], *pair, statistic=self.statistic) for pair in pairs]
                    random = next((found for name, found in panel.levels.items() if name.startswith("random")), None)
                    title = ", ".join(filter(None, [panel.title, agent]))
                    ladders.append(Ladder(title, tops[0], rungs, random, self.frame_rate))
        return ladders

    @cached_property
    def _interaction_keys(self) -> tuple[str, str] | None:
        """The keys of delay and noops, where the noops vary."""
        delay, noops = _key("delay", self.plan), _key("noops", self.plan)
        return (delay, noops) if delay and noops and noops in self.plan.axes else None

    @cached_property
    def _all_interactions(self) -> list[str]:
        """All interactions of the grid; a point without delay and noops counts as asynchronous."""
        delay, noops = (_key(word, self.plan) or "" for word in ("delay", "noops"))
        points = [point.bindings for point in self.plan.points]
        names = [_interaction(plain(bindings.get(delay)), plain(bindings.get(noops))) for bindings in points]
        return list(dict.fromkeys(names))


def summary(scores: Sequence[float], statistic: str) -> Summary:
    """Return a statistic of scores, and its 95 % bootstrap interval."""
    of = STATISTICS[statistic]
    return Summary(float(of(scores)), *(bootstrap_interval(scores, of) if len(scores) > 1 else NO_INTERVAL))


def difference(scores: Sequence[float], others: Sequence[float], statistic: str) -> Summary:
    """Return the statistic of scores minus that of others, and its 95 % bootstrap interval."""
    of = STATISTICS[statistic]
    several = min(len(scores), len(others)) > 1
    interval = difference_interval(scores, others, of) if several else NO_INTERVAL
    return Summary(float(of(scores) - of(others)), *interval)


def make_view(
    plan: SweepPlan,
    rows: Sequence[Row],
    *,
    metric: str | None = None,
    statistic: str = "mean",
    x: str | None = None,
    frame_rate: float | None = None,
) -> View:
    """Return a view of a sweep.

    Args:
        plan: The sweep.
        rows: Its table.
        metric: The metric of the y axis; None is the closing return, else the training return, else the first metric.
        statistic: ``"mean"`` or ``"iqm"``, over seeds.
        x: The key along the axis; None is the delay, or the axis with the most numbers if there is no delay.
        frame_rate: Frames per second of the environment's own time; None if they are not known.

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
    curves = [row for row in rows if row["arm"] not in BASELINES]
    if not any(row["metric"] == metric for row in curves):
        raise ValueError(f"metric {metric}: no trial has it yet but those of random and no-op: let the sweep go on")
    # Where both keys vary, the interaction's name replaces the noops.
    interactions = noops in plan.axes and delay is not None
    hidden = {x, str(noops)} if interactions else {x}
    # A key of one's own that is named `arm` is the row's arm, which also says what follows from it.
    said = {key: hidden if _is_environment(key) else {*hidden, "arm"} for key in plan.axes}
    others = [key for key in plan.axes if key not in {*hidden, "arm"} and not _follows(key, said[key], curves)]
    view = View(plan, rows, x, (), tuple(others), metric, statistic, frame_rate)
    named = interactions or any(row["arm"] for row in curves)
    for key in (each for each in others if not _is_environment(each)):
        more = replace(view, by=(*view.by, key), apart=tuple(each for each in view.apart if each != key))
        if (named or view.by) and len({name for row in curves for name in more.names(row)}) > MOST_CURVES:
            break
        view = more
    return view


def _is_environment(key: str) -> bool:
    return key.rpartition(".")[2] in ENVIRONMENTS


def _value_in_words(key: str, row: Row) -> str:
    """Return a key's value in a row; with the key's last word but for an environment."""
    if _is_environment(key):
        return str(row[key])
    return f"{key.rpartition('.')[2]} {row[key]}"


def _key(word: str, plan: SweepPlan) -> str | None:
    """Return the key whose parameter is `word`, such as ``RealtimeDelay.delay``; None if there is none."""
    keys = (key for point in plan.points for key in point.bindings)
    return next((key for key in keys if key.rpartition(".")[2] == word), None)


def _interaction(delay: Any, noops: Any) -> str:
    """Return the interaction of a delay and noops by name."""
    if noops == 0:
        return ASYNCHRONOUS
    return SEQUENTIAL if noops == delay else f"noops {noops}"


def _is_numeric(key: str, rows: Sequence[Row]) -> bool:
    values = [row.get(key) for row in rows if row["arm"] not in BASELINES]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _follows(key: str, hidden: Collection[str], rows: Sequence[Row]) -> bool:
    """Return whether the values of the hidden keys determine the key's value, as in linked axes."""
    pairs = {(tuple(row[each] for each in hidden), repr(row[key])) for row in rows}
    return len(pairs) == len({at for at, _ in pairs})


def with_interval(value: float, low: float, high: float, digits: str = ".2f") -> str:
    """Return a value in words with its interval, such as ``1.50 [1.25, 2.50]``; alone where its bounds are NaN."""
    return f"{value:{digits}}" + ("" if math.isnan(low) else f" [{low:{digits}}, {high:{digits}}]")


def why_no_ladder(view: View) -> str:
    """Return the line that is printed for a sweep without ladders."""
    needs = f"a score without delay ({view.x} = 0, noops = 0) and, at another delay, both interactions"
    return f"no regret ladder: it needs {needs} (noops = 0 and noops = delay)"


def _of(score: Score) -> str:
    """Return a score, with its interval where there are several seeds."""
    return with_interval(score.value, score.low, score.high, ".4g")


def _rung(top: Score, asynchronous: Score, sequential: Score, statistic: str) -> Rung:
    delay = difference(top.scores, asynchronous.scores, statistic)
    inaction = difference(asynchronous.scores, sequential.scores, statistic)
    return Rung(asynchronous, sequential, delay, inaction)
