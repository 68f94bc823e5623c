"""The table of a sweep, as CSV that no spreadsheet runs and as Parquet; finished trials in TensorBoard and W&B."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from async_wrappers.agents.experiment.metrics import EventWriter
from async_wrappers.agents.sweep.grid import Point
from async_wrappers.agents.sweep.plan import SweepPlan, read_plan
from async_wrappers.agents.sweep.results import (
    read_csv,
    read_rows,
    results_in,
    seconds_here,
    write_results,
    write_to_trackers,
)
from async_wrappers.agents.sweep.sweeping import sweep
from tests.worlds.forks import fork_trials
from tests.worlds.sweeps import facts, play

__all__ = ["fork_trials"]

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


@pytest.mark.usefixtures("fork_trials")
def test_the_table_is_written_as_parquet_too_where_pyarrow_is_installed(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    sweep(play, {"delay": [1, 8], "agent": ["dqn", 5]}, 1, tmp_path, jobs=2)
    table = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    expected = [{**row, "agent": str(row["agent"])} for row in read_rows(tmp_path)]
    assert table == expected


@pytest.mark.usefixtures("fork_trials")
def test_hyperparameters_stay_shown_where_the_clock_is_set_back_after_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play_and_write(point: dict[str, Any], seed: int, directory: Path) -> dict[str, float]:
        monkeypatch.setattr("time.time", lambda: 2e9)
        EventWriter(directory / "metrics" / "tensorboard", purge_step=0).close()
        return {"score": 1.0}

    sweep(play_and_write, {"delay": [1]}, 1, tmp_path)
    monkeypatch.undo()
    written = EventAccumulator(str(tmp_path / "trials" / "0000" / "metrics" / "tensorboard")).Reload()
    assert written.Scalars("sweep/score")[0].value == 1.0


def play_with_gaps(point: dict[str, Any], seed: int, directory: Path) -> dict[str, Any]:
    return {"score": 10.0 * point["delay"], "curve": [1.0, 2.5], "wrong": float("nan"), "none": []}


def events(directory: Path) -> list[Path]:
    return list((directory / "metrics" / "tensorboard").glob("*.hparams"))


@pytest.mark.usefixtures("fork_trials")
def test_each_finished_trial_is_in_the_tab_of_hyperparameters_once(tmp_path: Path) -> None:
    sweep(play_with_gaps, {"delay": [1, 8], "agent": ["dqn"], "torso": [None]}, 1, tmp_path, jobs=2)
    sweep(play_with_gaps, {"delay": [1, 8], "agent": ["dqn"], "torso": [None]}, 1, tmp_path)
    assert [len(events(tmp_path / "trials" / name)) for name in ("0000", "0001")] == [1, 1]

    written = EventAccumulator(str(tmp_path / "trials" / "0001" / "metrics" / "tensorboard")).Reload()
    point = written.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data
    start = metadata.parse_session_start_info_plugin_data(point.content)
    assert start.group_name == "0001"
    assert start.hparams["delay"].number_value == 8
    assert start.hparams["agent"].string_value == "dqn"
    assert start.hparams["torso"].string_value == "None"
    last = {tag: written.Scalars(tag)[0].value for tag in written.Tags()["scalars"]}
    assert last.pop("sweep/seconds") >= 0
    assert last == {"sweep/score": 80.0, "sweep/curve": 2.5}


@pytest.mark.usefixtures("fork_trials")
def test_a_trial_that_has_not_finished_is_not_written(tmp_path: Path) -> None:
    sweep(lambda *_: 5, {"delay": [1]}, 1, tmp_path)
    write_to_trackers(tmp_path, read_plan(tmp_path), None)
    assert not events(tmp_path / "trials" / "0000")


class FakeWandb:
    """What of the library is called, and with what."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def init(self, **arguments: Any) -> Any:
        run: dict[str, Any] = {**arguments, "logged": [], "finished": 0}
        self.runs.append(run)

        def finish() -> None:
            run["finished"] += 1

        def log(numbers: Mapping[str, float], step: int) -> None:
            run["logged"].append((step, dict(numbers)))

        run["summary"] = {}
        return SimpleNamespace(id=f"run{len(self.runs)}", log=log, summary=run["summary"], finish=finish)


@pytest.mark.usefixtures("fork_trials")
def test_each_finished_trial_is_a_run_of_weights_and_biases_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for _ in range(2):
        sweep(play_with_gaps, {"delay": [1, 8]}, 1, tmp_path / "s", jobs=2, wandb_project="delays")
    assert [(run["project"], run["group"], run["name"]) for run in fake.runs] == [
        ("delays", "s", "s/0000"),
        ("delays", "s", "s/0001"),
    ]
    run = fake.runs[1]
    assert run["config"] == {"delay": 8, "seed": 0}
    assert run["logged"] == [(0, {"curve": 1.0}), (1, {"curve": 2.5})]
    assert run["summary"]["score"] == 80.0
    assert run["finished"] == 1


@pytest.mark.usefixtures("fork_trials")
def test_without_a_project_nothing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sweep(play_with_gaps, {"delay": [1]}, 1, tmp_path)
    write_to_trackers(tmp_path, read_plan(tmp_path), None)
    assert not fake.runs


# The tables of other machines.


@pytest.mark.usefixtures("fork_trials")
def test_trials_of_another_machines_table_are_not_run_again(tmp_path: Path, capsys: Any) -> None:
    grid = {"delay": [1, 8]}
    sweep(play, grid, 3, tmp_path / "whole")
    sweep(play, grid, 2, tmp_path / "there")
    sweep(play, grid, 1, tmp_path / "here")
    capsys.readouterr()
    sweep(play, grid, 3, tmp_path / "here", finished=[tmp_path / "there" / "results.csv"])
    assert "2 finished trials taken from" in capsys.readouterr().out
    assert facts(tmp_path / "here") == facts(tmp_path / "whole")
    played = {path.parent.name for path in (tmp_path / "here" / "trials").glob("*/starts")}
    assert played == {f"{number:04}" for number in (*range(2), *range(4, 6))}
    assert len(seconds_here((tmp_path / "here" / "trials").glob("*"))) == 4


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=4).filter(lambda name: name != "seconds"),
        st.floats() | st.lists(st.floats(), min_size=1, max_size=3),
        max_size=3,
    )
)
def test_a_result_is_that_of_its_table_bit_for_bit(tmp_path_factory: Any, metrics: dict[str, Any]) -> None:
    place = tmp_path_factory.mktemp("table")
    plan = SweepPlan([Point("", {"x": "1"}), Point("=a", {"x": "2.5"})], ["x"], 1, [], "f")
    held = {"metrics": metrics, "seconds": 0.1}
    (place / "trials" / "0001").mkdir(parents=True)
    (place / "trials" / "0001" / "result.json").write_text(json.dumps(held))
    assert repr(results_in(write_results(place, plan), plan)) == repr({"0001": held})


def test_a_table_that_is_not_of_this_sweep_is_refused_and_nothing_is_begun(tmp_path: Path) -> None:
    plan = SweepPlan([Point("", {"x": "1"})], ["x"], 1, [], "f")
    header = "arm,x,seed,iteration,metric,value,trial\n"
    for text, sentence in {
        "": "with the columns arm, x, seed, iteration, metric, value, trial, got .* with no row",
        "arm,seed\n,0\n": "got .* with arm, seed",
        header + ",2,0,,score,1.0,0000\n": "of another sweep: it has a trial of arm = , x = 2, seed = 0",
        header + ",1,0,1,curve,1.0,0000\n": "damaged in line 2 .*: copy it again",
        header + ",1,0,,score,high,0000\n": "damaged in line 2 .*'high'.*: copy it again",
        header + ",1,0,,score\n": "damaged, a row of it is not whole",
        header + ",1,0,,score,1.0,0000,\n": "damaged, a row of it is not whole",
    }.items():
        (tmp_path / "table.csv").write_text(text)
        with pytest.raises(ValueError, match=sentence):
            results_in(tmp_path / "table.csv", plan)
    with pytest.raises(ValueError, match=r"finished must be a sweep's results.csv, got .*nowhere.csv \(.*No such file"):
        sweep(play, {"x": [1]}, 1, tmp_path / "s", finished=[tmp_path / "nowhere.csv"])
    assert not (tmp_path / "s").exists()


def played(place: Path, trials: int = 3) -> tuple[SweepPlan, list[str]]:
    """The plan of a sweep whose trials have finished, and the lines of its table."""
    points = [Point("", {"x": "1"}), Point("=a", {"x": "2.5"})]
    plan = SweepPlan(points, ["x"], trials, [], "f")
    for trial in plan.trials():
        metrics = {"score": float(trial.seed % 997), "curve": [1.0, 2.5, 4.0]}
        (place / "trials" / trial.name).mkdir(parents=True)
        (place / "trials" / trial.name / "result.json").write_text(json.dumps({"metrics": metrics, "seconds": 0.5}))
    return plan, write_results(place, plan).read_text().splitlines(keepends=True)


def refuse(place: Path, plan: SweepPlan, lines: list[str]) -> None:
    table = place / "copied.csv"
    table.write_text("".join(lines))
    with pytest.raises(ValueError, match=r"copied\.csv (is damaged.*: copy it again|with .*)$"):
        results_in(table, plan)


def test_a_table_that_has_lost_any_line_or_has_any_twice_is_refused(tmp_path: Path) -> None:
    plan, lines = played(tmp_path)
    for place in range(len(lines)):
        refuse(tmp_path, plan, lines[:place] + lines[place + 1 :])
        refuse(tmp_path, plan, lines[: place + 1] + lines[place:])
    for length in range(len(lines)):
        refuse(tmp_path, plan, lines[:length])
    refuse(tmp_path, plan, [*lines[:6], *lines[11:16], *lines[6:11], *lines[16:]])  # two trials in the other order


@pytest.mark.parametrize("value", ["nan", "-1", "inf", "1e9", "", "7"])
def test_a_table_with_another_value_is_refused(tmp_path: Path, value: str) -> None:
    plan, lines = played(tmp_path)
    for place in range(1, len(lines)):
        cells = lines[place].split(",")
        refuse(tmp_path, plan, [*lines[:place], ",".join([*cells[:5], value, *cells[6:]]), *lines[place + 1 :]])


@given(st.data())
def test_damage_of_any_kind_to_a_table_is_refused_or_changes_nothing(tmp_path_factory: Any, data: Any) -> None:
    place = tmp_path_factory.mktemp("table")
    plan, lines = played(place, 2)
    whole = "".join(lines)
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(len(whole), begin + 9)))
    table = place / "copied.csv"
    table.write_text(whole[:begin] + data.draw(st.text(",.-+0123456789ainf\n\"'", max_size=4)) + whole[end:])
    try:
        found = results_in(table, plan)
    except ValueError as error:
        assert "copied.csv" in str(error)
    else:
        assert found == results_in(place / "results.csv", plan)


def test_a_table_with_the_line_ends_of_another_system_is_taken(tmp_path: Path) -> None:
    plan, lines = played(tmp_path)
    (tmp_path / "copied.csv").write_bytes("".join(lines).replace("\n", "\r\n").encode())
    assert results_in(tmp_path / "copied.csv", plan) == results_in(tmp_path / "results.csv", plan)
    assert len(results_in(tmp_path / "copied.csv", plan)) == 6


def test_a_table_of_an_older_version_is_taken_unless_it_can_be_seen_to_have_lost_a_row(tmp_path: Path) -> None:
    plan, lines = played(tmp_path)
    lines = [f"{line.rpartition(',')[0]}\n" for line in lines]
    (tmp_path / "copied.csv").write_text("".join(lines))
    assert results_in(tmp_path / "copied.csv", plan) == results_in(tmp_path / "results.csv", plan)
    for place in range(1, len(lines)):
        refuse(tmp_path, plan, lines[:place] + lines[place + 1 :])
        refuse(tmp_path, plan, lines[: place + 1] + lines[place:])
        cells = lines[place].split(",")
        refuse(tmp_path, plan, [*lines[:place], ",".join([*cells[:5], "nan", *cells[6:]]), *lines[place + 1 :]])
        if cells[4] == "seconds":
            refuse(tmp_path, plan, [*lines[:place], ",".join([*cells[:5], "-1", *cells[6:]]), *lines[place + 1 :]])


def test_a_sweep_that_has_grown_by_arms_takes_the_table_of_before(tmp_path: Path) -> None:
    plan, lines = played(tmp_path)
    grown = SweepPlan([*plan.points, Point("b", {"x": "1", "y": "3"})], ["x", "y"], 3, [], "f")
    (tmp_path / "copied.csv").write_text("".join(lines))
    of = {(trial.arm, trial.seed_number): trial.name for trial in grown.trials()}
    before = {of[trial.arm, trial.seed_number]: trial.name for trial in plan.trials()}
    taken = results_in(tmp_path / "copied.csv", grown)
    assert taken == {name: results_in(tmp_path / "copied.csv", plan)[own] for name, own in before.items()}
    assert len(taken) == 6
    bound = SweepPlan([Point(each.arm, {**each.bindings, "y": "3"}) for each in plan.points], ["x", "y"], 3, [], "f")
    with pytest.raises(ValueError, match="of another sweep: it has a trial of arm = , x = 1, y = , seed = 0"):
        results_in(tmp_path / "copied.csv", bound)
    refuse(tmp_path, grown, lines[:3] + lines[4:])


def test_the_table_of_our_scores_is_taken_over() -> None:
    table = Path(__file__).parents[3] / "docs" / "results" / "minatar.csv"
    rows = read_csv(table)
    keys = list(rows[0])[1 : list(rows[0]).index("seed")]
    points = {(row["arm"], *(row[key] for key in keys)): None for row in rows}
    plan = SweepPlan([Point(each[0], dict(zip(keys, each[1:], strict=True))) for each in points], keys, 5, [], "f")
    assert len(results_in(table, plan)) == len({row["trial"] for row in rows}) >= 225
