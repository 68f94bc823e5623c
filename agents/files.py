"""Files that are whole or absent: written to a temporary name, flushed to disk, renamed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

__all__ = ["write_atomically", "write_text_atomically"]


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`.

    Raises:
        OSError: The file could not be written; an older file of that name is still there.
    """
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_directory(path.parent)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode()))


def _sync_directory(directory: Path) -> None:
    """Make a rename in `directory` last through a power cut (Windows cannot open a directory, and need not)."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
