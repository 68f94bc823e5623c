"""Finished trials in TensorBoard and in Weights & Biases."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from agents.experiment.config import ConfigError
from agents.sweep.plan import read_plan
from agents.sweep.run import sweep
from agents.sweep.trackers import write_to_tensorboard, write_to_wandb


def play(point: dict[str, Any], seed: int, directory: Path) -> dict[str, Any]:
    return {"score": 10.0 * point["delay"], "curve": [1.0, 2.5], "wrong": float("nan"), "none": []}


def events(directory: Path) -> list[Path]:
    return list((directory / "metrics" / "tensorboard").glob("*.hparams"))


def test_each_finished_trial_is_in_the_tab_of_hyperparameters_once(tmp_path: Path) -> None:
    sweep(play, {"delay": [1, 8], "agent": ["dqn"], "torso": [None]}, 1, tmp_path, jobs=2)
    sweep(play, {"delay": [1, 8], "agent": ["dqn"], "torso": [None]}, 1, tmp_path)
    assert [len(events(tmp_path / "trials" / name)) for name in ("0000", "0001")] == [1, 1]

    written = EventAccumulator(str(tmp_path / "trials" / "0001" / "metrics" / "tensorboard")).Reload()
    point = written.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data
    start = metadata.parse_session_start_info_plugin_data(point.content)
    assert start.group_name == "0001"
    assert start.hparams["delay"].number_value == 8
    assert start.hparams["agent"].string_value == "dqn"
    assert start.hparams["torso"].string_value == "None"
    last = {tag: written.Scalars(tag)[0].value for tag in written.Tags()["scalars"]}
    assert last.pop("sweep/seconds") >= 0
    assert last == {"sweep/score": 80.0, "sweep/curve": 2.5}


def test_a_trial_that_has_not_finished_is_not_written(tmp_path: Path) -> None:
    sweep(lambda *_: 5, {"delay": [1]}, 1, tmp_path)
    write_to_tensorboard(tmp_path, read_plan(tmp_path))
    assert not events(tmp_path / "trials" / "0000")


class FakeWandb:
    """What of the library is called, and with what."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def init(self, **arguments: Any) -> Any:
        run: dict[str, Any] = {**arguments, "logged": [], "finished": 0}
        self.runs.append(run)

        def finish() -> None:
            run["finished"] += 1

        def log(numbers: Mapping[str, float], step: int) -> None:
            run["logged"].append((step, dict(numbers)))

        run["summary"] = {}
        return SimpleNamespace(id=f"run{len(self.runs)}", log=log, summary=run["summary"], finish=finish)


def test_each_finished_trial_is_a_run_of_weights_and_biases_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for _ in range(2):
        sweep(play, {"delay": [1, 8]}, 1, tmp_path / "s", jobs=2, wandb_project="delays")
    assert [(run["project"], run["group"], run["name"]) for run in fake.runs] == [
        ("delays", "s", "s/0000"),
        ("delays", "s", "s/0001"),
    ]
    run = fake.runs[1]
    assert run["config"] == {"delay": 8, "seed": 0}
    assert run["logged"] == [(0, {"curve": 1.0}), (1, {"curve": 2.5})]
    assert run["summary"]["score"] == 80.0
    assert run["finished"] == 1


def test_without_a_project_nothing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sweep(play, {"delay": [1]}, 1, tmp_path)
    write_to_wandb(tmp_path, read_plan(tmp_path), None)
    assert not fake.runs


def test_a_missing_library_is_one_sentence_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def no_wandb(name: str, *rest: Any) -> Any:
        if name == "wandb":
            raise ImportError("No module named 'wandb'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_wandb)
    with pytest.raises(ConfigError, match=r"Sweep.wandb_project needs .*pip install -e '\.\[wandb\]'"):
        sweep(play, {"delay": [1]}, 1, tmp_path / "s", wandb_project="delays")
    assert not (tmp_path / "s").exists()
