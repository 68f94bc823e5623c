"""The screen: 160 x 144 pixels in four greys, the field on the left and a panel on the right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from async_wrappers.envs.falling_blocks.field import CEILING, COLUMNS, STRIDE, full_rows, rows_of
from async_wrappers.envs.falling_blocks.game import CLEAR_DELAY, Game
from async_wrappers.envs.falling_blocks.pieces import OFFSETS

__all__ = ["HEIGHT", "WIDTH", "Screen"]

Pixels = npt.NDArray[np.uint8]

HEIGHT, WIDTH = 144, 160  # pixels
CELL = 8  # pixels
FIELD_LEFT = 16  # pixels from the left edge; the field is as high as the screen
PANEL_LEFT = 108
PHASES = 7  # of the blinking while rows are cleared

# What an emulator's RGB565 shades become when they are turned grey.
WHITE, LIGHT, DARK, BLACK = np.array([250, 168, 82, 0], np.uint8)

_GLYPHS = {
    "0": "### #.# #.# #.# ###",
    "1": ".#. ##. .#. .#. ###",
    "2": "### ..# ### #.. ###",
    "3": "### ..# .## ..# ###",
    "4": "#.# #.# ### ..# ..#",
    "5": "### #.. ### ..# ###",
    "6": "### #.. ### #.# ###",
    "7": "### ..# .#. .#. .#.",
    "8": "### #.# ### #.# ###",
    "9": "### #.# ### ..# ###",
    "C": "### #.. #.. #.. ###",
    "E": "### #.. ##. #.. ###",
    "I": "### .#. .#. .#. ###",
    "L": "#.. #.. #.. #.. ###",
    "N": "##. #.# #.# #.# #.#",
    "O": "### #.# #.# #.# ###",
    "R": "##. #.# ##. #.# #.#",
    "S": ".## #.. .#. ..# ##.",
    "T": "### .#. .#. .#. .#.",
    "V": "#.# #.# #.# #.# .#.",
    "X": "#.# #.# .#. #.# #.#",
}
_INK = {sign: np.array([[dot == "#" for dot in line] for line in rows.split()]) for sign, rows in _GLYPHS.items()}


def _framed(frame: np.uint8, inside: np.uint8, shine: np.uint8) -> Pixels:
    """Return a cell of one block: a frame, a filling and a brighter corner."""
    tile = np.full((CELL, CELL), frame)
    tile[1:-1, 1:-1] = inside
    tile[2:4, 2:4] = shine
    return tile


LOCKED_TILE = _framed(BLACK, LIGHT, WHITE)
FALLING_TILE = _framed(BLACK, DARK, LIGHT)
BLINKING_TILE = np.full((CELL, CELL), LIGHT)


def _write(image: Pixels, text: str, top: int, left: int) -> None:
    """Write `text` in letters of 6 x 10 pixels."""
    for index, sign in enumerate(text):
        ink = _INK[sign].repeat(2, axis=0).repeat(2, axis=1)
        corner = image[top:, left + 8 * index :]
        corner[: ink.shape[0], : ink.shape[1]][ink] = BLACK


def _empty_screen() -> Pixels:
    """Return what never changes: the walls, and the words on the panel."""
    image = np.full((HEIGHT, WIDTH), LIGHT)
    right = FIELD_LEFT + CELL * COLUMNS
    image[:, FIELD_LEFT:right] = WHITE
    for left in (FIELD_LEFT - CELL, right):
        image[:, left : left + CELL] = DARK
        image[::CELL, left : left + CELL] = BLACK
    for word, top in (("SCORE", 6), ("LEVEL", 38), ("LINES", 70), ("NEXT", 102)):
        _write(image, word, top, PANEL_LEFT)
    return image


class Screen:
    """Draws games; between two changes of the field or the panel only the falling piece is drawn anew."""

    def __init__(self) -> None:
        """Have drawn nothing yet."""
        self._empty = _empty_screen()
        self._drawn: tuple[int, ...] = ()
        self._still = self._empty

    def draw(self, game: Game) -> Pixels:
        """Return the screen of `game`, uint8 `[144, 160]`, a new array."""
        blinks = game.clearing * PHASES // (CLEAR_DELAY + 1) % 2
        shown = (game.field, blinks, game.preview, game.score, game.level, game.lines)
        if shown != self._drawn:
            self._drawn = shown
            self._still = self._draw_still(game, bool(blinks))
        image = self._still.copy()
        for offset in OFFSETS[game.piece][game.turn]:
            row, column = divmod(game.position + offset, STRIDE)
            _put(image, FALLING_TILE, CELL * (row - CEILING), FIELD_LEFT + CELL * (column - 1))
        return image

    def _draw_still(self, game: Game, blinks: bool) -> Pixels:
        image = self._empty.copy()
        blinking = full_rows(game.field) if blinks else ()
        for index, row in enumerate(rows_of(game.field)):
            tile = BLINKING_TILE if index in blinking else LOCKED_TILE
            for column in range(COLUMNS):
                if row >> column & 1:
                    _put(image, tile, CELL * index, FIELD_LEFT + CELL * column)
        for number, top in ((game.score, 20), (game.level, 52), (game.lines, 84)):
            _write(image, str(number), top, PANEL_LEFT)
        for offset in OFFSETS[game.preview][0]:
            row, column = divmod(offset, STRIDE)
            _put(image, FALLING_TILE, 104 + CELL * row, PANEL_LEFT + CELL * column)
        return image


def _put(image: Pixels, tile: Pixels, top: int, left: int) -> None:
    image[top : top + CELL, left : left + CELL] = tile
