"""The sum tree against a plain list of values, at fan-outs small enough for many levels."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.replay.selectors import SumTree

values = st.one_of(
    st.just(0.0),
    st.sampled_from([1.0, 3.0, 0.1, 1e-300, 5e-324, 1e290]),
    st.floats(0.0, 1e6, allow_subnormal=True),
)


@st.composite
def trees(draw: st.DrawFn) -> tuple[SumTree, list[float], SumTree]:
    """A tree after a few rounds of setting values, with the values that it should hold, and a new one of its shape."""
    capacity, shape = draw(st.integers(1, 60)), {"fan_out": draw(st.integers(2, 5)), "top": draw(st.integers(1, 4))}
    tree, fresh = SumTree(capacity, **shape), SumTree(capacity, **shape)
    held = [0.0] * capacity
    for batch in draw(st.lists(st.lists(st.tuples(st.integers(0, capacity - 1), values), max_size=12), max_size=6)):
        index, value = (np.array(column) for column in zip(*batch, strict=True)) if batch else (np.zeros(0, int),) * 2
        if len(batch) == 1:
            tree.set(int(index[0]), float(value[0]))
        else:
            tree.set(index, value)
        for i, each in batch:
            held[i] = each
        if draw(st.booleans()):
            assert tree.total >= 0.0
    return tree, held, fresh


class TestSumTree:
    def test_a_table_worked_by_hand(self) -> None:
        tree = SumTree(6, fan_out=2, top=1)
        tree.set(np.array([0, 2, 3, 5]), np.array([1.0, 2.0, 3.0, 0.5]))  # values 1 0 2 3 0 0.5
        assert tree.total == 6.5
        mass = np.array([0.0, 0.999, 1.0, 2.999, 3.0, 5.999, 6.0, 6.499])
        assert tree.find(mass).tolist() == [0, 0, 2, 2, 3, 3, 5, 5]
        tree.set(np.array([3, 3]), np.array([7.0, 1.0]))  # the last stays: 1 0 2 1 0 0.5
        assert tree.total == 4.5
        assert tree.find(np.array([3.5, 4.0])).tolist() == [3, 5]
        assert tree.leaves.tolist() == [1.0, 0.0, 2.0, 1.0, 0.0, 0.5]

    @given(trees())
    @settings(max_examples=50, deadline=None)
    def test_the_total_is_the_sum(self, case: tuple[SumTree, list[float], SumTree]) -> None:
        tree, held, _ = case
        assert tree.leaves.tolist() == held
        assert tree.total == pytest.approx(math.fsum(held), rel=1e-14)

    @given(trees(), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
    @settings(max_examples=50, deadline=None)
    def test_a_leaf_is_found_where_the_running_sum_passes_the_mass(
        self, case: tuple[SumTree, list[float], SumTree], shares: list[float]
    ) -> None:
        tree, held, _ = case
        if tree.total == 0.0:
            return
        found = tree.find(np.array(shares) * tree.total).tolist()
        running = [0.0, *accumulate(held)]
        slack = 1e-12 * tree.total
        for share, leaf in zip(shares, found, strict=True):
            assert held[leaf] > 0.0
            assert running[leaf] - slack <= share * tree.total <= running[leaf + 1] + slack

    @given(trees())
    @settings(max_examples=50, deadline=None)
    def test_it_is_a_function_of_its_leaves(self, case: tuple[SumTree, list[float], SumTree]) -> None:
        tree, held, fresh = case
        fresh.set(np.arange(len(held)), np.array(held))
        assert fresh.total == tree.total
        if tree.total:
            # Masses at every running sum, and a rounding beside it.
            sums = np.cumsum(held)
            sums = sums[sums < tree.total]
            mass = np.concatenate([[0.0], sums, np.nextafter(sums, 0.0), np.nextafter(sums, np.inf)])
            mass = np.append(mass[mass < tree.total], np.linspace(0.0, np.nextafter(tree.total, 0.0), 200))
            assert fresh.find(mass).tolist() == tree.find(mass).tolist()

    def test_rounding_errors_do_not_pile_up(self) -> None:
        rng, capacity = np.random.default_rng(0), 100_000
        tree = SumTree(capacity)
        for _ in range(2_000):  # values of very different sizes, each set twenty times on average
            tree.set(rng.integers(capacity, size=1_000), rng.random(1_000) ** 20 * 1e9)
            assert tree.total > 0.0
        fresh = SumTree(capacity)
        fresh.set(np.arange(capacity), tree.leaves)
        assert tree.total == fresh.total
        assert tree.total == pytest.approx(math.fsum(tree.leaves), rel=1e-14)

    def test_a_million_leaves(self) -> None:
        rng, capacity = np.random.default_rng(1), 1_000_000
        tree, value = SumTree(capacity), rng.random(capacity)
        value[rng.integers(capacity, size=capacity // 2)] = 0.0
        tree.set(np.arange(capacity), value)
        mass = rng.random(10_000) * tree.total
        expected = np.searchsorted(np.cumsum(value), mass, side="right")
        np.testing.assert_array_equal(tree.find(mass), expected)

    def test_a_cleared_tree_is_a_new_one(self) -> None:
        tree = SumTree(100, fan_out=3, top=2)
        tree.set(np.arange(100), np.ones(100))
        tree.clear()
        assert (tree.total, tree.leaves.max()) == (0.0, 0.0)
        tree.set(7, 2.0)
        assert tree.total == 2.0
        assert tree.find(np.array([0.0, 1.9])).tolist() == [7, 7]

    def test_bytes(self) -> None:
        tree = SumTree(1_000_000)
        assert tree.nbytes <= 9e6
        assert tree.nbytes >= 8e6
