"""Streams of every model: seeded, copied, drawn in blocks, in whole nanoseconds."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.latency import (
    Constant,
    Latency,
    Spikes,
    Uniform,
    stream,
)
from async_wrappers.schedule.frames import FrameClock
from tests.worlds.latency_models import FAST, draws, every_model, random_models


@every_model
def test_a_draw_is_a_plain_int_of_nanoseconds(model: Latency) -> None:
    assert isinstance(model, Latency)
    assert {type(draw) for draw in draws(model, 20)} == {int}
    assert min(draws(model, 1000)) >= 0


@every_model
def test_a_seed_gives_the_same_draws_again_as_an_int_or_as_a_seed_sequence(model: Latency) -> None:
    sequence = np.random.SeedSequence(7)
    expected = draws(model, 700, 7)
    assert draws(model, 700, 7) == expected
    assert draws(model, 700, sequence) == expected
    assert draws(model, 700, sequence) == expected, "the first stream changed the seed"
    assert sequence.n_children_spawned == 0


@random_models
def test_different_seeds_give_different_draws(model: Latency) -> None:
    root = np.random.SeedSequence(7)
    streams = [tuple(draws(model, 100, seed)) for seed in (3, 7, *root.spawn(2))]
    assert len(set(streams)) == 4


def test_a_stream_shares_no_randomness_with_a_generator_of_the_same_seed() -> None:
    environment = np.random.default_rng(0).random(500)
    shares = np.array(draws(Uniform(0, 1), 500)) / 1e9
    assert abs(np.corrcoef(environment, shares)[0, 1]) < 5 / math.sqrt(500)


@every_model
def test_two_streams_of_one_model_do_not_disturb_each_other(model: Latency) -> None:
    first, second = model.stream(1), model.stream(1)
    together = [(first.draw(), second.draw()) for _ in range(600)]
    assert [a for a, _ in together] == [b for _, b in together] == draws(model, 600, 1)


@every_model
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_blocks_do_not_matter(model: Latency, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = draws(model, 1200)
    monkeypatch.setattr(stream, "_BLOCK", block)
    assert draws(model, 1200) == expected


@every_model
@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda stream: pickle.loads(pickle.dumps(stream))])
@pytest.mark.parametrize("drawn", [0, 1, 511, 512, 700])
def test_a_copy_of_a_stream_continues_identically(model: Latency, drawn: int, twin_of: Callable[[Any], Any]) -> None:
    stream = model.stream(3)
    for _ in range(drawn):
        stream.draw()
    twin = twin_of(stream)
    ahead = [twin.draw() for _ in range(900)]
    assert [stream.draw() for _ in range(900)] == ahead


@FAST
@given(st.integers(0, 10**11))
def test_seconds_that_are_whole_nanoseconds_are_drawn_as_they_are(nanoseconds: int) -> None:
    assert draws(Constant(nanoseconds / 1e9), 1) == [nanoseconds]


def test_parts_of_a_nanosecond_are_cut_off_at_the_end() -> None:
    assert draws(Constant(10.4e-9), 1) == [10]
    assert draws(Constant(10.6e-9), 1) == [10]
    assert draws(Spikes(10.4e-9, 1, 3), 1) == [31], "cut off before the spike"


@FAST
@given(st.integers(0, 10_000), st.integers(0, 600), st.sampled_from([50, 59.7275, 60, 144, "30000/1001"]))
def test_a_latency_of_whole_frames_ends_on_a_frame_whatever_the_frame_rate(
    start: int, frames: int, fps: object
) -> None:
    clock = FrameClock(fps)
    (latency,) = draws(Constant(frames / float(clock.fps)), 1)
    assert clock.frame_at(clock.begin(start) + latency) == start + frames


def test_an_absurdly_long_draw_stays_a_number_of_nanoseconds() -> None:
    assert draws(Spikes(1e9, 1, 1e9), 1) == [2**62]
