"""The figures of a sweep: score against delay, over games too, learning curves, the ladder.

Runs without a sweep have learning curves alone.

Curves differ in colour (Okabe and Ito's, which colour-blind readers can distinguish), in line and in marker, so that
they can be read in black and white too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from operator import attrgetter
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from async_wrappers.agents.sweep.aggregate import Aggregate
from async_wrappers.agents.sweep.runs import IN_WORDS, RecordedRun, Series, series_of, together
from async_wrappers.agents.sweep.view import BASELINES, Ladder, Summary, View, summary
from async_wrappers.files import write_atomically
from async_wrappers.printing import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#7F7F7F")
LINES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX"
LEVELS = {"random": (0, (6, 2)), "no-op": (0, (1, 1.5))}
MOST_PANELS = 12


def draw_scores(view: View) -> Figure:
    """Draw the score against the view's key, a curve per arm, with the baselines as lines across."""
    panels = view.panels
    figure, places = _make_panels(len(panels), view.x_label, view.metric_label)
    styles = _styles(name for panel in panels for name in panel.curves)
    for panel, axes in zip(panels, places, strict=True):
        for name, curve in panel.curves.items():
            errors = [[score.value - score.low for score in curve], [score.high - score.value for score in curve]]
            xs, values = [score.x for score in curve], [score.value for score in curve]
            axes.errorbar(xs, values, errors, label=name, capsize=3, **styles[name])
        _draw_levels(axes, panel.levels)
        _scale(axes, sorted({score.x for curve in panel.curves.values() for score in curve}))
        axes.set_title(panel.title, fontsize="medium")
    _same_ranges(places, [view.games[panel.title] for panel in panels])
    _put_legend(figure, places, view.statistic_label)
    return figure


def _draw_levels(axes: Axes, levels: Mapping[str, Summary]) -> None:
    """Draw baselines as lines across, with their intervals."""
    for name, level in levels.items():
        line = LEVELS[name.partition(",")[0]]
        axes.axhline(level.value, color="0.25", linestyle=line, linewidth=1.2, label=name)
        if level.low < level.high:
            axes.axhspan(level.low, level.high, color="0.5", alpha=0.15, linewidth=0)


def draw_learning_curves(view: View, metric: str) -> Figure:
    """Draw a metric of the iterations against training frames, a panel per value along the axis.

    The curves without delay stand in the panel of each delay, and in one of their own where no delay has been played.
    """
    rows = [row for row in view.rows if row["iteration"] is not None and row["arm"] not in BASELINES]
    frames = {(row["trial"], row["iteration"]): row["value"] for row in rows if row["metric"] == "frames"}
    # Of each panel, by the curve's name, the series of its trials.
    curves: dict[tuple[str, float], dict[str, dict[str, list[tuple[float, float]]]]] = defaultdict(dict)
    for row in rows:
        if row["metric"] == metric:
            at: Any = frames.get((row["trial"], row["iteration"]), row["iteration"])
            curve = curves[view.title(row), row[view.x]].setdefault(view.own_name(row), defaultdict(list))
            curve[row["trial"]].append((at, row["value"]))
    for title in {view.title(row) for row in rows if view.is_without_delay(row)} & {title for title, x in curves if x}:
        without = curves.pop((title, 0))
        for key in [key for key in curves if key[0] == title]:
            curves[key] = {**without, **curves[key]}
    levels = {panel.title: panel.levels for panel in view.panels} if metric.endswith("_return") else {}
    shown = _spread(sorted(curves))
    x_label, y_label = "training frames" if frames else "iteration", replace(view, metric=metric).metric_label
    figure, places = _make_panels(len(shown), x_label, y_label)
    styles = _styles(name for panel in curves.values() for name in panel)
    for (title, x), axes in zip(shown, places, strict=True):
        for name, trials in curves[title, x].items():
            _draw_band(axes, list(trials.values()), view.statistic, label=name, **{**styles[name], "markersize": 3})
        _draw_levels(axes, levels.get(title, {}))
        axes.set_title(", ".join(filter(None, [title, view.x_in_words(x)])), fontsize="medium")
    _same_ranges(places, [view.games[title] for title, _ in shown])
    seeds = max(len(curve) for panel in curves.values() for curve in panel.values())
    spread = "one seed" if seeds == 1 else f"{view.statistic} of up to {seeds} seeds, bands: 95 % bootstrap interval"
    spread += _FEWER if any(_is_uneven(curve.values()) for panel in curves.values() for curve in panel.values()) else ""
    left_out = f"; {len(shown)} of {len(curves)} panels" if len(shown) < len(curves) else ""
    _put_legend(figure, places, spread + left_out)
    return figure


def draw_runs(
    environments: Mapping[str, Mapping[str, Sequence[RecordedRun]]], metrics: Sequence[str], statistic: str
) -> Figure:
    """Draw metrics of runs against training frames, a panel per environment and metric, and a curve per name.

    Of one run the returns of single episodes are drawn too. Several runs of a name are a curve of the statistic, with
    its 95 % bootstrap interval over the runs, and a thin line for each of them.
    """
    panels = [
        (environment, curves, metric)
        for environment, curves in environments.items()
        for metric in metrics
        if any(metric in line for runs in curves.values() for run in runs for line in run.lines)
    ]
    figure, places = _make_panels(len(panels), "training frames", "")
    styles = _styles(name for _, curves, _ in panels for name in curves)
    every = [runs for _, curves, _ in panels for runs in curves.values()]
    alone, uneven = len({run.directory for runs in every for run in runs}) == 1, False
    for (environment, curves, metric), axes in zip(panels, places, strict=True):
        axes.set_ylabel(fill(IN_WORDS.get(metric, metric.replace("_", " ")), 24), fontsize="small")
        axes.set_title(environment if len(environments) > 1 else "", fontsize="medium")
        for name, runs in curves.items():
            if alone and metric.endswith("_average_return"):
                _draw_episodes(axes, runs[0], metric.partition("_")[0])
            series = [found for run in runs if (found := series_of(run, metric))]
            for each in series if len(runs) > 1 else ():
                single = zip(*each, strict=True)
                axes.plot(*single, color=styles[name]["color"], linewidth=0.6, alpha=0.6, label="_")
            if series:
                label = "mean of an iteration" if alone else name or f"{len(runs)} runs"
                _draw_band(axes, series, statistic, label=label, **{**styles[name], "markersize": 3})
                uneven = uneven or _is_uneven(series)
        axes.margins(x=0.02)
    most = max(map(len, every))
    mean = "interquartile mean" if statistic == "iqm" else "mean"
    runs_in_words = (
        f"{mean} of up to {most} runs, bands: 95 % bootstrap interval, thin: each run{_FEWER if uneven else ''}"
    )
    figure.set_figheight(figure.get_figheight() + 0.12 * len(styles))  # for the legend
    _put_legend(figure, places, "" if alone else "a run for each curve" if most == 1 else runs_in_words)
    return figure


def _draw_episodes(axes: Axes, run: RecordedRun, phase: str) -> None:
    """Draw the return of each episode of a phase: of training where it ended, of evaluation where its iteration did."""
    begin = 0
    for index, line in enumerate(run.lines):
        lengths, returns = (line.get(f"{phase}_episode_{name}", []) for name in ("lengths", "returns"))
        # Episodes of many environments overlap: none has ended after the iteration.
        ends = np.minimum(begin + np.cumsum(lengths), line["frames"]) if phase == "train" else line["frames"]
        begin = line["frames"]
        label = "_" if index else "an episode"
        axes.plot(np.broadcast_to(ends, len(returns)), returns, ".", color="0.7", markersize=3, label=label, zorder=1)


def put_subject(figure: Figure, subject: str) -> Figure:
    """Put a figure's subject, such as ``CartPole-v1, DQNAgent``, above its note; return the figure."""
    if subject:
        figure.suptitle(f"{subject}\n{figure.get_suptitle()}", fontsize="small", color="0.3")
    return figure


def write_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as ``path.png`` and ``path.svg``; as one of them alone where `path` ends like that."""
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        # A directory's name may be the name of a curve.
        text.set_text(printable(text.get_text()))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not `with_suffix`, which would cut off the end of a name with a point in it.
    paths = [path] if path.suffix in PICTURES else [path.with_name(path.name + suffix) for suffix in PICTURES]
    # With a fixed salt, the same figure is the same file.
    with matplotlib.rc_context({"svg.hashsalt": printable(path.stem)}):
        for each in paths:
            about = {"Date": None} if each.suffix == ".svg" else {}
            write_atomically(each, partial(figure.savefig, format=each.suffix[1:], dpi=130, metadata=about))
    return paths


def _make_panels(panels: int, x_label: str, y_label: str) -> tuple[Figure, list[Axes]]:
    """Return a figure with `panels` panels, and the panels; training frames are written as 400k and 2M."""
    # Takes a third of a second to import.
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    columns = min(panels, 3)
    lines = math.ceil(panels / columns)
    width = 6.4 if columns == 1 else 3.6 * columns + 0.6
    figure = Figure(figsize=(width, 0.9 + (3.6 if panels == 1 else 2.7 * lines)), layout="constrained")
    places: list[Axes] = figure.subplots(lines, columns, squeeze=False).flatten().tolist()
    for axes in places[panels:]:
        axes.remove()
    for axes in places[:panels]:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
        if x_label == "training frames":
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    for axes in places[max(0, panels - columns) : panels]:
        axes.set_xlabel(x_label)
    figure.supylabel(y_label, fontsize="medium")
    return figure, places[:panels]


def _styles(names: Any) -> dict[str, dict[str, Any]]:
    looks = zip(dict.fromkeys(names), cycle(COLOURS), cycle(LINES), cycle(MARKERS), strict=False)
    return {
        name: {"color": colour, "linestyle": line, "marker": marker, "markersize": 5, "linewidth": 1.5}
        for name, colour, line, marker in looks
    }


def _scale(axes: Axes, xs: Sequence[float]) -> None:
    """Scale the axis by logarithm if the values span a factor of 4, with ticks at the values of the grid."""
    positive = [x for x in xs if x > 0]
    logarithmic = len(positive) > 1 and xs[0] >= 0 and positive[-1] / positive[0] >= 4
    if logarithmic and xs[0] == 0:
        # Zero has no logarithm; it is drawn to the left of the least value.
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        axes.set_xlim(-0.3 * positive[0], 1.3 * positive[-1])
    elif logarithmic:
        axes.set_xscale("log")
    where = axes.transScale.transform([(x, 0) for x in xs])[:, 0]
    ticks = _apart(dict(zip(xs, where, strict=True)), (max(where) - min(where)) / 16)
    axes.set_xticks([], minor=True)
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks], fontsize="small")


def _apart(where: Mapping[float, float], least: float) -> list[float]:
    """Return the values, in order, whose places are at least `least` apart, so that their labels do not overlap."""
    kept: list[float] = []
    for x, place in where.items():
        if not kept or place - where[kept[-1]] >= least:
            kept.append(x)
    return kept


_FEWER = "; dotted: after the end of some"


def _is_uneven(curves: Iterable[Series]) -> bool:
    """Return whether curves end at different frames."""
    points = together(curves)
    return len(points[-1][1]) < max(len(values) for _, values in points)


def _draw_band(axes: Axes, curves: Sequence[Series], statistic: str, **style: Any) -> None:
    """Draw a statistic of curves with its interval; dotted, and without, where only some of them go on."""
    points = [(x, values, *summary(values, statistic)) for x, values in together(curves)]
    last = max(index for index, point in enumerate(points) if len(point[1]) == max(len(each[1]) for each in points))
    xs, _, means, low, high = zip(*points[: last + 1], strict=True)
    axes.plot(xs, means, **style)
    if len(curves) > 1:
        axes.fill_between(xs, low, high, color=style["color"], alpha=0.15, linewidth=0)
    if last + 1 < len(points):
        xs, _, means, *_ = zip(*points[last:], strict=True)
        axes.plot(xs, means, color=style["color"], linestyle=":", linewidth=1, label="_")


def _put_legend(figure: Figure, places: Sequence[Axes], note: str) -> None:
    """Put one legend under all panels, and above them a note on the meaning of markers and bars."""
    entries: dict[str, Any] = {}
    for axes in places:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    # About nine letters per inch.
    room = figure.get_figwidth() * 9
    columns = max(1, min(len(entries), int(room / (max(map(len, entries)) + 8))))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns, frameon=False)
    figure.suptitle(note, fontsize="small", color="0.3")


def _spread(keys: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return at most MOST_PANELS keys, evenly spread along the axis of each title."""
    titles = list(dict.fromkeys(title for title, _ in keys))
    most = max(2, MOST_PANELS // len(titles))
    shown = []
    for title in titles:
        own = [key for key in keys if key[0] == title]
        last = min(most, len(own)) - 1
        shown += [own[round(index * (len(own) - 1) / max(last, 1))] for index in range(last + 1)]
    return shown


def _same_ranges(places: Sequence[Axes], games: Sequence[str]) -> None:
    """Give the panels of one environment the same axes, so that they can be compared."""
    for game in set(games):
        own = [axes for axes, its in zip(places, games, strict=True) if its == game]
        for limits, set_limits in (("get_xlim", "set_xlim"), ("get_ylim", "set_ylim")):
            low, high = zip(*(getattr(axes, limits)() for axes in own), strict=True)
            for axes in own:
                getattr(axes, set_limits)(min(low), max(high))


# Over games.


def draw_aggregate(view: View, aggregate: Aggregate) -> Figure:
    """Draw the normalised scores' interquartile mean against the view's key, and how probable improvements are."""
    figure, places = _make_panels(2, "", "")
    figure.set_size_inches(11.4, 1.6 + max(3.0, 0.3 * len(aggregate.pairs)))
    means, chances = places
    styles = _styles(way.name for way in aggregate.ways)
    for name, style in styles.items():
        ways = sorted((way for way in aggregate.ways if way.name == name), key=attrgetter("x"))
        errors = [[way.value - way.low for way in ways], [way.high - way.value for way in ways]]
        means.errorbar([way.x for way in ways], [way.value for way in ways], errors, label=name, capsize=3, **style)
    means.axhline(1, color="0.25", linewidth=1.2, label="without delay")
    means.axhline(0, color="0.25", linestyle=LEVELS["random"], linewidth=1.2, label="random")
    _scale(means, sorted({way.x for way in aggregate.ways}))
    means.set_xlabel(view.x_label)
    means.set_ylabel("normalised score, interquartile mean over games", fontsize="small")
    rows = range(len(aggregate.pairs))
    for row, pair in zip(rows, aggregate.pairs, strict=True):
        value, low, high = pair.probability
        look = {"color": styles[pair.name]["color"], "marker": styles[pair.name]["marker"], "capsize": 3}
        chances.errorbar([value], [row], xerr=[[value - low], [high - value]], **look)
    chances.axvline(0.5, color="0.25", linewidth=1.2)
    chances.set_xlim(-0.02, 1.02)
    chances.set_ylim(len(aggregate.pairs) - 0.5, -0.5)
    x = "delay" if view.x_label.startswith("delay") else view.x.rpartition(".")[2]
    labels = [f"{pair.name} > {pair.other}, {x} {pair.x:g}" for pair in aggregate.pairs]
    chances.set_yticks(rows, labels, fontsize="x-small")
    chances.set_xlabel("probability of improvement")
    apart = f"; apart, not above random without delay: {', '.join(aggregate.apart)}" if aggregate.apart else ""
    games = len(aggregate.scales) - len(aggregate.apart)
    _put_legend(figure, [means], f"{games} games, bars: 95 % stratified bootstrap interval over seeds{apart}")
    return figure


# The regret ladder.

# Of a bar, where two delays are 1 apart.
WIDTH = 0.36
# More rungs side by side leave no room for their numbers, which the page's table has.
MOST_NUMBERED = 6
# Label, colour, hatching and place of each step's bar. The hatching is for those who see no colours.
STEPS = (
    ("cost of delay: from none to asynchronous", COLOURS[4], "", -WIDTH / 2),
    ("cost of inaction: from asynchronous to sequential", COLOURS[0], "///", WIDTH / 2),
)


def draw_ladders(view: View, ladders: Sequence[Ladder]) -> Figure:
    """Draw a panel per ladder: two bars for each delay, each from one rung's score to the next one's."""
    figure, places = _make_panels(len(ladders), view.x_label, view.metric_label)
    numbered = min(len(ladders), 3) * max(len(ladder.rungs) for ladder in ladders) <= MOST_NUMBERED
    for ladder, axes in zip(ladders, places, strict=True):
        axes.axhline(ladder.top.value, color="0.2", linewidth=1.2, label="score without delay")
        for place, rung in enumerate(ladder.rungs):
            _draw_step(axes, place, 0, ladder.top.value, rung.delay, numbered)
            _draw_step(axes, place, 1, rung.asynchronous.value, rung.inaction, numbered)
            between = [place - WIDTH, place + WIDTH]
            axes.plot(between, [rung.asynchronous.value] * 2, color="0.2", linewidth=0.8, linestyle=":")
        axes.set_xticks(range(len(ladder.rungs)), [f"{rung.asynchronous.x:g}" for rung in ladder.rungs])
        axes.set_title(ladder.title, fontsize="medium")
        axes.margins(y=0.12)
    scores = [ladder.top for ladder in ladders]
    scores += [score for ladder in ladders for rung in ladder.rungs for score in (rung.asynchronous, rung.sequential)]
    meaning = "differences of {statistic}s of {seeds} seeds, whiskers: 95 % bootstrap interval of the difference"
    _put_legend(figure, places, view.note(meaning, scores))
    return figure


def _draw_step(axes: Axes, place: int, step: int, begin: float, cost: Summary, numbered: bool) -> None:
    label, colour, hatch, shift = STEPS[step]
    # The legend needs one bar of each step.
    look: dict[str, Any] = {"label": "_" if place else label, "color": colour, "hatch": hatch}
    # A higher cost ends lower.
    error = [[cost.high - cost.value], [cost.value - cost.low]]
    whiskers: dict[str, Any] = {"yerr": error, "capsize": 3, "error_kw": {"linewidth": 1.1}}
    axes.bar(place + shift, -cost.value, WIDTH * 0.9, begin, edgecolor="0.1", linewidth=0.8, **look, **whiskers)
    if numbered:
        highest = np.nanmax([begin, begin - cost.value, begin - cost.low])
        at = (place + shift, highest)
        # Without a sign for values that round to 0.
        text = "0" if f"{cost.value:.3g}" in ("0", "-0") else f"{-cost.value:+.3g}"
        axes.annotate(text, at, xytext=(0, 2), textcoords="offset points", ha="center", va="bottom", fontsize="x-small")
