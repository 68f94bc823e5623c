"""Runners by the name of their schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import gin

from agents.experiment.live import LiveRunner
from agents.experiment.runner import Runner, TrainRunner

__all__ = ["SCHEDULES", "create_runner"]

SCHEDULES: Mapping[str, Callable[[str | Path], Runner]] = {
    "continuous_train_and_eval": Runner,
    "continuous_train": TrainRunner,
    "realtime": LiveRunner,
}


@gin.configurable(module="agents")
def create_runner(base_dir: str | Path, schedule: str = "continuous_train_and_eval") -> Runner:
    """Make the runner of a schedule.

    Args:
        base_dir: Where checkpoints and metrics go.
        schedule: ``"continuous_train_and_eval"`` (`Runner`), ``"continuous_train"`` (`TrainRunner`) or ``"realtime"``
            (`LiveRunner`).

    Raises:
        ValueError: An unknown schedule.
    """
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        known = ", ".join(map(repr, SCHEDULES))
        raise ValueError(f"create_runner.schedule must be one of {known}, got {schedule!r}")
    return SCHEDULES[schedule](base_dir)
