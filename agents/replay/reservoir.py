"""The reservoir: a uniform sample of all transitions ever observed, not the newest ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.replay.log import PlacedLog, blank_columns, row_bytes
from async_wrappers.agents.replay.n_step import NStep
from async_wrappers.agents.replay.ring import Ring
from async_wrappers.agents.replay.segments import Segment, joined
from async_wrappers.agents.replay.selectors import Positions, Selector
from async_wrappers.agents.spaces.schema import Arrays, Column, TransitionSchema

_WHICH = ("", "next_")  # before "observation": the two of a transition
_NUMBERS: Mapping[str, Any] = {
    "reward": np.float32,
    "discount": np.float32,
    "interval": np.int64,
    "index": np.int64,
}


class Reservoir(PlacedLog):
    """A reservoir of transitions (Vitter 1985, "Random sampling with a reservoir", Algorithm R).

    Once `capacity` transitions are kept, the i-th replaces a random one with the probability capacity / i, and is
    dropped otherwise: every transition so far is kept with the same probability.

    A transition's neighbours may be gone, so it is put together before it is stored, not when it is drawn: its n
    decisions are summed up, and both of its observations lie beside each other. That takes twice the memory of a ring
    of as many, 14.2 GB for a million 84 x 84 images, and rules out stacks.

    Args:
        schema: the fields of a transition.
        assembler: puts transitions together; its stacks must be of 1.
        capacity: transitions kept.
        batch_size: as the replay's; the files record it of the small ring too, in which transitions become complete.
        seed: of the eviction.

    Attributes:
        schema: as given.
        capacity: as given.
        head: transitions ever written, each an entry of the log.
        written: places that have been written to, those whose transition 0.1.0 lost with a damaged file included.
        count: transitions that are kept.

    Raises:
        ValueError: an argument is out of its range.
    """

    oldest = 0  # no entry before this one is live; any may be
    count = written = 0
    _last_slot: int  # the newest transition whose steps are complete, by its slot in the small ring

    def __init__(
        self,
        schema: TransitionSchema,
        assembler: NStep,
        capacity: int = 1_000_000,
        *,
        batch_size: int = 32,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        stack, horizon = assembler.stack_size, assembler.update_horizon
        window = None if assembler.reach <= 1 else assembler.reach - 1
        refuse("missing neighbours", {"stack_size": stack, "action_window": window})
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1 transition, got {capacity}")
        self.schema, self.capacity, self._batch_size = schema, capacity, batch_size
        # The final slot of an episode completes all of its last n transitions at once, and the small ring holds them.
        self._ring = Ring(schema, assembler, capacity=max(2, horizon + 2))
        self._ring.selector = Selector()  # nothing is drawn from it
        self._columns = blank_columns(capacity, self._columns_of(schema))
        self.number = self._columns["entry"]  # of the transition that was written last at each place
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self.clear()

    @staticmethod
    def _columns_of(schema: TransitionSchema) -> dict[str, Column]:
        return {
            **{f"{which}{name}": column for which in _WHICH for name, column in schema.observation.columns.items()},
            "action": schema.action,
            **{name: Column((), np.dtype(dtype)) for name, dtype in _NUMBERS.items()},
            **(schema.extras.columns if schema.extras else {}),
            "entry": Column((), np.dtype(np.int64)),
        }

    @staticmethod
    def slot_bytes(schema: TransitionSchema) -> int:
        """Return the bytes of a place: `nbytes` is as many for each transition."""
        return row_bytes(Reservoir._columns_of(schema))

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._ring.add_count

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {**self._ring.facts(), "capacity": self.capacity, "eviction": "reservoir"}

    # Writing.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        """Take one transition, which can be drawn once its n decisions are complete; see `Replay.observe`."""
        self._ring.observe(transition, env_id)
        self._take_complete()

    def extend(self, block: Mapping[str, Any]) -> None:
        """Take the transition of one environment, or of none; see `Replay.extend`."""
        self._ring.extend(block)
        self._take_complete()

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End the running episode; see `Replay.cut`."""
        self._ring.cut(observation, env_id)
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
        """Return the columns of a batch of stacks of one observation, `[B, *shape]` each."""
        observation, extras = self.schema.observation, self.schema.extras
        arrived: Arrays = {name: batch[name] for name in ("action", *_NUMBERS)}
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
        elif self.number.item(place) < 0:
            self.count += 1
        else:
            self.selector.became_invalid(place)
        for name, values in arrived.items():
            self._columns[name][place] = values[row]
        self.number[place] = self.head
        self.head += 1
        self.selector.became_valid(place)

    def clear(self) -> None:
        """Forget every transition; the generator of the eviction continues from where it is."""
        self.head = self.written = self.count = 0
        self._completed = 0  # transitions whose steps are complete, kept or not
        self._last_slot = -1
        self.number.fill(-1)
        self._ring.clear()

    # Reading.

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the index of every transition that is kept, ascending."""
        return np.sort(self._columns["index"][self.live_positions()])

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Refuse to find transitions by their index, since their places are not kept.

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
        for name in ("action", *_NUMBERS):
            batch[name] = self._columns[name].take(positions, axis=0)
        if extras:
            batch["extras"] = extras.nest([self._columns[name].take(positions, axis=0) for name in extras.columns])
        return batch

    # Saving. Transitions that are written over each other make a log: an entry is one of them and the place it went to.

    def counters(self) -> dict[str, Any]:
        """Return the data that is not in the entries, as plain data."""
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
        """Return the newest slots, and the entry at each place, without those that 0.1.0 lost with damaged files."""
        slots = joined(self._ring.pieces(self._ring.oldest))
        return {**slots, "held": self.number[: self.written]} if slots else {}

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Load the counters and the small ring."""
        self.head, self._completed = counters["head"], counters["completed"]
        self.written = min(self._completed, self.capacity)
        self._last_slot = counters["last_slot"]
        self._rng.bit_generator.state = counters["eviction_generator"]
        slots = dict(snapshot)
        entry, held = self.number[: self.written], slots.pop("held", self.number[:0])
        entry[entry != held] = -1
        self.count = int(np.count_nonzero(entry >= 0))
        self._ring.clear()
        if slots:
            self._ring.put(counters["newest"]["first"], slots)
        self._ring.restore(counters["newest"], {})

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End the running episode, if there is one: its last observation is its final one."""
        self._ring.end_running(env_ids)
        self._take_complete()

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments that stay in use: all, until most entries are dead and the live ones are rewritten."""
        return listed if sum(segment.size for segment in listed) <= 2 * self.nbytes else []
