"""Gin files and bindings, with a sentence for each of a user's mistakes.

Precedence: bindings, then files, then the configuration saved with the run, then the defaults in the code.
"""

from __future__ import annotations

import inspect
import io
import logging
import re
import sys
import tokenize
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import gin

from async_wrappers.agents.config.gin_text import (
    ATARI,
    DYNAMIC_REGISTRATION,
    SIMULATIONS,
    bindings_of_simulation,
    code_in,
    code_in_all,
    files_in_all,
    places_in,
    places_noted,
    read_text,
    strangers,
)
from async_wrappers.agents.config.unread import LoadedConfig, given_in, known_to_gin, ours_by_name
from async_wrappers.agents.hyperparameters import with_gin_values
from async_wrappers.agents.trained.agent_file import read_config
from async_wrappers.files import write_text_atomically

CONFIG = "config.gin"
DOPAMINE_NAMES = "docs/reference/dopamine_names.md says what Dopamine's names are here"


class ConfigError(ValueError):
    """A gin file or binding cannot be used; the message is one sentence that says which and why."""


def load_config(
    gin_files: Sequence[str],
    gin_bindings: Sequence[str],
    *,
    own_bindings: Sequence[str] = (),
    saved: Path | None = None,
    search_paths: Sequence[Path] = (),
    trusted: Iterable[str] | None = (),
) -> LoadedConfig:
    """Replace gin's configuration by that of the files and bindings.

    Args:
        gin_files: Names of files, later ones winning; found from the working directory, then from `search_paths`. The
            paper's simulations have names too, such as ``"asynchronous_8"`` (`gin_text`).
        gin_bindings: Such as ``"RealtimeDelay.delay = 8"``, later ones winning.
        own_bindings: The program's, which win over the user's.
        saved: The configuration that the run began with, or an agent's file that has one, which everything else
            overrides; None or a missing file is none.
        search_paths: Further directories.
        trusted: Modules that `saved` may import besides this project's and those that the files and bindings name;
            None lets it import anything.

    Returns:
        The user's own bindings, and those that nothing reads.

    Raises:
        ConfigError: A file, binding, name or value is wrong, or `saved` imports code that nobody has named; none of
            that code has run.
    """
    known = {name: _parameters(thing) for name, thing in ours_by_name().items()}
    loaded = LoadedConfig()
    gin.clear_config()
    found = [_find_file(name, search_paths) for name in gin_files]
    if saved is not None and saved.is_file():
        with _one_sentence(str(saved), known):
            # A run's directory may be somebody else's: nothing is looked for beside its configuration.
            text = _GinText(saved, read_config(saved))
            if trusted is not None:
                named = _named(gin_files, gin_bindings, search_paths)
                modules, includes = code_in(text.getvalue())
                places = places_in(saved)
                refuse_strangers(str(saved), modules - {*trusted}, includes, named=named, places=places)
            gin.parse_config(text)
    for name, (path, further_bindings) in zip(gin_files, found, strict=True):
        with _one_sentence(f"--gin_files {name}", known):
            text_of_it = read_text(path)
            gin.parse_config(_GinText(path, text_of_it))
            gin.parse_config(further_bindings)
            loaded.given.extend(given_in(text_of_it, f"--gin_files {name}", from_file=True))
            loaded.texts.append(gin.config_str())
    for binding in gin_bindings:
        with _one_sentence(f"--gin_bindings {binding!r}", known):
            gin.parse_config(binding)
            loaded.given.extend(given_in(binding, f"--gin_bindings {binding!r}", from_file=False))
    for binding in own_bindings:
        with _one_sentence(binding, known):
            gin.parse_config(binding)
    with _one_sentence("gin configuration", known):
        gin.finalize()
        loaded.texts.append(gin.config_str())
    _check_parameters(known)
    return loaded


def code_named(
    gin_files: Sequence[str], gin_bindings: Sequence[str], *, search_paths: Sequence[Path] = ()
) -> tuple[set[str], list[str]]:
    """Return the modules that gin files and bindings would import, without importing any, and includes not found.

    Raises:
        ConfigError: There is no such file, or one of them is not gin's.
    """
    paths = [_find_file(name, search_paths)[0] for name in gin_files]
    with _one_sentence("gin configuration", {}):
        return code_in_all(gin_bindings, paths, search_paths)


def own_places(
    saved: Path, gin_files: Sequence[str], gin_bindings: Sequence[str], search_paths: Sequence[Path], *, trust: bool
) -> list[Path]:
    """Return where the modules lay that a saved configuration imports and that the user names, or trusts all of.

    Args:
        saved: The configuration, of which only comments are read.
        gin_files: The user's.
        gin_bindings: The user's.
        search_paths: Of gin files.
        trust: Whether modules are taken that the user does not name.
    """
    named = {name.partition(".")[0] for name in _named(gin_files, gin_bindings, search_paths)}
    return [place for module, place in places_in(saved).items() if trust or module in named]


def folders_of(gin_files: Sequence[str], search_paths: Sequence[Path]) -> list[Path]:
    """Return the directories of the user's gin files and of what they include; what is missing is refused later."""
    found = []
    for name in gin_files:
        with suppress(ConfigError):
            found.append(_find_file(name, search_paths)[0])
    return list(dict.fromkeys(path.parent for path in files_in_all(found, search_paths)))


def refuse_strangers(
    source: str,
    modules: Iterable[str],
    includes: Iterable[str],
    *,
    named: Iterable[str],
    places: Mapping[str, Path] | None = None,
) -> None:
    """Refuse a directory's configuration that imports code neither of this project nor named by the user.

    Args:
        source: The configuration's name in the message.
        modules: The modules that it would import.
        includes: Gin files that it would read; a configuration that was saved has none.
        named: Modules that the user has named.
        places: The directories of named modules according to the source, by module.

    Raises:
        ConfigError: Says which code, and the remedies.
    """
    found = strangers(modules, named)
    if DYNAMIC_REGISTRATION in found:
        raise ConfigError(
            f"{source} uses gin's dynamic registration, which can call any function: look at it, and add --trust (in "
            "Python trust=True) if you trust it"
        )
    if found:
        imports = " ".join(f"--gin_bindings 'import {module}'" for module in found)
        lie = {each: (places or {}).get(each.partition(".")[0]) for each in found}
        listed = ", ".join(f"{each} (of {place})" if place else each for each, place in lie.items())
        raise ConfigError(
            f"{source} imports {listed}, which is code that neither comes with this project nor is named on "
            f"the command line: name it ({imports}, or the --gin_files that do), or trust all of it (--trust; in "
            "Python trust=True)"
        )
    if other := list(includes):
        raise ConfigError(
            f"{source} includes {', '.join(other)}, which may import code: name it with --gin_files, or add --trust "
            "(in Python trust=True) if you trust it"
        )


def _named(gin_files: Sequence[str], gin_bindings: Sequence[str], search_paths: Sequence[Path]) -> set[str]:
    """Return the modules that the user names; a file or binding that is not gin's names none, and is refused later."""
    modules: set[str] = set()
    for files, bindings in [([name], []) for name in gin_files] + [([], [text]) for text in gin_bindings]:
        with suppress(ConfigError):
            modules |= code_named(files, bindings, search_paths=search_paths)[0]
    return modules


class _GinText(io.StringIO):
    """The text of a gin file, read once, with its name, which gin's messages give."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(text)
        self.name = str(path)


@contextmanager
def empty_gin() -> Iterator[None]:
    """Run the block with an empty configuration and outside all scopes, then restore the caller's, locked or not."""
    # Gin has no public way to put a configuration aside: its text leaves out values that are not literals.
    state = gin.config
    tables = (state._CONFIG, state._OPERATIVE_CONFIG, state._IMPORTS, state._SINGLETONS)
    kept, locked = [table.copy() for table in tables], gin.config_is_locked()
    gin.clear_config()
    try:
        with gin.config_scope(None):
            yield
    finally:
        gin.clear_config()
        for table, content in zip(tables, kept, strict=True):
            table.update(content)
        state._set_config_is_locked(locked)


@contextmanager
def needed_bindings(source: object) -> Iterator[None]:
    """Refuse a configuration that lacks a binding which the block needs.

    Args:
        source: The configuration's name in the message.

    Raises:
        ConfigError: As said.
    """
    try:
        yield
    except RuntimeError as error:  # gin's
        lacks = re.search(r"^Required bindings for `(.+?)` not provided in config: \['(.+?)'", str(error))
        if lacks is None:
            raise
        raise ConfigError(
            f"{source} does not bind {lacks[1]}.{lacks[2]}, and nothing runs without it: bind it"
        ) from None


def _check_parameters(known: dict[str, list[str]]) -> None:
    """Refuse what gin lets pass: a wrong parameter of an agent that passes unknown ones on to its base."""
    for statement in _statements(gin.config_str()):
        owner, _, parameter = statement.rpartition(".")
        owner = owner.rpartition("/")[2].rpartition(".")[2]
        if owner not in known and _is_spec(own := inspect.unwrap(known_to_gin(owner))):
            known = {**known, owner: _parameters(own)}
        if parameter not in known.get(owner, [parameter]):
            raise ConfigError(f"gin configuration: {_no_parameter(owner, parameter, known)}")


def save_config(base_dir: Path) -> Path:
    """Write the configuration of all that has been constructed, defaults included, to ``base_dir/config.gin``.

    Comments at its end say from where modules were imported that are not this project's.
    """
    path = Path(base_dir) / CONFIG
    path.parent.mkdir(parents=True, exist_ok=True)
    used = config_text()
    if notes := places_noted(used):
        used += "\n" + notes
    write_text_atomically(path, used)
    return path


def config_text() -> str:
    """Return the configuration of all that has been constructed, defaults included, and what else is bound."""
    used = str(gin.operative_config_str())
    names = _statements(used)
    unused = [text for name, text in _statements(gin.config_str()).items() if name not in names]
    return used + ("\n# Bound, but not used when the run began:\n" + "\n".join(unused) + "\n" if unused else "")


def bound_settings(but: str) -> dict[str, str]:
    """Return the text of each value that is bound, by its name, without those of the configurable `but`."""
    found = {name: text.partition(" =")[2] for name, text in _statements(gin.config_str()).items()}
    bound = {name: " ".join(value.split()) for name, value in found.items() if not name.startswith("#")}
    return {name: value for name, value in bound.items() if f".{name}".split(".")[-2] != but}


def _statements(config: str) -> dict[str, str]:
    """Return the text of each binding by its name; a value may continue over indented lines."""
    found = re.finditer(r"^(\S+) =.*(?:\n[ \t]+.*)*", config, re.MULTILINE)
    return {statement[1]: statement[0] for statement in found}


def find_gin_files(directories: Iterable[Path]) -> list[str]:
    """Return the gin files below ``configs`` in each directory, as names that ``--gin_files`` takes."""
    files = {str(path.relative_to(place)) for place in directories for path in place.glob("configs/**/*.gin")}
    return sorted(files | set(SIMULATIONS if ATARI in files else ()))


def _find_file(name: str, search_paths: Sequence[Path]) -> tuple[Path, Sequence[str]]:
    """Return the path of a file, and the bindings that its name adds to it, if it is a simulation of the paper."""
    places = [Path(), *search_paths]
    for place in places:
        if (place / name).is_file():
            return place / name, ()
    try:
        bindings = bindings_of_simulation(name)
    except ValueError as error:
        raise ConfigError(f"--gin_files {name}: {error}") from None
    if bindings is not None:
        return _find_file(ATARI, search_paths)[0], bindings
    files, base = find_gin_files(places), Path(name).name
    by_base = {Path(file).name: file for file in files}
    beside = {path.name for place in places for path in (place / name).parent.glob("*.gin")}
    near = [str(Path(name).with_name(each)) for each in get_close_matches(base, beside, n=1)]
    close = [*dict.fromkeys([*near, *get_close_matches(name, files, n=2)])] or [
        by_base[each] for each in get_close_matches(base, by_base, n=2, cutoff=0.5)
    ]
    raise ConfigError(f"--gin_files {name}: no such file{_hint(close[:2])}")


@contextmanager
def _one_sentence(source: str, known: dict[str, list[str]]) -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # gin logs each place where it did not find an included file
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # a module that a file imports raises what it likes
        sentence = _sentence(error, known)
        # The sentence about an agent's file begins with its name.
        raise ConfigError(
            sentence if sentence.startswith(f"{source} ") else f"{_where(source, str(error))}: {sentence}"
        ) from None
    finally:
        logging.disable(logging.NOTSET)


def _where(source: str, message: str) -> str:
    """Add the line of the file, where gin gives it."""
    place = re.search(r"In file \".+?\", line (\d+)|Failed to parse token .* \(\S.*, line (\d+)\)", message)
    return f"{source} (line {place[1] or place[2]})" if place else source


def _sentence(error: BaseException, known: dict[str, list[str]]) -> str:
    first_line = (str(error).splitlines() or [""])[0]
    if isinstance(error, ImportError) and "'dopamine" in first_line:
        return f"this is a file of Dopamine's ({first_line}); {DOPAMINE_NAMES}"
    if name := re.search(r"No configurable matching (?:reference )?'@?(?:.*[/.])?(.+?)(?:\(\))?'", first_line):
        pointer = f"; {DOPAMINE_NAMES}" if name[1].startswith("Jax") else ""
        close = get_close_matches(name[1].removeprefix("Jax"), known, n=3, cutoff=0.5)
        return f"nothing is named {name[1]!r}{_hint(close)}{pointer}"
    if name := re.search(r"Configurable '(?:.*\.)?(.+?)' doesn't have a parameter named '(.+?)'", first_line):
        return _no_parameter(name[1], name[2], known)
    if name := re.search(r"No bindings specified for '(.+?)/gin.macro'", first_line):
        return f"the macro %{name[1]} is not defined"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not a text in UTF-8 ({first_line}): save it as such"
    if isinstance(error, RecursionError):
        return "it includes itself, or is nested too deeply" if "include" in str(error) else "it is nested too deeply"
    if isinstance(error, tokenize.TokenError):
        return f"a bracket or a quote is not closed ({error.args[0]})"
    if isinstance(error, SyntaxError) and (error.filename or "").endswith(".py"):
        return f"a module that it imports has a mistake ({first_line})"
    if value := re.search(r"Failed to parse token '-?(\w+)'", str(error)):
        right = {"true": "True", "false": "False", "none": "None", "null": "None"}.get(value[1].lower())
        text = f"a text has quotes ('{value[1]}'), what gin makes has @ (@{value[1]}), and a number has digits"
        return f"{value[1]} is no value of gin: {f'write {right}' if right else text}"
    if isinstance(error, SyntaxError):
        return f"not a gin statement ({first_line}); a binding reads 'RealtimeDelay.delay = 8', and a text has quotes"
    if isinstance(error, ValueError | OSError | ImportError | TypeError):
        return first_line
    frames = traceback.extract_tb(error.__traceback__)
    place = f", {frames[-1].filename} line {frames[-1].lineno}" if frames else ""
    return f"a module that it imports fails ({type(error).__name__}: {first_line}{place})"


def _no_parameter(owner: str, parameter: str, known: dict[str, list[str]]) -> str:
    return f"{owner} has no parameter {parameter!r}{_hint(_close_parameters(owner, parameter, known))}"


def _close_parameters(owner: str, parameter: str, known: dict[str, list[str]]) -> list[str]:
    """Return the nearest parameters of the same thing, and those of that very name of other things."""
    elsewhere = [f"{name}.{parameter}" for name, parameters in known.items() if parameter in parameters]
    here = get_close_matches(parameter, known.get(owner, []), n=2)
    return [f"{owner}.{name}" for name in here] + elsewhere


def _hint(close: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(close)}?" if close else ""


@cache  # a command line loads its configuration a few times, the tests a thousand
def _parameters(thing: Callable[..., Any]) -> list[str]:
    """Return the parameters that can be bound; a class that passes unknown ones on takes its bases' too."""
    kinds = thing.__mro__[:-1] if isinstance(thing, type) else ()
    own = [inspect.signature(kind).parameters for kind in kinds if "__init__" in vars(kind)]
    found = dict(inspect.signature(thing).parameters)
    for parameters in own[1:]:
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found.values()):
            hands_on = {name for name, each in found.items() if each.kind is inspect.Parameter.VAR_KEYWORD}
            found = {**parameters, **{name: each for name, each in found.items() if name not in hands_on}}
    # The runner gives a spec these three; a binding of them would have no effect.
    not_bound = ("observation_space", "action_space", "decision_interval") if _is_spec(thing) else ()
    return [name for name in found if name not in not_bound]


def _is_spec(thing: Any) -> bool:
    return isinstance(thing, type) and any(kind.__module__ == "async_wrappers.agents.spec" for kind in thing.__mro__)


# What a configuration makes, for a process with an empty gin.


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
