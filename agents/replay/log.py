"""The base of all replays: their saving, and the columns of their entries.

To the files a storage is a `Log` of entries, numbered from 0 for ever, of which some are still live. An entry never
changes once it is written, so that each save writes only the new ones (`segments.py`). Data that changes, of old
entries too, is saved whole each time (`Saved`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.replay.segments import (
    LANES,
    PIECE,
    Lanes,
    Segment,
    check_segment,
    prune,
    read_index,
    read_segment,
    read_snapshot,
    write_index,
    write_segment,
)
from async_wrappers.agents.replay.selectors import Positions, Selector
from async_wrappers.agents.spaces.schema import Arrays, Column, TransitionSchema
from async_wrappers.extras import extra

_LEAST = 256  # bytes of an observation that is packed; a packed one takes 41 bytes beside its own


# Saved data.


class Saved:
    """Plain data and arrays that are saved whole each time; a replay has entries beside them, a mixture its sources."""

    _kind: ClassVar[str] = "replay"  # in a refusal
    _arrays: ClassVar[str] = "snapshot"  # the key of the arrays in a state

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without the seed."""
        raise NotImplementedError

    def _counters(self) -> dict[str, Any]:
        """Return the plain data; if it has the "facts", a state or an index with others is refused."""
        raise NotImplementedError

    def _snapshot(self) -> Arrays:
        """Return the arrays, which may be views."""
        raise NotImplementedError

    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Load plain data and arrays, and derive the rest from the entries that are there."""
        raise NotImplementedError

    def _range(self, number: int) -> tuple[int, int]:
        """Return two numbers for the name of the file of the arrays."""
        return number, number + 1

    def _write_entries(self, directory: Path) -> list[Segment]:
        """Write the entries that are not in files yet; return the segments that hold all of them."""
        return []

    def _read(self, directory: Path, number: int, listed: Sequence[Segment], counters: Mapping[str, Any]) -> None:
        """Read the saved entries beside plain data and arrays."""

    def _after_load(self) -> None:
        """End the episodes that were running."""

    def state_dict(self) -> dict[str, Any]:
        """Return all that `load_state_dict` needs to continue bit for bit, in copies."""
        return {**self._counters(), self._arrays: {name: array.copy() for name, array in self._snapshot().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from where `state_dict` was called; the generators continue from the state's, whatever the seed.

        Raises:
            ValueError: The state is that of other constructor arguments; nothing is changed then.
        """
        self._check_facts(state)
        self._restore(state, state[self._arrays])

    def save(self, directory: Path, number: int) -> list[str]:
        """Write the entries since the last save or load, and the index `index_{number}.json`.

        Args:
            directory: Where the files go; made if missing. In a new directory everything live is written.
            number: Names the save; an index of the same number is replaced.

        Returns:
            The names of the files that `load` needs: the segments, oldest first, and the index.

        Raises:
            OSError: A file could not be written; the earlier indexes still load then.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        listed, arrays = self._write_entries(directory), self._snapshot()
        snapshot = [write_segment(directory, *self._range(number), [arrays])] if arrays else []
        index = write_index(directory, number, listed, snapshot, self._counters())
        return [*(segment.name for segment in [*listed, *snapshot]), index]

    def load(self, directory: Path, number: int) -> None:
        """Continue as at `save(directory, number)`; later saves add to those files.

        An episode that was running at that save is ended: the next transition belongs to another one.

        Args:
            directory: Where the files are.
            number: Names the save.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: The index is that of other constructor arguments, or a file is torn or altered. A replay is left
                empty if a segment's checksum fails half-way, and unchanged by every other error.
        """
        directory = Path(directory)
        listed, of_snapshot, counters = read_index(directory, number)
        self._check_facts(counters)
        snapshot = read_snapshot(directory, of_snapshot)
        self._read(directory, number, listed, counters)
        self._restore(counters, snapshot)
        self._after_load()

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """Delete the indexes in `directory` whose number is not in `keep`, and the segments that no kept index lists.

        If a kept index cannot be read nothing is deleted, and a warning is logged.

        Raises:
            OSError: A file could not be deleted.
        """
        prune(Path(directory), keep)

    def _check_facts(self, counters: Mapping[str, Any]) -> None:
        if "facts" not in counters:
            return
        # One environment is not among the facts.
        own, saved = {"num_envs": 1, **self.facts()}, {"num_envs": 1, **counters["facts"]}
        if differing := sorted(own.keys() ^ saved.keys()):
            raise ValueError(
                f"the saved {self._kind} must be of the same kind, but only one of the two has "
                f"{', '.join(differing)}, make the {self._kind} alike"
            )
        for name, value in own.items():
            if saved[name] != value:
                raise ValueError(
                    f"{name} must be as in the saved {self._kind}, {saved[name]!r}, got {value!r}, make the "
                    f"{self._kind} alike"
                )


class Log:
    """The storage of a `Replay`; to the files one log of entries, or several, as for a ring of several environments.

    By default it is one log, and entry g lies at position g mod capacity of the columns. Several logs have a part of
    the columns each; their entries are `num_envs` apart, and the remainder by it is the number of an entry's log.

    Attributes:
        schema: The fields of a transition.
        capacity: Entries that can be live; positions are ``0 <= position < capacity``.
        num_envs: Logs.
        selector: Notified of every entry that becomes valid or invalid; `Replay` sets it.
        head: The number of the next entry.
        piece: Entries that go to or come from a file at a time.
    """

    schema: TransitionSchema
    capacity: int
    num_envs: int = 1
    selector: Selector
    head: int = 0
    piece: ClassVar[int] = PIECE
    _in_order: ClassVar[bool] = True  # whether all entries between the oldest one and the head are live
    _columns: dict[str, Any]

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Transitions that can be drawn."""
        raise NotImplementedError

    @property
    def written(self) -> int:
        """Positions that have been written to; of one log, those from 0 on."""
        return min(self.head, self.capacity)

    @property
    def oldest(self) -> int:
        """The least number that a live entry may have."""
        return self.head - self.written

    @property
    def nbytes(self) -> int:
        """Bytes that all columns take once they are full; of packed observations, those that are stored now."""
        nbytes: int = sum(array.nbytes for array in self._columns.values())
        return nbytes

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        raise NotImplementedError

    # Writing and reading; `Replay` has the documentation.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        raise NotImplementedError

    def extend(self, block: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def cut(self, observation: Any, env_id: int = 0) -> None:
        raise NotImplementedError

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End the running episodes, all or some environments's: the last observation of each is its final one."""

    def clear(self) -> None:
        """Forget every entry."""
        raise NotImplementedError

    def written_positions(self, numbers: npt.NDArray[np.int64]) -> Positions:
        """Return the positions that have been written to by their numbers `0 <= number < written`, `[B]`."""
        return numbers

    def marks(self, positions: Positions) -> npt.NDArray[Any]:
        """Return numbers `[B]`, not 0 where an entry that can be drawn lies at the position."""
        raise NotImplementedError

    def live_positions(self) -> Positions:
        """Return the positions of the live entries, log by log, oldest entry first."""
        return np.arange(self.oldest, self.head) % self.capacity

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Return the position of each entry by its number `[B]`, and whether it can be drawn."""
        raise NotImplementedError

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the numbers of all entries that can be drawn `[count]`, ascending."""
        raise NotImplementedError

    def assemble(self, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Return a batch of the entries at positions `[B]`, which can be drawn."""
        raise NotImplementedError

    # Saving.

    def counters(self) -> dict[str, Any]:
        """Return the data that is not in the entries, as plain data."""
        return {"head": self.head}

    def snapshot(self) -> Arrays:
        """Return the arrays that are saved whole."""
        return {}

    def move_to(self, counters: Mapping[str, Any]) -> None:
        """Set the number of the next entry."""
        self.head = counters["head"]

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Load counters and snapshot, and derive the rest from the entries that were put."""
        self.move_to(counters)

    def logs(self) -> list[tuple[int, int]]:
        """Return, of each log, the number of the oldest entry that may be live and that of the next one."""
        return [(self.oldest, self.head)]

    def names(self) -> list[str]:
        """Return the names of an entry's fields."""
        return list(self._columns)

    def pieces(self, first: int) -> Iterator[Arrays]:
        """Yield the entries of a log from the number `first` on, cut so that none crosses the end of its part."""
        slot, log = divmod(first, self.num_envs)
        part, head = self.capacity // self.num_envs, self.logs()[log][1] // self.num_envs
        while slot < head:
            start = slot % part
            stop = min(start + self.piece, part, start + head - slot)
            yield {name: array[log * part + start : log * part + stop] for name, array in self._columns.items()}
            slot += stop - start

    def put(self, first: int, piece: Arrays) -> int:
        """Write entries of a log from the number `first` on; return the number after them."""
        stop = first + len(next(iter(piece.values()))) * self.num_envs
        positions = self._positions(first, stop)
        for name, array in self._columns.items():
            array[positions] = piece[name]
        return stop

    def _positions(self, first: int, stop: int) -> Positions:
        """Return the positions of the entries `first <= number < stop` of the log of `first`."""
        slot, log = divmod(first, self.num_envs)
        part, count = self.capacity // self.num_envs, len(range(first, stop, self.num_envs))
        return log * part + np.arange(slot, slot + count) % part

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments with a live entry; none if most entries are dead, and all must be rewritten."""
        return [segment for segment in listed if segment.stop > self.oldest]

    def write(self, directory: Path, listed: list[Segment]) -> list[Segment]:
        """Write the entries that are in none of the segments listed; return those that hold all live entries."""
        listed = self.still_listed(listed)
        if not all(segment.is_whole(directory) for segment in listed):
            listed = []
        logs = self.logs()
        if self.num_envs == 1:
            [(oldest, head)] = logs
            first = listed[-1].stop if listed else oldest
            return listed + ([write_segment(directory, first, head, self.pieces(first))] if first < head else [])
        held = [stop for _, stop in listed[-1].lanes] if listed else [oldest for oldest, _ in logs]
        bounds = [(max(stop, oldest), head) for stop, (oldest, head) in zip(held, logs, strict=True)]
        new = [(first, stop) for first, stop in bounds if first < stop]
        if not new:
            return listed
        lanes = Lanes(np.array(bounds, np.int64), self.num_envs)
        least, most = min(first for first, _ in new), max(stop for _, stop in new)
        segment = write_segment(directory, least, most, lanes.joined(self.pieces))
        return [*listed, replace(segment, lanes=lanes.bounds)]

    def read(
        self,
        directory: Path,
        listed: Sequence[Segment],
        counters: Mapping[str, Any],
        clear: Callable[[], None],
    ) -> list[Segment]:
        """Replace the entries by those of segments; return the segments to which later saves can add.

        Raises:
            FileNotFoundError: A segment is missing.
            ValueError: A segment is torn or altered. `clear`, which forgets all entries, has been called if only its
                arrays show it.
        """
        # The first pass reads no array, so most damage is found while the old entries are still there.
        for segment in listed:
            check_segment(directory, segment)
        clear()
        try:
            held = [self._put_segment(directory, segment) for segment in listed]
            self.move_to(counters)
            if self._in_order:
                self._check_complete(directory, held)
        except (OSError, ValueError):
            clear()
            raise
        return held

    def _check_complete(self, directory: Path, segments: Sequence[Segment]) -> None:
        """Refuse segments that lack live entries, as those of a run of 0.1.0 may that went on without damaged ones."""
        for (held, head), of_log in zip(self.logs(), self._by_log(segments), strict=True):
            for first, stop in of_log:
                held = max(held, stop) if first <= held else held
            if held < head:
                raise ValueError(f"the segments in {directory} lack entries from number {held} on, load another number")

    def _put_segment(self, directory: Path, segment: Segment) -> Segment:
        """Put a segment's entries; return it with its entries of each of several logs."""
        first, lanes = segment.first, None
        for piece in read_segment(directory, segment):
            if piece.keys() == {LANES} and self.num_envs > 1 and lanes is None:
                lanes = Lanes(piece[LANES], self.num_envs)
                continue
            if piece.keys() != set(self.names()):
                raise ValueError(f"{segment.name} in {directory} is torn or altered: it lacks a field")
            if lanes is None and self.num_envs > 1:
                raise ValueError(
                    f"{segment.name} in {directory} is torn or altered: it lacks the environments' entries"
                )
            if lanes is None:
                first = self.put(first, piece)
            else:
                for at, part in lanes.parts(piece):
                    self.put(at, part)
        return segment if lanes is None else replace(segment, lanes=lanes.bounds)

    def _by_log(self, segments: Iterable[Segment]) -> list[list[tuple[int, int]]]:
        """Return each log's range in the segments: the number of the first entry and that after the last one."""
        of_logs: list[list[tuple[int, int]]] = [[] for _ in range(self.num_envs)]
        for segment in segments:
            for of_log, bounds in zip(of_logs, segment.lanes or [(segment.first, segment.stop)], strict=True):
                of_log.append(bounds)
        return of_logs


class PlacedLog(Log):
    """A log in which a new entry may take any other's place: an entry is saved with the place that it went to.

    Attributes:
        number: That of the entry at each place, one of the columns; -1 where there is none.
    """

    number: npt.NDArray[np.int64]
    _in_order = False

    def live_positions(self) -> Positions:
        """Return the places that hold an entry, oldest entry first."""
        places = np.flatnonzero(self.number >= 0)
        return places[np.argsort(self.number[places])]

    def marks(self, positions: Positions) -> npt.NDArray[Any]:
        """Return whether an entry is there at each place."""
        return self.number.take(positions) >= 0

    def names(self) -> list[str]:
        return ["place", *self._columns]

    def pieces(self, first: int) -> Iterator[Arrays]:
        """Yield the entries from `first` on that were not overwritten, oldest first."""
        places = self.live_positions()
        places = places[self.number[places] >= first]
        for start in range(0, len(places), self.piece):
            at = places[start : start + self.piece]
            yield {"place": at, **{name: array[at] for name, array in self._columns.items()}}

    def put(self, first: int, piece: Arrays) -> int:
        """Write entries, each of which holds its number and its place."""
        for name, array in self._columns.items():
            array[piece["place"]] = piece[name]
        return first


# Columns.


def blank_columns(capacity: int, columns: Mapping[str, Column], packed: Collection[str] = ()) -> dict[str, Any]:
    """Return a column of zeros `[capacity, *shape]` for each name; those of `packed` are packed if worthwhile."""
    # np.zeros asks for zeroed pages, which take no memory before they are written.
    return {
        name: Packed(capacity, column)
        if name in packed and row_bytes({name: column}) >= _LEAST
        else np.zeros((capacity, *column.shape), column.dtype)
        for name, column in columns.items()
    }


def row_bytes(columns: Mapping[str, Column]) -> int:
    """Return the bytes of a row of all columns."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in columns.values())


def action_of(value: Any, column: Column) -> Any:
    """Return one stored action: a number, or an array of the column's shape."""
    shape, dtype = column
    if not shape:
        return int(value)
    array = np.asarray(value)
    if array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(f"action must be {dtype} {list(shape)}, got {array.dtype} {list(array.shape)}")
    return array


def numbers_of(
    block: Mapping[str, Any], name: str, rows: int, dtype: Any, shape: tuple[int, ...] = ()
) -> npt.NDArray[Any]:
    """Return a number, or numbers, for each row of a block; refuse values that a column would have to round."""
    numbers = np.asarray(block[name])
    if numbers.shape != (rows, *shape):
        what = "numbers" if shape else "a number"
        raise ValueError(f"{name} must have shape {(rows, *shape)}, {what} for each of env_ids, got {numbers.shape}")
    if numbers.dtype == dtype:
        return numbers
    if rows and not np.can_cast(numbers.dtype, dtype, "same_kind"):
        raise ValueError(f"{name} must have dtype {np.dtype(dtype)}, got {numbers.dtype}, cast it first")
    return numbers.astype(dtype, copy=False)


class Packed:
    """A column of a ring whose rows are packed one by one by LZ4: read and written like an array `[capacity, *shape]`.

    A row is packed when it is written and unpacked each time that it is read, bit for bit what was written. Packing
    each row for itself lets a batch read any of them; over several frames in one piece LZ4 would find more repetitions,
    but a batch would unpack them all.

    Args:
        capacity: rows.
        column: shape and dtype of a row.

    Raises:
        DependencyNotInstalled: lz4 is missing.
    """

    def __init__(self, capacity: int, column: Column) -> None:
        with extra("a compressed replay", "lz4"):
            import lz4.block
        self._shape, self._dtype = column
        self._pack: Callable[[npt.NDArray[Any]], bytes] = partial(lz4.block.compress, store_size=False)
        size = row_bytes({"": column})
        self._unpack: Callable[[bytes], bytes] = partial(lz4.block.decompress, uncompressed_size=size)
        self._blank = self._pack(np.zeros(self._shape, self._dtype))
        # An array of objects, not a list: the garbage collector would walk through a list of a million again and again.
        self._rows = np.empty(capacity, object)
        self._rows.fill(self._blank)  # np.full would cut off its zeros at the end

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are stored now, with those of the objects that hold them; reads the whole column."""
        return self._rows.nbytes + sum(sys.getsizeof(row) for row in self._rows if row is not self._blank)

    def __setitem__(self, where: Any, value: Any) -> None:
        """Write one row, or rows `[B, *shape]`, or the same value into several."""
        if not isinstance(where, np.ndarray):
            self._rows[where] = self._packed(value)
            return
        rows = np.broadcast_to(value, (len(where), *self._shape))
        for position, row in zip(where.tolist(), rows, strict=True):
            self._rows[position] = self._packed(row)

    def _packed(self, row: Any) -> bytes:
        return self._pack(np.ascontiguousarray(row, self._dtype))

    def __getitem__(self, where: slice) -> npt.NDArray[Any]:
        """Return rows, copied."""
        return self._unpacked(self._rows[where])

    def take(self, positions: npt.NDArray[np.int64], axis: int = 0, mode: str = "wrap") -> npt.NDArray[Any]:
        """Return the rows at positions `[...]`, `[..., *shape]`, copied; positions wrap around at the column's ends."""
        return self._unpacked(self._rows.take(positions, mode="wrap"))

    def _unpacked(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        together = bytearray().join(map(self._unpack, rows.ravel().tolist()))
        return np.frombuffer(together, self._dtype).reshape(*rows.shape, *self._shape)
