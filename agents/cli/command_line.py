"""The first word of the command line names the command; its file has its flags and what it does."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from agents.cli.flags import Parser, UnknownFlag, UsageError

__all__ = ["COMMANDS", "OVERVIEW", "main"]

OVERVIEW = """Train and evaluate agents under realtime delay.

  python train.py [train] [--base_dir DIR] [--gin_files FILE]... [--gin_bindings 'NAME.PARAMETER = VALUE']... [--seed N]
  python train.py evaluate --base_dir DIR [--episodes N] [--render | --video] [--gin_bindings ...]
  python train.py sweep [--gin_files FILE]... [--grid 'RealtimeDelay.delay = 1, 8, 70']... [--seeds N] [--jobs N]
                        [--base_dir DIR] [--retry-failed] [--engine local|ray] [--address ADDRESS] [--gin_bindings ...]
  python train.py plot DIR [--metric NAME] [--statistic mean|iqm] [--x KEY]
  python train.py compare A B [--metric NAME] [--statistic mean|iqm]
  python train.py record --gin_files FILE --dataset NAME_OR_DIR [--player human|random|MODULE:FUNCTION] [--episodes N]
  python train.py record --base_dir DIR --dataset NAME_OR_DIR [--episodes N]
  python train.py import FILE --dataset NAME_OR_DIR
  python train.py list (or --list)

python train.py COMMAND --help explains a command's flags (python train.py train --help those of training).

Without --gin_files a new run takes configs/default.gin; a --base_dir that holds a run is continued with its own
config.gin. Gin files are code: they may import modules. Those of a --base_dir import this project's modules alone, and
what the command line names; --trust lets them import anything. Exit codes: 0 done, 1 the run failed, 2 usage,
130 interrupted."""

# Each module has `add_flags(parser)`, `run(options)` and a docstring that describes the command. A module is imported
# when its command is given, so that plotting does not wait for PyTorch.
COMMANDS = {
    "train": "agents.cli.train",
    "evaluate": "agents.cli.evaluate",
    "sweep": "agents.cli.sweep",
    "plot": "agents.cli.plot",
    "compare": "agents.cli.compare",
    "record": "agents.cli.record",
    "import": "agents.cli.import_dataset",
    "list": "agents.cli.list",
}
_INTERRUPTED = "the same --base_dir goes on from its last checkpoint"


def main(argv: Sequence[str], imported: Callable[[], object] = lambda: None) -> int:
    """Run the command that the first word names.

    Args:
        argv: The script and the words after it.
        imported: Called once the command's libraries are imported, which takes seconds.

    Returns:
        The exit code: 0 done, 1 the run failed, 2 usage, 130 interrupted.
    """
    options = Namespace()
    try:
        name, words = _split(argv[1:])
        if not name:
            print(OVERVIEW)
            return 0
        command = import_module(COMMANDS[name])
        imported()
        parser = _parser(name, command)
        options = _parse(parser, words)
        if options.help:
            print(parser.format_help(), end="")
        else:
            command.run(options)
    except KeyboardInterrupt as interrupt:
        print(f"\ninterrupted: {str(interrupt) or _INTERRUPTED}", file=sys.stderr)
        return 130
    except UsageError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        from agents.cli.failures import explain

        explained = explain(error, getattr(options, "base_dir", None))
        if explained is None:
            raise
        code, sentence = explained
        print(f"train.py: {sentence}", file=sys.stderr)
        return code
    return 0


def _split(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command's name and the words after it; no name where only the overview is wanted."""
    first, rest = (words[0], words[1:]) if words else ("train", [])
    if first in ("--help", "-h"):
        return "", rest
    if first == "--list":
        return "list", rest
    if first.startswith("-"):
        return "train", words
    if first not in COMMANDS:
        raise UsageError(f"no command {first!r}: use one of {', '.join(COMMANDS)}, or flags alone to train")
    return first, rest


def _parser(name: str, command: Any) -> Parser:
    parser = Parser(name, command.__doc__)
    command.add_flags(parser)
    return parser


def _parse(parser: Parser, words: Sequence[str]) -> Namespace:
    """Parse a command's words; a flag that only other commands have is refused with their names."""
    try:
        return parser.parse(words)
    except UnknownFlag as error:
        others = [name for name, module in COMMANDS.items() if error.flag in _parser(name, import_module(module)).flags]
        if not others:
            raise
        owners = " and ".join(f"`{name}`" for name in others)
        remedy = f"leave it out ({parser.prog} --help lists the flags of {parser.command})"
        raise UsageError(f"{parser.command} has no flag {error.flag}, which belongs to {owners}: {remedy}") from None
