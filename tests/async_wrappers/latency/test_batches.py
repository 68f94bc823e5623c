"""Tests of async_wrappers/latency/batches.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers.latency.batches import BatchLatency, LinearBatches, MeasuredBatches, measure_batches


class FakeClock:
    """A clock that moves when the policy infers."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def draws(latency: BatchLatency, batch: int, count: int = 4000) -> np.ndarray[Any, Any]:
    stream = latency.stream(0)
    return np.array([stream.draw(batch) for _ in range(count)]) / 1e9


class TestLinearBatches:
    def test_a_batch_has_a_fixed_cost_and_one_for_each_observation(self) -> None:
        latency = LinearBatches(0.004, 0.0002)
        assert latency.mean(10) == pytest.approx(0.006)
        assert set(draws(latency, 10, 5).tolist()) == {0.006}

    def test_its_spread_is_the_coefficient_of_variation(self) -> None:
        seconds = draws(LinearBatches(0.004, 0.0002, cv=0.2), 10)
        assert seconds.mean() == pytest.approx(0.006, rel=0.02)
        assert seconds.std() / seconds.mean() == pytest.approx(0.2, rel=0.1)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((-1, 0.1), "fixed must be a number of seconds from 0 to 1e9, got -1"),
            ((0.1, float("nan")), "each must be a number of seconds from 0 to 1e9, got nan"),
            ((0.1, 0.1, -1), r"cv must be a number from 0 to 1000 \(standard deviation / mean\), got -1"),
            ((0, 0), "fixed or each must be > 0 seconds, got 0 for both"),
        ],
    )
    def test_refuses_numbers_out_of_range(self, arguments: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            LinearBatches(*arguments)


class TestMeasuredBatches:
    measured = MeasuredBatches({1: [0.002, 0.003, 0.004], 4: [0.005, 0.006, 0.010], 8: [0.010, 0.010, 0.010]})

    def test_gives_measured_latencies_at_measured_sizes(self) -> None:
        assert set(draws(self.measured, 4, 100).tolist()) <= {0.005, 0.006, 0.010}

    def test_interpolates_quantiles_between_two_sizes(self) -> None:
        assert self.measured.quantile(6, 0.5) == pytest.approx((0.006 + 0.010) / 2)
        assert self.measured.mean(2) == pytest.approx(0.003 + (0.007 - 0.003) / 3)

    def test_grows_as_the_line_beyond_the_largest_size(self) -> None:
        assert self.measured.quantile(18, 0.5) == pytest.approx(0.010 + 10 * self.measured.fit.each)

    def test_fits_a_line_through_the_medians(self) -> None:
        fit = MeasuredBatches({size: [0.003 + 0.0005 * size] * 3 for size in (1, 2, 8, 32)}).fit
        assert (fit.fixed, fit.each) == (pytest.approx(0.003), pytest.approx(0.0005))
        assert fit.cv == 0

    def test_a_line_that_would_meet_zero_below_goes_through_it(self) -> None:
        fit = MeasuredBatches({1: [0.0005], 2: [0.002], 4: [0.004]}).fit
        assert fit.fixed == 0
        assert fit.each > 0

    def test_a_file_gives_it_back(self, tmp_path: Path) -> None:
        self.measured.to_json(tmp_path / "batches.json")
        again = MeasuredBatches(tmp_path / "batches.json")
        assert again.traces == self.measured.traces
        assert again.fit == self.measured.fit

    @pytest.mark.parametrize(
        ("latencies", "message"),
        [
            ({1: [0.1]}, r"latencies must hold at least two sizes of batches, got \[1\]"),
            ({1: [0.1], 0: [0.2]}, "a size of a batch must be a whole number >= 1, got 0"),
            ({1: [0.1], 2: []}, "latencies must be a non-empty list of numbers"),
            ({1: [0.0], 2: [0.1]}, "latencies must be > 0 seconds at each size of a batch, got a median of 0"),
            (
                {1: [0.004], 8: [0.003], 64: [0.001]},
                "latencies must not fall as the batch grows, got medians of 1: 4 ms, 8: 3 ms, 64: 1 ms",
            ),
            (Path("nowhere.json"), "latencies must be those of batches by their size, or a JSON file .*nowhere.json"),
        ],
    )
    def test_refuses_what_is_no_measurement(self, latencies: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            MeasuredBatches(latencies)


def test_measures_each_size_in_turn() -> None:
    clock, sizes = FakeClock(), []

    def infer(observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        sizes.append(len(observations))
        clock.now += 2_000_000 + 100_000 * len(observations)
        return observations.sum(axis=1)

    found = measure_batches(infer, np.ones(3), (1, 4, 16), repeats=5, warmup=1, clock=clock)
    assert sizes == [1, 4, 16] * 6
    assert (found.fit.fixed, found.fit.each) == (pytest.approx(0.002), pytest.approx(0.0001))
    assert [len(trace) for trace in found.traces.values()] == [5, 5, 5]
