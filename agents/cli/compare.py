"""The command ``compare``: a table of scores side by side."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from async_wrappers.agents.cli.flags import usage_errors
from async_wrappers.agents.sweep.result_pages import compare, comparison_table


def run(options: Namespace) -> None:
    """Compare, and print the table."""
    how = {"metric": options.metric, "statistic": options.statistic}
    with usage_errors():
        found = [compare(Path(options.a), Path(b), **how) for b in options.b]
    for b, each in zip(options.b, found, strict=True):
        print(f"A: {options.a}\nB: {b}\n{comparison_table(each, options.statistic)}")
