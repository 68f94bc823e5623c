"""Pages that are made from the code when the site is built: names, flags, what gin files may bind, each package."""

from __future__ import annotations

import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the tests import this module without Sphinx
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
PLANNING = ("plan", "probe", "score")  # of python -m async_wrappers
LEFT_OUT = ("async_wrappers.processes.fork_server",)  # it changes signals when imported


def command_line() -> str:
    """Return what ``--help`` prints for each command, as Markdown."""
    from async_wrappers.agents.cli.command_line import COMMANDS, OVERVIEW
    from async_wrappers.agents.cli.flags import Parser

    parts = ["## train.py", _block(OVERVIEW)]
    for name, module in COMMANDS.items():
        command = import_module(module)
        parser = Parser(name, command.__doc__ or "")
        command.add_flags(parser)
        parts += [f"### train.py {name}", _block(parser.format_help())]
    parts += ["## python -m async_wrappers"]
    for name in PLANNING:
        parts += [f"### {name}", _block(_help("async_wrappers", name))]
    parts += ["## python -m async_wrappers.envs.gameboy", _block(_help("async_wrappers.envs.gameboy", "convert"))]
    return "\n\n".join(parts) + "\n"


def names_at_the_top() -> str:
    """Return a table of what `async_wrappers` offers, each with a link to the module that defines it."""
    package = import_module("async_wrappers")
    things = {name: getattr(package, name) for name in package.__all__ if not name.startswith("_")}
    rows = [f"| {{py:obj}}`{name} <{thing.__module__}.{name}>` | {_purpose(thing)} |" for name, thing in things.items()]
    return "\n".join(["| name | what it does |", "|---|---|", *rows]) + "\n"


def gin_parameters() -> str:
    """Return a table for each name that gin files may use, as Markdown."""
    from async_wrappers.agents.configurables import CONFIGURABLES as agents
    from async_wrappers.configurables import CONFIGURABLES as wrappers

    parts = []
    for title, things in (("Environments, delays and the live runner", wrappers), ("Agents and experiments", agents)):
        parts.append(f"## {title}")
        for name, thing in sorted(((_gin_name(thing), thing) for thing in things), key=lambda pair: pair[0].lower()):
            parts += [f"### {name}", _purpose(thing)]
            if rows := parameter_rows(thing):
                parts.append("\n".join(["| parameter | default | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def packages() -> dict[str, str]:
    """Return the page of each package: what it and each of its modules define, and its packages."""
    found = list(_modules(ROOT / "async_wrappers", "async_wrappers"))
    names = ["async_wrappers", *(each.name for each in found)]
    of_a_page = ["async_wrappers", *(each.name for each in found if each.ispkg)]
    pages = {}
    for package in of_a_page:
        inside = [name for name in names if name.rpartition(".")[0] == package]
        parts = [_definitions("Package", package, "=")]
        if inside:
            listed = [name.removeprefix(f"{package}.") for name in inside]
            parts.append(".. autosummary::\n\n   " + "\n   ".join(listed))
        parts += [_definitions("Module", name, "-") for name in inside if name not in of_a_page]
        if pages_of := [name for name in inside if name in of_a_page]:
            parts.append(".. toctree::\n   :hidden:\n\n   " + "\n   ".join(pages_of))
        pages[package] = "\n\n".join(parts) + "\n"
    return pages


def _modules(folder: Path, package: str) -> Iterator[pkgutil.ModuleInfo]:
    """Yield what is in a package, at any depth, without importing it: some modules need an extra."""
    for found in pkgutil.iter_modules([str(folder)], f"{package}."):
        name = found.name.rpartition(".")[2]
        if found.name not in LEFT_OUT and not name.startswith("_"):
            yield found
            if found.ispkg:
                yield from _modules(folder / name, found.name)


def _definitions(kind: str, name: str, line: str) -> str:
    title = name.rpartition(".")[2].replace("_", r"\_")
    return f"{title}\n{line * len(title)}\n\n{kind} ``{name}``.\n\n.. automodule:: {name}"


def write(app: Sphinx) -> None:
    """Write the pages into the folders ``generated`` and ``api``, where they differ from what is there."""
    folder = Path(app.srcdir) / "reference"
    made = {"command_line.md": command_line(), "gin.md": gin_parameters(), "names.md": names_at_the_top()}
    _write(folder / "generated", made)
    _write(folder / "api", {f"{name}.rst": page for name, page in packages().items()})


def _write(folder: Path, texts: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for old in {path.name for path in folder.iterdir()} - texts.keys():
        (folder / old).unlink()
    for name, text in texts.items():
        page = folder / name
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _help(module: str, command: str) -> str:
    words = [sys.executable, "-m", module, command, "--help"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _block(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def _gin_name(thing: object) -> str:
    """Return the name in gin files, such as ``DQNAgent`` for the class `DQN`."""
    found = re.search(r"``(\w+)`` in gin", inspect.getdoc(thing) or "")
    return found[1] if found else getattr(thing, "__name__", str(thing))


def _purpose(thing: object) -> str:
    return _markdown((inspect.getdoc(thing) or "").split("\n\n")[0])


def parameter_rows(thing: object) -> list[str]:
    """Return the rows of the table of a class's or function's parameters."""
    import gin

    documented = _arguments(inspect.getdoc(thing) or "")
    if isinstance(thing, type) and not documented:  # Gymnasium's wrappers document their constructors
        documented = _arguments(inspect.getdoc(thing.__init__) or "")
    rows = []
    for name, parameter in inspect.signature(inspect.unwrap(thing)).parameters.items():  # type: ignore[arg-type]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            name, default = f"**{name}", ""
        else:
            given = not any(parameter.default is none for none in (parameter.empty, gin.REQUIRED))
            default = f"`{_value(parameter.default)}`" if given else ""
        meaning = documented.get(name.strip("*"), "")
        rows.append(f"| `{name}` | {default} | {meaning} |".replace("|  |", "| |"))
    return rows


def _value(default: object) -> str:
    """Return a default as a gin file would write it."""
    return f"@{default.__name__}" if callable(default) and hasattr(default, "__name__") else repr(default)


def _arguments(docstring: str) -> dict[str, str]:
    """Return the meaning of each argument in Google's section ``Args:``."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, re.DOTALL | re.MULTILINE)
    if section is None:
        return {}
    entries = re.findall(r"^    \**(\w+)(?: \([^)]*\))?: (.*?)(?=^    \S|\Z)", section[1], re.DOTALL | re.MULTILINE)
    return {name: _markdown(text) for name, text in entries}


def _markdown(text: str) -> str:
    """Turn a docstring's sentences into those of a Markdown table: one line, code in single backticks."""
    pieces = re.split(r"(`+[^`]*`+)", " ".join(text.split()))
    for number, piece in enumerate(pieces):
        plain = piece.replace("``", "`") if number % 2 else re.sub(r"([*_<\[\]$])", r"\\\1", piece)
        pieces[number] = plain.replace("|", r"\|")
    return "".join(pieces)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before the sources are read."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
