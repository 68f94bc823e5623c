"""The maker of the table of our scores on realtime MinAtar: it reads a sweep's results.csv, finished or not."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers.agents.experiment.evaluate import bootstrap_interval, interquartile_mean
from async_wrappers.agents.sweep.results import read_csv
from async_wrappers.analysis import which_way
from async_wrappers.analysis.scoring import read_reference
from benchmarks.studies.minatar_limit import RESULTS
from benchmarks.studies.minatar_scores import GAME, main, over_games, table_of
from tests.worlds.made_up_sweep import D, N, made_up_sweep

ARMS = {
    "sequential": [f"{D}, {N} = (8, 8), (2, 2)"],
    "asynchronous": [f"{D}, {N} = (0, 0), (8, 0), (2, 0)"],
    "core at release": [f"{D}, {N} = (8, 0)"],
    "chunks": [f"{D}, {N} = (8, 7), (2, 1)"],
    "another": [f"{D}, {N} = (1, 0)"],
}
RANDOM = {"breakout": 0.4, "freeway": 0.3}


def a_score(point: Mapping[str, Any], seed: int) -> dict[str, Any]:
    return {
        "train_average_return": [1.0, 2.0],
        "final_return": 10.0 - point[D] - point[N] / 2 + seed,
        "random_return": 0.5 if point[D] == 0 else 99.0,
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return made_up_sweep(tmp_path / "sweep", [f"{GAME} = 'asterix', 'breakout'"], ARMS, score=a_score) / "results.csv"


def test_the_table_has_the_means_that_plot_draws(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "scores.csv"
    monkeypatch.setattr(sys, "argv", ["minatar_scores", str(results), "--output", str(made)])
    main()
    lines = made.read_text().splitlines()
    assert lines[0] == "game,way,delay,seeds,mean,low,high,random"
    assert lines[1] == "asterix,sequential,2,3,8,7,9,0.5"
    assert [line.split(",")[1:3] for line in lines[1:9]] == [
        ["sequential", "2"],
        ["sequential", "8"],
        ["asynchronous", "0"],
        ["asynchronous", "2"],
        ["asynchronous", "8"],
        ["core at release", "8"],
        ["chunks", "2"],
        ["chunks", "8"],
    ]
    found = read_reference(made)
    ours = found.ours("breakout", "chunks", 8)
    assert ours is not None and (ours.low, ours.high) == pytest.approx(bootstrap_interval([-1.5, -0.5, 0.5]))
    assert found.ours("breakout", "core at release", 2) is None
    assert found.random["breakout"] == 0.5  # of the trials without delay
    assert found.random["freeway"] == read_reference().random["freeway"]
    printed = capsys.readouterr().out
    assert "| delay 2 | sequential | asynchronous | chunks |\n| --- | --- | --- | --- |\n" in printed
    assert "| `asterix` | 8.0 [7.0, 9.0] | " in printed


@pytest.mark.parametrize("bound", [f"{D}, {N} = (8, 0)", f"{D} = 8"])
def test_ways_of_another_sweep_stand_beside_those_of_the_grid(
    bound: str, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = {"told, IMPACT": [bound]}
    grid = [f"{GAME} = 'asterix', 'breakout'"]
    other = made_up_sweep(tmp_path / "impact", grid, arms, score=lambda point, seed: {"final_return": 3.0 + seed})
    arguments = [str(results), "--output", str(tmp_path / "scores.csv"), "--beside", str(other / "results.csv")]
    monkeypatch.setattr(sys, "argv", ["minatar_scores", *arguments])
    main()
    printed = capsys.readouterr().out.splitlines()
    # Random play is 0.5, and without delay the three seeds score 10 to 12.
    assert "told, IMPACT, delay 8, asterix: 4.0 [3.0, 5.0]" in printed
    mean = (4.0 - 0.5) / (11.0 - 0.5)
    assert any(line.startswith(f"told, IMPACT, delay 8: interquartile mean {mean:.3f} [") for line in printed)
    lead = (4.0 - 3.0) / (11.0 - 0.5)
    assert any(line.startswith(f"told, IMPACT minus asynchronous, delay 8: {lead:.3f} [") for line in printed)


def test_a_sweep_without_arms_is_named(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = [f"{GAME} = 'asterix', 'breakout'"]
    other = made_up_sweep(tmp_path / "students", grid, score=lambda point, seed: {"final_return": 3.0 + seed})
    arguments = [str(results), "--output", str(tmp_path / "scores.csv"), "--beside", str(other / "results.csv")]
    monkeypatch.setattr(sys, "argv", ["minatar_scores", *arguments, "--named", "student", "8"])
    main()
    assert "student, delay 8, asterix: 4.0 [3.0, 5.0]" in capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys, "argv", ["minatar_scores", *arguments, "--named", "student", "eight"])
    with pytest.raises(SystemExit, match=r"^2$"):
        main()
    assert "--named must end with a delay in whole frames, got eight" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["minatar_scores", str(results), "--named", "student", "8"])
    with pytest.raises(SystemExit, match=r"^2$"):
        main()
    assert "--named must come with --beside, got student 8" in capsys.readouterr().err


def test_another_table_beside_the_grid_is_refused_in_one_sentence(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.csv").write_text("game,score\nasterix,3\n")
    arguments = [str(results), "--output", str(made := tmp_path / "scores.csv")]
    monkeypatch.setattr(sys, "argv", ["minatar_scores", *arguments, "--beside", str(tmp_path / "other.csv")])
    with pytest.raises(SystemExit, match=r"^2$"):
        main()
    said = "a sweep like configs/sweeps/minatar_impact.gin, or --named, got none with arm"
    assert said in capsys.readouterr().err
    for name, text in (("page.md", "# A page\n\nwith, commas\n"), ("nowhere.csv", None)):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(sys, "argv", ["minatar_scores", *arguments, "--beside", str(path)])
        with pytest.raises(SystemExit, match=r"^2$"):
            main()
        assert f"--beside must be a results.csv that a sweep has written, got {path}" in capsys.readouterr().err
    assert not made.exists()


def test_a_game_without_finished_trials_keeps_its_random_player(results: Path) -> None:
    rows = [row for row in read_csv(results) if row[GAME] == "asterix" and row[D] != "0"]
    made = table_of(rows, RANDOM)
    assert {row["game"] for row in made} == {"asterix", "breakout", "freeway"}
    assert all("random" not in row for row in made if row["game"] == "asterix")
    assert made[-2:] == [{"game": "breakout", "random": "0.4"}, {"game": "freeway", "random": "0.3"}]


def test_other_tables_are_refused_in_one_sentence(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = read_csv(results)
    with pytest.raises(ValueError, match="must have a finished trial with final_return"):
        table_of([row for row in rows if row["arm"] == "another"], RANDOM)
    with pytest.raises(ValueError, match=f"{N} must be that of sequential at a delay of 2 frames, got 1"):
        table_of([{**row, N: "1"} for row in rows if row["arm"] == "sequential" and row[D] == "2"], RANDOM)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr(sys, "argv", ["minatar_scores", str(tmp_path / "other.csv")])
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_the_shares_of_the_ways_that_a_plan_recommends_are_those_of_the_results() -> None:
    students = [{**row, "arm": "student", D: "8"} for row in read_csv(RESULTS.with_name("minatar_students.csv"))]
    others = [row for name in ("fast", "impact") for row in read_csv(RESULTS.with_name(f"minatar_{name}.csv"))]
    found = over_games([*read_csv(RESULTS), *others, *students]).scores
    shares = {
        way: f"{interquartile_mean(np.concatenate([*games.values()])):.2f}"
        for way, games in found.items()
        if way[1] or "alone" in way[0]
    }
    words = {
        which_way.FAST_PATH: [
            ("fast path alone", 8),
            ("fast path alone", 2),
            ("fast path", 8),
            ("fast path, IMPACT", 8),
            ("fast path, a frame late", 8),
            ("fast network alone", 0),
        ],
        which_way.TOLD: [("told", 8), ("student", 8), ("told", 2), ("asynchronous", 8), ("asynchronous", 2)],
        which_way.CHUNKS: [("chunks", 8), ("chunks", 2)],
        which_way.SEQUENTIAL: [("sequential", 8), ("sequential", 2)],
    }
    for remedy, ways in words.items():
        assert re.findall(r"\d\.\d\d", remedy.share) == [shares[way] for way in ways]
    sizes = over_games([*read_csv(RESULTS), *read_csv(RESULTS.with_name("minatar_sizes.csv"))]).scores["alone", 1]
    a_frame_late = [f"{sizes[game].mean():.2f}" for game in ("asterix", "breakout", "space_invaders")]
    assert re.findall(r"\d\.\d\d", which_way.IN_TIME.share) == a_frame_late
