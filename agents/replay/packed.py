"""Observations that are kept packed: images of games are mostly made of repetitions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.schema import Column
from async_wrappers.extras import extra

__all__ = ["Packed"]

_LEAST = 256  # bytes of an observation; a packed one takes 41 bytes beside its own


class Packed:
    """A column of a ring whose rows are packed one by one by LZ4: read and written like an array `[capacity, *shape]`.

    A row is packed when it is written and unpacked each time that it is read, bit for bit what was written. Packing
    each row for itself lets a batch read any of them; over several frames in one piece LZ4 would find more repetitions,
    but a batch would unpack them all.

    Args:
        capacity: rows.
        column: shape and dtype of a row.

    Raises:
        DependencyNotInstalled: lz4 is missing.
    """

    def __init__(self, capacity: int, column: Column) -> None:
        """See the class."""
        with extra("a compressed replay", "lz4"):
            import lz4.block
        self._shape, self._dtype = column
        self._pack: Callable[[npt.NDArray[Any]], bytes] = partial(lz4.block.compress, store_size=False)
        size = int(np.prod(self._shape)) * self._dtype.itemsize
        self._unpack: Callable[[bytes], bytes] = partial(lz4.block.decompress, uncompressed_size=size)
        self._blank = self._pack(np.zeros(self._shape, self._dtype))
        # An array of objects, not a list: the garbage collector would walk through a list of a million again and again.
        self._rows = np.empty(capacity, object)
        self._rows.fill(self._blank)  # np.full would cut off its zeros at the end

    @staticmethod
    def is_worth_it(column: Column) -> bool:
        """Return whether rows are large enough that packing saves memory."""
        return int(np.prod(column.shape)) * column.dtype.itemsize >= _LEAST

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are stored now, with those of the objects that hold them; reads the whole column."""
        return self._rows.nbytes + sum(sys.getsizeof(row) for row in self._rows if row is not self._blank)

    def __setitem__(self, where: Any, value: Any) -> None:
        """Write one row, or rows `[B, *shape]`, or the same value into several."""
        if not isinstance(where, np.ndarray):
            self._rows[where] = self._packed(value)
            return
        rows = np.broadcast_to(value, (len(where), *self._shape))
        for position, row in zip(where.tolist(), rows, strict=True):
            self._rows[position] = self._packed(row)

    def _packed(self, row: Any) -> bytes:
        return self._pack(np.ascontiguousarray(row, self._dtype))

    def __getitem__(self, where: slice) -> npt.NDArray[Any]:
        """Return rows, copied."""
        return self._unpacked(self._rows[where])

    def take(self, positions: npt.NDArray[np.int64], axis: int = 0, mode: str = "wrap") -> npt.NDArray[Any]:
        """Return the rows at positions `[...]`, `[..., *shape]`, copied; positions wrap around at the column's ends."""
        return self._unpacked(self._rows.take(positions, mode="wrap"))

    def _unpacked(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        together = bytearray().join(map(self._unpack, rows.ravel().tolist()))
        return np.frombuffer(together, self._dtype).reshape(*rows.shape, *self._shape)
