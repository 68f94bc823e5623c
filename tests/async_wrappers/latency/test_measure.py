"""Measuring a policy, and figures of a latency."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from async_wrappers.latency import (
    LogNormal,
    Trace,
    measure,
    summary,
)
from tests.worlds.latency_models import draws


class Clock:
    """Time that passes only inside an inference."""

    def __init__(self) -> None:
        self.now = 10**18
        self.inferences: list[tuple[Any, ...]] = []

    def __call__(self) -> int:
        return self.now

    def infer(self, *arguments: Any) -> None:
        """Take 1 ms the first time, 2 ms the second, ..."""
        self.inferences.append(arguments)
        self.now += len(self.inferences) * 10**6


def test_measure_times_a_function_of_the_observation_after_a_warm_up() -> None:
    clock = Clock()
    trace = measure(clock.infer, "seen", repeats=4, warmup=2, clock=clock)
    assert trace == Trace([0.003, 0.004, 0.005, 0.006])
    assert clock.inferences == [("seen",)] * 6


def test_measure_gives_a_policy_its_decision() -> None:
    clock = Clock()

    class Policy:
        def act(self, observation: Any, decision: Any) -> None:
            clock.infer(observation, decision)

        def __call__(self, observation: Any) -> None:
            raise AssertionError("act comes first")

    assert measure(Policy(), "seen", repeats=1, warmup=0, clock=clock) == Trace([0.001])
    measure(Policy(), "seen", repeats=1, warmup=0, clock=clock, decision="now")
    assert clock.inferences == [("seen", None), ("seen", "now")]


def test_measure_has_a_real_clock_and_50_repeats() -> None:
    seen: list[Any] = []
    assert len(measure(seen.append, "seen").latencies) == 50
    assert len(seen) == 53


def test_the_summary_of_a_latency_is_of_its_draws() -> None:
    model = LogNormal(0.12, 0.5)
    seconds = np.array(draws(model, 10_000)) / 1e9
    p50, p95, p99 = np.quantile(seconds, [0.5, 0.95, 0.99])
    expected = {"mean": seconds.mean(), "std": seconds.std(), "p50": p50, "p95": p95, "p99": p99, "max": seconds.max()}
    assert summary(model) == expected == summary(model)
    assert {type(value) for value in summary(model).values()} == {float}
    assert summary(model, seed=1) != expected
    assert summary(0.12, draws=10) == {
        "mean": pytest.approx(0.12),
        "std": pytest.approx(0),
        "p50": 0.12,
        "p95": 0.12,
        "p99": 0.12,
        "max": 0.12,
    }
