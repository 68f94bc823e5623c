"""The observations of a game: its screen, its board, the board and the panel's numbers, or all as a vector.

The screen has 160 x 144 pixels, the field on the left and a panel on the right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete

from async_wrappers.envs.falling_blocks import game as rules
from async_wrappers.envs.falling_blocks.game import CEILING, COLUMNS, OFFSETS, ROWS, STRIDE, Game, full_rows, rows_of

# Cells of the board: after the division by 255 that networks do, about 0, 1/2 and 1.
EMPTY, FALLING, LOCKED = 0, 128, 255

_ROW_CELLS = [bytes(LOCKED if row >> column & 1 else EMPTY for column in range(COLUMNS)) for row in range(1 << COLUMNS)]
# [bit of the field]: its cell, counted row by row. Those of the border are never asked for.
_CELL = [(bit // STRIDE - CEILING) * COLUMNS + bit % STRIDE - 1 for bit in range(STRIDE * (CEILING + ROWS))]


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

    ``"piece"`` and ``"preview"`` are indices into `game.NAMES`, 7 for no piece; ``"fall_timer"`` counts the frames
    until the piece falls by a row, ``"delay"`` those during which there will be no piece.
    """

    def __init__(self) -> None:
        """Make the space."""
        self._board = Board()
        self.space: Space[Any] = Dict(
            board=self._board.space,
            piece=Discrete(len(rules.NAMES) + 1),
            preview=Discrete(len(rules.NAMES)),
            level=Discrete(rules.MAX_LEVEL + 1),
            fall_timer=Discrete(max(rules.GRAVITY) + 1),
            delay=Discrete(rules.CLEAR_DELAY + rules.ENTRY_DELAY + 1),
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


class Seen(NamedTuple):
    """The contents of a `Vector`, in the form of `Game`.

    Attributes:
        field: See `game.field_of`.
        piece: `game.NO_PIECE` between two pieces.
        turn: Quarter turns.
        position: Of the piece's box; 0 between two pieces.
        preview: The piece that comes next.
        held: The action whose button was held in the last frame.
    """

    field: int
    piece: int
    turn: int
    position: int
    preview: int
    held: int


class Vector:
    """All that `State` has but the level, and the button that was held last, as uint8 `[261]` of 0 to 255.

    ======= ================== =====================================================================================
    entries what
    ======= ================== =====================================================================================
    0-179   locked             255 where a cell is locked, row by row from the top
    180-189 heights            of the columns, 14 a cell
    190-217 form               255 at ``4 * piece + turn``; all 0 between two pieces
    218-227 column             255 at that of the falling piece's leftmost block
    228-245 row                255 at that of its lowest block
    246-252 preview            255 at the piece that comes next
    253-258 held               255 at the action of the last frame
    259     fall timer         17 for each frame until the piece falls by a row, at most 15 frames
    260     delay              17 for each frame without a piece that is left, at most 15 frames
    ======= ================== =====================================================================================
    """

    FORM, COLUMN, ROW, PREVIEW, HELD, TIMERS, SIZE = 190, 218, 228, 246, 253, 259, 261

    def __init__(self) -> None:
        """Remember the locked cells and the heights, which change seldom."""
        self.space: Space[Any] = Box(0, 255, (self.SIZE,), np.uint8)
        self._field = -1
        self._locked = b""
        self._rest = bytes(self.SIZE - self.FORM)

    def __call__(self, game: Game) -> npt.NDArray[np.uint8]:
        """Return the numbers."""
        if game.field != self._field:
            self._field = game.field
            rows = rows_of(game.field)
            tops = (next((top for top, row in enumerate(rows) if row >> column & 1), ROWS) for column in range(COLUMNS))
            heights = bytes(14 * (ROWS - top) for top in tops)
            self._locked = b"".join([*(_ROW_CELLS[row] for row in rows), heights, self._rest])
        numbers = bytearray(self._locked)
        if game.piece != rules.NO_PIECE:
            form = 4 * game.piece + game.turn
            row, column = divmod(game.position, STRIDE)
            left, low = _CORNERS[form]
            numbers[self.FORM + form] = numbers[self.COLUMN + column + left] = numbers[self.ROW + row + low] = 255
        numbers[self.PREVIEW + game.preview] = numbers[self.HELD + _ACTION_OF[game.buttons]] = 255
        numbers[self.TIMERS] = 17 * min(game.fall_timer, 15)
        numbers[self.TIMERS + 1] = 17 * min(game.clearing + game.entering, 15)
        return np.ndarray((self.SIZE,), np.uint8, numbers)

    @classmethod
    def read(cls, numbers: npt.NDArray[np.uint8]) -> Seen:
        """Return the contents of a vector."""
        entries = numbers.tobytes()
        rows = [entries[COLUMNS * row : COLUMNS * (row + 1)] for row in range(ROWS)]
        field = rules.field_of([_ROW_OF[row] for row in rows])
        preview = entries.index(255, cls.PREVIEW) - cls.PREVIEW
        held = entries.index(255, cls.HELD) - cls.HELD
        form = entries.find(255, cls.FORM, cls.COLUMN) - cls.FORM
        if form < 0:
            return Seen(field, rules.NO_PIECE, 0, 0, preview, held)
        left, low = _CORNERS[form]
        column = entries.index(255, cls.COLUMN) - cls.COLUMN - left
        row = entries.index(255, cls.ROW) - cls.ROW - low
        return Seen(field, *divmod(form, 4), row * STRIDE + column, preview, held)


_ROW_OF = {cells: row for row, cells in enumerate(_ROW_CELLS)}
_ACTION_OF = {button: action for action, button in enumerate(rules.ACTIONS.values())}
# [4 * piece + turn]: numbers added to the column and row of a box for those of its leftmost and its lowest block on the
# board, which begins below the ceiling and to the right of the wall.
_CORNERS = [
    (min(offset % STRIDE for offset in turn) - 1, max(offset // STRIDE for offset in turn) - CEILING)
    for piece in OFFSETS[: rules.NO_PIECE]
    for turn in piece
]


Pixels = npt.NDArray[np.uint8]

HEIGHT, WIDTH = 144, 160  # pixels
CELL = 8  # pixels
FIELD_LEFT = 16  # pixels from the left edge; the field is as high as the screen
PANEL_LEFT = 108
PHASES = 7  # of the blinking while rows are cleared

# An emulator's RGB565 shades, converted to grey.
WHITE, LIGHT, DARK, BLACK = np.array([250, 168, 82, 0], np.uint8)

_SIGNS = "0123456789CEILNORSTVX"
_FONT = """
### .#. ### ### #.# ### ### ### ### ### ### ### ### #.. ##. ### ##. .## ### #.# #.#
#.# ##. ..# ..# #.# #.. #.. ..# #.# #.# #.. #.. .#. #.. #.# #.# #.# #.. .#. #.# #.#
#.# .#. ### .## ### ### ### .#. ### ### #.. ##. .#. #.. #.# #.# ##. .#. .#. #.# .#.
#.# .#. #.. ..# ..# ..# #.# .#. #.# ..# #.. #.. .#. #.. #.# #.# #.# ..# .#. #.# #.#
### ### ### ### ..# ### ### .#. ### ### ### ### ### ### #.# ### #.# ##. .#. .#. #.#
"""


def _ink(sign: str) -> npt.NDArray[np.bool_]:
    """Return where a sign is black, bool `[5, 3]`."""
    rows = _FONT.split()[_SIGNS.index(sign) :: len(_SIGNS)]
    return np.array([[dot == "#" for dot in row] for row in rows])


_INK = {sign: _ink(sign) for sign in _SIGNS}


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
    """Return the fixed parts of the screen: the walls, and the words on the panel."""
    image = np.full((HEIGHT, WIDTH), LIGHT)
    right = FIELD_LEFT + CELL * COLUMNS
    image[:, FIELD_LEFT:right] = WHITE
    for left in (FIELD_LEFT - CELL, right):
        image[:, left : left + CELL] = DARK
        image[::CELL, left : left + CELL] = BLACK
    for word, top in (("SCORE", 6), ("LEVEL", 38), ("LINES", 70), ("NEXT", 102)):
        _write(image, word, top, PANEL_LEFT)
    return image


def _put(image: Pixels, tile: Pixels, top: int, left: int) -> None:
    image[top : top + CELL, left : left + CELL] = tile


class Screen:
    """The screen, uint8 `[144, 160]` in four greys, as emulators show a Game Boy's and as Atari's grey images are.

    Between two changes of the field or the panel only the falling piece is drawn anew.
    """

    def __init__(self) -> None:
        """Have drawn nothing yet."""
        self.space: Space[Any] = Box(0, 255, (HEIGHT, WIDTH), np.uint8)
        self._empty = _empty_screen()
        self._drawn: tuple[int, ...] = ()
        self._still = self._empty

    def __call__(self, game: Game) -> Pixels:
        """Return the screen."""
        blinks = game.clearing * PHASES // (rules.CLEAR_DELAY + 1) % 2
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


Observation = Screen | Board | State | Vector
"""Makes the observations of one environment, of a `space`; each is new and the caller's own."""

OBSERVATIONS: dict[str, Callable[[], Observation]] = {"image": Screen, "board": Board, "dict": State, "vector": Vector}
