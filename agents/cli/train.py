"""Train an agent, or let a run go on: its --base_dir continues with its own configuration."""

from __future__ import annotations

from argparse import Namespace

from agents.cli.configuration import (
    add_base_dir,
    add_gin_flags,
    add_seed,
    build_runner,
    find_named_modules,
    new_or_existing_dir,
    trusting,
)
from agents.cli.failures import usage_errors
from agents.cli.flags import Parser
from agents.experiment.config import save_config
from agents.experiment.lock import alone_in
from agents.experiment.report import compare_with_baselines, draw_learning_curve, table

__all__ = ["add_flags", "run"]


def add_flags(parser: Parser) -> None:
    """Add the flags of ``train``."""
    add_base_dir(parser, "directory of the run, new or to be continued; without it a new one in results/")
    add_gin_flags(parser)
    add_seed(parser)


def run(options: Namespace) -> None:
    """Run an experiment, or continue one."""
    find_named_modules(options)
    base_dir = new_or_existing_dir(options)
    with alone_in(base_dir):
        runner = build_runner(options, base_dir)
        with usage_errors():
            runner.resume()
        print(f"base_dir: {base_dir}\nseed: {runner.seed}", flush=True)
        reported = (base_dir / "report.json").is_file() or not runner.report_episodes or not runner.num_iterations
        if runner.start_iteration >= runner.num_iterations and reported:
            here = f"--base_dir {base_dir}"
            more = f"--gin_bindings 'Runner.num_iterations = {runner.num_iterations + 1}'"
            trust = trusting(options, base_dir)
            print(
                f"finished: all {runner.num_iterations} iterations are done. To go on, give more: {here} {more}"
                f"{trust}. To evaluate: python train.py evaluate {here}{trust}"
            )
            return
        save_config(base_dir)
        (base_dir / "report.json").unlink(missing_ok=True)  # of fewer iterations
        try:
            runner.run_experiment()
        except KeyboardInterrupt as interrupt:
            words = trusting(options, base_dir)
            if not words or interrupt.args:
                raise
            goes_on = "the same --base_dir goes on from its last checkpoint"
            raise KeyboardInterrupt(f"{goes_on}; without the --gin_files add{words}") from None
        rows = compare_with_baselines(runner) if runner.report_episodes else None
        if rows:
            print(f"\n{table(rows)}\n")
        print(runner.closing_line())
        with usage_errors():
            curve = draw_learning_curve(base_dir, rows)
        print(f"learning curve: {curve}\nbase_dir: {base_dir}")
