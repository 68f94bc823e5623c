"""The extras of the package, such as ``async-wrappers[atari]``: what to install where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gymnasium.error import DependencyNotInstalled

__all__ = ["extra"]


@contextmanager
def extra(what: str, name: str) -> Iterator[None]:
    """Say what to install where a library that is imported within is missing.

    Args:
        what: What needs it.
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
