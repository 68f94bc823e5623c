"""What a command prints: in any encoding, into a pipe whose reader may go, and of an error in the user's own code."""

from __future__ import annotations

import importlib
import os
import select
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import TextIO

# Where the calls lie that lead to the user's code: this package, and Python's import.
_HERE, _IMPORT = os.path.dirname(__file__), os.path.dirname(importlib.__file__)
_LEADING = (os.path.join(_HERE, ""), os.path.join(_IMPORT, ""), "<frozen")


class OwnCodeFailed(ValueError):
    """Code of the user's own raised an error, which is the cause of this one."""


def printable(text: object) -> str:
    r"""Return a text in what UTF-8 has; a path may hold any bytes, and others become ``\udce9``."""
    return str(text).encode(errors="backslashreplace").decode()


def in_one_line(error: BaseException) -> str:
    """Return an error's kind and the first line of its message, without a full stop."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def own_traceback(error: BaseException) -> str:
    """Return an error's traceback from the first call that is the user's; empty if the user's code was not reached."""
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code.co_filename.startswith(_LEADING):
        entry = entry.tb_next
    if entry is None and not isinstance(error, SyntaxError):  # which names its file and line itself
        return ""
    return "".join(traceback.format_exception(type(error), error, entry))


def let_all_be_printed() -> None:
    r"""Let output that its encoding does not have, such as a directory's name, be printed as ``\xe9``.

    Standard streams that are closed, as cron and daemons may have them, become ``/dev/null``, here and in child
    processes; otherwise the next file that is opened would have their number, and receive what is printed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, True)
            setattr(sys, name, open(nowhere, mode, encoding="utf-8", errors="backslashreplace"))  # noqa: SIM115
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
        return 128 + 13  # SIGPIPE, which Windows does not have


def _has_no_reader(stream: TextIO) -> bool:
    if not hasattr(select, "poll"):  # Windows, where standard output is the likeliest
        return stream is sys.stdout
    poll = select.poll()
    poll.register(stream, 0)  # an error and a hang-up are reported unasked
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
