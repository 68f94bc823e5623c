"""Checks of users' arguments: a refusal names the argument, the value and the values that are right.

Each function returns the value in the type that the caller computes with, or raises a ValueError of one sentence. A
bool is no number here: ``workers=True`` is a mistake more often than a 1.

* `whole`: a whole number within bounds. `whole_frames`: a number of frames >= 0.
* `positive`: a number > 0. `number`: a number with any other condition.
* `reward_of`, `reward_to_clip`: an environment's reward.
* `flag`: True or False. `choice`: one of some words. `function`: something that can be called.
* `refuse_daemonic`: whether this process may start others.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any


class BrokenEnvironment(ValueError):
    """An environment returned what no environment may; the message is one sentence."""


def reward_of(value: Any) -> float:
    """Return an environment's reward as a float; callers on a hot path ask only where it is none already.

    Raises:
        BrokenEnvironment: It is no number: a text, None, or an array with an axis, even of one element.
    """
    try:
        if not isinstance(value, str | bytes) and getattr(value, "shape", ()) == ():
            return float(value)
    except (TypeError, ValueError):
        pass
    raise BrokenEnvironment(
        f"the environment's reward must be a number, got {value!r:.100}: let its step return (observation, reward, "
        "terminated, truncated, info)"
    )


def reward_to_clip(value: Any) -> float:
    """Return an environment's reward as a float; an infinite one would be hidden by clipping, as a NaN is not.

    Raises:
        BrokenEnvironment: It is no number, or infinite.
    """
    reward = reward_of(value)
    if math.isinf(reward):
        raise BrokenEnvironment(f"the environment's reward must be finite, got {reward}: mend its step")
    return reward


def flag(name: str, value: Any) -> bool:
    """Return `value` as a bool, or raise a ValueError that names the argument: ``"False"`` would count as true.

    Raises:
        ValueError: `value` is neither True nor False.
    """
    # NumPy's bools are recognised by their name: this module is imported with the package and does without NumPy.
    if not (isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def choice(name: str, value: Any, words: Sequence[str | None], or_none: bool = False) -> Any:
    """Return `value`, or raise a ValueError unless it is one of some words, of which None may be one.

    Raises:
        ValueError: `value` is none of them.
    """
    if not (value is None or isinstance(value, str)) or value not in (*words, *[None] * or_none):
        raise ValueError(f"{name} must be {choice_range(words, or_none)}, got {value!r}")
    return value


def choice_range(words: Sequence[str | None], or_none: bool = False) -> str:
    """Return in words which values `choice` accepts."""
    wanted = " or ".join(map(repr, words)) if len(words) < 3 else f"one of {', '.join(map(repr, words))}"
    return wanted + " or None" * or_none


def function(name: str, value: Any, purpose: str) -> None:
    """Raise a ValueError unless `value` can be called.

    Args:
        name: The argument's name, for the message.
        value: A function, or any object with ``__call__``.
        purpose: What the function does, for the message: ``"makes the environment"``.

    Raises:
        ValueError: `value` cannot be called.
    """
    if not callable(value):
        raise ValueError(f"{name} must be a function that {purpose}, got {value!r}")


def number(name: str, value: Any, wanted: str, accepts: Callable[[float], bool]) -> float:
    """Return `value` as a float that passes a condition, or raise a ValueError that names the condition.

    Args:
        name: The argument's name, for the message.
        value: A real number of Python's or NumPy's.
        wanted: The condition in words, for the message: ``"a share from 0 to 1"``.
        accepts: The condition. It must be False for nan, to which other types are converted; an int beyond every float
            counts as infinite.

    Raises:
        ValueError: `accepts` refuses `value`.
    """
    try:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        converted = float(value) if is_number else math.nan
    except OverflowError:  # an int beyond every float
        converted = math.inf if value > 0 else -math.inf
    if not accepts(converted):
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return converted


def positive(name: str, value: Any, unit: str = "", *, finite: bool = True, or_none: bool = False) -> float:
    """Return `value` as a float > 0, or raise a ValueError that names the argument.

    Args:
        name: The argument's name, for the message.
        value: A real number.
        unit: Unit in the plural, for the message: ``"milliseconds"``.
        finite: Whether infinity is refused.
        or_none: Whether the message offers None; the caller deals with None itself.

    Raises:
        ValueError: `value` is not a number > 0, or is infinite.
    """
    wanted = positive_range(unit, finite, or_none)
    return number(name, value, wanted, lambda given: given > 0 and not (finite and given == math.inf))


def positive_range(unit: str = "", finite: bool = True, or_none: bool = False) -> str:
    """Return in words which values `positive` accepts."""
    return f"a {'finite ' if finite else ''}number{unit and f' of {unit}'} > 0{', or None' if or_none else ''}"


def whole(name: str, value: Any, least: int, most: int | None = None, *, unit: str = "", or_none: bool = False) -> int:
    """Return `value` as an int from `least` to `most`, or raise a ValueError that names the argument.

    Args:
        name: The argument's name, for the message.
        value: An int of Python's or NumPy's.
        least: The smallest value that is right.
        most: The largest value that is right; None for no limit.
        unit: Unit in the plural, for the message: ``"frames"``.
        or_none: Whether the message offers None; the caller deals with None itself.

    Raises:
        ValueError: `value` is not a whole number (2.0 and True are none), or out of bounds.
    """
    converted = _index(value)
    if converted is None or converted < least or (most is not None and converted > most):
        raise ValueError(f"{name} must be {whole_range(least, most, unit, or_none)}, got {value!r}")
    return converted


def whole_range(least: int, most: int | None = None, unit: str = "", or_none: bool = False) -> str:
    """Return in words which values `whole` accepts."""
    bounds = f">= {least}" if most is None else f"between {least} and {most:,}"
    return f"a whole number{unit and f' of {unit}'} {bounds}{', or None' if or_none else ''}"


def whole_frames(name: str, value: Any) -> int:
    """Return `value` as an int, or raise a ValueError that names the argument.

    Args:
        name: The argument's name, for the message.
        value: A number of frames.

    Raises:
        ValueError: `value` is negative, fractional or not a number (True is none).
    """
    frames = _index(value)
    if frames is None:
        raise ValueError(f"{name} must be a whole number of frames (an int), got {value!r}")
    if frames < 0:
        raise ValueError(f"{name} must be >= 0 frames, got {frames}")
    return frames


def _index(value: Any) -> int | None:
    """Return `value` as an int, or None if it is no whole number; 2.0 and True are none."""
    # NumPy's bool is recognised by its name, as in `flag`; NumPy 2.0 takes it for an index.
    if type(value).__name__ in ("bool", "bool_"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def refuse_daemonic() -> None:
    """Raise an error of one sentence where this process may start no other, before multiprocessing's assertion does.

    Raises:
        RuntimeError: multiprocessing has started this process as a daemon.
    """
    from multiprocessing import current_process  # too much to load with the package

    process = current_process()
    if process.daemon:
        raise RuntimeError(
            f"no process can be started from {process.name}, as multiprocessing started it with daemon=True: start it "
            "with daemon=False (a multiprocessing.Pool cannot), or play in threads (backend='thread')"
        )


def plain_data(name: str, value: Any) -> Any:
    """Return a copy of plain data, which JSON can hold, or raise a ValueError that names the argument.

    NumPy's numbers become Python's.

    Raises:
        ValueError: It holds something else than None, booleans, numbers, text, lists and dicts with text keys.
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        kind = tuple if isinstance(value, tuple) else list
        return kind(plain_data(name, each) for each in value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain_data(name, each) for key, each in value.items()}
    raise ValueError(
        f"{name} must be plain data (None, numbers, text, lists, and dicts with text keys), got {value!r:.200}"
    )
