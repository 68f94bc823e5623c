"""What a live run showed last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers.agents.watch.browser import Page
from async_wrappers.agents.watch.last_shown import picture_in, read_live, read_picture
from async_wrappers.agents.watch.reading import Folder
from async_wrappers.agents.watch.watched_run import read_run
from async_wrappers.agents.watch.watcher import Watcher
from tests.worlds.recorded_run import FACTS, hold, show_live, snapshot, words_in, write_run


def test_a_live_run_shows_its_counts_its_last_seconds_and_its_time_line(tmp_path: Path) -> None:
    live = read_live(Folder(show_live(tmp_path, snapshot())))
    assert live is not None
    assert (live.fresh_share, live.facts["late"], live.recent["fresh_share"]) == (0.75, 5, 0.75)
    assert live.inferences == [(0, -5.0, 30.0, True), (1, 10.0, 40.0, False)]
    assert live.frames[:2] == [(0.0, None), (16.0, 2)]
    assert live.age < 5


def test_frames_of_a_going_chunk_are_a_share_of_their_own_in_both_faces(tmp_path: Path) -> None:
    numbers = snapshot()
    numbers["chunk"], numbers["recent"]["chunk_share"], numbers["line"]["chunks"] = 36, 0.2, [1, 3, 99]
    directory = show_live(tmp_path, numbers, under=".")
    live = read_live(Folder(directory))
    assert live is not None and live.chunks == [1, 3]  # there are no hundred frames
    assert live.shares == pytest.approx({"new decision": 0.75, "going chunk": 0.15, "default action": 0.1})
    assert live.recent_shares == pytest.approx({"new decision": 0.75, "going chunk": 0.2, "default action": 0.05})
    watcher = Watcher([directory])
    html = Page(watcher).parts(watcher.read(), watcher.read().runs[0])["live"]
    assert words_in(html, "going chunk", "default action", "20.0 %", "15.0 %", 'class="chunk"') == []
    without = read_live(Folder(show_live(tmp_path / "older", snapshot(), under=".")))
    assert without is not None and without.shares == {"new decision": 0.75, "default action": 0.25}


def test_a_run_that_is_not_live_shows_nothing(tmp_path: Path) -> None:
    assert read_live(Folder(tmp_path)) is None
    assert picture_in(Folder(tmp_path)) is None


@pytest.mark.parametrize(
    ("over", "age", "state"), [(False, 0, "running"), (False, 60, "stopped"), (True, 60, "finished")]
)
def test_a_runner_alone_holds_no_lock_so_its_snapshots_say_whether_it_runs(
    tmp_path: Path, over: bool, age: float, state: str
) -> None:
    assert read_run(Folder(show_live(tmp_path, snapshot(over, age), under="."))).state == state


def test_a_live_runs_frames_count_before_its_phase_is_over(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    hold(directory)
    before = read_run(Folder(directory)).progress.frames
    show_live(directory, snapshot(frames=40))
    assert read_run(Folder(directory)).progress.frames == before + 40
    show_live(directory, snapshot(over=True, frames=40))
    assert read_run(Folder(directory)).progress.frames == before
    assert FACTS["environment"] == read_run(Folder(directory)).recorded.facts["environment"]


GREY = np.arange(12, dtype=np.uint8).reshape(3, 4)
PLANES = np.zeros((4, 3, 5), np.bool_)
PLANES[1, 2, 4] = True


@pytest.mark.parametrize(
    ("picture", "shape", "pixel", "colour"),
    [
        (GREY, (3, 4, 3), (2, 3), (11, 11, 11)),
        (GREY > 5, (3, 4, 3), (2, 3), (255, 255, 255)),
        (GREY[:, :, None], (3, 4, 3), (1, 0), (4, 4, 4)),
        (np.stack([GREY, GREY + 1]), (3, 4, 3), (0, 0), (1, 1, 1)),  # a stack, the newest last
        (np.stack([GREY, GREY, GREY + 9], axis=2), (3, 4, 3), (0, 1), (1, 1, 10)),
        (PLANES, (3, 5, 3), (2, 4), (0xD5, 0x5E, 0)),
    ],
)
def test_an_observation_that_is_an_image_becomes_colours(
    tmp_path: Path, picture: Any, shape: tuple[int, ...], pixel: tuple[int, int], colour: tuple[int, ...]
) -> None:
    folder = Folder(show_live(tmp_path, snapshot(), picture))
    name = picture_in(folder)
    assert name is not None
    colours = read_picture(folder, name)
    assert (colours.shape, colours.dtype) == (shape, np.uint8)
    assert tuple(colours[pixel]) == colour


def test_a_damaged_picture_is_one_sentence(tmp_path: Path) -> None:
    folder = Folder(show_live(tmp_path, snapshot(), GREY))
    path = tmp_path / "live" / "now.npy"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="is damaged"):
        read_picture(folder, "live/now.npy")
    (problem,) = read_run(folder).problems
    assert problem.startswith(f"{path} is damaged")
