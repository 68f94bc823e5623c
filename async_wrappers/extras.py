"""The extras of the package, such as ``async-wrappers[atari]``: an import error names the one to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gymnasium.error import DependencyNotInstalled

__all__ = ["extra", "needs_extra"]


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
