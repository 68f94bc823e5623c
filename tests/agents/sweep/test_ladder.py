"""The regret ladder: what is computed from a sweep, when there is none, and what the picture says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.experiment.evaluate import difference_interval
from async_wrappers.agents.sweep.figures import draw_ladders, write_figure
from async_wrappers.agents.sweep.plan import read_plan
from async_wrappers.agents.sweep.result_pages import write_report
from async_wrappers.agents.sweep.results import read_rows
from async_wrappers.agents.sweep.view import Ladder, View, make_view, why_no_ladder
from tests.worlds.made_up_sweep import D, N, made_up_sweep

GAME, AGENT = "create_atari_environment.game_name", "create_agent.agent_name"
BOTH = [f"{D} = 0, 1, 8", f"{N} = 0, {D}"]
SCORES = {(0, 0): [10.0, 14.0], (1, 0): [9.0, 13.0], (1, 1): [9.0, 11.0], (8, 0): [4.0, 6.0], (8, 8): [1.0, 1.0]}


def by_hand(point: Mapping[str, Any], seed: int) -> dict[str, float]:
    return {"final_return": SCORES[point.get(D, 0), point.get(N, 0)][seed]}


def view(base_dir: Path, *arguments: Any, **more: Any) -> View:
    made_up_sweep(base_dir, *arguments, seeds=2, score=by_hand)
    return make_view(read_plan(base_dir), read_rows(base_dir), **more)


def costs(ladder: Ladder) -> dict[float, tuple[float, float]]:
    return {rung.asynchronous.x: (rung.delay.value, rung.inaction.value) for rung in ladder.rungs}


def test_the_costs_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    (ladder,) = view(tmp_path, BOTH).ladders
    assert ladder.top.value == 12.0
    assert costs(ladder) == {1: (1.0, 1.0), 8: (7.0, 4.0)}
    rung = ladder.rungs[1]
    assert rung.delay[1:] == difference_interval([10.0, 14.0], [4.0, 6.0])
    assert rung.inaction[1:] == difference_interval([4.0, 6.0], [1.0, 1.0])
    for each in ladder.rungs:  # down the ladder, the costs add up to what both together take
        assert each.delay.value + each.inaction.value == pytest.approx(ladder.top.value - each.sequential.value)


def test_sentences_say_the_scores_and_what_is_left_of_the_gain_over_random_play(tmp_path: Path) -> None:
    def with_random(point: Mapping[str, Any], seed: int) -> dict[str, float]:
        return {**by_hand(point, seed), "random_return": 2.0}

    made_up_sweep(tmp_path, [f"{D} = 0, 8", BOTH[1]], seeds=2, score=with_random)
    ladder = make_view(read_plan(tmp_path), read_rows(tmp_path)).ladders[0]
    ways = (
        "sequentially (it observes again only when its action has landed)",
        "asynchronously (an action on every frame)",
    )
    assert ladder.in_words() == [
        "Without delay the agent scores 12 [10, 14], and random play 2.",
        f"8 frames late it scores 1 [1, 1] {ways[0]}: nothing of the gain over random play is left.",
        f"8 frames late it scores 5 [4, 6] {ways[1]}: 30 % of the gain over random play is left.",
    ]
    assert ladder._replace(title="Pong", random=None, frame_rate=60.0).in_words() == [
        "Pong: Without delay the agent scores 12 [10, 14].",
        f"Pong: 8 frames (133 ms) late it scores 1 [1, 1] {ways[0]}.",
        f"Pong: 8 frames (133 ms) late it scores 5 [4, 6] {ways[1]}.",
    ]


def test_interactions_may_be_arms_and_a_panel_and_an_agent_have_a_ladder_each(tmp_path: Path) -> None:
    arms = {f"{a}, {i}": [f"{N} = {n}"] for a in ("DQN", "C51") for i, n in (("asynchronous", 0), ("sequential", D))}
    found = view(tmp_path, [f"{GAME} = 'Boxing', 'Krull'", BOTH[0]], arms).ladders
    assert [ladder.title for ladder in found] == ["Boxing, DQN", "Boxing, C51", "Krull, DQN", "Krull, C51"]
    assert all(costs(ladder) == {1: (1.0, 1.0), 8: (7.0, 4.0)} for ladder in found)


@pytest.mark.parametrize(
    ("grid", "more"),
    [
        ([f"{D} = 1, 8", f"{N} = 0, {D}"], {}),  # no score without delay
        ([f"{D} = 0, 1, 8", f"{N} = 0"], {}),  # no inaction
        ([f"{D}, {N} = (0, 0), (1, 0), (8, 8)"], {}),  # at no delay both
        ([*BOTH, "DQNAgent.gamma = 0.9, 0.99"], {"x": "DQNAgent.gamma"}),  # along another axis
    ],
)
def test_where_a_rung_is_missing_there_is_no_ladder_and_a_line_says_what_it_needs(
    tmp_path: Path, grid: list[str], more: dict[str, str]
) -> None:
    found = view(tmp_path, grid, **more)
    assert found.ladders == []
    assert why_no_ladder(found).startswith("no regret ladder: it needs a score without delay (")
    assert "\n" not in why_no_ladder(found)


def test_the_picture_goes_from_rung_to_rung_and_says_what_it_shows(tmp_path: Path) -> None:
    found = view(tmp_path / "s", BOTH)
    figure = draw_ladders(found, found.ladders)
    (axes,) = figure.axes
    bars = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in axes.patches]
    assert bars == [(12.0, 11.0), (11.0, 10.0), (12.0, 5.0), (5.0, 1.0)]
    assert [text.get_text() for text in axes.texts] == ["-1", "-1", "-7", "-4"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "8"]
    assert axes.get_xlabel() == "delay (frames)"
    assert {bool(bar.get_hatch()) for bar in axes.patches} == {False, True}  # distinct without colour
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend[1:] == [
        "cost of delay: from none to asynchronous",
        "cost of inaction: from asynchronous to sequential",
    ]
    assert (
        figure.get_suptitle() == "differences of means of 2 seeds, whiskers: 95 % bootstrap interval of the difference"
    )
    _, svg = write_figure(figure, tmp_path / "ladder")
    page = write_report(tmp_path / "s", found, {"Ladder": svg}).read_text()
    assert "<h2>What delay costs, what inaction costs</h2>" in page
    assert "<td>8</td><td>12</td><td>7</td>" in page


def test_numbers_are_left_to_the_table_where_they_would_cover_each_other(tmp_path: Path) -> None:
    found = view(tmp_path, [*BOTH, f"{GAME} = 'Boxing', 'Krull', 'Pong', 'Qbert'"])
    ladders = found.ladders
    assert len(ladders) == 4
    numbered = draw_ladders(found, ladders)
    assert all(axes.texts for axes in numbered.axes)  # three panels of two rungs stand side by side
    more = [ladder._replace(rungs=ladder.rungs * 2) for ladder in ladders]
    assert not any(axes.texts for axes in draw_ladders(found, more).axes)
