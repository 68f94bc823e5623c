"""Append-only files of a replay: segments of slots, and indexes that list the segments of one moment.

A segment is written once under a name no other segment has and is never changed; an index is a small JSON file. What
changes from moment to moment, such as priorities, is written anew for each index, as a segment that it alone lists.
Every file appears under its final name only when it is complete and on disk.
"""

from __future__ import annotations

import json
import secrets
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from agents.files import write_atomically

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Segment:
    """One segment file: its name, the slots `first <= slot < stop` it holds, and its length in bytes."""

    name: str
    first: int
    stop: int
    size: int

    def is_whole(self, directory: Path) -> bool:
        """Whether the file lies in `directory` with the length it was written with."""
        path = directory / self.name
        return path.is_file() and path.stat().st_size == self.size


def write_segment(directory: Path, first: int, stop: int, pieces: Iterable[Arrays]) -> Segment:
    """Writes the slots `first <= slot < stop` into a new file.

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
    return Segment(name, first, stop, (directory / name).stat().st_size)


def check_whole(directory: Path, segments: Iterable[Segment]) -> None:
    """Checks, without reading them, that all files are there in full.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is torn: its length differs from what was written.
    """
    for segment in segments:
        if not (directory / segment.name).is_file():
            raise FileNotFoundError(f"{segment.name} is missing in {directory}, restore it or load another number")
        if not segment.is_whole(directory):
            raise ValueError(_torn(directory, segment))


def read_segment(directory: Path, segment: Segment) -> Iterator[Arrays]:
    """Yields the pieces of `segment` as `write_segment` got them, one at a time in memory.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is altered: a checksum differs from what was written.
    """
    try:
        with np.load(directory / segment.name, allow_pickle=False) as file:
            for fields in _pieces(file.files):
                yield {name.rpartition("_")[0]: file[name] for name in fields}
    except Exception as error:  # an altered zip file makes its reader raise whatever it stumbles over
        raise ValueError(_torn(directory, segment)) from error


def write_index(
    directory: Path, number: int, segments: list[Segment], moment: list[Segment], facts: Mapping[str, Any]
) -> str:
    """Writes `index_{number}.json` over an older one; returns its name.

    Args:
        directory: where the file goes; it must exist.
        number: names the moment.
        segments: what other indexes may list too, oldest first.
        moment: what this index alone lists.
        facts: plain data.

    Raises:
        OSError: the file could not be written.
    """
    listed = {"segments": [asdict(segment) for segment in segments], "moment": [asdict(each) for each in moment]}
    text = json.dumps({**facts, **listed}, indent=1, sort_keys=True).encode()
    write_atomically(directory / _index_name(number), lambda file: file.write(text))
    return _index_name(number)


def read_index(directory: Path, number: int) -> tuple[list[Segment], list[Segment], dict[str, Any]]:
    """Reads what `write_index` wrote: the segments, those of the moment, and the facts.

    Raises:
        FileNotFoundError: there is no such index.
        ValueError: the index is not one that `write_index` wrote.
    """
    path = directory / _index_name(number)
    try:
        facts = json.loads(path.read_bytes())
        listed = [Segment(**segment) for segment in facts.pop("segments")]
        return listed, [Segment(**segment) for segment in facts.pop("moment", [])], facts
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a whole index file, load another number") from error


def prune(directory: Path, keep: Iterable[int]) -> None:
    """Deletes the indexes whose number is not in `keep`, then every segment that no kept index lists.

    Raises:
        ValueError: a kept index cannot be read; nothing has been deleted then.
        OSError: a file could not be deleted.
    """
    indexes = {_index_name(number): number for number in keep}
    kept = [number for name, number in indexes.items() if (directory / name).is_file()]
    listed = {segment.name for number in kept for each in read_index(directory, number)[:2] for segment in each}
    # Indexes go first: a crash in between leaves segments too many, never an index without its segments.
    _delete(path for path in directory.glob("index_*.json") if path.name not in indexes)
    _delete(path for path in directory.glob("segment_*.npz") if path.name not in listed)
    _delete(directory.glob("index_*.json.tmp"))
    _delete(directory.glob("segment_*.npz.tmp"))


def _write_pieces(file: IO[bytes], pieces: Iterable[Arrays]) -> None:
    """Writes what np.savez would write of all pieces, but needs no more than one of them in memory."""
    with zipfile.ZipFile(file, "w") as archive:
        for number, piece in enumerate(pieces):
            for field, values in piece.items():
                with archive.open(f"{field}_{number}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)


def _pieces(names: list[str]) -> Iterator[list[str]]:
    """Groups array names `field_0, ..., field_1, ...` by their number, in order."""
    by_number: dict[int, list[str]] = {}
    for name in names:
        by_number.setdefault(int(name.rpartition("_")[2]), []).append(name)
    yield from (by_number[number] for number in sorted(by_number))


def _delete(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink()


def _index_name(number: int) -> str:
    return f"index_{number}.json"


def _torn(directory: Path, segment: Segment) -> str:
    return f"{segment.name} in {directory} is torn or altered, restore it or load another number"
