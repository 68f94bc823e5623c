"""A replay of the newest sequences, for agents with memory.

Kapturowski et al., "Recurrent experience replay in distributed reinforcement learning" (R2D2), 2019: sequences of fixed
length overlap, are stored with acting's state before them, and are drawn by priority, each as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from async_wrappers.agents.replay.log import Log, blank_columns
from async_wrappers.agents.replay.replay import Replay, make_selector
from async_wrappers.agents.replay.selectors import Positions
from async_wrappers.agents.replay.sequences import SEQUENCES_OF_A_PIECE, Assembly
from async_wrappers.agents.spaces.schema import MAX_VALUE, VALUE, Arrays


class SequenceRing(Log):
    """Columns of the newest `capacity` sequences of all environments, in the order of their completion.

    Sequence g, numbered from 0 for ever, lies at position g mod capacity. Where sequences overlap, their common rows
    are stored in both, as in SEED RL and rela: those of 120 rows take 1.5 times the memory where one begins every 80
    rows, and 3 times every 40. In exchange a sequence is an entry of a log whose files never change.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of what the policy leaves beside its action, with its state, if it has one, as "state".
        capacity: sequences.
        priority: from the columns of M sequences `[M, ...]`, with the policy's values (`Assembly`), to the priorities
            that they enter with `[M]`, NaN for none; None lets all enter with the largest one so far.
        assembly: the other arguments of `Assembly`.

    Attributes:
        schema: the fields of a row.
        capacity: as given.
        head: sequences ever written.

    Raises:
        ValueError: an argument is out of its range.
    """

    piece = SEQUENCES_OF_A_PIECE

    def __init__(
        self,
        observation_space: gym.Space[Any],
        extras: Dict | None,
        capacity: int,
        priority: Callable[[Mapping[str, npt.NDArray[Any]]], npt.NDArray[np.float64]] | None = None,
        **assembly: Any,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1 sequence, got {capacity}")
        self._priority = priority
        if priority is not None:
            assembly["with_values"] = True
        self._assembly = Assembly(observation_space, extras, self._put_whole, **assembly)
        self.schema, self.capacity = self._assembly.schema, capacity
        self._columns = blank_columns(capacity, self._assembly.columns)
        self._columns["held"] = self._held = np.zeros(capacity, np.bool_)  # False where there is none
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
    def nbytes(self) -> int:
        """Bytes that all arrays take once the ring is full."""
        return super().nbytes + self._assembly.nbytes

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {"source": "sequences", **self._assembly.facts(), "capacity": self.capacity}

    # Writing.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        """Store one transition; see `Replay.observe`."""
        self._assembly.observe(transition, env_id)

    def extend(self, block: Mapping[str, Any]) -> None:
        """Store one transition of each of R environments; see `Replay.extend`."""
        self._assembly.extend(block)

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End the running episode, if one runs; see `Replay.cut`."""
        self._assembly.cut(observation, env_id)

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End the running episodes, all or some: the last observation of each is its final one."""
        self._assembly.end_running(env_ids)

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
        """Forget every sequence, and the unfinished ones."""
        self.head = 0
        self._held.fill(False)
        self._assembly.clear()

    # Reading.

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
        """Return the sequences at positions `[B]`, in the layout of `sequences.py`."""
        return {**self._assembly.batch_at(self._columns, positions), "index": self._numbers(positions)}

    # Saving: sequences are entries of a log, and the unfinished ones are the snapshot.

    def counters(self) -> dict[str, Any]:
        """Return the data that is not in the entries, as plain data."""
        return {"head": self.head, "add_count": self.add_count}

    def snapshot(self) -> Arrays:
        """Return the unfinished sequences."""
        return self._assembly.snapshot()

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Load the counters and the unfinished sequences."""
        self.move_to(counters)
        self._assembly.restore(snapshot, counters["add_count"])


def create_sequence_replay(
    observation_space: gym.Space[Any],
    extras: Dict | None = None,
    *,
    selector: str | Any = "prioritized",
    kind: type[Replay] = Replay,
    capacity: int,
    batch_size: int = 64,
    seed: int = 0,
    num_envs: int = 1,
    length: int,
    period: int,
    stack_size: int = 1,
    gamma: float = 0.997,
    discount_by: Literal["decision", "frame"] = "decision",
    priority: Callable[[Any], Any] | None = None,
    **of_selector: Any,
) -> Replay:
    """Make an empty replay of sequences, whose batches are those of `sequences.py`.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of what the policy leaves beside its action, with its state, if it has one, as "state".
        selector: how sequences are drawn: "uniform", "prioritized", or a function that makes a `Selector`.
        kind: the replay's class, such as `prefetch.PrefetchedReplay`.
        capacity: sequences kept.
        batch_size: sequences in a batch.
        seed: of the draws.
        num_envs: environments.
        length: rows of a sequence.
        period: rows from the beginning of one sequence of an environment to that of the next.
        stack_size: observations in a stack, k.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".
        priority: computes sequences' first priorities, as for `SequenceRing`; None for the largest priority so far.
        of_selector: the arguments of the selector, such as those of `Prioritized`.

    Raises:
        ValueError: an argument is out of its range.
    """
    ring = SequenceRing(
        observation_space,
        extras,
        capacity,
        priority,
        num_envs=num_envs,
        length=length,
        period=period,
        stack_size=stack_size,
        gamma=gamma,
        discount_by=discount_by,
    )
    return kind(ring, make_selector(selector, of_selector), batch_size=batch_size, seed=seed)
