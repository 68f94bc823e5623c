"""How a replay is kept in a dictionary, or in files that grow by what is new."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from absl import logging

from agents.replay.log import segments
from agents.replay.log.segments import Arrays, Segment


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
            listed.append(segments.write_segment(directory, first, log.head, log.pieces(first)))
        self._segments = listed
        snapshot = []
        if arrays := self._snapshot():
            snapshot.append(segments.write_segment(directory, log.oldest, log.head, [arrays]))
        index = segments.write_index(directory, number, listed, snapshot, self._all_counters())
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
        listed, of_snapshot, counters = segments.read_index(directory, number)
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
            segments.check_segment(directory, segment)
        except (OSError, ValueError) as error:
            return _done_without(error, partial)
        return True

    def _take(self, directory: Path, segment: Segment, partial: bool) -> bool:
        """Put a segment's entries into the storage; return whether all of them could be read."""
        first = segment.first
        try:
            for piece in segments.read_segment(directory, segment):
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
            segments.check_segment(directory, segment)
            for arrays in segments.read_segment(directory, segment):
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
        segments.prune(Path(directory), keep)

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
    for segment in segments.read_index(directory, number)[1]:
        segments.check_segment(directory, segment)
        for _ in segments.read_segment(directory, segment):
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
