"""Running a sweep: one trial per point of a grid and seed, on every core; interrupted at will, and continued.

``base_dir/sweep.json`` holds the sweep's plan, ``base_dir/trials/NNNN`` is the directory of one trial. A trial is
finished when its result is on the disk, and is then never run again; a trial that was cut off runs again in its own
directory. So the same call, given again after any interruption, does what is left and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import cloudpickle
from tqdm import tqdm

from agents.experiment.lock import alone_in
from agents.experiment.optional_imports import extra
from agents.experiment.prune import forget_replay
from agents.sweep.grid import Grid, points_from_values
from agents.sweep.plan import SweepPlan, is_continued, write_plan
from agents.sweep.pool import run_pool
from agents.sweep.results import write_manifest, write_results
from agents.sweep.settings import Sweep, check_engine
from agents.sweep.trackers import check_wandb, write_to_tensorboard, write_to_wandb
from agents.sweep.trial import FAILURE, RESULT, OnChange, Trial, TrialFunction, trial_status

__all__ = ["SweepProgress", "duration", "estimated_seconds", "run_sweep", "sweep"]


def sweep(
    trial: TrialFunction,
    grid: Grid,
    seeds: int,
    base_dir: str | Path,
    *,
    jobs: int | None = None,
    retry_failed: bool = False,
    engine: str = "local",
    address: str | None = None,
    **more: Any,
) -> Path:
    """Run a Python function over a grid, each trial in a process of its own, and return the table's path.

    After an interruption the same call continues: finished trials are kept, and the others run again in the directory
    that they had.

    Args:
        trial: ``trial(point, seed, directory)`` returns metrics by name: a number, or a list with one per iteration. It
            must pickle (cloudpickle), and may keep in `directory` what it needs to continue.
        grid: Values by key, combined in all ways; or the points themselves, as mappings of the same keys. With
            ``search="random"``, values or a distribution of ``ray.tune`` by key.
        seeds: Seeds per point; the trial's seed is derived from the point and the number of the seed.
        base_dir: The sweep's directory.
        jobs: Trials at a time, on one thread each; None is one, and on a Ray cluster as many as it has cores for.
        retry_failed: Whether trials that failed before are run again.
        engine: ``"local"``, or ``"ray"``: with Ray Tune (the extra `ray`), on a cluster whose nodes all see `base_dir`.
        address: Address of the Ray cluster; None starts one on this machine.
        more: Other parameters of `Sweep`, such as ``scheduler="asha"``, which compares what trials report with
            `agents.experiment.metrics.add_iteration`.

    Raises:
        ValueError: An empty grid, a value that is not plain data, another sweep's directory, or a setting that the
            engine does not have.
    """
    settings = Sweep(seeds=seeds, **more)
    check_engine(engine, address, settings)
    points = points_from_values(grid, settings.num_samples if settings.search == "random" else None)
    function = f"{getattr(trial, '__module__', '')}.{getattr(trial, '__qualname__', type(trial).__qualname__)}"
    return run_sweep(
        SweepPlan(points, list(points[0].bindings), settings.seeds, [], function),
        trial,
        Path(base_dir),
        settings,
        jobs=1 if jobs is None and address is None else jobs,
        retry_failed=retry_failed,
        engine=engine,
        address=address,
    )


def run_sweep(
    plan: SweepPlan,
    trial: TrialFunction,
    base_dir: Path,
    settings: Sweep,
    *,
    jobs: int | None = 1,
    retry_failed: bool = False,
    engine: str = "local",
    address: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Run the trials of a sweep that are left, and return the path of its table.

    Args:
        plan: The sweep.
        trial: What each trial runs.
        base_dir: The sweep's directory.
        settings: How it is run.
        jobs: Trials at a time; None, on a Ray cluster, is as many as it has cores for.
        retry_failed: Whether trials that failed before are run again.
        engine: ``"local"`` or ``"ray"``.
        address: Address of a Ray cluster.
        check: Called before a new sweep writes anything; may raise.

    Raises:
        ValueError: The directory holds another sweep, or another process is sweeping there; or the engine is missing,
            or lacks what the settings ask for.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be >= 1, got {jobs}")
    check_engine(engine, address, settings)
    run_trials = _engine(engine, address, settings)
    check_wandb(settings.wandb_project)
    if not is_continued(plan, base_dir):
        check()
    with alone_in(base_dir) as lock:
        write_plan(plan, base_dir)
        write_manifest(base_dir, jobs, engine)
        left = [each for each in plan.trials() if _is_left(base_dir / "trials" / each.name, retry_failed)]
        if not settings.keep_checkpoints:
            # A trial may have finished just before the sweep was killed.
            for directory in (base_dir / "trials").glob("*"):
                _prune_if_finished(directory)
        print(_outlook(plan, base_dir, len(left), jobs, settings.trial_seconds), flush=True)
        try:
            with SweepProgress(plan, left, base_dir) as progress:
                run_trials(_payloads(trial, left, base_dir.resolve()), jobs, lock, _on_change(settings, progress))
        finally:
            table = write_results(base_dir, plan)
        write_to_tensorboard(base_dir, plan)
        write_to_wandb(base_dir, plan, settings.wandb_project)
    return table


class SweepProgress:
    """The progress of a sweep on the terminal: a bar with the counts, and a line for each trial that ends.

    Args:
        plan: The sweep.
        left: Its trials that are to run.
        base_dir: Its directory.
    """

    def __init__(self, plan: SweepPlan, left: Sequence[Trial], base_dir: Path) -> None:
        total = len(plan.trials())
        self._trials = {trial.name: trial for trial in left}
        self._counts: Counter[str] = Counter(
            trial_status(base_dir / "trials" / trial.name) for trial in plan.trials() if trial.name not in self._trials
        )
        self._lock = Lock()
        self._bar = tqdm(total=total, initial=total - len(left), unit="trial", desc="sweep", disable=None)

    def __enter__(self) -> SweepProgress:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the bar as it is."""
        self._bar.close()

    def change(self, directory: Path, to: str) -> None:
        """Count a trial that runs, or print the line of a trial that has ended; called from several threads."""
        with self._lock:
            self._counts[to] += 1
            if to != "running":
                self._counts["running"] -= 1
                self._bar.update()
                tqdm.write(self._line(directory, to), file=sys.stdout)
            counts = ", ".join(f"{self._counts[name]} {name}" for name in ("finished", "running", "failed"))
            self._bar.set_postfix_str(counts)

    def _line(self, directory: Path, to: str) -> str:
        trial = self._trials[directory.name]
        path = directory / (RESULT if to == "finished" else FAILURE)
        unknown = {"error": "which could not be recorded", "seconds": 0.0}
        facts = json.loads(path.read_text()) if path.is_file() else unknown
        what = ", ".join([*filter(None, [trial.arm]), *(f"{key} = {value}" for key, value in trial.bindings.items())])
        error = f": {facts['error']} (see {directory})" if to == "failed" else ""
        if "stopped_after" in facts:
            to = f"stopped by the scheduler in iteration {facts['stopped_after']}"
        return f"trial {trial.name} {to} after {facts['seconds']:.0f} s ({what}, seed {trial.seed_number}){error}"


def _engine(engine: str, address: str | None, settings: Sweep) -> Callable[..., None]:
    if engine == "local":
        return run_pool
    with extra("--engine ray", "ray"):
        from agents.sweep.ray_engine import run_on_ray
    return partial(run_on_ray, address=address, settings=settings)


def _is_left(directory: Path, retry_failed: bool) -> bool:
    return trial_status(directory) in (("waiting", "failed") if retry_failed else ("waiting",))


def _payloads(trial: TrialFunction, left: Sequence[Trial], base_dir: Path) -> dict[Path, bytes]:
    """Return the pickle that each trial's process runs, by the trial's directory."""
    payloads = {}
    for each in left:
        directory = base_dir / "trials" / each.name
        directory.mkdir(parents=True, exist_ok=True)
        payloads[directory] = cloudpickle.dumps((trial, each.bindings, each.seed, directory))
    return payloads


def _on_change(settings: Sweep, progress: SweepProgress) -> OnChange:
    def change(directory: Path, to: str) -> None:
        if not settings.keep_checkpoints:
            _prune_if_finished(directory)
        progress.change(directory, to)

    return change


def _prune_if_finished(directory: Path) -> None:
    if trial_status(directory) == "finished":
        forget_replay(directory)


def estimated_seconds(base_dir: Path, trials: int, jobs: int | None, trial_seconds: float | None) -> float | None:
    """Return how long `trials` more will take: by the trials that have finished, else by `trial_seconds`, if known."""
    done = [json.loads(path.read_text())["seconds"] for path in (base_dir / "trials").glob(f"*/{RESULT}")]
    each = sum(done) / len(done) if done else trial_seconds
    return None if each is None or jobs is None else each * trials / min(jobs, max(trials, 1))


def _outlook(plan: SweepPlan, base_dir: Path, left: int, jobs: int | None, trial_seconds: float | None) -> str:
    """Return the line that is printed before the first trial: how many trials, and about how long."""
    total = plan.seeds * len(plan.points)
    estimate = estimated_seconds(base_dir, left, jobs, trial_seconds)
    when = "" if estimate is None or not left else f", about {duration(estimate)}"
    pace = f"{jobs} at a time" if jobs else "as many at a time as the cluster has cores for"
    return f"{total} trials ({len(plan.points)} points x {plan.seeds} seeds), {left} to run, {pace}{when}"


def duration(seconds: float) -> str:
    """Return a time in words, in a unit that fits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"
