"""Callables with the values that gin binds to them now: a child process has an empty gin."""

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


def with_gin_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with the values that gin binds to it now, so that a process without them can call it.

    A function that gin does not know is returned as it is. Values that are callables get their values too; what
    `function` calls by name does not.

    Gin's text (``gin.config_str``) cannot be sent instead: it leaves out values that have no text, and to read it a
    child would have to import every module that it names.
    """
    if isinstance(function, partial):
        return partial(with_gin_values(function.func), *function.args, **function.keywords)
    configurable = _configurable(function)
    if configurable is None:
        return function
    # A reference such as @scope/name is a function, or a class, that enters the scope around the configurable. Gin has
    # no public name for that scope, so it is read from the function's closure.
    entered = type(function).__call__ if isinstance(function, type) else function
    scope = inspect.getclosurevars(entered).nonlocals.get("scope_components") if inspect.isfunction(entered) else None
    with gin.config_scope(scope):
        bindings = gin.get_bindings(configurable)
    values = {name: _value(value) for name, value in bindings.items()}
    return WithGinValues(inspect.unwrap(configurable), values)


def _configurable(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return what is registered with gin; of a class of another package a reference is a subclass of the same name."""
    if not isinstance(function, type):
        found = inspect.unwrap(function, stop=_is_configurable)
        return found if _is_configurable(found) else None
    named = [kind for kind in function.__mro__ if kind.__qualname__ == function.__qualname__]
    return next((kind for kind in named if _is_configurable(kind)), None)


def _value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_value(each) for each in value)
    return with_gin_values(value) if callable(value) else value


def _is_configurable(function: Callable[..., Any]) -> bool:
    try:
        gin.get_bindings(function, resolve_references=False)
    except (ValueError, TypeError):  # not registered, or not hashable
        return False
    return True
