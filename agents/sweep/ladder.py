"""The regret ladder of a sweep: what the delay costs where no frame is idle, and what idle frames cost on top of it.

Riemer, Subbaraj, Berseth, Rish, arXiv 2412.14355, Theorem 1: realtime regret has a part from delay and one from
inaction. Here every rung was trained where it plays, so a cost is what remains after learning;
`async_wrappers.analysis.regret` measures one fixed policy on all rungs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agents.experiment.evaluate import STATISTICS, difference_interval
from agents.sweep.view import Score, View

__all__ = ["Cost", "Ladder", "Rung", "make_ladders", "why_no_ladder"]

ASYNCHRONOUS, SEQUENTIAL = "asynchronous", "sequential"


class Cost(NamedTuple):
    """A loss of score, positive where the lower rung does worse, and its 95 % bootstrap interval over trials."""

    value: float
    low: float
    high: float


class Rung(NamedTuple):
    """One delay: its score with an action on every frame, that with one after every delay, and what each step costs."""

    asynchronous: Score
    sequential: Score
    delay: Cost
    inaction: Cost


class Ladder(NamedTuple):
    """All rungs of an agent in a panel, and the score without delay that they start from."""

    title: str
    top: Score
    rungs: list[Rung]


def make_ladders(view: View) -> list[Ladder]:
    """Return the ladders of a sweep that has no delay at all, and a delay in both interactions; else none."""
    return list(_ladders(view)) if view.x_label.startswith("delay") else []


def why_no_ladder(view: View) -> str:
    """Say what a sweep lacks for a ladder, in one line."""
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
