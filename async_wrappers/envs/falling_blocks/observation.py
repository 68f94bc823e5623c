"""What a policy may see of a game: its screen, its board, or the board with what the panel shows and the timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete

from async_wrappers.envs.falling_blocks.field import CEILING, COLUMNS, ROWS, STRIDE, rows_of
from async_wrappers.envs.falling_blocks.game import CLEAR_DELAY, ENTRY_DELAY, GRAVITY, MAX_LEVEL, Game
from async_wrappers.envs.falling_blocks.pieces import NAMES, OFFSETS
from async_wrappers.envs.falling_blocks.rendering import HEIGHT, WIDTH, Screen

__all__ = ["EMPTY", "FALLING", "LOCKED", "OBSERVATIONS", "Board", "Image", "Observation", "State"]

# Cells of the board: after the division by 255 that networks do, about 0, 1/2 and 1.
EMPTY, FALLING, LOCKED = 0, 128, 255

_ROW_CELLS = [bytes(LOCKED if row >> column & 1 else EMPTY for column in range(COLUMNS)) for row in range(1 << COLUMNS)]
# [bit of the field]: its cell, counted row by row. Those of the border are never asked for.
_CELL = [(bit // STRIDE - CEILING) * COLUMNS + bit % STRIDE - 1 for bit in range(STRIDE * (CEILING + ROWS))]


class Observation(Protocol):
    """Makes the observations of one environment; each is new and the caller's own."""

    space: Space[Any]

    def __call__(self, game: Game) -> Any:
        """Return what is seen of `game`."""
        ...


class Board:
    """The cells, uint8 `[18, 10]`: `EMPTY`, `FALLING` or `LOCKED`."""

    def __init__(self) -> None:
        """Remember the locked cells, which change seldom."""
        self.space: Space[Any] = Box(0, 255, (ROWS, COLUMNS), np.uint8)
        self._field = -1
        self._locked = b""

    def __call__(self, game: Game) -> npt.NDArray[np.uint8]:
        """Return the cells."""
        if game.field != self._field:
            self._field = game.field
            self._locked = b"".join([_ROW_CELLS[row] for row in rows_of(game.field)])
        cells = bytearray(self._locked)
        for offset in OFFSETS[game.piece][game.turn]:
            cells[_CELL[game.position + offset]] = FALLING
        return np.ndarray((ROWS, COLUMNS), np.uint8, cells)


class State:
    """The board and, beside it, numbers: all that is to be known but the hidden piece and the player's own timers.

    ``"piece"`` and ``"preview"`` are indices into `pieces.NAMES`, 7 for no piece; ``"fall_timer"`` counts the frames
    until the piece falls by a row, ``"delay"`` those during which there will be no piece.
    """

    def __init__(self) -> None:
        """Make the space."""
        self._board = Board()
        self.space: Space[Any] = Dict(
            board=self._board.space,
            piece=Discrete(len(NAMES) + 1),
            preview=Discrete(len(NAMES)),
            level=Discrete(MAX_LEVEL + 1),
            fall_timer=Discrete(max(GRAVITY) + 1),
            delay=Discrete(CLEAR_DELAY + ENTRY_DELAY + 1),
        )

    def __call__(self, game: Game) -> dict[str, Any]:
        """Return the board and the numbers."""
        return {
            "board": self._board(game),
            "piece": game.piece,
            "preview": game.preview,
            "level": game.level,
            "fall_timer": game.fall_timer,
            "delay": game.clearing + game.entering,
        }


class Image:
    """The screen, uint8 `[144, 160]` in four greys, as emulators show a Game Boy's and as Atari's grey images are."""

    def __init__(self) -> None:
        """Make the space."""
        self.space: Space[Any] = Box(0, 255, (HEIGHT, WIDTH), np.uint8)
        self._screen = Screen()

    def __call__(self, game: Game) -> npt.NDArray[np.uint8]:
        """Return the screen."""
        return self._screen.draw(game)


OBSERVATIONS: Mapping[str, Callable[[], Observation]] = MappingProxyType(
    {"image": Image, "board": Board, "dict": State}
)
