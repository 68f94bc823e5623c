"""Snapshots of a run: what they count is what the report counts, and they are whole whenever they are read."""

from __future__ import annotations

import json
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers import AsyncRunner
from async_wrappers.fleet.block import Block
from async_wrappers.live.memory.exchange import FrameRing
from async_wrappers.live.memory.glance import DEFAULT, PAUSED, Glance
from async_wrappers.live.report.snapshot import Snapshots
from tests.worlds.endless import Endless

FRAME = 10_000_000  # nanoseconds
GREY = gym.spaces.Box(0, 255, (4, 5), np.uint8)


def shared(size: int) -> Block:
    block = Block(shared=False)
    block.resize(size)
    return block


class Played:
    """Snapshots of a run at 100 frames a second, whose frames the test writes; a second passes between two of them."""

    def __init__(self, directory: Path, space: Any = GREY) -> None:
        self.glance = Glance(shared(Glance.size()))
        self.ring = FrameRing(shared(FrameRing.size(space, 8)), space, 8)
        self.ring.clear()
        seconds = count()
        self.snapshots = Snapshots(directory, self.glance, self.ring, 100.0, 2, lambda: float(next(seconds)))
        self.frames = 0

    def frame(
        self,
        start: int,
        episode: int = 0,
        frame: int | None = None,
        late: int = 0,
        score: float = 0.0,
        delay: int | None = None,
    ) -> None:
        place = self.frames if frame is None else frame
        delay = (place - start if start > DEFAULT else -1) if delay is None else delay
        self.glance.frame(0, episode, place, self.frames * FRAME, late, start, delay, -1, score)
        self.frames += 1


def test_counts_are_of_all_frames_and_recent_numbers_of_the_last_five_seconds(tmp_path: Path) -> None:
    played = Played(tmp_path)
    for _ in range(300):
        played.frame(DEFAULT)
    for number in range(300, 900):
        played.frame(number - 3 if number % 4 else DEFAULT, late=6_000_000 if number >= 890 else 0)
    for _ in range(10):
        played.frame(PAUSED)
    shown = played.snapshots.numbers()
    assert (shown["frames"], shown["fresh"], shown["late"], shown["paused"]) == (910, 450, 10, 10)
    recent = shown["recent"]
    assert (recent["frames"], recent["late"], recent["ages"]) == (500, 10, {"3": 368})
    assert recent["fresh_share"] == pytest.approx(368 / 490)
    assert recent["delay_frames"]["mean"] == 3
    assert recent["fps"] == pytest.approx(100)
    played.frame(907)
    assert played.snapshots.numbers()["frames"] == 911


def test_frames_of_a_going_chunk_are_counted_apart_from_those_of_new_decisions(tmp_path: Path) -> None:
    played = Played(tmp_path)
    for number in range(100):
        played.frame(DEFAULT) if number < 20 else played.frame(number // 10 * 10 - 4, delay=4)
    shown = played.snapshots.numbers()
    assert (shown["frames"], shown["fresh"], shown["chunk"]) == (100, 8, 72)
    recent = shown["recent"]
    assert (recent["fresh_share"], recent["chunk_share"], recent["ages"]) == (0.08, 0.72, {"4": 8})
    assert shown["line"]["frames"][29:31] == [[290.0, 13], [300.0, 4]]
    assert shown["line"]["chunks"] == [place for place in range(20, 100) if place % 10]


def test_episodes_that_end_are_noted_with_their_frames_and_return(tmp_path: Path) -> None:
    played = Played(tmp_path)
    for episode, frames in enumerate((3, 1, 2)):
        for frame in range(frames):
            played.frame(DEFAULT, episode, frame, score=10 * episode + frame)
        played.snapshots.numbers()
    shown = played.snapshots.numbers()
    assert shown["episodes"] == [[0, 3, 2.0], [1, 1, 10.0]]
    assert (shown["episode"], shown["frame"], shown["score"]) == (2, 1, 21.0)


def test_the_time_line_is_the_last_second_and_tells_which_inferences_were_applied(tmp_path: Path) -> None:
    played = Played(tmp_path)
    for number in range(200):
        played.frame(number - 5 if number % 2 and number >= 150 else DEFAULT)
    for worker, start in ((0, 20), (0, 160), (1, 161), (1, 190)):
        played.glance.inference(worker, 0, start, start * FRAME, (start + 4) * FRAME)
    line = played.snapshots.numbers()["line"]
    assert line["inferences"] == [[0, 600.0, 640.0, True], [1, 610.0, 650.0, False], [1, 900.0, 940.0, True]]
    assert len(line["frames"]) == 100
    assert line["frames"][49:52] == [[490.0, None], [500.0, None], [510.0, 5]]


def test_each_second_is_noted_once_and_the_last_300_are_kept(tmp_path: Path) -> None:
    played = Played(tmp_path)
    assert played.snapshots.numbers()["history"] == []
    for _ in range(310):
        played.frame(0, frame=4, late=6_000_000)
        history = played.snapshots.numbers()["history"]
    assert len(history) == 300
    assert history[-1][1:4] == [1.0, 100, 4.0]


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (GREY, (4, 5)),
        (gym.spaces.Box(0, 1, (3, 4, 5), np.bool_), (3, 4, 5)),
        (gym.spaces.Dict({"speed": gym.spaces.Box(-1, 1, (2,)), "screen": GREY}), (4, 5)),
        (gym.spaces.Box(0, 255, (2, 4, 5, 3), np.uint8), (4, 5, 3)),
        (gym.spaces.Box(-1, 1, (4, 5)), None),
    ],
)
def test_the_newest_observation_is_written_where_it_is_an_image(tmp_path: Path, space: Any, shape: Any) -> None:
    played = Played(tmp_path, space)
    for number in range(3):
        played.ring.write(number, space.sample())
    played.snapshots.write()
    path = tmp_path / "now.npy"
    assert path.is_file() == (shape is not None)
    assert shape is None or np.load(path).shape == shape


def test_a_directory_that_is_gone_or_full_is_nobodys_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    played = Played(file / "below")
    with played.snapshots.beside():
        played.frame(DEFAULT)
        played.snapshots.write()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_in_processes_shows_what_its_report_says(tmp_path: Path) -> None:
    whole: list[dict[str, Any]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.002):
            if (tmp_path / "now.json").is_file():
                whole.append(json.loads((tmp_path / "now.json").read_text()))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        runner = AsyncRunner(
            Endless, lambda: lambda observation: 1, workers=2, fps=60, calibration_time=0.1, default_action="repeat"
        )
        report = runner.run(frames=150, shown_in=tmp_path)
    finally:
        over.set()
        reader.join()
    shown = json.loads((tmp_path / "now.json").read_text())
    names = {"frames": "total", "fresh": "fresh", "late": "missed_deadlines", "paused": "paused"}
    assert {name: shown[name] for name in names} == {name: report.frames[other] for name, other in names.items()}
    assert (shown["over"], shown["workers"], shown["fps"]) == (True, 2, 60.0)
    assert shown["recent"]["delay_frames"] == pytest.approx(report.delay_frames)
    assert shown["recent"]["lateness_ms"] == pytest.approx(report.lateness_ms)
    assert len(whole) > 1  # each of them could be read
    assert sorted(path.name for path in tmp_path.iterdir()) == ["now.json"]
    assert time.time() - shown["unix"] < 3600
