"""Functions with the values that gin binds to them now, for another process, whose gin is empty."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gin

__all__ = ["WithGinValues", "with_gin_values"]


@dataclass(frozen=True, eq=False)
class WithGinValues:
    """Calls `function` with `bindings`, as gin would: the caller's arguments win over them."""

    function: Callable[..., Any]
    bindings: dict[str, Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        given = inspect.signature(self.function).bind_partial(*args).arguments
        bound = {name: value for name, value in self.bindings.items() if name not in given}
        return self.function(*args, **{**bound, **kwargs})


def with_gin_values(value: Any) -> Any:
    """Return a function with the values that gin binds to it now, so that a process without them can call it.

    Functions among the values, and in lists and tuples, get their values too; what a function calls by name does not.
    A function that gin does not know is returned as it is, and so is all else.

    Gin's text (``gin.config_str``) cannot be sent instead: it leaves out values that have no text, and to read it a
    child would have to import every module that it names.
    """
    if isinstance(value, list | tuple):
        return type(value)(with_gin_values(each) for each in value)
    if isinstance(value, partial):
        return partial(with_gin_values(value.func), *value.args, **value.keywords)
    configurable = _configurable(value) if callable(value) else None
    if configurable is None:
        return value
    # A reference such as @scope/name is a function, or a class, that enters the scope around the configurable. Gin has
    # no public name for that scope, so it is read from the function's closure.
    entered = type(value).__call__ if isinstance(value, type) else value
    scope = inspect.getclosurevars(entered).nonlocals.get("scope_components") if inspect.isfunction(entered) else None
    with gin.config_scope(scope):
        bindings = gin.get_bindings(configurable)
    return WithGinValues(inspect.unwrap(configurable), {name: with_gin_values(each) for name, each in bindings.items()})


def _configurable(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return what is registered with gin; of a class of another package a reference is a subclass of the same name."""
    if not isinstance(function, type):
        found = inspect.unwrap(function, stop=_is_configurable)
        return found if _is_configurable(found) else None
    named = [kind for kind in function.__mro__ if kind.__qualname__ == function.__qualname__]
    return next((kind for kind in named if _is_configurable(kind)), None)


def _is_configurable(function: Callable[..., Any]) -> bool:
    try:
        gin.get_bindings(function, resolve_references=False)
    except (ValueError, TypeError):  # not registered, or not hashable
        return False
    return True
