"""The rules, one frame at a time, on integers: no Gymnasium, no arrays, no clock.

* The field is one integer, with a border of ones, so that walls collide as blocks do (`field_of`, `rows_of`).
* A piece is the offsets of its four blocks in that integer (`OFFSETS`), and a mask of them (`SHAPES`).
* Which piece comes next: as the Game Boy rolls it, with a bias, or uniformly (`GENERATORS`).
* `Game` steps all of this frame by frame.

Times are frames of 1/59.7275 s. Which numbers are the original's and which are ours:
docs/reference/falling_blocks_rules.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# The field: a bit per cell. A row takes `STRIDE` = 12 bits: a wall, ten columns, a wall. Above the 18 rows lies a solid
# ceiling of `CEILING` rows, below them a solid floor. Whether a piece fits is one ``and``, and to fall by a row is to
# shift by `STRIDE`.
ROWS = 18
COLUMNS = 10
STRIDE = COLUMNS + 2  # bits from a cell to the one below it
CEILING = 2  # rows; a piece's box reaches into the first, and further left than the wall
CLEARABLE_ROWS = range(2, ROWS)  # the original looks for full rows in 16 of the 18: the top two are never cleared

_FULL = (1 << COLUMNS) - 1
_SOLID = (1 << STRIDE) - 1
_WALLS = 1 | 1 << STRIDE - 1
_BITS = STRIDE * (CEILING + ROWS + 1)


def field_of(rows: Sequence[int]) -> int:
    """Return the field with these `rows`, top first; bit c of a row is column c from the left.

    Raises:
        ValueError: Not `ROWS` rows of `COLUMNS` bits.
    """
    if len(rows) != ROWS or not all(0 <= row <= _FULL for row in rows):
        raise ValueError(f"rows must be {ROWS} numbers in 0..{_FULL}, got {list(rows)}")
    field = 0
    for row in [_SOLID] * CEILING + [row << 1 | _WALLS for row in rows] + [_SOLID]:
        field = field >> STRIDE | row << _BITS - STRIDE
    return field


def rows_of(field: int) -> list[int]:
    """Return the rows of `field`, top first, as `field_of` takes them."""
    return [field >> STRIDE * (CEILING + index) + 1 & _FULL for index in range(ROWS)]


def full_rows(field: int) -> list[int]:
    """Return the numbers of the rows that are to be cleared, top first."""
    rows = rows_of(field)
    return [index for index in CLEARABLE_ROWS if rows[index] == _FULL]


def clear_rows(field: int, full: Sequence[int]) -> int:
    """Return `field` without its rows `full`; the rows above come down."""
    kept = [row for index, row in enumerate(rows_of(field)) if index not in full]
    return field_of([0] * len(full) + kept)


EMPTY_FIELD = field_of([0] * ROWS)

# The seven pieces and how they turn: the left-handed Nintendo rotation system, without kicks. Each piece turns in a box
# of 4 x 4 cells, drawn below: a column per piece, and from the top its entry and its turns clockwise. The upper row of
# a box lies in the ceiling when the piece enters, so that the highest block enters on the second row of the field, and
# an upright I does not fit there before it has come down by one row.
NAMES = "LJIOZST"  # in the order of the generator's codes
NO_PIECE = len(NAMES)
ENTRY = STRIDE * (CEILING - 1) + 1 + 3  # of a box: its top row in the ceiling, its left column the field's fourth

_DRAWN = """
.... .... .... .... .... .... ....
.... .... .... .... .... .... ....
###. ###. #### .##. ##.. .##. ###.
#... ..#. .... .##. .##. ##.. .#..

.... .... .#.. .... .... .... ....
##.. .#.. .#.. .... .#.. #... .#..
.#.. .#.. .#.. .##. ##.. ##.. ##..
.#.. ##.. .#.. .##. #... .#.. .#..

.... .... .... .... .... .... ....
..#. #... .... .... .... .... .#..
###. ###. #### .##. ##.. .##. ###.
.... .... .... .##. .##. ##.. ....

.... .... .#.. .... .... .... ....
.#.. .##. .#.. .... .#.. #... .#..
.#.. .#.. .#.. .##. ##.. ##.. .##.
.##. .#.. .#.. .##. #... .#.. .#..
"""
_ROWS_DRAWN = [line.split() for line in _DRAWN.split("\n") if line]


def _blocks(piece: int, turn: int) -> tuple[int, ...]:
    """Return the offsets in bits of a piece's four blocks."""
    box = _ROWS_DRAWN[4 * turn : 4 * turn + 4]
    return tuple(row * STRIDE + column for row in range(4) for column in range(4) if box[row][piece][column] == "#")


# [piece][turn]: the bits of the blocks, counted from the position of the box. The last one is no piece, without blocks.
OFFSETS = (*(tuple(_blocks(piece, turn) for turn in range(4)) for piece in range(len(NAMES))), ((), (), (), ()))
SHAPES = tuple(tuple(sum(1 << offset for offset in turn) for turn in piece) for piece in OFFSETS)


class UniformPieces:
    """Deals pieces, as indices into `NAMES`: all alike, each draw independent.

    All of its state is in the NumPy generator that it is made of.
    """

    def __init__(self, random: np.random.Generator) -> None:
        """Draw from `random`."""
        self._random = random

    def roll(self) -> int:
        """Return a piece, independent of the pieces before."""
        return int(self._random.integers(len(NAMES)))

    def after(self, falling: int, preview: int) -> int:
        """Return a piece, independent of the pieces before."""
        return self.roll()


class Biased(UniformPieces):
    """The Game Boy's rule, which meant to avoid three pieces of a kind in a row and favours some pieces instead.

    A roll is the divider register, eight bits that count on all the time, modulo 7 (0 counts as 256). It is rejected,
    at most twice, if ``roll | preview | falling == falling``: a bitwise or of the pieces' codes. Here each reading of
    the register is a draw of its own, whereas on the original a second reading follows soon after the first.
    """

    ROLLS = 3  # the last one is always accepted

    def roll(self) -> int:
        """Return a piece, independent of the pieces before."""
        divider = int(self._random.integers(256))
        return (divider - 1) % 256 % len(NAMES)

    def after(self, falling: int, preview: int) -> int:
        """Return the piece that follows `preview`, at the moment when `falling` enters."""
        for _ in range(self.ROLLS - 1):
            piece = self.roll()
            if piece | preview | falling != falling:
                return piece
        return self.roll()


GENERATORS = {"biased": Biased, "uniform": UniformPieces}


# Buttons, as bits, and the one that each action holds.
TURN_RIGHT, TURN_LEFT, LEFT, RIGHT, DOWN = (1 << bit for bit in range(5))
ACTIONS = {"NOOP": 0, "A": TURN_RIGHT, "B": TURN_LEFT, "LEFT": LEFT, "RIGHT": RIGHT, "DOWN": DOWN}
_SIDEWAYS = LEFT | RIGHT

# Frames per row, for levels 0 to 20.
GRAVITY = (53, 49, 45, 41, 37, 33, 28, 22, 17, 11, 10, 9, 8, 7, 6, 6, 5, 5, 4, 4, 3)
MAX_LEVEL = len(GRAVITY) - 1
SOFT_DROP = 3  # frames per row
FIRST_SHIFT = 23  # frames from the press of a held direction to its first repetition
NEXT_SHIFT = 9  # frames from one repetition to the next
ENTRY_DELAY = 2  # frames without a piece before the next one enters
CLEAR_DELAY = 91  # frames that full rows stay; with the entry delay, 93 between two pieces

LINE_POINTS = (0, 40, 100, 300, 1200)  # times level + 1
LINES_PER_LEVEL = 10
MAX_SCORE = 999_999


class Game:
    """One game: `step` it frame by frame until it is `over`.

    Args:
        level: Level at the start, 0 to 20.
        generator: Deals the pieces.

    Attributes:
        field: The locked blocks and the border, see `field_of`.
        piece: The falling piece's code, or `NO_PIECE` between two pieces.
        turn: Its quarter turns to the right since it entered, modulo 4.
        position: The bit of the field where its box begins.
        preview: The piece that comes next.
        hidden: The piece after that, already dealt.
        level: 0 to 20; it sets the gravity and multiplies the points.
        lines: Rows cleared.
        score: Points, at most 999,999.
        fall_timer: Frames until gravity moves the piece down by a row.
        drop_timer: Frames until a soft drop may move it down by a row.
        dropping: Whether a soft drop is going on: down was pressed while this piece fell, and is still held.
        dropped: Rows of that soft drop.
        shift_timer: Frames until a held direction moves the piece again.
        buttons: Buttons held in the last frame, as bits.
        clearing: Frames until the full rows are cleared, or 0.
        entering: Frames of entry delay that are left, or 0.
        over: Whether the game has ended: the next piece found no room.
    """

    STATE = (
        *("piece", "turn", "position", "preview", "hidden", "level", "lines", "score", "fall_timer", "drop_timer"),
        *("dropping", "dropped", "shift_timer", "buttons", "clearing", "entering", "over"),
    )
    __slots__ = (*STATE, "_generator", "field")

    def __init__(self, level: int, generator: UniformPieces) -> None:
        """Begin a game; its first piece has entered."""
        self._generator = generator
        self.field = EMPTY_FIELD
        self.preview, self.hidden = generator.roll(), generator.roll()
        self.level = level
        self.lines = self.score = 0
        self.shift_timer = FIRST_SHIFT
        self.buttons = 0
        self.clearing = self.entering = 0
        self.dropping = self.over = False
        self._enter()

    @property
    def shape(self) -> int:
        """The falling piece's blocks as bits of the field, 0 where there is no piece."""
        return SHAPES[self.piece][self.turn] << self.position

    def step(self, buttons: int) -> int:
        """Advance by one frame with `buttons` held, and return the points earned in it.

        The order within a frame: the piece turns, shifts, then falls; where it cannot fall, it locks at once.
        """
        pressed = buttons & ~self.buttons
        if pressed & _SIDEWAYS:
            self.shift_timer = FIRST_SHIFT
        self.buttons = buttons
        if self.clearing:
            return self._clear()
        if self.entering:
            self.entering -= 1
            return 0
        if self.piece == NO_PIECE:
            self._enter()
            if self.over:
                return 0
        if pressed & (TURN_RIGHT | TURN_LEFT):
            self._turn(1 if pressed & TURN_RIGHT else -1)
        if buttons & _SIDEWAYS:
            self._shift(-1 if buttons & LEFT else 1, bool(pressed & _SIDEWAYS))
        self.dropping = bool(pressed & DOWN or (self.dropping and buttons & DOWN))
        return self._fall()

    def _enter(self) -> None:
        self.piece = NO_PIECE
        self.turn, self.position = 0, ENTRY
        if self.field & SHAPES[self.preview][0] << ENTRY:
            self.over = True
            return
        self.piece, self.preview = self.preview, self.hidden
        self.hidden = self._generator.after(self.piece, self.preview)
        self.fall_timer = GRAVITY[self.level]
        self.drop_timer = self.dropped = 0
        self.dropping = False

    def _turn(self, quarter: int) -> None:
        turn = (self.turn + quarter) % 4
        if not self.field & SHAPES[self.piece][turn] << self.position:
            self.turn = turn

    def _shift(self, column: int, pressed: bool) -> None:
        if not pressed:
            self.shift_timer -= 1
            if self.shift_timer:
                return
            self.shift_timer = NEXT_SHIFT
        if not self.field & SHAPES[self.piece][self.turn] << self.position + column:
            self.position += column

    def _fall(self) -> int:
        """Count down to the next row; gravity's timer rests during a soft drop."""
        if self.dropping:
            due = not self.drop_timer
            self.drop_timer = SOFT_DROP - 1 if due else self.drop_timer - 1
        else:
            self.dropped = 0
            self.drop_timer -= self.drop_timer > 0
            self.fall_timer -= 1
            due = not self.fall_timer
        if not due:
            return 0
        if self.field & SHAPES[self.piece][self.turn] << self.position + STRIDE:
            return self._lock()
        self.position += STRIDE
        self.fall_timer = GRAVITY[self.level]
        self.dropped += self.dropping
        return 0

    def _lock(self) -> int:
        self.field |= self.shape
        self.piece = NO_PIECE
        self.entering = ENTRY_DELAY
        if full_rows(self.field):
            self.clearing = CLEAR_DELAY
        return self._earn(self.dropped)

    def _clear(self) -> int:
        self.clearing -= 1
        if self.clearing:
            return 0
        full = full_rows(self.field)
        self.field = clear_rows(self.field, full)
        self.lines += len(full)
        points = LINE_POINTS[len(full)] * (self.level + 1)
        self.level = max(self.level, min(self.lines // LINES_PER_LEVEL, MAX_LEVEL))
        return self._earn(points)

    def _earn(self, points: int) -> int:
        before = self.score
        self.score = min(before + points, MAX_SCORE)
        return self.score - before

    def get_state(self) -> dict[str, Any]:
        """Return the game as plain data: a number per attribute, and the field as ``"rows"``, see `rows_of`."""
        return {"rows": rows_of(self.field), **{name: getattr(self, name) for name in self.STATE}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a result of `get_state`, perhaps of another game.

        Raises:
            ValueError: A name is missing or unknown, or the rows do not fit the field.
        """
        if wrong := set(state) ^ {"rows", *self.STATE}:
            raise ValueError(f"state must have the names that get_state returns, got these too many or few: {wrong}")
        self.field = field_of(state["rows"])
        for name in self.STATE:
            setattr(self, name, state[name])
