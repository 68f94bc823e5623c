"""A sweep's directory with scores that were made up, to look at."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from async_wrappers.agents.sweep.grid import make_points, parse_axis, plain
from async_wrappers.agents.sweep.plan import SweepPlan, read_plan, write_plan
from async_wrappers.agents.sweep.results import read_rows, write_manifest, write_results
from async_wrappers.agents.sweep.view import View, make_view

D, N = "RealtimeDelay.delay", "RealtimeDelay.noops"
BOTH = (f"{D} = 1, 8, 70", f"{N} = 0, {D}")
# The baselines of the runs' closing tables, as a view names them.
ALL_TRIALS = ["random, over all trials", "no-op, over all trials"]


def a_score(point: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return scores that fall with the delay, faster where noops do, and rise over iterations."""
    delay, noops = point.get(D, 0), point.get(N, 0)
    best = 100 * math.exp(-delay / 300 - noops / 40) + 7 * seed
    curve = [best * (1 - math.exp(-(n + 1) / 3)) for n in range(10)]
    return {
        "frames": [1000.0 * (n + 1) for n in range(10)],
        "train_average_return": curve,
        "final_return": best,
        "random_return": 3.0 + seed,
        "noop_return": -2.0,
    }


def made_up_sweep(
    base_dir: Path,
    grid: Sequence[str] = BOTH,
    arms: Mapping[str, Sequence[str]] | None = None,
    seeds: int = 3,
    score: Callable[[Mapping[str, Any], int], Mapping[str, Any]] = a_score,
) -> Path:
    """Write a finished sweep and return its directory."""
    base_dir.mkdir(parents=True, exist_ok=True)
    axes = [key for text in grid for key in parse_axis(text).keys]
    arguments = ["--gin_files", "configs/dqn/cartpole.gin"]
    plan = SweepPlan(make_points(grid, arms), axes, seeds, arguments, "train.py")
    write_plan(plan, base_dir)
    for trial in plan.trials():
        directory = base_dir / "trials" / trial.name
        directory.mkdir(parents=True)
        point = {"arm": trial.arm, **{key: plain(value) for key, value in trial.bindings.items()}}
        facts = {"metrics": score(point, trial.seed_number), "seconds": 12.0}
        (directory / "result.json").write_text(json.dumps(facts))
    write_manifest(base_dir, jobs=1)
    write_results(base_dir, plan)
    return base_dir


def view(base_dir: Path, **arguments: Any) -> View:
    """Return a view of a sweep."""
    return make_view(read_plan(base_dir), read_rows(base_dir), **arguments)
