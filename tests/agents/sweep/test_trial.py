"""The metrics of a trial: of a run of train.py, and of a trial that a scheduler has ended."""

from __future__ import annotations

import json
from pathlib import Path

from async_wrappers.agents.experiment.metrics import add_iteration
from async_wrappers.agents.sweep.trial import Spent, record_stop, run_metrics


def test_a_trial_that_a_scheduler_ends_keeps_what_each_of_its_iterations_has(tmp_path: Path) -> None:
    add_iteration(tmp_path, skill=0.25)
    add_iteration(tmp_path, skill=0.5, wins=1)
    record_stop(tmp_path, 3.0)
    facts_there = json.loads((tmp_path / "result.json").read_text())
    assert facts_there == {"metrics": {"skill": [0.25, 0.5]}, "seconds": 3.0, "stopped_after": 1}


def test_the_seconds_of_a_trial_go_on_where_a_killed_process_last_noted_them(tmp_path: Path) -> None:
    now = 100.0
    first = Spent(tmp_path, lambda: now)
    now = 105.0
    first.note()
    now = 108.0  # it is killed
    second = Spent(tmp_path, lambda: now)
    now = 118.0
    assert second.seconds == 15.0
    second.note()
    add_iteration(tmp_path, skill=0.25)
    record_stop(tmp_path, 10.0)
    assert json.loads((tmp_path / "result.json").read_text())["seconds"] == 15.0


def test_the_metrics_of_a_run_are_its_iterations_and_its_closing_table(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    lines = [
        {"iteration": n, "frames": 10 * n, "train_episode_returns": [n, n + 4.0], "train_average_return": n + 2.0}
        for n in range(2)
    ]
    (tmp_path / "metrics" / "iterations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_metrics(tmp_path) == {"frames": [0, 10], "train_average_return": [2.0, 3.0], "training_return": 2.5}
    (tmp_path / "report.json").write_text(
        json.dumps([{"agent": "no-op", "mean": 1.0}, {"agent": "trained", "mean": 5.0}])
    )
    assert run_metrics(tmp_path)["noop_return"] == 1.0
    assert run_metrics(tmp_path)["final_return"] == 5.0
