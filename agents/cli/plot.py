"""The command ``plot``: figures of sweeps, runs and tables."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from async_wrappers.agents.cli.flags import UsageError, usage_errors
from async_wrappers.agents.experiment.metrics import name_in
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
from async_wrappers.agents.sweep.result_pages import write_report
from async_wrappers.agents.sweep.results import read_frame_rate, read_rows, read_subject
from async_wrappers.agents.sweep.runs import (
    IN_WORDS,
    by_environment,
    common_directory,
    find_runs,
    metrics_of,
    newest_in_words,
)
from async_wrappers.agents.sweep.tables import FRAMES, columns_of, gather, is_sweep, is_table
from async_wrappers.agents.sweep.view import make_view, why_no_ladder, with_interval
from async_wrappers.files import FULL

OTHER_PICTURES = (".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".pdf", ".eps", ".ps")


def run(options: Namespace) -> None:
    """Write the figures, and the page of a sweep, and print their paths."""
    try:
        _run(options)
    except OSError as error:
        if error.filename is None or error.errno in FULL:
            raise
        remedy = "figures of runs go to any place with --output, those of a sweep into it"
        raise UsageError(f"{error.filename} cannot be read or written ({error.strerror}): {remedy}") from None


def _run(options: Namespace) -> None:
    places = [Path(each) for each in options.dir]
    _refuse_other_pictures(options.output)
    if options.wins and options.metric:
        raise UsageError(f"--wins and --metric exclude each other, got --metric {options.metric}: leave one out")
    if len(places) == 1 and (places[0] / PLAN).is_file():
        if options.output:
            raise UsageError(f"--output is of runs: the figures of the sweep {places[0]} go to {places[0]}/figures")
        _plot_sweep(options, places[0])
    elif all(is_sweep(place) or is_table(place) for place in places) and _is_of_scores(options, places):
        _plot_scores(options, places)
    else:
        if options.x:
            raise UsageError(f"--x is of sweeps: runs are drawn against training frames, got --x {options.x}")
        _plot_runs(options, places)


def _refuse_other_pictures(output: str | None) -> None:
    """Refuse a picture's name of another format, which would become a directory's."""
    if output and Path(output).suffix.lower() in OTHER_PICTURES and not Path(output).is_dir():
        raise UsageError(f"--output must be NAME.png, NAME.svg or a directory, got {output}")


def _is_of_scores(options: Namespace, places: list[Path]) -> bool:
    """Return whether sweeps and tables are drawn by their scores against a key, not by their curves."""
    with usage_errors():
        return bool(options.x) or not any(FRAMES in columns_of(place) for place in places if is_table(place))


def _plot_scores(options: Namespace, places: list[Path]) -> None:
    """Draw the scores of several sweeps and tables against one key, and print their points."""
    x = (options.x or "delay").rpartition(".")[2]
    with usage_errors():
        plan, rows = gather(places, x, options.metric)
        view = make_view(plan, rows, statistic=options.statistic, x=x)
    environments = {row["environment"] for row in rows}
    figure = put_subject(draw_scores(view), environments.pop() if len(environments) == 1 else "")
    for panel in view.panels:
        for name, curve in panel.curves.items():
            for score in curve:
                point = ", ".join(filter(None, [panel.title, name, f"{x} {score.x:g}"]))
                print(f"{point}: {with_interval(score.value, score.low, score.high)} over {len(score.scores)}")
    _write(options, places, figure, "score")


def _plot_runs(options: Namespace, places: list[Path]) -> None:
    """Draw the curves of runs, and print the newest value of each."""
    with usage_errors():
        runs = find_runs(places, options.metric)
        environments = by_environment(runs)
        metrics = metrics_of(runs, options.metric, options.wins)
    figure = draw_runs(environments, metrics, options.statistic)
    runs = [run for curves in environments.values() for each in curves.values() for run in each]
    shared = {name: {run.facts.get(name, "") for run in runs} for name in ("environment", "agent", "delay")}
    words = {name: name_in(next(iter(facts))) for name, facts in shared.items() if len(facts) == 1}
    words["delay"] = f"delay {words['delay']}" if words.get("delay", "none") != "none" else ""
    put_subject(figure, ", ".join(filter(None, words.values())))
    several = len(environments) > 1
    curves = [
        (", ".join(filter(None, [environment if several else "", name])), group)
        for environment, curves in environments.items()
        for name, group in curves.items()
    ]
    for name, group in curves:
        for metric in metrics:
            if newest := newest_in_words(group, metric, options.statistic):
                print(f"{f'{name}: ' if name else ''}{IN_WORDS.get(metric, metric)}, newest: {newest}")
    _write(
        options,
        places,
        figure,
        "wins" if options.wins else "learning_curve" if options.metric is None else f"runs_{options.metric}",
    )


def _write(options: Namespace, places: list[Path], figure: Any, kind: str) -> None:
    """Write a figure of several places, and print its paths."""
    folders = [place.parent if is_table(place) else place for place in places]
    into = Path(options.output) if options.output else common_directory(folders) / "figures"
    is_file = into.suffix in PICTURES and not into.is_dir()
    for path in write_figure(figure, into if is_file else into / kind):
        print(path)


def _plot_sweep(options: Namespace, base_dir: Path) -> None:
    with usage_errors():
        plan, rows, subject = read_plan(base_dir), read_rows(base_dir), read_subject(base_dir)
        terms = {"metric": options.metric, "statistic": options.statistic, "x": options.x}
        view = make_view(plan, rows, **terms, frame_rate=read_frame_rate(base_dir))
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
    if len(view.ladders) == 1:  # those of many games are a table of the report
        print("\n".join(view.ladders[0].in_words()))
