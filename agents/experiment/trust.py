"""What code a gin file asks for, found without running any of it: gin files import modules, and modules are programs.

What comes with somebody else's directory may import this project's modules and what the user has named, nothing else.
Gin's own parser reads it, so that nothing is seen here that gin would see otherwise.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gin import config_parser

from agents.experiment.paper_simulations import ATARI, SIMULATIONS

__all__ = ["DYNAMIC_REGISTRATION", "OURS", "code_in", "code_in_all", "find_included", "is_named", "strangers"]

OURS = frozenset({"agents", "async_wrappers"})
DYNAMIC_REGISTRATION = "__gin__.dynamic_registration"  # with it, @a.b.c names any attribute of a module


def code_in(source: Any) -> tuple[set[str], list[str]]:
    """Return the modules that gin text would import, itself or by an environment's id, and the files that it includes.

    Args:
        source: A text, or a file of text.

    Raises:
        SyntaxError: It is not gin's.
    """
    modules: set[str] = set()
    includes: list[str] = []
    for statement in config_parser.ConfigParser(source, _Names()):
        if isinstance(statement, config_parser.ImportStatement):
            modules.add(statement.module)
        elif isinstance(statement, config_parser.IncludeStatement):
            includes.append(statement.filename)
        elif isinstance(statement, config_parser.BindingStatement):
            modules.update(filter(None, map(_module_of, _texts(statement.value))))
    return modules, includes


def code_in_all(
    texts: Iterable[str], paths: Iterable[Path], find: Callable[[str], Path | None]
) -> tuple[set[str], list[str]]:
    """Return the modules that gin texts and files would import, with all that they include, and what is not found.

    Args:
        texts: Such as bindings.
        paths: Of files.
        find: Gives the path of an included file, or None.

    Raises:
        SyntaxError: One is not gin's.
        OSError: One cannot be read.
        ValueError: One is no text in UTF-8.
    """
    modules: set[str] = set()
    missing: list[str] = []
    seen: set[Path] = set()
    left_texts, left = list(texts), list(paths)
    while left_texts or left:
        if left:
            path = left.pop()
            if path in seen:
                continue
            seen.add(path)
            left_texts.append(path.read_text(encoding="utf-8"))
        found, includes = code_in(left_texts.pop())
        modules |= found
        for name in includes:
            there = find(name)
            if there is None:
                missing.append(name)
            else:
                left.append(there)
    return modules, missing


def strangers(modules: Iterable[str], named: Iterable[str]) -> list[str]:
    """Return those of the modules that are neither ours, nor named, nor in a named package."""
    known = OURS | set(named)
    return sorted(module for module in modules if not is_named(module, known))


def is_named(module: str, known: Iterable[str]) -> bool:
    """Return whether a module is one of those known, or in one of them; dynamic registration never is."""
    return module != DYNAMIC_REGISTRATION and any(module == name or module.startswith(f"{name}.") for name in known)


def find_included(name: str, search_paths: Iterable[Path]) -> Path | None:
    """Return where gin finds an included file: from the working directory, or below a place that modules are in."""
    places = (Path(), *search_paths, *map(Path, sys.path))
    path = next((place / name for place in places if (place / name).is_file()), None)
    # A simulation of the paper adds bindings to this file, and no code.
    return find_included(ATARI, search_paths) if path is None and name in SIMULATIONS else path


class _Names(config_parser.ParserDelegate):  # type: ignore[misc]
    """Lets gin's parser read references and macros without looking them up."""

    def configurable_reference(self, scoped_selector: str, evaluate: bool) -> None:
        return None

    def macro(self, macro_name: str) -> None:
        return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _module_of(text: str) -> str | None:
    """Return the module that Gymnasium imports for an id such as ``"module:Name-v0"``, if a text is like one.

    All texts are asked, not only ids: a macro or a reference can carry a text to where the id is read.
    """
    module, _, _ = text.partition(":")
    if text.count(":") != 1 or not module or "/" in module or "\\" in module:
        return None
    return None if os.name == "nt" and re.match(r"[A-Za-z]:[\\/]", text) else module
