"""Batches of observations and actions: arrays [R, ...], or dicts and tuples of them, row by row.

* `check_space`: refuse spaces whose batches are anything else.
* `copied`, `taken`, `put_rows`, `joined`: a copy, some rows, rows into their places, batches one after another.
* `finals`: some rows, one by one, by their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


def check_space(name: str, space: gym.Space[Any]) -> None:
    """Refuse a space whose batches are no arrays.

    Raises:
        ValueError: It is none of those below, or has a part that is none.
    """
    parts: list[gym.Space[Any]] = [space]
    while parts:
        part = parts.pop()
        if isinstance(part, spaces.Dict | spaces.Tuple):
            parts += part.spaces.values() if isinstance(part, spaces.Dict) else part.spaces
        elif not isinstance(part, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise ValueError(
                f"{name} must be a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, got {part}"
            )


def mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """Return the tree of `function` of the leaves at the same place."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: mapped(function, *(tree[key] for tree in trees)) for key in first}
    if isinstance(first, tuple):
        return tuple(mapped(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves in a fixed order."""
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def copied(batch: Any) -> Any:
    """Return a copy."""
    return batch.copy() if type(batch) is np.ndarray else mapped(np.array, batch)


def taken(batch: Any, rows: NDArray[np.int64]) -> Any:
    """Return a copy of some rows, [len(rows), ...]."""
    return batch[rows] if type(batch) is np.ndarray else mapped(lambda leaf: leaf[rows], batch)


def put_rows(batch: Any, rows: NDArray[np.int64], values: Any) -> None:
    """Write the rows `values` into `batch`."""

    def put(leaf: Any, value: Any) -> None:
        leaf[rows] = value

    mapped(put, batch, values)


def joined(*batches: Any) -> Any:
    """Return the rows of all, one batch after another."""
    return mapped(lambda *each: np.concatenate(each), *batches)


def finals(batch: Any, rows: NDArray[np.int64]) -> dict[int, Any]:
    """Return copies of some rows by their number."""
    some = taken(batch, rows)
    if type(some) is np.ndarray:
        # A scalar (a Discrete observation) comes out as NumPy's own number, as from a single environment.
        return dict(zip(rows.tolist(), some, strict=True))
    return {number: mapped(lambda leaf: leaf[place], some) for place, number in enumerate(rows.tolist())}  # noqa: B023
