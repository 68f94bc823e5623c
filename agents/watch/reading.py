"""Files of a run that goes on: each is parsed again only when it has changed, and a damaged one is a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_Stamp = tuple[int, int, int]  # inode, size, time of the last change


class Changed(Generic[T]):
    """A function of a file that is called again only when the file has changed.

    Args:
        parse: From the file's path to what is in it; may raise OSError and ValueError.
    """

    def __init__(self, parse: Callable[[Path], T]) -> None:
        """See the class."""
        self._parse = parse
        self._known: dict[Path, tuple[_Stamp, T]] = {}

    def __call__(self, path: Path) -> T | None:
        """Return what is in the file; None where there is none.

        Raises:
            OSError: It cannot be read.
            ValueError: It is damaged.
        """
        stamp = _stamp(path)
        if stamp is None:
            self._known.pop(path, None)
            return None
        if path not in self._known or self._known[path][0] != stamp:
            self._known[path] = stamp, self._parse(path)
        return self._known[path][1]


class Appended(Generic[T]):
    """What has been read so far of files that are appended to; only what is new is read.

    Args:
        begin: Makes what is kept of a file.
        add: Adds new bytes of the file to it, and returns how many of them were whole; the rest is read again.
    """

    def __init__(self, begin: Callable[[], T], add: Callable[[T, bytes], int]) -> None:
        """See the class."""
        self._begin, self._add = begin, add
        self._known: dict[Path, tuple[int, int, T]] = {}  # inode, bytes that were read, and what is kept

    def __call__(self, path: Path) -> T | None:
        """Return what is kept of the file as it is now; None where there is none.

        Raises:
            OSError: It cannot be read.
            ValueError: It is damaged.
        """
        stamp = _stamp(path)
        if stamp is None:
            self._known.pop(path, None)
            return None
        inode, size, _ = stamp
        known = self._known.get(path)
        if known is None or known[0] != inode or known[1] > size:  # it was written anew
            known = inode, 0, self._begin()
        _, read, kept = known
        if size > read:
            with open(path, "rb") as file:
                file.seek(read)
                read += self._add(kept, file.read())
        self._known[path] = inode, read, kept
        return kept


class Problems(list[str]):
    """Sentences on files that could not be read."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note why the block could not read a file, and go on."""
        try:
            yield
        except OSError as error:
            self.append(f"{error.filename} cannot be read ({error.strerror})")
        except ValueError as error:
            self.append(str(error))

    def of(self, read: Callable[..., T], default: T, *arguments: Any) -> T:
        """Return what a function reads; the default where it cannot, whose reason is noted."""
        with self.noted():
            return read(*arguments)
        return default


def _stamp(path: Path) -> _Stamp | None:
    try:
        facts = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns
