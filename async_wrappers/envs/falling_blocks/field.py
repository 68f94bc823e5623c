"""The field as one integer: a bit per cell, with a border of ones, so that walls collide as blocks do.

A row takes `STRIDE` = 12 bits: a wall, ten columns, a wall. Above the 18 rows lies a solid ceiling of `CEILING` rows,
below them a solid floor. Whether a piece fits is one ``and``, and to fall by a row is to shift by `STRIDE`.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["CEILING", "COLUMNS", "EMPTY_FIELD", "ROWS", "STRIDE", "clear_rows", "field_of", "full_rows", "rows_of"]

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
    """Return `field` without its rows `full`; what lies above comes down."""
    kept = [row for index, row in enumerate(rows_of(field)) if index not in full]
    return field_of([0] * len(full) + kept)


EMPTY_FIELD = field_of([0] * ROWS)
