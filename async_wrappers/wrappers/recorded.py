"""The arguments of a wrapper in Gymnasium's `EnvSpec`: objects in memory, and in JSON what makes them again.

``EnvSpec.to_json`` takes dataclasses apart and drops their class, so that a `RampDown` would come back as a dictionary.
A `Recorded` argument is written as Gymnasium writes a wrapper, ``{"entry_point": "module:Class", "kwargs": {...}}``, or
refused at once. In a spec that stays in memory it is the object itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from inspect import signature
from typing import Any

import numpy as np
from gymnasium.envs.registration import load_env_creator

_PLAIN = bool | int | float | str | None
_WRITTEN = {"entry_point", "kwargs"}


@dataclass(init=False, eq=False, repr=False)
class Recorded:
    """An argument that JSON cannot hold as it is.

    Args:
        name: Of the argument, for messages.
        value: The argument.

    Attributes:
        entry_point: Of its class; read by ``to_json`` alone.
        kwargs: That make it again.

    Raises:
        ValueError: From the attributes: nothing in JSON would make the value again.
    """

    entry_point: str
    kwargs: dict[str, Any]

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def __getattr__(self, attribute: str) -> Any:
        """Return what ``dataclasses.asdict`` asks for."""
        if attribute not in _WRITTEN:
            raise AttributeError(attribute)
        return _written(self.value, self.name)[attribute]

    def __eq__(self, other: object) -> bool:
        return bool(self.value == given(other))

    def __repr__(self) -> str:
        return repr(self.value)


def recorded(**arguments: Any) -> dict[str, Any]:
    """Return a wrapper's arguments as they stand in its spec: plain data as it is, everything else `Recorded`."""
    return {name: _recorded(name, value) for name, value in arguments.items()}


def given(value: Any) -> Any:
    """Return a wrapper's argument, which may come from a spec, as the object that was recorded."""
    if isinstance(value, Recorded):
        return value.value
    if isinstance(value, Mapping) and value.keys() == _WRITTEN:
        return load_env_creator(value["entry_point"])(**{name: given(each) for name, each in value["kwargs"].items()})
    return value


def slice_of(start: int | None, stop: int | None, step: int | None) -> slice:
    """Return a slice, by names, as JSON makes it again."""
    return slice(start, stop, step)


def _recorded(name: str, value: Any) -> Any:
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return value if _is_plain(value) else Recorded(name, value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, list | tuple) and all(map(_is_plain, value)))


def _written(value: Any, name: str) -> Any:
    """Return plain data that `given` turns into an equal value."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if _is_plain(value):
        return value
    kind = type(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"entry_point": "builtins:dict", "kwargs": {key: _written(each, name) for key, each in value.items()}}
    if isinstance(value, slice):
        bounds = {bound: _written(getattr(value, bound), name) for bound in ("start", "stop", "step")}
        return {"entry_point": f"{__name__}:slice_of", "kwargs": bounds}
    if isinstance(value, Fraction):
        names = ["numerator", "denominator"]
    elif is_dataclass(kind):
        names = [each.name for each in fields(kind)]
    else:
        raise _refusal(name, value)
    entry_point = f"{kind.__module__}:{kind.__qualname__}"
    if not (_takes(kind, names) and _loads(entry_point, kind)):
        raise _refusal(name, value)
    return {"entry_point": entry_point, "kwargs": {each: _written(getattr(value, each), name) for each in names}}


def _takes(kind: type, names: list[str]) -> bool:
    """Return whether a class is made from arguments with these names."""
    parameters = signature(kind).parameters
    optional = {name for name, each in parameters.items() if each.default is not each.empty}
    return set(names) <= parameters.keys() <= {*names, *optional}


def _loads(entry_point: str, kind: type) -> bool:
    """Return whether another program finds a class under its name."""
    if entry_point.startswith("__main__:"):
        return False
    try:
        loaded: Any = load_env_creator(entry_point)
    except (ImportError, AttributeError):
        return False
    return loaded is kind


def _refusal(name: str, value: Any) -> ValueError:
    return ValueError(
        f"{name} must be plain data, or a dataclass of plain data that a module has, to be written as JSON, got "
        f"{value!r:.200}: keep the spec itself (gym.make(env.spec)), or make the wrapper anew"
    )
