"""A player that clears lines: it looks for the best place of the falling piece, and presses a button a frame.

Where a piece goes is chosen by the usual heuristic: of all landings that can be reached, the best by a weighted sum of
heights, holes, unevenness and full rows (`landings`). The weights are those of Lee, "Tetris AI - the (near) perfect
bot", 2013, found by a genetic algorithm.

It is a policy, a function of the newest observation alone: what it pressed before it reads there (`Vector` has the
button that is held). So it can play, be recorded (``train.py record --player``) and teach
(`benchmarks.studies.falling_blocks_lines`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.spaces import Box

from async_wrappers.envs.falling_blocks.game import (
    ACTIONS,
    COLUMNS,
    ENTRY,
    NO_PIECE,
    SHAPES,
    STRIDE,
    Game,
    clear_rows,
    full_rows,
    rows_of,
)
from async_wrappers.envs.falling_blocks.observation import Seen, Vector

_NOOP, _A, _B, _LEFT, _RIGHT, _DOWN = range(len(ACTIONS))

WEIGHTS = -0.510066, -0.35663, -0.184483, 0.760666


@lru_cache(maxsize=8192)
def merit(landing: Landing) -> float:
    """Return how good a landing is."""
    return sum(weight * number for weight, number in zip(WEIGHTS, landing, strict=True))


def best_place(field: int, piece: int, turn: int, position: int) -> tuple[int, int] | None:
    """Return the turn and the box's column of the best place that can be reached from where a piece is.

    The way there is straight: turned at once, and then shifted in the same row. Of places alike the nearest one is
    best. None where no turn fits.
    """
    row, column = divmod(position, STRIDE)
    best, place = None, None
    for goal, fitting in enumerate(landings(field, piece, row)):
        turns = min((goal - turn) % 4, (turn - goal) % 4)
        for step in (-1, 1):
            at = column
            while at in fitting:
                rank = merit(fitting[at]), -turns - abs(at - column)
                if best is None or rank > best:
                    best, place = rank, (goal, at)
                at += step
    return place


def towards(seen: Seen, turn: int, column: int, drops: bool = True) -> int:
    """Return the action that brings the falling piece towards a turn and a column of its box.

    It turns first, and lets go of every button for a frame before the next press. In its place the piece is dropped
    softly, or left to fall if `drops` is False.
    """
    now = seen.position % STRIDE
    if (turn, column) == (seen.turn, now):
        return _DOWN if drops else _NOOP
    if seen.held != _NOOP:
        return _NOOP
    if turn != seen.turn:
        return _B if (turn - seen.turn) % 4 == 3 else _A
    return _LEFT if column < now else _RIGHT


def press(seen: Seen, drops: bool = True) -> int:
    """Return the player's action for an observation, see `towards`; no button between two pieces."""
    if seen.piece == NO_PIECE:
        return _NOOP
    place = best_place(seen.field, seen.piece, seen.turn, seen.position)
    return _NOOP if place is None else towards(seen, *place, drops)


def make_player(environment: gym.Env[Any, Any]) -> Callable[[npt.NDArray[np.uint8]], int]:
    """Return the player of an environment that shows the vector.

    Raises:
        ValueError: It shows something else.
    """
    if environment.observation_space != Vector().space:
        raise ValueError(
            "this player reads FallingBlocksEnv(observation='vector') without delay or further numbers, got "
            f"observations in {environment.observation_space}"
        )
    return lambda numbers: press(Vector.read(numbers))


# The landings of the falling piece, and the field after each.
#
# A *landing* is a turn and a column of the piece's box from which it falls straight down. Four numbers describe the
# field after it (`Landing`), features of old in this game (Bertsekas and Tsitsiklis, "Neuro-dynamic programming", 1996;
# Thiery and Scherrer, "Building controllers for Tetris", 2009). A player weighs them (`player`); a network may read
# them (`Landings`), so that it need not learn to let pieces fall in its head.


class Landing(NamedTuple):
    """The field after a landing, its full rows cleared.

    Attributes:
        heights: Sum of the columns' heights.
        holes: Empty cells below a block.
        uneven: Sum of the differences between neighbouring columns' heights.
        lines: Rows cleared.
    """

    heights: int
    holes: int
    uneven: int
    lines: int


@lru_cache(maxsize=8192)
def after(field: int) -> Landing:
    """Return a field without its full rows, see `game.field_of`."""
    full = full_rows(field)
    covered = heights = holes = uneven = 0
    for row in rows_of(clear_rows(field, full) if full else field):
        covered |= row  # bit c: column c is at least as high as this row
        heights += covered.bit_count()
        holes += (covered & ~row).bit_count()
        uneven += ((covered ^ covered >> 1) & (1 << COLUMNS - 1) - 1).bit_count()
    return Landing(heights, holes, uneven, len(full))


@lru_cache(maxsize=256)
def landings(field: int, piece: int, row: int) -> tuple[dict[int, Landing], ...]:
    """Return the landings of a piece whose box is in a row, by turn and then by column of the box.

    Rows and columns are those of `game.field_of`'s bits, the ceiling and the wall included. A turn that fits nowhere in
    the row, as that of an I under the ceiling, is tried in the next.
    """
    if piece == NO_PIECE:
        return ({}, {}, {}, {})
    found = []
    for shape in SHAPES[piece]:
        fitting: dict[int, Landing] = {}
        for height in (row, row + 1):
            for column in range(STRIDE):
                blocks = shape << height * STRIDE + column
                if not field & blocks:
                    while not field & blocks << STRIDE:
                        blocks <<= STRIDE
                    fitting[column] = after(field | blocks)
            if fitting:
                break
        found.append(fitting)
    return tuple(found)


_REACH = STRIDE - 2  # columns, to either side


@lru_cache(maxsize=64)
def _table(field: int, piece: int) -> npt.NDArray[np.uint8]:
    """Return the landings from the entry, uint8 `[8, 12 + 2 * _REACH, 5]`: all turns twice, columns with a margin."""
    table = np.zeros((8, STRIDE + 2 * _REACH, 5), np.uint8)
    by_turn = landings(field, piece, ENTRY // STRIDE)
    numbers = np.array([landing for fitting in by_turn for landing in fitting.values()])
    if len(numbers):
        shown = np.minimum(8 * (numbers - numbers.min(axis=0)), 255)
        places = [(turn, column + _REACH) for turn, fitting in enumerate(by_turn) for column in fitting]
        turns, columns = np.array(places).T
        for turn in (turns, turns + 4):
            table[turn, columns, :4] = shown
            table[turn, columns, 4] = 255
    return table


class Landings:
    """The numbers of a `Vector`, and then the landings as seen from the piece, uint8 `[261 + 420]`.

    The 420 numbers are `[4, 21, 5]`: by turns to the right from the present one, columns to the right from 10 on the
    left, and then heights, holes, unevenness and lines, each 8 for one more than at the least of all landings (at most
    255), and 255 where there is a landing. All are 0 while rows are cleared; in the entry delay they are those of the
    next piece. They are landings from the entry: obstacles further down are ignored.
    """

    SHAPE = (4, 2 * _REACH + 1, 5)
    SIZE = Vector.SIZE + 4 * (2 * _REACH + 1) * 5

    def __init__(self) -> None:
        """Make the space."""
        self._vector = Vector()
        self.space: Space[Any] = Box(0, 255, (self.SIZE,), np.uint8)

    def __call__(self, game: Game) -> npt.NDArray[np.uint8]:
        """Return the numbers."""
        numbers = np.zeros(self.SIZE, np.uint8)
        numbers[: Vector.SIZE] = self._vector(game)
        piece, turn, position = game.piece, game.turn, game.position
        if piece == NO_PIECE:
            piece, turn, position = game.preview, 0, ENTRY
        if not game.clearing:
            column = position % STRIDE
            seen = _table(game.field, piece)[turn : turn + 4, column : column + 2 * _REACH + 1]
            numbers[Vector.SIZE :] = seen.reshape(-1)
        return numbers
