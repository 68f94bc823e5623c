"""The settings of a sweep, which a gin file binds as `Sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gin

from agents.experiment.config import ConfigError

__all__ = ["Sweep", "check_engine"]

ENGINES = ("local", "ray")
SEARCHES = ("grid", "random")
SCHEDULERS = (None, "asha")


@gin.configurable(module="agents")
@dataclass(frozen=True)
class Sweep:
    """How a sweep is run.

    Args:
        grid: Axes, such as ``["RealtimeDelay.delay = 1, 8", "RealtimeDelay.noops = 0, RealtimeDelay.delay"]``.
        arms: Axes by the arm's name, such as ``["create_agent.agent_name = 'random'"]``, which win over the grid's.
        exclude: Groups of axes; a point with a listed value of each axis of a group is left out.
        seeds: Seeds per point.
        trial_seconds: Seconds that one trial takes, for the estimate until a trial has ended; None if not known.
        keep_checkpoints: Whether finished trials keep all their checkpoints; else only the newest weights stay, without
            the replay.
        search: ``"grid"``, every combination; or ``"random"``, `num_samples` draws with Ray Tune.
        num_samples: Draws of a random search.
        scheduler: None, or ``"asha"``: Ray Tune ends trials early that do worse than others after as many iterations
            (Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2018).
        scheduler_metric: The statistic of an iteration that the scheduler compares; more is better.
        grace_period: Iterations that every trial has.
        reduction_factor: One trial in `reduction_factor` goes on at each rung of the scheduler.
        wandb_project: Project of Weights & Biases that gets the finished trials; None for none.
    """

    grid: Sequence[str] = ()
    arms: Mapping[str, Sequence[str]] | None = None
    exclude: Sequence[Sequence[str]] = ()
    seeds: int = 3
    trial_seconds: float | None = None
    keep_checkpoints: bool = True
    search: str = "grid"
    num_samples: int = 10
    scheduler: str | None = None
    scheduler_metric: str = "train_average_return"
    grace_period: int = 1
    reduction_factor: int = 3
    wandb_project: str | None = None

    def __post_init__(self) -> None:
        """Refuse a value that is not a count, a text or a known word."""
        for name, least in (("seeds", 1), ("num_samples", 1), ("grace_period", 1), ("reduction_factor", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"Sweep.{name} must be a whole number >= {least}, got {value!r}")
        seconds = self.trial_seconds
        if seconds is not None and (not isinstance(seconds, int | float) or isinstance(seconds, bool) or seconds <= 0):
            raise ConfigError(f"Sweep.trial_seconds must be a number of seconds > 0, or None, got {seconds!r}")
        if not isinstance(self.wandb_project, str | None):
            raise ConfigError(f"Sweep.wandb_project must be a text, or None, got {self.wandb_project!r}")
        self._check_axes()
        for name, known in (("search", SEARCHES), ("scheduler", SCHEDULERS), ("keep_checkpoints", (True, False))):
            _one_of(f"Sweep.{name}", getattr(self, name), known)

    def _check_axes(self) -> None:
        if not _are_texts(self.grid):
            raise ConfigError(f"Sweep.grid must be a list of texts, got {self.grid!r}")
        arms = {} if self.arms is None else self.arms
        if not isinstance(arms, Mapping) or not all(map(_are_texts, arms.values())):
            raise ConfigError(f"Sweep.arms must be lists of texts by name, got {arms!r}")
        if not isinstance(self.exclude, Sequence) or not all(map(_are_texts, self.exclude)):
            raise ConfigError(f"Sweep.exclude must be a list of lists of texts, got {self.exclude!r}")


def check_engine(engine: str, address: str | None, settings: Sweep) -> None:
    """Refuse an unknown engine, or settings that the engine does not have.

    Raises:
        ConfigError: It is unknown, or it lacks one of the settings.
    """
    _one_of("engine", engine, ENGINES)
    if engine == "local":
        for name, value, plain in (("search", settings.search, "grid"), ("scheduler", settings.scheduler, None)):
            if value != plain:
                raise ConfigError(f"Sweep.{name} = {value!r} is Ray Tune's work: add --engine ray (engine='ray')")
        if address is not None:
            raise ConfigError(f"address {address} is that of a Ray cluster: add --engine ray (engine='ray')")


def _are_texts(values: Any) -> bool:
    return (
        not isinstance(values, str) and isinstance(values, Sequence) and all(isinstance(text, str) for text in values)
    )


def _one_of(name: str, value: Any, known: Sequence[Any]) -> None:
    if value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
