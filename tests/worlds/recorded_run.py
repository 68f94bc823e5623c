"""Directories of runs as train.py and a live run leave them, written by the project's own writers in a moment."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from async_wrappers.agents.experiment.metrics import EpisodeTable, Metrics, write_facts
from async_wrappers.agents.play.play import EpisodeRow

FACTS = {"environment": "Drifting-v0", "agent": "DQNAgent, 9 weights", "delay": "2, noops 1", "device": "cpu, 1 thread"}
EPISODES, LENGTH = 5, 20  # of an iteration's training, and frames of an episode


def write_run(
    directory: Path,
    iterations: int = 2,
    of: int = 4,
    seed: int = 0,
    gamma: float = 0.99,
    report: bool = False,
    **facts: str,
) -> Path:
    """Write a run that has done some of its iterations, each with five episodes of 20 frames, and two evaluations."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.gin").write_text(f"DQNAgent.gamma = {gamma}\nRunner.seed = {seed}\n")
    each = f"{of}, each of {EPISODES * LENGTH} training frames and 2 evaluation episodes"
    write_facts(directory, {**FACTS, "seed": str(seed), "iterations": each, **facts})
    with closing(Metrics(directory)) as metrics, closing(EpisodeTable(directory, {})) as table:
        for number in range(iterations):
            returns = [float(10 * number + seed + episode) for episode in range(EPISODES)]
            frames, begun = EPISODES * LENGTH * (number + 1), EPISODES * number
            for place, score in enumerate(returns):
                episode = begun + place
                played = LENGTH * (episode + 1)
                table.add([EpisodeRow("train", episode, number, score, LENGTH, played, played // 2, played / 50)])
            table.add(
                [EpisodeRow("eval", 2 * number + k, number, 30.0 + k, 9, frames, 9, frames / 50) for k in range(2)]
            )
            line = {
                "iteration": number,
                "train_episode_lengths": [LENGTH] * EPISODES,
                "train_episode_returns": returns,
                "train_average_return": float(np.mean(returns)),
                "train_average_steps_per_second": 50.0,
                "train_rates": {"ActRate": 50.0, "LearntPerLived": 4.0},
                "eval_episode_returns": [30.0, 31.0],
                "eval_average_return": 30.5,
                "frames": frames,
            }
            metrics.iteration(line, {"Time/Act": 0.5, "Time/Loss": 1.0, "Loss": 1 / (number + 1)})
    if report:
        rows = [{"agent": "random", "mean": 1.0, "interval": [0.5, 1.5], "scores": [1.0, 1.0]}]
        (directory / "report.json").write_text(json.dumps(rows))
    return directory


def hold(directory: Path, holder: int | None = None) -> None:
    """Let a directory look as if a process were running in it, this one where none is given."""
    (directory / "lock").write_text(f"{os.getpid() if holder is None else holder} {socket.gethostname()}\n")


def snapshot(over: bool = False, age: float = 0.0, frames: int = 240, fresh: int = 180) -> dict[str, Any]:
    """Return what a live run shows after some frames, half of the last second's with a fresh action."""
    spread = dict.fromkeys(("mean", "std", "p50", "p95", "p99", "max"), 2.5)
    return {
        "unix": time.time() - age,
        "over": over,
        "fps": 60.0,
        "workers": 2,
        "phase": 0,
        "episode": 3,
        "frame": 17,
        "score": 7.0,
        "frames": frames,
        "fresh": fresh,
        "late": 5,
        "paused": 0,
        "episodes": [[2, 100, 6.5]],
        "recent": {
            "frames": 240,
            "fps": 59.9,
            "fresh_share": 0.75,
            "late": 2,
            "lateness_ms": spread,
            "delay_frames": spread,
            "ages": {"2": 100, "3": 80},
            "latency_ms": spread,
        },
        "line": {
            "seconds": 1.0,
            "inferences": [[0, -5.0, 30.0, True], [1, 10.0, 40.0, False]],
            "frames": [[float(16 * place), 2 if place % 2 else None] for place in range(60)],
        },
        "history": [[time.time() - 2, 0.7, 1, 2.4, 1.0], [time.time() - 1, 0.8, 0, None, 0.5]],
    }


def show_live(directory: Path, numbers: dict[str, Any], picture: Any = None, under: str = "live") -> Path:
    """Write a live run's snapshot, and its newest observation."""
    place = directory / under
    place.mkdir(parents=True, exist_ok=True)
    (place / "now.json").write_text(json.dumps(numbers))
    if picture is not None:
        np.save(place / "now.npy", picture)
    return directory


def words_in(html: str, *words: str) -> Sequence[str]:
    """Return the words that a part of a page lacks."""
    return [word for word in words if word not in html]
