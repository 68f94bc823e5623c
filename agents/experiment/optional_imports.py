"""Libraries that only some of the work needs: what to install, said in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agents.experiment.config import ConfigError

__all__ = ["extra"]


@contextmanager
def extra(what: str, name: str) -> Iterator[None]:
    """Tell what to install where a library that is imported within is missing.

    Args:
        what: What needs it.
        name: The extra of this project that brings it.

    Raises:
        ConfigError: The same.
    """
    try:
        yield
    except ImportError as error:
        remedy = f"pip install -e '.[{name}]' -c constraints.txt"
        raise ConfigError(f"{what} needs the extra {name!r} ({error}): {remedy}") from None
