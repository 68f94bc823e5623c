"""Runs as curves, of train.py, of a sweep's trials and of tables: runs that differ only in the seed make one curve.

A curve's value is the mean, or the interquartile mean, of its runs after as many frames.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from async_wrappers.agents.experiment.metrics import FRAME_RATE, name_in, read_facts, read_iterations
from async_wrappers.agents.sweep.grid import plain
from async_wrappers.agents.sweep.plan import read_plan
from async_wrappers.agents.sweep.results import rows_of
from async_wrappers.agents.sweep.tables import (
    FRAMES,
    RETURN,
    delay_fact,
    is_sweep,
    is_table,
    refuse_missing,
    runs_in,
)
from async_wrappers.agents.sweep.view import METRICS, summary, with_interval

RETURNS = ("train_average_return", "eval_average_return")
WINS = ("train_win_share", "eval_win_share")
IN_WORDS = {
    **METRICS,
    "train_win_share": "share of training episodes won",
    "eval_win_share": "share of evaluation episodes won",
}
_DEPTH = 3  # levels of directories below a named one in which runs are looked for
# Runs of one curve may differ in these: their progress, and settings without effect on training.
_NOT_COMPARED = ("Runner.seed", "Runner.num_iterations", "Runner.report_episodes", "Runner.threads")
_MOST_IN_A_NAME = 3  # bindings


@dataclass(frozen=True)
class RecordedRun:
    """A run: its directory, its facts, its bindings, and the statistics of its iterations."""

    directory: Path
    facts: Mapping[str, str]
    bindings: Mapping[str, str]
    lines: Sequence[Mapping[str, Any]]

    @property
    def kind(self) -> tuple[Any, ...]:
        """A key that is equal for the runs of one curve."""
        facts = {name: fact for name, fact in self.facts.items() if name not in ("seed", "iterations", FRAME_RATE)}
        if "," not in facts.get("precision", ","):
            del facts["precision"]  # it was bound, so a binding says it; runs of before have no such fact
        return (*sorted(facts.items()), *sorted(self.bindings.items()))


def find_runs(places: Iterable[Path], metric: str | None = None) -> list[RecordedRun]:
    """Return the runs in places: each is a run's directory, a sweep's, or a table, or holds runs three levels below.

    A table's returns, and those of a sweep of another trainer, are drawn beside the evaluations of the other runs, or
    beside their training where they have none, or where `metric` is the return in training.

    Args:
        places: Directories, and CSVs (`async_wrappers.agents.sweep.tables`).
        metric: The metric to draw, a column of a table; None for returns.

    Raises:
        ValueError: A place is not there, a directory holds no run that has finished an iteration, a table lacks a
            column, or a file is damaged.
    """
    found: dict[Path, RecordedRun] = {}
    for place in places:
        if is_table(place) or is_sweep(place):
            others = _of_table(place, metric) if is_table(place) else _of_sweep(place)
            found |= {run.directory.resolve(): run for run in others}
            continue
        refuse_missing(place)
        directories = [place] if _holds_run(place) else sorted(_runs_below(place, _DEPTH))
        if not directories:
            raise ValueError(
                f"{place} holds no sweep and no run with an iteration (no metrics/iterations.jsonl): name a --base_dir "
                "of train.py, several of them, or a directory that holds them"
            )
        for directory in directories:
            found.setdefault(directory.resolve(), _read(directory))
    empty = [str(run.directory) for run in found.values() if not run.lines]
    if empty:
        raise ValueError(f"{empty[0]} has no finished iteration yet: let the run go on, or leave it out")
    runs = list(found.values())
    # The returns of others are evaluations; they are drawn beside training where these runs have no evaluation.
    known = {name for run in runs for line in run.lines for name in line}
    name = metric if metric in RETURNS else next((each for each in reversed(RETURNS) if each in known), RETURNS[1])
    return [_returning(run, name) for run in runs]


def _returning(run: RecordedRun, metric: str) -> RecordedRun:
    """Return a run with its plain returns under the name of the others' returns."""
    return replace(run, lines=[{metric: line[RETURN], **line} if RETURN in line else line for line in run.lines])


def _of_table(path: Path, metric: str | None) -> list[RecordedRun]:
    return [RecordedRun(path / str(k), facts, {}, lines) for k, (facts, lines) in enumerate(runs_in(path, metric))]


def _of_sweep(place: Path) -> list[RecordedRun]:
    """Return the trials of a sweep, running ones too.

    Those of another trainer have the curves that they returned as lists, or the iterations that they have added. A key
    ``environment`` of the grid names their environment.
    """
    runs = []
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of(place):
        if row["iteration"] is not None:
            rows[row["trial"]].append(row)
    for trial in read_plan(place).trials():
        directory = place / "trials" / trial.name
        if _holds_run(directory) and read_facts(directory):
            runs.append(_read(directory))
        elif own := rows[trial.name] or _added(directory):
            lines: dict[int, dict[str, Any]] = defaultdict(dict)
            for row in own:
                lines[row["iteration"]] |= {"iteration": row["iteration"], row["metric"]: row["value"]}
            if not all(FRAMES in line for line in lines.values()):
                raise ValueError(f"{place} has no frames beside its curves: let its trials return a list of them")
            about = {"agent": trial.arm or place.resolve().name, "seed": f"{trial.seed_number}"}
            point = {key: plain(value) for key, value in trial.bindings.items()}
            about |= {"environment": str(point["environment"])} if "environment" in point else {}
            bindings = {key: str(value) for key, value in point.items()}
            runs.append(RecordedRun(directory, about | delay_fact(point), bindings, list(lines.values())))
    if not runs:
        raise ValueError(f"{place} has no learning curve: let its trials return lists, or leave it out")
    return runs


def _added(directory: Path) -> list[dict[str, Any]]:
    """Return the iterations that a trial of another trainer has added so far, as rows."""
    lines = read_iterations(directory)
    return [{"iteration": line["iteration"], "metric": name, "value": line[name]} for line in lines for name in line]


def _holds_run(place: Path) -> bool:
    return (place / "metrics" / "iterations.jsonl").is_file()


def _runs_below(place: Path, depth: int) -> Iterable[Path]:
    if not depth or not place.is_dir():
        return
    for each in place.iterdir():
        if not each.is_dir():
            continue
        if _holds_run(each):
            yield each
        else:
            yield from _runs_below(each, depth - 1)


def _read(directory: Path) -> RecordedRun:
    return recorded(directory, read_facts(directory), read_bindings(directory), read_iterations(directory))


def read_bindings(directory: Path) -> dict[str, str]:
    """Return the bindings of a run's configuration, in words; empty where it has none yet."""
    config = directory / "config.gin"
    return bindings_in(config.read_bytes()) if config.is_file() else {}


def bindings_in(config: bytes) -> dict[str, str]:
    """Return the bindings of a configuration that is given as the bytes of its file."""
    joined = config.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\\\n", " ")
    pairs = (line.partition(" = ") for line in joined.splitlines() if " = " in line and not line.startswith("#"))
    return {key.strip(): " ".join(value.split()) for key, _, value in pairs}


def recorded(
    directory: Path, facts: Mapping[str, str], bindings: Mapping[str, str], lines: Iterable[Mapping[str, Any]]
) -> RecordedRun:
    """Return a run of what was read of it; the bindings are all that it has."""
    compared = {key: value for key, value in bindings.items() if key not in _NOT_COMPARED}
    return RecordedRun(directory, facts, compared, [_with_shares(line) for line in lines])


def _with_shares(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return an iteration's line with the share of its episodes that were won, where wins are counted."""
    shares = {}
    for phase in ("train", "eval"):
        episodes = len(line.get(f"{phase}_episode_lengths", ()))
        if f"{phase}_wins" in line and episodes:
            shares[f"{phase}_win_share"] = line[f"{phase}_wins"] / episodes
    return {**line, **shares}


def metrics_of(runs: Sequence[RecordedRun], wanted: str | None, wins: bool) -> list[str]:
    """Return the metrics to draw, a panel for each: the returns, the shares won, or a wanted one.

    Raises:
        ValueError: No run has it.
    """
    known = sorted({name for run in runs for line in run.lines for name, value in line.items() if _is_number(value)})
    if wanted is not None:
        if wanted not in known:
            raise ValueError(f"metric must be one of {', '.join(known)}, got {wanted!r}")
        return [wanted]
    found = [name for name in (WINS if wins else RETURNS) if name in known]
    if not found and wins:
        raise ValueError(
            f"--wins: no episode of {runs[0].directory} says whether it was won (info['won']): draw returns, without it"
        )
    if not found:
        raise ValueError(f"{runs[0].directory} has no return yet: no episode has ended; let the run go on")
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def curves_of(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Return the runs of each curve by its name, which states its difference from the others."""
    kinds: dict[tuple[Any, ...], list[RecordedRun]] = defaultdict(list)
    for run in runs:
        kinds[run.kind].append(run)
    groups = list(kinds.values())
    if len(groups) == 1:
        return {"" if len(runs) > 1 else groups[0][0].directory.name: groups[0]}
    named: dict[str, list[RecordedRun]] = {}
    for group in groups:
        name = _name(group[0], [other[0] for other in groups])
        # Two curves with equal words are named by their directories.
        named[name if name and name not in named else f"{name} ({group[0].directory})".strip()] = group
    return named


def _name(run: RecordedRun, all_of: Sequence[RecordedRun]) -> str:
    """Return a run's difference from the others: words of its facts, else its bindings."""
    told = _told(run)
    others = [_told(other) for other in all_of]
    words = [told[name] for name in told if len({other.get(name) for other in others}) > 1]
    alike = [other for other, its in zip(all_of, others, strict=True) if its == told]
    if len(alike) > 1:
        keys = {key for other in alike for key in other.bindings}
        differing = sorted(key for key in keys if len({other.bindings.get(key) for other in alike}) > 1)
        words += [
            f"{key.rpartition('.')[2]} {run.bindings.get(key, 'not bound')}" for key in differing[:_MOST_IN_A_NAME]
        ]
    return ", ".join(words)


def _told(run: RecordedRun) -> dict[str, str]:
    """Return a run's facts in the words of a name, without the numbers of environments and weights."""
    facts = {name: name_in(run.facts[name]) for name in ("environment", "agent", "arm") if name in run.facts}
    delay = run.facts.get("delay")
    return facts | ({} if delay is None else {"delay": "no delay" if delay == "none" else f"delay {delay}"})


def by_environment(runs: Sequence[RecordedRun]) -> dict[str, dict[str, list[RecordedRun]]]:
    """Return the curves of each environment; a run that does not say its own is of the only one that is known."""
    plain = [name_in(run.facts.get("environment", "")) for run in runs]
    known = list(dict.fromkeys(filter(None, plain)))
    if len(known) == 1:
        plain = known * len(runs)
    runs = [
        replace(run, facts={**run.facts, "environment": name}) if name else run
        for run, name in zip(runs, plain, strict=True)
    ]
    if len(known) < 2:
        return {"".join(known): curves_of(runs)}
    found: dict[str, dict[str, list[RecordedRun]]] = {}
    for name in [*known, ""]:
        if own := [run for run, its in zip(runs, plain, strict=True) if its == name]:
            curves = curves_of(own)
            alone = {name_in(own[0].facts.get("agent", "")): own}
            found[name or "unknown environment"] = alone if len(curves) == 1 else curves
    return found


Series = Sequence[tuple[float, float]]
"""A curve: frames and value of each point, in order."""


def series_of(run: RecordedRun, metric: str) -> Series:
    """Return a run's curve of a metric."""
    return [(line[FRAMES], line[metric]) for line in run.lines if metric in line]


def together(curves: Iterable[Series]) -> list[tuple[float, list[float]]]:
    """Return the values of several curves at the same frames, those of the one that goes on for longest.

    Between two of its points a curve is taken as straight. It has no value more than half a step before its first point
    or after its last: where curves end at different frames, the last values are of fewer curves.
    """
    found = [np.array(curve, np.float64) for curve in curves if len(curve)]
    if not found:
        return []
    longest = max(found, key=lambda curve: (curve[-1, 0], len(curve)))
    values: list[list[float]] = [[] for _ in longest]
    for curve in found:
        first, last = curve[0, 0], curve[-1, 0]
        half = (last - first) / (len(curve) - 1) / 2 if len(curve) > 1 else last / 2
        for into, x, value in zip(values, longest[:, 0], np.interp(longest[:, 0], *curve.T), strict=True):
            if first - half <= x <= last + half:
                into.append(float(value))
    return [(float(x), each) for x, each in zip(longest[:, 0], values, strict=True)]


def newest_in_words(runs: Sequence[RecordedRun], metric: str, statistic: str) -> str:
    """Return the statistic of the runs' newest values of a metric; an empty text where no run has one.

    Where runs end at different frames it is given for the last frame of all, and for the last one that any has reached.
    """
    points = together(series_of(run, metric) for run in runs)
    if not points:
        return ""
    most = max(len(values) for _, values in points)
    ends = {len(values): (x, values) for x, values in points if len(values) in (most, len(points[-1][1]))}
    if len(ends) == 1:
        return with_interval(*summary(points[-1][1], statistic)) + (f" over {most} runs" if len(runs) > 1 else "")
    return ", ".join(
        f"{with_interval(*summary(values, statistic))} at {x:,.0f} frames ({len(values)} of {len(runs)} runs)"
        for x, values in reversed(ends.values())
    )


def common_directory(places: Sequence[Path]) -> Path:
    """Return the deepest directory that holds all places; of one place, itself."""
    return places[0] if len(places) == 1 else Path(os.path.commonpath([place.resolve() for place in places]))
