"""The command ``train``: it runs an experiment, or the main job."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from pathlib import Path

from async_wrappers.agents.cli.configuration import (
    build_runner,
    find_modules,
    new_or_existing_dir,
    trusting,
)
from async_wrappers.agents.cli.flags import UsageError, program, usage_errors
from async_wrappers.agents.cli.main_job import run_main_job
from async_wrappers.agents.cli.run_log import RunLog, logged
from async_wrappers.agents.config.config import CONFIG, save_config
from async_wrappers.agents.experiment.closing_report import (
    compare_with_baselines,
    draw_learning_curve,
    in_words,
    reported_rows,
    table,
    training_facts,
    why_no_noop,
    write_report,
)
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.lock import alone_in
from async_wrappers.agents.experiment.progress import closing_line
from async_wrappers.agents.sweep.plan import PLAN, arm_of


def run(options: Namespace) -> None:
    """Run an experiment, or continue one."""
    find_modules(options)
    base_dir = new_or_existing_dir(options)
    if not options.gin_files and not any((base_dir / name).is_file() for name in (PLAN, CONFIG)):
        run_main_job(options, base_dir)
        return
    if (base_dir / PLAN).is_file():
        raise UsageError(
            f"--base_dir {base_dir} holds a sweep: `{program()} sweep --base_dir {base_dir}` continues it, or name "
            "another directory"
        )
    runner: Experiment | None = None
    try:
        with alone_in(base_dir), logged() as log:
            runner = build_runner(options, base_dir)
            with usage_errors():
                runner.arm = arm_of(base_dir)
            print(f"base_dir: {base_dir}\nseed: {runner.settings.seed}\n{_what(runner)}", flush=True)
            with usage_errors():
                runner.resume()
            for name in _CHOSEN:
                if (fact := runner.facts().get(name)) is not None:
                    print(f"{name}: {fact}", flush=True)
            _run(runner, options, base_dir, log)
    except KeyboardInterrupt as interrupt:
        if interrupt.args:
            raise
        raise KeyboardInterrupt(_how_to_go_on(runner, options, base_dir)) from None


_CHOSEN = ("precision",)  # facts that a checkpoint decides, where there is one


def _what(runner: Experiment) -> str:
    """Return a run's facts, a line for each."""
    facts = runner.facts()
    names = ("agent", "environment", "rewards", "delay", "device", "queue", "iterations")
    shown = {name: facts[name] for name in names if name in facts}
    return "\n".join(f"{name}: {fact}" for name, fact in shown.items())


def _run(runner: Experiment, options: Namespace, base_dir: Path, log: RunLog) -> None:
    """Run the iterations that are still to do, and the closing table."""
    reported = (base_dir / "report.json").is_file() or not runner.settings.report_episodes or not runner.num_iterations
    if runner.start_iteration >= runner.num_iterations and reported:
        if (base_dir / "report.json").is_file() and not (base_dir / "learning_curve.png").is_file():
            draw_learning_curve(base_dir, reported_rows(base_dir))  # the run was ended between the two
        here = f"--base_dir {base_dir}"
        more = f"--gin_bindings '{runner.teaching.one_more}'"
        trust = trusting(options, base_dir)
        print(
            f"finished: all {runner.num_iterations} iterations are done. To go on, give more: {here} {more}"
            f"{trust}. To evaluate: {program()} evaluate {here}{trust}"
        )
        return
    save_config(base_dir)
    log.begin(base_dir)
    (base_dir / "report.json").unlink(missing_ok=True)  # of fewer iterations
    runner.run_experiment()
    rows = None
    if runner.settings.report_episodes:
        print(
            f"closing table: each agent plays {runner.settings.report_episodes} episodes", file=sys.stderr, flush=True
        )
        rows = compare_with_baselines(runner)
    if rows:
        notes = filter(None, [why_no_noop(runner.environment)])
        print("\n".join(["", table(rows), *notes, ""]))
    else:
        write_report(runner, [])
    runner.progress_file.remove()
    if told := runner.times.table(runner.play.summary()):
        print(told)
    print(f"{closing_line(runner.history)}; {in_words(training_facts(runner))}")
    with usage_errors():
        curve = draw_learning_curve(base_dir, rows)
    print(f"learning curve: {curve}\nbase_dir: {base_dir}")


def _how_to_go_on(runner: Experiment | None, options: Namespace, base_dir: Path) -> str:
    """Return an interrupted run's progress, and the command that continues it."""
    if runner is None or not (base_dir / CONFIG).is_file():
        return f"nothing had begun in {base_dir}; the same command begins again"
    words = f"--base_dir {shlex.quote(str(base_dir))}{trusting(options, base_dir)}"
    done = f"{runner.saved.iterations_done} of {runner.num_iterations} iterations are done in {base_dir}"
    left = runner.saved.unsaved
    in_table = runner.start_iteration >= runner.num_iterations and runner.settings.report_episodes
    if in_table and not (base_dir / "report.json").is_file():
        left = "the closing table is not"
    return f"{', and '.join(filter(None, (done, left)))}; to go on: {program()} {words}"
