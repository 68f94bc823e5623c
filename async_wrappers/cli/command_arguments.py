"""What the commands share: one-line errors, ``--json``, files that can be written, functions named by the user."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

from async_wrappers.files import path_of, write_text_atomically
from async_wrappers.printing import OwnCodeFailed, in_one_line


class Parser(argparse.ArgumentParser):
    """Prints a usage error in one line, and takes flags in full: an abbreviation can get a second meaning."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "allow_abbrev": False})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words, but refuse a flag that there is not before one that is missing."""
        args = sys.argv[1:] if args is None else args
        if self._subparsers is None:  # whose flags these may be
            for flag in (word.partition("=")[0] for word in args if re.match("--[a-z]", word)):
                if flag not in self._option_string_actions:
                    close = get_close_matches(flag, self._option_string_actions, n=1)
                    hint = f"did you mean {close[0]}?" if close else f"{self.prog} --help lists them"
                    self.error(f"there is no flag {flag}; {hint}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with code 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON to FILE, or print it")


def tell(found: object, facts: Mapping[str, Any], file: str | None) -> None:
    """Print a result for a person, and write its facts to a file; for "-" print the facts alone, as JSON."""
    text = json.dumps(facts, indent=1, allow_nan=False)
    try:
        if file not in (None, "-"):
            write_text_atomically(path_of(str(file)), text + "\n")
    finally:  # a full disk does not take the result too
        print(text if file == "-" else found)


def refuse_unwritable(flag: str, file: str | None) -> None:
    """Refuse a file that cannot be written, before what it is to hold takes its time."""
    if file in (None, "-"):
        return
    path = path_of(str(file)).absolute()
    if not path.parent.is_dir():
        raise ValueError(f"{flag} must be a file in a directory that exists, got {file!r}")
    if path.is_dir():
        raise ValueError(f"{flag} must be a file, got the directory {file!r}")
    # A file is written beside its place and renamed, a device as it is.
    if not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
        raise ValueError(f"{flag} must be a file that can be written, got {file!r}")


def function_named(flag: str, name: str, example: str) -> Callable[..., Any]:
    """Return the function that MODULE:FUNCTION names; modules of the working directory count."""
    module, _, attribute = name.partition(":")
    wanted = f"{flag} must name a function, such as {example}, got {name!r}"
    if not module or module.startswith(".") or not attribute:
        raise ValueError(wanted)
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"{wanted}: {error}") from None
        raise OwnCodeFailed(f"{wanted}, and importing {module} raised {in_one_line(error)}") from error
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise ValueError(f"{wanted}: {error}") from None
    if not callable(found):
        raise ValueError(f"{wanted}: {found!r:.100}")
    function: Callable[..., Any] = found
    return function
