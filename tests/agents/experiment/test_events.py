"""TensorBoard's scalars are there for TensorBoard, and a full disk is an error that names the file."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.experiment.events import EventWriter


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
