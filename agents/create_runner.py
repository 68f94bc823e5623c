"""The runner of a schedule, as gin binds it: the top layer, which imports all runners and all families of agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import gin

from async_wrappers.agents import registry  # noqa: F401  # runners find its `create_agent` by the name in gin
from async_wrappers.agents.experiment.hosts import Hosts
from async_wrappers.agents.experiment.live import LiveRunner
from async_wrappers.agents.experiment.runner import Runner, TrainRunner
from async_wrappers.agents.experiment.vector_runner import VectorRunner
from async_wrappers.agents.teaching.runner import RunnerWithTeacher

__all__ = ["SCHEDULES", "create_runner"]

SCHEDULES: Mapping[str, Callable[[str | Path], Runner]] = {
    "continuous_train_and_eval": Runner,
    "continuous_train": TrainRunner,
    "realtime": LiveRunner,
    "vector": VectorRunner,
    "hosts": Hosts,
    "reincarnation": RunnerWithTeacher,
}


@gin.configurable(module="agents")
def create_runner(base_dir: str | Path, schedule: str = "continuous_train_and_eval") -> Runner:
    """Make the runner of a schedule.

    Args:
        base_dir: Where checkpoints and metrics go.
        schedule: ``"continuous_train_and_eval"`` (`Runner`), ``"continuous_train"`` (`TrainRunner`), ``"realtime"``
            (`LiveRunner`), ``"vector"`` (`VectorRunner`), ``"hosts"`` (`Hosts`) or ``"reincarnation"``
            (`RunnerWithTeacher`).

    Raises:
        ValueError: An unknown schedule.
    """
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        known = ", ".join(map(repr, SCHEDULES))
        raise ValueError(f"create_runner.schedule must be one of {known}, got {schedule!r}")
    return SCHEDULES[schedule](base_dir)
