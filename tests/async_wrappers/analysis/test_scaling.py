"""Workers and learners against parameters: the counts, the file of times, the picture and the command line."""

from __future__ import annotations

import json
import math
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.__main__ import main as run
from async_wrappers.agents.networks.q_network import count_parameters, create_network
from async_wrappers.analysis.scaling import (
    GAME_BOY_FPS,
    PUBLISHED,
    PUBLISHED_LIVE,
    Network,
    ProcessesNeeded,
    processes_needed,
    read_networks,
    scaling_picture,
    workers_against_latency,
)

PAGE = Path(__file__).parents[3] / "docs" / "analysis" / "planning.md"


@pytest.fixture(scope="module")
def published() -> list[ProcessesNeeded]:
    return processes_needed(seconds=60)


def test_the_published_networks_are_those_of_the_presets() -> None:
    for network in PUBLISHED:
        with torch.device("meta"):
            assert network.parameters == count_parameters(create_network((1, 84, 84), 6, torso=network.name))


def test_the_published_times_give_the_published_frames_as_the_mean_rule(published: list[ProcessesNeeded]) -> None:
    assert [each.need.mean_rule for each in published] == [1, 5, 8, 70, 596]
    for each in published:
        assert each.need.enough is not None
        assert each.need.enough.fresh_share >= 0.99
        assert each.need.mean_rule <= each.need.enough.workers <= 1.5 * each.need.mean_rule + 2


def test_an_update_per_frame_takes_64_times_as_many_learners_as_an_action_takes_workers(
    published: list[ProcessesNeeded],
) -> None:
    """16 transitions, each as long as four inferences; the paper's figure goes to the order of 10,000 too."""
    assert [each.learners for each in published] == [64 * frames for frames in (1, 5, 8, 70, 596)]


@settings(max_examples=12, deadline=None, database=None)
@given(update_ns=st.integers(1, 10**11), fps=st.sampled_from([30, 50, 60, 59.7275, 1000]))
def test_learners_are_the_frames_that_pass_in_an_update(update_ns: int, fps: float) -> None:
    (found,) = processes_needed([Network("one", 1, 1e-6, update_ns / 1e9)], fps, cv=0, seconds=1)
    exact = Fraction(update_ns, 10**9) * Fraction(str(fps))
    assert found.learners is not None
    assert exact <= found.learners
    assert (found.learners - 1) < exact + Fraction(1, 10**6)


def test_workers_are_those_that_the_latency_needs_and_unknown_updates_have_no_learners() -> None:
    networks = [Network("a", 10, 0.010), Network("b", 1000, 0.100)]
    found = processes_needed(networks, 60, cv=0.3, seconds=30, seed=2)
    assert [each.need for each in found] == workers_against_latency([0.010, 0.100], 60, cv=0.3, seconds=30, seed=2)
    assert [each.learners for each in found] == [None, None]


def test_times_are_read_from_a_file_the_smallest_first(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    entries = [
        {"name": "large", "parameters": 100, "latency_ms": 20.5, "update_ms": 300},
        {"name": "small", "parameters": 7, "latency_ms": 2},
    ]
    path.write_text(json.dumps(entries))
    assert read_networks(path) == [Network("small", 7, 0.002), Network("large", 100, 0.0205, 0.3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must hold at least one network, got an empty list"),
        ("{", "must be a JSON list of objects with name"),
        ("3", "must be a JSON list of objects with name"),
        ('[{"name": "a", "parameters": 3}]', "latency_ms"),
        ('[{"name": "a", "parameters": 0, "latency_ms": 1}]', "parameters is 0"),
        ('[{"name": "a", "parameters": 3, "latency_ms": -1}]', "latency_ms is -1"),
        ('[{"name": "a", "parameters": 3, "latency_ms": 1, "update_ms": "x"}]', "update_ms is 'x'"),
        ('[{"name": "a", "parameters": 3, "latency_ms": 1, "speed": 2}]', "speed"),
    ],
)
def test_another_file_is_refused_in_one_sentence(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "times.json"
    path.write_text(text)
    with pytest.raises(SystemExit) as raised:
        run(["plan", "--networks", str(path)])
    assert raised.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and str(path) in error and message in error


def test_the_picture_has_a_line_for_each_rule_and_the_published_runs_as_markers(
    published: list[ProcessesNeeded],
) -> None:
    figure = scaling_picture(published, "as published")
    (axes,) = figure.axes
    drawn = {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    sizes = [network.parameters for network in PUBLISHED]
    rule, enough, learners, workers_run, learners_run = drawn.values()
    assert rule == (sizes, [1, 5, 8, 70, 596])
    assert enough == (sizes, [each.need.enough.workers for each in published if each.need.enough])
    assert learners == (sizes, [each.learners for each in published])
    assert workers_run == (sizes[1:4], [7, 12, 72])
    assert learners_run == (sizes[1:4], [1, 3, 33])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(drawn)
    looks = {(line.get_linestyle(), line.get_marker(), line.get_markerfacecolor()) for line in axes.lines}
    assert len(looks) == 5  # told apart without colour
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_what_is_not_known_is_not_drawn() -> None:
    found = processes_needed([Network("a", 10, 0.010), Network("b", 1000, 0.100, 0.5)], 60, seconds=30)
    lines = scaling_picture(found).axes[0].lines
    assert list(lines[2].get_xdata()) == [1000]
    assert list(lines[2].get_ydata()) == [30]


def test_the_command_line_prints_the_table_and_draws_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times, picture = tmp_path / "times.json", tmp_path / "networks.png"
    times.write_text('[{"name": "1m", "parameters": 903718, "latency_ms": 40, "update_ms": 3300}]')
    words = ["--cv", "0", "--fps", "60", "--seconds", "60", "--picture", str(picture)]
    assert run(["plan", "--networks", str(times), *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == ["| 1m | 903,718 | 0.04 s | 3 | 3 | 7 | 3.3 s | 198 | 1 |"]
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_page_has_the_table_of_the_published_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--networks"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == len(PUBLISHED)
    page = PAGE.read_text().splitlines()
    assert [row for row in rows if row not in page] == []
    every = re.search(r"make an update on every (\d+)\w+, (\d+)\w+ and (\d+)\w+ frame", PAGE.read_text())
    assert every is not None
    updates = {network.name: network.update_s or 0.0 for network in PUBLISHED}
    frames = [updates[name] * GAME_BOY_FPS / learners for name, (_, learners) in PUBLISHED_LIVE.items()]
    assert [int(number) for number in every.groups()] == [math.ceil(each - 1e-9) for each in frames]


def test_a_missing_matplotlib_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit):
        run(["plan", "--networks", "--picture", "networks.png"])
    assert "pip install 'async-wrappers[plot]'" in capsys.readouterr().err
