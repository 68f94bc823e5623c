"""The trials of studies: each is played once, in a process of its own with one thread, and its facts are kept.

What fails is named, and the others are played. All ways of a seed come before the next seed, so that an interrupted run
compares something too.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import head, row

Facts = dict[str, Any]
Ways = Mapping[str, Mapping[int, Facts]]
"""By way and seed."""

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILE = "trial.json"


def load(config: str, bindings: Sequence[str]) -> None:
    """Give gin a file and what is bound on top of it."""
    import gin

    import async_wrappers.agents.play.live
    import async_wrappers.configurables  # noqa: F401 - the gin names

    gin.parse_config_files_and_bindings([config], bindings, print_includes_and_imports=False)


def train_until(runner: Any, seconds: float) -> float:
    """Train all iterations, or as many as end before the process has had so many CPU seconds; return those it had."""
    longest, whole = 0.0, runner.num_iterations
    for iterations in range(1, whole + 1):
        before = time.process_time()
        if iterations > 1 and before + longest > seconds:
            break
        runner.num_iterations = iterations
        runner.run_experiment()
        longest = max(longest, time.process_time() - before)
    return time.process_time()


def keep(directory: Path, facts: Facts) -> None:
    """Write a trial's facts down, whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / f"{FILE}.part"
    part.write_text(json.dumps(facts))
    part.rename(directory / FILE)


def play(module: str, trial: Sequence[str], base_dir: Path, options: Sequence[str]) -> bool:
    """Play a trial in a process of its own; return whether it ended well.

    Args:
        module: Whose command line plays it, given ``--trial``, its words and ``--base_dir``.
        trial: Its words, the last of which is the seed.
        base_dir: The directory that it is told.
        options: Further words of the command line.
    """
    command = [sys.executable, "-m", module, "--base_dir", str(base_dir), *options, "--trial", *trial]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, env=one_thread, check=False, timeout=7200)
    if ended.returncode:
        print(f"{', '.join(trial[:-1])}, seed {trial[-1]}: failed with status {ended.returncode}", flush=True)
    return not ended.returncode


def played(module: str, trial: Sequence[str], base_dir: Path, options: Sequence[str], name: str = "") -> Facts | None:
    """Return a trial's facts, and play it first, in a directory of its own, if it has not been; None where it failed.

    Args:
        module: See `play`.
        trial: See `play`.
        base_dir: Of all trials.
        options: See `play`.
        name: Of its directory; made of its words if empty.
    """
    directory = (base_dir / (name or "_".join(trial).replace(" ", "_").replace("/", "_"))).resolve()
    if not (directory / FILE).is_file():
        shutil.rmtree(directory, ignore_errors=True)  # of a trial that was interrupted
        if not play(module, trial, directory, options):
            return None
    facts: Facts = json.loads((directory / FILE).read_text())
    numbers = {name: value for name, value in facts.items() if isinstance(value, int | float)}
    print(f"{directory.name}: {', '.join(f'{name} {value:,.1f}' for name, value in numbers.items())}", flush=True)
    return facts


def interval_95(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of independent values, by Student's t."""
    from scipy import stats

    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values) - half, statistics.fmean(values) + half


def paired(ways: Ways, one: str, other: str, score: str = "mean") -> list[str]:
    """Return how much more a way scores than another one, seed by seed, in words; nothing of fewer than two seeds."""
    both = sorted(set(ways.get(one, {})) & set(ways.get(other, {})))
    if one == other or len(both) < 2:
        return []
    differences = [ways[one][seed][score] - ways[other][seed][score] for seed in both]
    low, high = interval_95(differences)
    mean, seeds = statistics.fmean(differences), f"({len(both)} seeds)"
    return [f"{one} less {other}: {mean:,.2f}, 95 % interval {low:,.2f} to {high:,.2f} {seeds}."]


def table(
    task: str,
    ways: Ways,
    pairs: Iterable[tuple[str, str]],
    score: str = "mean",
    columns: Sequence[str] = ("steps", "cpu_seconds"),
) -> str:
    """Return a task's scores as a table in Markdown, and paired differences.

    Args:
        task: Its title.
        ways: The trials of each.
        pairs: Of ways, whose differences are told.
        score: Which of the trials' facts.
        columns: Further facts, of which the least and the largest are shown.
    """
    seeds = sorted({seed for trials in ways.values() for seed in trials})
    lines = [head(task, *(f"seed {seed}" for seed in seeds), "mean", "median", *columns)]
    for way, trials in ways.items():
        if trials:
            scores = [facts[score] for facts in trials.values()]
            cells = [f"{trials[seed][score]:,.1f}" if seed in trials else "" for seed in seeds]
            cells += [f"{statistics.fmean(scores):,.1f}", f"{statistics.median(scores):,.1f}"]
            lines.append(row(way, *cells, *(_span([facts[name] for facts in trials.values()]) for name in columns)))
    found = [line for one, other in pairs for line in paired(ways, one, other, score)]
    return "\n".join([*lines, *[f"\n{line}" for line in found]])


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"
