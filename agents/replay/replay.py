"""A replay memory: a storage, which keeps transitions, and a selector, which chooses among them.

    observe -> storage -> became valid, became invalid -> selector
    sample  <- storage.assemble <- positions <- selector.draw

Storages are a `Ring` (the newest transitions) and a `Reservoir` (a uniform sample of all), selectors are `Uniform` and
`Prioritized`. A ring puts its batches together with an assembler, such as `NStep`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from agents.replay.log import Arrays, LoggedStorage, SavedReplay, Segment
from agents.replay.ring import Assembler, NStep, Ring
from agents.replay.selectors import Drawable, Positions, Prioritized, Selector, Uniform
from agents.schema import Column, TransitionSchema

__all__ = ["Replay", "Storage", "create_replay"]


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


# A storage that keeps a uniform sample of all transitions ever observed, not the newest ones.


_PIECE = 4096  # transitions that go to or come from a file at a time, which bounds the memory that a load needs


class Reservoir:
    """A reservoir of transitions (Vitter 1985, "Random sampling with a reservoir", Algorithm R).

    Once `capacity` transitions are kept, the i-th takes the place of a random one with the probability capacity / i,
    and is dropped otherwise: every transition so far is kept with the same probability.

    A transition's neighbours may be gone, so it is put together before it is stored, not when it is drawn: its n
    decisions are summed up, and both of its observations lie beside each other. That takes twice the memory of a ring
    of as many, 14.2 GB for a million 84 x 84 images, and rules out stacks.

    Args:
        schema: what a transition is made of.
        assembler: puts transitions together; its stacks must be of 1.
        capacity: transitions kept.
        batch_size: as the replay's; the files record it of the small ring too, in which transitions become complete.
        seed: of the eviction.

    Attributes:
        schema: as given.
        capacity: as given.
        selector: hears of every transition that becomes valid or invalid; `Replay` sets it.
        head: transitions ever written, each an entry of the log.
        written: places that have been written to, those whose transition was lost with a damaged file included.
        count: transitions that are kept.

    Raises:
        ValueError: an argument is out of its range.
    """

    selector: Selector
    _last_slot: int  # the newest transition whose steps are complete, by its slot in the small ring

    def __init__(
        self,
        schema: TransitionSchema,
        assembler: Assembler,
        capacity: int = 1_000_000,
        *,
        batch_size: int = 32,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        """See the class."""
        stack, horizon = assembler.stack_size, assembler.update_horizon
        if stack != 1:
            raise ValueError(f"stack_size must be 1 in a reservoir, where neighbours go missing, got {stack}")
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1 transition, got {capacity}")
        self.schema, self.capacity = schema, capacity
        # The final slot of an episode completes all of its last n transitions at once, and the small ring holds them.
        self._ring = Ring(schema, assembler, capacity=max(2, horizon + 2))
        self._newest = Replay(self._ring, Uniform(), batch_size=batch_size)
        observation = schema.observation.columns
        columns = {
            **observation,
            **{_next(name): column for name, column in observation.items()},
            **{name: Column((), np.dtype(dtype)) for name, dtype in _NUMBERS.items()},
            **(schema.extras.columns if schema.extras else {}),
        }
        made: Arrays = {name: np.zeros((capacity, *shape), dtype) for name, (shape, dtype) in columns.items()}
        self._stacks = {
            "observation": [made[name] for name in observation],
            "next_observation": [made[_next(name)] for name in observation],
        }
        self._numbers = {name: made[name] for name in _NUMBERS}
        self._extras = [made[name] for name in schema.extras.columns] if schema.extras else []
        self._entry = np.zeros(capacity, np.int64)  # of the log, written last at each place; -1 for none
        self._saved: Arrays = {**made, "entry": self._entry}
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self.clear()

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._newest.add_count

    @property
    def oldest(self) -> int:
        """No entry before this one is live; any may be."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the reservoir is full."""
        return sum(array.nbytes for array in self._saved.values())

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {**self._newest.facts(), "capacity": self.capacity, "eviction": "reservoir"}

    # Writing.

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Take one transition, which can be drawn once its n decisions are complete; see `Replay.observe`."""
        self._ring.observe(transition)
        self._take_complete()

    def cut(self, observation: Any) -> None:
        """End the running episode; see `Replay.cut`."""
        self._ring.cut(observation)
        self._take_complete()

    def _take_complete(self) -> None:
        slots = self._ring.valid_slots()
        complete = slots[slots > self._last_slot]
        if not complete.size:
            return
        self._last_slot = int(complete[-1])
        arrived = self._by_column(self._ring.assemble(complete % self._ring.capacity))
        for row in range(len(complete)):
            place = self._completed
            if self._completed >= self.capacity:
                place = self._rng.integers(self._completed + 1).item()
            if place < self.capacity:
                self._write(place, arrived, row)
            self._completed += 1

    def _by_column(self, batch: Mapping[str, Any]) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """Return each column with what a batch of stacks of one observation brings for it, `[B, *shape]`."""
        pairs = [(column, batch[name]) for name, column in self._numbers.items()]
        for name, columns in self._stacks.items():
            stacks = self.schema.observation.flatten(batch[name])
            pairs += [(column, stack[:, 0]) for column, stack in zip(columns, stacks, strict=True)]
        if self.schema.extras:
            pairs += zip(self._extras, self.schema.extras.flatten(batch["extras"]), strict=True)
        return pairs

    def _write(self, place: int, arrived: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]], row: int) -> None:
        if place == self.written:
            self.written += 1
            self.count += 1
        elif self._entry.item(place) < 0:
            self.count += 1
        else:
            self.selector.became_invalid(place)
        for column, values in arrived:
            column[place] = values[row]
        self._entry[place] = self.head
        self.head += 1
        self.selector.became_valid(place)

    def clear(self) -> None:
        """Forget every transition; the generator of the eviction goes on from where it is."""
        self.head = self.written = self.count = 0
        self._completed = 0  # transitions whose steps are complete, kept or not
        self._last_slot = -1
        self._entry.fill(-1)
        self._newest.clear()

    # Reading.

    def live_positions(self) -> Positions:
        """Return the places of the transitions that are kept, in the order in which they were written."""
        entry = self._entry[: self.written]
        places = np.argsort(entry)
        return places[entry[places] >= 0]

    def marks(self, positions: Positions) -> npt.NDArray[Any]:
        """Return whether a transition is kept at each place."""
        return self._entry.take(positions) >= 0

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the index of every transition that is kept, ascending."""
        return np.sort(self._numbers["index"][self.live_positions()])

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Refuse to find transitions by their index: where each went is not kept.

        Raises:
            ValueError: always.
        """
        raise ValueError("a reservoir finds no transition by its index, use eviction='oldest' for that")

    def assemble(self, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Return the transitions at places `[B]` with stacks of one observation, `[B, 1, *shape]`."""
        nest = self.schema.observation.nest
        batch = {
            name: nest([column.take(positions, axis=0)[:, None] for column in columns])
            for name, columns in self._stacks.items()
        }
        for name, column in self._numbers.items():
            batch[name] = column.take(positions)
        if self.schema.extras:
            batch["extras"] = self.schema.extras.nest([column.take(positions, axis=0) for column in self._extras])
        return batch

    # Saving. Transitions that are written over each other make a log: an entry is one of them and the place it went to.

    def counters(self) -> dict[str, Any]:
        """Return what is not in the entries, as plain data."""
        newest = self._newest.state_dict()
        return {
            "head": self.head,
            "completed": self._completed,
            "last_slot": self._last_slot,
            "eviction_generator": self._rng.bit_generator.state,
            "newest": {name: newest[name] for name in newest if name not in ("slots", "snapshot")},
        }

    def snapshot(self) -> Arrays:
        """Return the newest slots, and the entry at each place: where its file is lost, no older one passes for it."""
        slots: Arrays = self._newest.state_dict()["slots"]
        return {**slots, "held": self._entry[: self.written]} if slots else {}

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Take over the counters and the small ring."""
        self.head, self._completed = counters["head"], counters["completed"]
        self.written = min(self._completed, self.capacity)
        self._last_slot = counters["last_slot"]
        self._rng.bit_generator.state = counters["eviction_generator"]
        slots = dict(snapshot)
        entry, held = self._entry[: self.written], slots.pop("held", self._entry[:0])
        entry[entry != held] = -1
        self.count = int(np.count_nonzero(entry >= 0))
        self._newest.load_state_dict({**counters["newest"], "slots": slots, "snapshot": {}})

    def end_running(self) -> None:
        """End the episode that is under way, if one is: its last observation is its final one."""
        self._newest.end_running()
        self._take_complete()

    def lose(self, first: int, stop: int) -> None:
        """Take note that the entries `first <= entry < stop` are lost."""
        self._entry[(self._entry >= first) & (self._entry < stop)] = -1

    def names(self) -> list[str]:
        """Return the names of what an entry holds."""
        return ["place", *self._saved]

    def pieces(self, first: int) -> Iterator[Arrays]:
        """Yield the entries from `first` on that no later one was written over, oldest first."""
        places = self.live_positions()
        places = places[self._entry[places] >= first]
        for start in range(0, len(places), _PIECE):
            chosen = places[start : start + _PIECE]
            yield {"place": chosen, **{name: array[chosen] for name, array in self._saved.items()}}

    def put(self, first: int, piece: Arrays) -> int:
        """Write entries; return how many."""
        for name, array in self._saved.items():
            array[piece["place"]] = piece[name]
        return len(piece["place"])

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments that stay in use: all, until most entries are dead and what lives is written anew."""
        return listed if sum(segment.size for segment in listed) <= 2 * self.nbytes else []


_NUMBERS: Mapping[str, Any] = {
    "action": np.int64,
    "reward": np.float32,
    "discount": np.float32,
    "interval": np.int64,
    "index": np.int64,
}


def _next(name: str) -> str:
    """Return the column of the next observation that goes with a column of the observation."""
    return f"next_{name}"


def create_replay(
    observation_space: gym.Space[Any],
    *,
    extras: Dict | None = None,
    prioritized: bool = False,
    eviction: Literal["oldest", "reservoir"] = "oldest",
    capacity: int = 1_000_000,
    stack_size: int = 1,
    update_horizon: int = 1,
    gamma: float = 0.99,
    discount_by: Literal["decision", "frame"] = "decision",
    batch_size: int = 32,
    seed: int = 0,
    **priorities: Any,
) -> Replay:
    """Make an empty replay of n-step transitions.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of what the policy leaves for the learner beside its action; None where it leaves nothing.
        prioritized: draw by priorities, not uniformly.
        eviction: what goes when the replay is full, the "oldest" or a random transition ("reservoir": see `Reservoir`
            for what it costs).
        capacity: slots of a ring, of which an episode of T decisions takes T + 1; transitions of a reservoir.
        stack_size: observations in a stack, k; 1 in a reservoir.
        update_horizon: decisions in a return, n.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".
        batch_size: transitions in a batch unless `sample` is given another number.
        seed: of the draws and, in a reservoir, of the eviction, each with a generator of its own.
        priorities: the arguments of `Prioritized`, where `prioritized`.

    Raises:
        TypeError: an argument of `Prioritized` without `prioritized`.
        ValueError: a space that cannot be stored, an unknown eviction, priorities in a reservoir, or an argument out of
            its range.
    """
    if eviction not in ("oldest", "reservoir"):
        raise ValueError(f"eviction must be 'oldest' or 'reservoir', got {eviction!r}")
    if priorities and not prioritized:
        raise TypeError(f"{', '.join(priorities)} must not be given without prioritized=True")
    schema = TransitionSchema(observation_space, extras)
    n_step = NStep(stack_size=stack_size, update_horizon=update_horizon, gamma=gamma, discount_by=discount_by)
    if eviction == "oldest":
        selector = Prioritized(**priorities) if prioritized else Uniform()
        return Replay(Ring(schema, n_step, capacity), selector, batch_size=batch_size, seed=seed)
    if prioritized:
        raise ValueError("eviction must be 'oldest' where prioritized=True, got 'reservoir'")
    draws, evictions = np.random.SeedSequence(seed).spawn(2)
    reservoir = Reservoir(schema, n_step, capacity, batch_size=batch_size, seed=evictions)
    return Replay(reservoir, Uniform(), batch_size=batch_size, seed=draws)
