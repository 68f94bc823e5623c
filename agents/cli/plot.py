"""Draw the figures of a sweep, and write a page with the figures and the numbers."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from agents.cli.failures import usage_errors
from agents.cli.flags import Parser, number, one_of
from agents.sweep.figures import draw_learning_curves, draw_scores, draw_workers, write_figure
from agents.sweep.ladder import draw_ladders, make_ladders, why_no_ladder
from agents.sweep.page import write_report
from agents.sweep.plan import read_plan
from agents.sweep.results import read_rows
from agents.sweep.view import make_view
from async_wrappers.analysis.planning import workers_against_latency
from async_wrappers.analysis.scaling import GAME_BOY_FPS, processes_needed
from async_wrappers.analysis.scaling_picture import PUBLISHED_TIMES, scaling_picture

__all__ = ["add_flags", "run"]

LATENCIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds, of workers against latency


def add_flags(parser: Parser) -> None:
    """Add the flags of ``plot``."""
    parser.add_word("DIR", "directory of a sweep")
    parser.add_argument("--metric", metavar="NAME", help="the metric (the final or training return)")
    parser.add_argument(
        "--statistic", type=one_of("mean", "iqm"), default="mean", metavar="mean|iqm", help="over seeds (mean)"
    )
    parser.add_argument("--x", metavar="KEY", help="the key along the axis (the delay)")
    parser.add_argument(
        "--fps", type=number(1), default=60.0, metavar="FPS", help="frames per second of workers against latency (60)"
    )


def run(options: Namespace) -> None:
    """Write the figures and the page, and print their paths."""
    base_dir = Path(options.dir)
    with usage_errors():
        plan, rows = read_plan(base_dir), read_rows(base_dir)
        view = make_view(plan, rows, metric=options.metric, statistic=options.statistic, x=options.x)
    curve = next((row["metric"] for row in rows if row["iteration"] is not None and row["metric"] != "frames"), None)
    figures = {f"Score against {view.x_label}": ("score", draw_scores(view))}
    ladders = make_ladders(view)
    if ladders:
        figures["Regret ladder: what delay costs, what inaction costs"] = ("ladder", draw_ladders(view, ladders))
    else:
        print(why_no_ladder(view))
    if curve is not None:
        figures["Learning curves"] = ("learning_curves", draw_learning_curves(view, curve))
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
    print(write_report(base_dir, view, {name: svg for name, (_, svg) in paths.items()}))
