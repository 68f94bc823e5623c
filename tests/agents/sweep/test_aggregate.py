"""Scores over games: worked out by hand, what is apart, and what the page and the file say of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from async_wrappers.agents.sweep.aggregate import (
    Aggregate,
    aggregate_of,
    improvement_probability,
    why_no_aggregate,
    write_aggregate,
)
from async_wrappers.agents.sweep.figures import draw_aggregate
from async_wrappers.agents.sweep.result_pages import write_report
from tests.worlds.made_up_sweep import D, N, made_up_sweep, view

GAME = "create_minatar_environment.game"
GRID = [f"{GAME} = 'breakout', 'asterix', 'seaquest'"]
ARMS = {"sequential": [f"{D}, {N} = (8, 8)"], "asynchronous": [f"{D}, {N} = (0, 0), (8, 0)"]}
# By game: random, without delay; asynchronous and sequential at 8.
SCORES = {
    "breakout": (1.0, [9.0, 11.0, 13.0], [6.0, 6.0, 11.0], [1.0, 1.0, 3.5]),
    "asterix": (2.0, [3.0, 4.0, 5.0], [2.0, 4.0, 3.0], [2.0, 2.0, 2.0]),
    "seaquest": (5.0, [4.0, 5.0, 6.0], [5.0, 5.0, 5.0], [5.0, 5.0, 5.0]),
}


def by_hand(point: Mapping[str, Any], seed: int) -> dict[str, float]:
    random, without, asynchronous, sequential = SCORES[point[GAME]]
    scores = {(0, 0): without, (8, 0): asynchronous, (8, 8): sequential}[point[D], point[N]]
    return {"final_return": scores[seed], "random_return": random}


def aggregate(base_dir: Path, **more: Any) -> Aggregate:
    found = aggregate_of(view(made_up_sweep(base_dir, GRID, ARMS, score=by_hand), **more))
    assert found is not None
    return found


def test_scores_are_normalised_by_the_random_player_and_the_score_without_delay(tmp_path: Path) -> None:
    found = aggregate(tmp_path)
    assert {game: scale[:2] for game, scale in found.scales.items()} == {
        "breakout": (1.0, 11.0),
        "asterix": (2.0, 4.0),
        "seaquest": (5.0, 5.0),
    }
    assert found.scores["asynchronous", 8]["breakout"].tolist() == [0.5, 0.5, 1.0]
    assert found.scores["asynchronous", 8]["asterix"].tolist() == [0.0, 1.0, 0.5]
    assert found.scores["sequential", 8]["breakout"].tolist() == [0.0, 0.0, 0.25]


def test_a_curve_that_is_never_late_is_a_way_and_no_scale(tmp_path: Path) -> None:
    def score(point: Mapping[str, Any], seed: int) -> dict[str, float]:
        scores = by_hand(point, seed)
        return {**scores, "final_return": 1.0} if point.get("Net.units") == 4 else scores

    arms = {**ARMS, "small": [f"{D}, {N} = (0, 0)", "Net.units = 4"]}
    found = aggregate_of(view(made_up_sweep(tmp_path / "some", GRID, arms, score=score)))
    assert found is not None
    assert found.scales == aggregate(tmp_path / "without").scales
    assert found.scores["small", 0]["asterix"].tolist() == [-0.5] * 3  # (1 - 2) / (4 - 2)
    every = {"asynchronous": [f"{D}, {N} = (0, 0)"], "small": arms["small"]}
    found = aggregate_of(view(made_up_sweep(tmp_path / "every", GRID, every, score=score)))
    assert found is not None and found.scales["breakout"].without_delay == 6.0  # the mean of 9, 11, 13 and of 1, 1, 1


def test_a_game_that_is_not_learnt_without_delay_is_apart(tmp_path: Path) -> None:
    found = aggregate(tmp_path)
    assert found.apart == ["seaquest"]
    assert all("seaquest" not in games for games in found.scores.values())


def test_the_interquartile_mean_is_over_games_and_seeds(tmp_path: Path) -> None:
    ways = {(way.name, way.x): way for way in aggregate(tmp_path).ways}
    assert ways["asynchronous", 8].value == pytest.approx(0.625)  # of .5, .5, .5, 1

    assert ways["sequential", 8].value == 0.0
    assert ways["asynchronous", 0].value == pytest.approx(1.0)
    for way in ways.values():
        assert way.games == 2
        assert way.low <= way.value <= way.high
    assert ways["asynchronous", 8].high <= 1.0


def test_a_pair_has_its_difference_and_the_probability_that_one_is_better(tmp_path: Path) -> None:
    (pair,) = aggregate(tmp_path).pairs
    assert (pair.name, pair.other, pair.x) == ("asynchronous", "sequential", 8)
    assert pair.difference[0] == pytest.approx(0.625)
    # Breakout: all nine; Asterix: 6 of 9 above, 3 of 9 alike.
    assert pair.probability[0] == pytest.approx((1 + (6 + 1.5) / 9) / 2)
    assert pair.probability[1] <= pair.probability[0] <= pair.probability[2] <= 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_the_probability_of_improvement_is_mann_and_whitneys(ours: list[float], theirs: list[float]) -> None:
    found = improvement_probability([ours], [theirs])
    assert found == pytest.approx(stats.mannwhitneyu(ours, theirs).statistic / (len(ours) * len(theirs)))
    assert found + improvement_probability([theirs], [ours]) == pytest.approx(1)


def test_the_seeds_are_drawn_within_each_game(tmp_path: Path) -> None:
    """With seeds that agree the interval is a point, however far the games are from each other."""

    def alike(point: Mapping[str, Any], seed: int) -> dict[str, float]:
        score = {"breakout": 4.0, "asterix": 8.0, "seaquest": 9.0}[point[GAME]]
        return {"final_return": 10.0 if point[D] == 0 else score, "random_return": 0.0}

    found = aggregate_of(view(made_up_sweep(tmp_path, GRID, ARMS, score=alike)))
    assert found is not None
    ways = {(way.name, way.x): way for way in found.ways}
    way = ways["asynchronous", 8]
    assert way.low == way.value == way.high == pytest.approx(np.mean([0.4] + [0.8] * 3 + [0.9]))


@pytest.mark.parametrize(
    ("grid", "arms"),
    [
        (GRID, {"asynchronous": [f"{D}, {N} = (8, 0)"]}),  # no score without delay
        ([f"{GAME} = 'breakout'"], ARMS),  # one game
    ],
)
def test_without_games_or_without_a_score_without_delay_there_is_none(
    tmp_path: Path, grid: list[str], arms: Mapping[str, list[str]]
) -> None:
    found = view(made_up_sweep(tmp_path, grid, arms, score=by_hand))
    assert aggregate_of(found) is None
    assert "several games" in why_no_aggregate(found)


def test_an_arm_named_random_is_the_random_player(tmp_path: Path) -> None:
    arms = {**ARMS, "random": [f"{D}, {N} = (0, 1)"]}

    def score(point: Mapping[str, Any], seed: int) -> dict[str, float]:
        return {"final_return": 0.5} if point["arm"] == "random" else by_hand(point, seed)

    found = aggregate_of(view(made_up_sweep(tmp_path, GRID, arms, score=score)))
    assert found is not None
    assert {scale.random for scale in found.scales.values()} == {0.5}


def test_the_file_and_the_page_have_all_numbers(tmp_path: Path) -> None:
    found = aggregate(tmp_path)
    with open(write_aggregate(found, tmp_path / "aggregate.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["what"] for row in rows] == [
        *["gain over random"] * 2,
        "gain over random, apart",
        *["interquartile mean"] * 3,
        "difference",
        "probability of improvement",
    ]
    assert [float(row["value"]) for row in rows[:3]] == [10.0, 2.0, 0.0]
    assert (rows[-1]["way"], rows[-1]["other"], rows[-1]["games"]) == ("asynchronous", "sequential", "2")
    page = write_report(tmp_path, view(tmp_path), {}, found).read_text()
    assert "Apart, as their score without delay is not above random: seaquest." in page
    assert "asynchronous beside sequential" in page


def test_the_picture_has_a_curve_per_way_and_a_row_per_pair(tmp_path: Path) -> None:
    found = aggregate(tmp_path)
    figure = draw_aggregate(view(tmp_path), found)
    means, chances = figure.axes
    assert {*means.get_legend_handles_labels()[1]} == {"asynchronous", "sequential", "without delay", "random"}
    assert [text.get_text() for text in chances.get_yticklabels()] == ["asynchronous > sequential, delay 8"]
    assert "seaquest" in figure.get_suptitle()
