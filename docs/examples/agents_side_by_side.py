"""Runs of several agents and seeds side by side: a table of their final scores, and a figure of their learning curves.

PYTHONPATH=. python docs/examples/agents_side_by_side.py results/cartpole --figure docs/results_cartpole.png

reads the runs in ``results/cartpole/AGENT/SEED``, each made by ``train.py --base_dir``, closing table included.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from async_wrappers.agents.experiment.evaluate import bootstrap_interval
from async_wrappers.agents.experiment.metrics import read_iterations

STYLES = ("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#E69F00", "-"), ("#56B4E9", "--")


class Run(NamedTuple):
    """A finished run: its curve, the mean return of its closing evaluation and of the random agent's, minutes."""

    frames: list[int]
    returns: list[float]
    trained: float
    random: float
    minutes: float


def read_run(directory: Path) -> Run:
    """Read a run's directory."""
    iterations = read_iterations(directory)
    rows = {row["agent"]: row["mean"] for row in json.loads((directory / "report.json").read_text())}
    played = [
        (sum(line[f"{phase}_episode_lengths"]), line[f"{phase}_average_steps_per_second"])
        for line in iterations
        for phase in ("train", "eval")
        if f"{phase}_average_return" in line
    ]
    return Run(
        [line["frames"] for line in iterations],
        [line["train_average_return"] for line in iterations],
        rows["trained"],
        rows["random"],
        sum(frames / rate for frames, rate in played) / 60,
    )


def read_runs(directory: Path) -> dict[str, dict[int, Run]]:
    """Read every finished run below `directory`, by agent and seed."""
    found: dict[str, dict[int, Run]] = {}
    for report in sorted(directory.glob("*/*/report.json")):
        run = report.parent
        found.setdefault(run.parent.name, {})[int(run.name)] = read_run(run)
    if not found:
        raise SystemExit(f"{directory} holds no finished run in AGENT/SEED: train.py --base_dir {directory}/dqn/0")
    return found


def table(runs: Mapping[str, Mapping[int, Run]]) -> str:
    """Return the scores as a table in Markdown, with the 95 % bootstrap interval over seeds."""
    seeds = sorted({seed for of in runs.values() for seed in of})
    heads = ["agent", *(f"seed {seed}" for seed in seeds), "mean", "95 %", "minutes a run"]
    lines = [heads, ["---"] * len(heads)]
    for agent, of in runs.items():
        scores = [of[seed].trained for seed in of]
        low, high = bootstrap_interval(scores)
        each = [f"{of[seed].trained:.1f}" if seed in of else "" for seed in seeds]
        minutes = statistics.median(run.minutes for run in of.values())
        lines.append([agent, *each, f"{statistics.fmean(scores):.1f}", f"[{low:.1f}, {high:.1f}]", f"{minutes:.1f}"])
    randoms = [run.random for of in runs.values() for run in of.values()]
    lines.append(["random", *[""] * len(seeds), f"{statistics.fmean(randoms):.1f}", "", ""])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw(runs: Mapping[str, Mapping[int, Run]], title: str, path: Path) -> None:
    """Draw each agent's mean curve over its seeds, with a band from the least to the greatest."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot(xlabel="training frames", ylabel="return of an episode in training", title=title)
    for (agent, of), (colour, line) in zip(runs.items(), cycle(STYLES), strict=False):
        returns = np.array([run.returns for run in of.values()])
        frames = np.mean([run.frames for run in of.values()], axis=0)
        axes.plot(frames, returns.mean(axis=0), line, color=colour, label=f"{agent}, {len(of)} seeds")
        axes.fill_between(frames, returns.min(axis=0), returns.max(axis=0), color=colour, alpha=0.12, linewidth=0)
    level = statistics.fmean(run.random for of in runs.values() for run in of.values())
    axes.axhline(level, color="0.25", linestyle=(0, (6, 2)), linewidth=1.2, label="random")
    figure.legend(loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main(directory: Path, figure: Path | None = None, title: str = "") -> dict[str, dict[int, Run]]:
    """Print the table, draw the figure, and return the runs."""
    runs = read_runs(directory)
    print(table(runs))
    if figure is not None:
        draw(runs, title or directory.name, figure)
    return runs


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--title", default="")
    arguments = parser.parse_args()
    main(arguments.directory, arguments.figure, arguments.title)
