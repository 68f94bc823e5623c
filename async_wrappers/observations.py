"""Checks that observations are what their space says, before they are cast to it."""

# Shared memory, batches and replays hold arrays of the space's dtype, and NumPy casts in silence what is written into
# them: 0.7 becomes 0, and 300 becomes 44, where the space is of uint8. So each clock and each trainer asks the same
# check first. Real numbers may be rounded (float64 to float32), and whole ones may become real; nothing else changes.
# The bounds of a Box are not compared: many environments leave theirs now and then, and no number changes by it.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Check = Callable[[Any], None]

_NAME = "the environment's observation"
_REMEDY = ": correct the environment, or its observation_space"


def observation_check(space: gym.Space[Any], name: str = _NAME) -> Check:
    """Return a function that refuses what is no observation of a space with a ValueError, which names the entry.

    Args:
        space: Any. Of what is no Box, Discrete, MultiDiscrete or MultiBinary, nor a Dict or Tuple of such, everything
            passes.
        name: What the sentence calls an observation.
    """
    # Partials of functions, which can be pickled as a wrapper can.
    if isinstance(space, spaces.Dict):
        parts = {key: observation_check(part, f"{name}[{key!r}]") for key, part in space.items()}
        return partial(_check_dict, name, parts)
    if isinstance(space, spaces.Tuple):
        return partial(_check_tuple, name, [observation_check(part, f"{name}[{at}]") for at, part in enumerate(space)])
    if isinstance(space, spaces.Box):
        return partial(_check_box, name, space.shape, np.dtype(space.dtype))
    if isinstance(space, spaces.Discrete):
        return partial(_check_whole, name, space, int(space.start), int(space.start + space.n))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return partial(_check_whole, name, space, 0, 0)
    return _check_nothing


def array_of(name: str, value: Any, shape: tuple[int, ...], dtype: npt.DTypeLike, remedy: str = "") -> npt.NDArray[Any]:
    """Return a value as an array of its own dtype, which can be cast to another one without changing a number.

    Args:
        name: What the sentence calls it.
        value: An array, or what NumPy makes one of.
        shape: That it must have.
        dtype: That it is to be cast to; real numbers may be rounded.
        remedy: The end of the sentence.

    Raises:
        ValueError: It has another shape, another kind of numbers, or numbers beyond those of `dtype`.
    """
    try:
        array, dtype = np.asarray(value), np.dtype(dtype)
    except Exception as error:  # ragged, or on a device
        raise ValueError(f"{name} must be an array, got what NumPy cannot read ({error}){remedy}") from None
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}{remedy}")
    if array.dtype == dtype:
        return array
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(f"{name} must have dtype {dtype}, got {array.dtype}{remedy or ', cast it first'}")
    if dtype.kind in "iu" and (changed := array.astype(dtype) != array).any():
        raise ValueError(f"{name} must hold numbers of {dtype}, got {array[changed][0]}{remedy}")
    return array


def _check_box(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], observation: Any) -> None:
    # This runs on every frame, and almost always it is just as it should be; NumPy has one object for a common dtype.
    if not (type(observation) is np.ndarray and observation.dtype is dtype and observation.shape == shape):
        array_of(name, observation, shape, dtype, _REMEDY)


def _check_whole(name: str, space: Any, start: int, end: int, observation: Any) -> None:
    if (type(observation) is int or type(observation) is np.int64) and start <= observation < end:
        return
    array = array_of(name, observation, space.shape or (), space.dtype, _REMEDY)
    if not space.contains(array.astype(space.dtype)):
        raise ValueError(f"{name} must be an element of {space}, got {observation}{_REMEDY}")


def _check_dict(name: str, checks: Mapping[str, Check], observation: Any) -> None:
    if not isinstance(observation, Mapping) or observation.keys() != checks.keys():
        got = sorted(map(str, observation)) if isinstance(observation, Mapping) else type(observation).__name__
        raise ValueError(f"{name} must be a dict with the keys {sorted(map(str, checks))}, got {got}{_REMEDY}")
    for key, check in checks.items():
        check(observation[key])


def _check_tuple(name: str, checks: Sequence[Check], observation: Any) -> None:
    if not isinstance(observation, tuple | list) or len(observation) != len(checks):
        got = len(observation) if isinstance(observation, tuple | list) else type(observation).__name__
        raise ValueError(f"{name} must be a tuple of {len(checks)}, got {got}{_REMEDY}")
    for check, part in zip(checks, observation, strict=True):
        check(part)


def _check_nothing(observation: Any) -> None:
    """Let the observation of another kind of space pass."""
