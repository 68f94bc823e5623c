"""Replays of unrolls, as sources of a mixture: a ring of unrolls, and a selector that chooses among them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import gin
import numpy as np
import numpy.typing as npt

from async_wrappers.agents.files import Arrays, Segment
from async_wrappers.agents.replay.packed import Packed
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.selectors import Distinct, Positions, Selector, Uniform
from async_wrappers.agents.replay.sequences import Assembly
from async_wrappers.agents.replay.sources import SourceSpec
from async_wrappers.agents.schema import STATE, Column
from async_wrappers.agents.spec import check_at_least, check_flags, check_numbers, check_shares

__all__ = ["StandardReplay", "UnrollReplay", "UnrollRing"]

_PIECE = 64  # unrolls that go to or come from a file at a time, which bounds the memory that a load needs


class UnrollRing:
    """Columns of `capacity` unrolls, for a `Replay`: each takes the oldest one's place, or one that it is given.

    To the files it is a log, as a `Reservoir` is: an entry is an unroll and the place that it went to.

    Args:
        assembly: What an unroll is made of.
        capacity: Unrolls.
        compression: ``"lz4"`` keeps observations packed; None keeps them as they are.
        further: Columns beside those of the assembly.

    Attributes:
        schema: What a row is made of.
        capacity: As given.
        selector: Hears of every unroll that becomes valid or invalid; `Replay` sets it.
        head: Unrolls ever written.
        number: Of the unroll at each place, counted from 0 for ever; -1 where there is none.
    """

    num_envs = 1  # logs: the unrolls of all environments are one
    selector: Selector

    def __init__(
        self,
        assembly: Assembly,
        capacity: int,
        compression: Literal["lz4"] | None = None,
        further: Mapping[str, Column] | None = None,
    ) -> None:
        """See the class."""
        self._assembly, self.schema, self.capacity = assembly, assembly.schema, capacity
        self._further = dict(further or {})
        packed = set(assembly.observation_names) if compression else set()
        # np.zeros asks for zeroed pages, which take no memory before they are written.
        self._columns: dict[str, Any] = {
            name: Packed(capacity, column)
            if name in packed and Packed.is_worth_it(column)
            else np.zeros((capacity, *column.shape), column.dtype)
            for name, column in {**assembly.columns, **self._further}.items()
        }
        self.number = np.full(capacity, -1)
        self.head = 0

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._assembly.add_count

    @property
    def count(self) -> int:
        """Unrolls that can be drawn."""
        return int(np.count_nonzero(self.number >= 0))

    @property
    def written(self) -> int:
        """Places that have been written to."""
        return min(self.head, self.capacity)

    @property
    def oldest(self) -> int:
        """The number of the oldest unroll."""
        kept = self.number[self.number >= 0]
        return int(kept.min()) if kept.size else self.head

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the ring is full; of packed observations, those that are stored now."""
        return sum(array.nbytes for array in self._columns.values())

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without those of the assembly."""
        shapes = {name: list(column.shape) for name, column in self._further.items()}
        return {"kind": "ring", "capacity": self.capacity, "further": shapes}

    # Writing.

    def put_whole(self, unroll: Mapping[str, npt.NDArray[Any]], place: int | None = None) -> None:
        """Write an unroll, its columns by name, at a place, by default the oldest one's."""
        place = self.head % self.capacity if place is None else place
        if self.number[place] >= 0:
            self.selector.became_invalid(place)
        for name, column in self._columns.items():
            column[place] = unroll[name]
        self.number[place] = self.head
        self.head += 1
        self.selector.became_valid(place)

    def clear(self) -> None:
        """Forget every unroll."""
        self.head = 0
        self.number.fill(-1)

    # Reading.

    def logs(self) -> list[tuple[int, int]]:
        """Return the number of the oldest unroll and of the next one: there is one log."""
        return [(self.oldest, self.head)]

    def written_positions(self, numbers: npt.NDArray[np.int64]) -> Positions:
        """Return the places that have been written to by their numbers `[B]`: the same."""
        return numbers

    def live_positions(self) -> Positions:
        """Return the places that hold an unroll, in the order of the unrolls."""
        places = np.argsort(self.number, kind="stable")
        return places[self.number[places] >= 0]

    def marks(self, positions: Positions) -> npt.NDArray[Any]:
        """Return whether an unroll is there at each place."""
        return self.number.take(positions) >= 0

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Return the places of unrolls by their numbers `[B]`, and whether each is still there."""
        live = self.live_positions()
        if not live.size:
            return np.zeros(len(slots), np.int64), np.zeros(len(slots), np.bool_)
        place = np.searchsorted(self.number[live], slots).clip(max=len(live) - 1)
        return live[place], self.number[live[place]] == slots

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the numbers of all unrolls that are there, ascending."""
        return self.number[self.live_positions()]

    def assemble(self, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Return the unrolls at places `[B]`, as `sequences.py` has them."""
        taken = {
            name: column[positions]
            if name == STATE
            else column.take(positions).swapaxes(0, 1)
            if isinstance(column, Packed)
            else column.swapaxes(0, 1)[:, positions]
            for name, column in self._columns.items()
            if name not in self._further
        }
        return {**self._assembly.batch(taken), "index": self.number[positions]}

    def further(self, name: str, positions: Positions) -> npt.NDArray[Any]:
        """Return what a column beside the assembly's holds at places `[B]`."""
        values: npt.NDArray[Any] = self._columns[name][positions]
        return values

    def end_running(self) -> None:
        """Do nothing: the assembly is the mixture's."""

    # Saving.

    def counters(self) -> dict[str, Any]:
        """Return what is not in the entries, as plain data."""
        return {"head": self.head}

    def snapshot(self) -> Arrays:
        """Return which unroll lies where: where its file is lost, no older one passes for it."""
        return {"held": self.number}

    def move_to(self, counters: Mapping[str, Any]) -> None:
        """Take over the number of the next unroll, before unrolls are lost."""
        self.head = counters["head"]

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Take over the counters, and forget what was no longer there."""
        self.move_to(counters)
        self.number[self.number != snapshot["held"]] = -1

    def lose(self, first: int, stop: int) -> None:
        """Do nothing: an unroll that is lost was not put."""

    def names(self) -> list[str]:
        """Return the names of what an entry holds."""
        return ["place", "number", *self._columns]

    def pieces(self, first: int) -> Iterator[Arrays]:
        """Yield the unrolls from the number `first` on that are still there, oldest first."""
        places = self.live_positions()
        places = places[self.number[places] >= first]
        for start in range(0, len(places), _PIECE):
            at = places[start : start + _PIECE]
            columns = {name: column[at] for name, column in self._columns.items()}
            yield {"place": at, "number": self.number[at], **columns}

    def put(self, first: int, piece: Arrays) -> int:
        """Write unrolls, each of which knows its number and its place."""
        places = piece["place"]
        for name, column in self._columns.items():
            column[places] = piece[name]
        self.number[places] = piece["number"]
        return first

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments that stay in use; none where most of what they hold is gone, and all is written anew."""
        kept = [each for each in listed if ((self.number >= each.first) & (self.number < each.stop)).any()]
        written = sum(segment.stop - segment.first for segment in kept)
        return kept if written <= 2 * self.capacity else []


class UnrollReplay(Replay):
    """A replay as a source of a mixture: a ring of unrolls, and a selector. Subclass it for a source of your own.

    Args:
        spec: What it is made for.
        selector: Chooses places of the ring.
        capacity: Unrolls kept, at least those of a batch.
        training_fill_in_factor: Share of the capacity that is filled before learning begins, in [0, 1].
        replay_compression: ``"lz4"`` keeps observations of 256 bytes and more packed; None keeps them as they are.
        further: Columns of the ring beside those of an unroll, which `put` gives it.

    Raises:
        ValueError: An argument is out of its range.
    """

    replayed = True
    _storage: UnrollRing  # type: ignore[assignment]  # what the mixture observes reaches it by `put`

    def __init__(
        self,
        spec: SourceSpec,
        selector: Selector,
        *,
        capacity: int = 1000,
        training_fill_in_factor: float = 0.2,
        replay_compression: Literal["lz4"] | None = None,
        further: Mapping[str, Column] | None = None,
    ) -> None:
        """See the class."""
        kind = type(self).__name__
        check_at_least(f"{kind}.capacity", capacity, spec.rows, "unrolls, those that a batch takes of it")
        check_numbers(**{f"{kind}.training_fill_in_factor": training_fill_in_factor})
        check_shares(**{f"{kind}.training_fill_in_factor": training_fill_in_factor})
        if replay_compression not in (None, "lz4"):
            raise ValueError(f"{kind}.replay_compression must be None or 'lz4', got {replay_compression!r}")
        ring = UnrollRing(spec.assembly, capacity, replay_compression, further)
        super().__init__(cast(Any, ring), selector, batch_size=spec.rows, seed=spec.seed)
        # Rounded before it is rounded up, since 0.07 * 100 is a little more than 7.
        self._least = max(spec.rows, math.ceil(round(training_fill_in_factor * capacity, 6)))

    @property
    def filled(self) -> bool:
        """Whether learning can begin."""
        return len(self) >= self._least

    def put(self, unrolls: Mapping[str, npt.NDArray[Any]], begun: bool) -> None:
        """Take in unrolls, each in the place of the oldest one; see `UnrollSource.put`."""
        for row in range(len(unrolls["mask"])):
            self._storage.put_whole({name: column[row] for name, column in unrolls.items()})

    def ready(self, rows: int) -> bool:
        """Return whether so many unrolls can be drawn, and learning can begin."""
        return len(self) >= max(rows, self._least)

    def draw(self, rows: int) -> dict[str, Any]:
        """Return unrolls as the selector chooses them; see `Replay.sample`."""
        return self.sample(rows)

    def facts(self) -> dict[str, Any]:
        """Return the constructors' arguments as plain data, without the seed."""
        return {**super().facts(), "source": type(self).__name__, "least": self._least}


@gin.configurable(module="agents")
class StandardReplay(UnrollReplay):
    """The newest unrolls, drawn uniformly; ``"standard"`` among an agent's sources.

    Args:
        spec: As in `UnrollReplay`.
        capacity: As in `UnrollReplay`.
        training_fill_in_factor: As in `UnrollReplay`.
        with_replacement: Whether an unroll may come twice in a batch.
        replay_compression: As in `UnrollReplay`.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        spec: SourceSpec,
        capacity: int = 1000,
        training_fill_in_factor: float = 0.2,
        with_replacement: bool = True,
        replay_compression: Literal["lz4"] | None = None,
    ) -> None:
        """See the class."""
        check_flags(**{"StandardReplay.with_replacement": with_replacement})
        super().__init__(
            spec,
            Uniform() if with_replacement else Distinct(),
            capacity=capacity,
            training_fill_in_factor=training_fill_in_factor,
            replay_compression=replay_compression,
        )
