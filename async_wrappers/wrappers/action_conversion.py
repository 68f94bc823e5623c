"""Converts a policy's answer into an element of the action space: a number of another type is the same action.

Networks, libraries and plain Python give ``np.bool_``, ``1.0``, ``torch.tensor(1)``, ``np.array([1])`` or float64 where
a space holds ``np.int64`` or float32. Gymnasium's ``Space.contains`` refuses most of these. Here they are converted
where no number changes, and refused with a reason where one would. Floats are rounded, and rounding at a bound is no
violation: float32's nearest number to .1 lies above .1, so a policy that clamps to a bound of float64 in its own type
answers a number beyond it. Such a number is clipped to the bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Array = npt.NDArray[Any]

_SHOWN = 100  # characters of a value or a space in a message
_FEW = 16  # numbers that are compared one by one
_BFLOAT16 = 2.0**-7  # from 1 to the next number of PyTorch's type, which NumPy lacks


class RefusedAction(ValueError):
    """An answer is no action of the space; the message says why not."""


def as_action(space: gym.Space[Any], answer: Any) -> Any:
    """Return a policy's answer as an element of the action space.

    Args:
        space: The action space. Dict and Tuple are converted leaf by leaf; of kinds that Gymnasium's basic spaces do
            not cover (a Sequence, a space of the user's own) an answer is taken as it is.
        answer: Numbers: Python's, NumPy's, arrays, sequences, tensors on any device. A single number may be an array
            of size 1. Whole numbers may be floats, and a bool is 0 or 1. Floats are rounded to the space's type.

    Raises:
        RefusedAction: The answer is no action: not a number, NaN, of another shape, beyond the bounds, or not whole.
    """
    kind = type(answer)
    if (
        (kind is int or kind is np.int64)
        and type(space) is spaces.Discrete
        and 0 <= answer - int(space.start) < space.n
    ):
        return answer  # the common case, and the fast one
    if kind is np.ndarray and type(space) is spaces.Box and _within(space, answer):
        return answer
    try:
        return _converted(space, answer)
    except RefusedAction:
        if isinstance(answer, tuple) and len(answer) == 2 and _is_action(space, answer[0]):
            raise RefusedAction(
                "it looks like a pair (action, state): let the policy return the action alone, as in "
                "`lambda o: model.predict(o)[0]`"
            ) from None
        raise


def with_extras(answer: Any, extras: spaces.Dict) -> tuple[Any, Any]:
    """Return the action and the extras of a policy's answer, the latter as an element of their space."""
    if not (hasattr(answer, "action") and hasattr(answer, "extras")):
        raise ValueError(
            f"a policy must return an object with the attributes action and extras where extras are declared, got "
            f"{answer!r}"
        )
    try:
        return answer.action, as_action(extras, answer.extras)
    except RefusedAction as reason:
        raise ValueError(f"a policy's extras must be an element of {extras}, got {answer.extras!r}: {reason}") from None


def clipped(space: spaces.Box[Any], answer: Array, precision: float | None = None) -> Array:
    """Return floats, those that lie beyond a bound by no more than the rounding of their own type on it.

    Args:
        space: A Box of floats, of the answer's shape.
        answer: The floats; where none of them is clipped they are returned as they are.
        precision: From 1 to the next number of the answer's type; None for that of the array.
    """
    finfo = np.finfo(answer.dtype)
    nearest = np.clip(answer, space.low, space.high)
    with np.errstate(invalid="ignore"):  # an infinite answer less an infinite bound
        beyond = np.abs(answer - nearest)
    half = (finfo.eps if precision is None else precision) / 2
    rounded = (beyond > 0) & (beyond <= half * np.maximum(np.abs(nearest), finfo.tiny))
    return np.where(rounded, nearest, answer).astype(space.dtype) if rounded.any() else answer


def floats_of(space: gym.Space[Any]) -> spaces.Box[Any] | None:
    """Return a space if it is a Box of floats, whose bounds another type may round; else None."""
    return space if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f" else None


def at_bounds(space: spaces.Box[Any], action: Any) -> Any:
    """Return an agent's action, which nobody checks, `clipped` where its type is not that of the space."""
    if type(action) is not np.ndarray or action.dtype == space.dtype or action.dtype.kind != "f":
        return action
    return clipped(space, action) if action.shape == space.shape else action


def refusal(who: str, answer: Any, space: gym.Space[Any], reason: RefusedAction, what: str = "action") -> str:
    """Return the sentence about a refused action: who, what, of which type and space, and why."""
    return (
        f"{who} answered {_short(repr(answer))} ({_described(answer)}), which is no {what} of "
        f"{_short(str(space))}: {reason}"
    )


def _is_action(space: gym.Space[Any], answer: Any) -> bool:
    with suppress(RefusedAction):
        _converted(space, answer)
        return True
    return False


def _converted(space: gym.Space[Any], answer: Any) -> Any:
    if isinstance(space, spaces.Dict):
        if not isinstance(answer, Mapping) or answer.keys() != space.spaces.keys():
            raise RefusedAction(f"it must be a dict with the keys {', '.join(map(repr, space.spaces))}")
        parts = {}  # in the order of the space
        for key, each in space.spaces.items():
            part = answer[key]
            is_one = type(part) is np.ndarray and type(each) is spaces.Box and _within(each, part)
            parts[key] = part if is_one else _part(key, each, part)
        return parts
    if isinstance(space, spaces.Tuple):
        if not isinstance(answer, tuple | list) or len(answer) != len(space.spaces):
            raise RefusedAction(f"it must be a tuple of {len(space.spaces)}")
        return tuple(map(_part, itertools.count(), space.spaces, answer))
    if isinstance(space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        numbers, dtype = _shaped(_numbers(answer), space.shape or ()), np.dtype(space.dtype)
        action = _cast(numbers, dtype)
        element = action[()] if isinstance(space, spaces.Discrete) else action
        if not _contains(space, element):
            if not (isinstance(space, spaces.Box) and numbers.dtype.kind == dtype.kind == "f"):
                raise RefusedAction("it lies outside")
            is_bfloat16 = "bfloat16" in str(getattr(answer, "dtype", ""))
            element = clipped(space, numbers, _BFLOAT16 if is_bfloat16 else None).astype(dtype)
            if not _contains(space, element):
                raise RefusedAction("it lies outside")
        return element
    if not _contains(space, answer):
        raise RefusedAction("the space does not contain it")
    return answer


def _within(space: spaces.Box[Any], answer: Array) -> bool:
    """Return whether an array has a Box's type and shape and lies in it; a fraction of the time of its `contains`.

    NaN compares as false, so it is never within.
    """
    low, high = space.low, space.high
    if answer.dtype != space.dtype or answer.shape != low.shape:
        return False
    if answer.ndim == 1 and answer.size <= _FEW:  # a call of NumPy's takes as long as ten numbers
        for least, number, most in zip(low.tolist(), answer.tolist(), high.tolist(), strict=True):
            if not least <= number <= most:
                return False
        return True
    return int(np.count_nonzero((answer >= low) & (answer <= high))) == answer.size


def _contains(space: gym.Space[Any], element: Any) -> bool:
    """Return whether a space contains a value of any type."""
    try:
        return bool(space.contains(element))
    except OverflowError:  # Gymnasium 1.3 casts a whole number of Python's to the space's type before it compares
        return False


def _part(key: Any, space: gym.Space[Any], answer: Any) -> Any:
    """Return a part of a Dict's or Tuple's answer; a refusal says which."""
    try:
        return _converted(space, answer)
    except RefusedAction as error:
        raise RefusedAction(f"at [{key!r}], {error}") from None


def _numbers(answer: Any) -> Array:
    """Return an answer as an array of its numbers' own type."""
    try:
        if hasattr(answer, "detach"):  # a tensor of torch's, perhaps on another device or in the midst of a graph
            answer = answer.detach().cpu()
            if "bfloat16" in str(answer.dtype):  # which NumPy lacks
                answer = answer.float()
        elif isinstance(answer, list | tuple):
            answer = [_numbers(each) for each in answer]
        array = np.asarray(answer)
    except RefusedAction:
        raise
    except Exception as error:  # ragged, or an error of a user's type
        raise RefusedAction(f"it cannot be read as an array of numbers ({error})") from None
    if array.dtype.kind not in "biuf":
        raise RefusedAction("it is no number" if array.ndim == 0 else "it does not hold numbers alone")
    return array


def _shaped(array: Array, shape: tuple[int, ...]) -> Array:
    """Return an array in the space's shape; a single number may have any shape."""
    if array.shape == shape:
        return array
    if array.size == 1 == int(np.prod(shape)):
        return array.reshape(shape)
    raise RefusedAction(f"its shape is {list(array.shape)} and must be {list(shape)}")


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return the same numbers in the space's type, real ones rounded to it."""
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise RefusedAction("it is NaN" if array.size == 1 else "it holds NaN")
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    if dtype.kind == "f":
        if not np.array_equal(np.isfinite(cast), np.isfinite(array)):
            raise RefusedAction(f"it lies beyond the numbers of {dtype}")
    elif not np.array_equal(cast, array):
        whole = array.dtype.kind != "f" or bool((np.isfinite(array) & (array == np.floor(array))).all())
        raise RefusedAction("it lies outside" if whole else "it must be whole")
    return cast


def _described(answer: Any) -> str:
    """Return an answer's type, with the dtype of arrays and tensors."""
    name = type(answer).__name__
    shape, dtype = getattr(answer, "shape", None), getattr(answer, "dtype", None)
    if dtype is None or isinstance(answer, np.generic):
        return name
    return f"{name} of {dtype}, shape {list(shape)}" if isinstance(shape, tuple) else f"{name} of {dtype}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
