"""Print the scores of two sweeps, or of two runs, side by side."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from agents.cli.failures import usage_errors
from agents.cli.flags import Parser, one_of
from agents.sweep.compare import compare, comparison_table

__all__ = ["add_flags", "run"]


def add_flags(parser: Parser) -> None:
    """Add the flags of ``compare``."""
    parser.add_word("A", "directory of a sweep or a run")
    parser.add_word("B", "directory of another")
    parser.add_argument("--metric", metavar="NAME", help="the metric (the final or training return)")
    parser.add_argument(
        "--statistic", type=one_of("mean", "iqm"), default="mean", metavar="mean|iqm", help="over seeds (mean)"
    )


def run(options: Namespace) -> None:
    """Compare, and print the table."""
    with usage_errors():
        found = compare(Path(options.a), Path(options.b), metric=options.metric, statistic=options.statistic)
    print(f"A: {options.a}\nB: {options.b}\n{comparison_table(found, options.statistic)}")
