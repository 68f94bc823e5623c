"""The command ``sweep``: the plan of a grid, and its trials."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from async_wrappers.agents.cli.configuration import (
    find_modules,
    load_gin,
    new_or_existing_dir,
    refuse_unread,
)
from async_wrappers.agents.cli.flags import UsageError, program, usage_errors
from async_wrappers.agents.config.config import ConfigError, bound_settings, code_named, refuse_strangers
from async_wrappers.agents.config.gin_text import PACKAGE
from async_wrappers.agents.config.unread import Unread, given_in
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.sweep.grid import Point, draw_bindings, make_points, parse_axis
from async_wrappers.agents.sweep.plan import PLAN, Sweep, SweepPlan, check_engine, read_plan
from async_wrappers.agents.sweep.sweeping import failed_trials, run_sweep
from async_wrappers.agents.sweep.trial import GinTrial, TrialsCutOff, trial_status
from async_wrappers.posix import cores


class TrialsFailed(Exception):
    """A sweep has ended, and some of its trials failed."""


def run(options: Namespace) -> None:
    """Run a sweep, or continue one."""
    find_modules(options, always=bool(options.grid))
    base_dir = new_or_existing_dir(options)
    arguments = [word for name in ("gin_files", "gin_bindings") for word in _words(name, getattr(options, name))]
    new = not (base_dir / PLAN).is_file() or bool(arguments) or bool(options.grid)
    plan, settings = _new_plan(options, arguments) if new else _existing_plan(options, base_dir)
    print(f"base_dir: {base_dir}", flush=True)
    trial = GinTrial("async_wrappers.console", tuple(plan.arguments))
    try:
        with usage_errors():
            table = run_sweep(
                plan,
                trial,
                base_dir,
                settings,
                jobs=options.jobs or (None if options.address else cores()),
                retry_failed=options.retry_failed,
                finished=options.finished,
                only=options.only,
                engine=options.engine,
                address=options.address,
                check=lambda: _check_points(options, plan, new=new),
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_how_to_go_on(options, plan, base_dir)) from None
    except TrialsCutOff as cut:
        raise TrialsCutOff(f"{cut}; {_how_to_go_on(options, plan, base_dir)}") from None
    print(f"table: {table}\nplot it: {program()} plot {base_dir}\nbase_dir: {base_dir}")
    if failed := failed_trials(base_dir, plan):
        raise TrialsFailed(f"{failed}: mend the cause, add --retry-failed")


def _how_to_go_on(options: Namespace, plan: SweepPlan, base_dir: Path) -> str:
    """Return an interrupted sweep's progress, and the command that continues it."""
    if not (base_dir / PLAN).is_file():
        return f"nothing had begun in {base_dir}; the same command begins again"
    trials = plan.trials()
    done = sum(trial_status(base_dir / "trials" / each.name) == "finished" for each in trials)
    given = {"--base_dir": str(base_dir), "--jobs": options.jobs, "--address": options.address}
    given["--engine"] = None if options.engine == "local" else options.engine
    # The plan's own bindings and modules were named on this command line, and have to be named or trusted again.
    words = [word for flag, value in given.items() if value is not None for word in (flag, str(value))]
    words += [word for axis in options.only for word in ("--only", axis)]
    words += ["--retry-failed"] if options.retry_failed else []
    words += ["--trust"] if options.trust or _names_code(plan) else []
    return f"{done} of {len(trials)} trials are done in {base_dir}; to go on: {program()} sweep {shlex.join(words)}"


def _names_code(plan: SweepPlan) -> bool:
    """Return whether a plan imports other modules than this project's, which needs --trust."""
    files, bindings = _files_and_bindings(plan)
    keys = [f"{key} = {value}" for point in plan.points for key, value in point.bindings.items()]
    try:
        refuse_strangers("", *code_named(files, [*bindings, *keys], search_paths=[PACKAGE]), named=())
    except ConfigError:
        return True
    return False


def _files_and_bindings(plan: SweepPlan) -> tuple[list[str], list[str]]:
    pairs = list(zip(plan.arguments[::2], plan.arguments[1::2], strict=True))
    files, bindings = ([value for flag, value in pairs if flag == name] for name in ("--gin_files", "--gin_bindings"))
    return files, bindings


def _words(name: str, values: list[str]) -> Iterator[str]:
    for value in values:
        yield from (f"--{name}", value)


def _existing_plan(options: Namespace, base_dir: Path) -> tuple[SweepPlan, Sweep]:
    """Return the plan of a directory and its settings; `options` takes over the plan's gin files and bindings."""
    plan = read_plan(base_dir)
    if plan.function != "train.py":
        raise UsageError(f"--base_dir {base_dir} holds a sweep of {plan.function}: go on with it in Python")
    files, bindings = _files_and_bindings(plan)
    if not options.trust:
        # The user has not named the plan's files and bindings on this command line, so they may be somebody else's.
        keys = [f"{key} = {value}" for point in plan.points for key, value in point.bindings.items()]
        modules, includes = code_named(files, [*bindings, *keys], search_paths=[PACKAGE])
        refuse_strangers(str(base_dir / PLAN), modules, includes, named=())
    options.gin_files, options.gin_bindings = files, bindings
    find_modules(options)
    settings = _settings(options)
    return replace(plan, seeds=options.seeds or plan.seeds, settings=bound_settings(but="Sweep")), settings


def _new_plan(options: Namespace, arguments: list[str]) -> tuple[SweepPlan, Sweep]:
    """Return the plan that gin and the flags make, and the sweep's settings."""
    settings = _settings(options)
    grid = options.grid or settings.grid
    draw = None
    if settings.search == "random":
        draw = partial(draw_bindings, num_samples=settings.num_samples)
    points = make_points(grid, settings.arms, settings.exclude, draw)
    if any(key.endswith("Runner.seed") for point in points for key in point.bindings):
        raise UsageError("grid: Runner.seed is not a key of a grid: say how many seeds with --seeds")
    axes = [key for text in grid for key in parse_axis(text).keys]
    seeds = options.seeds or settings.seeds
    return SweepPlan(points, axes, seeds, arguments, "train.py", bound_settings(but="Sweep")), settings


def _settings(options: Namespace) -> Sweep:
    load_gin(options)
    with usage_errors():
        settings: Sweep = Sweep()
    check_engine(options.engine, options.address, settings)
    return settings


def _refuse_outdone(options: Namespace, plan: SweepPlan) -> None:
    """Refuse a binding of the command line that has no effect, as every point of the grid binds the same."""
    everywhere = set.intersection(*map(_names, plan.points))
    for text in options.gin_bindings:
        for given in given_in(text, f"--gin_bindings {text!r}", from_file=False):
            if given.name in everywhere:
                raise UsageError(
                    f"{given.source}: every point of the grid binds {given.name}, and wins: leave it out, or name some "
                    "points with --only (--allow_unread accepts it)"
                )


def _names(point: Point) -> set[str]:
    """Return the names of a point's bindings, without modules, as `GivenBinding` has them."""
    divided = (key.rpartition("/") for key in point.bindings)
    return {scope + slash + ".".join(name.split(".")[-2:]) for scope, slash, name in divided}


def _check_points(options: Namespace, plan: SweepPlan, *, new: bool) -> None:
    """Refuse a sweep that cannot run as intended, before anything runs.

    The experiments of some points, which together have every value, are built, so that a wrong value is refused at
    once. In a new sweep each binding must be read by one of the points at least.
    """
    if new and not options.allow_unread:
        _refuse_outdone(options, plan)
    built: set[tuple[str, str]] = set()
    read: set[str] = set()
    unread: dict[str, Unread] = {}
    for point in plan.points:
        fresh = {("", point.arm), *point.bindings.items()} - built
        if not fresh and unread.keys() <= read:
            continue
        built |= fresh
        bindings = [f"{key} = {value}" for key, value in point.bindings.items()]
        try:
            loaded = load_gin(Namespace(**{**vars(options), "gin_bindings": [*options.gin_bindings, *bindings]}))
            if fresh:
                with usage_errors():
                    runner = create_runner("not_written")
                runner.environment.close()
        except (UsageError, ConfigError) as error:
            raise UsageError(f"grid point {', '.join(bindings)}: {error}") from None
        keys = _names(point)
        found = {
            name: Unread("--grid", each.reason) if name in keys else each for name, each in loaded.unread().items()
        }
        read |= {each.name for each in loaded.given} - found.keys()
        unread = {**found, **unread}
    if new:
        refuse_unread(options, {name: each for name, each in unread.items() if name not in read})
