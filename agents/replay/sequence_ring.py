"""The newest sequences, for a replay of sequences: what a storage is to a `Replay`, with a sequence as its entry.

Kapturowski et al., "Recurrent experience replay in distributed reinforcement learning" (R2D2), 2019: sequences of fixed
length overlap, come with the state that acting had left before them, and are drawn by priority, each as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from async_wrappers.agents.files import Arrays, Segment
from async_wrappers.agents.replay.selectors import Positions, Selector
from async_wrappers.agents.replay.sequences import Assembly
from async_wrappers.agents.schema import MAX_VALUE, STATE, VALUE

__all__ = ["SequenceRing"]

_PIECE = 64  # sequences that go to or come from a file at a time, which bounds the memory that a load needs


class SequenceRing:
    """Columns of the newest `capacity` sequences, those of all environments in the order in which they became whole.

    Sequence g, numbered from 0 for ever, lies at position g mod capacity. Where sequences overlap, the rows that they
    have in common are stored in both.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of what the policy leaves beside its action, with its state, if it has one, as "state".
        capacity: sequences.
        priority: from the columns of M sequences `[M, ...]`, with the policy's values (`Assembly`), to the priorities
            that they enter with `[M]`, NaN for none; None lets all enter with the largest one so far.
        assembly: the other arguments of `Assembly`.

    Attributes:
        schema: what a row is made of.
        capacity: as given.
        selector: hears of every sequence that becomes valid or invalid; `Replay` sets it.
        head: sequences ever written.

    Raises:
        ValueError: an argument is out of its range.
    """

    num_envs = 1  # logs: the sequences of all environments are one
    selector: Selector

    def __init__(
        self,
        observation_space: gym.Space[Any],
        extras: Dict | None,
        capacity: int,
        priority: Callable[[Mapping[str, npt.NDArray[Any]]], npt.NDArray[np.float64]] | None = None,
        **assembly: Any,
    ) -> None:
        """See the class."""
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1 sequence, got {capacity}")
        self._priority = priority
        if priority is not None:
            assembly["with_values"] = True
        self._assembly = Assembly(observation_space, extras, self._put_whole, **assembly)
        self.schema, self.capacity = self._assembly.schema, capacity
        # np.zeros asks for zeroed pages, which take no memory before they are written.
        self._columns: Arrays = {
            name: np.zeros((capacity, *column.shape), column.dtype) for name, column in self._assembly.columns.items()
        }
        self._columns["held"] = self._held = np.zeros(capacity, np.bool_)  # False where a file was lost
        self.head = 0

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._assembly.add_count

    @property
    def count(self) -> int:
        """Sequences that can be drawn."""
        return int(np.count_nonzero(self._held))

    @property
    def written(self) -> int:
        """Positions that have been written to."""
        return min(self.head, self.capacity)

    @property
    def oldest(self) -> int:
        """The number of the oldest sequence."""
        return self.head - self.written

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the ring is full."""
        return sum(array.nbytes for array in self._columns.values()) + self._assembly.nbytes

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {"source": "sequences", **self._assembly.facts(), "capacity": self.capacity}

    # Writing.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        """Take in one transition; see `Replay.observe`."""
        self._assembly.observe(transition, env_id)

    def extend(self, block: Mapping[str, Any]) -> None:
        """Take in one transition of each of R environments; see `Replay.extend`."""
        self._assembly.extend(block)

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End the running episode, if one runs; see `Replay.cut`."""
        self._assembly.cut(observation, env_id)

    def end_running(self) -> None:
        """End the episodes that are under way: the last observation of each is its final one."""
        self._assembly.end_running()

    def _put_whole(self, sequences: Mapping[str, npt.NDArray[Any]]) -> None:
        priority = None
        if self._priority is not None:
            priority = self._priority(sequences)
            sequences = {name: array for name, array in sequences.items() if name not in (VALUE, MAX_VALUE)}
        for row in range(len(sequences["mask"])):
            position = self.head % self.capacity
            if self._held[position]:
                self.selector.became_invalid(position)
            for name, array in sequences.items():
                self._columns[name][position] = array[row]
            self._held[position] = True
            self.head += 1
            if priority is None:
                self.selector.became_valid(position)
            else:
                self.selector.all_became_valid(np.array([position]), priority[row : row + 1])

    def clear(self) -> None:
        """Forget every sequence, and what is under construction."""
        self.head = 0
        self._held.fill(False)
        self._assembly.clear()

    # Reading.

    def logs(self) -> list[tuple[int, int]]:
        """Return the number of the oldest sequence and of the next one: there is one log."""
        return [(self.oldest, self.head)]

    def written_positions(self, numbers: npt.NDArray[np.int64]) -> Positions:
        """Return the positions that have been written to by their numbers `[B]`: the same."""
        return numbers

    def live_positions(self) -> Positions:
        """Return the positions of the newest sequences, oldest first, those included that a damaged file has taken."""
        return np.arange(self.oldest, self.head) % self.capacity

    def marks(self, positions: Positions) -> npt.NDArray[Any]:
        """Return whether a sequence is there at each position."""
        return self._held.take(positions)

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Return the positions of sequences by their numbers `[B]`, and whether each is still there."""
        positions = slots % self.capacity
        return positions, (slots >= self.oldest) & (slots < self.head) & self._held[positions]

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the numbers of all sequences that are there, ascending."""
        positions = self.live_positions()
        return self._numbers(positions[self._held[positions]])

    def _numbers(self, positions: Positions) -> npt.NDArray[np.int64]:
        return self.oldest + (positions - self.oldest) % self.capacity

    def assemble(self, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Return the sequences at positions `[B]`, as `sequences.py` has them."""
        taken = {
            name: column[positions] if name == STATE else column.swapaxes(0, 1)[:, positions]
            for name, column in self._columns.items()
            if name != "held"
        }
        return {**self._assembly.batch(taken), "index": self._numbers(positions)}

    # Saving: sequences are entries of a log, and what is under construction is the snapshot.

    def counters(self) -> dict[str, Any]:
        """Return what is not in the entries, as plain data."""
        return {"head": self.head, "add_count": self.add_count}

    def snapshot(self) -> Arrays:
        """Return what is under construction."""
        return self._assembly.snapshot()

    def move_to(self, counters: Mapping[str, Any]) -> None:
        """Take over the number of the next sequence, before sequences are lost."""
        self.head = counters["head"]

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Take over the counters and what is under construction."""
        self.move_to(counters)
        self._assembly.restore(snapshot, counters["add_count"])

    def lose(self, first: int, stop: int) -> None:
        """Take note that the sequences `first <= number < stop` are lost."""
        self._held[np.arange(first, stop) % self.capacity] = False

    def names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._columns)

    def pieces(self, first: int) -> Iterator[Arrays]:
        """Yield the sequences from the number `first` on, cut so that none crosses the end of the arrays."""
        while first < self.head:
            start = first % self.capacity
            stop = min(start + _PIECE, self.capacity, start + self.head - first)
            yield {name: array[start:stop] for name, array in self._columns.items()}
            first += stop - start

    def put(self, first: int, piece: Arrays) -> int:
        """Write the sequences from the number `first` on; return the number after them."""
        stop = first + len(piece["held"])
        positions = np.arange(first, stop) % self.capacity
        for name, array in self._columns.items():
            array[positions] = piece[name]
        return stop

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments that hold a sequence which is there."""
        return [segment for segment in listed if segment.stop > self.oldest]
