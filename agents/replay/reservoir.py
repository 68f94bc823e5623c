"""A replay memory that keeps a uniform sample of all transitions ever observed, not the newest ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agents.replay.log.saved import SavedReplay
from agents.replay.log.segments import Arrays, Segment
from agents.replay.observations import ObservationArrays
from agents.replay.ring import RingReplay

_PIECE = 4096  # transitions that go to or come from a file at a time, which bounds the memory a load needs


class ReservoirReplay(SavedReplay):
    """Uniform replay over a reservoir (Vitter 1985, "Random sampling with a reservoir", Algorithm R).

    Once `capacity` transitions are kept, the i-th takes the place of a random one with the probability capacity / i,
    and is dropped otherwise: every transition so far is kept with the same probability.

    A transition's neighbours may be gone, so it is kept whole, its n steps summed up, both of its observations beside
    each other: twice the memory of a ring of as many, 14.2 GB for a million 84 x 84 images, and no stacks.
    """

    _last_slot: int  # the newest transition whose steps are complete, as the small ring counts

    def __init__(
        self,
        observation_shape: Any,
        observation_dtype: Any,
        *,
        capacity: int = 1_000_000,
        stack_size: int = 1,
        update_horizon: int = 1,
        gamma: float = 0.99,
        discount_by: Literal["decision", "frame"] = "decision",
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        """Makes an empty reservoir.

        Args:
            observation_shape: as in `RingReplay`.
            observation_dtype: as in `RingReplay`.
            capacity: transitions kept.
            stack_size: must be 1.
            update_horizon: decisions in a return, n.
            gamma: discount of one decision or one frame, in [0, 1].
            discount_by: what `gamma` discounts, a "decision" or a "frame".
            batch_size: transitions in a sample unless `sample` is told otherwise.
            seed: seed of the sampling and of the eviction, which draw from generators of their own.

        Raises:
            ValueError: an argument is out of its range.
        """
        if stack_size != 1:
            raise ValueError(f"stack_size must be 1 in a reservoir, where neighbours go missing, got {stack_size}")
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1 transition, got {capacity}")
        # A small ring sums up the steps; it holds what the last observation of an episode can complete at once.
        self._newest = RingReplay(
            observation_shape,
            observation_dtype,
            capacity=max(2, update_horizon + 2),
            update_horizon=update_horizon,
            gamma=gamma,
            discount_by=discount_by,
            batch_size=batch_size,
        )
        self._capacity, self._batch_size = capacity, batch_size
        self._observation = ObservationArrays(observation_shape, observation_dtype, capacity)
        self._next_observation = ObservationArrays(observation_shape, observation_dtype, capacity)
        self._scalars: Arrays = {
            "action": np.zeros(capacity, np.int64),
            "reward": np.zeros(capacity, np.float32),
            "discount": np.zeros(capacity, np.float32),
            "interval": np.zeros(capacity, np.int64),
            "index": np.zeros(capacity, np.int64),
        }
        self._entry = np.zeros(capacity, np.int64)  # that was written last at each place; -1 for none
        self._fields: Arrays = {
            **self._observation.fields("observation"),
            **self._next_observation.fields("next_observation"),
            **self._scalars,
            "entry": self._entry,
        }
        sampling, eviction = np.random.SeedSequence(seed).spawn(2)
        self._rng, self._eviction_rng = (np.random.Generator(np.random.PCG64(each)) for each in (sampling, eviction))
        self.clear()

    def __len__(self) -> int:
        """Number of transitions kept."""
        return self._filled - self._holes

    @property
    def _filled(self) -> int:
        """Places that have been written to, those whose transition was lost with a damaged file included."""
        return min(self._completed, self._capacity)

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._newest.add_count

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the reservoir is full."""
        return sum(array.nbytes for array in self._fields.values())

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Takes one transition, as `RingReplay.observe`; it can be drawn once its n steps are complete.

        Raises:
            KeyError: a key is missing.
            ValueError: an observation has another shape or kind than the replay's, or the interval is negative.
        """
        self._newest.observe(transition)
        self._take_complete()

    def cut(self, observation: Any) -> None:
        """Ends the running episode, as `RingReplay.cut`."""
        self._newest.cut(observation)
        self._take_complete()

    def _take_complete(self) -> None:
        slots = self._newest.valid_slots()
        complete = slots[slots > self._last_slot]
        if not complete.size:
            return
        self._last_slot = int(complete[-1])
        batch = self._newest.transitions(complete)
        for row in range(len(complete)):
            place = self._completed
            if self._completed >= self._capacity:
                place = self._eviction_rng.integers(self._completed + 1).item()
            if place < self._capacity:
                self._holes -= place < self._filled and self._entry.item(place) < 0
                self._write(place, batch, row)
            self._completed += 1

    def _write(self, place: int, batch: Mapping[str, Any], row: int) -> None:
        for name, arrays in (("observation", self._observation), ("next_observation", self._next_observation)):
            for array, stacks in zip(arrays.arrays, arrays.flat(batch[name]), strict=True):
                array[place] = stacks[row, 0]
        for name, array in self._scalars.items():
            array[place] = batch[name][row]
        self._entry[place] = self._head
        self._head += 1

    def sample(self, batch_size: int | None = None) -> dict[str, Any]:
        """Draws transitions independently and uniformly from those kept.

        Args:
            batch_size: number of transitions B, by default the constructor's.

        Returns:
            As `RingReplay.sample`, with stacks of one observation; "index" numbers the slots that a ring would fill.

        Raises:
            ValueError: no transition is complete yet, or `batch_size` is less than 1.
        """
        batch_size = self._batch_size if batch_size is None else batch_size
        if batch_size < 1:
            raise ValueError(f"batch_size must be >= 1 transition, got {batch_size}")
        if not len(self):
            raise ValueError("the replay holds no valid transition yet, observe more before sampling")
        places = self._rng.integers(self._filled, size=batch_size)
        while self._holes and (holes := np.flatnonzero(self._entry.take(places) < 0)).size:
            places[holes] = self._rng.integers(self._filled, size=holes.size)
        scalars = {name: array.take(places) for name, array in self._scalars.items()}
        return {
            "observation": _take(self._observation, places),
            "next_observation": _take(self._next_observation, places),
            **scalars,
        }

    # Checkpointing. What is written over what is a log: an entry is a transition and the place it went to.

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without the seed."""
        return {**self._newest.facts(), "capacity": self._capacity, "eviction": "reservoir"}

    def _oldest(self) -> int:
        return 0

    def clear(self) -> None:
        """Forgets every transition; the generators go on from where they are."""
        self._head = 0
        self._completed = 0  # transitions whose steps are complete, kept or not
        self._holes = 0  # places of which a damaged file has taken the transition
        self._last_slot = -1
        self._entry.fill(-1)
        self._newest.clear()
        self._segments: list[Segment] = []

    def _names(self) -> list[str]:
        return ["place", *self._fields]

    def _pieces(self, first: int) -> Iterator[Arrays]:
        entry = self._entry[: self._filled]
        places = np.argsort(entry)
        places = places[entry[places] >= first]
        for start in range(0, len(places), _PIECE):
            chosen = places[start : start + _PIECE]
            yield {"place": chosen, **{name: array[chosen] for name, array in self._fields.items()}}

    def _lose(self, first: int, stop: int) -> None:
        self._entry[(self._entry >= first) & (self._entry < stop)] = -1

    def _end_running(self) -> None:
        self._newest._end_running()
        self._take_complete()

    def _put(self, first: int, piece: Arrays) -> int:
        for name, array in self._fields.items():
            array[piece["place"]] = piece[name]
        return len(piece["place"])

    def _still_listed(self, listed: list[Segment]) -> list[Segment]:
        # Any segment may hold a live entry; when most are dead, all that live are written anew.
        return listed if sum(segment.size for segment in listed) <= 2 * self.nbytes else []

    def _moment(self) -> Arrays:
        """The newest slots, and which entry each place holds: without its file, an older one is not taken for it."""
        slots: Arrays = self._newest.state_dict()["slots"]
        return {**slots, "held": self._entry[: self._filled]} if slots else {}

    def _counters(self) -> dict[str, Any]:
        newest = self._newest.state_dict()
        return {
            "facts": self.facts(),
            "head": self._head,
            "completed": self._completed,
            "last_slot": self._last_slot,
            "generator": self._rng.bit_generator.state,
            "eviction_generator": self._eviction_rng.bit_generator.state,
            "newest": {name: newest[name] for name in newest if name not in ("slots", "moment")},
        }

    def _restore(self, counters: Mapping[str, Any], moment: Arrays) -> None:
        self._head, self._completed = counters["head"], counters["completed"]
        self._last_slot = counters["last_slot"]
        self._rng.bit_generator.state = counters["generator"]
        self._eviction_rng.bit_generator.state = counters["eviction_generator"]
        slots = dict(moment)
        entry, held = self._entry[: self._filled], slots.pop("held", self._entry[:0])
        entry[entry != held] = -1
        self._holes = int(np.count_nonzero(entry < 0))
        self._newest.load_state_dict({**counters["newest"], "slots": slots, "moment": {}})


def _take(observations: ObservationArrays, places: npt.NDArray[np.int64]) -> Any:
    """Stacks of one `[B, 1, *shape]`."""
    return observations.nest([array.take(places, axis=0)[:, None] for array in observations.arrays])
