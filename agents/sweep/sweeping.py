"""Running a sweep: one trial per point of a grid and seed, on every core; interrupted at will, and continued.

``base_dir/sweep.json`` holds the sweep's plan, ``base_dir/trials/NNNN`` is the directory of one trial. A trial is
finished when its result is on the disk, and is then never run again; a trial that was cut off runs again in its own
directory. So the same call, repeated after any interruption, runs the remaining trials and nothing else.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle

from async_wrappers.agents.config.config import ConfigError
from async_wrappers.agents.experiment.lock import alone_in
from async_wrappers.agents.sweep.grid import Grid, points_from_values, points_with
from async_wrappers.agents.sweep.plan import Sweep, SweepPlan, check_engine, is_continued, write_plan
from async_wrappers.agents.sweep.results import (
    ELSEWHERE,
    check_parquet,
    check_wandb,
    results_in,
    seconds_here,
    write_manifest,
    write_results,
    write_to_trackers,
)
from async_wrappers.agents.sweep.running import TrialsShown
from async_wrappers.agents.sweep.trial import (
    FAILURE,
    RESULT,
    PythonTrial,
    TrialFunction,
    imported_by_program,
    run_pool,
    trial_status,
)
from async_wrappers.agents.timing import duration
from async_wrappers.extras import extra
from async_wrappers.files import path_of, write_text_atomically
from async_wrappers.printing import printable

_MOST_NAMED = 12  # failed trials, and causes, in a sentence


def sweep(
    trial: TrialFunction,
    grid: Grid,
    seeds: int,
    base_dir: str | Path,
    *,
    jobs: int | None = None,
    retry_failed: bool = False,
    finished: Sequence[str | Path] = (),
    engine: str = "local",
    address: str | None = None,
    **more: Any,
) -> Path:
    """Run a Python function over a grid, each trial in a process of its own, and return the table's path.

    After an interruption the same call continues: finished trials are kept, and the others run again in the directory
    that they had. A warning says how many trials failed, and why.

    Args:
        trial: ``trial(point, seed, directory)`` returns metrics by name: a number, or a list with one per iteration. It
            must pickle (cloudpickle), and may keep files in `directory` to continue from. What the program imports at
            its top, such as a module that registers an environment, its processes import too.
        grid: Values by key, combined in all ways; or the points themselves, as mappings of the same keys. With
            ``search="random"``, values or a distribution of Ray Tune by key.
        seeds: Seeds per point; the trial's seed is derived from the point and the number of the seed.
        base_dir: The sweep's directory.
        jobs: Trials at a time, on one thread each; None is one, and on a Ray cluster as many as it has cores for.
        retry_failed: Whether trials that failed before are run again.
        finished: Tables (``results.csv``) of the same sweep from other machines, whose trials are not run again.
        engine: ``"local"``, or ``"ray"``: with Ray Tune (the extra `ray`), on a cluster whose nodes all see `base_dir`.
        address: Address of the Ray cluster; None starts one on this machine.
        more: Other parameters of `Sweep`, such as ``scheduler="asha"``, which compares what trials report with
            `async_wrappers.agents.experiment.metrics.add_iteration`.

    Raises:
        ValueError: An empty grid, a value that is not plain data, another sweep's directory, or a setting that the
            engine does not have.
    """
    settings = Sweep(seeds=seeds, **more)
    check_engine(engine, address, settings)
    base_dir = path_of(base_dir)
    points = points_from_values(grid, settings.num_samples if settings.search == "random" else None)
    function = f"{getattr(trial, '__module__', '')}.{getattr(trial, '__qualname__', type(trial).__qualname__)}"
    plan = SweepPlan(points, list(points[0].bindings), settings.seeds, [], function)
    table = run_sweep(
        plan,
        PythonTrial(trial, imported_by_program()),
        base_dir,
        settings,
        jobs=1 if jobs is None and address is None else jobs,
        retry_failed=retry_failed,
        finished=[path_of(table) for table in finished],
        engine=engine,
        address=address,
    )
    if failed := failed_trials(base_dir, plan):
        warnings.warn(f"{failed}: mend the cause, and add retry_failed=True", RuntimeWarning, stacklevel=2)
    return table


def failed_trials(base_dir: Path, plan: SweepPlan) -> str:
    """Return, in words, why trials of a sweep failed and how many; an empty text if none did."""
    trials = plan.trials()
    failed = [each.name for each in trials if trial_status(base_dir / "trials" / each.name) == "failed"]
    if not failed:
        return ""
    causes = defaultdict(list)
    for name in failed:
        causes[_cause(base_dir / "trials" / name)].append(name)
    told = [
        f"{error} ({'1 trial' if len(names) == 1 else f'{len(names)} trials'}, see {base_dir / 'trials' / names[0]})"
        for error, names in list(causes.items())[:_MOST_NAMED]
    ]
    names = ", ".join([*failed[:_MOST_NAMED], *(["..."] if len(failed) > _MOST_NAMED else [])])
    return f"{'; '.join(told)}; {len(failed)} of {len(trials)} trials failed ({names})"


def _cause(directory: Path) -> str:
    try:
        error: str = json.loads((directory / FAILURE).read_text(encoding="utf-8"))["error"]
    except (OSError, ValueError, KeyError, TypeError):
        return "a cause that cannot be read"
    return error


def run_sweep(
    plan: SweepPlan,
    trial: TrialFunction,
    base_dir: Path,
    settings: Sweep,
    *,
    jobs: int | None = 1,
    retry_failed: bool = False,
    finished: Sequence[Path] = (),
    only: Sequence[str] = (),
    engine: str = "local",
    address: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Run the trials of a sweep that are left, and return the path of its table.

    Args:
        plan: The sweep.
        trial: What each trial runs.
        base_dir: The sweep's directory.
        settings: How it is run, which the engine can (`check_engine`).
        jobs: Trials at a time; None, on a Ray cluster, is as many as it has cores for.
        retry_failed: Whether trials that failed before are run again.
        finished: Tables of the same sweep from other machines, whose trials are not run again.
        only: Axes and names of arms; trials of other points wait for a later call.
        engine: ``"local"`` or ``"ray"``.
        address: Address of a Ray cluster.
        check: Called before a new sweep writes anything; may raise.

    Raises:
        ValueError: The directory holds another sweep, or another process is sweeping there.
        DependencyNotInstalled: An extra is missing: that of the engine, of Weights & Biases, or `parquet` where the
            directory holds a ``results.parquet``.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be >= 1, got {jobs}")
    run_trials: Callable[..., None] = run_pool
    if engine == "ray":
        if printable(there := base_dir.resolve()) != str(there):
            raise ConfigError(f"base_dir must be a path in UTF-8 with Ray, got {printable(there)}: name another")
        with extra("--engine ray", "ray"):
            from async_wrappers.agents.sweep.ray_engine import run_on_ray
        run_trials = partial(run_on_ray, address=address, settings=settings)
    check_wandb(settings.wandb_project)
    check_parquet(base_dir)
    if not is_continued(plan, base_dir):
        check()
    elsewhere = {table: results_in(table, plan) for table in finished}
    now = points_with(plan.points, only)
    with alone_in(base_dir) as lock:
        write_plan(plan, base_dir)
        write_manifest(base_dir, jobs, engine)
        ordered = plan.trials()
        if settings.order == "points":
            ordered.sort(key=lambda each: (int(each.name) % len(plan.points), each.seed_number))
        trials = {base_dir.resolve() / "trials" / each.name: each for each in ordered}
        for table, results in elsewhere.items():
            _take(table, results, base_dir / "trials")
        wanted = ("waiting", "failed") if retry_failed else ("waiting",)
        asked = {path: each for path, each in trials.items() if plan.points[int(each.name) % len(plan.points)] in now}
        left = {directory: each for directory, each in asked.items() if trial_status(directory) in wanted}
        if not settings.keep_checkpoints:
            # A trial may have finished just before the sweep was killed.
            _forget_replays(trials)
        failed = sum(trial_status(directory) == "failed" for directory in asked.keys() - left.keys())
        print(_outlook(plan, base_dir, len(left), failed, jobs, settings.trial_seconds), flush=True)
        try:
            # The pickle that each trial's process runs, by the trial's directory.
            payloads = {}
            for directory, each in left.items():
                directory.mkdir(parents=True, exist_ok=True)
                payloads[directory] = cloudpickle.dumps((trial, each.bindings, each.seed, directory))

            def ended(directory: Path) -> None:
                if not settings.keep_checkpoints:
                    _forget_replays([directory])

            with TrialsShown(asked, jobs, settings.trial_seconds, ended) as shown:
                run_trials(payloads, jobs, lock, shown.change)
        finally:
            table = write_results(base_dir, plan)
        write_to_trackers(base_dir, plan, settings.wandb_project)
    return table


def _take(table: Path, results: Mapping[str, Mapping[str, Any]], trials: Path) -> None:
    """Write the results of trials that another machine has finished, and that have none here, marked as such."""
    taken = [name for name in results if trial_status(trials / name) != "finished"]
    for name in taken:
        (trials / name).mkdir(parents=True, exist_ok=True)
        write_text_atomically(trials / name / RESULT, json.dumps({**results[name], ELSEWHERE: True}, indent=1) + "\n")
        (trials / name / FAILURE).unlink(missing_ok=True)
    print(f"{len(taken)} finished trials taken from {printable(table)}", flush=True)


def _forget_replays(directories: Iterable[Path]) -> None:
    """Delete all checkpoints of finished trials but the newest weights."""
    for directory in directories:
        if trial_status(directory) == "finished":
            forget_replay(directory)


def forget_replay(base_dir: Path) -> None:
    """Delete a finished run's checkpoints but the newest iteration's file, with weights and counts.

    The run can then be evaluated, and another one can begin with its weights, but it cannot be continued. Where no
    iteration's checkpoint is complete, as in the directory of a trial in Python that keeps files of its own there, all
    stay.
    """
    directory = base_dir / "checkpoints"
    complete = [re.fullmatch(r"sentinel_checkpoint_complete\.(\d+)", path.name) for path in directory.glob("*")]
    newest = max((int(name[1]) for name in complete if name), default=None)
    if newest is None:
        return
    for path in directory.glob("*"):
        if path.name not in (f"ckpt.{newest}", f"sentinel_checkpoint_complete.{newest}"):
            path.unlink() if path.is_file() else shutil.rmtree(path)


def estimated_seconds(base_dir: Path, trials: int, jobs: int | None, trial_seconds: float | None) -> float | None:
    """Return how long `trials` more will take: by those that have finished here, else by `trial_seconds`, if known."""
    done = seconds_here((base_dir / "trials").glob("*"))
    each = sum(done) / len(done) if done else trial_seconds
    return None if each is None or jobs is None else each * trials / min(jobs, max(trials, 1))


def _outlook(
    plan: SweepPlan, base_dir: Path, left: int, failed: int, jobs: int | None, trial_seconds: float | None
) -> str:
    """Return the line that is printed before the first trial: how many trials, and about how long."""
    total = plan.seeds * len(plan.points)
    estimate = estimated_seconds(base_dir, left, jobs, trial_seconds)
    when = _about(estimate if left else None).removesuffix(" left")
    before = f" ({failed} failed before, which --retry-failed, retry_failed=True, runs again)" if failed else ""
    pace = f"{jobs} at a time" if jobs else "as many at a time as the cluster has cores for"
    return f"{total} trials ({len(plan.points)} points x {plan.seeds} seeds), {left} to run{before}, {pace}{when}"


def _about(seconds: float | None) -> str:
    return "" if seconds is None else f", about {duration(seconds)} left"
