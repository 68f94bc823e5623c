"""Gin text, read without running it: its bindings, the code that it imports, and names of simulations.

Gin files import modules, and modules are programs.

A configuration in somebody else's directory may import this project's modules and those that the user has named,
nothing else. Gin's own parser reads it, so that it has the same meaning here as in gin.

The simulations of arXiv 2412.14355's table have names: ``asynchronous_8`` or ``sequential_8``, with 8 frames of delay.
A name stands for ``configs/paper/atari.gin`` with a delay of D frames and, for sequential interaction, D no-ops. As
published, the network is then the 1 M one at every delay. ``asynchronous_10m`` names the network instead: it is
``asynchronous_8`` with the 10 M network, which takes so long. A name may be written as a path,
``configs/paper/asynchronous_8.gin``, and be included by another gin file. If there is a file of that name, the file
wins.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import sysconfig
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gin
from absl import logging
from gin import config_parser

from async_wrappers.agents.trained.agent_file import is_agent_file

ATARI = "configs/paper/atari.gin"
# Frames that each network of the table takes (`agents.networks.q_network.PRESETS`).
NETWORKS = {"55k": 1, "70k-deep": 3, "1m": 5, "10m": 8, "1m-deep": 29, "10m-deep": 47, "100m": 70, "100m-deep": 80}
NETWORKS |= {"1b": 599, "1b-deep": 750}
DELAYS = tuple(NETWORKS.values())
_INTERACTIONS = ("asynchronous", "sequential")
SIMULATIONS = tuple(
    f"configs/paper/{interaction}_{each}.gin" for interaction in _INTERACTIONS for each in (*DELAYS, *NETWORKS)
)
_NAME = re.compile(r"(?:configs/paper/)?(asynchronous|sequential)_(\d+)([kmb](?:-deep)?)?(?:\.gin)?")

OURS = frozenset({"async_wrappers"})
# It holds `configs`, so that ``configs/...`` is found from any working directory, in the clone and in the wheel.
PACKAGE = Path(__file__).parents[2]
gin.add_config_file_search_path(str(PACKAGE))
# Gin looks for an included file among Python's modules before it looks there, and logs an error if it is not one.
logging.get_absl_logger().addFilter(lambda record: not str(record.msg).startswith("Path not found: "))
_INCLUDED = "file:"  # before the path of an included file, in a text that `read_text` returns
DYNAMIC_REGISTRATION = "__gin__.dynamic_registration"  # with it, @a.b.c names any attribute of a module


# A host and a port, which look like a module and the name of its environment.
_ADDRESSES = ("Hosts", "address"), ("RayWorkers", "address")


def code_in(source: Any) -> tuple[set[str], list[str]]:
    """Return the modules that gin text would import, itself or by an environment's id, and the files that it includes.

    Args:
        source: A text, or a file of text.

    Raises:
        SyntaxError: It is not gin's.
    """
    modules: set[str] = set()
    includes: list[str] = []
    for statement in config_parser.ConfigParser(source, _Markers()):
        if isinstance(statement, config_parser.ImportStatement):
            modules.add(statement.module)
        elif isinstance(statement, config_parser.IncludeStatement):
            includes.append(statement.filename)
        elif isinstance(statement, config_parser.BindingStatement):
            if (statement.selector.rpartition(".")[2], statement.arg_name) in _ADDRESSES:
                continue
            texts = (each for each in leaves(statement.value) if type(each) is str)
            modules.update(filter(None, map(_module_of, texts)))
    return modules, includes


def bindings_in(text: str) -> Iterator[Any]:
    """Yield the bindings of a gin text as gin's parser gives them, with `GinReference` and `Macro` among the values.

    Raises:
        SyntaxError: It is not gin's.
    """
    for statement in config_parser.ConfigParser(text, _Markers()):
        if isinstance(statement, config_parser.BindingStatement):
            yield statement


class GinReference(str):
    """The name of a reference, ``@name`` or ``@scope/name()``; `scope` is empty where it has none."""

    scope: str

    def __new__(cls, scoped_selector: str) -> GinReference:
        """Divide what gin's parser gives."""
        scope, _, name = scoped_selector.rpartition("/")
        reference = super().__new__(cls, name)
        reference.scope = scope
        return reference

    def __repr__(self) -> str:
        return f"@{self}"


class Macro(str):
    """The name of a macro, ``%name``."""


class _Markers(config_parser.ParserDelegate):  # type: ignore[misc]
    """Lets gin's parser read references and macros without looking them up."""

    def configurable_reference(self, scoped_selector: str, evaluate: bool) -> GinReference:
        return GinReference(scoped_selector)

    def macro(self, macro_name: str) -> Macro:
        return Macro(macro_name)


def leaves(value: Any) -> Iterator[Any]:
    """Yield the leaves of a value: the elements of lists, dicts and partial calls, however nested."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(key)
            yield from leaves(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, partial):
        yield from leaves(value.func)
    else:
        yield value


def code_in_all(
    texts: Iterable[str], paths: Iterable[Path], search_paths: Sequence[Path]
) -> tuple[set[str], list[str]]:
    """Return the modules that gin texts and files would import, with all that they include, and what is not found.

    Args:
        texts: Such as bindings.
        paths: Of files.
        search_paths: Directories of included files; see `find_included`.

    Raises:
        SyntaxError: One is not gin's.
        OSError: One cannot be read.
        ValueError: One is no text in UTF-8.
    """
    modules: set[str] = set()
    missing: list[str] = []
    sources: list[str | Path] = [*texts, *paths]
    for source in sources:  # which grow by the files that they include
        found, includes = code_in(source.read_text(encoding="utf-8-sig") if isinstance(source, Path) else source)
        modules |= found
        for name in includes:
            there = find_included(name, search_paths, source.parent if isinstance(source, Path) else None)
            if there is None:
                missing.append(name)
            elif there not in sources:
                sources.append(there)
    return modules, missing


def strangers(modules: Iterable[str], named: Iterable[str]) -> list[str]:
    """Return those of the modules that are neither ours, nor named, nor in a named package.

    Dynamic registration is always among them.
    """
    known = tuple(f"{name}." for name in (*OURS, *named))
    return sorted(each for each in modules if each == DYNAMIC_REGISTRATION or not f"{each}.".startswith(known))


# Where the user's own modules lie. A configuration that is saved notes it for later commands, which may be given in
# another working directory. Its places are searched for the modules that the user names, and for nothing else.
_NOTE = re.compile(r"^# Imported from (\".*\"): (\S+)$", re.MULTILINE)


def places_noted(text: str) -> str:
    """Return comments that say from where this process imported the user's own modules that a gin text imports."""
    libraries = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    lines = []
    for name in sorted({each.partition(".")[0] for each in strangers(code_in(text)[0], ())}):
        module = sys.modules.get(name)
        # A package lies beside its directory; one without an `__init__.py` has no file.
        own = [*getattr(module, "__path__", ()), getattr(module, "__file__", None) or ""][0]
        if own and (place := Path(own).resolve().parent) not in libraries:
            lines.append(f"# Imported from {json.dumps(str(place))}: {name}\n")
    return "".join(lines)


def places_in(config: Path) -> dict[str, Path]:
    """Return the directories that a saved configuration notes, by module.

    An agent's file notes none. Somebody else may have written the configuration: a place inside its own directory, or
    a relative one, could come with it, and is left out.
    """
    found: dict[str, Path] = {}
    if not is_agent_file(config) and os.path.isfile(
        config
    ):  # False for a name that is too long, which is refused elsewhere
        for place, name in _NOTE.findall(config.read_text(encoding="utf-8-sig", errors="replace")):
            with suppress(ValueError, OSError):
                path = Path(json.loads(place))
                if path.is_absolute() and path.is_dir() and not path.resolve().is_relative_to(config.parent.resolve()):
                    found[name] = path
    return found


def add_places(places: Iterable[str | os.PathLike[str]]) -> None:
    """Let modules of these directories be imported, after all others, so that none of a library's is hidden."""
    for place in map(os.path.abspath, places):
        if place not in sys.path:
            sys.path.append(place)


def find_included(name: str, search_paths: Iterable[Path], beside: Path | None = None) -> Path | None:
    """Return where an included file lies: beside the file that includes it, in the working directory, or further away.

    Args:
        name: As it is included.
        search_paths: Looked through after the working directory, and before the places that modules are in.
        beside: The directory of the file that includes it; None for a binding.
    """
    places = (*([] if beside is None else [beside]), Path(), *search_paths, PACKAGE, *map(Path, sys.path))
    path = next((place / name for place in places if (place / name).is_file()), None)
    # A simulation of the paper adds bindings to this file, and no code.
    return find_included(ATARI, search_paths) if path is None and name in SIMULATIONS else path


def files_in_all(paths: Iterable[Path], search_paths: Sequence[Path]) -> list[Path]:
    """Return gin files and all that they include, each once; unreadable ones are left out."""
    found = [*paths]
    for path in found:  # which grows by the files that they include
        with suppress(SyntaxError, OSError, ValueError):
            named = [find_included(name, search_paths, path.parent) for name in code_in(path.read_text("utf-8-sig"))[1]]
            found.extend(dict.fromkeys(there for there in named if there is not None and there not in found))
    return found


def read_text(path: Path) -> str:
    """Return the text of a gin file, in which each include is replaced by an absolute path.

    Gin itself looks for included files from the working directory, and does not say to its readers who includes them.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no text in UTF-8.
    """
    text = path.read_text(encoding="utf-8-sig")
    lines = text.splitlines(keepends=True)
    with suppress(SyntaxError, tokenize.TokenError):  # gin says it when it parses the text
        for statement in config_parser.ConfigParser(text, _Markers()):
            if not isinstance(statement, config_parser.IncludeStatement):
                continue
            there = find_included(statement.filename, (), path.parent)
            if there is not None and not (statement.filename in SIMULATIONS and there.name == Path(ATARI).name):
                number, named = statement.location.line_num - 1, repr(_INCLUDED + str(there.resolve()))
                # What stands before the name is kept, and the name goes in as it is, backslashes and all.
                found = re.match(r"""(\s*include\s+)(["']).*?\2""", lines[number])
                if found is not None:
                    lines[number] = found[1] + named + lines[number][found.end() :]
    return "".join(lines)


def _module_of(text: str) -> str | None:
    """Return the module that Gymnasium imports for an id such as ``"module:Name-v0"``, if a text is like one.

    All texts are asked, not only ids: a macro or a reference can carry a text to where the id is read.
    """
    module, _, _ = text.partition(":")
    if text.count(":") != 1 or not module or "/" in module or "\\" in module:
        return None
    return None if os.name == "nt" and re.match(r"[A-Za-z]:[\\/]", text) else module


def bindings_of_simulation(name: str) -> tuple[str, ...] | None:
    """Return the bindings that follow `ATARI` in the simulation of a name; None if the name is not of this kind.

    Raises:
        ValueError: The paper's table does not have the delay, or the network.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    network = found[2] + found[3] if found[3] else None
    if network is not None and network not in NETWORKS:
        raise ValueError(
            f"the paper's table has no network {network}, but {', '.join(NETWORKS)}: for another one take {ATARI} with "
            "--gin_bindings of create_network.torso, RealtimeDelay.delay and RealtimeDelay.noops"
        )
    delay = int(found[2]) if network is None else NETWORKS[network]
    noops = 0 if found[1] == "asynchronous" else delay
    bindings = (f"RealtimeDelay.delay = {delay}", f"RealtimeDelay.noops = {noops}")
    if network is not None:
        return (*bindings, f"create_network.torso = '{network}'")
    if delay not in DELAYS:
        raise ValueError(
            f"the paper's table has no delay of {delay} frames, but {', '.join(map(str, DELAYS))}: for another one "
            f"take {ATARI} with --gin_bindings '{bindings[0]}' --gin_bindings '{bindings[1]}'"
        )
    return bindings


def _read_simulation(name: str) -> io.StringIO:
    return io.StringIO("\n".join([f'include "{ATARI}"', *(bindings_of_simulation(name) or ())]))


def _read_included(name: str) -> io.StringIO:
    path = Path(name.removeprefix(_INCLUDED))
    stream = io.StringIO(read_text(path))
    stream.name = str(path)  # gin's messages give it
    return stream


# Gin asks its readers, one after the other, for a file that another file includes.
gin.config.register_file_reader(_read_simulation, SIMULATIONS.__contains__)
gin.config.register_file_reader(_read_included, lambda name: name.startswith(_INCLUDED))
