"""Checks of hyperparameters: each names the argument, the value that came and what would be right."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

__all__ = [
    "check_at_least",
    "check_choice",
    "check_count",
    "check_factories",
    "check_flags",
    "check_numbers",
    "check_shares",
    "discrete_actions",
]

_LARGEST = 1e30  # what a hyperparameter may be: float32 ends at 3e38
_WIDEST = 10**6  # units of a layer
_MOST = 10**12  # observations, decisions, transitions or frames


def check_numbers(**numbers_by_name: Any) -> None:
    """Refuse what is no number; the range is another check's question."""
    for name, value in numbers_by_name.items():
        # An infinite number passes: the check of the range has the better sentence for it.
        huge = isinstance(value, int | float) and _LARGEST < abs(value) < math.inf
        if huge or not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise ValueError(f"{name} must be a number, of at most {_LARGEST:g}, got {value!r}")


def check_shares(**shares_by_name: Any) -> None:
    """Refuse what does not lie in [0, 1]."""
    for name, value in shares_by_name.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must lie in [0, 1], got {value}")


def check_count(name: str, value: Any, least: int) -> None:
    """Refuse what is no size of a layer."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _WIDEST:
        raise ValueError(f"{name} must be a whole number >= {least}, and at most {_WIDEST:,}, got {value!r}")


def check_flags(**flags: Any) -> None:
    """Refuse what is neither True nor False."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {value!r}")


def check_at_least(name: str, value: Any, least: int, unit: str) -> None:
    """Refuse what is no whole number of a unit, or fewer than `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number ({unit}), got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be >= {least} {unit}, got {value}")
    if value > _MOST and name != "seed":
        raise ValueError(f"{name} must be <= {_MOST:,} ({unit}), got {value}")


def check_choice(name: str, value: Any, choices: tuple[str, str]) -> None:
    """Refuse what is neither of two words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")


def check_factories(agent: str, **factories: tuple[Callable[..., Any], str]) -> None:
    """Refuse what is no function or class; each comes with an example of one in gin."""
    for name, (factory, example) in factories.items():
        if not callable(factory):
            raise ValueError(f"{agent}.{name} must be a function or a class, such as {example}, got {factory!r}")


def discrete_actions(space: gym.Space[Any], agent: str) -> tuple[int, int]:
    """Return (first action, number of actions) of a Discrete space.

    Raises:
        ValueError: The space is another one.
    """
    if not isinstance(space, Discrete):
        raise ValueError(f"agent {agent!r} needs Discrete actions, got {space}: discretise them in a wrapper")
    return int(space.start), int(space.n)
