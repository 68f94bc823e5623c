"""The table of a sweep: CSV that no spreadsheet runs, and Parquet."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.sweep.grid import Point
from agents.sweep.plan import SweepPlan
from agents.sweep.results import read_csv, read_rows, write_results
from agents.sweep.run import sweep
from tests.worlds.sweeps import play

FORMULAS = ["=1+1", "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "'=1", "''-x", "- 3"]
NO_FORMULAS = ["", "a=b", "-3.5", "+1e-3", "-inf", "'", "'a", "3", 'quoted, "text"', " =1"]


def written(tmp_path: Path, texts: list[str]) -> tuple[str, list[dict[str, str]]]:
    """The table of a sweep over texts, as a text and as it is read."""
    tmp_path.mkdir(parents=True, exist_ok=True)
    points = [Point("", {"=key": repr(text)}) for text in texts]
    plan = SweepPlan(points, ["=key"], 1, [], "f")
    for trial in plan.trials():
        directory = tmp_path / "trials" / trial.name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "result.json").write_text(json.dumps({"metrics": {"=metric": -3.5}, "seconds": 1.0}))
    path = write_results(tmp_path, plan)
    return path.read_bytes().decode(), read_csv(path)


def test_no_cell_of_the_table_is_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    texts = [*FORMULAS, *NO_FORMULAS]
    text, rows = written(tmp_path, texts)
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    for cell in cells:
        with suppress(ValueError):
            float(cell)
            continue
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert "-3.5" in cells and "'-3.5" not in cells
    assert [row["=key"] for row in rows[::2]] == texts
    assert {(row["metric"], row["value"]) for row in rows[::2]} == {("=metric", "-3.5")}


@given(st.lists(st.text("='+-@\t\r\nae1. ,\"", max_size=6), min_size=1, max_size=5))
def test_what_is_read_from_the_table_is_what_was_written(tmp_path_factory: Any, texts: list[str]) -> None:
    _, rows = written(tmp_path_factory.mktemp("table"), texts)
    assert [row["=key"] for row in rows[::2]] == texts


def test_the_table_is_written_as_parquet_too_where_pyarrow_is_installed(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    sweep(play, {"delay": [1, 8], "agent": ["dqn", 5]}, 1, tmp_path, jobs=2)
    table = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    expected = [{**row, "agent": str(row["agent"])} for row in read_rows(tmp_path)]
    assert table == expected
