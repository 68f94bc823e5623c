"""Copies of what an environment shows: it may reuse its arrays, or write into them, on the next frame."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np

__all__ = ["own_copy", "own_info"]

# Types whose values nobody can change: they need no copy, and the check costs less than `deepcopy`'s own.
_UNCHANGEABLE = frozenset({int, float, bool, str, bytes, type(None)})


def own_copy(value: Any) -> Any:
    """Return a deep copy; numbers and arrays are the common cases, and fast."""
    if type(value) in _UNCHANGEABLE:
        return value
    return value.copy() if type(value) is np.ndarray and not value.dtype.hasobject else deepcopy(value)


def own_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the dictionary and its values; values without a copy (a lock, a handle) are kept as they are."""
    copy = dict(info)
    for key, value in info.items():
        if type(value) not in _UNCHANGEABLE:
            with suppress(Exception):
                copy[key] = deepcopy(value)
    return copy
