"""Wrapper statistics: what a wrapper learns over episodes, such as the running mean of ``NormalizeObservation``.

They belong to the weights that were trained on them: a checkpoint holds both, a resumed run goes on with both, and
evaluation plays with both, where they are *frozen*. A wrapper has statistics where

* an attribute of it is a running mean, with ``mean``, ``var`` and ``count`` as Gymnasium's ``RunningMeanStd``;
* its class has ``state_dict()``, which returns arrays and plain data, and ``load_state_dict(state)``.

It is frozen by ``update_running_mean = False``, where it has that attribute.

Statistics are a dict from the names of wrappers to their state, which is plain data. Wrappers of one name are numbered
from the inside on. Those of several environments are *merged* for evaluation: the mean and variance of all that the
environments have seen; of other state the first environment's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

Statistics = Mapping[str, Any]

_RUNNING = ("mean", "var", "count")
# What Gymnasium's NormalizeReward keeps beside its running mean, alone and of a vector.
_BESIDE = ("discounted_reward", "accumulated_reward", "_prev_dones")


def statistics_of(env: Any) -> dict[str, Any]:
    """Return the statistics of an environment's wrappers, or of a vector's; empty where none has any.

    Raises:
        ValueError: A wrapper's ``state_dict()`` holds something else than arrays and plain data.
    """
    return {name: _state_of(name, layer) for name, layer in _layers(env).items()}


def load_statistics(env: Any, statistics: Statistics) -> list[str]:
    """Give statistics to the wrappers of an environment or of a vector; return the names of those that got none.

    Raises:
        ValueError: They do not fit.
    """
    layers = _layers(env)
    for name, layer in layers.items():
        if name in statistics:
            _load(name, layer, statistics[name])
    return [name for name in layers if name not in statistics]


def with_statistics(make_env: Callable[[], Any], statistics: Statistics) -> Any:
    """Make an environment whose wrappers begin with statistics."""
    env = make_env()
    load_statistics(env, statistics)
    return env


def freeze(env: Any) -> None:
    """Let the statistics of an environment or of a vector change no more."""
    for layer in _layers(env).values():
        if hasattr(layer, "update_running_mean"):
            layer.update_running_mean = False


@contextmanager
def frozen(env: Any) -> Iterator[dict[str, Any]]:
    """Freeze the statistics of an environment during a block, and restore them afterwards; the block receives them."""
    before, layers = statistics_of(env), _layers(env).values()
    updates = [(layer, layer.update_running_mean) for layer in layers if hasattr(layer, "update_running_mean")]
    freeze(env)
    try:
        yield before
    finally:
        load_statistics(env, before)
        for layer, update in updates:
            layer.update_running_mean = update


def merged(statistics: Sequence[Statistics]) -> Statistics:
    """Return the statistics of several environments as those of one."""
    known = [each for each in statistics if each]
    if len(known) < 2:
        return known[0] if known else {}
    names = dict.fromkeys(name for each in known for name in each)
    return {name: _merged([each[name] for each in known if name in each]) for name in names}


# Of many environments.


def statistics_of_envs(envs: Any) -> list[Statistics]:
    """Return the statistics of each of many environments (`BatchedEnvs`)."""
    known = getattr(envs, "statistics", None)
    return [{} for _ in range(envs.num_envs)] if known is None else [*known()]


def give_statistics(envs: Any, statistics: Sequence[Statistics], frozen: bool = False) -> None:
    """Give each of many environments its own, before their episodes begin, and freeze them on demand."""
    if (load := getattr(envs, "load_statistics", None)) is not None:
        load(statistics, frozen)


def statistics_of_rows(vector: Any) -> list[Statistics]:
    """Return the statistics of each environment of a vector in this process; its own wrappers' are the first one's."""
    envs = getattr(vector.unwrapped, "envs", None) or [None] * vector.num_envs
    first, *others = ({} if env is None else statistics_of(env) for env in envs)
    return [{**first, **statistics_of(vector)}, *others]


def load_statistics_of_rows(vector: Any, statistics: Sequence[Statistics], frozen: bool = False) -> None:
    """Give statistics to each environment of a vector, and freeze them on demand."""
    load_statistics(vector, statistics[0])
    envs = [*(getattr(vector.unwrapped, "envs", None) or ())]
    for env, each in zip(envs, statistics, strict=False):
        load_statistics(env, each)
    for each in [vector, *envs] if frozen else ():
        freeze(each)


# One wrapper.


def layers_of(env: Any) -> Iterator[Any]:
    """Yield the wrappers of an environment or of a vector, from the outside on."""
    while isinstance(env, gym.Wrapper | gym.vector.VectorWrapper):
        yield env
        env = env.env


def _layers(env: Any) -> dict[str, Any]:
    """Return the wrappers that have statistics, by name."""
    found: dict[str, Any] = {}
    for layer in reversed([*layers_of(env)]):
        if has_statistics(layer):
            name, number = type(layer).__name__, 2
            while name in found:
                name, number = f"{type(layer).__name__} {number}", number + 1
            found[name] = layer
    return found


def has_statistics(layer: Any) -> bool:
    """Return whether a wrapper has statistics."""
    return _has_own(layer) or bool(_running(layer))


def _has_own(layer: Any) -> bool:
    return all(callable(getattr(type(layer), name, None)) for name in ("state_dict", "load_state_dict"))


def _running(layer: Any) -> dict[str, Any]:
    """Return the running means among a wrapper's attributes."""
    return {name: value for name, value in vars(layer).items() if _is_running(value)}


def _is_running(value: Any) -> bool:
    held = getattr(value, "__dict__", {})
    return all(isinstance(held.get(name), np.ndarray | np.number | int | float) for name in _RUNNING)


def _state_of(name: str, layer: Any) -> dict[str, Any]:
    if _has_own(layer):
        return {"state_dict": _plain(layer.state_dict(), f"{name}.state_dict()")}
    state = {of: {each: getattr(rms, each) for each in _RUNNING} for of, rms in _running(layer).items()}
    beside = {each: vars(layer)[each] for each in _BESIDE if each in vars(layer)}
    plain: dict[str, Any] = _plain({**state, **beside}, name)
    return plain


def _load(name: str, layer: Any, state: Statistics) -> None:
    if _has_own(layer):
        if "state_dict" in state:
            layer.load_state_dict(_made(state["state_dict"]))
        return
    running = _running(layer)
    for of, value in _made(state).items():
        if of in running:
            for each in _RUNNING:
                here, there = np.shape(getattr(running[of], each)), np.shape(value[each])
                if here != there:
                    raise ValueError(f"{name}.{of}.{each} must have the shape {here}, got statistics of {there}")
                setattr(running[of], each, value[each])
        # Of a vector there is one for each environment, which one environment has no use for.
        elif of in vars(layer) and np.shape(vars(layer)[of]) == np.shape(value):
            setattr(layer, of, value)


def _merged(states: Sequence[Statistics]) -> dict[str, Any]:
    """Return one wrapper's state of several; Chan et al., "Algorithms for computing the sample variance", 1983."""
    merged = dict(states[0])
    for of, one in states[0].items():
        if not (isinstance(one, Mapping) and one.keys() == set(_RUNNING)):
            continue
        each = [_made(state[of]) for state in states if of in state]
        count = sum(part["count"] for part in each)
        mean = sum(part["mean"] * (part["count"] / count) for part in each)
        var = sum((part["var"] + np.square(part["mean"] - mean)) * (part["count"] / count) for part in each)
        dtype = np.asarray(each[0]["mean"]).dtype
        joined = {"mean": np.asarray(mean, dtype), "var": np.asarray(var, dtype), "count": count}
        merged[of] = _plain(joined, of)
    return merged


# Arrays as plain data, exactly.


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, Mapping):
        return {str(key): _plain(each, f"{where}[{key!r}]") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{where}[{place}]") for place, each in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"statistics must be arrays and plain data, got {type(value).__name__} at {where}")


def _made(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {"array", "dtype"}:
            array = np.array(value["array"], value["dtype"])
            return array if array.ndim else array[()]
        return {key: _made(each) for key, each in value.items()}
    return [_made(each) for each in value] if isinstance(value, list) else value
