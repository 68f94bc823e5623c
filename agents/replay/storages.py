"""Storages: which transitions are kept, the newest (`Ring`) or a uniform sample of all (`Reservoir`), and where.

A ring keeps single observations in columns, and knows which of them begin a transition that can be drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.files import Arrays, Segment
from async_wrappers.agents.replay.selectors import Positions, Selector
from async_wrappers.agents.schema import Column, TransitionSchema

__all__ = ["FINAL", "LOST", "STEP", "TERMINAL", "Assembler", "Reservoir", "Ring", "joined"]


# What is stored
# --------------
# An agent that reads stacks of k observations and learns from n-step returns needs, of the transition at decision t,
# the observations o_{t-k+1} .. o_t, the action a_t, the rewards r_t .. r_{t+n-1} and the observations
# o_{t+n-k+1} .. o_{t+n}. Stored whole, every observation would lie in memory 2 k times, 8 times for Atari. The ring
# stores each observation once, and a transition is no more than a place where reading begins. An assembler
# (`replay.py`) reads the stacks and sums up the rewards when a batch is drawn.
#
# Slots
# -----
# An episode of T decisions is a run of T + 1 consecutive slots. Each but the last holds an observation and the decision
# made on it; the last holds the final observation alone. Two episodes, the first of three decisions and terminated:
#
#     slot           0     1     2         3      |  4     5     6     ...
#     observation    o_0   o_1   o_2       o_3    |  o_0   o_1   o_2
#     action         a_0   a_1   a_2       -      |  a_0   a_1   a_2
#     age            0     1     2         3      |  0     1     2
#     kind           STEP  STEP  TERMINAL  FINAL  |  STEP  STEP  STEP
#
# The age counts the observations before this one in its episode: a slot of age 0 begins an episode. The final slot
# costs one observation per episode. In exchange every stack and every return is read in the same way, whether the
# episode goes on, terminated or was truncated: a return bootstraps on the observation at its end, with discount 0 if a
# TERMINAL slot lies on the way.
#
# Slots are numbered from 0 for ever. Slot g lies at position g mod C of arrays of C = `capacity` rows, so the live
# slots are the newest C. The number is a transition's name ("index" in a batch): by it a priority that comes too late
# is recognised, though its position holds another transition by then.
#
# Validity
# --------
# A transition is valid, so it can be drawn, when nothing that it is read from is missing:
#
#   it is complete      its n decisions are stored, or its episode has ended and at least one is
#   its stack is whole  the min(age, k - 1) slots before it are live; before an episode's first observation are zeros
#
# `steps[position]` is the number m <= n of decisions in its return, and 0 where no valid transition begins. It is
# brought up to date as slots are written, so that a draw looks at one number and never at an episode's boundaries.
# Both changes cost O(1) per slot, whatever the capacity:
#
#   A new slot completes one transition, the one n slots before it. A FINAL slot completes up to n - 1 more, whose
#   returns end with the episode: m = 1 .. n - 1.
#
#   An overwritten slot spoils the stacks that it is in. An episode's first observation is in the stacks of the first k
#   decisions, and all of them may still be valid. Any other observation is in k stacks as well, but those of its own
#   and the next k - 2 decisions also need the slot before it, which has been overwritten already: only the decision
#   k - 1 later is still valid.
#
# Nothing of this is saved: `steps` follows from ages and kinds alone, and is derived when a ring is loaded.
#
# What breaks the pattern
# -----------------------
# Two things break it, both in a ring that comes from files. Slots whose file was damaged are LOST. The run of slots
# before them ends without a final slot. The run after them may begin in the middle of an episode, so whether a stack is
# whole depends on where the run begins, and not on the age alone. And an episode that was under way when the files were
# written is over, because the process that played it is gone. Its last slot holds an action, but nobody knows what that
# action led to, so the slot serves as the final observation. To join it to the next observation that is stored would
# make a transition that never happened.
#
# Several environments
# --------------------
# A ring of E environments is E *lanes*: the arrays keep C rows, lane e has those from e C/E on, and each lane is a ring
# as described here, with a head and an age of its own. The environment's number `env_id` is then position // (C/E),
# so it takes no column and no byte, and one environment is exactly what stands here. Consecutive observations of one
# environment are consecutive rows of its lane, which is what stacks, returns and sequences are read from; `steps`, the
# selector and an assembler's reads take positions, and see no lanes except where a read wraps around: at a lane's end
# instead of the arrays' end. Slot g of lane e gets the number g E + e, which is g for one environment. A lane that is
# never written again, for demonstrations, is a part that is never evicted. In files each lane is a log of its own.
# The price: every environment has the same share of the memory, however fast it plays.


# What a slot holds: a decision, one that terminated the episode, no decision, nothing (its file was damaged).
STEP, TERMINAL, FINAL, LOST = 0, 1, 2, 3

_PIECE = 4096  # slots that go to or come from a file at a time, which bounds the memory that a load needs


class Assembler(Protocol):
    """Puts a batch together from a ring's columns.

    Attributes:
        stack_size: observations in a stack, k: how far a transition reaches back.
        update_horizon: decisions in a return, n: how far it reaches ahead.
    """

    stack_size: int
    update_horizon: int

    def assemble(self, ring: Ring, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Return the transitions at positions `[B]`, all of them valid, for returns of a lesser n if one is given."""

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""


class Ring:
    """Columns of the newest `capacity` slots, for one environment; the comment above explains it.

    Memory is touched only as the ring fills.

    Args:
        schema: what a transition is made of.
        assembler: puts batches together; how far it reads decides what is valid.
        capacity: slots; an episode of T decisions takes T + 1.

    Attributes:
        schema: as given.
        capacity: as given.
        selector: hears of every transition that becomes valid or invalid; `Replay` sets it.
        head: slots ever written, the number of the next one.
        add_count: transitions ever observed.
        count: transitions that are valid now.
        observation: the columns of the observation, `[capacity, *shape]` each, in the order of the schema.
        extras: the columns of the extras, in the order of the schema; none without extras.
        action: int64 `[capacity]`.
        reward: float32 `[capacity]`.
        interval: int32 `[capacity]`, frames.
        age: int64 `[capacity]`, observations before this one in its episode.
        kind: uint8 `[capacity]`, `STEP`, `TERMINAL`, `FINAL` or `LOST`.
        steps: int32 `[capacity]`, decisions in the return of the valid transition that begins here; 0: none does.

    Raises:
        ValueError: the capacity is less than one transition needs.
    """

    selector: Selector

    def __init__(self, schema: TransitionSchema, assembler: Assembler, capacity: int = 1_000_000) -> None:
        """See the class."""
        self._stack, self._horizon = assembler.stack_size, assembler.update_horizon
        if capacity < self._stack + self._horizon:
            least = f"{self._stack + self._horizon} slots (stack_size + update_horizon)"
            raise ValueError(f"capacity must be >= {least}, got {capacity}")
        self.schema, self.capacity, self._assembler = schema, capacity, assembler
        # np.zeros asks for zeroed pages, which take no memory before they are written.
        made = {name: np.zeros((capacity, *shape), dtype) for name, (shape, dtype) in schema.columns.items()}
        self.observation = [made[name] for name in schema.observation.columns]
        self.extras = [made[name] for name in schema.extras.columns] if schema.extras else []
        self._check_observation = schema.observation.check
        self._check_extras = schema.extras.check if schema.extras else None
        self.action, self.reward, self.interval = made["action"], made["reward"], made["interval"]
        self.age = np.zeros(capacity, np.int64)
        self.kind = made.pop("kind")
        self._columns: Arrays = {name: made[name] for name in made if not name.startswith("extras/")}
        self._columns |= {"age": self.age, "kind": self.kind}
        self._columns |= {name: made[name] for name in made if name.startswith("extras/")}
        self.steps = np.zeros(capacity, np.int32)
        self._begin_at(head=0, add_count=0, next_age=0)

    def _begin_at(self, head: int, add_count: int, next_age: int) -> None:
        """Set the counters, and derive what is valid from the stored slots."""
        self.head = head
        self.add_count = add_count
        self._next_age = next_age
        self.steps.fill(0)
        self.steps[self.live_positions()] = self._derive_steps()
        self.count = int(np.count_nonzero(self.steps))

    @property
    def written(self) -> int:
        """Positions `0 <= position < written` hold a live slot."""
        return min(self.head, self.capacity)

    @property
    def oldest(self) -> int:
        """The oldest live slot."""
        return max(0, self.head - self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays of the ring take once it is full."""
        return sum(array.nbytes for array in self._columns.values()) + self.steps.nbytes

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {**self.schema.as_dict(), "capacity": self.capacity, **self._assembler.facts()}

    # Writing.

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store one transition; see `Replay.observe`."""
        # All is read and checked before anything is written, so that a refused transition leaves no trace.
        terminal = bool(transition["terminal"])
        ended = terminal or bool(transition["truncated"])
        observation = self._check_observation(transition["observation"])
        final = self._check_observation(transition["next_observation"], "next_observation") if ended else None
        interval = int(transition["interval"])
        if interval < 0:
            raise ValueError(f"interval must be >= 0 frames, got {interval}")
        extras = self._check_extras(transition["extras"]) if self._check_extras else ()
        kind = TERMINAL if terminal else STEP
        self._append(observation, int(transition["action"]), float(transition["reward"]), interval, kind, extras)
        self.add_count += 1
        if final is not None:
            self._append(final, 0, 0.0, 0, FINAL)

    def cut(self, observation: Any) -> None:
        """End the running episode, if one runs, as a truncation would have; see `Replay.cut`."""
        final = self._check_observation(observation)
        if self._next_age:
            self._append(final, 0, 0.0, 0, FINAL)

    def _append(
        self,
        observation: list[npt.NDArray[Any]],
        action: int,
        reward: float,
        interval: int,
        kind: int,
        extras: Sequence[npt.NDArray[Any]] = (),
    ) -> None:
        """Write the next slot."""
        slot, age, capacity = self.head, self._next_age, self.capacity
        if slot >= capacity:
            self._forget(slot - capacity)
        position = slot % capacity
        # A loop over one array would take a tenth of the whole call.
        if len(observation) == 1:
            self.observation[0][position] = observation[0]
        else:
            for array, value in zip(self.observation, observation, strict=True):
                array[position] = value
        self.action[position] = action
        self.reward[position] = reward
        self.interval[position] = interval
        self.age[position] = age
        self.kind[position] = kind
        if self.extras:
            # A final slot has no decision: zeros, so that the columns hold no rest of an overwritten one.
            values: list[Any] = list(extras) or [0] * len(self.extras)
            for array, value in zip(self.extras, values, strict=True):
                array[position] = value
        self.head = slot + 1
        # The slot completes the transition n before it; a final slot those between as well, with what is left of them.
        if age >= self._horizon:
            self._make_valid(slot - self._horizon, self._horizon)
        if kind == FINAL:
            for steps in range(1, min(self._horizon - 1, age) + 1):
                self._make_valid(slot - steps, steps)
            self._next_age = 0
        else:
            self._next_age = age + 1

    def _make_valid(self, slot: int, steps: int) -> None:
        position = slot % self.capacity
        self.steps[position] = steps
        self.count += 1
        self.selector.became_valid(position)

    def _forget(self, oldest: int) -> None:
        """End the validity of every transition whose stack needs the slot that is about to be overwritten."""
        capacity, steps = self.capacity, self.steps
        age = self.age.item(oldest % capacity)
        # The first observation of an episode is in k stacks; of those with any other, only the newest is still valid.
        for later in range(0 if age == 0 else self._stack - 1, self._stack):
            position = (oldest + later) % capacity
            same_episode = self.age.item(position) == age + later
            if same_episode and steps.item(position):
                steps[position] = 0
                self.count -= 1
                self.selector.became_invalid(position)

    def clear(self) -> None:
        """Forget every slot."""
        self._begin_at(head=0, add_count=0, next_age=0)

    # Reading.

    def live_positions(self) -> Positions:
        """Return the positions of the live slots, oldest slot first."""
        return np.arange(self.oldest, self.head) % self.capacity

    def marks(self, positions: Positions) -> npt.NDArray[Any]:
        """Return `steps` at positions `[B]`: 0 where no valid transition begins."""
        return self.steps.take(positions)

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the slot numbers of all valid transitions `[count]`, ascending; reads the whole ring."""
        return np.sort(self.slots_at(np.flatnonzero(self.steps)))

    def slots_at(self, positions: Positions) -> npt.NDArray[np.int64]:
        """Return the number of the live slot at each position: the newest one that is not beyond the head."""
        return self.head - 1 - (self.head - 1 - positions) % self.capacity

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Return the position of each slot `[B]`, and whether the slot lives and a valid transition begins there."""
        positions = slots % self.capacity
        live = (slots >= self.oldest) & (slots < self.head)
        return positions, live & (self.steps.take(positions) > 0)

    def assemble(self, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Put the valid transitions at positions `[B]` together; see `Replay.sample`."""
        return self._assembler.assemble(self, positions, update_horizon)

    def _derive_steps(self) -> npt.NDArray[np.int64]:
        """Return the steps of every live slot, oldest first, from the stored slots alone."""
        positions = self.live_positions()
        age, order = self.age[positions], np.arange(len(positions))
        lost = self.kind[positions] == LOST
        begins = age == 0
        begins[1:] |= lost[:-1]
        starts = np.flatnonzero(begins)
        ends = np.append(starts, len(positions)) - 1  # newest slot of each run
        lengths = np.diff(ends, prepend=-1)
        begin, end = np.repeat(ends - lengths + 1, lengths), np.repeat(ends, lengths)
        # A run ends with the final observation or, without one, before another: it was under way in an older process.
        ended = (self.kind[positions] == FINAL) | np.append(~lost[1:], self._next_age == 0)[: len(positions)]
        complete = ended[end] | (end - order >= self._horizon)
        whole_stack = order - begin >= np.minimum(age, self._stack - 1)
        return np.where(complete & whole_stack & ~lost, np.minimum(end - order, self._horizon), 0)

    # Saving. A slot is an entry of the log, and never changes once it is written.

    def counters(self) -> dict[str, Any]:
        """Return what is not in the slots, as plain data."""
        return {"head": self.head, "add_count": self.add_count, "running": self._next_age > 0}

    def snapshot(self) -> Arrays:
        """Return nothing: all arrays are columns."""
        return {}

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Take over the counters, and derive what is valid from the slots that were put."""
        head = counters["head"]
        last = (head - 1) % self.capacity
        running = counters["running"] and self.kind[last] != LOST
        self._begin_at(head, counters["add_count"], int(self.age[last]) + 1 if running else 0)

    def end_running(self) -> None:
        """End the episode that is under way, if one is: its last observation is its final one."""
        if not self._next_age:
            return
        self._next_age = 0
        live, steps = self.live_positions(), self._derive_steps()
        for new in np.flatnonzero((self.steps[live] == 0) & (steps > 0)):
            self._make_valid(int(live[new]), int(steps[new]))

    def lose(self, first: int, stop: int) -> None:
        """Take note that the slots `first <= slot < stop` are lost."""
        positions = np.arange(first, stop) % self.capacity
        for array in self._columns.values():
            array[positions] = 0
        self.kind[positions] = LOST

    def names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._columns)

    def pieces(self, first: int) -> Iterator[Arrays]:
        """Yield the slots from `first` on as views, cut so that none crosses the end of the arrays."""
        while first < self.head:
            start = first % self.capacity
            stop = min(start + _PIECE, self.capacity, start + self.head - first)
            yield {name: array[start:stop] for name, array in self._columns.items()}
            first += stop - start

    def put(self, first: int, piece: Arrays) -> int:
        """Write the slots from `first` on; return how many."""
        count = len(piece["kind"])
        positions = np.arange(first, first + count) % self.capacity
        for name, array in self._columns.items():
            array[positions] = piece[name]
        return count

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments that hold a live slot."""
        return [segment for segment in listed if segment.stop > self.oldest]


# The reservoir: a uniform sample of all transitions ever observed, not the newest ones.

_WHICH = ("", "next_")  # before "observation": the two of a transition
_NUMBERS: Mapping[str, Any] = {
    "action": np.int64,
    "reward": np.float32,
    "discount": np.float32,
    "interval": np.int64,
    "index": np.int64,
}


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

    oldest = 0  # no entry before this one is live; any may be
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
        self.schema, self.capacity, self._batch_size = schema, capacity, batch_size
        # The final slot of an episode completes all of its last n transitions at once, and the small ring holds them.
        self._ring = Ring(schema, assembler, capacity=max(2, horizon + 2))
        self._ring.selector = Selector()  # nobody draws from it
        columns = {
            **{f"{which}{name}": column for which in _WHICH for name, column in schema.observation.columns.items()},
            **{name: Column((), np.dtype(dtype)) for name, dtype in _NUMBERS.items()},
            **(schema.extras.columns if schema.extras else {}),
        }
        self._columns: Arrays = {name: np.zeros((capacity, *shape), dtype) for name, (shape, dtype) in columns.items()}
        # The entry of the log that was written last at each place; -1 for none.
        self._columns["entry"] = self._entry = np.zeros(capacity, np.int64)
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self.clear()

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._ring.add_count

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the reservoir is full."""
        return sum(array.nbytes for array in self._columns.values())

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {**self._ring.facts(), "capacity": self.capacity, "eviction": "reservoir"}

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

    def _by_column(self, batch: Mapping[str, Any]) -> Arrays:
        """Return what a batch of stacks of one observation brings for each column, `[B, *shape]`."""
        observation, extras = self.schema.observation, self.schema.extras
        arrived: Arrays = {name: batch[name] for name in _NUMBERS}
        for which in _WHICH:
            stacks = observation.flatten(batch[f"{which}observation"])
            arrived |= {f"{which}{name}": stack[:, 0] for name, stack in zip(observation.columns, stacks, strict=True)}
        if extras:
            arrived |= zip(extras.columns, extras.flatten(batch["extras"]), strict=True)
        return arrived

    def _write(self, place: int, arrived: Arrays, row: int) -> None:
        if place == self.written:
            self.written += 1
            self.count += 1
        elif self._entry.item(place) < 0:
            self.count += 1
        else:
            self.selector.became_invalid(place)
        for name, values in arrived.items():
            self._columns[name][place] = values[row]
        self._entry[place] = self.head
        self.head += 1
        self.selector.became_valid(place)

    def clear(self) -> None:
        """Forget every transition; the generator of the eviction goes on from where it is."""
        self.head = self.written = self.count = 0
        self._completed = 0  # transitions whose steps are complete, kept or not
        self._last_slot = -1
        self._entry.fill(-1)
        self._ring.clear()

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
        return np.sort(self._columns["index"][self.live_positions()])

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Refuse to find transitions by their index: where each went is not kept.

        Raises:
            ValueError: always.
        """
        raise ValueError("a reservoir finds no transition by its index, use eviction='oldest' for that")

    def assemble(self, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Return the transitions at places `[B]` with stacks of one observation, `[B, 1, *shape]`."""
        observation, extras = self.schema.observation, self.schema.extras
        batch: dict[str, Any] = {}
        for which in _WHICH:
            columns = [self._columns[f"{which}{name}"] for name in observation.columns]
            batch[f"{which}observation"] = observation.nest([each.take(positions, axis=0)[:, None] for each in columns])
        for name in _NUMBERS:
            batch[name] = self._columns[name].take(positions)
        if extras:
            batch["extras"] = extras.nest([self._columns[name].take(positions, axis=0) for name in extras.columns])
        return batch

    # Saving. Transitions that are written over each other make a log: an entry is one of them and the place it went to.

    def counters(self) -> dict[str, Any]:
        """Return what is not in the entries, as plain data."""
        newest = {**self._ring.counters(), "transitions": self._ring.count, "first": self._ring.oldest}
        return {
            "head": self.head,
            "completed": self._completed,
            "last_slot": self._last_slot,
            "eviction_generator": self._rng.bit_generator.state,
            # The files describe the small ring as a replay, and a replay has a generator, which here draws nothing.
            "newest": {
                "facts": {**self._ring.facts(), "batch_size": self._batch_size},
                "generator": np.random.PCG64(0).state,
                **newest,
            },
        }

    def snapshot(self) -> Arrays:
        """Return the newest slots, and the entry at each place: where its file is lost, no older one passes for it."""
        slots = joined(self._ring.pieces(self._ring.oldest))
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
        self._ring.clear()
        if slots:
            self._ring.put(counters["newest"]["first"], slots)
        self._ring.restore(counters["newest"], {})

    def end_running(self) -> None:
        """End the episode that is under way, if one is: its last observation is its final one."""
        self._ring.end_running()
        self._take_complete()

    def lose(self, first: int, stop: int) -> None:
        """Take note that the entries `first <= entry < stop` are lost."""
        self._entry[(self._entry >= first) & (self._entry < stop)] = -1

    def names(self) -> list[str]:
        """Return the names of what an entry holds."""
        return ["place", *self._columns]

    def pieces(self, first: int) -> Iterator[Arrays]:
        """Yield the entries from `first` on that no later one was written over, oldest first."""
        places = self.live_positions()
        places = places[self._entry[places] >= first]
        for start in range(0, len(places), _PIECE):
            chosen = places[start : start + _PIECE]
            yield {"place": chosen, **{name: array[chosen] for name, array in self._columns.items()}}

    def put(self, first: int, piece: Arrays) -> int:
        """Write entries; return how many."""
        for name, array in self._columns.items():
            array[piece["place"]] = piece[name]
        return len(piece["place"])

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments that stay in use: all, until most entries are dead and what lives is written anew."""
        return listed if sum(segment.size for segment in listed) <= 2 * self.nbytes else []


def joined(pieces: Iterable[Arrays]) -> Arrays:
    """Return the entries of all pieces in one, copied; nothing where there is no piece."""
    each = list(pieces)
    return {name: np.concatenate([piece[name] for piece in each]) for name in each[0]} if each else {}
