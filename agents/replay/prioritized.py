"""Prioritised experience replay: transitions are drawn as often as their priority says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agents.replay.log.segments import Arrays
from agents.replay.ring import RingReplay
from agents.replay.sum_tree import SumTree

_LARGEST = 1e290  # a priority: the sum of as many as fit into memory is finite


class PrioritizedReplay(RingReplay):
    """Prioritised experience replay (Schaul et al. 2016), in the ring of `RingReplay`.

    A valid transition i is drawn with the probability P(i) = p_i^alpha / sum_k p_k^alpha (equation 1). It enters with
    the largest priority ever given, 1 before any; what the learner finds out later is told to `set_priorities`.
    All that is not a valid transition of the ring is never drawn.

    Dopamine's Rainbow is alpha = 1, beta = 0.5 and the priority loss ** 0.5.
    """

    def __init__(
        self,
        observation_shape: Any,
        observation_dtype: Any,
        *,
        priority_exponent: float = 1.0,
        importance_exponent: float = 0.5,
        sampling: Literal["stratified", "iid"] = "stratified",
        **arguments: Any,
    ) -> None:
        """Makes an empty ring.

        Args:
            observation_shape: as in `RingReplay`.
            observation_dtype: as in `RingReplay`.
            priority_exponent: alpha, in [0, 1]; 0 draws all alike, a transition of priority 0 too.
            importance_exponent: beta of the weights, in [0, 1]; 1 corrects the bias in full.
            sampling: "stratified" cuts the sum of all p^alpha into B equal ranges and draws once from each (Appendix
                B.2.1); "iid" draws B times from the whole.
            arguments: the other arguments of `RingReplay`.

        Raises:
            ValueError: an argument is out of its range.
        """
        _in_unit_interval("priority_exponent", priority_exponent)
        _in_unit_interval("importance_exponent", importance_exponent)
        if sampling not in ("stratified", "iid"):
            raise ValueError(f"sampling must be 'stratified' or 'iid', got {sampling!r}")
        self._priority_exponent, self._importance_exponent = priority_exponent, importance_exponent
        self._sampling = sampling
        super().__init__(observation_shape, observation_dtype, **arguments)

    def _allocate(self) -> None:
        super()._allocate()
        self._tree = SumTree(self._capacity)

    def _reset(self, head: int, add_count: int, running: bool = False) -> None:
        super()._reset(head, add_count, running)
        if not head:
            self._tree.clear()
            self._largest_priority = 1.0

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays of the ring and of the tree take once the ring is full."""
        return super().nbytes + self._tree.nbytes

    def sample(self, batch_size: int | None = None, importance_exponent: float | None = None) -> dict[str, Any]:
        """Draws transitions by their priorities, with replacement.

        Args:
            batch_size: number of transitions B, by default the constructor's.
            importance_exponent: beta of this batch, by default the constructor's: the paper lets it rise to 1.

        Returns:
            What `RingReplay.sample` returns, of which "index" int64 `[B]` is for `set_priorities`, and "probability"
            float64 `[B]`, P(i), and "weight" float32 `[B]`, (N P(i))^-beta divided by the batch's largest such
            (Schaul et al. 2016, section 3.4), so in (0, 1].

        Raises:
            ValueError: no transition is valid yet, every priority is 0, or an argument is out of its range.
        """
        beta = self._importance_exponent if importance_exponent is None else importance_exponent
        _in_unit_interval("importance_exponent", beta)
        positions = self._draw(batch_size)
        batch = self._transitions(positions)
        value = self._tree.leaves.take(positions)
        batch["probability"] = value / self._tree.total
        # N and the sum of all values are the same in every weight, and fall out of the ratio to the largest.
        batch["weight"] = ((value.min() / value) ** beta).astype(np.float32)
        return batch

    def _draw_positions(self, batch_size: int) -> npt.NDArray[np.int64]:
        total = self._tree.total
        if total == 0.0:
            raise ValueError("every priority is 0, so nothing can be drawn, add a small constant to the priorities")
        share = self._rng.random(batch_size)
        if self._sampling == "stratified":
            share = (np.arange(batch_size) + share) / batch_size
        return self._tree.find(share * total)

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Tells what transitions are worth. One that is no longer valid is passed over: its slot is another's now.

        Args:
            index: "index" of a batch, `[B]`; of one given twice the last priority stays.
            priority: `[B]`, the size of the temporal-difference error, or the square root of the loss.

        Raises:
            ValueError: a priority is NaN, infinite, negative or beyond 1e290, an index is of no slot so far, or the
                shapes differ; nothing is changed then.
        """
        slots, priorities = np.asarray(index), np.asarray(priority, np.float64)
        if slots.ndim != 1 or slots.shape != priorities.shape:
            raise ValueError(f"priority must have the shape [B] of index, {slots.shape}, got {priorities.shape}")
        if not slots.size:
            return
        largest = priorities.max()
        if not (priorities.min() >= 0.0 and largest <= _LARGEST):  # a NaN is neither
            wrong = priorities[~((priorities >= 0.0) & (priorities <= _LARGEST))][0]
            raise ValueError(f"priority must be finite, >= 0 and <= {_LARGEST:g}, got {wrong}")
        positions, values = slots % self._capacity, priorities**self._priority_exponent
        valid = self._are_valid(slots)
        if not valid.all():
            self._check_known(slots)
            positions, values = positions[valid], values[valid]
        self._tree.set(positions, values)
        self._largest_priority = max(self._largest_priority, largest.item())

    def _check_known(self, slots: npt.NDArray[np.int64]) -> None:
        if slots.min() < 0 or slots.max() >= self._head:
            wrong = slots[(slots < 0) | (slots >= self._head)][0]
            raise ValueError(f"index must be a batch's, in [0, {self._head}), got {wrong}")

    def _make_valid(self, position: int, steps: int) -> None:
        super()._make_valid(position, steps)
        self._tree.set(position, self._largest_priority**self._priority_exponent)

    def _make_invalid(self, position: int) -> None:
        super()._make_invalid(position)
        self._tree.set(position, 0.0)

    # Checkpointing.

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without the seed."""
        return {
            **super().facts(),
            "priority_exponent": self._priority_exponent,
            "importance_exponent": self._importance_exponent,
            "sampling": self._sampling,
        }

    def _counters(self) -> dict[str, Any]:
        return {**super()._counters(), "largest_priority": self._largest_priority}

    def _restore(self, counters: Mapping[str, Any], moment: Arrays) -> None:
        super()._restore(counters, moment)
        live = self._live_positions()
        self._tree.set(live, np.where(self._steps[live] > 0, moment["value"], 0.0))  # lost slots are never drawn
        self._largest_priority = counters["largest_priority"]

    def _moment(self) -> Arrays:
        """The values in the tree, oldest slot first."""
        return {"value": self._tree.leaves.take(self._live_positions())}


def _in_unit_interval(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")
