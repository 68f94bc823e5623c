"""How a replay is kept in a dictionary, or in files that grow by what is new."""

from __future__ import annotations

import hashlib
import json
import secrets
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
from absl import logging

from agents.files import OtherFormat, check_format, stamp, write_atomically


class DamagedReplay(ValueError):
    """Some segments of a replay are damaged or missing; `load(..., partial=True)` loads the others."""


class LoggedStorage(Protocol):
    """What the files need of a storage: a log of entries, numbered from 0 for ever, of which some are still live.

    An entry never changes once it is written. What does change, of old entries too, is the *snapshot*: a few arrays
    that are saved whole each time.

    Attributes:
        head: entries ever written, the number of the next one.
    """

    head: int

    @property
    def oldest(self) -> int:
        """No entry before this one is live."""
        ...

    def names(self) -> list[str]:
        """Return the names of the arrays of a piece."""
        ...

    def pieces(self, first: int) -> Iterator[Arrays]:
        """Yield the live entries from `first` on, oldest first, in runs; they may be views."""
        ...

    def put(self, first: int, piece: Arrays) -> int:
        """Write a piece whose oldest entry is `first`; return how many entries it holds."""
        ...

    def lose(self, first: int, stop: int) -> None:
        """Take note that the entries `first <= entry < stop` are lost; called before `restore`."""
        ...

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments that stay in use; the others hold no live entry, or all is written anew."""
        ...

    def counters(self) -> dict[str, Any]:
        """Return all that is not in the entries and the snapshot, as plain data."""
        ...

    def snapshot(self) -> Arrays:
        """Return what is saved whole each time; the arrays may be views."""
        ...

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Take over counters and snapshot, and derive the rest from the entries that were put."""
        ...

    def end_running(self) -> None:
        """End the episode that is under way, if one is: its last observation is its final one."""
        ...


class SavedReplay(ABC):
    """The half of a replay that saves: into a dictionary, or into files that grow by what is new.

    Args:
        storage: holds the entries.
    """

    def __init__(self, storage: LoggedStorage) -> None:
        """See the class."""
        self._log = storage
        # The files that hold all live entries up to the last save or load.
        self._segments: list[Segment] = []

    @abstractmethod
    def __len__(self) -> int:
        """Return how many transitions can be drawn."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without the seed."""

    @abstractmethod
    def end_running(self) -> None:
        """End the episode that is under way, if one is: its last observation is its final one."""

    @abstractmethod
    def _counters(self) -> dict[str, Any]:
        """Return the facts and all that is not in the entries and the snapshot, as plain data."""

    @abstractmethod
    def _snapshot(self) -> Arrays:
        """Return what is saved whole each time; the arrays may be views."""

    @abstractmethod
    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Take over counters and snapshot, and derive the rest from the entries that were put."""

    def clear(self) -> None:
        """Forget every transition, and what the files hold; the generators go on from where they are."""
        self._segments = []

    def state_dict(self) -> dict[str, Any]:
        """Return all that `load_state_dict` needs to continue bit for bit, in copies, oldest entry first."""
        log = self._log
        pieces = list(log.pieces(log.oldest))
        slots = {name: np.concatenate([piece[name] for piece in pieces]) for name in log.names()} if pieces else {}
        snapshot = {name: array.copy() for name, array in self._snapshot().items()}
        return {**self._all_counters(), "first": log.oldest, "slots": slots, "snapshot": snapshot}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called; the generators go on from the state's, whatever the replay's seed.

        Raises:
            ValueError: the state comes from a replay with other constructor arguments; nothing is changed then.
        """
        self._check_facts(state["facts"])
        self.clear()
        if state["slots"]:
            self._log.put(state["first"], state["slots"])
        self._restore(state, state["snapshot"])

    def save(self, directory: Path, number: int) -> list[str]:
        """Write what is new since the last save or load, and the index `index_{number}.json`.

        Args:
            directory: where the files go; made if missing. In a new directory everything live is written.
            number: names the save; an index of the same number is replaced.

        Returns:
            The names of the files that `load` needs: the segments, oldest first, and the index.

        Raises:
            OSError: a file could not be written; the earlier indexes still load then.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        log = self._log
        listed = log.still_listed(self._segments)
        if not all(segment.is_whole(directory) for segment in listed):
            listed = []
        first = listed[-1].stop if listed else log.oldest
        if first < log.head:
            listed.append(write_segment(directory, first, log.head, log.pieces(first)))
        self._segments = listed
        snapshot = []
        if arrays := self._snapshot():
            snapshot.append(write_segment(directory, log.oldest, log.head, [arrays]))
        index = write_index(directory, number, listed, snapshot, self._all_counters())
        return [*(segment.name for segment in listed + snapshot), index]

    def load(self, directory: Path, number: int, partial: bool = False) -> int:
        """Rebuild the replay and its generators as at `save(directory, number)`; later saves go on from there.

        An episode that was under way at that save is ended: the next transition belongs to another one.

        Args:
            directory: where the files are.
            number: names the save.
            partial: whether to do without the segments that are damaged or missing.

        Returns:
            How many transitions that could be drawn at that `save` are lost; 0 unless `partial`.

        Raises:
            FileNotFoundError: the index or its snapshot is missing.
            DamagedReplay: a segment is missing or torn, unless `partial`.
            ValueError: the index comes from a replay with other constructor arguments, or it is torn, or its snapshot
                is. The replay is left empty if a segment's checksum fails half-way, and unchanged by every other error.
        """
        directory = Path(directory)
        listed, of_snapshot, counters = read_index(directory, number)
        self._check_facts(counters["facts"])
        snapshot = self._read_snapshot(directory, of_snapshot)
        whole = [segment for segment in listed if self._is_whole(directory, segment, partial)]
        self.clear()
        held = [segment for segment in whole if self._take(directory, segment, partial)]
        self._log.head = counters["head"]
        for first, stop in _gaps(self._log.oldest, self._log.head, held):
            self._log.lose(first, stop)
        self._restore(counters, snapshot)
        lost: int = counters["transitions"] - len(self)
        self.end_running()
        self._segments = held
        return lost

    def _is_whole(self, directory: Path, segment: Segment, partial: bool) -> bool:
        """Return whether a segment seems to be whole; its arrays are not read for that."""
        try:
            check_segment(directory, segment)
        except (OSError, ValueError) as error:
            return _done_without(error, partial)
        return True

    def _take(self, directory: Path, segment: Segment, partial: bool) -> bool:
        """Put a segment's entries into the storage; return whether all of them could be read."""
        first = segment.first
        try:
            for piece in read_segment(directory, segment):
                if piece.keys() != set(self._log.names()):
                    raise ValueError(f"{segment.name} in {directory} is torn or altered: it lacks a field")
                first += self._log.put(first, piece)
        except (OSError, ValueError) as error:
            if not partial:
                self.clear()
            return _done_without(error, partial)
        return True

    def _read_snapshot(self, directory: Path, of_snapshot: list[Segment]) -> Arrays:
        snapshot: Arrays = {}
        for segment in of_snapshot:
            check_segment(directory, segment)
            for arrays in read_segment(directory, segment):
                snapshot.update(arrays)
        return snapshot

    def _all_counters(self) -> dict[str, Any]:
        return {**self._counters(), "transitions": len(self)}

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """Delete the indexes in `directory` whose number is not in `keep`, and the segments that no kept index lists.

        Where a kept index cannot be read nothing is deleted, and a warning is logged.

        Raises:
            OSError: a file could not be deleted.
        """
        prune(Path(directory), keep)

    def _check_facts(self, saved: Mapping[str, Any]) -> None:
        own = self.facts()
        if differing := sorted(own.keys() ^ saved.keys()):
            raise ValueError(
                "the saved replay must be of the same kind, but only one of the two has "
                f"{', '.join(differing)}, make the replay alike"
            )
        for name, value in own.items():
            if saved[name] != value:
                raise ValueError(
                    f"{name} must be as in the saved replay, {saved[name]!r}, got {value!r}, make the replay alike"
                )


def check_snapshot(directory: Path, number: int) -> None:
    """Check the files that `load(directory, number, partial=True)` needs: the index, and the snapshot that it lists.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is torn, altered, or of another format.
    """
    for segment in read_index(directory, number)[1]:
        check_segment(directory, segment)
        for _ in read_segment(directory, segment):
            pass  # reading compares the checksums


def _done_without(error: Exception, partial: bool) -> bool:
    """Log why a segment is left out, and return False; raise `DamagedReplay` unless `partial`."""
    if not partial:
        raise DamagedReplay(str(error)) from error
    logging.warning("the replay is loaded without a segment: %s", error)
    return False


def _gaps(first: int, stop: int, held: Iterable[Segment]) -> Iterator[tuple[int, int]]:
    """Yield the runs of `first <= entry < stop` that no segment holds; segments are in order."""
    for segment in held:
        if first < segment.first:
            yield first, min(segment.first, stop)
        first = max(first, segment.stop)
    if first < stop:
        yield first, stop


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
    listed = {"segments": [asdict(segment) for segment in segments], "moment": [asdict(each) for each in snapshot]}
    content = {**facts, **listed, **stamp(), "number": number}
    text = json.dumps({**content, "sha256": _sha256(content)}, indent=1, sort_keys=True).encode()
    write_atomically(directory / _index_name(number), lambda file: file.write(text))
    return _index_name(number)


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
