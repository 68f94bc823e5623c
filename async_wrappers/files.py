"""Files and directories that are whole or absent, since they are written under a temporary name and renamed."""

from __future__ import annotations

import errno
import io
import itertools
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from async_wrappers import posix
from async_wrappers.printing import printable
from async_wrappers.version import __version__

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the system's errors where a disk is full


def path_of(given: str | os.PathLike[str]) -> Path:
    """Return the path that a user gives, who may have written ``~`` where no shell replaces it by a home directory."""
    return Path(os.path.expanduser(given))


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], flush: bool = True) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`.

    A link stays a link to the file that is written. What is no file, such as ``/dev/null`` or a pipe, is written to as
    it is. If several processes write a file at a time, each writes a whole one, and the last one stays.

    Args:
        path: Of the file.
        write: Is given the file.
        flush: Whether it is flushed to disk; else a power cut may lose it.

    Raises:
        OSError: The file could not be written. The error names `path` and the cause. An older file of that name stays,
            and nothing is left of the new one.
    """
    with naming(path):
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:
                write(file)
            return
    place = Path(os.path.realpath(path)) if path.is_symlink() else path
    with naming(path), unfinished(place) as temporary:
        filled = _File(open(temporary, "wb", buffering=0))  # noqa: SIM115  # closed below, before the rename
        try:
            write(filled)
            filled.flush()
            if flush:
                os.fsync(filled.fileno())
            filled.close()
        except Exception as error:
            # PyTorch and NumPy raise errors of their own, without the system's reason.
            if (cause := filled.error or _cause(temporary)) is not None and not _has_reason(error):
                raise cause from error
            raise
        finally:
            with suppress(OSError):
                filled.close()
        os.replace(temporary, place)
    if flush:
        sync_directory(place.parent)


def _opened_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)


@contextmanager
def unfinished(place: Path, opened: Callable[[Path], int] = _opened_file) -> Iterator[Path]:
    """Yield a temporary name beside `place`, which nobody else is given meanwhile.

    An error in the block removes what has that name. What a killed process leaves is given to the next one.

    Args:
        place: What is written, to be renamed to `place` in the block.
        opened: Makes the temporary file if there is none, and returns its descriptor; or a directory, and its one.

    Raises:
        OSError: It cannot be made.
    """
    for number in itertools.count():
        temporary = place.with_name(f"{place.name}.tmp{number or ''}")
        descriptor = opened(temporary)
        locks = os.name == "posix"  # elsewhere nothing can be renamed while it is open
        if not locks:
            os.close(descriptor)
        try:
            if not locks or _is_free(descriptor, temporary):
                try:
                    yield temporary
                except BaseException:
                    with suppress(OSError):
                        shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink()
                    raise
                return
        finally:
            if locks:
                os.close(descriptor)


def _is_free(descriptor: int, path: Path) -> bool:
    """Return whether nobody else writes to an open file, and lock it until it is closed."""
    if stat.S_ISCHR(os.fstat(descriptor).st_mode):
        return True  # a device is everybody's
    try:
        posix.lock(descriptor)
    except OSError as error:
        return error.errno not in posix.LOCKED  # there may be no locks here
    return posix.is_at(descriptor, path)  # else its writer has renamed it since it was opened


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


def _has_reason(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno is not None


def _cause(path: Path) -> OSError | None:
    """Return the system's error when one more block is written to the file, or None if there is none."""
    try:
        with open(path, "ab", buffering=0) as file:
            # A whole block, since the file's last block may have room for less.
            file.write(b"\0" * 4096)
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let the system's errors in the block name `path`, not a temporary file or none."""
    try:
        yield
    except OSError as error:
        raise named(error, path) from error


def named(error: OSError, path: Path) -> OSError:
    """Return a system's error with the name of `path`; one without a number as it is."""
    return error if error.errno is None else OSError(error.errno, error.strerror, str(path))


def write_text_atomically(path: Path, text: str) -> None:
    r"""Write a text file in UTF-8, whole or not at all; what UTF-8 does not have, as in a path, becomes ``\udce9``."""
    write_atomically(path, lambda file: file.write(printable(text).encode()))


def write_figure(path: Path, figure: Any) -> None:
    """Write a figure of matplotlib's in the format of the file's ending, or as PNG."""
    write_atomically(path, lambda file: figure.savefig(file, dpi=130, format=path.suffix[1:] or "png"))


class NewDirectory:
    """A directory that appears under its name when it is whole; until then it lies hidden beside it.

    Left without an error, the `with` block shows it, else it is dropped.

    Args:
        what: Names it, for the messages.
        path: Its name.

    Attributes:
        path: Its real place: that of ``missing/../name`` is ``name``, though there is nothing missing yet.
        temporary: Where it is written.

    Raises:
        ValueError: The name is taken, or cannot be written to.
    """

    def __init__(self, what: str, path: Path) -> None:
        self._what, self.path = what, Path(os.path.realpath(path))
        if self.path.exists():
            raise ValueError(f"{what} must be a new one, but {self.path} exists: choose another name")
        # By chance, not by the process, whose number one that was killed may have had, in a container.
        self._aside = self.path.with_name(f"{self.path.name}.{os.urandom(4).hex()}")
        self.temporary = self._aside.with_name(f".{self._aside.name}.tmp")
        try:
            self.temporary.mkdir(parents=True)
        except OSError as error:
            raise ValueError(
                f"{what} cannot be written to {self.path} ({error.strerror}): choose another directory"
            ) from None

    def show(self) -> None:
        """Give the directory its name; where another one has it meanwhile, a longer one.

        Raises:
            ValueError: Another one has it; the message says where this one is.
        """
        try:
            os.rename(self.temporary, self.path)
        except OSError as error:
            os.rename(self.temporary, self._aside)
            raise ValueError(
                f"{self._what} cannot be named {self.path} any more ({error.strerror}): it is in {self._aside}"
            ) from None

    def drop(self) -> None:
        """Delete what was written."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def __enter__(self) -> NewDirectory:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Show the directory, or drop it after an error."""
        if kind is None:
            self.show()
        else:
            self.drop()


_MARGIN = 2**20  # bytes that a library writes beside arrays


def need_room(path: Path, size: int) -> None:
    """Refuse to write, by a library that ends the process where a disk is full (HDF5), what has no room.

    Args:
        path: A directory that is there.
        size: Bytes of arrays.

    Raises:
        OSError: There is no room for them.
    """
    if shutil.disk_usage(path).free < size + _MARGIN:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@contextmanager
def refuse_damage(path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of the block, which reads a file, into one sentence that names the file and the remedy.

    Raises:
        ValueError: The block raised an error: the file is no text, no JSON, or it lacks something.
    """
    try:
        yield
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        AssertionError,
        RecursionError,
    ) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error}): {remedy}") from None


def sync_directory(directory: Path) -> None:
    """Make a rename in `directory` last through a power cut (Windows cannot open a directory, and need not)."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# The format of the files that a run is continued from. Each of them states it, with the version that wrote the file.
#
# Format 1 stated neither. Weights are read from either format; a run is continued from format 2 alone.

FORMAT = 2


class OtherFormat(ValueError):
    """A whole file, of a format that this version does not continue."""


def stamp() -> dict[str, Any]:
    """Return what a file states about its format."""
    return {"format": FORMAT, "version": __version__}


def check_format(what: object, stated: Mapping[str, Any], readable: tuple[int, ...] = (FORMAT,)) -> None:
    """Refuse a file of another format.

    Args:
        what: Names the file.
        stated: What it states: a stamp, or an empty mapping in format 1.
        readable: The formats that will do.

    Raises:
        OtherFormat: It has none of them.
    """
    there, version = stated.get("format", 1), stated.get("version", "0.1.0 or older")
    if there not in readable:
        raise OtherFormat(
            f"{what} has format {there} (async_wrappers {version}), and async_wrappers {__version__} goes on from "
            f"format {FORMAT} alone: continue with that version, or choose another --base_dir"
        )
