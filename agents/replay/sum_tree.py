"""A sum tree: values are drawn in proportion to their size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt


class SumTree:
    """A sum tree (Schaul et al. 2016, Appendix B.2.1) of a wide fan-out, walked level by level for a whole batch.

    A node is computed from the values below it, never corrected by a difference: the tree is a function of its leaves,
    whatever was set before, so rounding errors do not pile up and the leaves alone are its state. Nodes are computed
    when they are first needed, all that changed since at once.
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
