"""Rows on their way to disk: the ring, the files of a recording, and what is left of them where something is killed."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from async_wrappers import load_recording
from async_wrappers.fleet.block import Block
from async_wrappers.live.recording import recording_files as module
from async_wrappers.live.recording.frame_rows import Recorder, RowLayout, RowRing
from async_wrappers.live.recording.recording_files import (
    EpisodeFiles,
    _checksum_of,
    episode_paths,
    space_as_json,
    space_of_json,
)
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
    assert ring.counts == (offered, sum(map(len, load_recording(directory))))
    files.close()
    assert ring.counts == (offered, sum(map(len, load_recording(directory))))
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
    assert ring.counts == (13, 6)
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
    # Without an observation after it, the last frame cannot be read yet.
    assert recording.end_phase() == {"directory": str(tmp_path / "run"), "frames": 4, "dropped": 1}
    write_all = module._write_all

    def full(file: Any, data: Any) -> int:
        if not bytes(data).startswith(b"\x93NUMPY"):  # rows, and no header
            file.write(bytes(data)[:300])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_all(file, data)

    monkeypatch.setattr(module, "_write_all", full)
    play(recorder, 5, 5)
    with pytest.warns(RuntimeWarning, match=r"the recording in .*run ends here \(No space left on device\)") as warned:
        assert recording.end_phase()["frames"] == 2  # two rows fitted
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


# Damage to a recording that was finished.


def finished(directory: Path, frames: int = 3, episodes: int = 1) -> Path:
    """Record episodes; return the first one's file."""
    ring, recorder = made()
    files = EpisodeFiles(directory, ring.layout, FACTS)
    for episode in range(episodes):
        recorder.begin_episode(0, episode)
        play(recorder, 0, frames)
        recorder.end_episode([frames], frames)
    drain(ring, files)
    files.close()
    return directory / "episode-000000.npy"


def read(directory: Path) -> list[Any]:
    return [(each.observations.tolist(), each.rewards.tolist(), len(each)) for each in load_recording(directory)]


def test_numpy_alone_reads_a_finished_file(tmp_path: Path) -> None:
    path = finished(tmp_path)
    for mode in (None, "r"):
        rows = np.load(path, mmap_mode=mode)
        assert rows["frame"].tolist() == [0, 1, 2, 3]
        assert rows["final"].tolist() == [False, False, False, True]
    assert re.fullmatch(rb".* # crc32 [0-9a-f]{8}\n", path.read_bytes()[12 : -4 * rows.itemsize], re.DOTALL)


def test_every_cut_of_a_finished_file_is_noticed(tmp_path: Path) -> None:
    path = finished(tmp_path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"episode-000000\.npy is damaged .*: delete it to read the others$"):
            load_recording(tmp_path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ValueError, match=r"episode-000000\.npy is damaged"):
        load_recording(tmp_path)
    path.write_bytes(whole)
    assert [each[2] for each in read(tmp_path)] == [3]


def test_every_byte_of_a_finished_file_counts(tmp_path: Path) -> None:
    path = finished(tmp_path, frames=1)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"episode-000000\.npy is damaged .*: delete it to read the others$"):
            read(tmp_path)


@given(st.data())
def test_damage_of_any_kind_to_a_finished_file_is_noticed(data: st.DataObject) -> None:
    directory = Path(tempfile.mkdtemp())
    path = finished(directory, frames=8)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 5))):
        begin = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(begin, min(len(damaged), begin + 40)))
        damaged[begin:end] = data.draw(st.binary(max_size=40))
    assume(bytes(damaged) != whole)
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"episode-000000\.npy is damaged"):
        read(directory)


def test_one_damaged_episode_does_not_keep_the_others_from_being_read(tmp_path: Path) -> None:
    path = finished(tmp_path, episodes=2)
    content = bytearray(path.read_bytes())
    content[-9] ^= 4
    path.write_bytes(content)
    found = load_recording(tmp_path)
    assert found[1].observations[:, 0].tolist() == [0, 1, 2, 3]
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"000000\.npy is damaged \(ValueError: its checksum is not that of its conte"
        ):
            found[0]


@pytest.mark.parametrize("makes", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
@pytest.mark.parametrize("name", ["episode-000001.npy", "episode-000001.npy.part"])
@pytest.mark.timeout(20)
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path, makes: Any, name: str) -> None:
    finished(tmp_path)
    makes(tmp_path / name)
    with pytest.raises(
        ValueError, match=rf"{name} is damaged \(ValueError: it is no file\): delete it to read the others"
    ):
        load_recording(tmp_path)


@pytest.mark.parametrize("length", [0, 5, 100])
def test_a_part_whose_header_was_never_written_has_no_rows(tmp_path: Path, length: int) -> None:
    header = finished(tmp_path).read_bytes()
    (tmp_path / "episode-000001.npy.part").write_bytes(header[:length])
    (tmp_path / "episode-000002.npy.part").write_bytes(bytes(1000))  # as after a power cut
    assert [each[2] for each in read(tmp_path)] == [3]


def test_a_copy_of_a_part_beside_the_finished_file_is_not_read_twice(tmp_path: Path) -> None:
    path = finished(tmp_path)
    path.with_name(f"{path.name}.part").write_bytes(path.read_bytes()[:-200])
    assert [each[2] for each in read(tmp_path)] == [3]


def test_a_part_that_is_finished_while_it_is_read_is_read_on(tmp_path: Path) -> None:
    ring, recorder = made()
    files = EpisodeFiles(tmp_path, ring.layout, FACTS)
    play(recorder, 0, 3)
    drain(ring, files)
    found = load_recording(tmp_path)
    recorder.end_episode([3], 3)
    drain(ring, files)
    assert len(found[0]) == 3


def test_a_recording_without_checksums_is_read_and_says_so(tmp_path: Path) -> None:
    path = finished(tmp_path)
    save = partial(np.lib.format.write_array, version=(2, 0))  # as it was written
    rows = np.load(path)
    with open(path, "wb") as file:
        save(file, rows)
    facts = json.loads((tmp_path / "recording.json").read_text())
    del facts["checksum"]
    (tmp_path / "recording.json").write_text(json.dumps({**facts, "format": 1}))
    with pytest.warns(
        RuntimeWarning, match="is of format 1, without checksums: damage to the content of its rows is not"
    ):
        assert [each[2] for each in read(tmp_path)] == [3]
    whole = path.read_bytes()
    out_of_order = np.concatenate([rows[:1], rows[2:], rows[1:2]])
    for content in (whole[:-100], whole[: -rows.itemsize], whole + bytes(rows.itemsize), out_of_order):
        with open(path, "wb") as file:
            file.write(content) if isinstance(content, bytes) else save(file, content)
        with pytest.warns(RuntimeWarning), pytest.raises(ValueError, match=r"episode-000000\.npy is damaged"):
            load_recording(tmp_path)


def test_every_change_of_recording_json_is_noticed_or_means_the_same(tmp_path: Path) -> None:
    finished(tmp_path)
    path = tmp_path / "recording.json"
    whole, before = path.read_bytes(), load_recording(tmp_path)
    for place in range(len(whole)):
        for bit in (place % 8, (place + 3) % 8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            try:
                found = load_recording(tmp_path)
            except ValueError as error:
                assert "recording.json is damaged" in str(error)
            else:
                assert (found.facts, found.fps, found.observation_space) == (before.facts, before.fps, SEEN)
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"recording\.json is damaged"):
            load_recording(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"fps": "Infinity"},
        {"fps": float("inf")},
        {"fps": float("nan")},
        {"fps": "1/0"},
        {"fps": "1e99999999"},
        {"fps": "1e-99999999"},
        {"fps": f"{'9' * 400}/1"},
        {"fps": 10**400},
        {"fps": "-50"},
        {"fps": 0},
        {"fps": None},
        {"format": 3},
        {"observation_space": {"kind": "Box", "low": 0, "high": 1, "shape": [10**12], "dtype": "<f4"}},
        {"observation_space": {"kind": "Box", "low": 0, "high": 1, "shape": [10**9, 10**9], "dtype": "<f4"}},
        {"observation_space": {"kind": "Box", "low": 0, "high": 1, "shape": [-1], "dtype": "<f4"}},
        {"observation_space": {"kind": "Box", "low": [0, 0], "high": [1], "shape": [2], "dtype": "<f4"}},
        {"observation_space": {"kind": "Box", "low": 0, "high": 1, "shape": [2], "dtype": "nothing"}},
        {"observation_space": {"kind": "MultiBinary", "n": 10**12}},
        {"observation_space": {"kind": "MultiDiscrete", "nvec": [0], "start": [0], "dtype": "<i8"}},
        {"observation_space": {"kind": "Tuple", "spaces": 7}},
        {"observation_space": None},
        {"action_space": {"kind": "Discrete", "n": 10**30, "start": 0, "dtype": "<i8"}},
        {"action_space": {"kind": "Discrete", "n": 0, "start": 0, "dtype": "<i8"}},
        {"action_space": {"kind": "Discrete", "n": 3, "start": 10**30, "dtype": "<i8"}},
    ],
)
@pytest.mark.timeout(20)
def test_facts_that_cannot_be_are_refused_in_a_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    finished(tmp_path)
    path = tmp_path / "recording.json"
    facts = {**json.loads(path.read_text()), **change}
    del facts["checksum"]
    path.write_text(json.dumps({**facts, "checksum": _checksum_of(facts)}))
    with pytest.raises(
        ValueError, match=r"recording\.json is damaged .*: it cannot be read without its frame rate and sp"
    ):
        load_recording(tmp_path)


def test_files_that_hold_other_things_than_an_array_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = finished(tmp_path)
    whole = path.read_bytes()
    for text in (b"{'descr': (((", b"'" * 3, b"{'shape': 3}", b"[" * 4000, b"\xff\xfe", b"{'descr': '<f4'"):
        path.write_bytes(whole[:12] + text.ljust(int.from_bytes(whole[8:12], "little")))
        with pytest.raises(ValueError, match=r"episode-000000\.npy is damaged .*: delete it to read the others$"):
            load_recording(tmp_path)
