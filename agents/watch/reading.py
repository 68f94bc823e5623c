"""The files of a directory that somebody may still write to, or may have made to do harm; everything is read here.

A file is read if it is a regular one, not too large, and really below the directory that is watched: no pipe, no
device, no link that leads out. It is parsed again only when it has changed, and one that is refused is a sentence.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from async_wrappers.agents.watch.checked_values import Reader, clean

T = TypeVar("T")
G = TypeVar("G")
_Stamp = tuple[int, int, int]  # inode, size, time of the last change

_LARGEST = 1 << 25  # bytes of a file that is parsed as a whole
_LONGEST = 1 << 27  # bytes of one that is appended to
_MOST_NAMES = 10_000  # entries of a directory that are looked at
_MOST_PROBLEMS = 20  # sentences on a directory
_CHECKED = 64  # bytes before the new ones, which must be as they were
_SAFELY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Folder:
    """A directory whose files are read.

    Args:
        path: The directory.
        root: The real path of the directory that is watched; None for that of `path`.

    Attributes:
        path: As it is shown.
        root: Below which the files must really be.
        problems: Sentences on files that were refused, since `begin`.
    """

    def __init__(self, path: Path, root: str | None = None) -> None:
        self.path, self.root = path, root or os.path.realpath(path)
        self.problems: list[str] = []
        self._parsed: dict[str, tuple[_Stamp, Any, str]] = {}  # what is in a file, or the sentence on it
        self._lines: dict[str, tuple[list[bytes], list[Any]]] = {}  # of files that were parsed line by line
        self._grown: dict[str, tuple[_Stamp, int, bytes, Any]] = {}  # bytes that were read, and the last of them

    def begin(self) -> None:
        """Begin a new reading."""
        self.problems = []

    def forget(self) -> None:
        """Keep nothing of the files."""
        self._parsed.clear()
        self._lines.clear()
        self._grown.clear()

    def note(self, problem: str) -> None:
        """Note a sentence; of very many, the first ones."""
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(clean(problem))
        elif len(self.problems) == _MOST_PROBLEMS:
            self.problems.append(clean(f"{self.path} has more files that are refused"))

    @contextmanager
    def noted(self, path: Path) -> Iterator[None]:
        """Note why the block refuses a file, and go on."""
        try:
            yield
        except FileNotFoundError:
            pass  # it has just gone, or been replaced
        except OSError as error:
            self.note(f"{path} cannot be read ({error.strerror})")
        except ValueError as error:
            self.note(str(error))

    def has(self, name: str) -> bool:
        """Return whether there is a regular file of that name."""
        try:
            return stat.S_ISREG(os.stat(self.path / name).st_mode)
        except OSError:
            return False

    def parsed(self, name: str, parse: Callable[[bytes], T], default: T, remedy: str = "", tail: int = 0) -> T:
        """Return what is in a file; the default where there is none, and where it is refused, which is noted.

        Args:
            name: Of the file.
            parse: From its bytes to what is in it; any error that it raises is damage.
            default: What else is returned.
            remedy: What to do where the file is damaged; empty where the error is a sentence with one.
            tail: Bytes at the file's end of which the whole lines are read; 0 for all.
        """
        path = self.path / name
        with self.noted(path):
            if (stamp := _stamp(path)) is None:
                self._parsed.pop(name, None)
                return default
            if name not in self._parsed or self._parsed[name][0] != stamp:
                try:
                    data = self.read(name, tail)
                except ValueError as error:
                    self._parsed[name] = stamp, default, str(error)
                else:
                    self._parsed[name] = stamp, *_parsed(path, parse, data, default, remedy)
            _, found, problem = self._parsed[name]
            if problem:
                self.note(problem)
            return found  # type: ignore[no-any-return]
        return default

    def lines(self, name: str, read: Reader, remedy: str) -> list[Any]:
        """Return what is in the lines of JSON of a file that is written anew with more of them; else as `parsed`."""

        def parse(data: bytes) -> list[Any]:
            lines, (old, known) = data.splitlines(), self._lines.get(name, ([], []))
            pairs = enumerate(zip(old, lines, strict=False))
            same = next((place for place, (one, other) in pairs if one != other), min(len(old), len(lines)))
            found = [*known[:same], *map(json_of(read), lines[same:])]
            self._lines[name] = lines, found
            return found

        return self.parsed(name, parse, list[Any](), remedy)

    def appended(self, name: str, begin: Callable[[], G], remedy: str) -> G:
        """Return what is kept of a file that is appended to, of which only what is new is read.

        Args:
            name: Of the file.
            begin: Makes what is kept of a file. Its method ``add(data)`` takes new bytes and returns how many of them
                were whole; the rest is read again. Its attribute ``damage`` says what is wrong; empty if nothing is.
            remedy: What to do where the file is damaged.
        """
        path = self.path / name
        with self.noted(path):
            if (stamp := _stamp(path)) is None:
                self._grown.pop(name, None)
                return begin()
            if name not in self._grown or self._grown[name][0] != stamp:
                self._grown[name] = self._longer(name, stamp, begin)
            kept = self._grown[name][3]
            if kept.damage:
                self.note(f"{path} is damaged ({kept.damage}): {remedy}")
            return kept  # type: ignore[no-any-return]
        return begin()

    def _longer(self, name: str, stamp: _Stamp, begin: Callable[[], Any]) -> tuple[_Stamp, int, bytes, Any]:
        with self.open(name, _LONGEST) as file:
            size = os.fstat(file.fileno()).st_size
            known, read, last, kept = self._grown.get(name, (stamp, 0, b"", None))
            file.seek(read - len(last))
            if kept is None or known[0] != stamp[0] or size < read or file.read(len(last)) != last:
                read, last, kept = 0, b"", begin()  # it was written anew
            file.seek(read)
            data = file.read(size - read)
        whole = kept.add(data)
        return stamp, read + whole, (last + data[:whole])[-_CHECKED:], kept

    def read(self, name: str, tail: int = 0, most: int = _LARGEST) -> bytes:
        """Return the bytes of a file, or of the whole lines at its end.

        Raises:
            OSError: It cannot be read.
            ValueError: It is refused.
        """
        with self.open(name, most if not tail else None) as file:
            size = os.fstat(file.fileno()).st_size
            if not tail or size <= tail:
                return file.read(size)
            file.seek(size - tail)
            return file.read(tail).partition(b"\n")[2]

    def open(self, name: str, most: int | None = None) -> BinaryIO:
        """Open a file.

        Raises:
            OSError: It cannot be read.
            ValueError: It is no regular file, leads out of what is watched, or has more than `most` bytes.
        """
        path = self.path / name
        real = self._real(path)
        _refuse(path, os.stat(real), most)  # before it is opened, which alone makes a device do something
        # Closed by the caller.
        file = open(real, "rb", opener=lambda place, flags: os.open(place, flags | _SAFELY))  # noqa: SIM115
        try:
            _refuse(path, os.fstat(file.fileno()), most)
        except ValueError:
            file.close()
            raise
        return file

    def names(self, directory: str, pattern: str) -> list[str]:
        """Return the files of a directory whose names fit a pattern, in order."""
        path = self.path / directory
        with self.noted(path):
            try:
                with os.scandir(self._real(path)) as entries:
                    found = [each.name for each in islice(entries, _MOST_NAMES)]
            except (FileNotFoundError, NotADirectoryError):
                return []
            return [f"{directory}/{each}" for each in sorted(found) if fnmatchcase(each, pattern)]
        return []

    def written(self, name: str) -> float | None:
        """Return when a file was last written to, in seconds since 1970; None where there is none."""
        try:
            return os.stat(self.path / name).st_mtime
        except OSError:
            return None

    def _real(self, path: Path) -> str:
        if not is_below(real := os.path.realpath(path), self.root):
            raise ValueError(f"{path} is a link that leads out of {self.root}, and is not read: put the file there")
        return real


def is_below(real: str, root: str) -> bool:
    """Return whether a real path is that of a directory, or below it."""
    return real == root or real.startswith(os.path.join(root, ""))


def _parsed(path: Path, parse: Callable[[bytes], T], data: bytes, default: T, remedy: str) -> tuple[T, str]:
    """Return what is in a file, and no sentence; or the default, and the sentence on it."""
    try:
        return parse(data), ""
    except Exception as error:  # a stranger's file may raise anything in a library's parser
        return default, f"{path} is damaged ({type(error).__name__}: {error}): {remedy}" if remedy else str(error)


def json_of(read: Reader) -> Callable[[bytes], Any]:
    """Return a parser of JSON."""
    return lambda data: read(json.loads(data.decode()))


def _stamp(path: Path) -> _Stamp | None:
    try:
        facts = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _refuse(path: Path, facts: os.stat_result, most: int | None) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError(f"{path} is no regular file, and is not read: remove it")
    if most is not None and facts.st_size > most:
        raise ValueError(f"{path} has {facts.st_size:,} bytes, of {most:,} at most that are read: move it away")
