"""Directories of strangers: whatever a file holds, the others are shown, nothing is obeyed and nothing else is read."""

from __future__ import annotations

import io
import json
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from async_wrappers.agents.experiment.metrics import EventWriter
from async_wrappers.agents.watch import reading, text
from async_wrappers.agents.watch.browser import Page
from async_wrappers.agents.watch.charts import chart
from async_wrappers.agents.watch.curves import Curve, CurvePoint, Panel, panels_of
from async_wrappers.agents.watch.reading import Folder
from async_wrappers.agents.watch.watched_run import read_run
from async_wrappers.agents.watch.watched_sweep import read_sweep
from async_wrappers.agents.watch.watcher import Overview, Watcher
from tests.agents.watch.test_sweep import sweep_amid
from tests.worlds.recorded_run import hold, show_live, snapshot, write_run

NAUGHTY = "</title><img src=x onerror=alert(1)>[/red]\x1b]0;owned\x07\x9b2J\u202egnp\r\n\ud800"
WRONG = (None, True, -1, 1e99, float("nan"), float("-inf"), 10**400, 5e-324, NAUGHTY, [], {}, [[1]], {"a": {}})
MISSING = object()
DRAWN = (None, 1e99, WRONG[4], 5e-324, NAUGHTY, MISSING)  # those that some reader takes, and that look differently


def strange_run(directory: Path) -> Path:
    """Write a run with every file that is read, as short as can be."""
    write_run(directory, iterations=1, report=True)
    (directory / "metrics" / "evaluations.jsonl").write_text('{"mean": 3.0, "iteration": 1, "interval": [1.0, 4.0]}\n')
    (directory / "metrics" / "blocks.jsonl").write_text('{"host": 1, "version": 3, "learnt": true}\n')
    (directory / "log.txt").write_text("line\n")
    now = snapshot()
    now["line"]["frames"] = now["line"]["frames"][:2]
    return show_live(directory, now, np.zeros((2, 3), np.uint8))


class Watched:
    """A page and a terminal on a directory."""

    def __init__(self, *places: Path) -> None:
        self._time = 0.0
        self._watcher = Watcher(places, lambda: self._time)
        self._page = Page(self._watcher)

    def read(self) -> Overview:
        self._time += 100
        return self._watcher.read()

    def shown(self) -> str:
        """Return what the page of all and those of each run show, and the terminal."""
        overview = self.read()
        pages = [self._page.parts(overview, run) for run in (None, *overview.runs)]
        html = "".join(part for page in pages for part in page.values())
        file = io.StringIO()
        Console(file=file, width=400, highlight=False).print(text.shown(overview))
        shown = html + file.getvalue()
        assert "<img src=x" not in html
        assert all(each.isprintable() or each == "\n" for each in shown)
        return shown


def places_in(whole: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all parts of plain data, the whole last; of lists, those of the first two."""
    parts = whole.items() if isinstance(whole, dict) else enumerate(whole[:2]) if isinstance(whole, list) else ()
    for key, part in parts:
        yield from places_in(part, (*at, key))
    yield at


def with_part(whole: Any, place: tuple[Any, ...], part: Any) -> Any:
    """Return a copy of plain data with another part at a place, or without that part."""
    if not place:
        return part
    copied = dict(whole) if isinstance(whole, dict) else list(whole)
    if part is MISSING and len(place) == 1:
        copied.pop(place[0])
    else:
        copied[place[0]] = with_part(whole[place[0]], place[1:], part)
    return copied


def poison(path: Path, problems: Callable[[], Any], shown: Callable[[], str]) -> None:
    """Write each wrong value in the place of each part of a file, and show the parts together that are not refused."""
    whole = json.loads(path.read_text())
    for wrong in (*WRONG, MISSING):
        kept, refused = whole, 0
        for place in places_in(whole):
            try:
                tried = with_part(kept, place, wrong)
            except (LookupError, TypeError):  # a place within what is wrong already
                continue
            path.write_text(json.dumps({} if tried is MISSING else tried) + "\n")
            sentences = problems()
            assert all(str(path) in each for each in sentences)
            if not sentences and place:
                kept = tried
            refused += bool(sentences)
        assert refused or wrong is MISSING
        if kept is not whole and wrong in DRAWN:
            path.write_text(json.dumps(kept) + "\n")
            shown()
    path.write_text("[{\n")
    assert f"{path.name} is " in shown()


FILES = ("run.json", "iterations.jsonl", "evaluations.jsonl", "blocks.jsonl", "../report.json", "../live/now.json")


@pytest.mark.parametrize("name", FILES)
def test_each_wrong_part_of_a_runs_file_is_harmless_or_a_sentence(tmp_path: Path, name: str) -> None:
    path = (strange_run(tmp_path) / "metrics" / name).resolve()
    folder, watched = Folder(tmp_path), Watched(tmp_path)
    poison(path, lambda: read_run(folder).problems, watched.shown)


@pytest.mark.parametrize("name", ["sweep.json", "trials/0000/result.json", "trials/0003/failure.json"])
def test_each_wrong_part_of_a_sweeps_file_is_harmless_or_a_sentence(tmp_path: Path, name: str) -> None:
    sweep_amid(tmp_path)
    folder, watched = Folder(tmp_path), Watched(tmp_path)
    poison(tmp_path / name, lambda: read_sweep(folder).problems, watched.shown)


def test_each_wrong_cell_of_an_episode_is_harmless_or_a_sentence(tmp_path: Path) -> None:
    path = strange_run(tmp_path) / "episodes.csv"
    header, row = path.read_text().splitlines()[:2]
    cells = row.split(",")
    rows = [",".join([*cells[:k], f"{wrong}", *cells[k + 1 :]]) for k in range(len(cells)) for wrong in WRONG]
    path.write_text("\n".join([header, *rows, row, ""]), errors="replace")
    assert "lines are no rows" in Watched(tmp_path).shown()
    episodes = read_run(Folder(tmp_path)).episodes
    assert episodes[-1] == ("train", 0, 0.0, 20, 20, 0.4, None)
    # The place in the iteration and the updates are not drawn, and any phase is a text.
    assert 4 * len(WRONG) < len(episodes) < 6 * len(WRONG)


def test_texts_of_files_that_are_no_json_are_cleaned_too(tmp_path: Path) -> None:
    directory = strange_run(tmp_path / "a")
    naughty = NAUGHTY.encode(errors="surrogatepass").replace(b"\r\n", b"") + b"\xff\xfe"
    for name, content in (
        ("log.txt", naughty * 3),
        ("config.gin", b"DQNAgent.gamma = '" + naughty + b"'\n" + naughty + b" = 3\n"),
        ("lock", naughty),
    ):
        (directory / name).write_bytes(content)
    writer = EventWriter(directory / "metrics" / "tensorboard", purge_step=0)
    for value in (float("nan"), 5e-39, 3e38, 1.0):
        writer.scalar(NAUGHTY[:-1], value, 100)
    writer.close()
    write_run(tmp_path / "b", gamma=0.5)
    assert "&lt;img src=x onerror=alert(1)&gt;[/red]" in Watched(tmp_path).shown()


def test_names_of_directories_are_cleaned_and_quoted_where_a_shell_would_read_them(tmp_path: Path) -> None:
    naughty = NAUGHTY.replace("/", "").replace("\ud800", "; touch $(x)")
    for name in (naughty, "plain"):
        write_run(tmp_path / name, iterations=1)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    write_run(odd, iterations=1, gamma=0.5)
    sweep_amid(tmp_path / "sweep[red]\x1b")
    (odd / "metrics" / "run.json").write_text("{")
    shown = Watched(tmp_path).shown()
    assert "\ufffd\ufffd" in shown and "sweep[red]\ufffd" in shown and "plain" in shown
    assert "run.json is damaged" in shown
    quoted = shlex.quote(str(tmp_path / naughty)).partition("\x1b")[0]
    assert f"--base_dir {quoted.replace('<', '&lt;').replace('>', '&gt;')}".replace("'", "&#39;") in shown


@pytest.mark.parametrize("score", ["NaN", "Infinity", "1e400", "-1e308"])
def test_a_return_that_is_not_finite_is_left_out_of_the_curves(tmp_path: Path, score: str) -> None:
    directory = write_run(tmp_path / "a")
    path = directory / "metrics" / "iterations.jsonl"
    path.write_text(path.read_text().replace("12.0", score).replace("[10.0,", f"[{score},"))
    with open(directory / "episodes.csv", "a") as file:
        file.write(f"train,10,2,{float(score)},20,220,9,9.0,\n")
    write_run(tmp_path / "b", gamma=0.5)
    watched = Watched(tmp_path)
    assert "gamma 0.5" in watched.shown()
    overview = watched.read()
    for panel in [*panels_of(overview.runs), *panels_of(overview.runs[:1])]:
        assert all(np.isfinite(point).all() for curve in panel.curves for point in curve.points)
        assert np.isfinite(panel.dots).all()
    assert [len(curve.points) for curve in panels_of(overview.runs)[0].curves] == [1, 2]


@pytest.mark.parametrize("values", [(0.0, 5e-324), (-1e100, 1e100), (1e100, 1e100), (1e16, 1e16 + 2), (0.0, 0.0)])
def test_a_chart_of_any_finite_numbers_can_be_drawn(values: tuple[float, float]) -> None:
    points = [CurvePoint(float(x), y, y, y) for x, y in enumerate(values)]
    for small in (False, True):
        drawn = chart(Panel("title", [Curve("", points)], [(0, values[0])]), small)
        assert "<svg" in drawn and "nan" not in drawn


# What is no plain file of the directory that is watched.


def pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path, outside: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(8 << 30)


def led_out(path: Path, outside: Path) -> None:
    outside.write_text("secret")
    path.symlink_to(outside)


def round_about(path: Path, outside: Path) -> None:
    path.symlink_to(path.name)


STRANGE = {
    pipe: " is no regular file",
    device: " is a link that leads out of",
    sparse: " has 8,589,934,592 bytes",
    led_out: " is a link that leads out of",
    round_about: " cannot be read (Too many levels of symbolic links)",
}
READ = ("metrics/run.json", "metrics/iterations.jsonl", "metrics/evaluations.jsonl", "metrics/blocks.jsonl", "lock")
READ += ("config.gin", "report.json", "episodes.csv", "log.txt", "live/now.json", "live/now.npy", "videos/a.mp4")
READ += ("metrics/tensorboard/events.out.tfevents.1",)
SHORT = ("metrics/blocks.jsonl", "log.txt", "videos/a.mp4", "lock")  # of which a part is read


@pytest.mark.parametrize("make", STRANGE)
def test_what_is_no_plain_file_of_the_directory_is_refused_before_it_is_read(
    tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    directory = write_run(tmp_path / "results" / "a", iterations=0)
    for name in READ:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).unlink(missing_ok=True)
        make(directory / name, tmp_path / "outside")
    (run,) = Watched(directory.parent).read().runs
    refused = [name for name in READ if make is not sparse or name not in SHORT]
    for name in refused:
        assert any(problem.startswith(f"{directory / name}{STRANGE[make]}") for problem in run.problems), name
    assert not run.log and (run.video is None) == (make is not sparse)


def test_a_link_is_followed_within_the_directory_that_is_watched(tmp_path: Path) -> None:
    a, b = (write_run(tmp_path / "results" / name) for name in "ab")
    (a / "report.json").write_text('[{"agent": "random", "mean": 1.5}]')
    (b / "report.json").symlink_to("../a/report.json")
    assert [run.state for run in Watched(tmp_path / "results").read().runs] == ["finished", "finished"]
    (alone,) = Watched(b).read().runs
    assert "report.json is a link that leads out of" in alone.problems[0]


def test_directories_are_listed_once_and_links_that_lead_out_are_named(tmp_path: Path) -> None:
    place = tmp_path / "results"
    write_run(place / "a")
    write_run(tmp_path / "elsewhere")
    (place / "loop").symlink_to(".")
    (place / "0").symlink_to("a")
    (place / "z").symlink_to(place / "loop" / "a")
    (place / "out").symlink_to(tmp_path / "elsewhere")
    (place / "data").symlink_to("/usr")
    overview = Watched(place, place / "a", place / "loop").read()
    assert [run.directory for run in overview.runs] == [place / "a"]
    assert set(overview.problems) == {
        f"{place / 'out'} leads out of {place}, and is not read: name {tmp_path / 'elsewhere'} too",
        f"{place / 'loop' / 'out'} leads out of {place / 'loop'}, and is not read: name {tmp_path / 'elsewhere'} too",
    }
    assert [run.name for run in Watched(place, place / "out").read().runs] == ["a", "elsewhere"]


def test_of_very_many_tags_hosts_and_sentences_some_are_shown(tmp_path: Path) -> None:
    directory = write_run(tmp_path, iterations=1)
    writer = EventWriter(directory / "metrics" / "tensorboard", purge_step=200)
    for number in range(2_000):
        writer.scalar(f"tag {number}", 1.0, 100)
    writer.close()
    lines = [json.dumps({"host": number}) for number in range(2_000)]
    (directory / "metrics" / "blocks.jsonl").write_text("\n".join([*lines, ""]))
    for number in range(100):
        (directory / "metrics" / f"blocks_{number}.jsonl").write_text("?\n")
    shown = Watched(tmp_path).shown()
    assert len(shown) < 500_000
    assert "scalars of more than 100 tags, and some are left out" in shown


@pytest.mark.parametrize("seeds", [10**9, 20_000])
def test_a_plan_of_very_many_trials_is_refused(tmp_path: Path, seeds: int) -> None:
    sweep_amid(tmp_path)
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seeds": seeds}))
    assert f"sweep.json has {3 * seeds:,} trials, which are more than" in Watched(tmp_path).shown()


def test_an_iteration_of_very_many_episodes_has_its_interval_at_once(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "metrics" / "iterations.jsonl"
    returns = [0.0, 1.0] * 50_000
    line = {"iteration": 0, "frames": 9, "train_average_return": 0.5, "train_episode_returns": returns}
    path.write_text(json.dumps(line) + "\n")
    (point,) = panels_of(Watched(tmp_path).read().runs)[0].curves[0].points
    assert (point.low, point.high) == pytest.approx((0.5 - 0.0031, 0.5 + 0.0031), abs=1e-4)


HEADERS = (
    "(1000000, 1000000), 'descr': '|u1'",
    "(2, 3), 'descr': '|O'",
    "(-2, -3), 'descr': '|u1'",
    "(6,), 'descr': '|u1'",
    "(2, 3), {: '",
)


@pytest.mark.parametrize("header", HEADERS)
def test_a_picture_that_says_another_size_than_it_has_is_refused(tmp_path: Path, header: str) -> None:
    path = strange_run(tmp_path) / "live" / "now.npy"
    words = f"{{'fortran_order': False, 'shape': {header}, }}".ljust(117).encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words + bytes(6))
    assert "now.npy is damaged (" in Watched(tmp_path).shown()


# What happens while it is read.


def test_a_file_that_is_written_anew_in_its_place_is_read_anew(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "episodes.csv"
    folder = Folder(tmp_path)
    read_run(folder)
    rows = path.read_text().splitlines(keepends=True)
    longer = [rows[0], *(row.replace("train,", "eval,") for row in rows[1:]), *rows[1:]]
    path.write_text("".join(longer))  # the same inode, and longer than what was read
    assert [each.phase for each in read_run(folder).episodes[:2]] == ["eval", "eval"]
    path.write_text("".join(longer)[:-5])
    assert len(read_run(folder).episodes) == len(longer) - 2


def test_half_a_line_of_a_block_is_left_for_later(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "metrics" / "blocks.jsonl"
    path.write_text('{"host": 1}\n{"ho')
    run = read_run(Folder(tmp_path))
    assert ([host.blocks for host in run.hosts], run.problems) == ([1], ())


def test_iterations_that_were_read_are_not_read_again_and_others_in_their_place_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_run(tmp_path, iterations=3) / "metrics" / "iterations.jsonl"
    folder, parsed, real = Folder(tmp_path), list[str](), json.loads
    read_run(folder)
    first, second, third = path.read_text().splitlines(keepends=True)
    monkeypatch.setattr(reading.json, "loads", lambda line: [real(line), parsed.append(line)][0])
    path.write_text(first + second + third.replace('"frames": 300', '"frames": 301') + third)
    assert [line["frames"] for line in read_run(folder).recorded.lines] == [100, 200, 301, 300]
    assert len(parsed) == 2
    path.write_text(second)
    assert [line["frames"] for line in read_run(folder).recorded.lines] == [200]


def test_what_was_read_of_a_run_that_has_gone_is_forgotten_and_the_newest_are_named(tmp_path: Path) -> None:
    place, watched = tmp_path / "results", None
    write_run(place / "kept", iterations=1)
    run = write_run(place / "0", iterations=1)
    watched = Watched(place)
    for number in range(1, 15):
        (folder,) = [each.folder for each in watched.read().runs if each.name != "kept"]
        run = run.rename(place / f"{number}")
    problems = watched.read().problems
    assert [problem.rpartition("/")[2] for problem in problems] == [f"{number} is gone" for number in range(4, 14)]
    assert not folder._parsed and not folder._grown


def test_a_lock_that_is_no_process_is_no_holder(tmp_path: Path) -> None:
    for holder in ("9" * 5000, "0x1", "-1", "1 2 3", ""):
        directory = write_run(tmp_path, iterations=1)
        hold(directory)
        lock = directory / "lock"
        lock.write_text(f"{holder} {lock.read_text().split()[1]}")
        assert read_run(Folder(directory)).state == "stopped", holder
