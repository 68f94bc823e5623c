"""Trials in Python that sweeps of tests run, and the rows of a sweep's table that do not depend on the machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from async_wrappers.agents.sweep.results import read_rows

GRID = {"delay": [1, 8], "agent": ["dqn", "random"]}


def play(point: dict[str, Any], seed: int, directory: Path) -> dict[str, Any]:
    """Count its own starts, and return numbers that depend on point and seed alone."""
    starts = directory / "starts"
    starts.write_text(starts.read_text() + "x" if starts.is_file() else "x")
    return {"score": point["delay"] * 1000.0 + seed % 997, "curve": [1, 2.5]}


def play_but_fail_at_8(point: dict[str, Any], seed: int, directory: Path) -> dict[str, float]:
    if point["delay"] == 8 and not (directory / "mended").is_file():
        print("on my way")
        raise ZeroDivisionError("the game broke")
    return {"score": 1.0}


def play_and_count(point: dict[str, Any], seed: int, directory: Path) -> dict[str, Any]:
    """Make ten steps, kept one by one; go on from those that were made."""
    path, made = directory / "made", 0
    made = len(path.read_text()) if path.is_file() else 0
    for _ in range(made, 10):
        time.sleep(0.004)
        with open(path, "a") as file:
            file.write("x")
    return {"score": float(seed % 997), "steps": float(len(path.read_text()))}


def play_slowly(point: dict[str, Any], seed: int, directory: Path) -> dict[str, float]:
    """Make steps that are kept one by one, and go on from those that were made."""
    path = directory / "made"
    for _ in range(len(path.read_text()) if path.is_file() else 0, 10):
        time.sleep(0.05)
        with open(path, "a") as file:
            file.write("x")
    return {"score": float(seed % 997), "steps": float(len(path.read_text()))}


def facts(base_dir: Path) -> list[dict[str, Any]]:
    """Return the table's rows without wall times, which depend on the machine and not on the seed."""
    return [
        row for row in read_rows(base_dir) if row["metric"] != "seconds" and not row["metric"].endswith("_per_second")
    ]
