"""The seven pieces and how they turn: the left-handed Nintendo rotation system, without kicks.

Each piece turns in a box of 4 x 4 cells, drawn here from its entry clockwise. The row of dots above the others lies in
the ceiling when the piece enters, so that the highest block enters on the second row of the field, and an upright I
does not fit there before it has come down by one row.
"""

from __future__ import annotations

from async_wrappers.envs.falling_blocks.field import CEILING, STRIDE

__all__ = ["ENTRY", "NAMES", "NO_PIECE", "OFFSETS", "SHAPES"]

NAMES = "LJIOZST"  # in the order of the generator's codes
NO_PIECE = len(NAMES)
ENTRY = STRIDE * (CEILING - 1) + 1 + 3  # of a box: its top row in the ceiling, its left column the field's fourth

_DRAWINGS = {
    "L": """
        .... .... .... ....
        .... ##.. ..#. .#..
        ###. .#.. ###. .#..
        #... .#.. .... .##.""",
    "J": """
        .... .... .... ....
        .... .#.. #... .##.
        ###. .#.. ###. .#..
        ..#. ##.. .... .#..""",
    "I": """
        .... .#..
        .... .#..
        #### .#..
        .... .#..""",
    "O": """
        ....
        ....
        .##.
        .##.""",
    "Z": """
        .... ....
        .... .#..
        ##.. ##..
        .##. #...""",
    "S": """
        .... ....
        .... #...
        .##. ##..
        ##.. .#..""",
    "T": """
        .... .... .... ....
        .... .#.. .#.. .#..
        ###. ##.. ###. .##.
        .#.. .#.. .... .#..""",
}


def _turns(drawing: str) -> tuple[tuple[int, ...], ...]:
    """Return the four turns of a drawing, each as the offsets in bits of its four blocks."""
    lines = [line.split() for line in drawing.split("\n")[1:]]
    drawn = [
        tuple(row * STRIDE + column for row in range(4) for column in range(4) if lines[row][turn][column] == "#")
        for turn in range(len(lines[0]))
    ]
    return tuple(drawn[turn % len(drawn)] for turn in range(4))


# [piece][turn]: the bits of the blocks, counted from the position of the box. The last one is no piece, without blocks.
OFFSETS = (*(_turns(_DRAWINGS[name]) for name in NAMES), ((), (), (), ()))
SHAPES = tuple(tuple(sum(1 << offset for offset in turn) for turn in piece) for piece in OFFSETS)
