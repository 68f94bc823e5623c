"""The tables of benchmarks/studies/continuous.py: rows are kept, and figures are right."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from benchmarks.studies import continuous
from benchmarks.studies.continuous import append_row, of_ways, read_rows, row_of, run_missing
from benchmarks.studies.trials import Facts, table


def row(task: str, way: str, seed: int, mean: float) -> Facts:
    return row_of(task, way, seed, [mean - 1, mean + 1], 100, 2.0, "torch 2")


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    path, rows = tmp_path / "new" / "scores.csv", [row("walk", "ours", 0, 5.0), row("walk", "of, sb3", 1, -7.5)]
    assert read_rows(path) == []
    append_row(path, rows[0])
    append_row(path, {**rows[1], "curve": "1.0 2.0"})
    assert read_rows(path) == [{**rows[0], "curve": ""}, {**rows[1], "curve": "1.0 2.0"}]
    found = of_ways(read_rows(path), "walk", ("ours", "of, sb3"))
    assert found["of, sb3"][1]["mean"] == -7.5 and set(found["ours"]) == {0}


def test_a_trial_is_played_once_and_one_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        task, way, seed = command[-3:]
        asked.append(int(seed))
        if seed == "1":
            return subprocess.CompletedProcess(command, 3)
        append_row(tmp_path / "scores.csv", row(task, way, int(seed), 10.0))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    for _ in range(2):
        run_missing([("walk", "ours", seed) for seed in range(3)], tmp_path, [])
    assert asked == [0, 1, 2, 1]
    assert "walk, ours, seed 1: failed with status 3" in capsys.readouterr().out
    assert [each["seed"] for each in read_rows(tmp_path / "scores.csv")] == [0, 2]


def test_a_table_has_the_means_and_the_paired_differences() -> None:
    rows = [row("walk", "ours", seed, mean) for seed, mean in enumerate((10.0, 20.0, 30.0))]
    rows += [row("walk", "sb3", seed, mean) for seed, mean in enumerate((8.0, 17.0))] + [row("run", "sb3", 2, 99.0)]
    lines = table("walk", of_ways(rows, "walk", ("ours", "sb3")), [("ours", "sb3")]).splitlines()
    assert lines[2:4] == [
        "| ours | 10.0 | 20.0 | 30.0 | 20.0 | 20.0 | 100 | 2 |",
        "| sb3 | 8.0 | 17.0 |  | 12.5 | 12.5 | 100 | 2 |",
    ]
    # Differences 2 and 3; t(0.975, 1) = 12.706, times 0.5.
    assert lines[5] == "ours less sb3: 2.50, 95 % interval -3.85 to 8.85 (2 seeds)."


def test_the_share_of_the_constant_delay_is_counted_from_a_random_player() -> None:
    rows = [row("random", continuous.RANDOM, seed, mean) for seed, mean in enumerate((-1300.0, -1100.0))]
    rows += [row("pendulum_5", "effect", seed, -200.0) for seed in range(2)]
    rows += [row("random", "effect", seed, mean) for seed, mean in enumerate((-200.0, -300.0))]
    words = continuous.share_of_constant(rows)
    assert words.startswith("random latencies: 0.950 of the score") and words.endswith("score is -1,200.0.")
    assert continuous.share_of_constant(rows[2:]) == "random latencies: trials are missing"


def test_a_late_start_gives_zeros_on_the_first_frames_of_each_episode() -> None:
    received: list[float] = []

    class Notes(gym.ActionWrapper[Any, Any, Any]):
        def action(self, action: Any) -> Any:
            received.append(float(action[0]))
            return action

    env = continuous.LateStart(Notes(gym.make("Pendulum-v1")), 2)
    for _ in range(2):
        env.reset(seed=0)
        for value in (0.5, 1.0, 1.5):
            env.step(np.array([value], np.float32))
    assert received == [0.0, 0.0, 1.5] * 2


def test_the_picture_is_drawn_from_rows(tmp_path: Path) -> None:
    rows = [{**row("pendulum_5", way, 0, 1.0), "curve": "-3.0 -2.0"} for way in ("without delay", "effect")]
    continuous.draw(rows, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
