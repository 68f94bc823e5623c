"""The limits of realtime MinAtar: what is foretold is what comes, and nobody who foretells changes the game."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.load import load_agent, play_episode
from async_wrappers.analysis.scoring import read_reference
from async_wrappers.envs.minatar import MINATAR_GAMES, MinAtarEnv, create_minatar_environment
from async_wrappers.wrappers.delay import RealtimeDelay
from benchmarks.studies import minatar_limit
from benchmarks.studies.minatar_limit import (
    CONSTANT,
    Cell,
    PerfectModel,
    Scores,
    draw,
    foretell,
    in_words,
    over_games,
    play,
    probabilities_of,
    read,
    write,
)
from benchmarks.studies.minatar_scores import DELAY, GAME


class ForetellingPlayer:
    """Plays given actions, and notes the frame that is foretold for each of them."""

    foretells = True

    def __init__(self, actions: Sequence[int]) -> None:
        self._actions, self.foretold = iter(actions), list[Any]()

    def begin(self, seed: int) -> None:
        self._random = np.random.RandomState(seed + 1)

    def act(self, observation: Any, game: MinAtarEnv | None, on_their_way: Sequence[int]) -> int:
        assert game is not None
        self.foretold.append(foretell(game, observation, on_their_way, self._random))
        return next(self._actions)


class AllFrames(gym.Wrapper[Any, Any, Any, Any]):
    """Notes all frames of an episode."""

    def reset(self, **arguments: Any) -> Any:
        shown = super().reset(**arguments)
        self.frames = [shown[0]]
        return shown

    def step(self, action: Any) -> Any:
        shown = super().step(action)
        self.frames.append(shown[0])
        return shown


# Without sticky actions nothing is drawn in these two after the reset.
@pytest.mark.parametrize("game", ["breakout", "space_invaders"])
@settings(max_examples=15, deadline=None)
@given(delay=st.integers(0, 9), seed=st.integers(0, 100), actions=st.lists(st.integers(0, 2), min_size=80, max_size=80))
def test_in_a_game_without_chance_the_foretold_frame_is_the_one_on_which_the_action_lands(
    game: str, delay: int, seed: int, actions: list[int]
) -> None:
    seen = AllFrames(create_minatar_environment(game, sticky_probability=0, max_episode_steps=60))
    player = ForetellingPlayer(actions)
    play(seen, player, delay, seed)
    ends = len(seen.frames) - 1  # the frame on which the game is over
    assert player.foretold
    for start, (shown, over) in enumerate(player.foretold):
        lands = start + delay
        assert np.array_equal(shown, seen.frames[min(lands, ends)])
        if ends < 60:  # otherwise it was cut, which no rule of the game foretells
            assert over is (lands >= ends)


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_a_game_whose_future_is_foretold_is_played_as_any_other(game: str) -> None:
    actions = np.random.default_rng(1).integers(3, size=400).tolist()
    seen, plain = (AllFrames(create_minatar_environment(game, max_episode_steps=150)) for _ in range(2))
    score = play(seen, ForetellingPlayer(actions), 8, seed=5)
    late = RealtimeDelay(plain, delay=8)
    late.reset(seed=5)
    returned, over = 0.0, False
    rest = iter(actions)
    while not over:
        _, reward, terminated, truncated, _ = late.step(next(rest))
        returned, over = returned + reward, terminated or truncated
    assert score == returned
    assert np.array_equal(seen.frames, plain.frames)


def test_the_action_is_the_likeliest_by_the_mean_over_futures_that_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    futures = iter([(np.array([0]), False), (np.array([1]), False), (np.array([2]), True)])
    monkeypatch.setattr(minatar_limit, "foretell", lambda *_: next(futures))
    table = np.array([[0.6, 0.4, 0.0], [0.0, 0.4, 0.6], [0.1, 0.0, 0.9]])  # mean of the first two: .3, .4, .3

    def probabilities(observations: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return table[observations[:, 0]]

    player = PerfectModel(probabilities, futures=3)
    player.begin(seed=0)
    game = MinAtarEnv("breakout")
    assert player.act(None, game, [0]) == 1
    futures = iter([(np.array([2]), True)] * 3)  # over in all of them
    assert player.act(None, game, [0]) == 2


def test_without_delay_the_perfect_model_is_the_agent() -> None:
    agent, env = load_agent("minatar/breakout")
    player = PerfectModel(probabilities_of(agent), futures=1)
    game = create_minatar_environment("breakout")
    for seed in range(3):
        assert play(game, player, 0, seed) == play_episode(agent, env, seed).score


def test_the_table_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "limit.csv"
    arguments = ["--games", "asterix", "breakout", "--delays", "8", "--output", str(table)]
    monkeypatch.setattr(sys, "argv", ["minatar_limit", *arguments])
    played: list[Cell] = []

    def scores_of(cell: Cell) -> Scores:
        played.append(cell)
        if len(played) == 4:
            raise KeyboardInterrupt
        return Scores([1.0, len(played)], "UP" if cell.arm == CONSTANT else "")

    monkeypatch.setattr(minatar_limit, "scores_of", scores_of)
    with pytest.raises(KeyboardInterrupt):
        minatar_limit.main()
    kept = read(table)
    assert [*kept] == sorted(played[:3])
    minatar_limit.main()
    assert len(played) == len(set(played)) + 1 == 9  # the one that was interrupted was begun twice
    assert {cell: scores for cell, scores in read(table).items() if cell in kept} == kept
    assert f"| `asterix` | {1.0:.1f} [1.0, 1.0] |" in in_words({played[0]: Scores([1.0, 1.0])})
    assert "best constant action, delay 8: " in capsys.readouterr().out


def test_over_games_a_player_stands_beside_the_ways_that_were_trained() -> None:
    reference = read_reference()
    games = ("asterix", "breakout", "freeway")
    tops = {game: reference.ours(game, "asynchronous", 0) for game in games}
    found = {Cell(CONSTANT, game, 8): Scores([top.mean] * 2) for game, top in tops.items() if top is not None}
    lines = over_games(found).splitlines()
    assert lines[0] == f"{CONSTANT}, delay 8: 1.00 [1.00, 1.00] over 3 games"
    told = [reference.ours(game, "told", 8) for game in games]
    shares = [float(reference.normalised(game, way.mean)) for game, way in zip(games, told, strict=True)]
    assert f"told, delay 8: {statistics.fmean(shares):.2f}" in lines  # of three games none is cut off


def test_the_best_constant_action_is_found() -> None:
    cell = Cell(CONSTANT, "freeway", 2)
    short = minatar_limit.create_minatar_environment
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minatar_limit, "create_minatar_environment", lambda game: short(game, max_episode_steps=300))
        patch.setattr(minatar_limit, "TRIES", 2)
        patch.setattr(minatar_limit, "EPISODES", 2)
        found = minatar_limit.scores_of(cell)
    assert found.action == "UP" and min(found.scores) > 0


def test_the_picture_has_a_mark_for_each_delay(tmp_path: Path) -> None:
    rows = [
        {"arm": "told", GAME: game, DELAY: delay, "seed": seed, "metric": "final_return", "value": "1", "trial": str(t)}
        for t, (game, delay, seed) in enumerate((g, d, s) for g in ("asterix", "freeway") for d in "28" for s in "01")
    ]
    found = {Cell(CONSTANT, "freeway", delay): Scores([29.0, 30.0], "UP") for delay in (2, 8)}
    draw(rows, found, tmp_path / "limit.png")
    assert (tmp_path / "limit.png").stat().st_size > 10_000
    write(tmp_path / "limit.csv", found)
    assert read(tmp_path / "limit.csv") == found
