"""Draw the figures of a sweep, with a page of the numbers; or the learning curve of a run, or of several as a mean."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from async_wrappers.agents.cli.flags import Parser, UsageError, add_score_flags, usage_errors
from async_wrappers.agents.sweep.aggregate import aggregate_of, why_no_aggregate, write_aggregate
from async_wrappers.agents.sweep.figures import (
    PICTURES,
    draw_aggregate,
    draw_ladders,
    draw_learning_curves,
    draw_runs,
    draw_scores,
    put_subject,
    write_figure,
)
from async_wrappers.agents.sweep.plan import PLAN, read_plan
from async_wrappers.agents.sweep.report import write_report
from async_wrappers.agents.sweep.results import read_rows, read_subject
from async_wrappers.agents.sweep.runs import IN_WORDS, common_directory, curves_of, find_runs, last_values, metrics_of
from async_wrappers.agents.sweep.view import make_view, why_no_ladder

OTHER_PICTURES = (".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".pdf", ".eps", ".ps")


def add_flags(parser: Parser) -> None:
    """Add the flags of ``plot``."""
    parser.add_word("DIR", "directory of a sweep, or of a run; several runs; or a directory that holds runs", many=True)
    add_score_flags(parser)
    parser.add_switch("wins", "draw the share of episodes that were won, not their returns")
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="where the figures of runs go (figures/ in the directory of all), or one file, NAME.png or NAME.svg",
    )
    parser.add_argument("--x", metavar="KEY", help="the key along the axis (the delay)")


def run(options: Namespace) -> None:
    """Write the figures, and the page of a sweep, and print their paths."""
    places = [Path(each) for each in options.dir]
    _refuse_other_pictures(options.output)
    if options.wins and options.metric:
        raise UsageError(f"--wins and --metric exclude each other, got --metric {options.metric}: leave one out")
    if len(places) == 1 and (places[0] / PLAN).is_file():
        if options.output:
            raise UsageError(f"--output is of runs: the figures of the sweep {places[0]} go to {places[0]}/figures")
        _plot_sweep(options, places[0])
    else:
        if options.x:
            raise UsageError(f"--x is of sweeps: runs are drawn against training frames, got --x {options.x}")
        _plot_runs(options, places)


def _refuse_other_pictures(output: str | None) -> None:
    """Refuse a picture's name of another format, which would become a directory's."""
    if output and Path(output).suffix.lower() in OTHER_PICTURES and not Path(output).is_dir():
        raise UsageError(f"--output must be NAME.png, NAME.svg or a directory, got {output}")


def _plot_runs(options: Namespace, places: list[Path]) -> None:
    """Draw the curves of runs, and print the newest value of each."""
    with usage_errors():
        curves = curves_of(runs := find_runs(places))
        metrics = metrics_of(runs, options.metric, options.wins)
    figure = draw_runs(curves, metrics, options.statistic)
    shared = {name: {run.facts.get(name, "") for run in runs} for name in ("environment", "agent", "delay")}
    words = {name: next(iter(facts)).partition(",")[0] for name, facts in shared.items() if len(facts) == 1}
    words["delay"] = f"delay {words['delay']}" if words.get("delay", "none") != "none" else ""
    put_subject(figure, ", ".join(filter(None, words.values())))
    for name, group in curves.items():
        for metric in metrics:
            if (last := last_values(group, metric, options.statistic)) is not None:
                spread = f" [{last.low:.2f}, {last.high:.2f}] over {len(group)} runs" if len(group) > 1 else ""
                print(f"{f'{name}: ' if name else ''}{IN_WORDS.get(metric, metric)}, newest: {last.value:.2f}{spread}")
    into = Path(options.output) if options.output else common_directory(places) / "figures"
    kind = "wins" if options.wins else "learning_curve" if options.metric is None else f"runs_{options.metric}"
    is_file = into.suffix in PICTURES and not into.is_dir()
    for path in write_figure(figure, into if is_file else into / kind):
        print(path)


def _plot_sweep(options: Namespace, base_dir: Path) -> None:
    with usage_errors():
        plan, rows, subject = read_plan(base_dir), read_rows(base_dir), read_subject(base_dir)
        view = make_view(plan, rows, metric=options.metric, statistic=options.statistic, x=options.x)
    measured = list(dict.fromkeys(row["metric"] for row in rows if row["iteration"] is not None))
    if options.wins and "train_wins" not in measured:
        raise UsageError(f"--wins: no episode of {base_dir} says whether it was won (info['won']): leave it out")
    curve = "train_wins" if options.wins else next((metric for metric in measured if metric != "frames"), None)
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
    paths = {name: write_figure(figure, base_dir / "figures" / file) for name, (file, figure) in figures.items()}
    for path in (path for pair in paths.values() for path in pair):
        print(path)
    if aggregate is not None:
        print(write_aggregate(aggregate, base_dir / "aggregate.csv"))
    print(write_report(base_dir, view, {name: svg for name, (_, svg) in paths.items()}, aggregate))
