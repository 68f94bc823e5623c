"""Files that are whole or absent: written to a temporary name, flushed to disk, renamed.

Arrays that grow lie in many of them: segments, each written once, and indexes, which list the segments of one save.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from absl import logging

from async_wrappers.version import __version__

__all__ = [
    "FORMAT",
    "Arrays",
    "DamagedReplay",
    "OtherFormat",
    "Segment",
    "check_format",
    "check_segment",
    "check_snapshot",
    "doing_without_damage",
    "gaps",
    "naming",
    "prune",
    "read_index",
    "read_segment",
    "read_snapshot",
    "refuse_damage",
    "stamp",
    "write_atomically",
    "write_index",
    "write_segment",
    "write_text_atomically",
]


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`.

    Raises:
        OSError: The file could not be written. The error names `path` and the cause. An older file of that name stays,
            and nothing is left of the new one.
    """
    temporary = path.with_name(path.name + ".tmp")
    with naming(path):
        # Closed below, before the rename.
        file = _File(open(temporary, "wb", buffering=0))  # noqa: SIM115
    try:
        with naming(path):
            try:
                write(file)
                file.flush()
                os.fsync(file.fileno())
                file.close()
            except Exception as error:
                # PyTorch and NumPy raise errors of their own, without the system's reason.
                if (cause := file.error or _cause(temporary)) is not None and not _has_reason(error):
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
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode()))


@contextmanager
def refuse_damage(path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of the block, which reads a file, into one sentence that names the file and the remedy.

    Raises:
        ValueError: The block raised an error: the file is no text, no JSON, or it lacks something.
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


# The format of the files that a run goes on from, which each of them states beside the version that wrote it.
#
# Format 1 stated neither. Weights are read from either format; a run is continued from its own format alone.

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


# Append-only files of a replay: segments of slots, and indexes that list the segments of one save.
#
# A segment is written once under a name no other segment has and is never changed; an index is a small JSON file. What
# changes from save to save, such as priorities, is written anew for each index, as a segment that it alone lists.
# Every file appears under its final name only when it is complete and on disk.
#
# An index holds its number, its own SHA-256, and for each segment the SHA-256 of the names, lengths and CRC-32s of the
# arrays in it. The CRC-32s are checked as the arrays are read, so a segment is bound to its index without a second
# pass.

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Segment:
    """One segment file: its name, the slots `first <= slot < stop` it holds, its bytes, what identifies its arrays."""

    name: str
    first: int
    stop: int
    size: int
    arrays: str
    # Of each of several logs that share the file, what it holds; not in the index, but in the file itself.
    lanes: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def is_whole(self, directory: Path) -> bool:
        """Return whether the file lies in `directory` with the length that it was written with."""
        path = directory / self.name
        return path.is_file() and path.stat().st_size == self.size


def write_segment(directory: Path, first: int, stop: int, pieces: Iterable[Arrays]) -> Segment:
    """Write the slots `first <= slot < stop` into a new file.

    Args:
        directory: where the file goes; it must exist.
        first: the oldest slot in the file.
        stop: one past the newest slot in the file.
        pieces: consecutive runs of slots, oldest first; each maps a field to its values, `[slots, ...]`.

    Returns:
        What an index records of the file.

    Raises:
        OSError: the file could not be written.
        ValueError: an array holds objects.
    """
    name = f"segment_{first:012d}_{stop:012d}_{secrets.token_hex(6)}.npz"
    write_atomically(directory / name, lambda file: _write_pieces(file, pieces))
    with zipfile.ZipFile(directory / name) as archive:
        return Segment(name, first, stop, (directory / name).stat().st_size, _identity(archive))


def check_segment(directory: Path, segment: Segment) -> None:
    """Check that the file has its full length and is the one that was listed; its arrays are not read.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is torn, or another one.
    """
    if not (directory / segment.name).is_file():
        raise FileNotFoundError(f"{segment.name} is missing in {directory}, restore it or load another number")
    if not segment.is_whole(directory):
        raise ValueError(_torn(directory, segment))
    with _opened(directory, segment):
        pass


def read_segment(directory: Path, segment: Segment) -> Iterator[Arrays]:
    """Yield the pieces of `segment` that `write_segment` was given, one at a time in memory.

    Raises:
        ValueError: the file cannot be read, it is altered, or it is not the one that was listed.
    """
    with _opened(directory, segment) as archive:
        for fields in _pieces([name.removesuffix(".npy") for name in archive.namelist()]):
            yield {name.rpartition("_")[0]: _array(archive, f"{name}.npy") for name in fields}


@contextmanager
def _opened(directory: Path, segment: Segment) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(directory / segment.name) as archive:
            if _identity(archive) != segment.arrays:
                raise ValueError("other arrays")
            yield archive
    except Exception as error:  # an altered zip file makes its reader raise whatever it stumbles over
        raise ValueError(_torn(directory, segment)) from error


def _identity(archive: zipfile.ZipFile) -> str:
    """Return what identifies a segment: the SHA-256 of its arrays' names, lengths and CRC-32s."""
    members = [[member.filename, member.file_size, member.CRC] for member in archive.infolist()]
    return hashlib.sha256(json.dumps(members).encode()).hexdigest()


def _array(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with archive.open(name) as member:
        array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # the checksum is compared at the end, which an altered shape would stop short of
            raise ValueError("an array is shorter than its file")
    return array


def write_index(
    directory: Path, number: int, segments: list[Segment], snapshot: list[Segment], facts: Mapping[str, Any]
) -> str:
    """Write `index_{number}.json` over an older one; return its name.

    Args:
        directory: where the file goes; it must exist.
        number: names the save.
        segments: what other indexes may list too, oldest first.
        snapshot: what this index alone lists.
        facts: plain data.

    Raises:
        OSError: the file could not be written.
    """
    listed = {"segments": [_listed(segment) for segment in segments], "moment": [_listed(each) for each in snapshot]}
    content = {**facts, **listed, **stamp(), "number": number}
    text = json.dumps({**content, "sha256": _sha256(content)}, indent=1, sort_keys=True).encode()
    write_atomically(directory / _index_name(number), lambda file: file.write(text))
    return _index_name(number)


def _listed(segment: Segment) -> dict[str, Any]:
    return {name: value for name, value in asdict(segment).items() if name != "lanes"}


def read_index(directory: Path, number: int) -> tuple[list[Segment], list[Segment], dict[str, Any]]:
    """Read an index; return the segments, those of the snapshot, and the facts.

    Raises:
        FileNotFoundError: there is no such index.
        OtherFormat: the index is of another format.
        ValueError: the index is not one that `write_index` wrote under this number.
    """
    path = directory / _index_name(number)
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} is missing in {directory}, restore it or load another number")
    try:
        facts = json.loads(path.read_bytes())
        if facts.keys() & {"format", "version", "sha256"} or "segments" not in facts:
            recorded = facts.pop("sha256")
            if recorded != _sha256(facts):
                raise ValueError("its SHA-256 is not the one recorded")
        check_format(path, facts)
        if facts["number"] != number:
            raise ValueError(f"it is index {facts['number']}")
        listed = [Segment(**segment) for segment in facts.pop("segments")]
        return listed, [Segment(**segment) for segment in facts.pop("moment")], facts
    except OtherFormat:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a whole index file, load another number") from error


def read_snapshot(directory: Path, segments: Iterable[Segment]) -> Arrays:
    """Return the arrays of a snapshot's segments, by name.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is torn or altered.
    """
    snapshot: Arrays = {}
    for segment in segments:
        check_segment(directory, segment)
        for arrays in read_segment(directory, segment):
            snapshot.update(arrays)
    return snapshot


def check_snapshot(directory: Path, number: int) -> None:
    """Check the files without which no save can be loaded in part: the index, and the snapshot that it lists.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is torn, altered, or of another format.
    """
    read_snapshot(directory, read_index(directory, number)[1])


class DamagedReplay(ValueError):
    """Some segments of a replay are damaged or missing; `load(..., partial=True)` loads the others."""


@contextmanager
def doing_without_damage(partial: bool, on_refusal: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Log why the block, which reads a segment, ends early, and go on without it.

    Raises:
        DamagedReplay: the segment is damaged or missing and not `partial`; `on_refusal` has been called.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if not partial:
            on_refusal()
            raise DamagedReplay(str(error)) from error
        logging.warning("the replay is loaded without a segment: %s", error)


def gaps(first: int, stop: int, held: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the runs of `first <= entry < stop` that are in none of the runs which segments hold, in order."""
    for held_first, held_stop in held:
        if first < held_first:
            yield first, min(held_first, stop)
        first = max(first, held_stop)
    if first < stop:
        yield first, stop


def prune(directory: Path, keep: Iterable[int]) -> None:
    """Delete the indexes whose number is not in `keep`, then every segment that no kept index lists.

    Where a kept index cannot be read, nobody knows what it needs: a warning is logged, and nothing is deleted.

    Raises:
        OSError: a file could not be deleted.
    """
    indexes = {_index_name(number): number for number in keep}
    kept = [number for name, number in indexes.items() if (directory / name).is_file()]
    try:
        listed = {segment.name for number in kept for each in read_index(directory, number)[:2] for segment in each}
    except (OSError, ValueError) as error:
        logging.warning("no replay file is deleted, for one that is kept may be needed: %s", error)
        return
    # Indexes go first: a crash in between leaves segments too many, never an index without its segments.
    _delete(path for path in directory.glob("index_*.json") if path.name not in indexes)
    _delete(path for path in directory.glob("segment_*.npz") if path.name not in listed)
    _delete(directory.glob("index_*.json.tmp"))
    _delete(directory.glob("segment_*.npz.tmp"))


def _write_pieces(file: IO[bytes], pieces: Iterable[Arrays]) -> None:
    """Write all pieces as np.savez would, with no more than one of them in memory."""
    with zipfile.ZipFile(file, "w") as archive:
        for number, piece in enumerate(pieces):
            for field, values in piece.items():
                with archive.open(f"{field}_{number}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)


def _pieces(names: list[str]) -> Iterator[list[str]]:
    """Group array names `field_0, ..., field_1, ...` by their number, in order."""
    by_number: dict[int, list[str]] = {}
    for name in names:
        by_number.setdefault(int(name.rpartition("_")[2]), []).append(name)
    yield from (by_number[number] for number in sorted(by_number))


def _delete(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink()


def _sha256(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _index_name(number: int) -> str:
    return f"index_{number}.json"


def _torn(directory: Path, segment: Segment) -> str:
    return f"{segment.name} in {directory} is torn or altered, restore it or load another number"
