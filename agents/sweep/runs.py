"""Runs of train.py outside sweeps, as curves: runs that differ only in the seed make one curve.

A curve's value is the mean, or the interquartile mean, of its runs at the end of each iteration.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_wrappers.agents.experiment.metrics import read_facts, read_iterations
from async_wrappers.agents.sweep.plan import PLAN
from async_wrappers.agents.sweep.view import METRICS, Summary, summary

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
        facts = {name: fact for name, fact in self.facts.items() if name not in ("seed", "iterations")}
        return (*sorted(facts.items()), *sorted(self.bindings.items()))


def find_runs(places: Iterable[Path]) -> list[RecordedRun]:
    """Return the runs in directories: each is a run's, or holds runs at most three levels below.

    Raises:
        ValueError: A directory is a sweep's, or holds no run that has finished an iteration; or a file is damaged.
    """
    found: dict[Path, RecordedRun] = {}
    for place in places:
        if (place / PLAN).is_file():
            raise ValueError(
                f"{place} is the directory of a sweep: plot it alone, or name its trials, {place}/trials/*"
            )
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
    return list(found.values())


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
    config = directory / "config.gin"
    text = config.read_text(encoding="utf-8-sig", errors="replace") if config.is_file() else ""
    joined = text.replace("\\\n", " ")
    pairs = (line.partition(" = ") for line in joined.splitlines() if " = " in line and not line.startswith("#"))
    bindings = {key.strip(): " ".join(value.split()) for key, _, value in pairs}
    compared = {key: value for key, value in bindings.items() if key not in _NOT_COMPARED}
    return RecordedRun(
        directory, read_facts(directory), compared, [_with_shares(line) for line in read_iterations(directory)]
    )


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
    words = [
        f"delay {run.facts[name]}" if name == "delay" else run.facts[name].partition(",")[0]
        for name in ("environment", "agent", "delay")
        if name in run.facts and len({other.facts.get(name) for other in all_of}) > 1
    ]
    alike = [other for other in all_of if all(other.facts.get(name) == run.facts.get(name) for name in _TOLD)]
    if len(alike) > 1:
        keys = {key for other in alike for key in other.bindings}
        differing = sorted(key for key in keys if len({other.bindings.get(key) for other in alike}) > 1)
        words += [
            f"{key.rpartition('.')[2]} {run.bindings.get(key, 'not bound')}" for key in differing[:_MOST_IN_A_NAME]
        ]
    return ", ".join(words)


_TOLD = ("environment", "agent", "delay")


def last_values(runs: Sequence[RecordedRun], metric: str, statistic: str) -> Summary | None:
    """Return the statistic of the runs' newest values of a metric; None where no run has one."""
    newest = [[line[metric] for line in run.lines if metric in line][-1:] for run in runs]
    values = [value for each in newest for value in each]
    return summary(values, statistic) if values else None


def common_directory(places: Sequence[Path]) -> Path:
    """Return the deepest directory that holds all places; of one place, itself."""
    return places[0] if len(places) == 1 else Path(os.path.commonpath([place.resolve() for place in places]))
