"""The main job: what it says at its end, and the five seeds that it names, which are those of its page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from async_wrappers.agents.cli.main_job import FIVE_SEEDS, RANDOM, closing_words
from async_wrappers.agents.sweep.view import View
from tests.worlds.made_up_sweep import D, N, made_up_sweep
from tests.worlds.made_up_sweep import view as view_of

PAGE = Path(__file__).parents[3] / "docs" / "results" / "main_job.md"


def test_the_five_seeds_are_those_of_its_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:2] == "| "]
    table = {name: (float(score.split()[0]), each) for name, score, each in rows[1:]}
    random, _ = table.pop("random, over all trials")
    assert random == RANDOM
    assert {name: tuple(map(int, each.split(", "))) for name, (_, each) in table.items()} == FIVE_SEEDS
    assert {name: score for name, (score, _) in table.items()} == {
        name: mean(each) for name, each in FIVE_SEEDS.items()
    }
    assert re.search(r"\*\*.*asynchronously, 48 % of\nthe gain", page)


def played(place: Path, sequential: float) -> View:
    scores = {(0, 0): (4000, 400), (2, 0): (2000, 380), (2, 2): (sequential, 20)}

    def score(point: Mapping[str, Any], seed: int) -> dict[str, float]:
        final, random = scores[point[D], point[N]]
        return {"final_return": float(final), "random_return": float(random)}

    return view_of(made_up_sweep(place, [f"{D}, {N} = (0, 0), (2, 0), (2, 2)"], seeds=1, score=score), frame_rate=15.0)


def test_it_ends_with_this_seed_beside_five_what_a_frame_is_and_why_sequential_play_is_below_random(
    tmp_path: Path,
) -> None:
    assert closing_words(played(tmp_path, sequential=100)) == [
        "This seed keeps 46 % of the gain asynchronously and nothing sequentially; five seeds, which show more than "
        "one, keep 48 % and nothing (docs/results/main_job.md).",
        "A frame is 4 frames of the emulator, 1/15 s; the game holds an action for so long.",
        "Sequential play scores below random play because the game receives the no-op on every frame between two "
        "actions, as in the paper: so even random play scores 20, and 380 with an action on every frame. If the last "
        "action is repeated in its place, there is no such cost (docs/results/delay.md#kungfumaster).",
    ]


@pytest.mark.parametrize("sequential", [1000, 4000])
def test_it_does_not_explain_what_this_seed_does_not_show(tmp_path: Path, sequential: float) -> None:
    assert len(closing_words(played(tmp_path, sequential))) == 2
