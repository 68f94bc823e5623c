"""The moving picture of delay shows what the pages say: only the sequential game is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from async_wrappers.envs.falling_blocks.game import NO_PIECE, Biased, Game
from async_wrappers.envs.falling_blocks.observation import Vector
from benchmarks.studies import delay_gif

PICTURE = Path(__file__).parents[2] / "docs" / "delay.gif"
TIMERS = ("piece", "clearing", "entering")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_gif, "LONGEST", 420)


@pytest.fixture
def games(short: None) -> list[delay_gif.Played]:
    return [delay_gif.play(interaction, seed=15) for interaction in delay_gif.INTERACTIONS]


def test_only_the_sequential_game_is_lost(games: list[delay_gif.Played]) -> None:
    ends = [(game.states[-1]["lines"], game.states[-1]["over"]) for game in games]
    assert ends == [(1, False), (0, True), (1, False)]


def test_an_action_lands_as_often_and_as_late_as_the_captions_say(games: list[delay_gif.Played]) -> None:
    for game, noops, delay in zip(games, (0, 16, 0), (0, 16, 16), strict=True):
        effects = list(game.starts)
        assert effects == list(range(delay, effects[-1] + 1, noops + 1))
        assert {effect - start for effect, start in game.starts.items()} == {delay}
        assert len(game.states) - 1 - effects[-1] <= noops + 1


def test_the_player_foresees_the_game(games: list[delay_gif.Played]) -> None:
    """Frames while full rows stay are left out: the observation counts the frames without a piece up to 15 alone."""
    sees, game, compared = Vector(), Game(delay_gif.LEVEL, Biased(np.random.default_rng(0))), 0
    states = games[0].states
    for frame in range(0, 380, 7):
        game.set_state(states[frame])
        foreseen = delay_gif.shown(sees(game))
        for later in states[frame + 1 : frame + 17] if not game.clearing else []:
            foreseen.step(later["buttons"])
            names = TIMERS if later["piece"] == NO_PIECE else (*TIMERS, "turn", "position", "fall_timer")
            assert [getattr(foreseen, name) for name in names] == [later[name] for name in names]
            compared += 1
    assert compared > 600


def test_the_picture_is_small_enough_for_a_page_and_loops(games: list[delay_gif.Played], tmp_path: Path) -> None:
    delay_gif.draw_gif(tmp_path / "delay.gif", [game._replace(states=game.states[:13]) for game in games])
    with Image.open(tmp_path / "delay.gif") as drawn, Image.open(PICTURE) as kept:
        assert drawn.size == kept.size == (828, 416)
        assert 4 <= drawn.n_frames <= 5 < kept.n_frames  # images that are alike become one
        assert drawn.info["loop"] == kept.info["loop"] == 0  # for ever
    assert PICTURE.stat().st_size < 1_200_000
