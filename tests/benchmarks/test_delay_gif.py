"""The moving picture of delay shows what the pages say: only the sequential game is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from async_wrappers.agents.demonstrations.demonstration import delay_layer
from async_wrappers.agents.experiment.film import Film, beside
from async_wrappers.envs.falling_blocks.game import NO_PIECE, Biased, Game
from async_wrappers.envs.falling_blocks.observation import Vector
from benchmarks.studies import delay_gif

PICTURE = Path(__file__).parents[2] / "docs" / "delay.gif"
TIMERS = ("piece", "clearing", "entering")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_gif, "LONGEST", 420)


@pytest.fixture
def films(short: None) -> list[Film]:
    return [delay_gif.film(interaction, seed=15) for interaction in delay_gif.INTERACTIONS]


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps the game's states; it stands inside the delay, where a step is a frame."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        begun = self.env.reset(**options)
        self.states = [self.env.get_state()["game"]]  # type: ignore[attr-defined]
        return begun

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self.states.append(self.env.get_state()["game"])  # type: ignore[attr-defined]
        return result


def test_only_the_sequential_game_is_lost() -> None:
    ends = [delay_gif.play(delay_gif.make(each), each.delay, seed=15) for each in delay_gif.INTERACTIONS]
    assert [(end["lines"], end["over"]) for end in ends] == [(1, False), (0, True), (1, False)]


def test_an_action_lands_as_often_and_as_late_as_the_captions_say(films: list[Film]) -> None:
    for film, noops, delay in zip(films, (0, 16, 0), (0, 16, 16), strict=True):
        effects = [choice.effect for choice in film.choices]
        assert effects == list(range(delay, effects[-1] + 1, noops + 1))
        assert {choice.effect - choice.start for choice in film.choices} == {delay}
        assert len(film.landed) - effects[-1] <= noops + 1
        assert film.frames == list(range(len(film.landed) + 1))
    assert [film.way for film in films] == ["no delay", "delay 16 frames, 16 no-ops", "delay 16 frames"]


def test_the_player_foresees_the_game() -> None:
    """Frames while full rows stay are left out: the observation counts the frames without a piece up to 15 alone."""
    sees, game, compared = Vector(), Game(delay_gif.LEVEL, Biased(np.random.default_rng(0))), 0
    env: Any = delay_gif.make(delay_gif.INTERACTIONS[0])
    recorder = delay_layer(env).env = Recorder(env.unwrapped)
    delay_gif.play(env, 0, seed=15)
    states = recorder.states
    for frame in range(0, 380, 7):
        game.set_state(states[frame])
        foreseen = delay_gif.shown(sees(game))
        for later in states[frame + 1 : frame + 17] if not game.clearing else []:
            foreseen.step(later["buttons"])
            names = TIMERS if later["piece"] == NO_PIECE else (*TIMERS, "turn", "position", "fall_timer")
            assert [getattr(foreseen, name) for name in names] == [later[name] for name in names]
            compared += 1
    assert compared > 600


def test_the_picture_is_small_enough_for_a_page_and_loops(films: list[Film], tmp_path: Path) -> None:
    short = [replace(film, images=film.images[:13]) for film in films]
    delay_gif.draw_gif(tmp_path / "delay.gif", short)
    with Image.open(tmp_path / "delay.gif") as drawn, Image.open(PICTURE) as kept:
        assert drawn.size == kept.size == (960, 470)
        assert 4 <= drawn.n_frames <= 5 < kept.n_frames  # images that are alike become one
        # What is transparent shows the image before.
        drawn.seek(3)
        whole = np.asarray(list(beside(short, 3, delay_gif.WIDTH))[3]).astype(int)
        assert np.abs(np.asarray(drawn.convert("RGB")).astype(int) - whole).mean() < 3
        assert drawn.info["loop"] == kept.info["loop"] == 0  # for ever
    assert PICTURE.stat().st_size < 1_200_000
