"""Print the scores of two sweeps, runs or tables (CSV) side by side; of more, the first beside each of the others."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from async_wrappers.agents.cli.flags import Parser, add_score_flags, usage_errors
from async_wrappers.agents.sweep.report import compare, comparison_table


def add_flags(parser: Parser) -> None:
    """Add the flags of ``compare``."""
    parser.add_word("A", "directory of a sweep or a run, or a CSV with named columns")
    parser.add_word("B", "another, or several", many=True)
    add_score_flags(parser)


def run(options: Namespace) -> None:
    """Compare, and print the table."""
    how = {"metric": options.metric, "statistic": options.statistic}
    with usage_errors():
        found = [compare(Path(options.a), Path(b), **how) for b in options.b]
    for b, each in zip(options.b, found, strict=True):
        print(f"A: {options.a}\nB: {b}\n{comparison_table(each, options.statistic)}")
