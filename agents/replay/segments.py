"""The append-only files of a replay: segments of entries, and indexes that list the segments of one save.

A segment is written once under a name no other segment has and is never changed; an index is a small JSON file. Data
that changes from save to save, such as priorities, is written anew for each index, as a segment that it alone lists.
Every file appears under its final name only when it is complete and on disk.

An index holds its number, its own SHA-256, and for each segment the SHA-256 of the names, lengths and CRC-32s of the
arrays in it. The CRC-32s are checked as the arrays are read, so a segment is bound to its index without a second pass.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from absl import logging

from async_wrappers.agents.spaces.schema import Arrays
from async_wrappers.files import OtherFormat, check_format, stamp, write_atomically

PIECE = 4096  # entries that go to or come from a file at a time, which bounds the memory that a load needs


@dataclass(frozen=True)
class Segment:
    """One segment file: its name, the slots `first <= slot < stop` it holds, its bytes, and the hash of its arrays."""

    name: str
    first: int
    stop: int
    size: int
    arrays: str
    # The range of each of several logs that share the file; not in the index, but in the file itself.
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
        The file's entry in an index.

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
    except Exception as error:  # an altered zip file makes its reader raise any error
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
        segments: those that other indexes may list too, oldest first.
        snapshot: those that this index alone lists.
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


def check_saved(directory: Path, number: int) -> None:
    """Check the files of a save, those in folders below included; of segments, all but the entries.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is torn, altered, or of another format.
    """
    read_index(directory, number)
    for path in sorted(directory.rglob(_index_name(number))):
        listed, of_snapshot, _ = read_index(path.parent, number)
        read_snapshot(path.parent, of_snapshot)
        for segment in listed:
            check_segment(path.parent, segment)


def prune(directory: Path, keep: Iterable[int]) -> None:
    """Delete the indexes whose number is not in `keep`, then every segment that no kept index lists.

    If a kept index cannot be read, its segments are not known: a warning is logged, and nothing is deleted.

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
    # Indexes go first: a crash in between leaves surplus segments, never an index without its segments.
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


# A segment of several logs is one run of entries, one log's after another's, whatever the number of logs. Its first
# piece has one array, which holds of each log the number of the first entry that is in it, and that after the last one.

LANES = "lanes"


class Lanes:
    """The entries of several logs in a segment, whose numbers are `num_envs` apart.

    Raises:
        ValueError: `bounds` `[num_envs, 2]` are no ranges, or hold a number of another log.
    """

    def __init__(self, bounds: npt.NDArray[np.int64], num_envs: int) -> None:
        ordered = bounds.shape == (num_envs, 2) and bool((bounds[:, 1] >= bounds[:, 0]).all())
        if not ordered or (bounds % num_envs != np.arange(num_envs)[:, None]).any():
            raise ValueError("what a segment holds of each environment must be ranges of its numbers")
        self.bounds = tuple((int(first), int(stop)) for first, stop in bounds)
        self._apart = num_envs
        self._left = [bound for bound in self.bounds if bound[0] < bound[1]]

    def joined(self, pieces: Callable[[int], Iterator[Arrays]]) -> Iterator[Arrays]:
        """Yield the first piece, then the entries of all logs, a few thousand at a time."""
        yield {LANES: np.array(self.bounds, np.int64)}
        waiting: list[Arrays] = []
        entries = 0
        for first, _ in self._left:
            for piece in pieces(first):
                waiting.append(piece)
                entries += len(next(iter(piece.values())))
                if entries >= PIECE:
                    yield joined(waiting)
                    waiting, entries = [], 0
        if waiting:
            yield joined(waiting)

    def parts(self, piece: Arrays) -> Iterator[tuple[int, Arrays]]:
        """Yield a piece's entries, one log after another, each with the number of its first entry."""
        start, entries = 0, len(next(iter(piece.values())))
        while start < entries:
            if not self._left:
                raise ValueError("a segment holds more entries than it says")
            first, stop = self._left[0]
            count = min(entries - start, (stop - first) // self._apart)
            yield first, {name: column[start : start + count] for name, column in piece.items()}
            start, first = start + count, first + count * self._apart
            self._left[0] = first, stop
            if first == stop:
                del self._left[0]


def joined(pieces: Iterable[Arrays]) -> Arrays:
    """Return the entries of all pieces in one, copied; nothing where there is no piece."""
    each = list(pieces)
    return {name: np.concatenate([piece[name] for piece in each]) for name in each[0]} if each else {}
