"""A run's ``log.txt``: its output and absl's log, appended when the run continues."""

from __future__ import annotations

import io
import logging as python_logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from absl import logging

from async_wrappers.printing import printable

LOG = "log.txt"


class RunLog:
    """Buffers the output until `begin`, and writes it into a directory's ``log.txt`` from then on.

    A run that is refused leaves nothing in its directory. Where the disk is full the log ends; the run's own files
    raise the error.
    """

    def __init__(self) -> None:
        """Begin to buffer the output."""
        self._file: Any = io.BytesIO()
        self._line = ""  # output since the last end of a line

    def begin(self, directory: Path) -> None:
        """Append to the log of a directory, which begins with the time and the command."""
        kept = self._file.getvalue()
        with suppress(OSError):
            if _is_standard_output(directory / LOG):  # a trial of a sweep
                self._file = open(os.devnull, "ab", buffering=0)  # noqa: SIM115  # closed by `close`
                return
            self._file = open(directory / LOG, "ab", buffering=0)  # noqa: SIM115  # closed by `close`
            words = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
            line = f"--- {datetime.now(UTC).isoformat(timespec='seconds')} {printable(words)}\n"
            self._file.write(line.encode() + kept)

    def write(self, text: str) -> None:
        """Write whole lines; of a progress bar only its last state."""
        *lines, self._line = (self._line + text).split("\n")
        whole = "".join(f"{line.rpartition(chr(13))[2]}\n" for line in lines)
        self._line = self._line.rpartition("\r")[2]
        with suppress(OSError, ValueError):
            self._file.write(printable(whole).encode())

    def close(self) -> None:
        """Write the rest of a line, and close the file."""
        if self._line:
            self.write("\n")
        with suppress(OSError):
            self._file.close()


def _is_standard_output(path: Path) -> bool:
    """Return whether the process's standard output goes to this file."""
    try:
        return os.path.samestat(os.fstat(1), path.stat())
    except OSError:
        return False


class _Copied:
    """A stream whose text is also written to a log."""

    def __init__(self, stream: TextIO, log: RunLog) -> None:
        self._stream, self._log = stream, log

    def write(self, text: str) -> int:
        """Write to both."""
        self._log.write(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Handler(python_logging.Handler):
    """Sends absl's records to a log; absl itself writes them to standard error."""

    def __init__(self, log: RunLog) -> None:
        super().__init__()
        self._log = log
        self.setFormatter(logging.PythonFormatter())

    def emit(self, record: python_logging.LogRecord) -> None:
        """Write a record."""
        self._log.write(f"{self.format(record)}\n")


@contextmanager
def logged() -> Iterator[RunLog]:
    """Copy the block's output and log, and the message of an error that ends it, into the log that it yields."""
    log = RunLog()
    streams, handler = (sys.stdout, sys.stderr), _Handler(log)
    absl = logging.get_absl_logger()
    sys.stdout, sys.stderr = (_Copied(stream, log) for stream in streams)
    absl.addHandler(handler)
    try:
        yield log
    except BaseException as error:
        log.write(f"{type(error).__name__}: {error}\n")
        raise
    finally:
        absl.removeHandler(handler)
        sys.stdout, sys.stderr = streams
        log.close()
