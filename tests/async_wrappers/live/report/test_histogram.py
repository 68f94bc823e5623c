"""A histogram against the numbers themselves: all is exact but quantiles, which are within 0.4 %."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.live.report.histogram import RELATIVE_ERROR, Histogram

numbers = st.integers(-(10**6), 10**15) | st.integers(0, 300) | st.integers(0, 62).map(lambda power: 2**power)


@given(st.lists(numbers, min_size=1, max_size=60), st.floats(0, 1))
def test_counts_and_moments_are_exact_and_quantiles_within_their_error(values: list[int], q: float) -> None:
    histogram = Histogram(values)
    assert len(histogram) == histogram.count == len(values)
    assert (histogram.first, histogram.last) == (values[0], values[-1])
    assert (histogram.smallest, histogram.largest) == (min(values), max(values))
    mean = Fraction(sum(values), len(values))
    assert histogram.mean == pytest.approx(float(mean), rel=1e-15)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    assert histogram.std == pytest.approx(math.sqrt(variance), rel=1e-12)
    rank = q * (len(values) - 1)
    beside = sorted(values)[math.floor(rank)], sorted(values)[math.ceil(rank)]
    slack = RELATIVE_ERROR * max(map(abs, beside)) * (1 + 1e-9) + 1e-9
    assert min(beside) - slack <= histogram.quantile(q) <= max(beside) + slack
    assert abs(histogram.quantile(q) - np.quantile(np.array(values, np.float64), q)) <= slack


@given(st.integers(0, 2**62))
def test_one_number_is_its_own_quantile_and_its_bucket_is_close(value: int) -> None:
    assert Histogram([value]).quantile(0.5) == value  # the extremes bound it
    around = Histogram([0, value, 2**63])
    assert abs(around.quantile(0.5) - value) <= RELATIVE_ERROR * value


@given(st.lists(numbers, max_size=30), st.lists(numbers, max_size=30))
def test_a_sum_is_the_histogram_of_both(left: list[int], right: list[int]) -> None:
    both, whole = Histogram(left) + Histogram(right), Histogram(left + right)
    for each in (both, pickle.loads(pickle.dumps(both))):
        assert repr(each.distribution(0.5)) == repr(whole.distribution(0.5))  # nan is not equal to itself
        assert (each.count, each.first, each.last, each.smallest) == (
            whole.count,
            whole.first,
            whole.last,
            whole.smallest,
        )


def test_nothing_has_no_numbers() -> None:
    assert all(map(math.isnan, Histogram().distribution().values()))
    assert all(map(math.isnan, (Histogram().quantile(0.5), Histogram().mean, Histogram().std)))


def test_a_unit_scales_all_numbers() -> None:
    assert Histogram([1_000_000, 3_000_000]).distribution(1e-6) == pytest.approx(
        {"mean": 2, "std": 1, "p50": 2, "p95": 2.9, "p99": 2.98, "max": 3}, rel=RELATIVE_ERROR
    )


def test_buckets_are_bounded_however_many_numbers_come() -> None:
    histogram = Histogram(np.random.default_rng(0).integers(0, 3_600_000_000_000, 20_000).tolist())
    assert len(histogram._buckets) < 4_500
