"""The flags of a command, and its usage errors: every mistake of the user's is refused in one sentence."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
from absl import logging

__all__ = [
    "Parser",
    "Switch",
    "UsageError",
    "add_score_flags",
    "first_line",
    "number",
    "one_of",
    "program",
    "usage_errors",
    "whole_number",
]

_ON, _OFF = {"true", "t", "1"}, {"false", "f", "0"}


class UsageError(Exception):
    """The command line or the configuration is wrong; the message is one sentence.

    Attributes:
        flag: What the command does not have, but another command may, such as ``"--grid"``; empty for other mistakes.
    """

    def __init__(self, message: str, flag: str = "") -> None:
        """See the class."""
        super().__init__(message)
        self.flag = flag


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise what a wrong value of the user's makes the block raise as a `UsageError` of one line."""
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
    """Return the first line of a message; Python's own is given the name of the gin configurable it came from."""
    sentence = first_line(error)
    configurable = re.search(r"In call to configurable '(.+?)'", str(error))
    return f"{configurable[1]}: {sentence}" if isinstance(error, TypeError) and configurable else sentence


def first_line(error: BaseException) -> str:
    """Return the first line of a message, or the error's kind where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def program() -> str:
    """Return the program as a user calls it: that of an installation, or the script of the clone."""
    return "async-wrappers" if Path(sys.argv[0]).stem == "async-wrappers" else "python train.py"


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
        # No abbreviations: one changes its meaning when a flag is added.
        super().__init__(f"{program()} {command}", description=description, add_help=False, allow_abbrev=False)
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

    def add_word(self, name: str, help: str, many: bool = False) -> None:
        """Add a word that the command needs, such as ``DIR``; after the parsing it is ``options.dir``.

        Args:
            name: Of the word.
            help: What it is.
            many: Whether there may be several; ``options.dir`` is then a list.
        """
        # Optional for argparse, which would name a missing word without saying where it goes.
        self._words.append(self.add_argument(name.lower(), metavar=name, nargs="*" if many else "?", help=help))

    def refuse(self, flag: str, sentence: str) -> None:
        """Refuse a flag that a user may expect here with a sentence of its own."""
        self._refused[flag] = sentence

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the values of the flags and words.

        Raises:
            UsageError: The words are wrong; the error has the flag that the command does not have.
        """
        options, rest = self.parse_known_intermixed_args([self._spelled(word) for word in words])
        if options.help:
            return options
        for word in rest:
            if word.startswith("-"):
                raise self._unknown(word.partition("=")[0])
        if rest:
            raise UsageError(f"{rest[0]!r} belongs to no flag; gin_files and gin_bindings are repeated for each value")
        if any(getattr(options, action.dest) in (None, []) for action in self._words):
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
        if (negative := name.replace("--no_", "--no", 1)) in self.flags:
            name = negative
        return name + equals + value

    def _unknown(self, flag: str) -> UsageError:
        if flag in self._refused:
            return UsageError(f"{flag} {self._refused[flag]}")
        close = get_close_matches(flag, self.flags, n=1)
        hint = f"did you mean {close[0]}?" if close else f"{self.prog} --help lists its flags"
        return UsageError(f"{self.command} has no flag {flag}; {hint}", flag)

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


def add_score_flags(parser: Parser) -> None:
    """Add the flags that say which scores are shown: of which metric, and which statistic of the seeds."""
    parser.add_argument("--metric", metavar="NAME", help="the metric (the final or training return)")
    statistic = one_of("mean", "iqm")
    parser.add_argument("--statistic", type=statistic, default="mean", metavar="mean|iqm", help="over seeds (mean)")


def whole_number(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` on."""
    return _parser(int, lambda value: value >= least, f"a whole number >= {least}")


def number(least: float) -> Callable[[str], float]:
    """Return a parser of finite numbers from `least` on."""
    return _parser(float, lambda value: least <= value < math.inf, f"a number >= {least:g}")


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser of one of the words."""
    return _parser(str, lambda text: text in words, f"one of {', '.join(words)}")


def _parser(convert: Callable[[str], Any], fits: Callable[[Any], bool], what: str) -> Callable[[str], Any]:
    """Return a parser that refuses a text which cannot be converted, or whose value does not fit."""

    def parse(text: str) -> Any:
        with suppress(ValueError):
            if fits(value := convert(text)):
                return value
        raise argparse.ArgumentTypeError(f"must be {what}, got {text!r}")

    return parse
