"""The regret ladder of a sweep: the cost of delay, and the cost of inaction on top of it, as numbers and as a picture.

Riemer, Subbaraj, Berseth, Rish, arXiv 2412.14355, Theorem 1: realtime regret has a term from delay and a term from
inaction. With S(d, n) for the score with a delay of d frames and n no-ops between two actions, the ladder of a delay d
goes from S(0, 0) down to S(d, 0), the score of asynchronous interaction, and on to S(d, d), that of sequential
interaction:

    cost of delay    = S(0, 0) - S(d, 0)
    cost of inaction = S(d, 0) - S(d, d)

Each rung was trained where it plays, so a cost is what remains after learning. `async_wrappers.analysis.regret`
measures one fixed policy on all rungs instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agents.experiment.evaluate import STATISTICS, difference_interval
from agents.sweep.figures import COLOURS, make_panels, put_legend
from agents.sweep.view import Score, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Cost", "Ladder", "Rung", "draw_ladders", "make_ladders", "why_no_ladder"]

ASYNCHRONOUS, SEQUENTIAL = "asynchronous", "sequential"

# Of a bar, where two delays are 1 apart.
WIDTH = 0.36
# More rungs side by side leave no room for their numbers, which the page's table has.
MOST_NUMBERED = 6
# Label, colour, hatching and place of each step's bar. The hatching is for those who see no colours.
STEPS = (
    ("cost of delay: from none to asynchronous", COLOURS[4], "", -WIDTH / 2),
    ("cost of inaction: from asynchronous to sequential", COLOURS[0], "///", WIDTH / 2),
)


class Cost(NamedTuple):
    """A loss of score, positive where the lower rung does worse, and its 95 % bootstrap interval over trials."""

    value: float
    low: float
    high: float


class Rung(NamedTuple):
    """One delay: the scores of asynchronous and of sequential interaction, and the cost of each step."""

    asynchronous: Score
    sequential: Score
    delay: Cost
    inaction: Cost


class Ladder(NamedTuple):
    """All rungs of an agent in a panel, and the score without delay at the top."""

    title: str
    top: Score
    rungs: list[Rung]


def make_ladders(view: View) -> list[Ladder]:
    """Return the ladders of a sweep with a score without delay and a delay in both interactions; else none."""
    return list(_ladders(view)) if view.x_label.startswith("delay") else []


def why_no_ladder(view: View) -> str:
    """Return the line that is printed for a sweep without ladders."""
    return (
        f"no regret ladder: it needs a score without delay ({view.x} = 0, noops = 0) and, at another delay, both "
        "interactions (noops = 0 and noops = delay)"
    )


def _ladders(view: View) -> Iterator[Ladder]:
    for panel in view.panels:
        for name, curve in panel.curves.items():
            agent, _, last = name.rpartition(", ")
            other = panel.curves.get(name.removesuffix(ASYNCHRONOUS) + SEQUENTIAL, [])
            with_noops = {score.x: score for score in other}
            tops = [score for score in curve if score.x == 0]
            pairs = [(score, with_noops[score.x]) for score in curve if score.x > 0 and score.x in with_noops]
            if last == ASYNCHRONOUS and tops and pairs:
                rungs = [_rung(tops[0], *pair, statistic=view.statistic) for pair in pairs]
                yield Ladder(", ".join(filter(None, [panel.title, agent])), tops[0], rungs)


def _rung(top: Score, asynchronous: Score, sequential: Score, statistic: str) -> Rung:
    def cost(upper: Score, lower: Score) -> Cost:
        low, high = difference_interval(upper.scores, lower.scores, STATISTICS[statistic])
        return Cost(upper.value - lower.value, low, high)

    return Rung(asynchronous, sequential, cost(top, asynchronous), cost(asynchronous, sequential))


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
    # A higher cost ends lower.
    error = [[cost.high - cost.value], [cost.value - cost.low]]
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
