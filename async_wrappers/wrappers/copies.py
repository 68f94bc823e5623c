"""Copies of an environment's observations and infos, and the parts of single sub-environments in a vector's batches.

An environment may reuse its arrays, or write into them, on the next frame.

* `own_copy`, `own_info`: copies of an observation or an action, and of an info.
* `rows`, `batch`, `with_rows`: a batch of observations or actions as its elements, and back.
* `row`, `put`: the info of one sub-environment, out of that of all and into it.
* `pictures_of`: an environment's metadata, for a wrapper that shows some of its pictures.

Where nobody else can write into an array, it needs no copy: it owns its data, and its reference count says that it is
held by its reader alone (`references` returns `OUTCOME_UNSHARED` and `OBSERVATION_UNSHARED`).
"""

from __future__ import annotations

import sys
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from numpy.typing import NDArray

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]
Info = dict[str, Any]
if TYPE_CHECKING:
    VectorWrapper = gym.vector.VectorWrapper[Any, Any, Any, Any, Any]
else:
    # It has no parameters in Gymnasium 1.3.
    VectorWrapper = gym.vector.VectorWrapper

# Types whose values cannot change: they need no copy, and the check costs less than `deepcopy`'s own.
UNCHANGEABLE = frozenset({int, float, bool, str, bytes, type(None), np.bool_, np.int64, np.float32, np.float64})


references = getattr(sys, "getrefcount", lambda _: -1)  # an interpreter without counts copies everything


class _Holder:
    newest: Any = None


def _references_of_one_reader() -> tuple[int, int]:
    """Return the reference counts of a step's outcome and of its observation that nobody but the caller of step holds.

    The caller keeps the outcome in an attribute and a variable, and the observation in a variable. Interpreters count
    variables and arguments in different ways, so the counts are measured.
    """
    holder = _Holder()
    holder.newest = outcome = (np.zeros(1), 0.0)
    observation, _ = outcome
    return references(outcome), references(observation)


OUTCOME_UNSHARED, OBSERVATION_UNSHARED = _references_of_one_reader()


def own_copy(value: Any) -> Any:
    """Return a deep copy; numbers and arrays are the common cases, and fast."""
    kind = type(value)
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    return value if kind in UNCHANGEABLE else deepcopy(value)


def own_info(info: Info) -> Info:
    """Return a copy of the dictionary and its values; values without a copy (a lock, a handle) are kept as they are."""
    copy = dict(info)
    for key, value in info.items():
        if type(value) not in UNCHANGEABLE:
            with suppress(Exception):
                copy[key] = deepcopy(value)
    return copy


def pictures_of(metadata: dict[str, Any], interval: int | None) -> dict[str, Any]:
    """Return metadata whose ``render_fps`` is that of every picture number `interval`; None where that varies."""
    rate = (metadata or {}).get("render_fps")
    if interval in (None, 1) or not isinstance(rate, int | float):
        return metadata
    return {**metadata, "render_fps": rate / interval}


def rows(space: gym.Space[Any], batched: Any) -> list[Any]:
    """Return the elements of a batch of the (batched) `space`, one for each sub-environment."""
    return list(batched) if isinstance(batched, np.ndarray) else list(iterate(space, batched))


def batch(single_space: gym.Space[Any], elements: list[Any]) -> Any:
    """Return the batch of `elements` of the `single_space`."""
    empty: Any = create_empty_array(single_space, len(elements))
    return concatenate(single_space, elements, empty)


def with_rows(env: VectorEnv, observations: Any, which: NDArray[np.int64], some: Any) -> Any:
    """Return `observations`, which may be changed, with those of the sub-environments `which` replaced by `some`."""
    if isinstance(observations, np.ndarray) and isinstance(some, np.ndarray):
        observations[which] = some
        return observations
    elements = rows(env.observation_space, observations)
    for i, observation in zip(which.tolist(), some, strict=True):
        elements[i] = observation
    return batch(env.single_observation_space, elements)


def row(info: Info, i: int, num_envs: int) -> Info:
    """Return the info of sub-environment `i` alone; `info` is of all."""
    single: Info = {}
    for key, value in info.items():
        mask = info.get(f"_{key}")
        if _is_mask(key, info) or (mask is not None and not mask[i]):
            continue
        if isinstance(value, dict):
            single[key] = row(value, i, num_envs)
        elif isinstance(value, np.ndarray) and value.ndim and len(value) == num_envs:
            single[key] = bool(value[i]) if value.dtype == bool and value.ndim == 1 else value[i]
    return single


def put(env: VectorEnv, info: Info, i: int, single: Info) -> None:
    """Make `single` the info of sub-environment `i` in `info`, which is of all."""
    _clear(info, i)
    for key, value in single.items():
        if key not in info or f"_{key}" in info:
            env._add_info(info, {key: value}, i)
        elif isinstance(value, dict):
            put(env, info[key], i, value)
        else:
            info[key][i] = value


def _clear(info: Info, i: int) -> None:
    """Remove sub-environment `i` from `info`, as far as it has masks."""
    for key, value in info.items():
        if _is_mask(key, info):
            value[i] = False
        elif isinstance(value, dict):
            _clear(value, i)
        elif f"_{key}" in info:
            value[i] = None if value.dtype.hasobject else np.zeros((), value.dtype)


def _is_mask(key: str, info: Info) -> bool:
    return key.startswith("_") and key[1:] in info
