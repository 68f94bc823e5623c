"""The arithmetic of `benchmarks.before_after`, and that its players drive this tree."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.before_after import MEASURES, ROOT, median_interval, sample


def test_the_interval_of_a_median_is_the_binomial_tables() -> None:
    assert median_interval([*range(1, 21)]) == (6, 15)  # 20 pairs: 95.9 %; the 7th and 14th would hold 88.5 %
    assert median_interval([*range(1, 7)]) == (1, 6)
    assert median_interval([*range(1, 6)]) == (-math.inf, math.inf)


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2_000):
        low, high = median_interval(rng.standard_cauchy(20).tolist())
        held += low <= 0.0 <= high
    assert held / 2_000 == pytest.approx(0.9586, abs=0.015)


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=60))
def test_the_interval_holds_the_median_of_the_values(values: list[float]) -> None:
    low, high = median_interval(values)
    assert low <= statistics.median(values) <= high


def test_the_players_drive_this_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEASURES, "wrapper_cartpole", MEASURES["wrapper_cartpole"]._replace(window=100, warmup=10))
    rates = sample("wrapper_cartpole", {"before": ROOT, "now": ROOT}, pairs=2, restarts=1)
    assert {side: len(values) for side, values in rates.items()} == {"before": 2, "now": 2}
    assert all(rate > 0 for values in rates.values() for rate in values)
