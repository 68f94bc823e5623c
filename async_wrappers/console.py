"""The console command ``async-wrappers``, which is ``python train.py`` from any directory, without the clone.

It also knows the commands of ``python -m async_wrappers``, which need no extra.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

__all__ = ["in_pipeline", "let_all_be_printed", "main", "run"]


def run() -> None:
    """Run the command of this process's words, and exit with its code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # nohup and `&` let SIGINT be ignored, and it stays so; SIGTERM always ends the run.
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end_at_once)
    let_all_be_printed()
    sys.exit(in_pipeline(lambda: main(sys.argv)))


def let_all_be_printed() -> None:
    r"""Let output that its encoding does not have, such as a directory's name, be printed as ``\xe9``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            with suppress(OSError):  # it is closed, as in a process without a terminal
                stream.reconfigure(errors="backslashreplace")


def in_pipeline(command: Callable[[], int]) -> int | str | None:
    """Run a command, and return what to exit with: 141 if the reader of its output has gone, as in ``... | head``.

    A shell gives 141 (128 + SIGPIPE) for a program that SIGPIPE ends. Python ignores that signal, and has to: a worker
    that dies closes its pipes too, which must not end the run.

    Args:
        command: Returns the exit code, or raises SystemExit.

    Raises:
        BrokenPipeError: It was another pipe than standard output and standard error.
    """
    try:
        try:
            code: int | str | None = command()
        except SystemExit as ended:
            code = ended.code
        if sys.stdout is not None:
            sys.stdout.flush()  # what is left in the buffer; at Python's own end an error could not be caught
        return code
    except BrokenPipeError:
        unread = [stream for stream in (sys.stdout, sys.stderr) if stream is not None and _has_no_reader(stream)]
        if not unread:
            raise
        with open(os.devnull, "w") as nowhere:
            for stream in unread:  # Python flushes them once more at its end
                os.dup2(nowhere.fileno(), stream.fileno())
        return 128 + signal.SIGPIPE


def _has_no_reader(stream: TextIO) -> bool:
    poll = select.poll()
    poll.register(stream, 0)  # an error and a hang-up are reported unasked
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


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
