"""Sweeps: one trial per point of a grid and seed, on every core; interrupted at will, and begun again where it was.

``base_dir/sweep.json`` says what the sweep is, ``base_dir/trials/NNNN`` is the directory of one trial. A trial is
finished when its result is on the disk, and then never run again; one that was cut off runs again in its own directory.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any

import cloudpickle
import gin
from tqdm import tqdm

from agents.experiment.config import ConfigError
from agents.experiment.grid import Point
from agents.experiment.pool import alone_in, run_pool
from agents.experiment.results import write_manifest, write_results
from agents.experiment.sweep_plan import SweepPlan, is_continued, write_plan
from agents.experiment.trial import FAILURE, RESULT, Trial, TrialFunction

__all__ = ["Sweep", "estimated_seconds", "run_sweep", "state", "sweep"]


@gin.configurable(module="agents")
@dataclass(frozen=True)
class Sweep:
    """What a gin file says of the sweep that it is for.

    Args:
        grid: Axes, such as ``["RealtimeDelay.delay = 1, 8", "RealtimeDelay.noops = 0, RealtimeDelay.delay"]``.
        arms: By name, axes such as ``["create_agent.agent_name = 'random'"]``, which win over the grid's.
        exclude: Groups of axes; points that have a listed value of each axis of a group are left out.
        seeds: Seeds per point.
        trial_seconds: How long one trial takes, for the estimate before the first has ended; None if not known.
    """

    grid: Sequence[str] = ()
    arms: Mapping[str, Sequence[str]] | None = None
    exclude: Sequence[Sequence[str]] = ()
    seeds: int = 3
    trial_seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is not a count or a text."""
        if not isinstance(self.seeds, int) or isinstance(self.seeds, bool) or self.seeds < 1:
            raise ConfigError(f"Sweep.seeds must be a whole number >= 1, got {self.seeds!r}")
        if isinstance(self.grid, str) or not all(isinstance(text, str) for text in self.grid):
            raise ConfigError(f"Sweep.grid must be a list of texts, got {self.grid!r}")


def sweep(
    trial: TrialFunction,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    seeds: int,
    base_dir: str | Path,
    *,
    jobs: int = 1,
    retry_failed: bool = False,
) -> Path:
    """Run a trial of one's own over a grid, each in a process of its own, and return the table's path.

    Interrupted, the same call goes on: finished trials are kept, the others run again, in the directory that they had.

    Args:
        trial: ``trial(point, seed, directory)`` returns metrics by name: a number, or a list with one per iteration. It
            must pickle (cloudpickle), and may keep what it needs to resume in `directory`.
        grid: Values by key, combined in all ways; or the points themselves, as mappings of the same keys.
        seeds: Seeds per point; what the trial is given is derived from (point, number of the seed).
        base_dir: Where all of it goes.
        jobs: Trials at a time, on one thread each.
        retry_failed: Whether trials that failed before are run again.

    Raises:
        ValueError: An empty grid, a value that is not plain data, or another sweep's directory.
    """
    points = _points_of(grid)
    function = f"{getattr(trial, '__module__', '')}.{getattr(trial, '__qualname__', type(trial).__qualname__)}"
    plan = SweepPlan(points, list(points[0].bindings), Sweep(seeds=seeds).seeds, [], function)
    return run_sweep(plan, trial, Path(base_dir), jobs=jobs, retry_failed=retry_failed)


def run_sweep(
    plan: SweepPlan,
    trial: TrialFunction,
    base_dir: Path,
    *,
    jobs: int = 1,
    retry_failed: bool = False,
    trial_seconds: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Run what is left of a sweep, and return the path of its table.

    Args:
        plan: What the sweep is.
        trial: What each trial runs.
        base_dir: Where all of it goes.
        jobs: Trials at a time.
        retry_failed: Whether trials that failed before are run again.
        trial_seconds: How long one trial may take, while none has ended.
        check: Called before a new sweep writes anything; may raise.

    Raises:
        ValueError: The directory holds another sweep, or another process is sweeping there.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be >= 1, got {jobs}")
    if not is_continued(plan, base_dir):
        check()
    with alone_in(base_dir) as lock:
        write_plan(plan, base_dir)
        write_manifest(base_dir, jobs)
        states = {each.name: state(base_dir / "trials" / each.name) for each in plan.trials()}
        left = [
            each
            for each in plan.trials()
            if states[each.name] == "waiting" or (retry_failed and states[each.name] == "failed")
        ]
        print(_outlook(plan, base_dir, len(left), jobs, trial_seconds), flush=True)
        try:
            _run(plan, trial, left, base_dir, jobs, lock)
        finally:
            table = write_results(base_dir, plan)
    return table


def _run(
    plan: SweepPlan, trial: TrialFunction, left: Sequence[Trial], base_dir: Path, jobs: int, lock: int | None
) -> None:
    payloads: dict[Path, bytes] = {}
    for each in left:
        directory = base_dir / "trials" / each.name
        directory.mkdir(parents=True, exist_ok=True)
        payloads[directory] = cloudpickle.dumps((trial, each.bindings, each.seed, directory))
    with _Board(plan, left, base_dir) as board:
        run_pool(payloads, jobs, lock, board.change)


class _Board:
    """What is told while trials run: a bar with the counts, and a line for each that ends."""

    def __init__(self, plan: SweepPlan, left: Sequence[Trial], base_dir: Path) -> None:
        total = len(plan.trials())
        self._trials = {trial.name: trial for trial in left}
        self._counts: Counter[str] = Counter(
            state(base_dir / "trials" / trial.name) for trial in plan.trials() if trial.name not in self._trials
        )
        self._lock = Lock()
        self._bar = tqdm(total=total, initial=total - len(left), unit="trial", desc="sweep", disable=None)

    def __enter__(self) -> _Board:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def change(self, directory: Path, to: str) -> None:
        """Take note that a trial runs, or has ended."""
        with self._lock:
            self._counts[to] += 1
            if to != "running":
                self._counts["running"] -= 1
                self._bar.update()
                tqdm.write(self._line(directory, to), file=sys.stdout)
            counts = ", ".join(f"{self._counts[name]} {name}" for name in ("finished", "running", "failed"))
            self._bar.set_postfix_str(counts)

    def _line(self, directory: Path, to: str) -> str:
        trial = self._trials[directory.name]
        path = directory / (RESULT if to == "finished" else FAILURE)
        unknown = {"error": "which could not be recorded", "seconds": 0.0}
        facts = json.loads(path.read_text()) if path.is_file() else unknown
        what = ", ".join([*filter(None, [trial.arm]), *(f"{key} = {value}" for key, value in trial.bindings.items())])
        error = f": {facts['error']} (see {directory})" if to == "failed" else ""
        return f"trial {trial.name} {to} after {facts['seconds']:.0f} s ({what}, seed {trial.seed_number}){error}"


def state(directory: Path) -> str:
    """Return ``"finished"``, ``"failed"`` or ``"waiting"``."""
    if (directory / RESULT).is_file():
        return "finished"
    return "failed" if (directory / FAILURE).is_file() else "waiting"


def estimated_seconds(base_dir: Path, trials: int, jobs: int, trial_seconds: float | None) -> float | None:
    """Return how long `trials` more will take: by those that have finished, else by `trial_seconds`, if known."""
    done = [json.loads(path.read_text())["seconds"] for path in (base_dir / "trials").glob(f"*/{RESULT}")]
    each = sum(done) / len(done) if done else trial_seconds
    return None if each is None else each * trials / min(jobs, max(trials, 1))


def _outlook(plan: SweepPlan, base_dir: Path, left: int, jobs: int, trial_seconds: float | None) -> str:
    """Say what is going to happen, before it does."""
    total = plan.seeds * len(plan.points)
    estimate = estimated_seconds(base_dir, left, jobs, trial_seconds)
    when = "" if estimate is None or not left else f", about {_duration(estimate)}"
    return f"{total} trials ({len(plan.points)} points x {plan.seeds} seeds), {left} to run, {jobs} at a time{when}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _points_of(grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> list[Point]:
    if isinstance(grid, Mapping):
        for key, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise ConfigError(f"grid[{key!r}] must be a list of values, got {values!r}")
        chosen = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())] if grid else []
    else:
        chosen = [dict(point) for point in grid]
    if not chosen or not chosen[0]:
        raise ConfigError("grid: it is empty: give values for at least one key")
    for point in chosen:
        if point.keys() != chosen[0].keys():
            raise ConfigError(f"grid: all points must have the keys {', '.join(chosen[0])}, got {', '.join(point)}")
        for key, value in point.items():
            _check_plain(key, value)
    return [Point("", point) for point in chosen]


def _check_plain(key: str, value: Any) -> None:
    try:
        same = json.loads(json.dumps(value)) == value
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ConfigError(f"grid[{key!r}] must hold numbers, texts, truth values, None or lists of them, got {value!r}")
