"""A run is read while it goes on: what is whole is shown, what is damaged is a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from async_wrappers.agents.experiment.metrics import EventWriter
from async_wrappers.agents.watch.curves import panels_of, rates_of, scalars_of, times_of
from async_wrappers.agents.watch.reading import Folder
from async_wrappers.agents.watch.watched_run import is_run, read_run
from tests.worlds.recorded_run import EPISODES, LENGTH, hold, show_live, snapshot, write_run

FRAMES = EPISODES * LENGTH


def test_a_run_has_its_facts_its_progress_and_what_it_has_played(tmp_path: Path) -> None:
    run = read_run(Folder(write_run(tmp_path / "a")))
    assert (run.name, run.state, run.problems) == ("a", "stopped", ())
    assert run.recorded.facts["environment"] == "Drifting-v0"
    now = run.progress
    assert (now.done, now.iterations, now.frames, now.share) == (2, 4, 2 * FRAMES, 0.5)
    assert now.seconds == 2 * FRAMES / 50
    assert now.pace == pytest.approx(50)
    assert now.left == pytest.approx(now.seconds)
    trained = [each for each in run.episodes if each.phase == "train"]
    assert [each.score for each in trained[:2]] == [0.0, 1.0]
    assert (len(trained), len(run.episodes)) == (2 * EPISODES, 2 * EPISODES + 4)
    assert run.scalars["Loss"] == [(FRAMES, 1.0), (2 * FRAMES, 0.5)]


def test_within_an_iteration_the_episodes_that_are_over_count(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    with open(directory / "episodes.csv", "a") as file:
        file.write(f"train,10,2,5.0,{FRAMES // 2},{2 * FRAMES + FRAMES // 2},9,9.0,\n")
    now = read_run(Folder(directory)).progress
    assert (now.frames, now.share) == (2.5 * FRAMES, 2.5 / 4)


def test_a_run_is_running_while_its_lock_is_held_and_finished_once_it_has_reported(tmp_path: Path) -> None:
    directory = write_run(tmp_path, report=True)
    assert read_run(Folder(directory)).state == "finished"
    hold(directory)
    assert read_run(Folder(directory)).state == "running"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(60)
    hold(directory, gone.pid)
    assert read_run(Folder(directory)).state == "finished"
    (directory / "report.json").unlink()
    assert read_run(Folder(directory)).state == "stopped"


def test_a_directory_with_anything_of_a_run_is_one_also_before_its_first_iteration(tmp_path: Path) -> None:
    assert not is_run(Folder(tmp_path))
    (tmp_path / "lock").write_text("")
    assert not is_run(Folder(tmp_path))
    hold(tmp_path)
    assert is_run(Folder(tmp_path))
    run = read_run(Folder(tmp_path))
    assert (run.state, run.progress.share, run.episodes, run.problems) == ("running", None, [], ())
    assert is_run(Folder(show_live(tmp_path / "live", snapshot())))
    assert is_run(Folder(show_live(tmp_path / "alone", snapshot(), under=".")))


def test_what_is_appended_is_read_and_half_a_line_is_left_for_later(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    folder = Folder(directory)
    before = len(read_run(folder).episodes)
    row = "train,10,2,5.5,20,220,9,9.0,1\n"
    with open(directory / "episodes.csv", "a") as file:
        file.write(row[:9])
    assert len(read_run(folder).episodes) == before
    with open(directory / "episodes.csv", "a") as file:
        file.write(row[9:])
    last = read_run(folder).episodes[-1]
    assert (last.episode, last.score, last.won) == (10, 5.5, True)


def test_a_run_that_is_resumed_replaces_rows_and_scalars_that_it_plays_again(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    folder = Folder(directory)
    read_run(folder)
    path = directory / "episodes.csv"
    kept = path.read_text().splitlines(keepends=True)[:4]
    path.unlink()
    path.write_text("".join(kept))
    assert [each.episode for each in read_run(folder).episodes] == [0, 1, 2]
    writer = EventWriter(directory / "metrics" / "tensorboard", purge_step=FRAMES + 1)
    writer.scalar("Loss", 9.0, 2 * FRAMES)
    writer.close()
    assert read_run(folder).scalars["Loss"] == [(FRAMES, 1.0), (2 * FRAMES, 9.0)]


def test_half_a_record_of_scalars_is_left_for_later_and_a_damaged_one_is_a_sentence(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    folder = Folder(directory)
    (path,) = (directory / "metrics" / "tensorboard").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    run = read_run(folder)
    assert run.problems == ()
    assert len(run.scalars["Loss"]) == 1  # the last scalar of the last iteration
    path.unlink()
    path.write_bytes(whole + b"\xff" * 40)
    (problem,) = read_run(folder).problems
    assert problem.startswith(f"{path} is damaged (a record of ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics/iterations.jsonl", '{"iteration": 0, "fra'),
        ("metrics/iterations.jsonl", '{"iteration": 0}\n'),
        ("metrics/iterations.jsonl", "[1]\n"),
        ("metrics/run.json", "{"),
        ("metrics/evaluations.jsonl", "?\n"),
        ("metrics/blocks.jsonl", '{"number": 3}\n'),
        ("report.json", '[{"agent": "random"}]'),
        ("live/now.json", '{"unix": 3}'),
        ("live/now.json", ""),
    ],
)
def test_a_damaged_file_is_one_sentence_and_the_rest_is_shown(tmp_path: Path, name: str, content: str) -> None:
    directory = write_run(tmp_path)
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    run = read_run(Folder(directory))
    (problem,) = run.problems
    assert problem.startswith(f"{path} is damaged (")
    assert "\n" not in problem
    assert len(run.episodes) == 2 * EPISODES + 4


def test_an_evaluation_beside_the_run_and_blocks_of_hosts_are_read(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    (directory / "metrics" / "evaluations.jsonl").write_text('{"mean": 3.0, "iteration": 1}\n')
    blocks = [{"host": host, "version": 10 * host + n, "learnt": n > 0} for host in (0, 1) for n in range(3)]
    (directory / "metrics" / "blocks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in blocks))
    run = read_run(Folder(directory))
    assert run.evaluations[0] == ("1", 3.0, None, 0)
    assert [(each.name, each.blocks, each.learnt, each.version) for each in run.hosts] == [
        ("0", 3, 2, 2),
        ("1", 3, 2, 12),
    ]


def test_a_curve_of_one_run_has_the_interval_over_the_episodes_of_each_iteration(tmp_path: Path) -> None:
    train, evaluation = panels_of([read_run(Folder(write_run(tmp_path)))])
    (curve,) = train.curves
    assert [(point.x, point.value) for point in curve.points] == [(FRAMES, 2.0), (2 * FRAMES, 12.0)]
    assert all(point.low < point.value < point.high for point in curve.points)
    assert len(train.dots) == 2 * EPISODES
    assert [point.value for point in evaluation.curves[0].points] == [30.5, 30.5]


def test_runs_that_differ_in_the_seed_make_one_curve_with_the_interval_over_runs(tmp_path: Path) -> None:
    runs = [read_run(Folder(write_run(tmp_path / f"{seed}", seed=seed))) for seed in range(3)]
    runs.append(read_run(Folder(write_run(tmp_path / "other", gamma=0.5))))
    train, _ = panels_of(runs)
    assert [curve.name for curve in train.curves] == ["gamma 0.99", "gamma 0.5"]
    assert [point.value for point in train.curves[0].points] == [3.0, 13.0]
    assert train.curves[0].points[0].low < 3.0 < train.curves[0].points[0].high
    assert train.curves[1].points[0].low == train.curves[1].points[0].high


def test_rates_scalars_and_the_time_of_each_part_of_the_newest_phase(tmp_path: Path) -> None:
    run = read_run(Folder(write_run(tmp_path)))
    rates = {panel.title: panel.curves[0].points[-1].value for panel in rates_of(run)}
    assert rates == {
        "frames/s in training": 50.0,
        "actions per second": 50.0,
        "transitions learnt per one played": 4.0,
    }
    assert [panel.title for panel in scalars_of(run)] == ["Loss"]
    assert times_of(run) == {"acting": 0.5, "losses": 1.0, "other": pytest.approx(FRAMES / 50 - 1.5)}


def test_reading_imports_no_pytorch() -> None:
    modules = (
        "async_wrappers.agents.watch.watcher, async_wrappers.agents.watch.browser, async_wrappers.agents.cli.watch"
    )
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
