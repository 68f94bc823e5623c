"""Rows on their way to disk: the ring, the files of a recording, and what is left of them where something is killed."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import load_recording
from async_wrappers.live.memory.block import Block
from async_wrappers.live.recording import files as module
from async_wrappers.live.recording.files import EpisodeFiles, episode_paths, space_as_json, space_of_json
from async_wrappers.live.recording.rows import Recorder, RowLayout, RowRing
from async_wrappers.live.recording.writer import LocalRecording, RecordSpec
from tests.worlds.spaces import SPACES

SEEN, ACTIONS = spaces.Box(0, 10**6, (1,), np.int64), spaces.Discrete(100)
FACTS = {"fps": "50", "workers": 1}


def made(capacity: int = 16) -> tuple[RowRing, Recorder]:
    layout, block = RowLayout(SEEN, ACTIONS), Block(shared=False)
    block.resize(RowRing.size(layout, capacity))
    ring = RowRing(block, layout, capacity)
    return ring, Recorder(ring, 50)


def play(recorder: Recorder, first: int, frames: int) -> None:
    """Record frames of an episode that shows and sends its frame's number, and pays it."""
    for frame in range(first, first + frames):
        facts: dict[str, Any] = {"deadline": frame * 10, "lateness": 0, "decision": (frame, 0, 0), "limited": False}
        recorder.act([frame], frame % 100, frame % 100, frame=frame, paused=False, **facts)
        recorder.pay(float(frame), False, False)


def drain(ring: RowRing, files: EpisodeFiles) -> None:
    for rows in ring.waiting():
        files.write(rows)
        ring.note_saved(files.frames)


@settings(max_examples=15)
@given(SPACES)
def test_a_space_comes_back_from_json(space: gym.Space[Any]) -> None:
    assert space_of_json(json.loads(json.dumps(space_as_json(space)))) == space


def test_bounds_that_differ_or_are_infinite_come_back() -> None:
    box = spaces.Box(np.array([-1, -np.inf, 0.1], np.float32), np.array([1, np.inf, 0.3], np.float32))
    text = json.dumps(space_as_json(spaces.Dict({"a": box, "b": spaces.Tuple([box])})), allow_nan=False)
    assert space_of_json(json.loads(text)) == spaces.Dict({"a": box, "b": spaces.Tuple([box])})


def test_a_space_that_has_no_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="a space must be Box"):
        space_as_json(spaces.Text(4))


PLAYED = st.lists(st.one_of(st.integers(1, 12), st.sampled_from(["end", "drain"])), max_size=30)


@given(PLAYED, st.integers(2, 9))
def test_every_row_that_fits_is_read_back_in_pieces_without_a_gap(orders: list[Any], capacity: int) -> None:
    ring, recorder = made(capacity)
    directory = Path(tempfile.mkdtemp())
    files = EpisodeFiles(directory, ring.layout, FACTS)
    episode = frame = offered = 0
    recorder.begin_episode(0, 0)
    kept: set[tuple[int, int]] = set()
    for order in orders:
        if order == "drain":
            drain(ring, files)
        elif order == "end":
            recorder.end_episode([frame], frame)
            episode, frame = episode + 1, 0
            recorder.begin_episode(0, episode)
        else:
            for _ in range(order):
                fits = ring._counts[1] - ring._counts[2] < capacity
                play(recorder, frame, 1)
                kept |= {(episode, frame)} if fits else set()
                frame, offered = frame + 1, offered + 1
    drain(ring, files)
    files.close()
    assert ring.counts == (offered, len(kept))
    found: set[tuple[int, int]] = set()
    for path in episode_paths(directory):
        rows = np.load(path)
        frames = rows["frame"].tolist()
        assert frames == list(range(frames[0], frames[0] + len(frames)))
        assert rows["observation"][:, 0].tolist() == frames
        assert not rows["final"][:-1].any()
        found |= {(int(row["episode"]), int(row["frame"])) for row in rows if not row["final"]}
        played = rows[~rows["final"]]
        assert played["reward"].tolist() == played["frame"].tolist()
    assert found == kept


def test_a_full_ring_drops_rows_and_says_how_many(tmp_path: Path) -> None:
    ring, recorder = made(4)
    files = EpisodeFiles(tmp_path / "run", ring.layout, FACTS)
    play(recorder, 0, 10)
    drain(ring, files)
    play(recorder, 10, 3)
    recorder.end_episode([13], 13)
    drain(ring, files)
    files.close()
    assert ring.counts == (13, 7)
    found = load_recording(tmp_path / "run")
    # The first piece gives its last observation away, which is known; the second has its own.
    assert [episode.columns["frame"].tolist() for episode in found] == [[0, 1, 2], [10, 11, 12]]
    assert [episode.observations[:, 0].tolist() for episode in found] == [[0, 1, 2, 3], [10, 11, 12, 13]]


def test_a_part_that_was_never_finished_is_read_to_its_last_whole_row(tmp_path: Path) -> None:
    ring, recorder = made()
    files = EpisodeFiles(tmp_path / "run", ring.layout, FACTS)
    play(recorder, 0, 3)
    recorder.end_episode([3], 3)
    recorder.begin_episode(0, 1)
    play(recorder, 0, 8)
    drain(ring, files)
    part = tmp_path / "run" / "episode-000001.npy.part"
    size = ring.layout.dtype.itemsize
    with open(part, "rb+") as file:
        file.truncate(part.stat().st_size - size // 2)
    found = load_recording(tmp_path / "run")
    assert [len(episode) for episode in found] == [3, 6]
    with open(part, "rb+") as file:  # as after a power cut: its length was written, and its content was not
        file.seek(part.stat().st_size // size * size - 3 * size, os.SEEK_SET)
        file.write(bytes(3 * size))
    assert [len(episode) for episode in load_recording(tmp_path / "run")] == [3, 4]


def test_a_full_disk_keeps_what_was_written_and_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = LocalRecording(RecordSpec(tmp_path / "run", SEEN, ACTIONS, 50, True, 1, "noop"))
    recorder = recording.recorder
    play(recorder, 0, 5)
    assert recording.end_phase() == {"directory": str(tmp_path / "run"), "frames": 5, "dropped": 0}
    write_all = module._write_all

    def full(file: Any, data: Any) -> int:
        if not bytes(data).startswith(b"\x93NUMPY"):  # rows, and no header
            file.write(bytes(data)[:300])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_all(file, data)

    monkeypatch.setattr(module, "_write_all", full)
    play(recorder, 5, 5)
    with pytest.warns(RuntimeWarning, match=r"the recording in .*run ends here \(No space left on device\)") as warned:
        assert recording.end_phase()["dropped"] == 3  # two rows fitted
        play(recorder, 10, 5)
        assert recording.end_phase() == {"directory": str(tmp_path / "run"), "frames": 0, "dropped": 5}
        recording.close()
    assert len(warned) == 1
    (episode,) = load_recording(tmp_path / "run")
    assert episode.columns["frame"].tolist() == [0, 1, 2, 3, 4, 5]
    assert [path.name for path in episode_paths(tmp_path / "run")] == ["episode-000000.npy"]


def test_rows_of_other_fields_and_damage_are_refused_in_a_sentence(tmp_path: Path) -> None:
    ring, recorder = made()
    files = EpisodeFiles(tmp_path / "run", ring.layout, FACTS)
    play(recorder, 0, 3)
    drain(ring, files)
    files.close()
    np.save(tmp_path / "run" / "episode-000001.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"episode-000001\.npy is damaged .*: delete it to read the others"):
        load_recording(tmp_path / "run")
    (tmp_path / "run" / "episode-000001.npy").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"episode-000001\.npy is damaged"):
        load_recording(tmp_path / "run")
    (tmp_path / "run" / "recording.json").write_text("{")
    with pytest.raises(ValueError, match=r"recording\.json is damaged"):
        load_recording(tmp_path / "run")
    with pytest.raises(ValueError, match=r"^directory must be that of a recording, a str or a Path, got 3$"):
        load_recording(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be a recording of AsyncRunner\(record=...\), but there is no"):
        load_recording(tmp_path)
