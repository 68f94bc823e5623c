"""Pages that are made from the code when the site is built: names, flags, what gin files may bind, each package."""

from __future__ import annotations

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
LEFT_OUT = ("async_wrappers.fleet.fork_server",)  # it changes signals when imported


def command_line() -> str:
    """Return what ``--help`` prints for each command, as Markdown."""
    from async_wrappers.agents.cli.command_line import OVERVIEW
    from async_wrappers.agents.cli.commands import COMMANDS, parser_of

    parts = ["## train.py", _block(OVERVIEW)]
    for name in COMMANDS:
        parts += [f"### train.py {name}", _block(parser_of(name).format_help())]
    parts += ["## python -m async_wrappers"]
    for name in PLANNING:
        parts += [f"### {name}", _block(_help("async_wrappers", name))]
    parts += ["## python -m async_wrappers.envs.gameboy", _block(_help("async_wrappers.envs.gameboy", "convert"))]
    return "\n\n".join(parts) + "\n"


def names_at_the_top() -> str:
    """Return a table of what `async_wrappers` offers, each with a link to the module that defines it."""
    from async_wrappers.agents.config.described import purpose

    package = import_module("async_wrappers")
    things = {name: getattr(package, name) for name in package.__all__ if not name.startswith("_")}
    rows = [
        f"| {{py:obj}}`{name} <{thing.__module__}.{name}>` | {_markdown(purpose(thing))} |"
        for name, thing in things.items()
    ]
    return "\n".join(["| name | what it does |", "|---|---|", *rows]) + "\n"


def gin_parameters() -> str:
    """Return a table for each name that gin files may use, as Markdown."""
    from async_wrappers.agents.config.described import gin_name, purpose
    from async_wrappers.agents.configurables import CONFIGURABLES as agents
    from async_wrappers.configurables import CONFIGURABLES as wrappers

    parts = []
    for title, things in (("Environments, delays and the live runner", wrappers), ("Agents and experiments", agents)):
        parts.append(f"## {title}")
        for name, thing in sorted(((gin_name(thing), thing) for thing in things), key=lambda pair: pair[0].lower()):
            parts += [f"### {name}", _markdown(purpose(thing))]
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


def parameter_rows(thing: object) -> list[str]:
    """Return the rows of the table of a class's or function's parameters."""
    from async_wrappers.agents.config.described import parameters

    rows = []
    for name, default, meaning in parameters(thing):
        shown = f"`{default}`" if default else ""
        rows.append(f"| `{name}` | {shown} | {_markdown(meaning)} |".replace("|  |", "| |"))
    return rows


def _markdown(text: str) -> str:
    """Turn a docstring's sentences into those of a Markdown table: one line, code in single backticks."""
    pieces = re.split(r"(`+[^`]*`+)", text)
    for number, piece in enumerate(pieces):
        plain = piece.replace("``", "`") if number % 2 else re.sub(r"([*_<\[\]$])", r"\\\1", piece)
        pieces[number] = plain.replace("|", r"\|")
    return "".join(pieces)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before the sources are read."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
