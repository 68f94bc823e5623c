"""Selectors: the choice of a batch's transitions among those that can be drawn.

A storage calls its selector whenever a transition becomes valid (it can be drawn from now on) or invalid (it is gone).
From these two calls a selector keeps what it needs: nothing (`Uniform`), a tree of priorities (`Prioritized`), a queue
of positions, a score for each. When a batch is wanted it returns positions, and further arrays about the choice for the
learner, such as importance weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.spaces.schema import Arrays

if TYPE_CHECKING:
    from async_wrappers.agents.replay.log import Log

Positions = npt.NDArray[np.int64]

_LARGEST = 1e290  # a priority: the sum of as many as fit into memory is finite
_NO_PRIORITIES = "priorities are for a prioritised replay, and this one draws uniformly"


class Selector:
    """Chooses positions of a storage, and keeps the state that it needs for that: none, unless a subclass has some.

    It reads the storage's `capacity`, `written`, `count`, `written_positions`, `marks` and `live_positions`.

    The generator is the replay's, and no part of a selector's state.
    """

    _storage: Log

    def attach(self, storage: Log) -> None:
        """Take a storage to choose from, in which nothing is valid yet."""
        self._storage = storage

    def became_valid(self, position: int) -> None:
        """Called when a transition becomes drawable; its columns are written already."""

    def became_invalid(self, position: int) -> None:
        """Called when a transition is gone."""

    def all_became_valid(self, positions: Positions, priority: npt.NDArray[np.float64] | None = None) -> None:
        """Called when transitions become drawable, one after the other.

        Args:
            positions: where they begin, `[B]`, distinct.
            priority: their first priorities from an actor, `[B]`, checked by `check_entering`; NaN for those without,
                None if none has any.
        """
        for position in positions.tolist():
            self.became_valid(position)

    def all_became_invalid(self, positions: Positions) -> None:
        """Called when the transitions at positions `[B]` are gone."""
        for position in positions.tolist():
            self.became_invalid(position)

    def check_entering(self, priority: npt.NDArray[np.float64]) -> None:
        """Check transitions' first priorities, NaN for none, before anything is stored.

        Raises:
            ValueError: one is out of its range, or the selector has none.
        """
        raise ValueError(_NO_PRIORITIES)

    def draw(
        self, rng: np.random.Generator, batch_size: int, importance_exponent: float | None = None
    ) -> tuple[Positions, Arrays]:
        """Choose a batch; at least one transition is valid.

        Returns:
            Positions `[B]` of valid transitions, and further arrays `[B, ...]` for the batch, by name.
        """
        raise NotImplementedError

    def set_priorities(
        self, positions: Positions, priority: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_]
    ) -> None:
        """Set the priorities that a learner has computed.

        Args:
            positions: where the transitions lie, `[B]`; of one given twice the last priority stays.
            priority: `[B]`.
            valid: `[B]`; False where the transition is gone: its position holds another one now.

        Raises:
            ValueError: a priority is out of its range, or the selector has none; nothing is changed then.
        """
        raise ValueError(_NO_PRIORITIES)

    def clear(self) -> None:
        """Forget every transition."""

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the storage is full."""
        return self.nbytes_at(self._storage.capacity)

    def nbytes_at(self, capacity: int) -> int:
        """Return the bytes that all arrays would take for a full storage of this number of positions."""
        return 0

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {}

    def counters(self) -> dict[str, Any]:
        """Return the plain data of the state, for `restore`."""
        return {}

    def snapshot(self) -> Arrays:
        """Return the arrays of the state, for `restore`; they may be views."""
        return {}

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Continue where `counters` and `snapshot` were taken; the storage has been restored already."""


class Uniform(Selector):
    """Every valid transition is drawn with the probability 1 / N, independently (Mnih et al. 2015, Algorithm 1)."""

    def all_became_valid(self, positions: Positions, priority: npt.NDArray[np.float64] | None = None) -> None:
        """Keep nothing: a draw reads the storage's marks."""

    def all_became_invalid(self, positions: Positions) -> None:
        """Keep nothing: a draw reads the storage's marks."""

    def draw(
        self, rng: np.random.Generator, batch_size: int, importance_exponent: float | None = None
    ) -> tuple[Positions, Arrays]:
        """See `Selector`.

        Raises:
            ValueError: an importance exponent is given, for uniform draws have no weights.
        """
        if importance_exponent is not None:
            refuse("equal draws", {"importance_exponent": importance_exponent})
        storage = self._storage
        written = storage.written
        positions = storage.written_positions(rng.integers(written, size=batch_size))
        if storage.count == written or storage.marks(positions).all():
            return positions, {}
        # Drawing anew what is not valid leaves each draw uniform over the valid positions.
        while (rejected := np.flatnonzero(storage.marks(positions) == 0)).size:
            positions[rejected] = storage.written_positions(rng.integers(written, size=rejected.size))
        return positions, {}


class Distinct(Selector):
    """Every set of B valid transitions is drawn with the same probability: none comes twice in a batch."""

    def draw(
        self, rng: np.random.Generator, batch_size: int, importance_exponent: float | None = None
    ) -> tuple[Positions, Arrays]:
        """See `Selector`.

        Raises:
            ValueError: fewer than B are valid.
        """
        live = self._storage.live_positions()
        live = live[self._storage.marks(live) != 0]
        if len(live) < batch_size:
            raise ValueError(f"batch_size must be <= {len(live)}, what can be drawn without repeats, got {batch_size}")
        return rng.choice(live, batch_size, replace=False), {}

    def facts(self) -> dict[str, Any]:
        return {"with_replacement": False}


class Prioritized(Selector):
    """Prioritised experience replay (Schaul et al. 2016).

    A valid transition i is drawn with the probability P(i) = p_i^alpha / sum_k p_k^alpha (equation 1). It enters with
    the largest priority ever given, 1 before any, so that each is drawn soon, or with its actor's (Horgan et al. 2018,
    "Distributed Prioritized Experience Replay", section 3). Later the learner sets its priority by its loss
    (`set_priorities`). The values p^alpha lie in a `SumTree`, 0 where nothing is valid.

    Each drawn transition has the importance weight w_i = (N P(i))^-beta / max_j w_j (section 3.4): the expected
    gradient is that of uniform draws at beta = 1.

    Dopamine's Rainbow is alpha = 1, beta = 0.5 and the priority loss ** 0.5.

    Args:
        priority_exponent: alpha, in [0, 1]; 0 draws all with equal probability, a transition of priority 0 too.
        importance_exponent: beta of the weights, in [0, 1]; 1 corrects the bias in full.
        sampling: "stratified" cuts the sum of all p^alpha into B equal ranges and draws once from each (Appendix
            B.2.1); "iid" draws B times from the whole.

    Raises:
        ValueError: an argument is out of its range.
    """

    _tree: SumTree

    def __init__(
        self,
        *,
        priority_exponent: float = 1.0,
        importance_exponent: float = 0.5,
        sampling: Literal["stratified", "iid"] = "stratified",
    ) -> None:
        _in_unit_interval("priority_exponent", priority_exponent)
        _in_unit_interval("importance_exponent", importance_exponent)
        if sampling not in ("stratified", "iid"):
            raise ValueError(f"sampling must be 'stratified' or 'iid', got {sampling!r}")
        self._priority_exponent, self._importance_exponent = priority_exponent, importance_exponent
        self._sampling = sampling
        self._largest_priority = 1.0

    def attach(self, storage: Log) -> None:
        super().attach(storage)
        self._tree = SumTree(storage.capacity)

    def became_valid(self, position: int) -> None:
        """Set its priority to the largest one so far."""
        self._tree.set(position, self._largest_priority**self._priority_exponent)

    def became_invalid(self, position: int) -> None:
        """Set its priority to 0, so that it is never drawn."""
        self._tree.set(position, 0.0)

    def all_became_valid(self, positions: Positions, priority: npt.NDArray[np.float64] | None = None) -> None:
        """Let each enter with its own priority or, where that is NaN, with the largest so far."""
        if priority is None:
            self._tree.set(positions, self._largest_priority**self._priority_exponent)
            return
        without = np.isnan(priority)
        largest = np.maximum.accumulate(np.append(self._largest_priority, np.where(without, 0.0, priority)))
        value = priority**self._priority_exponent
        # As `became_valid` computes it: NumPy's power of an array may round otherwise.
        for each in np.unique(largest[1:][without]).tolist():
            value[without & (largest[1:] == each)] = each**self._priority_exponent
        self._tree.set(positions, value)
        self._largest_priority = largest.item(-1)

    def all_became_invalid(self, positions: Positions) -> None:
        """Let none of them ever be drawn."""
        self._tree.set(positions, 0.0)

    def check_entering(self, priority: npt.NDArray[np.float64]) -> None:
        if (given := priority[~np.isnan(priority)]).size:
            _largest(given)

    def draw(
        self, rng: np.random.Generator, batch_size: int, importance_exponent: float | None = None
    ) -> tuple[Positions, Arrays]:
        """Choose by priority, with replacement.

        Returns:
            Positions `[B]`; "probability" float64 `[B]`, P(i), and "weight" float32 `[B]`, in (0, 1].

        Raises:
            ValueError: every priority is 0, or the exponent is out of its range.
        """
        beta = self._importance_exponent if importance_exponent is None else importance_exponent
        _in_unit_interval("importance_exponent", beta)
        total = self._tree.total
        if total == 0.0:
            raise ValueError("every priority is 0, so nothing can be drawn, add a small constant to the priorities")
        share = rng.random(batch_size)
        if self._sampling == "stratified":
            share = (np.arange(batch_size) + share) / batch_size
        positions = self._tree.find(share * total)
        value = self._tree.leaves.take(positions)
        # N and the sum of all values are the same in every weight, and cancel in the ratio to the largest weight.
        weight = ((value.min() / value) ** beta).astype(np.float32)
        return positions, {"probability": value / total, "weight": weight}

    def set_priorities(
        self, positions: Positions, priority: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_]
    ) -> None:
        """See `Selector`; the priorities of transitions that are gone count for the largest one, too.

        Raises:
            ValueError: a priority is NaN, infinite, negative or beyond 1e290; nothing is changed then.
        """
        largest = _largest(priority)
        value = priority**self._priority_exponent
        if not valid.all():
            positions, value = positions[valid], value[valid]
        self._tree.set(positions, value)
        self._largest_priority = max(self._largest_priority, largest)

    def clear(self) -> None:
        self._tree.clear()
        self._largest_priority = 1.0

    def nbytes_at(self, capacity: int) -> int:
        """Return the bytes of a tree of this number of leaves."""
        return SumTree(capacity).nbytes  # its pages are zeroed, and take no memory before they are written

    def facts(self) -> dict[str, Any]:
        return {
            "priority_exponent": self._priority_exponent,
            "importance_exponent": self._importance_exponent,
            "sampling": self._sampling,
        }

    def counters(self) -> dict[str, Any]:
        return {"largest_priority": self._largest_priority}

    def snapshot(self) -> Arrays:
        """Return the values p^alpha in the tree, oldest entry first."""
        return {"value": self._tree.leaves.take(self._storage.live_positions())}

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        self._tree.set(self._storage.live_positions(), snapshot["value"])
        self._largest_priority = counters["largest_priority"]


SELECTORS: Mapping[str, Callable[..., Selector]] = {"uniform": Uniform, "prioritized": Prioritized}


def _largest(priority: npt.NDArray[np.float64]) -> float:
    """Return the largest of some priorities; refuse any that is out of range."""
    largest: float = priority.max().item()
    # Written so that a NaN, which compares false with everything, is refused.
    if not (priority.min() >= 0.0 and largest <= _LARGEST):
        wrong = priority[~((priority >= 0.0) & (priority <= _LARGEST))].flat[0]
        raise ValueError(f"priority must be finite, >= 0 and <= {_LARGEST:g}, got {wrong}")
    return largest


def _in_unit_interval(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")


# A sum tree: values are drawn in proportion to their size.


class SumTree:
    """A sum tree (Schaul et al. 2016, Appendix B.2.1) of a wide fan-out, walked level by level for a whole batch.

    A node is computed from the values below it, never corrected by a difference: the tree is a function of its leaves,
    whatever was set before, so rounding errors do not pile up and the leaves alone are its state. Nodes are computed
    when they are first needed, all that changed since at once. A level costs the same few NumPy calls for 1 or 512
    leaves, so there are few: with a fan-out of 32, two for a million leaves, below one running sum.
    """

    def __init__(self, capacity: int, *, fan_out: int = 32, top: int = 4096) -> None:
        """Make a tree whose values are all 0.

        Args:
            capacity: leaves.
            fan_out: values under a node. By default few levels, each a handful of NumPy calls however many leaves.
            top: nodes without one above; a running sum over so many is faster than a further level.
        """
        self._capacity, self._fan_out = capacity, fan_out
        nodes = -(-capacity // fan_out)
        self._levels = [np.zeros(nodes * fan_out)]
        self._stale = np.zeros(nodes, bool)  # blocks of leaves with a value set since the nodes above were computed
        while nodes > top:
            nodes = -(-nodes // fan_out)
            self._levels.append(np.zeros(nodes * fan_out))
        self._top = np.zeros(nodes)
        self._running = np.zeros(nodes + 1)  # sums of the top's first 0, 1, 2, ... nodes
        self._fresh = True

    @property
    def total(self) -> float:
        """The sum of all values."""
        self._refresh()
        return self._running.item(-1)

    @property
    def leaves(self) -> npt.NDArray[np.float64]:
        """All values, float64 `[capacity]`: a view that must not be written to."""
        return self._levels[0][: self._capacity]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = [*self._levels, self._top, self._running, self._stale]
        return sum(array.nbytes for array in arrays)

    def clear(self) -> None:
        """Set every value to 0."""
        for array in (*self._levels, self._top, self._running):
            array.fill(0.0)
        self._stale.fill(False)
        self._fresh = True

    def set(self, index: npt.NDArray[np.int64] | int, value: npt.NDArray[np.float64] | float) -> None:
        """Set values, one or many.

        Args:
            index: leaves `[B]`, or one; of a leaf given twice the last value stays.
            value: `[B]`, or one; finite, >= 0, and small enough for a finite sum.
        """
        self._levels[0][index] = value
        self._stale[index // self._fan_out] = True
        self._fresh = False

    def find(self, mass: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Find the leaves at which the running sum of the values passes `mass`.

        Args:
            mass: float64 `[B]` in [0, total); the total must be positive.

        Returns:
            int64 `[B]`: the first leaf i with v_0 + ... + v_i > mass. Its value is positive, however sums are rounded.
        """
        self._refresh()
        mass = np.minimum(mass, np.nextafter(self._running[-1], 0.0))
        node = self._running[1:].searchsorted(mass, side="right")
        mass -= self._running.take(node)
        rows = np.arange(len(mass))
        for level in reversed(self._levels):
            running = np.zeros((len(mass), self._fan_out + 1))
            sums = running[:, 1:]
            level.reshape(-1, self._fan_out).take(node, axis=0).cumsum(axis=1, out=sums)
            # The node above was summed in another order, so the mass left may lie a rounding beyond the block's sum.
            np.minimum(mass, np.nextafter(sums[:, -1], 0.0), out=mass)
            child = (sums > mass[:, None]).argmax(axis=1)
            mass -= running[rows, child]
            node = node * self._fan_out + child
        return node

    def _refresh(self) -> None:
        """Compute every node above a value that was set since the last time."""
        if self._fresh:
            return
        blocks = np.flatnonzero(self._stale)
        self._stale[blocks] = False
        for below, above in pairwise([*self._levels, self._top]):
            above[blocks] = below.reshape(-1, self._fan_out).take(blocks, axis=0).sum(axis=1)
            blocks = blocks // self._fan_out
        self._top.cumsum(out=self._running[1:])
        self._fresh = True
