"""What the player of falling blocks reads, how landings are judged, and that it clears lines."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.envs.falling_blocks import FallingBlocksEnv
from async_wrappers.envs.falling_blocks.game import NAMES, NO_PIECE, Game, UniformPieces, field_of, rows_of
from async_wrappers.envs.falling_blocks.observation import LOCKED, Seen, Vector
from async_wrappers.envs.falling_blocks.player import (
    Landing,
    Landings,
    after,
    best_place,
    landings,
    make_player,
    press,
    towards,
)

NOOP, A, B, LEFT, RIGHT, DOWN = range(6)
ACTIONS = st.lists(st.sampled_from([NOOP, A, B, LEFT, RIGHT, DOWN]), max_size=300)
EMPTY = [0] * 18


def played(actions: list[int], seed: int, **kwargs: Any) -> tuple[FallingBlocksEnv, Any, int]:
    """Return an environment in which `actions` were played as far as the game went, what it shows, and the last one."""
    env = FallingBlocksEnv(level=20, **kwargs)
    shown, last = env.reset(seed=seed)[0], NOOP
    for last in actions:
        shown, _, over, _, _ = env.step(last)
        if over:
            break
    return env, shown, last


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), ACTIONS)
def test_a_vector_says_what_the_game_is_and_which_button_is_held(seed: int, actions: list[int]) -> None:
    env, numbers, held = played(actions, seed, observation="vector")
    state = env.get_state()["game"]
    assert env.observation_space.contains(numbers)
    seen = Vector.read(numbers)
    assert rows_of(seen.field) == state["rows"]
    assert (seen.piece, seen.preview, seen.held) == (state["piece"], state["preview"], held)
    if state["piece"] != NO_PIECE:
        assert (seen.turn, seen.position) == (state["turn"], state["position"])
    locked = numbers[:180].reshape(18, 10) == LOCKED
    heights = np.where(locked.any(axis=0), 18 - locked.argmax(axis=0), 0)
    np.testing.assert_array_equal(numbers[180:190], 14 * heights)
    assert numbers[259] == 17 * min(state["fall_timer"], 15)
    assert numbers[260] == 17 * min(state["clearing"] + state["entering"], 15)


def test_a_field_after_a_landing_by_hand() -> None:
    #  ##........   a row of two blocks over a hole and a block; the full row below is cleared
    rows = [*EMPTY[:15], 0b11, 0b10, 0b1111111111]
    assert after(field_of(rows)) == Landing(heights=4, holes=1, uneven=2, lines=1)
    assert after(field_of(EMPTY)) == Landing(0, 0, 0, 0)


@pytest.mark.parametrize(("piece", "count"), [("O", 36), *((piece, 34) for piece in "LJIZST")])
def test_on_an_empty_field_every_turn_lands_in_every_column(piece: str, count: int) -> None:
    found = landings(field_of(EMPTY), NAMES.index(piece), 1)
    assert sum(map(len, found)) == count
    assert all(landing.lines == 0 for fitting in found for landing in fitting.values())


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), ACTIONS)
def test_landings_are_seen_from_the_piece(seed: int, actions: list[int]) -> None:
    env, numbers, _ = played(actions, seed, observation="landings")
    assert env.observation_space.contains(numbers)
    shown = numbers[Vector.SIZE :].reshape(Landings.SHAPE)
    seen = Vector.read(numbers[: Vector.SIZE])
    if seen.piece == NO_PIECE:
        return
    found = landings(seen.field, seen.piece, 1)
    least = np.min([landing for fitting in found for landing in fitting.values()] or [Landing(0, 0, 0, 0)], axis=0)
    here = seen.position % 12
    for turn in range(4):
        for column in range(-10, 11):
            landing = found[(seen.turn + turn) % 4].get(here + column)
            expected = [0] * 5 if landing is None else [*np.minimum(8 * (np.array(landing) - least), 255), 255]
            assert shown[turn, column + 10].tolist() == expected


def test_no_landings_are_shown_while_rows_are_cleared_and_then_those_of_the_next_piece() -> None:
    env = FallingBlocksEnv(level=20, observation="landings")
    env.reset(seed=0)
    state = env.get_state()
    cleared = {"rows": [*EMPTY[:17], 1023], "piece": NO_PIECE, "clearing": 2, "entering": 2}
    env.set_state({**state, "game": {**state["game"], **cleared}})
    assert not env.step(NOOP)[0][Vector.SIZE :].any()
    entering = env.step(NOOP)[0]
    assert Vector.read(entering[: Vector.SIZE]).piece == NO_PIECE
    assert entering[Vector.SIZE :].any()


def seen(piece: str, rows: list[int], turn: int = 0, position: int = 16, held: int = NOOP) -> Seen:
    """Return what a player sees of a piece that has just entered."""
    return Seen(field_of(rows), NAMES.index(piece), turn, position, 0, held)


def test_the_player_fills_a_gap_and_counts_the_way_there() -> None:
    # An upright I in the last column clears four rows; its box's third column, where it stands, is the field's last.
    rows = [*EMPTY[:14], *[0b0111111111] * 4]
    state = seen("I", rows, position=28)
    assert best_place(*state[:4]) is not None
    turn, column = best_place(*state[:4]) or (0, 0)
    assert turn % 2 == 1
    assert landings(state.field, state.piece, 2)[turn][column].lines == 4
    assert press(state) in (A, B)


@pytest.mark.parametrize(
    ("turn", "column", "held", "action"),
    [
        *[(0, 4, NOOP, DOWN), (0, 4, DOWN, DOWN), (1, 4, NOOP, A), (3, 6, NOOP, B), (2, 2, NOOP, A)],
        *[(0, 2, NOOP, LEFT), (0, 6, NOOP, RIGHT), (0, 6, RIGHT, NOOP), (1, 4, LEFT, NOOP)],
    ],
)
def test_a_piece_is_turned_shifted_and_dropped_and_each_press_is_let_go_of(
    turn: int, column: int, held: int, action: int
) -> None:
    assert towards(seen("T", EMPTY, held=held), turn, column) == action


def test_between_two_pieces_there_are_no_landings_and_nothing_is_pressed() -> None:
    assert best_place(field_of(EMPTY), NO_PIECE, 0, 16) is None
    assert press(Seen(field_of(EMPTY), NO_PIECE, 0, 0, 0, NOOP)) == NOOP


def test_a_piece_that_does_not_drop_is_left_alone_in_its_place() -> None:
    assert towards(seen("T", EMPTY), 0, 4, drops=False) == NOOP


@pytest.mark.parametrize(("level", "drops"), [(9, True), (20, False)])
def test_the_player_clears_lines(level: int, drops: bool) -> None:
    random = np.random.default_rng(0)
    game, held, frames = Game(level, UniformPieces(random)), NOOP, 0
    buttons = (0, 1, 2, 4, 8, 16)
    while not game.over and frames < 2_500:
        held = press(Seen(game.field, game.piece, game.turn, game.position, game.preview, held), drops=drops)
        game.step(buttons[held])
        frames += 1
    assert game.lines >= 5
    assert not game.over


def test_a_player_of_another_observation_is_refused_in_one_sentence() -> None:
    player = make_player(gym.make("async_wrappers/FallingBlocks-v0", observation="vector"))
    assert player(FallingBlocksEnv(observation="vector").reset(seed=0)[0]) in range(6)
    with pytest.raises(ValueError, match=r"^this player reads FallingBlocksEnv\(observation='vector'\)"):
        make_player(FallingBlocksEnv(observation="board"))
