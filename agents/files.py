"""Files that are whole or absent: written to a temporary name, flushed to disk, renamed."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["refuse_damage", "write_atomically", "write_text_atomically"]


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`.

    Raises:
        OSError: The file could not be written; it is of `path` and says why, and an older file of that name is still
            there. Nothing is left of the new one.
    """
    temporary = path.with_name(path.name + ".tmp")
    with _named(path):
        file = _File(open(temporary, "wb", buffering=0))  # noqa: SIM115  # closed below, in an order of its own
    try:
        with _named(path):
            try:
                write(file)
                file.flush()
                os.fsync(file.fileno())
                file.close()
            except Exception as error:
                # PyTorch and NumPy say what they noticed, not what the system said.
                if (cause := file.error or _cause(temporary)) is not None and not _tells(error):
                    raise cause from error
                raise
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(path.parent)


class _File(io.BufferedWriter):
    """A file that remembers why it could not be written."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write, and remember an error."""
        try:
            return super().write(data)
        except OSError as error:
            self.error = error
            raise


def _tells(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno is not None


def _cause(path: Path) -> OSError | None:
    """Return what the system says to one more byte, where a library has said of a failure only that there was one."""
    try:
        with open(path, "ab", buffering=0) as file:
            file.write(b"\0" * 4096)  # a block: the last one may have had room
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let the system's errors name the file that was to be written."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode()))


@contextmanager
def refuse_damage(path: Path, remedy: str) -> Iterator[None]:
    """Say of a file whose contents cannot be used which one it is, and what to do.

    Raises:
        ValueError: Reading failed inside: it is no text, no JSON, or it lacks something.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error}): {remedy}") from None


def _sync_directory(directory: Path) -> None:
    """Make a rename in `directory` last through a power cut (Windows cannot open a directory, and need not)."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
