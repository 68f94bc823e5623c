"""A sweep as it goes on: its plan, how far each trial is, and what is left."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_wrappers.agents.experiment.lock import is_in_use
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.sweep.plan import PLAN, SweepPlan, read_plan
from async_wrappers.agents.sweep.trial import FAILURE, RESULT, trial_status
from async_wrappers.agents.sweep.view import SCORES
from async_wrappers.agents.watch.reading import Changed, Problems
from async_wrappers.files import refuse_damage

WAITING, RUNNING, FINISHED, FAILED, STOPPED = "waiting", "running", "finished", "failed", "stopped"


@dataclass(frozen=True)
class TrialNow:
    """A trial of a sweep.

    Attributes:
        name: Of its directory.
        seed: Its number.
        state: ``"waiting"``, ``"running"``, ``"finished"``, ``"failed"``, or ``"stopped"`` where it was cut off.
        done: Iterations that are done.
        score: Its final score, or that of the newest iteration; None before.
        seconds: It took; None before it has ended.
        error: Why it failed; empty otherwise.
    """

    name: str
    seed: int
    state: str
    done: int = 0
    score: float | None = None
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True)
class PointNow:
    """A point of the grid, in words, with its trials in the order of the seeds."""

    name: str
    trials: Sequence[TrialNow]


@dataclass(frozen=True)
class SweepNow:
    """What is known of a sweep.

    Attributes:
        directory: Its ``--base_dir``.
        state: ``"running"``, ``"finished"`` or ``"stopped"``.
        what: What each trial runs, in words.
        points: The grid.
        counts: Of trials, by their state.
        left: Seconds that the rest takes at the pace so far; None where that is not known.
        problems: Sentences on files that could not be read.
    """

    directory: Path
    state: str
    what: str
    points: Sequence[PointNow]
    counts: Mapping[str, int]
    left: float | None
    problems: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.directory.resolve().name

    @property
    def total(self) -> int:
        """The trials of the plan."""
        return sum(self.counts.values())


def is_sweep(directory: Path) -> bool:
    """Return whether a directory is that of a sweep."""
    return (directory / PLAN).is_file()


def read_sweep(directory: Path) -> SweepNow:
    """Return what is known of a sweep.

    Raises:
        ConfigError: Its plan is damaged.
    """
    plan = _plan(directory / PLAN)
    assert plan is not None
    problems, runs = Problems(), is_in_use(directory)
    found: dict[str, list[TrialNow]] = {}
    shown = _shown_keys(plan)
    for trial in plan.trials():
        now = problems.of(_trial, None, directory / "trials" / trial.name, trial.seed_number, runs)
        words = ", ".join(
            [
                *filter(None, [trial.arm]),
                *(f"{shown[key]} {trial.bindings[key]}" for key in shown if key in trial.bindings),
            ]
        )
        found.setdefault(words, []).append(now or TrialNow(trial.name, trial.seed_number, FAILED, error="damaged"))
    trials = [each for point in found.values() for each in point]
    counts = Counter(each.state for each in trials)
    whole = not counts.keys() - {FINISHED, FAILED}
    state = RUNNING if runs else FINISHED if whole else STOPPED
    points = [PointNow(words or "the only point", point) for words, point in found.items()]
    return SweepNow(directory, state, _what(plan), points, counts, _left(trials), tuple(problems))


_plan = Changed(lambda path: read_plan(path.parent))


def _shown_keys(plan: SweepPlan) -> dict[str, str]:
    """Return the keys that differ between points, each with its short name where that is clear."""
    keys = [key for key in plan.keys if len({str(point.bindings.get(key)) for point in plan.points}) > 1]
    short = Counter(key.rpartition(".")[2] for key in keys)
    return {key: name if short[name := key.rpartition(".")[2]] == 1 else key for key in keys}


def _what(plan: SweepPlan) -> str:
    files = [
        value for option, value in zip(plan.arguments[::2], plan.arguments[1::2], strict=False) if "files" in option
    ]
    return ", ".join(files) or plan.function


def _trial(directory: Path, seed: int, runs: bool) -> TrialNow:
    name, status = directory.name, trial_status(directory)
    if status == FINISHED:
        metrics, seconds = _result(directory / RESULT) or ({}, None)
        return TrialNow(name, seed, FINISHED, len(_iterations(directory) or []), _score(metrics), seconds)
    if status == FAILED:
        error, seconds = _failure(directory / FAILURE) or ("", None)
        return TrialNow(name, seed, FAILED, seconds=seconds, error=error)
    lines = _iterations(directory) or []
    means = [line["train_average_return"] for line in lines if "train_average_return" in line]
    begun = (directory / "log.txt").is_file() or bool(lines)
    # A trial that was cut off before has files too, and waits for its turn.
    goes_on = runs and begun and (is_in_use(directory) or _is_young(directory / "log.txt"))
    state = RUNNING if goes_on else STOPPED if begun else WAITING
    return TrialNow(name, seed, state, len(lines), means[-1] if means else None)


def _iterations(directory: Path) -> list[dict[str, Any]] | None:
    return _lines(directory / "metrics" / "iterations.jsonl")


_lines = Changed(lambda path: read_iterations(path.parents[1]))


def _is_young(path: Path) -> bool:
    return path.is_file() and time.time() - path.stat().st_mtime < 60


def _parse_result(path: Path) -> tuple[dict[str, Any], float]:
    with refuse_damage(path, "remove it, and let the sweep run that trial again"):
        facts = json.loads(path.read_text(encoding="utf-8"))
        return dict(facts["metrics"]), float(facts["seconds"])


def _parse_failure(path: Path) -> tuple[str, float]:
    with refuse_damage(path, "remove it, and let the sweep run that trial again"):
        facts = json.loads(path.read_text(encoding="utf-8"))
        return str(facts["error"]), float(facts["seconds"])


_result, _failure = Changed(_parse_result), Changed(_parse_failure)


def _score(metrics: Mapping[str, Any]) -> float | None:
    """Return the metric that `plot` draws; another sweep's first number."""
    known = [metrics[name] for name in SCORES if name in metrics]
    known += [value for name, value in metrics.items() if name != "seconds"]
    numbers = [each[-1] if isinstance(each, list) and each else each for each in known]
    return next((float(each) for each in numbers if isinstance(each, int | float)), None)


def _left(trials: Sequence[TrialNow]) -> float | None:
    """Return the seconds that the rest takes, if each takes as long as those before, and as many run as now."""
    took = [each.seconds for each in trials if each.state == FINISHED and each.seconds is not None]
    rest = [each for each in trials if each.state in (WAITING, RUNNING, STOPPED)]
    if not took or not rest:
        return None
    running = sum(each.state == RUNNING for each in trials)
    half = 0.5 * running  # of those that run, half is done
    return sum(took) / len(took) * (len(rest) - half) / max(running, 1)
