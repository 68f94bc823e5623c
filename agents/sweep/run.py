"""Sweeps: one trial per point of a grid and seed, on every core; interrupted at will, and begun again where it was.

``base_dir/sweep.json`` says what the sweep is, ``base_dir/trials/NNNN`` is the directory of one trial. A trial is
finished when its result is on the disk, and then never run again; one that was cut off runs again in its own directory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle

from agents.experiment.lock import alone_in
from agents.experiment.optional_imports import extra
from agents.experiment.prune import forget_replay
from agents.sweep.board import Board
from agents.sweep.plan import SweepPlan, is_continued, write_plan
from agents.sweep.pool import OnChange, run_pool
from agents.sweep.python_grid import points_of
from agents.sweep.results import write_manifest, write_results
from agents.sweep.settings import Sweep, check_engine
from agents.sweep.trackers import check_wandb, tell_tensorboard, tell_wandb
from agents.sweep.trial import RESULT, Trial, TrialFunction, state

__all__ = ["Sweep", "duration", "estimated_seconds", "run_sweep", "sweep"]


def sweep(
    trial: TrialFunction,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    seeds: int,
    base_dir: str | Path,
    *,
    jobs: int | None = None,
    retry_failed: bool = False,
    engine: str = "local",
    address: str | None = None,
    **settings: Any,
) -> Path:
    """Run a trial of one's own over a grid, each in a process of its own, and return the table's path.

    Interrupted, the same call goes on: finished trials are kept, the others run again, in the directory that they had.

    Args:
        trial: ``trial(point, seed, directory)`` returns metrics by name: a number, or a list with one per iteration. It
            must pickle (cloudpickle), and may keep what it needs to resume in `directory`.
        grid: Values by key, combined in all ways; or the points themselves, as mappings of the same keys. With
            ``search="random"``, values or a distribution of ``ray.tune`` by key.
        seeds: Seeds per point; what the trial is given is derived from (point, number of the seed).
        base_dir: Where all of it goes.
        jobs: Trials at a time, on one thread each; None is one, and on a Ray cluster as many as it has cores for.
        retry_failed: Whether trials that failed before are run again.
        engine: ``"local"``, or ``"ray"``: with Ray Tune (the extra `ray`), on a cluster whose nodes all see `base_dir`.
        address: Of the Ray cluster; None starts one on this machine.
        settings: Other parameters of `Sweep`, such as ``scheduler="asha"``, which compares what trials tell by
            `add_iteration`.

    Raises:
        ValueError: An empty grid, a value that is not plain data, another sweep's directory, or a setting that the
            engine does not have.
    """
    told = Sweep(seeds=seeds, **settings)
    check_engine(engine, address, told)
    points = points_of(grid, told.num_samples if told.search == "random" else None)
    function = f"{getattr(trial, '__module__', '')}.{getattr(trial, '__qualname__', type(trial).__qualname__)}"
    plan = SweepPlan(points, list(points[0].bindings), told.seeds, [], function)
    jobs = 1 if jobs is None and address is None else jobs
    place = Path(base_dir)
    return run_sweep(plan, trial, place, told, jobs=jobs, retry_failed=retry_failed, engine=engine, address=address)


def run_sweep(
    plan: SweepPlan,
    trial: TrialFunction,
    base_dir: Path,
    told: Sweep,
    *,
    jobs: int | None = 1,
    retry_failed: bool = False,
    engine: str = "local",
    address: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Run what is left of a sweep, and return the path of its table.

    Args:
        plan: What the sweep is.
        trial: What each trial runs.
        base_dir: Where all of it goes.
        told: How it is run: what is kept, which scheduler, who is told.
        jobs: Trials at a time; None, on a Ray cluster, is as many as it has cores for.
        retry_failed: Whether trials that failed before are run again.
        engine: ``"local"`` or ``"ray"``.
        address: Of a Ray cluster.
        check: Called before a new sweep writes anything; may raise.

    Raises:
        ValueError: The directory holds another sweep, or another process is sweeping there; or the engine is not
            there, or does not have what is asked for.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be >= 1, got {jobs}")
    check_engine(engine, address, told)
    run = _engine(engine, address, told)
    check_wandb(told.wandb_project)
    if not is_continued(plan, base_dir):
        check()
    with alone_in(base_dir) as lock:
        write_plan(plan, base_dir)
        write_manifest(base_dir, jobs, engine)
        left = [each for each in plan.trials() if _is_left(base_dir / "trials" / each.name, retry_failed)]
        if not told.keep_checkpoints:  # one may have finished just before the sweep was killed
            for directory in (base_dir / "trials").glob("*"):
                _forget_if_finished(directory)
        print(_outlook(plan, base_dir, len(left), jobs, told.trial_seconds), flush=True)
        try:
            with Board(plan, left, base_dir) as board:
                run(_payloads(trial, left, base_dir.resolve()), jobs, lock, _change(told, board))
        finally:
            table = write_results(base_dir, plan)
        tell_tensorboard(base_dir, plan)
        tell_wandb(base_dir, plan, told.wandb_project)
    return table


def _engine(engine: str, address: str | None, told: Sweep) -> Callable[..., None]:
    if engine == "local":
        return run_pool
    with extra("--engine ray", "ray"):
        from agents.sweep.ray_engine import run_on_ray
    return partial(run_on_ray, address=address, told=told)


def _is_left(directory: Path, retry_failed: bool) -> bool:
    return state(directory) in (("waiting", "failed") if retry_failed else ("waiting",))


def _payloads(trial: TrialFunction, left: Sequence[Trial], base_dir: Path) -> dict[Path, bytes]:
    """Return what each trial's process is told, by the trial's directory."""
    payloads = {}
    for each in left:
        directory = base_dir / "trials" / each.name
        directory.mkdir(parents=True, exist_ok=True)
        payloads[directory] = cloudpickle.dumps((trial, each.bindings, each.seed, directory))
    return payloads


def _change(told: Sweep, board: Board) -> OnChange:
    """Return what is done when a trial begins or ends."""

    def change(directory: Path, to: str) -> None:
        if not told.keep_checkpoints:
            _forget_if_finished(directory)
        board.change(directory, to)

    return change


def _forget_if_finished(directory: Path) -> None:
    if state(directory) == "finished":
        forget_replay(directory)


def estimated_seconds(base_dir: Path, trials: int, jobs: int | None, trial_seconds: float | None) -> float | None:
    """Return how long `trials` more will take: by those that have finished, else by `trial_seconds`, if known."""
    done = [json.loads(path.read_text())["seconds"] for path in (base_dir / "trials").glob(f"*/{RESULT}")]
    each = sum(done) / len(done) if done else trial_seconds
    return None if each is None or jobs is None else each * trials / min(jobs, max(trials, 1))


def _outlook(plan: SweepPlan, base_dir: Path, left: int, jobs: int | None, trial_seconds: float | None) -> str:
    """Say what is going to happen, before it does."""
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
