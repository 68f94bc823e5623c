"""A recording in `watch`: its shares, longest gap, ages and deadlines are those of the run's own report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from async_wrappers import AsyncRunner, Chunk
from async_wrappers.agents.watch.browser import Page
from async_wrappers.agents.watch.reading import Folder
from async_wrappers.agents.watch.recording import Recordings
from async_wrappers.agents.watch.text import shown
from async_wrappers.agents.watch.watcher import Watcher
from async_wrappers.latency import LogNormal
from tests.worlds.recording_env import RecordingEnv


def played(directory: Path, **arguments: Any) -> Any:
    """Record a run with chunks, and return its report."""
    given = {"latency": LogNormal(0.06, 0.5), "default_action": Chunk(9, after="noop"), "playout": 3, **arguments}
    policy = lambda: lambda observation: np.full(9, observation[1] % 5)  # noqa: E731
    env = lambda: RecordingEnv(length=[30, 50])  # noqa: E731
    with AsyncRunner(env, policy, 1, 60, backend="virtual", record=directory, seed=3, **given) as runner:
        return runner.run(episodes=3)


def words_of(overview: Any) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(shown(overview))
    return console.export_text()


def test_a_recordings_lines_are_those_of_its_runs_report(tmp_path: Path) -> None:
    report = played(tmp_path / "run")
    found = Recordings().read(Folder(tmp_path / "run"))
    assert found.problems == ()
    told = dict(line.split(maxsplit=1) for line in str(report).splitlines())
    assert "going chunk" in told["frames"]
    assert found.lines["frames"] == told["frames"].replace("60.00 fps", "60 fps")
    gap = report.longest_gap
    assert gap is not None
    told_gap = f"{gap['seconds']:.2f} s without an action of the policy ({gap['frames']} frames), from frame "
    assert found.lines["gap"].startswith(told_gap)
    assert found.lines["delay"].startswith(f"mean {report.delay_frames['mean']:.2f}, p50 ")
    assert found.lines["episodes"] == told["episodes"]
    assert sum(found.ages.values()) == report.frames["fresh"]
    assert found.lines["recorded"].startswith("workers 1, default action Chunk(")


def test_both_faces_show_a_recording_also_from_the_directory_above(tmp_path: Path) -> None:
    played(tmp_path / "arm-1")
    for place in (tmp_path, tmp_path / "arm-1"):
        watcher = Watcher([place])
        overview = watcher.read()
        assert [each.name for each in overview.recordings] == ["arm-1"] and not overview.runs
        assert "arm-1 recording" in (text := words_of(overview)) and "going chunk" in text
        parts = Page(watcher).parts(overview, None)
        assert "new decision" in parts["recordings"] and "1 recording" in parts["bar"]


def test_an_episode_that_is_damaged_or_leads_out_is_a_sentence_and_the_others_are_read(tmp_path: Path) -> None:
    played(tmp_path / "run")
    whole = Recordings().read(Folder(tmp_path / "run"))
    first, second, _ = sorted((tmp_path / "run").glob("episode-*.npy"))
    data = bytearray(first.read_bytes())
    data[-9] ^= 1
    first.write_bytes(data)
    second.rename(tmp_path / "elsewhere.npy")
    second.symlink_to(tmp_path / "elsewhere.npy")
    found = Recordings().read(Folder(tmp_path / "run"))
    assert [str(first) in problem for problem in found.problems] == [True, False]
    assert "leads out of" in found.problems[1]
    assert found.lines["episodes"].startswith("1, ") and whole.lines["episodes"].startswith("3, ")


@pytest.mark.parametrize("facts", ["", "{}", "[1]", '{"format": 99}'])
def test_a_recording_that_cannot_be_read_is_a_sentence(tmp_path: Path, facts: str) -> None:
    (tmp_path / "recording.json").write_text(facts)
    overview = Watcher([tmp_path]).read()
    (found,) = overview.recordings
    assert not found.lines and len(overview.sentences()) == 1 and str(tmp_path) in overview.sentences()[0]
    assert words_of(overview)


def test_finished_episodes_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path / "run")
    recordings, folder = Recordings(), Folder(tmp_path / "run")
    before = recordings.read(folder)
    monkeypatch.setattr("async_wrappers.agents.watch.recording.EpisodeRead.of", None)
    assert recordings.read(folder) == before
