"""A queue of unrolls: each step that was taken is learnt from once (Espeholt et al. 2018, IMPALA, section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.files import prune, read_index, read_snapshot, write_index, write_segment
from async_wrappers.agents.replay.sequences import STATE
from async_wrappers.agents.replay.sources import SourceSpec

__all__ = ["WHEN_FULL", "UnrollQueue"]

WHEN_FULL = ("wait", "drop_oldest", "drop_newest", "alternate")


class UnrollQueue:
    """Unrolls, first in, first out; a batch takes the oldest ones away.

    Args:
        spec: What it is made for.
        capacity: Unrolls that can wait, at least those of a batch; None for these and two of each environment, which is
            what can become whole before the learner's turn.
        when_full: What becomes of an unroll that finds the queue full: ``"drop_oldest"``, ``"drop_newest"`` (the unroll
            itself), ``"alternate"`` (one or the other, with a chance of 0.5 each); or ``"wait"``: acting is to wait
            for the learner, and it is an error where it does not. Until learning begins, ``"wait"`` drops the oldest.

    Attributes:
        dropped: Unrolls that were dropped.

    Raises:
        ValueError: An argument is out of its range.
    """

    replayed = False
    filled = True

    def __init__(
        self,
        spec: SourceSpec,
        *,
        capacity: int | None = None,
        when_full: Literal["wait", "drop_oldest", "drop_newest", "alternate"] = "wait",
    ) -> None:
        """See the class."""
        if capacity is None:
            capacity = spec.rows + 2 * spec.num_envs
        if capacity < spec.rows:
            raise ValueError(f"capacity must be >= {spec.rows} unrolls, those of a batch, got {capacity}")
        if when_full not in WHEN_FULL:
            raise ValueError(f"when_full must be one of {', '.join(map(repr, WHEN_FULL))}, got {when_full!r}")
        self._assembly, self._num_envs = spec.assembly, spec.num_envs
        self._capacity, self._when_full = capacity, when_full
        # np.zeros asks for zeroed pages, which take no memory before they are written.
        self._columns = {
            name: np.zeros((capacity, *column.shape), column.dtype) for name, column in spec.assembly.columns.items()
        }
        # Unrolls are numbered from 0 for ever; number u lies at u mod capacity.
        self._head = self._tail = 0
        self.dropped = 0
        self._rng = np.random.Generator(np.random.PCG64(spec.seed))

    def __len__(self) -> int:
        """Return how many unrolls wait."""
        return self._head - self._tail

    @property
    def crowded(self) -> bool:
        """Whether what one further decision of each environment completes may not fit."""
        at_most = self._num_envs * (2 if self._assembly.length == 1 else 1)  # a decision, and a final row
        return len(self) + at_most > self._capacity

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the queue has been full."""
        return sum(array.nbytes for array in self._columns.values())

    def put(self, unrolls: Mapping[str, npt.NDArray[Any]], begun: bool) -> None:
        """Let unrolls wait, or drop what there is no room for; see `UnrollSource.put`.

        Raises:
            RuntimeError: The queue is full and nothing is learnt, where acting was to wait for the learner.
        """
        for row in range(len(unrolls["mask"])):
            if len(self) == self._capacity:
                if self._when_full == "wait" and begun:
                    raise RuntimeError(
                        f"the queue holds its capacity of {self._capacity} unrolls, and nothing is learnt from them: "
                        "update while it is ready, or choose when_full='drop_oldest', 'drop_newest' or 'alternate'"
                    )
                self.dropped += 1
                if self._drops_newest():
                    continue
                self._tail += 1
            for name, column in self._columns.items():
                column[self._head % self._capacity] = unrolls[name][row]
            self._head += 1

    def _drops_newest(self) -> bool:
        if self._when_full == "alternate":
            return bool(self._rng.random() < 0.5)
        return self._when_full == "drop_newest"

    def ready(self, rows: int) -> bool:
        """Return whether so many unrolls wait."""
        return len(self) >= rows

    def draw(self, rows: int) -> dict[str, Any]:
        """Take the oldest unrolls away, and return them in arrays of their own.

        Raises:
            ValueError: Fewer wait.
        """
        if not self.ready(rows):
            raise ValueError(f"a batch takes {rows} unrolls of the queue, and {len(self)} wait: observe more first")
        index = np.arange(self._tail, self._tail + rows)
        positions = index % self._capacity
        taken = {
            name: column[positions] if name == STATE else column.swapaxes(0, 1)[:, positions]
            for name, column in self._columns.items()
        }
        self._tail += rows
        return {**self._assembly.batch(taken), "index": index}

    # Saving: all that waits, whole each time.

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {"kind": "queue", "capacity": self._capacity, "when_full": self._when_full}

    def state_dict(self) -> dict[str, Any]:
        """Return the counts, the generator, and all that waits, in copies."""
        positions = np.arange(self._tail, self._head) % self._capacity
        waiting = {name: column[positions] for name, column in self._columns.items()}
        return {**self._counters(), "waiting": waiting}

    def _counters(self) -> dict[str, Any]:
        counts = {"head": self._head, "tail": self._tail, "dropped": self.dropped}
        return {**counts, "generator": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called."""
        self._head, self._tail, self.dropped = state["head"], state["tail"], state["dropped"]
        self._rng.bit_generator.state = state["generator"]
        positions = np.arange(self._tail, self._head) % self._capacity
        for name, column in self._columns.items():
            column[positions] = state["waiting"][name]

    def save(self, directory: Path, number: int) -> list[str]:
        """Write all that waits, and the index `index_{number}.json`; see `Replay.save`."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        segment = write_segment(directory, self._tail, self._head, [self.state_dict()["waiting"]])
        return [segment.name, write_index(directory, number, [], [segment], self._counters())]

    def load(self, directory: Path, number: int, partial: bool = False) -> int:
        """Go on as at `save(directory, number)`; see `Replay.load`.

        Returns:
            0: without its files nothing of a queue can be loaded.
        """
        _, moment, counters = read_index(Path(directory), number)
        self.load_state_dict({**counters, "waiting": read_snapshot(Path(directory), moment)})
        return 0

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """Delete the files in `directory` that no save in `keep` needs; see `Replay.prune`."""
        prune(Path(directory), keep)
