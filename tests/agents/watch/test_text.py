"""The terminal's face."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from async_wrappers.agents.watch import text
from async_wrappers.agents.watch.watcher import Watcher
from tests.agents.watch.test_sweep import sweep_amid
from tests.worlds.recorded_run import hold, show_live, snapshot, write_run


def printed(*places: Path, width: int = 110) -> str:
    """Return what is printed into a file."""
    file = StringIO()
    text.show(Watcher(places), Console(file=file, width=width, highlight=False))
    return file.getvalue()


def test_a_run_is_printed_once_where_the_output_is_no_terminal(tmp_path: Path) -> None:
    shown = printed(write_run(tmp_path / "mine"))
    for words in (
        "mine stopped",
        "environment Drifting-v0, agent DQNAgent, 9 weights, delay 2, noops 1",
        "iteration 2 of 4, 200 training frames, 14 episodes, 50 frames/s, 4 s so far",
        "50%",
        "return of an episode in training    ▁█  12 [10.8, 13.2]",
        "Loss                                █▁  0.5",
        "time: acting 25%, losses 50%, other 25%",
        "newest episodes: train 8: 13, train 9: 14, eval 2: 30, eval 3: 31",
        "machine: ",
    ):
        assert words in shown


def test_a_live_run_has_a_row_for_each_worker_and_one_for_its_frames(tmp_path: Path) -> None:
    lines = printed(show_live(tmp_path / "live", snapshot())).splitlines()
    (told,) = [line for line in lines if "75.0% new decision, 25.0% default action in 5 s (75.0% " in line]
    assert "live: " in told
    rows = {line[2:11]: line[12:68] for line in lines if "worker " in line}
    assert rows["worker  0"].strip() == "██"
    assert rows["worker  1"].strip() == "░░░"
    (frames,) = [line for line in lines if line[2:8] == "frames" and "▮ new decision, · default action" in line]
    assert {"▮", "·"} <= set(frames[12:68])
    assert any("ages in frames: 2: 56%, 3: 44%" in line for line in lines)


@pytest.mark.parametrize(
    ("over", "age", "words"), [(True, 60, "the phase has ended"), (False, 60, "no frame for 60 s")]
)
def test_a_live_run_that_has_ended_or_is_silent_says_so(tmp_path: Path, over: bool, age: float, words: str) -> None:
    assert words in printed(show_live(tmp_path, snapshot(over, age)))


def test_a_sweep_has_its_plan_with_each_trials_state_and_what_is_left(tmp_path: Path) -> None:
    sweep_amid(tmp_path / "s")
    shown = printed(tmp_path / "s")
    for words in ("s running", "3 of 6 trials finished, 1 running, 1 waiting, 1 failed, about 18 s left", "gamma 0.5 "):
        assert words in shown
    assert "2  " in next(line for line in shown.splitlines() if "gamma 0.9 " in line)


def test_several_runs_are_a_table_with_a_curve_for_each_kind(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / f"{seed}", seed=seed)
    hold(tmp_path / "0")
    show_live(tmp_path / "0", snapshot())
    shown = printed(tmp_path)
    assert "2/4" in shown
    assert "12.5 [12, 13]" in shown
    assert "75.0% new decision" in shown


def test_damage_is_printed_as_a_sentence(tmp_path: Path) -> None:
    (write_run(tmp_path) / "report.json").write_text("{")
    assert "report.json is damaged" in printed(tmp_path, width=400).splitlines()[0]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_longer_than_the_terminal(tmp_path: Path, width: int) -> None:
    show_live(write_run(tmp_path), snapshot())
    assert max(map(len, printed(tmp_path, width=width).splitlines())) <= width


def test_in_a_terminal_it_is_drawn_again_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    file: Any = StringIO()
    with pytest.raises(KeyboardInterrupt):
        text.show(
            Watcher([write_run(tmp_path / "mine")]), Console(file=file, width=100, height=50, force_terminal=True)
        )
    assert slept == [text.EVERY] * 3
    assert file.getvalue().count("mine stopped") + file.getvalue().count("mine ") >= 3
