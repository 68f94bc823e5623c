"""The picture of a regret ladder: from the score without delay down by what delay costs, and what inaction costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agents.sweep.figures import COLOURS, make_panels, put_legend
from agents.sweep.ladder import Cost, Ladder
from agents.sweep.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_ladders"]

WIDTH = 0.36
MOST_NUMBERED = 6  # rungs side by side whose numbers can be read; the page's table has them all
STEPS = (  # colour, hatching: told apart without colour
    ("cost of delay: from none to asynchronous", COLOURS[4], "", -WIDTH / 2),
    ("cost of inaction: from asynchronous to sequential", COLOURS[0], "///", WIDTH / 2),
)


def draw_ladders(view: View, ladders: Sequence[Ladder]) -> Figure:
    """Draw a panel per ladder: two bars for each delay, each from one rung's score to the next one's."""
    figure, places = make_panels(len(ladders), view.x_label, view.metric_label)
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
    put_legend(figure, places, _note(view, ladders))
    return figure


def _draw_step(axes: Axes, place: int, step: int, begin: float, cost: Cost, numbered: bool) -> None:
    label, colour, hatch, shift = STEPS[step]
    error = [[cost.high - cost.value], [cost.value - cost.low]]  # a higher cost ends lower
    axes.bar(
        place + shift,
        -cost.value,
        WIDTH * 0.9,
        begin,
        color=colour,
        hatch=hatch,
        edgecolor="0.1",
        linewidth=0.8,
        yerr=error,
        capsize=3,
        error_kw={"linewidth": 1.1},
        label=label if place == 0 else "_",
    )
    if numbered:
        highest = max(begin, begin - cost.value, begin - cost.low)
        text, at = _signed(-cost.value), (place + shift, highest)
        axes.annotate(text, at, xytext=(0, 2), textcoords="offset points", ha="center", va="bottom", fontsize="x-small")


def _signed(value: float) -> str:
    return f"{value:+.3g}" if f"{value:.3g}" not in ("0", "-0") else "0"


def _note(view: View, ladders: Sequence[Ladder]) -> str:
    scores = [ladder.top for ladder in ladders] + [
        score for each in ladders for rung in each.rungs for score in rung[:2]
    ]
    counts = sorted({len(score.scores) for score in scores})
    name = {"mean": "means", "iqm": "interquartile means"}[view.statistic]
    if counts == [1]:
        return "one seed, no interval"
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"differences of {name} of {seeds} seeds, whiskers: 95 % bootstrap interval of the difference"
