"""What `benchmarks.same_results` takes for equal, and which kept result it finds again."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.families.actor_critic import terms
from benchmarks.same_results import (
    ADDED,
    GONE,
    LATENCIES,
    ROOT,
    TERMS,
    Case,
    CaseFailed,
    Kept,
    cases,
    differences,
    target_copies,
)

CONFIG = """
C51Agent.target_update_period = 100
C51Agent.update_period = 4

# Bound, but not used when the run began:
DQNAgent.target_update_period = 8_000
"""
RESULT: dict[str, Any] = {
    "arrays": Counter({"float32[2] aa": 2, "int64[1] bb": 1}),
    "lines": [{"iteration": 0, "return": float("nan"), "frames": 500}],
}


def test_a_result_equals_itself_with_nan_and_after_a_way_through_a_file(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "a" * 40)
    kept.recordings.mkdir(parents=True)
    again = kept.result("one case", Case("a.gin"), lambda: RESULT)
    assert differences(RESULT, RESULT) == differences(RESULT, again) == differences(again, RESULT) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arrays": Counter({"float32[2] aa": 1, "int64[1] bb": 1})}, ["only before: float32[2] aa"]),
        ({"lines": [{**RESULT["lines"][0], "frames": 501}]}, ["iteration 0, frames: 500 before, 501 now"]),
        ({"lines": []}, ["the numbers of iterations differ"]),
    ],
)
def test_what_only_one_result_holds_is_said(changed: dict[str, Any], said: list[str]) -> None:
    assert differences(RESULT, {**RESULT, **changed}) == said


def test_times_and_rates_are_no_difference_at_any_depth() -> None:
    old, new = (
        {"lines": [{"frames": 9, "train_seconds": time, "train_rates": {"ActRate": time, "PolicyLag": 0.5}}]}
        for time in (1.0, 2.0)
    )
    assert differences(old, new) == []
    new["lines"][0]["train_rates"]["PolicyLag"] = 0.0  # type: ignore[index]
    assert differences(old, new) == ["iteration 0, train_rates: {'PolicyLag': 0.5} before, {'PolicyLag': 0.0} now"]


def test_reports_that_scripts_printed_are_compared_by_name_in_both_directions() -> None:
    old, new = (
        {"printed": [["tickets", {"frames": 1, "late": 0}]]},
        {"printed": [["tickets", {"frames": 1, "lost": 0}]]},
    )
    assert differences(old, new) == ["tickets: late, lost"]
    assert differences(old, {"printed": []}) == ["the scripts printed results of different things"]


def test_what_reports_tell_since_a_later_version_is_no_difference_at_any_depth() -> None:
    old = {"printed": [["run", {"fresh": 5, "frames": {"total": 9}}]], "lines": [{"return": 3.0}]}
    new = {
        "printed": [["run", {"fresh": 5, "frames": {"total": 9, "paused": 0}, "off_policy": {"Rho": 1.0}}]],
        "lines": [{"return": 3.0, "stopped": None}],
    }
    assert {"paused", "off_policy", "stopped"} <= ADDED
    assert differences(old, new) == []
    assert differences(new, old) == ["run: frames, off_policy", "iteration 0, stopped: None before, None now"]
    new["printed"][0][1]["frames"]["total"] = 8  # type: ignore[index]
    assert differences(old, new) == ["run: frames"]


def test_what_reports_told_until_a_version_is_no_difference() -> None:
    old, new = {"printed": [["run", dict.fromkeys(GONE, 1)]]}, {"printed": [["run", {}]]}
    assert differences(old, new) == []
    assert differences(new, old) == [f"run: {', '.join(sorted(GONE))}"]
    assert differences(old, {"printed": [["run", dict.fromkeys(GONE, 2)]]}) == [f"run: {', '.join(sorted(GONE))}"]


def test_every_term_of_v_trace_has_a_case() -> None:
    assert set(TERMS) == {kind.__name__ for kind in terms.Term.__subclasses__() if kind.__module__ == terms.__name__}


def test_the_files_that_cases_name_are_there() -> None:
    named = {case.gin_file for case in cases().values() if case.gin_file}
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_copies_are_counted_by_the_periods_that_the_run_used() -> None:
    assert target_copies(CONFIG, updates=324) == 12
    assert target_copies(CONFIG + "X.update_period = 1\n", updates=324) == 12  # below the line: bound, not used
    assert target_copies("A.update_period = 4\nDQNAgent.target_update_period = 8_000\n" + CONFIG, updates=324) == 0
    with pytest.raises(CaseFailed, match="update_period"):
        target_copies("", updates=324)


def test_a_kept_result_is_found_by_all_that_it_depends_on(tmp_path: Path) -> None:
    kept, case = Kept(tmp_path, "a" * 40), Case("a.gin", replays=LATENCIES)
    kept.recordings.mkdir(parents=True)
    (kept.recordings / LATENCIES).write_text("[0.1]")
    made: list[str] = []

    def make() -> dict[str, Any]:
        made.append("once more")
        return {"lines": []}

    for _ in range(2):
        kept.result("one", case, make)
    assert len(made) == 1
    kept.result("one", dataclasses.replace(case, bindings=("A.b = 1",)), make)
    Kept(tmp_path, "b" * 40).directory.mkdir()
    Kept(tmp_path, "b" * 40).result("one", case, make)
    (kept.recordings / LATENCIES).write_text("[0.2]")
    kept.result("one", case, make)
    assert len(made) == 4
