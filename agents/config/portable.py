"""What a configuration makes, for a process with an empty gin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import gin

from async_wrappers.agents.config.gin_text import code_in, strangers
from async_wrappers.agents.settings import with_gin_values


def portable(make_env: Callable[[], Any]) -> Callable[[], Any]:
    """Return a factory of environments that also works in a process with an empty gin and without imports."""
    return _AfterImports(with_gin_values(make_env), own_modules())


@dataclass(frozen=True)
class _AfterImports:
    """Makes an environment in a process that has not imported the modules which register it."""

    make_env: Callable[[], Any]
    modules: tuple[str, ...]

    def __call__(self) -> Any:
        for module in self.modules:
            import_module(module)
        return self.make_env()


def own_modules() -> tuple[str, ...]:
    """Return the modules that the configuration imports and that are not this project's."""
    modules, _ = code_in(gin.config_str())
    imported = {name for name in strangers(modules, ()) if name in sys.modules}
    return tuple(sorted(imported))
