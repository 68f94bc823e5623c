"""A sweep as it goes on: its plan, how far each trial is, and what is left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from async_wrappers.agents.experiment.metrics import ProgressFile
from async_wrappers.agents.sweep.plan import PLAN, SweepPlan, Trial, plan_in
from async_wrappers.agents.sweep.trial import FAILURE, RESULT
from async_wrappers.agents.sweep.view import SCORES
from async_wrappers.agents.watch.checked_values import clean, known, mapping, number, record, text
from async_wrappers.agents.watch.reading import Folder, json_of
from async_wrappers.agents.watch.watched_run import is_held, iterations_of, name_of

WAITING, RUNNING, FINISHED, FAILED, STOPPED = "waiting", "running", "finished", "failed", "stopped"
_MOST_TRIALS, _MOST_CELLS = 10_000, 1_000_000  # of a plan, and bindings of its points


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
        return name_of(self.directory)

    @property
    def total(self) -> int:
        """The trials of the plan."""
        return sum(self.counts.values())


def is_sweep(folder: Folder) -> bool:
    """Return whether a directory is that of a sweep."""
    return folder.has(PLAN)


def read_sweep(folder: Folder) -> SweepNow:
    """Return what is known of a sweep; of one whose plan is refused, the sentence on it."""
    folder.begin()
    runs, plan = is_held(folder), folder.parsed(PLAN, lambda data: _planned(folder.path / PLAN, data), _Planned("", []))
    found: dict[str, list[TrialNow]] = {}
    for name, seed, words in plan.trials:
        found.setdefault(words, []).append(_trial(folder, name, seed, runs))
    trials = [each for point in found.values() for each in point]
    counts = Counter(each.state for each in trials)
    whole = not counts.keys() - {FINISHED, FAILED}
    state = RUNNING if runs else FINISHED if whole and trials else STOPPED
    points = [PointNow(words or "the only point", point) for words, point in found.items()]
    return SweepNow(folder.path, state, plan.what, points, counts, _left(trials), tuple(folder.problems))


class _Planned(NamedTuple):
    """What a sweep runs, and its trials: the name, the number of the seed, and the point in words."""

    what: str
    trials: Sequence[tuple[str, int, str]]


def _planned(path: Path, data: bytes) -> _Planned:
    plan = plan_in(path, data)
    trials, cells = len(plan.points) * plan.seeds, len(plan.points) * len(plan.keys)
    if trials > _MOST_TRIALS or cells > _MOST_CELLS:
        raise ValueError(
            f"{path} has {trials:,} trials, which are more than {_MOST_TRIALS:,} or of too many parameters"
        )
    shown = _shown_keys(plan)
    return _Planned(clean(_what(plan)), [(each.name, each.seed_number, _words(each, shown)) for each in plan.trials()])


def _words(trial: Trial, shown: Mapping[str, str]) -> str:
    """Return the words of a trial's point."""
    bound = (f"{shown[key]} {trial.bindings[key]}" for key in shown if key in trial.bindings)
    return clean(", ".join([*filter(None, [trial.arm]), *bound]))


def _shown_keys(plan: SweepPlan) -> dict[str, str]:
    """Return the keys that tell points apart, each with its short name where that is clear.

    What the arm and the keys before it determine is left out, such as the noops of an arm that is sequential.
    """
    keys: list[str] = []
    for key in plan.keys:
        told = [(point.arm, *(str(point.bindings.get(each)) for each in keys)) for point in plan.points]
        if len({*told}) < len(
            {(*each, str(point.bindings.get(key))) for each, point in zip(told, plan.points, strict=True)}
        ):
            keys.append(key)
    short = Counter(key.rpartition(".")[2] for key in keys)
    return {key: name if short[name := key.rpartition(".")[2]] == 1 else key for key in keys}


def _what(plan: SweepPlan) -> str:
    files = [
        value for option, value in zip(plan.arguments[::2], plan.arguments[1::2], strict=False) if "files" in option
    ]
    return ", ".join(files) or plan.function


def _trial(folder: Folder, name: str, seed: int, runs: bool) -> TrialNow:
    place = f"trials/{name}"
    for state, file, read in ((FINISHED, RESULT, _RESULT), (FAILED, FAILURE, _FAILURE)):
        if folder.has(path := f"{place}/{file}"):
            facts = folder.parsed(path, json_of(read), None, "remove it, and let the sweep run that trial again")
            if facts is None:
                return TrialNow(name, seed, FAILED, error="damaged")
            score, done = _score(facts.get("metrics", {})), len(iterations_of(folder, place))
            return TrialNow(name, seed, state, done, score, facts["seconds"], facts.get("error", ""))
    lines, log = iterations_of(folder, place), folder.written(f"{place}/log.txt")
    means = [line["train_average_return"] for line in lines if "train_average_return" in line]
    begun = log is not None or bool(lines)
    # A trial that was cut off before has files too, and waits for its turn.
    young = log is not None and time.time() - log < 60
    goes_on = runs and begun and (young or folder.has(f"{place}/{ProgressFile.NAME}") or is_held(folder, place))
    state = RUNNING if goes_on else STOPPED if begun else WAITING
    return TrialNow(name, seed, state, len(lines), means[-1] if means else None)


def _metric(value: Any) -> float | None:
    """Return a metric, or its last value; None for what is no finite number."""
    last = value[-1] if isinstance(value, list) and value else value
    return known(last) if type(last) in (int, float) else None


_RESULT = record({"metrics": mapping(text, _metric, 1_000), "seconds": number})
_FAILURE = record({"error": text, "seconds": number})


def _score(metrics: Mapping[str, float]) -> float | None:
    """Return the metric that `plot` draws; another sweep's first number."""
    first = [metrics[name] for name in SCORES if name in metrics]
    return next(iter([*first, *(value for name, value in metrics.items() if name != "seconds")]), None)


def _left(trials: Sequence[TrialNow]) -> float | None:
    """Return the seconds that the rest takes, if each takes as long as those before, and as many run as now."""
    took = [each.seconds for each in trials if each.state == FINISHED and each.seconds is not None]
    rest = [each for each in trials if each.state in (WAITING, RUNNING, STOPPED)]
    if not took or not rest:
        return None
    running = sum(each.state == RUNNING for each in trials)
    half = 0.5 * running  # of those that run, half is done
    return sum(took) / len(took) * (len(rest) - half) / max(running, 1)
