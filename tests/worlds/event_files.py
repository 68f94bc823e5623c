"""What TensorBoard shows of a run's event files."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars(base_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: (step, value) by tag."""
    events = EventAccumulator(str(base_dir / "metrics" / "tensorboard"))
    events.Reload()
    shown = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in sorted(events.Tags()["scalars"])}
    return {tag: points for tag, points in shown.items() if points}
