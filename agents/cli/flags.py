"""The flags of a command, and its usage errors: each of a user's mistakes is refused in one sentence."""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
from absl import logging

_TRUTH = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class UsageError(Exception):
    """The command line or the configuration is wrong; the message is one sentence.

    Attributes:
        flag: The flag that the command does not have, but another command may, such as ``"--grid"``; empty for other
            mistakes.
    """

    def __init__(self, message: str, flag: str = "") -> None:
        super().__init__(message)
        self.flag = flag


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise an error of the block that a user's wrong value causes as a `UsageError` of one line."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, gym.error.Error) as error:
        logging.debug("while building the experiment", exc_info=True)
        if isinstance(error, RecursionError):
            raise UsageError(
                f"gin configuration: a reference or a macro leads back to itself ({first_line(error)})"
            ) from None
        # gin raises RuntimeError where a binding is required; any other RuntimeError is a fault of the program.
        if isinstance(error, RuntimeError) and "Required bindings" not in str(error):
            raise
        raise UsageError(_one_line(error)) from None


def _one_line(error: Exception) -> str:
    """Return the first line of a message; one of Python's own gets the name of its gin configurable."""
    sentence = first_line(error)
    configurable = re.search(r"In call to configurable '(.+?)'", str(error))
    return f"{configurable[1]}: {sentence}" if isinstance(error, TypeError) and configurable else sentence


def first_line(error: BaseException) -> str:
    """Return the first line of a message, or the error's kind where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def program() -> str:
    """Return the program as a user calls it: that of an installation, or the script of the clone."""
    called = Path(sys.argv[0])
    if called.stem == "async-wrappers":
        return "async-wrappers"
    return f"python {shlex.quote(str(called)) if called.name == 'train.py' else 'train.py'}"


class FlagParser(argparse.ArgumentParser):
    """Parses the words after a command.

    Flags may come before, between and after the command's words, be given as ``--x y`` or ``--x=y``, and be spelled
    with hyphens or underscores.

    Args:
        command: The first word of the command line.
        description: For ``--help``.

    Attributes:
        refused: The message for each flag that a user may expect here, by the flag.
        flags: The command's flags.
    """

    def __init__(self, command: str, description: str) -> None:
        self.command = command
        self.refused: dict[str, str] = {}
        self.flags: set[str] = set()
        self._switches: set[str] = set()
        self._words: list[argparse.Action] = []
        # No abbreviations: one changes its meaning when a flag is added.
        super().__init__(f"{program()} {command}", description=description, allow_abbrev=False)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add a flag, as argparse does, and remember its spellings."""
        action = super().add_argument(*names, **settings)
        self.flags.update(action.option_strings)
        return action

    def add_switch(self, name: str, help: str) -> None:
        """Add a flag that is on or off: ``--name``, ``--no-name``, ``--noname``, ``--name=true``, ``--name=false``."""
        self.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=help)
        self.set_defaults(**{name: False})
        self._switches.add(name)

    def add_word(self, name: str, help: str, many: bool = False) -> None:
        """Add a word that the command needs, a path such as ``DIR``; after the parsing it is ``options.dir``.

        Args:
            name: Of the word.
            help: What it is.
            many: Whether there may be several; ``options.dir`` is then a list.
        """
        # Optional for argparse, which would name a missing word before a flag that is wrong.
        given: dict[str, Any] = {"nargs": "*" if many else "?", "type": os.path.expanduser}
        self._words.append(self.add_argument(name.lower(), metavar=name, help=help, **given))

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the values of the flags and words.

        Raises:
            UsageError: The words are wrong; the error has the flag that the command does not have.
            SystemExit: ``--help`` was asked for, and is printed.
        """
        options, rest = self.parse_known_intermixed_args([self._spelled(word) for word in words])
        for flag in (word.partition("=")[0] for word in rest if word.startswith("-")):
            if flag in self.refused:
                raise UsageError(f"{flag} {self.refused[flag]}")
            close = get_close_matches(flag, self.flags, n=1)
            hint = f"did you mean {close[0]}?" if close else f"{self.prog} --help lists its flags"
            raise UsageError(f"{self.command} has no flag {flag}; {hint}", flag)
        if rest:
            raise UsageError(f"{rest[0]!r} belongs to no flag; gin_files and gin_bindings are repeated for each value")
        if any(getattr(options, action.dest) in (None, []) for action in self._words):
            names = [str(action.metavar) for action in self._words]
            what = "a file" if "FILE" in names else "results"
            raise UsageError(f"{self.command} needs {what}: {self.prog} {' '.join(names)}")
        return options

    def _spelled(self, word: str) -> str:
        """Return a flag as it was added: written --like_this, and a switch without a value; other words as they are."""
        found = re.match(r"--([a-z][\w-]*)(=?)", word)
        if found is None:
            return word
        name, value = found[1].replace("-", "_"), word[found.end() :]
        bare = re.sub("^no_?", "", name)
        if name in self._switches and found[2]:
            if value not in _TRUTH:
                raise UsageError(f"--{name}: must be true or false, got {value!r}")
            return f"--{name}" if _TRUTH[value] else f"--no-{name}"
        return f"--{f'no-{bare}' if bare in self._switches and bare != name else name}{found[2]}{value}"

    def error(self, message: str) -> NoReturn:
        """Raise argparse's error as a `UsageError`."""
        raise UsageError(message.removeprefix("argument ").replace("expected one argument", "a value is missing"))


def at_least(least: float) -> Callable[[str], Any]:
    """Return a parser of finite numbers from `least` on, which are whole where `least` is an int."""

    def parse(text: str) -> Any:
        with suppress(ValueError):
            if least <= (value := type(least)(text)) < math.inf:
                return value
        kind = "a whole number" if isinstance(least, int) else "a number"
        raise argparse.ArgumentTypeError(f"must be {kind} >= {least:g}, got {text!r}")

    return parse
