"""Two results side by side: the points that they share, their difference, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agents.experiment.evaluate import difference_interval
from agents.sweep.compare import compare, comparison_table
from tests.worlds.made_up_sweep import D, N, a_score, made_up_sweep


def nine_more(point: Mapping[str, Any], seed: int) -> dict[str, float]:
    return {"final_return": a_score(point, seed)["final_return"] + 9}


class TestCompare:
    def test_what_two_sweeps_share_is_set_side_by_side(self, tmp_path: Path) -> None:
        first = made_up_sweep(tmp_path / "a", [f"{D} = 1, 8", f"{N} = 0"])
        second = made_up_sweep(tmp_path / "b", [f"{D} = 8, 70", f"{N} = 0"], score=nine_more)
        (shared,) = compare(first, second)
        assert shared.point == "asynchronous, delay 8"
        low, high = difference_interval(shared.others, shared.first)
        line = comparison_table([shared]).splitlines()[1]
        assert line.endswith(f"  9.00 [{low:.2f}, {high:.2f}]")
        assert comparison_table(compare(second, first)).splitlines()[1].split("  ")[-1].startswith("-9.00 [")

    def test_runs_are_compared_by_their_closing_tables(self, tmp_path: Path) -> None:
        for name, scores in (("a", [1.0, 2.0]), ("b", [5.0, 6.0])):
            (tmp_path / name).mkdir()
            (tmp_path / name / "report.json").write_text(f'[{{"agent": "trained", "scores": {scores}}}]')
        text = comparison_table(compare(tmp_path / "a", tmp_path / "b"), "iqm")
        assert text.splitlines()[1].split()[:2] == ["trained", "1.50"]
        assert "4.00 [3.00, 5.00]" in text

    def test_what_cannot_be_compared_is_refused(self, tmp_path: Path) -> None:
        first, second = made_up_sweep(tmp_path / "a", [f"{D} = 1"]), made_up_sweep(tmp_path / "b", [f"{D} = 8"])
        with pytest.raises(ValueError, match="share no point"):
            compare(first, second)
        with pytest.raises(ValueError, match="holds no result"):
            compare(first, tmp_path)
