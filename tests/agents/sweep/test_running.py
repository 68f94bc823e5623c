"""What a sweep shows of its trials while they run."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path

import pytest

from async_wrappers.agents.experiment.metrics import ProgressFile
from async_wrappers.agents.sweep.plan import Trial
from async_wrappers.agents.sweep.running import TrialsShown, progress_of


class Shown:
    """Four trials, two at a time, and a clock that is set by hand."""

    def __init__(self, place: Path, trial_seconds: float | None = None) -> None:
        self.now = 0.0
        self.places = [place / f"{number:04d}" for number in range(4)]
        for each in self.places:
            each.mkdir()
        trials = {each: Trial(each.name, "", {"A.delay": 1}, 0, 5) for each in self.places}
        self.shown = TrialsShown(trials, 2, trial_seconds, clock=lambda: self.now, every=60.0)

    def tell(self, number: int, left: float | None, frames: int = 500, rate: float = 20.0) -> None:
        facts = {"doing": "iteration 1 (2 of 8)", "frames": frames, "rate": rate, "left": left}
        (self.places[number] / ProgressFile.NAME).write_text(json.dumps(facts))

    def finish(self, number: int, seconds: float) -> None:
        (self.places[number] / "result.json").write_text(json.dumps({"metrics": {}, "seconds": seconds}))
        self.shown.change(self.places[number], "finished")


def test_a_running_trial_tells_its_frames_its_rate_and_what_is_left(tmp_path: Path) -> None:
    sweep = Shown(tmp_path)
    with sweep.shown as shown:
        shown.change(sweep.places[0], "running")
        shown.change(sweep.places[1], "running")
        sweep.now = 10.0
        sweep.tell(0, 90.0)
        assert shown.in_words() == (
            "0 of 4 done, about 3 min left, "  # 90 s each, two at a time
            "2 running: 0000 (delay 1) iteration 1 (2 of 8), 500 frames, 20 frames/s, about 90 s left; "
            "0001 (delay 1) begun 10 s ago"
        )


def test_what_is_left_of_all_is_by_those_that_have_ended_and_waits_for_the_slowest(tmp_path: Path) -> None:
    sweep = Shown(tmp_path, trial_seconds=30.0)
    with sweep.shown as shown:
        assert shown.left() == "about 60 s left"
        shown.change(sweep.places[0], "running")
        shown.change(sweep.places[1], "running")
        sweep.now = 40.0
        sweep.finish(0, 40.0)
        shown.change(sweep.places[2], "running")
        sweep.tell(1, 20.0)
        assert shown.left() == "about 50 s left"  # 20 s, 40 s and 40 s, by two
        sweep.tell(2, 300.0)
        assert shown.left() == "about 5 min left"


def test_what_a_killed_process_has_left_is_not_taken_for_the_next_ones(tmp_path: Path) -> None:
    sweep = Shown(tmp_path)
    sweep.tell(0, 90.0)
    with sweep.shown as shown:
        assert progress_of(sweep.places[0]) == {}
        shown.change(sweep.places[0], "running")
        assert progress_of(sweep.places[0])["left"] is None
        sweep.tell(0, 80.0)
        shown.change(sweep.places[0], "cut off")
        assert not list(sweep.places[0].iterdir())


def test_a_bar_ends_with_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    sweep = Shown(tmp_path)
    with sweep.shown:
        for number in range(4):
            sweep.finish(number, 40.0)
    assert terminal.getvalue().rstrip().endswith(", 4 of 4 done")


@pytest.mark.parametrize("text", ["", "[1]", "{", "null"])
def test_a_file_that_is_being_copied_is_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / ProgressFile.NAME).write_text(text)
    assert progress_of(tmp_path) == {}


def test_lines_are_printed_where_there_is_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Shown(tmp_path)
    sweep.shown = TrialsShown(sweep.shown._trials, 2, None, every=0.01)
    with sweep.shown as shown:
        shown.change(sweep.places[0], "running")
        sweep.tell(0, 90.0)
        until = time.monotonic() + 30
        while "500 frames" not in (said := capsys.readouterr().err) and time.monotonic() < until:
            time.sleep(0.01)
    assert "sweep: 0 of 4 done, about 3 min left, 1 running: 0000 (delay 1) iteration 1 (2 of 8), 500 frames" in said


def test_a_runs_file_is_written_every_two_seconds_at_most_and_removed(tmp_path: Path) -> None:
    now = [0.0]
    file = ProgressFile(tmp_path, lambda: now[0])
    for second, frames in ((0.0, 1), (1.9, 2), (2.0, 3), (3.0, 4)):
        now[0] = second
        file.write("iteration 0 (1 of 1)", frames, 10.0, None)
        assert progress_of(tmp_path)["frames"] == (1 if second < 2 else 3)
    file.remove()
    assert progress_of(tmp_path) == {}
