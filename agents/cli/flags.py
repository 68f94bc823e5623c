"""The flags of a command: a parser that refuses every mistake in one sentence, and the flags that commands share."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

__all__ = ["Parser", "Switch", "UnknownFlag", "UsageError", "number", "one_of", "whole_number"]

_ON, _OFF = {"true", "t", "1"}, {"false", "f", "0"}


class UsageError(Exception):
    """The command line or the configuration is wrong; the message is one sentence."""


class UnknownFlag(UsageError):
    """A command has no such flag; another command may have it.

    Attributes:
        flag: Such as ``"--grid"``.
    """

    def __init__(self, message: str, flag: str) -> None:
        """See the class."""
        super().__init__(message)
        self.flag = flag


class Parser(argparse.ArgumentParser):
    """Parses the words after a command.

    Flags may come before, between and after the command's words, be given as ``--x y`` or ``--x=y``, and be spelled
    with hyphens or underscores.

    Args:
        command: The first word of the command line.
        description: For ``--help``.
    """

    def __init__(self, command: str, description: str) -> None:
        """See the class."""
        super().__init__(
            prog=f"python train.py {command}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=False,
            allow_abbrev=False,  # an abbreviation changes its meaning when a flag is added
        )
        self.command = command
        self.flags: set[str] = set()
        self._switches: dict[str, Switch] = {}
        self._words: list[argparse.Action] = []
        self._refused: dict[str, str] = {}
        self.add_argument("--help", "-h", action="store_true", help="show this help")

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add a flag, as argparse does, and remember its spellings."""
        action = super().add_argument(*names, **settings)
        self.flags.update(action.option_strings)
        if isinstance(action, Switch):
            self._switches[action.on] = action
        return action

    def add_word(self, name: str, help: str) -> None:
        """Add a word that the command needs, such as ``DIR``; after the parsing it is ``options.dir``."""
        # Optional for argparse, which would name a missing word without saying where it goes.
        self._words.append(self.add_argument(name.lower(), metavar=name, nargs="?", help=help))

    def refuse(self, flag: str, sentence: str) -> None:
        """Refuse a flag that a user may expect here with a sentence of its own."""
        self._refused[flag] = sentence

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the values of the flags and words.

        Raises:
            UnknownFlag: The command has no such flag.
            UsageError: Another mistake.
        """
        options, rest = self.parse_known_intermixed_args([self._spelled(word) for word in words])
        if options.help:
            return options
        for word in rest:
            if word.startswith("-"):
                raise self._unknown(word.partition("=")[0])
        if rest:
            raise UsageError(f"{rest[0]!r} belongs to no flag; gin_files and gin_bindings are repeated for each value")
        if any(getattr(options, action.dest) is None for action in self._words):
            names = [str(action.metavar) for action in self._words]
            what = "a file" if "FILE" in names else "results"
            raise UsageError(f"{self.command} needs {what}: {self.prog} {' '.join(names)}")
        return options

    def _spelled(self, word: str) -> str:
        """Return a flag written --like-this as --like_this, and a switch as it was added; other words as they are."""
        if not re.match(r"--[a-z]", word):
            return word
        name, equals, value = word.partition("=")
        name = name.replace("-", "_").replace("__", "--", 1)
        if equals and name in self._switches:
            return self._switches[name].spelling(value)
        positive = name.replace("--no_", "--", 1)
        return (
            self._switches[positive].off if positive != name and positive in self._switches else name + equals + value
        )

    def _unknown(self, flag: str) -> UsageError:
        if flag in self._refused:
            return UsageError(f"{flag} {self._refused[flag]}")
        close = get_close_matches(flag, self.flags, n=1)
        hint = f"did you mean {close[0]}?" if close else f"{self.prog} --help lists its flags"
        return UnknownFlag(f"{self.command} has no flag {flag}; {hint}", flag)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse finds wrong."""
        message = message.removeprefix("argument ").replace("expected one argument", "a value is missing")
        raise UsageError(message)


class Switch(argparse.Action):
    """A flag that is on or off: ``--render``, ``--norender``; `Parser` takes ``--no-render``, ``--render=true`` too."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        """See the class."""
        (self.on,) = option_strings
        self.off = f"--no{self.on.removeprefix('--')}"
        super().__init__([self.on, self.off], dest, nargs=0, default=False, **settings)

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Set the value."""
        setattr(namespace, self.dest, option_string == self.on)

    def spelling(self, value: str) -> str:
        """Return the flag that means ``--render=value``."""
        if value not in _ON | _OFF:
            raise UsageError(f"{self.on}: must be true or false, got {value!r}")
        return self.on if value in _ON else self.off


def whole_number(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` on."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"must be a whole number >= {least}, got {text!r}")
        return value

    return parse


def number(least: float) -> Callable[[str], float]:
    """Return a parser of finite numbers from `least` on."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"must be a number >= {least:g}, got {text!r}")
        return value

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser of one of the words."""

    def parse(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(words)}, got {text!r}")
        return text

    return parse
