"""A class or function that gin binds, as its documentation has it: its name, its purpose, its parameters."""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

import gin


class Parameter(NamedTuple):
    """A parameter.

    Attributes:
        name: Two asterisks and a name for all further ones.
        default: As a gin file would write it; empty if it must be given.
        meaning: What it sets, with its unit; in Markdown, as documentation has it.
    """

    name: str
    default: str
    meaning: str


def gin_name(thing: object) -> str:
    """Return the name in gin files, such as ``DQNAgent`` for the class `DQN`."""
    found = re.search(r"``(\w+)`` in gin", inspect.getdoc(thing) or "")
    return found[1] if found else getattr(thing, "__name__", str(thing))


def purpose(thing: object) -> str:
    """Return the first paragraph of the documentation, in one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def parameters(thing: object) -> list[Parameter]:
    """Return the parameters of a class or function."""
    documented = _arguments(inspect.getdoc(thing) or "")
    if isinstance(thing, type) and not documented:  # Gymnasium's wrappers document their constructors
        documented = _arguments(inspect.getdoc(thing.__init__) or "")  # type: ignore[misc]
    found = []
    for name, parameter in inspect.signature(inspect.unwrap(thing)).parameters.items():  # type: ignore[arg-type]
        if name in getattr(thing, "lacking", {}):  # taken of older configurations alone
            continue
        is_rest = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        given = not is_rest and not any(parameter.default is none for none in (parameter.empty, gin.REQUIRED))
        default = _value(parameter.default) if given else ""
        found.append(Parameter(f"**{name}" if is_rest else name, default, documented.get(name, "")))
    return found


def _value(default: object) -> str:
    return f"@{default.__name__}" if callable(default) and hasattr(default, "__name__") else repr(default)


def _arguments(docstring: str) -> dict[str, str]:
    """Return the meaning of each argument in Google's section ``Args:``, in one line."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, re.DOTALL | re.MULTILINE)
    if section is None:
        return {}
    entries = re.findall(r"^    \**(\w+)(?: \([^)]*\))?: (.*?)(?=^    \S|\Z)", section[1], re.DOTALL | re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
