"""Other libraries: an import error names the extra to install, as ``async-wrappers[atari]``; warnings are ignored."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gymnasium.error import DependencyNotInstalled


@contextmanager
def extra(what: str, name: str) -> Iterator[None]:
    """Name the extra to install, if a library that is imported in the block is missing.

    Args:
        what: Feature that needs the library.
        name: The extra of this project that brings it.

    Raises:
        DependencyNotInstalled: The same.
    """
    try:
        yield
    except ImportError as error:
        raise DependencyNotInstalled(needs_extra(what, name, error)) from None


def needs_extra(what: str, name: str, error: ImportError) -> str:
    """Return the message of a missing library; the arguments are those of `extra`, and its error."""
    return f"{what} needs the extra {name!r} ({error}): pip install 'async-wrappers[{name}]'"


class _Ignored(threading.local):
    """The warnings that this thread ignores, in the place of a filter's regular expression.

    Filters belong to the process: of two threads that put back what each has found (`warnings.catch_warnings`), one
    leaves the other's behind. This one stays, and matches nothing but in a block of `ignored_warnings` of the thread.
    """

    def __init__(self) -> None:
        self.patterns: list[re.Pattern[str]] = []

    def match(self, text: str) -> bool:
        """Return whether a warning is ignored; called by Python for each warning."""
        return any(pattern.match(text) for pattern in self.patterns)


_ignored = _Ignored()
_FILTER: Any = ("ignore", _ignored, Warning, None, 0)


@contextmanager
def ignored_warnings(message: str = "") -> Iterator[None]:
    """Ignore a library's warnings in the block, in this thread alone.

    Args:
        message: A regular expression that the beginning of each matches.
    """
    if warnings.filters[:1] != [_FILTER]:
        warnings.filters.insert(0, _FILTER)  # type: ignore[attr-defined]
    _ignored.patterns.append(re.compile(message))
    try:
        yield
    finally:
        _ignored.patterns.pop()
