"""The arguments of a constructor, each declared once.

A frozen dataclass declares them as its fields::

    @dataclass(frozen=True)
    class RunnerSettings(Settings):
        fps: float = field(metadata=declared("Frames per second.", check))
        seed: int = whole(0, "Seed of the episodes.", 0)

From a declaration are made the argument of a constructor, its check, the sentence that refuses a wrong value, the entry
in the class's documentation, and the row on the reference page of gin parameters.

* `whole`, `positive`, `flag`, `choice`: arguments of one kind. `setting`: any other one, with its own check.
* `declared`: the same for an argument without a default, whose field type checkers have to see.
* `Settings`: the base of such dataclasses, which checks their fields.
* `takes`, `documented`: give a class the arguments of its settings, and their documentation.
* `with_arguments`: adds declarations to a documentation.

`async_wrappers.agents.hyperparameters` declares hyperparameters of agents by the same fields.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any, Concatenate, ParamSpec, TypeVar

from async_wrappers import checks

Check = Callable[[str, Any], Any]
"""From an argument's name and its value to the value to keep, or a ValueError that names both and the remedy."""


def declared(meaning: str, check: Check | None = None, allowed: str = "") -> dict[str, Any]:
    """Return the metadata of a field.

    Args:
        meaning: What it sets, in one sentence, with its unit.
        check: Returns the value to keep, or raises a ValueError; None if other arguments are needed to check it.
        allowed: Which values are right, in words, where the meaning does not say it.
    """
    return {"meaning": meaning, "allowed": allowed, "check": check}


def setting(default: Any, meaning: str, check: Check | None = None, allowed: str = "") -> Any:
    """Declare an argument of any kind; None passes unchecked where it is the default."""

    def check_given(name: str, value: Any) -> Any:
        return value if check is None or (value is None and default is None) else check(name, value)

    return field(default=default, metadata=declared(meaning, check_given, allowed))


def whole(default: int | None, meaning: str, least: int, most: int | None = None, unit: str = "") -> Any:
    """Declare a whole number from `least` to `most`, of a unit in the plural; or None, if that is the default."""
    or_none = default is None

    def check(name: str, value: Any) -> int:
        return checks.whole(name, value, least, most, unit=unit, or_none=or_none)

    return setting(default, meaning, check, f"It must be {checks.whole_range(least, most, unit, or_none)}.")


def positive(default: float | None, meaning: str, unit: str = "", finite: bool = True) -> Any:
    """Declare a number > 0, of a unit in the plural; or None, if that is the default."""
    or_none = default is None

    def check(name: str, value: Any) -> float:
        return checks.positive(name, value, unit, finite=finite, or_none=or_none)

    return setting(default, meaning, check, f"It must be {checks.positive_range(unit, finite, or_none)}.")


def flag(default: bool, meaning: str) -> Any:
    """Declare an argument that is True or False."""
    return setting(default, meaning, checks.flag)


def choice(default: str, meaning: str, *words: str) -> Any:
    """Declare an argument that is one of some words, which its meaning explains."""
    return setting(default, meaning, lambda name, value: checks.choice(name, value, words))


@dataclass(frozen=True)
class Settings:
    """Base of dataclasses of declared arguments: checks each, and keeps the value that its check returns.

    Raises:
        ValueError: A value is refused.
    """

    def __post_init__(self) -> None:
        """Check the arguments."""
        for each in fields(self):
            if (check := each.metadata["check"]) is not None:
                object.__setattr__(self, each.name, check(each.name, getattr(self, each.name)))


_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")
_Kind = TypeVar("_Kind", bound=type)


def takes(settings: Callable[_P, _S]) -> Callable[[Callable[[_T, _S], None]], Callable[Concatenate[_T, _P], None]]:
    """Return a decorator of a constructor that is given settings: it takes their arguments, with their types."""

    def decorate(constructor: Callable[[_T, _S], None]) -> Callable[Concatenate[_T, _P], None]:
        def __init__(self: _T, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
            try:
                made = settings(*args, **kwargs)
            except TypeError as error:  # of Python: a wrong or a missing name
                hidden, shown = f"{getattr(settings, '__name__', '')}.__init__", f"{type(self).__name__}.__init__"
                raise TypeError(str(error).replace(hidden, shown)) from None
            constructor(self, made)

        functools.update_wrapper(__init__, constructor)
        del __init__.__wrapped__  # type: ignore[attr-defined]  # gin would look for the arguments there
        types = typing.get_type_hints(settings)
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        parameters += [
            each.replace(annotation=types[name]) for name, each in inspect.signature(settings).parameters.items()
        ]
        __init__.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
        __init__.__annotations__ = {**{each.name: types[each.name] for each in parameters[1:]}, "return": None}
        return __init__

    return decorate


def documented(settings: type[Settings]) -> Callable[[_Kind], _Kind]:
    """Return a decorator that adds the settings to a class's documentation, as its section of arguments."""

    def decorate(kind: _Kind) -> _Kind:
        kind.__doc__ = with_arguments(kind, map(entry, fields(settings)))
        return kind

    return decorate


def entry(each: Field[Any]) -> str:
    """Return the entry of a declared argument in a documentation."""
    return f"{each.name}: {' '.join(filter(None, (each.metadata['meaning'], each.metadata['allowed'])))}"


def with_arguments(kind: type, entries: Iterable[str]) -> str:
    """Return a class's documentation with a section of arguments, before that of errors."""
    lines = [textwrap.fill(each, 112, subsequent_indent="    ", break_on_hyphens=False) for each in entries]
    purpose, raises, rest = inspect.cleandoc(kind.__doc__ or "").partition("\n\nRaises:")
    return purpose + ("\n\nArgs:\n" + textwrap.indent("\n".join(lines), "    ") if lines else "") + raises + rest
