"""The extras of the package, such as ``async-wrappers[ray]``: what to install where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from gymnasium.error import DependencyNotInstalled

__all__ = ["extra", "need_agents"]

# Modules that `agents` imports, here or there, beyond those of async_wrappers itself.
AGENTS = ("absl", "attrs", "gin", "jinja2", "matplotlib", "scipy", "tensorboard", "torch", "tqdm")


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


def need_agents(package: str) -> None:
    """Refuse to be imported without the extra `agents`, before a long import ends in the middle.

    Args:
        package: The package that is imported.

    Raises:
        ModuleNotFoundError: The same, as the error of an import.
    """
    for name in AGENTS:
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"{package} needs the extra 'agents' (No module named {name!r}): pip install 'async-wrappers[agents]'",
                name=package,
            )
