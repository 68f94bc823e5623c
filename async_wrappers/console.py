"""The console command ``async-wrappers``, which is ``python train.py`` from any directory, without the clone.

It also knows the commands of ``python -m async_wrappers``, which need no extra.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from async_wrappers.printing import in_pipeline, let_all_be_printed


def run() -> None:
    """Run the command of this process's words, and exit with its code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # nohup and `&` let SIGINT be ignored, and it stays so; SIGTERM always ends the run.
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end_at_once)
    let_all_be_printed()
    code: int | str | None = 1
    try:
        code = in_pipeline(lambda: main(sys.argv))
    finally:
        # What libraries do at Python's end is no place for an interrupt, which they would print.
        ended = code if isinstance(code, int) else int(code is not None)
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) == signal.default_int_handler:
                signal.signal(number, lambda number, frame: os._exit(ended))
    sys.exit(code)


def main(argv: Sequence[str]) -> int:
    """Run the command that the first word names, and return the exit code.

    Args:
        argv: The program and the words after it.
    """
    if argv[1:] and argv[1][:1] != "-":
        from async_wrappers import __main__ as tools

        if argv[1] in tools.COMMANDS:
            _listen()
            return tools.main(argv[1:])
    # By name: async_wrappers works without agents, and says here what is missing.
    try:
        command_line = import_module("async_wrappers.agents.cli.command_line")
    except ModuleNotFoundError as error:
        # Another module that is missing is a mistake of ours, and a traceback shows it.
        if error.name != "async_wrappers.agents":
            raise
        print(f"{Path(argv[0]).name}: {error}", file=sys.stderr)
        return 2
    code: int = command_line.main(argv, imported=_listen)
    return code


def _end_at_once(number: int, frame: object) -> None:
    """End while the libraries are still being imported, which takes seconds."""
    os.write(2, b"\ninterrupted: nothing had begun\n")
    os._exit(130)


def _listen() -> None:
    """Raise KeyboardInterrupt where a signal has ended the process at once until now."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) == _end_at_once:
            signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    run()
