"""A queue of unrolls: each step is learnt from once (Espeholt et al. 2018, IMPALA, section 3)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.replay.log import Saved, blank_columns, row_bytes
from async_wrappers.agents.replay.settings import WHEN_FULL
from async_wrappers.agents.replay.unrolls import SourceSpec
from async_wrappers.agents.schema import Arrays

__all__ = ["UnrollQueue", "available_memory", "check_memory", "most_waiting", "whole_at_once"]


# How many unrolls can wait
# =========================
#
# With n decisions of an environment in flight, n transitions become known at once when its episode ends, beside that of
# the last decision and a final row: K + 1 rows with K = n + 1. Between 1 and T rows of an unfinished unroll are there
# already (the last row completes the one before it), so at most (T + K) // T unrolls of an environment are completed
# before the learner's turn.
#
# It may then make an update for each decision. Where one takes as many unrolls as an environment has completed, the
# queue never holds more than rows - 1 and those of one turn. Where it takes fewer, it needs several turns to catch up.
# In each of them a decision adds 2 rows at most, its own and a final one, and an update takes as many at least. So only
# the decisions in flight come on top: rows - 1 and N (T + K) / T unrolls.
#
# The share of a queue need not give whole rows. An update then takes its share on average, and the queue may be behind
# it by some rows (`mixture.Shares`), for which further room is kept.


def whole_at_once(length: int, in_flight: int) -> int:
    """Return the largest number of an environment's unrolls that are completed before the learner's turn.

    Args:
        length: Rows of an unroll, T.
        in_flight: Largest number of decisions in flight when another one starts.
    """
    return (length + in_flight + 1) // length


def most_waiting(rows: int, num_envs: int, length: int, in_flight: int) -> int:
    """Return the largest number of waiting unrolls where acting waits for the learner.

    Args:
        rows: Unrolls that an update takes.
        num_envs: Environments, N.
        length: Rows of an unroll, T.
        in_flight: Largest number of an environment's decisions in flight when another one starts.
    """
    of_each = whole_at_once(length, in_flight)
    if of_each > rows:
        of_each = 1 - (-(in_flight + 1) // length)
    return rows + num_envs * max(2, of_each)


class UnrollQueue(Saved):
    """Unrolls, first in, first out; a batch takes the oldest ones away.

    Args:
        spec: The environments and the batch that it serves.
        capacity: Unrolls that can wait, at least those of a batch; None for `most_waiting`, the largest number before
            the learner's turn. That has no limit if ``spec.in_flight`` is None: where acting waits, the queue then
            begins with the room for no decision in flight, and grows.
        when_full: What becomes of an unroll that finds the queue full: ``"drop_oldest"``, ``"drop_newest"`` (the unroll
            itself), ``"alternate"`` (one or the other, with a chance of 0.5 each); or ``"wait"``: acting must wait for
            the learner, and it is an error if it does not. Until learning begins, ``"wait"`` drops the oldest.

    Attributes:
        dropped: Unrolls that were dropped.

    Raises:
        ValueError: An argument is out of its range, or memory does not hold so many unrolls.
    """

    replayed = False
    filled = True
    _arrays: ClassVar[str] = "waiting"

    def __init__(
        self,
        spec: SourceSpec,
        *,
        capacity: int | None = None,
        when_full: Literal["wait", "drop_oldest", "drop_newest", "alternate"] = "wait",
    ) -> None:
        """See the class."""
        self._by_itself, self._grows = capacity is None, False
        if capacity is None:
            capacity = most_waiting(spec.rows, spec.num_envs, spec.assembly.length, spec.in_flight or 0)
            self._grows = spec.in_flight is None and when_full == "wait"
        if capacity < spec.rows:
            raise ValueError(f"capacity must be >= {spec.rows} unrolls, those of a batch, got {capacity}")
        if when_full not in WHEN_FULL:
            raise ValueError(f"when_full must be one of {', '.join(map(repr, WHEN_FULL))}, got {when_full!r}")
        self._assembly = spec.assembly
        self._capacity, self._when_full = capacity, when_full
        self._least = capacity  # before it has grown
        of_each = whole_at_once(spec.assembly.length, spec.in_flight or 0)
        self._at_once = spec.num_envs * of_each if of_each <= spec.rows else capacity - spec.rows
        if self._by_itself:
            check_memory(
                capacity * row_bytes(spec.assembly.columns),
                f"a queue of {capacity:,} unrolls, as many as become whole at once where {spec.in_flight or 0:,} "
                "decisions of each environment are on their way",
                "give a shorter delay, fewer environments or shorter unrolls",
            )
            # Room for rows that are behind, once learning has begun; `_least` decides which are dropped before.
            self._capacity += spec.behind if when_full == "wait" else 0
        self._columns = self._empty(self._capacity)
        # Unrolls are numbered from 0 for ever; number u lies at u mod capacity.
        self._head = self._tail = 0
        self.dropped = 0
        self._rng = np.random.Generator(np.random.PCG64(spec.seed))

    def __len__(self) -> int:
        """Return how many unrolls wait."""
        return self._head - self._tail

    @property
    def crowded(self) -> bool:
        """Whether the unrolls that one further decision of each environment completes may not fit."""
        return len(self) + self._at_once > self._least

    @property
    def waits(self) -> bool:
        """Whether transitions must wait for the learner, because further ones may not fit and none may be dropped."""
        return self._when_full == "wait" and not self._grows and self.crowded

    def in_words(self) -> str | None:
        """Return the capacity in words; None where unrolls may be dropped, or the user has set the capacity."""
        if not self._by_itself or self._when_full != "wait":
            return None
        more = ", and more where latencies ask for it" if self._grows else ""
        return f"{self._capacity:,} unrolls ({self.nbytes / 1e6:,.3g} MB){more}"

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the queue has been full."""
        return sum(array.nbytes for array in self._columns.values())

    def put(self, unrolls: Mapping[str, npt.NDArray[Any]], begun: bool) -> None:
        """Store unrolls, or drop those that do not fit; see `UnrollSource.put`.

        Raises:
            RuntimeError: The queue is full without an update, although acting should wait for the learner.
        """
        for row in range(len(unrolls["mask"])):
            full = len(self) >= (self._capacity if begun or self._grows else self._least)
            if full and self._grows and begun:
                self._grow()
            elif full:
                if self._when_full == "wait" and begun:
                    raise RuntimeError(
                        f"the queue holds its capacity of {self._capacity} unrolls, and more have become whole before "
                        "the learner's next update: let it update before each decision while it is ready, or choose "
                        "when_full='drop_oldest', 'drop_newest' or 'alternate' where it is to be the slower one"
                    )
                self.dropped += 1
                if self._drops_newest():
                    continue
                self._tail += 1
            for name, column in self._columns.items():
                column[self._head % self._capacity] = unrolls[name][row]
            self._head += 1

    def _empty(self, capacity: int) -> dict[str, npt.NDArray[Any]]:
        return blank_columns(capacity, self._assembly.columns)

    def _grow(self, least: int = 0) -> None:
        """Double the room, to at least a given number of unrolls; waiting unrolls stay."""
        index = np.arange(self._tail, self._head)
        capacity = max(2 * self._capacity, least)
        columns = self._empty(capacity)
        for name, column in columns.items():
            column[index % capacity] = self._columns[name][index % self._capacity]
        self._columns, self._capacity = columns, capacity

    def _drops_newest(self) -> bool:
        if self._when_full == "alternate":
            return bool(self._rng.random() < 0.5)
        return self._when_full == "drop_newest"

    def ready(self, rows: int) -> bool:
        """Return whether this number of unrolls wait."""
        return len(self) >= rows

    def draw(self, rows: int) -> dict[str, Any]:
        """Take the oldest unrolls away, and return them in arrays of their own.

        Raises:
            ValueError: Fewer wait.
        """
        if not self.ready(rows):
            raise ValueError(f"a batch takes {rows} unrolls of the queue, and {len(self)} wait: observe more first")
        index = np.arange(self._tail, self._tail + rows)
        self._tail += rows
        return {**self._assembly.batch_at(self._columns, index % self._capacity), "index": index}

    # Saving: all waiting unrolls, whole each time.

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {"kind": "queue", "capacity": self._least, "when_full": self._when_full}

    def _counters(self) -> dict[str, Any]:
        counts = {"head": self._head, "tail": self._tail, "dropped": self.dropped}
        return {**counts, "generator": self._rng.bit_generator.state}

    def _snapshot(self) -> Arrays:
        positions = np.arange(self._tail, self._head) % self._capacity
        return {name: column[positions] for name, column in self._columns.items()}

    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        self._tail = self._head = 0
        if self._grows and (waiting := counters["head"] - counters["tail"]) > self._capacity:
            self._grow(waiting)
        self._head, self._tail, self.dropped = counters["head"], counters["tail"], counters["dropped"]
        self._rng.bit_generator.state = counters["generator"]
        positions = np.arange(self._tail, self._head) % self._capacity
        for name, column in self._columns.items():
            column[positions] = snapshot[name]

    def _range(self, number: int) -> tuple[int, int]:
        return self._tail, self._head


# Memory: a queue that is too large is refused before a run begins.

_MEMORY = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Return the bytes that this process can still allocate; None where that is not known.

    That is the least of the free bytes of the machine, of the process's control group and of its address-space limit.
    """
    found = [_of_machine(), _of_group(), _of_process()]
    return min((each for each in found if each is not None), default=None)


def check_memory(size: int, what: str, remedy: str) -> None:
    """Refuse an allocation of more bytes than are available.

    Raises:
        ValueError: There are too few; the message ends with the remedy.
    """
    available = available_memory()
    if available is not None and size > available:
        raise ValueError(
            f"memory must hold {what}: that is {size / 1e9:,.1f} GB, and {available / 1e9:,.1f} GB are free; {remedy}"
        )


def _of_machine() -> int | None:
    try:
        lines = _MEMORY.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _of_group() -> int | None:
    try:
        most = (_CGROUP / "memory.max").read_text().strip()
        return None if most == "max" else int(most) - int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return None


def _of_process() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return most
    return most - pages * os.sysconf("SC_PAGE_SIZE")
