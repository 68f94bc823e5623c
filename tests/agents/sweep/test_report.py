"""The page of a sweep: figures, numbers, failures and commands in one file; and two results side by side."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.experiment.evaluate import difference_interval
from async_wrappers.agents.sweep.figures import draw_scores, write_figure
from async_wrappers.agents.sweep.plan import read_plan
from async_wrappers.agents.sweep.result_pages import compare, comparison_table, write_report
from async_wrappers.agents.sweep.results import read_rows
from async_wrappers.agents.sweep.sweeping import sweep
from async_wrappers.agents.sweep.view import make_view
from tests.worlds.made_up_sweep import D, N, a_score, made_up_sweep, view
from tests.worlds.sweeps import play


class Page(HTMLParser):
    """What a page refers to, and what it says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_the_page_holds_figures_numbers_failures_and_commands_and_needs_nothing_else(tmp_path: Path) -> None:
    base_dir = made_up_sweep(tmp_path / "<s>")
    directory = base_dir / "trials" / "0007"
    (directory / "result.json").unlink()
    (directory / "failure.json").write_text('{"error": "ZeroDivisionError: a < b"}')
    found = view(base_dir)
    _, svg = write_figure(draw_scores(found), base_dir / "figures" / "score")
    page = Page(write_report(base_dir, found, {"Score": svg}).read_text())
    (source,) = page.sources
    assert base64.b64decode(source.removeprefix("data:image/svg+xml;base64,")) == svg.read_bytes()
    assert "Sweep <s>" in page.cells
    assert "ZeroDivisionError: a < b" in page.cells
    assert any("17 of 18 trials have finished" in cell for cell in page.cells)
    commands = [cell for cell in page.cells if cell.startswith("python train.py")]
    assert len(commands) == 17
    assert "--gin_files configs/dqn/cartpole.gin --gin_bindings 'RealtimeDelay.delay = 1'" in commands[0]
    score = found.panels[0].curves["sequential"][0]
    assert f"{score.value:.5g}" in page.cells
    assert f"[{score.low:.5g}, {score.high:.5g}]" in page.cells


def test_values_from_trials_are_escaped_in_text_and_in_attributes(tmp_path: Path) -> None:
    base_dir = made_up_sweep(tmp_path / "s")
    directory = base_dir / "trials" / "0000"
    (directory / "result.json").unlink()
    (directory / "failure.json").write_text(json.dumps({"error": "<script>alert('x')</script>"}))
    found = view(base_dir)
    _, svg = write_figure(draw_scores(found), base_dir / "score")
    text = write_report(base_dir, found, {'"><script>': svg}).read_text()
    assert "<script" not in text
    assert "<script>alert('x')</script>" in Page(text).cells


def test_a_report_lists_no_trial_with_a_result_as_failed(tmp_path: Path) -> None:
    sweep(play, {"delay": [1, 8]}, 1, tmp_path)
    plan = read_plan(tmp_path)
    view = make_view(plan, read_rows(tmp_path), metric="score", statistic="mean", x=None)
    (tmp_path / "trials" / "0001" / "failure.json").write_text('{"error": "killed by SIGKILL"}')  # of earlier versions
    assert "killed by SIGKILL" not in write_report(tmp_path, view, {}).read_text()
    (tmp_path / "trials" / "0001" / "result.json").unlink()
    assert "killed by SIGKILL" in write_report(tmp_path, view, {}).read_text()


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

    def test_a_table_is_compared_by_the_names_in_its_columns_or_as_a_whole_with_a_run(self, tmp_path: Path) -> None:
        sweep, run, table = made_up_sweep(tmp_path / "s", [f"{D} = 1, 8"]), tmp_path / "run", tmp_path / "t.csv"
        table.write_text("# by hand\nreturn,delay\n1,1\n2,1\n30,8\n")
        view_of = view(sweep)
        (name,) = view_of.panels[0].curves
        named = tmp_path / "named.csv"
        named.write_text(f"return,agent,delay\n4,{name},1\n6,{name},1\n")
        (shared,) = compare(sweep, named)
        assert (shared.point, shared.others) == (f"{name}, delay 1", [4, 6])
        assert compare(sweep, named, metric="final_return") == [shared]
        run.mkdir()
        (run / "report.json").write_text('[{"agent": "random", "scores": [0]}, {"agent": "trained", "scores": [9, 9]}]')
        (shared,) = compare(run, named)
        assert (shared.point, shared.first, shared.others) == (f"trained and {name}, delay 1", [9, 9], [4, 6])
        with pytest.raises(ValueError, match=r"share no point: .*: a run is compared with what has one point"):
            compare(run, table)  # which has two
        table.write_text("epoch,loss\n1,2\n")
        with pytest.raises(ValueError, match=r"t\.csv must have a column return, got epoch, loss, without return"):
            compare(sweep, table)

    def test_what_cannot_be_compared_is_refused(self, tmp_path: Path) -> None:
        first, second = made_up_sweep(tmp_path / "a", [f"{D} = 1"]), made_up_sweep(tmp_path / "b", [f"{D} = 8"])
        with pytest.raises(ValueError, match="share no point"):
            compare(first, second)
        with pytest.raises(ValueError, match="holds no result"):
            compare(first, tmp_path)
        with pytest.raises(ValueError, match=r"there is no directory .*/nowhere: name a --base_dir"):
            compare(first, tmp_path / "nowhere")
