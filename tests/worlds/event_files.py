"""What TensorBoard shows of a run's event files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer


@pytest.fixture
def files_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number the event files from 0: TensorBoard reads those of one second by name, in which 10 comes before 9."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


def scalars(base_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: (step, value) by tag."""
    events = EventAccumulator(str(base_dir / "metrics" / "tensorboard"))
    events.Reload()
    shown = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in sorted(events.Tags()["scalars"])}
    return {tag: points for tag, points in shown.items() if points}
