"""A sweep's settings, which a gin file binds as `Sweep`, and the plan in its directory.

The plan, ``sweep.json``, holds the points, the seeds and the command line that all trials share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gin

from async_wrappers.agents.config.config import CONFIG, ConfigError
from async_wrappers.agents.sweep.grid import Point
from async_wrappers.files import write_text_atomically

PLAN = "sweep.json"

_ENGINES = ("local", "ray")
_REMEDY = "bring back the file that the sweep wrote, or choose another base_dir"
_OPTIONS = ("--gin_files", "--gin_bindings")


@gin.configurable(module="agents")
@dataclass(frozen=True)
class Sweep:
    """How a sweep is run.

    Args:
        grid: Axes, each a parameter with its values, such as ``["RealtimeDelay.delay = 1, 8", "RealtimeDelay.noops = 0,
            RealtimeDelay.delay"]``; a point has one value of each.
        arms: Further axes by the arm's name, such as ``{"random": ["create_agent.agent_name = 'random'"]}``, which win
            over the grid's.
        exclude: Groups of axes; a point with a listed value of each axis of a group is left out.
        seeds: Seeds per point.
        order: ``"seeds"``: the first seed of every point, then the second; or ``"points"``: every seed of a point, then
            the next point, so that whole points finish one after the other, in the order of the first axis.
        trial_seconds: Seconds that one trial takes, for the estimate until a trial has ended; None if not known.
        keep_checkpoints: Whether finished trials keep all their checkpoints; else only the newest weights stay, without
            the replay.
        search: ``"grid"``, every combination; or ``"random"``, `num_samples` draws with Ray Tune.
        num_samples: Draws of a random search.
        scheduler: None, or ``"asha"``: Ray Tune ends trials early that do worse than others after as many iterations
            (Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2018).
        scheduler_metric: The statistic of an iteration that the scheduler compares; more is better.
        grace_period: Iterations that every trial has.
        reduction_factor: One trial in `reduction_factor` continues at each rung of the scheduler.
        wandb_project: Project of Weights & Biases that gets the finished trials; None for none.
    """

    grid: Sequence[str] = ()
    arms: Mapping[str, Sequence[str]] | None = None
    exclude: Sequence[Sequence[str]] = ()
    seeds: int = 3
    order: str = "seeds"
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
            self._check(name, _is_number(value, int) and value >= least, f"a whole number >= {least}")
        seconds = self.trial_seconds
        fitting = seconds is None or (_is_number(seconds, int | float) and seconds > 0)
        self._check("trial_seconds", fitting, "a number of seconds > 0, or None")
        self._check("wandb_project", isinstance(self.wandb_project, str | None), "a text, or None")
        self._check("grid", _are_texts(self.grid), "a list of texts")
        arms = self.arms
        fitting = arms is None or (isinstance(arms, Mapping) and all(map(_are_texts, arms.values())))
        self._check("arms", fitting, "lists of texts by name")
        fitting = isinstance(self.exclude, Sequence) and all(map(_are_texts, self.exclude))
        self._check("exclude", fitting, "a list of lists of texts")
        known: dict[str, tuple[Any, ...]] = {"order": ("seeds", "points"), "search": ("grid", "random")}
        known |= {"scheduler": (None, "asha"), "keep_checkpoints": (True, False)}
        for name, words in known.items():
            self._check(name, getattr(self, name) in words, _one_of(words))

    def _check(self, name: str, fitting: bool, wanted: str) -> None:
        if not fitting:
            raise ConfigError(f"Sweep.{name} must be {wanted}, got {getattr(self, name)!r}")


def check_engine(engine: str, address: str | None, settings: Sweep) -> None:
    """Refuse an unknown engine, or settings that the engine does not have.

    Raises:
        ConfigError: It is unknown, or it lacks one of the settings.
    """
    if engine not in _ENGINES:
        raise ConfigError(f"engine must be {_one_of(_ENGINES)}, got {engine!r}")
    if engine == "local":
        for name, value, plain in (("search", settings.search, "grid"), ("scheduler", settings.scheduler, None)):
            if value != plain:
                raise ConfigError(f"Sweep.{name} = {value!r} is Ray Tune's work: add --engine ray (engine='ray')")
        if address is not None:
            raise ConfigError(f"address {address} is that of a Ray cluster: add --engine ray (engine='ray')")


def _is_number(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind of number; a truth value, which Python takes for an int, is not."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return not isinstance(value, str) and isinstance(value, Sequence) and all(isinstance(text, str) for text in value)


def _one_of(words: Sequence[Any]) -> str:
    return f"one of {', '.join(map(repr, words))}"


@dataclass(frozen=True)
class Trial:
    """A point of the grid with a seed.

    Attributes:
        name: Name of its directory.
        arm: The point's arm.
        bindings: The point's bindings.
        seed_number: 0, 1, ...
        seed: Derived from the bindings and `seed_number`.
    """

    name: str
    arm: str
    bindings: dict[str, Any]
    seed_number: int
    seed: int

    @property
    def title(self) -> str:
        """The arm and the values of the keys, by their last words, in one line."""
        words = [f"{key.rpartition('.')[2]} {value}" for key, value in self.bindings.items()]
        return ", ".join([self.arm] if self.arm else words)


@dataclass(frozen=True)
class SweepPlan:
    """The plan of a sweep. While the sweep is continued, `seeds` may grow and nothing else may change.

    Attributes:
        points: The grid.
        axes: Its keys, without those that only arms bind.
        seeds: Seeds per point.
        arguments: The options that every trial's command line has; empty for trials in Python.
        function: Name of the trial in Python; ``"train.py"`` otherwise.
        settings: The bindings of these options by name, without the sweep's own, since a file that they name may
            change. None where they are not known, in Python and in a ``sweep.json`` of an older version.
    """

    points: list[Point]
    axes: list[str]
    seeds: int
    arguments: list[str]
    function: str
    settings: dict[str, str] | None = None

    @property
    def keys(self) -> list[str]:
        """All keys that a point binds, in the order of the points."""
        return list(dict.fromkeys(key for point in self.points for key in point.bindings))

    def trials(self) -> list[Trial]:
        """Return all trials, every point's first seed first."""
        return [
            Trial(f"{number * len(self.points) + index:04d}", point.arm, point.bindings, number, _seed(point, number))
            for number in range(self.seeds)
            for index, point in enumerate(self.points)
        ]


def _seed(point: Point, number: int) -> int:
    """Derive a trial's seed from its bindings and its number, so that arms with equal bindings play alike."""
    text = json.dumps([sorted(point.bindings.items()), number])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") & 0x7FFFFFFF


def read_plan(base_dir: Path) -> SweepPlan:
    """Return the plan of the sweep in a directory.

    Raises:
        ConfigError: There is none, or no sweep has written it.
    """
    path = Path(base_dir) / PLAN
    if not path.is_file():
        raise ConfigError(f"{base_dir} holds no sweep (no {PLAN}): run train.py sweep --base_dir {base_dir} first")
    return plan_in(path, path.read_bytes())


def plan_in(path: Path, data: bytes) -> SweepPlan:
    """Return the plan in the bytes of a file.

    Raises:
        ConfigError: No sweep has written it.
    """
    try:
        facts = json.loads(data.decode())
        plan = SweepPlan(**{**facts, "points": [Point(**point) for point in facts["points"]]})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(f"{path} is not the plan of a sweep ({error!r}): {_REMEDY}") from None
    if fault := _fault(plan):
        raise ConfigError(f"{path} is not the plan of a sweep ({fault}): {_REMEDY}")
    return plan


def title_of(base_dir: Path) -> str:
    """Return the title of a run: that of its point, where it is a sweep's trial, else the directory's name."""
    trial = _trial_in(base_dir)
    return base_dir.resolve().name if trial is None else trial.title


def arm_of(base_dir: Path) -> str:
    """Return the name of the arm that a sweep's trial plays; empty for other runs."""
    trial = _trial_in(base_dir)
    return "" if trial is None else trial.arm


def _trial_in(base_dir: Path) -> Trial | None:
    place = base_dir.resolve()
    sweep = place.parent.parent
    if place.parent.name != "trials" or not (sweep / PLAN).is_file():
        return None
    return next((each for each in read_plan(sweep).trials() if each.name == place.name), None)


def _fault(plan: SweepPlan) -> str | None:
    """Return what is wrong with a plan that was read, or None.

    The file may be somebody else's, and its arguments become a command line.
    """
    if not all(isinstance(each, list) and _are_texts(each) for each in (plan.axes, plan.arguments)):
        return "axes and arguments must be lists of texts"
    if not all(isinstance(point.arm, str) and isinstance(point.bindings, dict) for point in plan.points):
        return "points must have an arm, a text, and bindings by name"
    if not _is_number(plan.seeds, int) or plan.seeds < 1:
        return f"seeds must be at least 1, got {plan.seeds!r}"
    if plan.settings is not None and not isinstance(plan.settings, dict):
        return f"settings must be texts by name, got {plan.settings!r}"
    if not isinstance(plan.function, str):
        return f"function must be a text, got {plan.function!r}"
    if plan.function != "train.py":
        return None
    options, values = plan.arguments[::2], plan.arguments[1::2]
    like_options = any(value.startswith("-") for value in values)
    if len(options) != len(values) or not set(options) <= {*_OPTIONS} or like_options:
        return f"arguments must be pairs of {' or '.join(_OPTIONS)} and a value, got {plan.arguments!r}"
    return None


def write_plan(plan: SweepPlan, base_dir: Path) -> None:
    """Write ``sweep.json``."""
    write_text_atomically(base_dir / PLAN, json.dumps(asdict(plan), indent=1) + "\n")


def is_continued(plan: SweepPlan, base_dir: Path) -> bool:
    """Return whether the directory holds this sweep already, with as many seeds or fewer.

    Raises:
        ConfigError: It holds another sweep, or a run, or is a file.
    """
    if base_dir.exists() and not base_dir.is_dir():
        raise ConfigError(f"base_dir must be a directory, got the file {base_dir}")
    if not (base_dir / PLAN).is_file():
        if (base_dir / CONFIG).is_file():
            raise ConfigError(f"base_dir {base_dir} holds a run, not a sweep: choose another base_dir")
        return False
    there = read_plan(base_dir)
    holds = f"base_dir {base_dir} holds a sweep"
    if there.seeds > plan.seeds:
        raise ConfigError(f"{holds} with {there.seeds} seeds, not {plan.seeds}: give no fewer")
    if (there.function, there.arguments) != (plan.function, plan.arguments):
        old, new = (" ".join([each.function, *each.arguments]) for each in (there, plan))
        raise ConfigError(f"{holds} of another experiment ({old} there, {new} here)")
    if there.points != plan.points:
        difference = _difference(there.points, plan.points)
        raise ConfigError(f"{holds} with another grid ({difference}): choose another base_dir")
    if there.settings is not None and plan.settings is not None and there.settings != plan.settings:
        difference = _other_setting(there.settings, plan.settings)
        raise ConfigError(f"{holds} that was begun with other settings ({difference}): choose another base_dir")
    return True


def _other_setting(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Name the first setting that differs."""
    name = min(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))
    old, new = (settings.get(name, "not bound") for settings in (there, here))
    return f"{name} = {old} there, {new} here"


def _difference(there: Sequence[Point], here: Sequence[Point]) -> str:
    """Name the first key whose values differ."""
    for key in sorted({key for point in (*there, *here) for key in point.bindings}):
        old, new = (sorted({str(point.bindings.get(key)) for point in points}) for points in (there, here))
        if old != new:
            return f"{key} = {', '.join(old)} there, {', '.join(new)} here"
    return f"{len(there)} points there, {len(here)} here, in another order or other combinations"
