"""A file of TensorBoard's scalars, written by the caller's own thread.

TensorBoard's writer has a thread, which prints a traceback where the disk is full, and its error names no file.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

__all__ = ["EventWriter"]

_FLUSH = 120.0  # seconds after which what was written can be seen, as with TensorBoard's writer
_numbers = count()  # of the files of this process, which TensorBoard reads in the order of their names


class EventWriter:
    """Writes scalars against steps into a new file.

    Args:
        directory: Where the file goes; made if missing.
        purge_step: TensorBoard hides what older files of the directory hold from this step on.

    Raises:
        OSError: The file could not be written, now or in any other call; it is of that file and says why.
    """

    def __init__(self, directory: Path, purge_step: int) -> None:
        """See the class."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # only where something is written
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = Event, Summary
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers):06d}"
        self._path = directory / name
        with self._named():
            self._file = open(self._path, "wb")  # noqa: SIM115  # closed by `close`
        self._records = RecordWriter(self._file)
        self._flushed = time.monotonic()
        self._write(file_version="brain.Event:2")
        self._write(step=purge_step, session_log=SessionLog(status=SessionLog.START))
        self.flush()

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Write one scalar."""
        each = self._summary.Value(tag=tag, simple_value=float(value))
        self._write(step=step, summary=self._summary(value=[each]))
        if time.monotonic() - self._flushed > _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Let readers of the file see what was written."""
        self._flushed = time.monotonic()
        with self._named():
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with self._named():
            self._file.close()

    def _write(self, **fields: Any) -> None:
        with self._named():
            self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error
