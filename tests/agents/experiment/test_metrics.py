"""What a run writes about itself."""

from __future__ import annotations

import errno
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from async_wrappers.agents.experiment import metrics as metrics_module
from async_wrappers.agents.experiment.metrics import EventWriter, Metrics, read_iterations
from async_wrappers.agents.watch.reading import Folder
from async_wrappers.agents.watch.scalars import read_scalars
from tests.worlds.event_files import scalars

FIRST, SECOND = {"iteration": 0, "frames": 100, "train_average_return": 1.5}, {"iteration": 1, "frames": 220}


def written(base_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (base_dir / "metrics" / "iterations.jsonl").read_text().splitlines()]


def test_each_iteration_is_a_line_of_json(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    metrics.iteration(FIRST, {})
    assert written(tmp_path) == read_iterations(tmp_path) == [FIRST]
    metrics.iteration(SECOND, {})
    metrics.close()
    assert written(tmp_path) == read_iterations(tmp_path) == metrics.history == [FIRST, SECOND]


def test_a_run_without_iterations_reads_as_none(tmp_path: Path) -> None:
    assert read_iterations(tmp_path) == []


def test_scalars_lie_at_training_frames(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    metrics.scalar("Loss", 0.5, 40)
    metrics.scalar("Loss", 0.25, 80)
    metrics.iteration(FIRST, {"Train/AverageReturns": 1.5, "Eval/AverageReturns": 2.5})
    metrics.close()
    assert scalars(tmp_path) == {
        "Eval/AverageReturns": [(100, 2.5)],
        "Loss": [(40, 0.5), (80, 0.25)],
        "Train/AverageReturns": [(100, 1.5)],
    }


def test_what_is_written_is_seen_before_the_end(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    metrics.iteration(FIRST, {"Train/AverageReturns": 1.5})
    metrics.iteration(SECOND, {"Train/AverageReturns": 2.5})
    assert scalars(tmp_path) == {"Train/AverageReturns": [(100, 1.5), (220, 2.5)]}
    metrics.close()


def test_a_resumed_run_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    for line, value in ((FIRST, 1.0), (SECOND, 2.0)):
        metrics.scalar("Loss", value, line["frames"] - 10)
        metrics.iteration(line, {"Train/AverageReturns": value})
    metrics.scalar("Loss", 3.0, 250)  # of an iteration that was interrupted
    metrics.close()
    resumed = Metrics(tmp_path, [FIRST])
    other = {"iteration": 1, "frames": 205}
    resumed.scalar("Loss", 5.0, 150)
    resumed.iteration(other, {"Train/AverageReturns": 5.0})
    resumed.close()
    assert written(tmp_path) == [FIRST, other]
    assert scalars(tmp_path) == {
        "Loss": [(90, 1.0), (150, 5.0)],
        "Train/AverageReturns": [(100, 1.0), (205, 5.0)],
    }


@pytest.mark.parametrize("step", [-86_400, -1, 0, 86_400])
def test_a_clock_that_is_set_hides_no_scalar_of_a_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    now = 1e9
    monkeypatch.setattr("time.time", lambda: now)
    history: list[dict[str, Any]] = []
    for number in range(12):
        metrics = Metrics(tmp_path, history)
        metrics.iteration({"iteration": number, "frames": 100 * number + 100}, {"Train/AverageReturns": number})
        metrics.scalar("Train/AverageReturns", -1.0, 100 * number + 150)  # of an iteration that was interrupted
        metrics.close()
        history, now = metrics.history, now + step
    shown = {"Train/AverageReturns": [*((100 * number + 100, float(number)) for number in range(12)), (1250, -1.0)]}
    assert scalars(tmp_path) == read_scalars(Folder(tmp_path)) == shown


def test_a_run_that_begins_anew_drops_everything(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    metrics.scalar("Loss", 1.0, 0)
    metrics.iteration(FIRST, {"Train/AverageReturns": 1.0})
    metrics.close()
    anew = Metrics(tmp_path)
    anew.iteration(SECOND, {"Train/AverageReturns": 2.0})
    anew.close()
    assert written(tmp_path) == [SECOND]
    assert scalars(tmp_path) == {"Train/AverageReturns": [(220, 2.0)]}


def test_a_crash_while_a_line_is_written_leaves_the_lines_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics(tmp_path)
    metrics.iteration(FIRST, {})

    def crash(path: Path, text: str) -> None:
        path.with_name(path.name + ".tmp").write_text(text[: len(text) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(metrics_module, "write_text_atomically", crash)
    with pytest.raises(KeyboardInterrupt):
        metrics.iteration(SECOND, {})
    metrics.close()
    assert read_iterations(tmp_path) == [FIRST]


def test_the_history_given_is_not_changed(tmp_path: Path) -> None:
    history = [dict(FIRST)]
    metrics = Metrics(tmp_path, history)
    metrics.iteration(SECOND, {})
    metrics.close()
    assert history == [FIRST]


@pytest.mark.parametrize("line", ["garbage", "3", '{"iteration": 1', ""])
def test_a_damaged_line_is_told_with_its_file(tmp_path: Path, line: str) -> None:
    metrics = Metrics(tmp_path)
    metrics.iteration(FIRST, {})
    metrics.close()
    path = tmp_path / "metrics" / "iterations.jsonl"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"iterations\.jsonl is damaged \(.*remove the lines that are no JSON objects"):
        read_iterations(tmp_path)


def read(directory: Path, tag: str) -> list[tuple[int, float]]:
    return [(each.step, each.value) for each in EventAccumulator(str(directory)).Reload().Scalars(tag)]


def test_tensorboard_reads_the_scalars_and_hides_what_is_purged(tmp_path: Path) -> None:
    first = EventWriter(tmp_path, purge_step=0)
    for step in range(6):
        first.scalar("Train/Loss", torch.tensor(step / 2), step)
    first.flush()
    assert read(tmp_path, "Train/Loss") == [(step, step / 2) for step in range(6)]
    first.close()
    again = EventWriter(tmp_path, purge_step=4)
    again.scalar("Train/Loss", 9.0, 5)
    again.close()
    assert read(tmp_path, "Train/Loss") == [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5), (5, 9.0)]


@pytest.mark.parametrize("room", [0, 1_000])
def test_a_full_disk_is_told_with_the_file_at_once_or_when_it_is_flushed(
    tmp_path: Path, room: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with limited_file_size(room), pytest.raises(OSError, match="too large") as caught:
        writer = EventWriter(tmp_path, purge_step=0)
        for step in range(1_000):
            writer.scalar("Train/Loss", 1.0, step)
        writer.flush()
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(next(tmp_path.iterdir())))
    assert capfd.readouterr().err == ""


@contextmanager
def limited_file_size(bytes_at_most: int) -> Iterator[None]:
    """Let this process write no larger file: the system then says EFBIG, as it says ENOSPC on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_at_most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
