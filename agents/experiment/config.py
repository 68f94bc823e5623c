"""Gin files and bindings, with a user's mistakes told in one sentence.

Precedence: bindings, then files, then the configuration saved with the run, then the defaults in the code.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import gin

from agents.files import write_text_atomically

__all__ = ["CONFIG", "ConfigError", "find_gin_files", "gin_of_its_own", "load_config", "save_config"]

CONFIG = "config.gin"
DOPAMINE_NAMES = "docs/dopamine_names.md says what Dopamine's names are here"


class ConfigError(ValueError):
    """A gin file or binding cannot be used; the message is one sentence that says which and why."""


def load_config(
    gin_files: Sequence[str],
    gin_bindings: Sequence[str],
    configurables: Iterable[Callable[..., Any]],
    *,
    saved: Path | None = None,
    search_paths: Sequence[Path] = (),
) -> None:
    """Replace gin's configuration by what the files and bindings say.

    Args:
        gin_files: Names of files, later ones winning; found from the working directory, then from `search_paths`.
        gin_bindings: Such as ``"RealtimeDelay.delay = 8"``, later ones winning.
        configurables: What may be bound, to name the nearest known names.
        saved: The configuration that the run began with, which everything else overrides; None or a missing file is
            none.
        search_paths: Further directories.

    Raises:
        ConfigError: A file, binding, name or value is wrong.
    """
    known = {thing.__name__: _parameters(thing) for thing in configurables}
    gin.clear_config()
    if saved is not None and saved.is_file():
        with _told_in_one_sentence(str(saved), known):
            gin.parse_config_file(str(saved))
    for name in gin_files:
        path = _find_file(name, search_paths)
        with _told_in_one_sentence(f"--gin_files {name}", known):
            gin.parse_config_file(str(path))
    for binding in gin_bindings:
        with _told_in_one_sentence(f"--gin_bindings {binding!r}", known):
            gin.parse_config(binding)
    with _told_in_one_sentence("gin configuration", known):
        gin.finalize()
    _check_parameters(known)


@contextmanager
def gin_of_its_own() -> Iterator[None]:
    """Give the context an empty configuration, outside all scopes, and the caller back his own, locked if it was."""
    state = gin.config  # gin has no public way to put a configuration aside: its text lacks what is no literal
    bound, used = (
        {key: {**values} for key, values in kept.items()} for kept in (state._CONFIG, state._OPERATIVE_CONFIG)
    )
    imports, singletons, locked = set(state._IMPORTS), dict(state._SINGLETONS), gin.config_is_locked()
    gin.clear_config()
    try:
        with gin.config_scope(None):
            yield
    finally:
        gin.clear_config()
        state._CONFIG.update(bound)
        state._OPERATIVE_CONFIG.update(used)
        state._IMPORTS.update(imports)
        state._SINGLETONS.update(singletons)
        state._set_config_is_locked(locked)


def _check_parameters(known: dict[str, list[str]]) -> None:
    """Refuse what gin lets pass: a wrong parameter of an agent that hands on those it does not know."""
    for statement in _statements(gin.config_str()):
        owner, _, parameter = statement.rpartition(".")
        owner = owner.rpartition("/")[2].rpartition(".")[2]
        if parameter not in known.get(owner, [parameter]):
            hint = _hint(_close_parameters(owner, parameter, known))
            raise ConfigError(f"gin configuration: {owner} has no parameter {parameter!r}{hint}")


def save_config(base_dir: Path) -> Path:
    """Write the configuration of all that has been constructed, defaults included, to ``base_dir/config.gin``."""
    path = Path(base_dir) / CONFIG
    path.parent.mkdir(parents=True, exist_ok=True)
    used = gin.operative_config_str()
    names = _statements(used)
    unused = [text for name, text in _statements(gin.config_str()).items() if name not in names]
    if unused:
        used += "\n# Bound, but not used when the run began:\n" + "\n".join(unused) + "\n"
    write_text_atomically(path, used)
    return path


def _statements(config: str) -> dict[str, str]:
    """Return the text of each binding by its name; a value may go on over indented lines."""
    found = re.finditer(r"^(\S+) =.*(?:\n[ \t]+.*)*", config, re.MULTILINE)
    return {statement[1]: statement[0] for statement in found}


def find_gin_files(directories: Iterable[Path]) -> list[str]:
    """Return the gin files below ``configs`` in each directory, as names that ``--gin_files`` takes."""
    return sorted({str(path.relative_to(place)) for place in directories for path in place.glob("configs/**/*.gin")})


def _find_file(name: str, search_paths: Sequence[Path]) -> Path:
    places = [Path(), *search_paths]
    for place in places:
        if (place / name).is_file():
            return place / name
    files = find_gin_files(places)
    by_base = {Path(file).name: file for file in files}
    close = get_close_matches(name, files, n=2) or [
        by_base[base] for base in get_close_matches(Path(name).name, by_base, n=2, cutoff=0.5)
    ]
    raise ConfigError(f"--gin_files {name}: no such file{_hint(close)}")


@contextmanager
def _told_in_one_sentence(source: str, known: dict[str, list[str]]) -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # gin logs each place where it did not find an included file
    try:
        yield
    except (ValueError, SyntaxError, OSError, ImportError, TypeError) as error:
        raise ConfigError(f"{_where(source, str(error))}: {_sentence(error, known)}") from None
    finally:
        logging.disable(logging.NOTSET)


def _where(source: str, message: str) -> str:
    """Add the line of the file, where gin tells."""
    place = re.search(r'In file "(.+?)", line (\d+)', message)
    return f"{source} (line {place[2]})" if place else source


def _sentence(error: Exception, known: dict[str, list[str]]) -> str:
    first_line = str(error).splitlines()[0]
    if isinstance(error, ImportError) and "'dopamine" in first_line:
        return f"this is a file of Dopamine's ({first_line}); {DOPAMINE_NAMES}"
    if name := re.search(r"No configurable matching (?:reference )?'@?(?:.*[/.])?(.+?)(?:\(\))?'", first_line):
        pointer = f"; {DOPAMINE_NAMES}" if name[1].startswith("Jax") else ""
        return f"nothing is named {name[1]!r}{_hint(_close_names(name[1], known))}{pointer}"
    if name := re.search(r"Configurable '(?:.*\.)?(.+?)' doesn't have a parameter named '(.+?)'", first_line):
        return f"{name[1]} has no parameter {name[2]!r}{_hint(_close_parameters(name[1], name[2], known))}"
    if name := re.search(r"No bindings specified for '(.+?)/gin.macro'", first_line):
        return f"the macro %{name[1]} is not defined"
    if isinstance(error, SyntaxError):
        return f"not a gin statement ({first_line}); a binding reads 'RealtimeDelay.delay = 8', and a text has quotes"
    return first_line


def _close_names(name: str, known: dict[str, list[str]]) -> list[str]:
    return get_close_matches(name.removeprefix("Jax"), known, n=3, cutoff=0.5)


def _close_parameters(owner: str, parameter: str, known: dict[str, list[str]]) -> list[str]:
    """Return the nearest parameters of the same thing, and those of that very name of other things."""
    elsewhere = [f"{name}.{parameter}" for name, parameters in known.items() if parameter in parameters]
    here = get_close_matches(parameter, known.get(owner, []), n=2)
    return [f"{owner}.{name}" for name in here] + elsewhere


def _hint(close: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _parameters(thing: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(thing).parameters)
