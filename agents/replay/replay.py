"""A replay memory: a storage, which keeps transitions, and a selector, which chooses among them.

    observe -> storage -> became valid, became invalid -> selector
    sample  <- storage.assemble <- positions <- selector.draw

Storages are a `Ring` (the newest transitions) and a `Reservoir` (a uniform sample of all), selectors are `Uniform` and
`Prioritized`. A ring puts its batches together with an assembler, such as `NStep`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agents.replay.log import Arrays, LoggedStorage, SavedReplay
from agents.replay.selectors import Drawable, Positions, Selector
from agents.schema import TransitionSchema

__all__ = ["Replay", "Storage"]


class Storage(Drawable, LoggedStorage, Protocol):
    """Keeps transitions, knows which of them can be drawn, and puts batches of them together.

    Attributes:
        selector: is called when a transition becomes valid or invalid; the replay sets it.
    """

    schema: TransitionSchema
    selector: Selector

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the storage is full."""
        ...

    def observe(self, transition: Mapping[str, Any]) -> None:
        """See `Replay.observe`."""
        ...

    def cut(self, observation: Any) -> None:
        """See `Replay.cut`."""
        ...

    def clear(self) -> None:
        """Forget every transition."""
        ...

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """See `Replay.valid_slots`."""
        ...

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Return where the transitions of an index `[B]` lie, and whether each is still valid."""
        ...

    def assemble(self, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Return the valid transitions at positions `[B]`, for returns of a lesser n if one is given."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        ...


class Replay(SavedReplay):
    """Experience replay: keeps transitions, and draws batches of them.

    Args:
        storage: an empty storage; no other replay may use it.
        selector: a selector of no other storage.
        batch_size: transitions in a batch unless `sample` is given another number.
        seed: of the draws.

    Attributes:
        schema: what a transition is made of.

    Raises:
        ValueError: the batch size is below 1.
    """

    def __init__(
        self, storage: Storage, selector: Selector, *, batch_size: int = 32, seed: int | np.random.SeedSequence = 0
    ) -> None:
        """See the class."""
        _check_batch_size(batch_size)
        super().__init__(storage)
        self._storage: Storage = storage
        self._selector = selector
        self._batch_size = batch_size
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self.schema = storage.schema
        storage.selector = selector
        selector.attach(storage)

    def __len__(self) -> int:
        """Number of transitions that can be drawn, exactly; O(1)."""
        return self._storage.count

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._storage.add_count

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the replay is full."""
        return self._storage.nbytes + self._selector.nbytes

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store one transition; within an episode each must follow the one before.

        Args:
            transition: "observation" (the newest one alone, not a stack), "action" (int), "reward" (float), "interval"
                (int, frames), "terminal" (bool: no bootstrap), "truncated" (bool: bootstrap on the final observation),
                "next_observation", read only where the episode ends here, and "extras", where the schema has them.

        Raises:
            KeyError: a key is missing; nothing is stored then.
            ValueError: an array has another shape or kind than the schema's, or the interval is negative; nothing is
                stored then.
        """
        self._storage.observe(transition)

    def cut(self, observation: Any) -> None:
        """End the running episode, if one runs, as a truncation would have: what followed its last transition is lost.

        Args:
            observation: what the last transition led to.

        Raises:
            ValueError: it has another shape or kind than the schema's.
        """
        self._storage.cut(observation)

    def sample(self, batch_size: int | None = None, importance_exponent: float | None = None) -> dict[str, Any]:
        """Draw transitions as the selector chooses them.

        The arrays are fresh at every call. In a ring "observation" and "next_observation" are views of one array and
        overlap where `update_horizon` is 1 (`[B, k + 1, *shape]` then): do not write into them.

        Args:
            batch_size: number of transitions B, by default the constructor's.
            importance_exponent: beta of this batch, where transitions have priorities, by default the selector's: the
                paper lets it rise to 1.

        Returns:
            "observation" `[B, k, *shape]`, the last k observations of the episode, oldest first, zeros before its
            first, and a dict of such for a Dict space; "action" int64 `[B]`; "reward" and "discount" float32 `[B]` of
            the n decisions (`NStep`); "next_observation", a stack like "observation", at the end of the n decisions;
            "interval" int64 `[B]`, frames of the first decision; "index" int64 `[B]`, which names a transition;
            "extras", those of the first decision, `[B, ...]` in dicts like the schema's; and what the selector adds.

        Raises:
            ValueError: no transition can be drawn, or an argument is out of its range.
        """
        if batch_size is None:
            batch_size = self._batch_size
        else:
            _check_batch_size(batch_size)
        if not self._storage.count:
            raise ValueError("the replay holds no valid transition yet, observe more before sampling")
        positions, chosen = self._selector.draw(self._rng, batch_size, importance_exponent)
        batch = self._storage.assemble(positions)
        batch.update(chosen)
        return batch

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int | None = None) -> dict[str, Any]:
        """Put given transitions together.

        Args:
            slots: the index of each, `[B]`, each one of `valid_slots`.
            update_horizon: n, at least 1, where it is to be less than the assembler's.

        Returns:
            As `sample`, without what a selector adds.

        Raises:
            ValueError: no valid transition begins at one of the slots.
        """
        positions, valid = self._storage.find(slots)
        if not valid.all():
            raise ValueError(f"slots must be those of valid transitions, got {slots[~valid][0]}")
        return self._storage.assemble(positions, update_horizon)

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the index of every transition that can be drawn `[len(self)]`, ascending; reads the whole storage."""
        return self._storage.valid_slots()

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Give transitions their priorities. One that is no longer valid is left out: its place is another's now.

        Args:
            index: "index" of a batch, `[B]`; of one given twice the last priority stays.
            priority: `[B]`, the size of the temporal-difference error, or the square root of the loss.

        Raises:
            ValueError: a priority is out of the selector's range, an index has never been given out, the shapes differ,
                or the selector has no priorities; nothing is changed then.
        """
        slots, priorities = np.asarray(index), np.asarray(priority, np.float64)
        if slots.ndim != 1 or slots.shape != priorities.shape:
            raise ValueError(f"priority must have the shape [B] of index, {slots.shape}, got {priorities.shape}")
        if not slots.size:
            return
        positions, valid = self._storage.find(slots)
        if not valid.all() and (slots.min() < 0 or slots.max() >= self._storage.head):
            wrong = slots[(slots < 0) | (slots >= self._storage.head)][0]
            raise ValueError(f"index must be a batch's, in [0, {self._storage.head}), got {wrong}")
        self._selector.set_priorities(positions, priorities, valid)

    # Saving: `SavedReplay` has save, load, prune, state_dict and load_state_dict.

    def facts(self) -> dict[str, Any]:
        """Return the constructors' arguments as plain data, without the seed."""
        return {**self._storage.facts(), "batch_size": self._batch_size, **self._selector.facts()}

    def clear(self) -> None:
        """Forget every transition; the generators go on from where they are."""
        super().clear()
        self._storage.clear()
        self._selector.clear()

    def end_running(self) -> None:
        """End the episode that is under way, if one is: its last observation is its final one."""
        self._storage.end_running()

    def _counters(self) -> dict[str, Any]:
        generator = {"generator": self._rng.bit_generator.state}
        return {"facts": self.facts(), **self._storage.counters(), **generator, **self._selector.counters()}

    def _snapshot(self) -> Arrays:
        return {**self._storage.snapshot(), **self._selector.snapshot()}

    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        self._storage.restore(counters, snapshot)
        self._rng.bit_generator.state = counters["generator"]
        self._selector.restore(counters, snapshot)


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1 transition, got {batch_size}")
