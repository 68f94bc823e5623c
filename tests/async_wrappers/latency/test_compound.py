"""Measured latencies: played, drawn, written and read; measuring a policy, and figures of a latency."""

from __future__ import annotations

import copy
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers import files
from async_wrappers.latency import LogNormal, Trace, measure, summary
from tests.worlds.latency_models import DRAWS, FAST, MEASURED, draws


@FAST
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=700), st.integers(0, 100))
def test_a_trace_is_played_in_order_from_a_random_place_and_round_again(measured: list[int], seed: int) -> None:
    played = draws(Trace([value / 1e9 for value in measured]), 2 * len(measured), seed)
    rotations = (measured[place:] + measured[:place] for place in range(len(measured)))
    assert played[: len(measured)] in rotations
    assert played[len(measured) :] == played[: len(measured)]


def test_the_place_where_a_trace_begins_depends_on_the_seed() -> None:
    trace = Trace(np.arange(10) / 1e9)
    assert {trace.stream(seed).draw() for seed in range(200)} == set(range(10))


def test_a_shuffled_trace_draws_each_latency_about_equally_often_in_no_order() -> None:
    played = np.array(draws(Trace(np.arange(10) / 1e9, order="shuffled"), DRAWS))
    counts = np.bincount(played, minlength=10)
    assert np.all(np.abs(counts - DRAWS / 10) < 5 * math.sqrt(DRAWS * 0.09))
    assert abs(np.corrcoef(played[:-1], played[1:])[0, 1]) < 5 / math.sqrt(DRAWS)


@FAST
@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_of_a_trace_is_the_least_latency_that_a_share_does_not_exceed(
    measured: list[float], share: float
) -> None:
    trace = Trace(measured)
    at = trace.quantile(share)
    assert at in measured
    assert np.mean(trace.latencies <= at) >= share - 1e-9
    assert np.mean(trace.latencies < at) <= share
    assert trace.mean == pytest.approx(np.mean(measured))


def test_quantiles_of_a_trace_do_not_slip_by_one_through_rounding() -> None:
    trace = Trace(np.arange(1, 101))
    assert trace.quantile(np.arange(1, 101) / 100).tolist() == list(range(1, 101))
    assert trace.quantile(0.0) == 1


def test_a_trace_keeps_a_copy_that_cannot_be_written_to() -> None:
    measured = np.array(MEASURED)
    trace = Trace(measured)
    measured[:] = 9
    assert trace.latencies.tolist() == MEASURED
    for one in (trace, pickle.loads(pickle.dumps(trace)), copy.deepcopy(trace)):
        with pytest.raises(ValueError, match="read-only"):
            one.latencies[0] = 1


@FAST
@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30), st.sampled_from(["sequence", "shuffled"]))
def test_a_trace_survives_a_json_file_exactly(
    tmp_path_factory: pytest.TempPathFactory, measured: list[float], order: Any
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    trace = Trace(measured, order)
    trace.to_json(folder / "trace.json")
    assert Trace(folder / "trace.json", order) == trace == Trace(str(folder / "trace.json"), order=order)
    assert [file.name for file in folder.iterdir()] == ["trace.json"]
    assert json.loads((folder / "trace.json").read_text()) == {"latency_s": measured}


@pytest.mark.parametrize("content", [[0.12, 1], {"latency_s": [0.12, 1]}, {"latency_ms": [120, 1000.0], "gpu": "a"}])
def test_json_files_hold_seconds_or_say_that_they_hold_milliseconds(tmp_path: Path, content: Any) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(content))
    assert Trace(tmp_path / "trace.json") == Trace([0.12, 1.0])


def test_a_trace_that_cannot_be_written_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Trace([1.0]).to_json(tmp_path / "trace.json")

    def full(file: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        Trace([2.0]).to_json(tmp_path / "trace.json")
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
    assert Trace(tmp_path / "trace.json") == Trace([1.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"Expecting value"),
        ("[0.1, ", r"Expecting value"),
        ("3", r'must be a list of seconds, or an object with either "latency_s" or "latency_ms", got 3$'),
        ("{}", r"must be a list of seconds, or an object .*, got \{\}$"),
        ('{"latency_s": [1], "latency_ms": [1]}', r"must be a list of seconds, or an object with either .*, got "),
        ("[]", r"must be a non-empty list of numbers from 0 to 1e\+09, got \[\]$"),
        ('[0.1, "a"]', r"must be a non-empty list .*, got \[0.1, 'a'\]$"),
        ("[0.1, null]", r"must be a non-empty list .*, got \[0.1, None\]$"),
        ("[0.1, NaN]", r"must be a non-empty list .*, got nan at place 1$"),
        ('{"latency_ms": [100, -1]}', r"\(latency_ms\) must be .* from 0 to 1e\+12, got -1 at place 1$"),
        ('{"latency_s": 0.1}', r"must be a non-empty list .*, got 0.1$"),
    ],
)
def test_a_malformed_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        Trace(path)
    assert str(path) in str(error.value)
    assert str(error.value).startswith("latencies ")


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
