"""Finished trials in TensorBoard's HPARAMS tab and in Weights & Biases (the extra `wandb`)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agents.experiment.optional_imports import extra
from agents.files import write_text_atomically
from agents.sweep.grid import plain
from agents.sweep.plan import SweepPlan
from agents.sweep.trial import RESULT, Trial

__all__ = ["check_wandb", "write_to_tensorboard", "write_to_wandb"]

# Beside the scalars of a run of train.py.
TENSORBOARD = Path("metrics") / "tensorboard"
HPARAMS = ".hparams"
# In the directory of a trial that has been sent; holds the run's id.
WANDB = "wandb_run.txt"


def write_to_tensorboard(base_dir: Path, plan: SweepPlan) -> None:
    """Write each finished trial's point and last numbers, once, for ``tensorboard --logdir base_dir/trials``."""
    for trial, directory in _finished(base_dir, plan):
        place = directory / TENSORBOARD
        if not any(place.glob(f"*{HPARAMS}")):
            _write_hparams(place, trial.name, _point(trial), _last_numbers(directory))


def _write_hparams(place: Path, name: str, point: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
    # PyTorch's writer would import all of PyTorch.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    shown = {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in point.items()}
    scalars = [Summary.Value(tag=f"sweep/{metric}", simple_value=value) for metric, value in metrics.items()]
    writer = EventFileWriter(str(place), filename_suffix=HPARAMS)
    for summary in (hparams_pb(shown, trial_id=name), Summary(value=scalars)):
        writer.add_event(Event(wall_time=time.time(), summary=summary))
    writer.close()


def check_wandb(project: str | None) -> None:
    """Refuse a project of Weights & Biases if its library is missing.

    Raises:
        ConfigError: There is a project, and the extra `wandb` is not installed.
    """
    if project is not None:
        with extra("Sweep.wandb_project", "wandb"):
            import wandb  # noqa: F401


def write_to_wandb(base_dir: Path, plan: SweepPlan, project: str | None) -> None:
    """Send each finished trial to a project of Weights & Biases, once: a run each, in a group with the sweep's name."""
    if project is None:
        return
    import wandb

    for trial, directory in _finished(base_dir, plan):
        if (directory / WANDB).is_file():
            continue
        group = base_dir.resolve().name
        run = wandb.init(
            project=project, group=group, name=f"{group}/{trial.name}", config=_point(trial), dir=str(base_dir)
        )
        for step, numbers in enumerate(_iterations(directory)):
            run.log(numbers, step=step)
        run.summary.update(_last_numbers(directory))
        run.finish()
        write_text_atomically(directory / WANDB, f"{run.id}\n")


def _finished(base_dir: Path, plan: SweepPlan) -> Iterator[tuple[Trial, Path]]:
    for trial in plan.trials():
        directory = base_dir / "trials" / trial.name
        if (directory / RESULT).is_file():
            yield trial, directory


def _point(trial: Trial) -> dict[str, Any]:
    """Return the arm, the values and the seed's number of a trial, by name."""
    arm = {"arm": trial.arm} if trial.arm else {}
    return {**arm, **{key: plain(value) for key, value in trial.bindings.items()}, "seed": trial.seed_number}


def _metrics(directory: Path) -> dict[str, Any]:
    facts = json.loads((directory / RESULT).read_text())
    return {**facts["metrics"], "seconds": facts["seconds"]}


def _last_numbers(directory: Path) -> dict[str, float]:
    """Return a number per metric; of a metric with several iterations, the last."""
    series = {name: value if isinstance(value, list) else [value] for name, value in _metrics(directory).items()}
    return {name: values[-1] for name, values in series.items() if values and math.isfinite(values[-1])}


def _iterations(directory: Path) -> Iterator[dict[str, float]]:
    series = {name: value for name, value in _metrics(directory).items() if isinstance(value, list)}
    for number in range(max(map(len, series.values()), default=0)):
        yield {name: values[number] for name, values in series.items() if number < len(values)}
