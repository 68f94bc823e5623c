"""A queue of sequences: each step that was taken is learnt from once (Espeholt et al. 2018, IMPALA, section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from async_wrappers.agents.files import prune, read_index, read_snapshot, write_index, write_segment
from async_wrappers.agents.replay.sequences import STATE, Assembly

__all__ = ["WHEN_FULL", "UnrollQueue"]

WHEN_FULL = ("wait", "drop_oldest", "drop_newest")


class UnrollQueue:
    """Unrolls, sequences of T rows without overlap, first in, first out; a batch takes the B oldest ones away.

    It stands where a learner's replay does. A batch is that of `sequences.py`.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of what the policy leaves beside its action, with its state, if it has one, as "state"; None
            where it leaves nothing.
        num_envs: environments, N.
        unroll_length: T, in rows: the decisions and the final observations of an environment.
        batch_size: unrolls of a batch, B.
        capacity: unrolls that can wait, at least B.
        when_full: what becomes of an unroll that finds the queue full: ``"drop_oldest"``, ``"drop_newest"`` (the unroll
            itself); or ``"wait"``: acting is to wait for the learner, and it is an error where it does not.
        stack_size: observations in a stack, k.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".

    Attributes:
        dropped: unrolls that were dropped.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        extras: Dict | None = None,
        *,
        num_envs: int = 1,
        unroll_length: int = 100,
        batch_size: int = 32,
        capacity: int = 64,
        when_full: Literal["wait", "drop_oldest", "drop_newest"] = "wait",
        stack_size: int = 1,
        gamma: float = 0.99,
        discount_by: Literal["decision", "frame"] = "decision",
    ) -> None:
        """See the class."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be >= 1 unroll, got {batch_size}")
        if capacity < batch_size:
            raise ValueError(f"capacity must be >= {batch_size} unrolls, those of a batch, got {capacity}")
        if when_full not in WHEN_FULL:
            raise ValueError(f"when_full must be one of {', '.join(map(repr, WHEN_FULL))}, got {when_full!r}")
        self._assembly = Assembly(
            observation_space,
            extras,
            self._put,
            num_envs=num_envs,
            length=unroll_length,
            period=unroll_length,
            stack_size=stack_size,
            gamma=gamma,
            discount_by=discount_by,
        )
        self._batch_size, self._capacity, self._when_full = batch_size, capacity, when_full
        # np.zeros asks for zeroed pages, which take no memory before they are written.
        self._columns = {
            name: np.zeros((capacity, *column.shape), column.dtype) for name, column in self._assembly.columns.items()
        }
        # Unrolls are numbered from 0 for ever; number u lies at u mod capacity.
        self._head = self._tail = 0
        self.dropped = 0

    def __len__(self) -> int:
        """Return how many unrolls wait."""
        return self._head - self._tail

    @property
    def drawable(self) -> bool:
        """Whether a batch can be drawn."""
        return len(self) >= self._batch_size

    @property
    def crowded(self) -> bool:
        """Whether what one further decision of each environment completes may not fit."""
        at_most = self._assembly.num_envs * (2 if self._assembly.length == 1 else 1)  # a decision, and a final row
        return len(self) + at_most > self._capacity

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._assembly.add_count

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the queue has been full."""
        return sum(array.nbytes for array in self._columns.values()) + self._assembly.nbytes

    # Writing.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        """Take in one transition; see `Replay.observe`."""
        self._assembly.observe(transition, env_id)

    def extend(self, block: Mapping[str, Any]) -> None:
        """Take in one transition of each of R environments; see `Replay.extend`."""
        self._assembly.extend(block)

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End an environment's running episode, if one runs, as a truncation would have; see `Replay.cut`."""
        self._assembly.cut(observation, env_id)

    def _put(self, unrolls: Mapping[str, npt.NDArray[Any]]) -> None:
        for row in range(len(unrolls["mask"])):
            if len(self) == self._capacity:
                if self._when_full == "wait":
                    raise RuntimeError(
                        f"the queue holds its capacity of {self._capacity} unrolls, and nothing is learnt from them: "
                        "update while it is ready, or choose when_full='drop_oldest' or 'drop_newest'"
                    )
                self.dropped += 1
                if self._when_full == "drop_newest":
                    continue
                self._tail += 1
            for name, column in self._columns.items():
                column[self._head % self._capacity] = unrolls[name][row]
            self._head += 1

    # Reading.

    def sample(self) -> dict[str, Any]:
        """Take the B oldest unrolls away, and return them in arrays of their own; see `sequences.py`.

        Raises:
            ValueError: fewer than B wait.
        """
        if not self.drawable:
            raise ValueError(f"a batch is {self._batch_size} unrolls, and {len(self)} wait: observe more first")
        index = np.arange(self._tail, self._tail + self._batch_size)
        positions = index % self._capacity
        taken = {
            name: column[positions] if name == STATE else column.swapaxes(0, 1)[:, positions]
            for name, column in self._columns.items()
        }
        self._tail += self._batch_size
        return {**self._assembly.batch(taken), "index": index}

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int | None = None) -> dict[str, Any]:
        """Refuse: an unroll that was drawn is gone.

        Raises:
            ValueError: always.
        """
        raise ValueError("a queue holds no transition twice: one_step_loss must be False")

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Refuse: an unroll that was drawn is gone.

        Raises:
            ValueError: always.
        """
        raise ValueError("a queue has no priorities: each unroll is learnt from once")

    # Saving: all that waits and all that is under construction, whole each time.

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        own = {"batch_size": self._batch_size, "capacity": self._capacity, "when_full": self._when_full}
        return {"source": "queue", **self._assembly.facts(), **own}

    def state_dict(self) -> dict[str, Any]:
        """Return all that `load_state_dict` needs to go on bit for bit, in copies."""
        positions = np.arange(self._tail, self._head) % self._capacity
        waiting = {f"waiting/{name}": column[positions] for name, column in self._columns.items()}
        running = {name: array.copy() for name, array in self._assembly.snapshot().items()}
        counts = {"head": self._head, "tail": self._tail, "dropped": self.dropped, "add_count": self.add_count}
        return {"facts": self.facts(), **counts, "arrays": {**waiting, **running}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called.

        Raises:
            ValueError: the state comes from a queue with other constructor arguments; nothing is changed then.
        """
        for name, value in self.facts().items():
            if (saved := state["facts"].get(name)) != value:
                raise ValueError(
                    f"{name} must be as in the saved queue, {saved!r}, got {value!r}, make the queue alike"
                )
        self._head, self._tail, self.dropped = state["head"], state["tail"], state["dropped"]
        positions = np.arange(self._tail, self._head) % self._capacity
        for name, column in self._columns.items():
            column[positions] = state["arrays"][f"waiting/{name}"]
        self._assembly.restore(state["arrays"], state["add_count"])

    def save(self, directory: Path, number: int) -> list[str]:
        """Write all that waits and is under construction, and the index `index_{number}.json`; see `Replay.save`."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        state = self.state_dict()
        segment = write_segment(directory, self._tail, self._head, [state.pop("arrays")])
        return [segment.name, write_index(directory, number, [], [segment], state)]

    def load(self, directory: Path, number: int, partial: bool = False) -> int:
        """Go on as at `save(directory, number)`; an episode that was under way is ended. See `Replay.load`.

        Returns:
            0: without its files nothing of a queue can be loaded.
        """
        _, moment, state = read_index(Path(directory), number)
        self.load_state_dict({**state, "arrays": read_snapshot(Path(directory), moment)})
        self._assembly.end_running()
        return 0

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """Delete the files in `directory` that no save in `keep` needs; see `Replay.prune`."""
        prune(Path(directory), keep)
