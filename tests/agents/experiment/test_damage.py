"""Damaged checkpoints: the short version of `benchmarks.damage`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.damage import make_cases, table, trials


def test_a_damaged_run_is_right_or_says_what_it_is_and_never_begins_anew(tmp_path: Path) -> None:
    counts = trials(make_cases(tmp_path, ("turn-based",)), 24, 1, tmp_path / "damaged")
    assert counts.total() == 24
    assert not any(outcome == "FAILED" for _, _, outcome in counts), table(counts)
    assert {outcome for _, _, outcome in counts} == {"right", "less", "earlier", "refused"}
