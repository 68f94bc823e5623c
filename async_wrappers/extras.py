"""The extras of the package, such as ``async-wrappers[atari]``: an import error names the one to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gymnasium.error import DependencyNotInstalled

__all__ = ["extra"]


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
        raise DependencyNotInstalled(
            f"{what} needs the extra {name!r} ({error}): pip install 'async-wrappers[{name}]'"
        ) from None
