"""Shared memory that notices each load and store, so that something can happen in the middle of what uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from async_wrappers.fleet.block import Block


class NoticedBlock(Block):
    """Another view of a block.

    Args:
        block: The block.
        notice: Called with ``"load"`` or ``"store"`` and the index or field, before anything is loaded or stored.
    """

    def __init__(self, block: Block, notice: Callable[[str, Any], None]) -> None:
        self.block, self.notice = block, notice

    def array(self, *arguments: Any) -> Any:
        return NoticedArray(self.block.array(*arguments), self.notice)


class NoticedArray:
    """An array of a `NoticedBlock`."""

    def __init__(self, array: Any, notice: Callable[[str, Any], None]) -> None:
        self.array, self.notice = array, notice

    def __getitem__(self, key: Any) -> Any:
        self.notice("load", key)
        value = self.array[key]
        return NoticedArray(value, self.notice) if isinstance(value, np.ndarray) else value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.notice("store", key)
        self.array[key] = value

    def __array__(self, *arguments: Any, **keywords: Any) -> Any:
        return np.array(self.array, *arguments, **keywords)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape  # type: ignore[no-any-return]
