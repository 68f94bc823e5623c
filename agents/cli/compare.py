"""Print the scores of two sweeps, or of two runs, side by side."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from async_wrappers.agents.cli.flags import Parser, add_score_flags, usage_errors
from async_wrappers.agents.sweep.report import compare, comparison_table


def add_flags(parser: Parser) -> None:
    """Add the flags of ``compare``."""
    parser.add_word("A", "directory of a sweep or a run")
    parser.add_word("B", "directory of another")
    add_score_flags(parser)


def run(options: Namespace) -> None:
    """Compare, and print the table."""
    with usage_errors():
        found = compare(Path(options.a), Path(options.b), metric=options.metric, statistic=options.statistic)
    print(f"A: {options.a}\nB: {options.b}\n{comparison_table(found, options.statistic)}")
