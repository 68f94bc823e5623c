"""Draw the figures of a sweep, and write a page with the figures and the numbers."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from async_wrappers.agents.cli.flags import Parser, add_score_flags, number, usage_errors
from async_wrappers.agents.sweep.aggregate import aggregate_of, why_no_aggregate, write_aggregate
from async_wrappers.agents.sweep.figures import (
    draw_aggregate,
    draw_ladders,
    draw_learning_curves,
    draw_scores,
    draw_workers,
    put_subject,
    write_figure,
)
from async_wrappers.agents.sweep.plan import read_plan
from async_wrappers.agents.sweep.report import write_report
from async_wrappers.agents.sweep.results import read_rows, read_subject
from async_wrappers.agents.sweep.view import make_view, why_no_ladder
from async_wrappers.analysis.planning import workers_against_latency
from async_wrappers.analysis.scaling import GAME_BOY_FPS, PUBLISHED_TIMES, processes_needed, scaling_picture

__all__ = ["add_flags", "run"]

LATENCIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds, of workers against latency


def add_flags(parser: Parser) -> None:
    """Add the flags of ``plot``."""
    parser.add_word("DIR", "directory of a sweep")
    add_score_flags(parser)
    parser.add_argument("--x", metavar="KEY", help="the key along the axis (the delay)")
    fps = "frames per second of workers against latency (60)"
    parser.add_argument("--fps", type=number(1), default=60.0, metavar="FPS", help=fps)


def run(options: Namespace) -> None:
    """Write the figures and the page, and print their paths."""
    base_dir = Path(options.dir)
    with usage_errors():
        plan, rows, subject = read_plan(base_dir), read_rows(base_dir), read_subject(base_dir)
        view = make_view(plan, rows, metric=options.metric, statistic=options.statistic, x=options.x)
    curve = next((row["metric"] for row in rows if row["iteration"] is not None and row["metric"] != "frames"), None)
    figures = {f"Score against {view.x_label}": ("score", put_subject(draw_scores(view), subject))}
    if view.ladders:
        figures["Regret ladder: what delay costs, what inaction costs"] = (
            "ladder",
            put_subject(draw_ladders(view, view.ladders), subject),
        )
    else:
        print(why_no_ladder(view))
    aggregate = aggregate_of(view)
    if aggregate is not None and aggregate.scores:
        figure = put_subject(draw_aggregate(view, aggregate), subject)
        figures["Over games: normalised scores, and the probability of improvement"] = ("aggregate", figure)
    elif len(view.panels) > 1:
        print(why_no_aggregate(view))
    if curve is not None:
        figures["Learning curves"] = ("learning_curves", put_subject(draw_learning_curves(view, curve), subject))
    needs = workers_against_latency(LATENCIES, options.fps, seconds=60)
    points = [(need.latency_s, need.mean_rule, need.enough.workers) for need in needs if need.enough]
    title = f"log-normal latencies, coefficient of variation 0.2, {options.fps:g} frames a second, simulated"
    figures["Workers needed against latency"] = ("workers", draw_workers(points, options.fps, title))
    title = f"{PUBLISHED_TIMES}, cv 0.2, {GAME_BOY_FPS:g} frames a second"
    sizes = scaling_picture(processes_needed(seconds=60), title)
    figures["Workers and learners needed against parameters"] = ("networks", sizes)
    paths = {name: write_figure(figure, base_dir / "figures" / file) for name, (file, figure) in figures.items()}
    for path in (path for pair in paths.values() for path in pair):
        print(path)
    if aggregate is not None:
        print(write_aggregate(aggregate, base_dir / "aggregate.csv"))
    print(write_report(base_dir, view, {name: svg for name, (_, svg) in paths.items()}, aggregate))
