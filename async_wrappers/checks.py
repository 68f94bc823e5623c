"""Checks of users' arguments: each names the argument, the value that came and what would be right."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["flag", "whole_frames"]


def flag(name: str, value: Any) -> bool:
    """Return `value` as a bool, or raise a ValueError that names the argument: ``"False"`` would count as true.

    Raises:
        ValueError: `value` is neither True nor False.
    """
    if not (isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")):  # of NumPy, not imported here
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def whole_frames(name: str, value: Any) -> int:
    """Return `value` as an int, or raise a ValueError that names the argument.

    Args:
        name: The argument's name, for the message.
        value: A number of frames.

    Raises:
        ValueError: `value` is negative, fractional or not a number (True is none).
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        frames = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number of frames (an int), got {value!r}") from None
    if frames < 0:
        raise ValueError(f"{name} must be >= 0 frames, got {frames}")
    return frames
