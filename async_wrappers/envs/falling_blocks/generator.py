"""Which piece comes next: as the Game Boy rolls it, with a bias, or uniformly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np

from async_wrappers.envs.falling_blocks.pieces import NAMES

__all__ = ["GENERATORS", "Biased", "PieceGenerator", "Uniform"]


class PieceGenerator(Protocol):
    """Deals pieces, as indices into `pieces.NAMES`. All of its state is in the NumPy generator that it was made of."""

    def roll(self) -> int:
        """Return a piece, whatever came before."""
        ...

    def after(self, falling: int, preview: int) -> int:
        """Return the piece that follows `preview`, at the moment when `falling` enters."""
        ...


class Biased:
    """The Game Boy's rule, which meant to avoid three pieces of a kind in a row and favours some pieces instead.

    A roll is the divider register, eight bits that count on all the time, modulo 7 (0 counts as 256). It is rejected,
    at most twice, if ``roll | preview | falling == falling``: a bitwise or of the pieces' codes. Here each reading of
    the register is a draw of its own, whereas on the original a second reading follows soon after the first.
    """

    ROLLS = 3  # the last is accepted, whatever it is

    def __init__(self, random: np.random.Generator) -> None:
        """Draw from `random`."""
        self._random = random

    def roll(self) -> int:
        """Return a piece, whatever came before."""
        divider = int(self._random.integers(256))
        return (divider - 1) % 256 % len(NAMES)

    def after(self, falling: int, preview: int) -> int:
        """Return the piece that follows `preview`, at the moment when `falling` enters."""
        for _ in range(self.ROLLS - 1):
            piece = self.roll()
            if piece | preview | falling != falling:
                return piece
        return self.roll()


class Uniform:
    """All pieces alike, each draw independent."""

    def __init__(self, random: np.random.Generator) -> None:
        """Draw from `random`."""
        self._random = random

    def roll(self) -> int:
        """Return a piece, whatever came before."""
        return int(self._random.integers(len(NAMES)))

    def after(self, falling: int, preview: int) -> int:
        """Return a piece, whatever came before."""
        return self.roll()


GENERATORS: Mapping[str, Callable[[np.random.Generator], PieceGenerator]] = MappingProxyType(
    {"biased": Biased, "uniform": Uniform}
)
