"""Models of latency: their distributions, their streams, models as values, and wrong arguments."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.latency import (
    Constant,
    Correlated,
    Gamma,
    Latency,
    LogNormal,
    Spikes,
    Trace,
    Uniform,
    as_latency,
    measure,
    models,
    summary,
)
from async_wrappers.latency.models import latencies_of_normal
from async_wrappers.schedule.frames import FrameClock
from tests.worlds.latency_models import DRAWS, FAST, MEASURED, MODELS, draws, every_model, random_models


def lognormal_kurtosis(cv: float) -> float:
    w = 1 + cv**2
    return w**4 + 2 * w**3 + 3 * w**2 - 3


@pytest.mark.parametrize(
    ("model", "mean", "cv", "kurtosis"),
    [
        (Uniform(0.1, 0.3), 0.2, 0.2 / math.sqrt(12) / 0.2, 1.8),
        (LogNormal(0.120, 0.2), 0.120, 0.2, lognormal_kurtosis(0.2)),
        (LogNormal(0.120, 0.5), 0.120, 0.5, lognormal_kurtosis(0.5)),
        (Gamma(0.120, 0.2), 0.120, 0.2, 3 + 6 * 0.2**2),
        (Gamma(0.120, 2.0), 0.120, 2.0, 3 + 6 * 2.0**2),
        # two points, 1 and 3, of shares 0.98 and 0.02
        (Spikes(0.120, 0.02, 3), 0.1248, 2 * math.sqrt(0.0196) / 1.04, (1 - 3 * 0.0196) / 0.0196),
        (Trace([0.1, 0.3], order="shuffled"), 0.2, 0.5, 1.0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("seed", [0, 1])
def test_mean_and_spread_of_the_draws_are_the_stated_ones(
    model: Latency, mean: float, cv: float, kurtosis: float, seed: int
) -> None:
    seconds = np.array(draws(model, DRAWS, seed)) / 1e9
    assert model.mean == pytest.approx(mean, rel=1e-12)
    # four standard errors, of the mean and of the standard deviation (1e-3: the next order, where the kurtosis is 1)
    assert seconds.mean() == pytest.approx(mean, rel=4 * cv / math.sqrt(DRAWS))
    assert seconds.std() / mean == pytest.approx(cv, rel=max(4 * math.sqrt((kurtosis - 1) / 4 / DRAWS), 1e-3))


@every_model
def test_the_share_of_draws_up_to_a_quantile_is_that_of_the_quantile(model: Any) -> None:
    nanoseconds = np.array(draws(model, DRAWS))
    correlation = model.correlation if isinstance(model, Correlated) else 0.0
    independent = DRAWS * (1 - correlation) / (1 + correlation)
    for share in (0.01, 0.1, 0.5, 0.9, 0.95, 0.99):
        quantile = round(model.quantile(share) * 1e9)
        tolerance = 4 * math.sqrt(share * (1 - share) / independent) + 1e-4
        assert np.mean(nanoseconds <= quantile + 1) >= share - tolerance
        assert np.mean(nanoseconds < quantile - 1) <= share + tolerance


@every_model
def test_the_mean_is_the_integral_of_the_quantiles(model: Any) -> None:
    points = 200_000
    seconds = model.quantile((np.arange(points) + 0.5) / points)
    assert np.all(np.diff(seconds) >= 0)
    assert model.mean == pytest.approx(seconds.mean(), rel=1e-3)


@every_model
def test_quantiles_keep_the_shape_of_their_argument(model: Any) -> None:
    shares = np.array([[0.1, 0.5, 0.9], [0.2, 0.6, 0.99]])
    grid = model.quantile(shares)
    assert grid.shape == shares.shape
    assert type(model.quantile(0.6)) is float
    assert model.quantile(0.6) == grid[1, 1]
    assert model.quantile([0.2, 0.6]).tolist() == grid[1, :2].tolist()
    assert model.quantile(0.0) <= grid.min() and model.quantile(1.0) >= grid.max()


@FAST
@given(share=st.floats(1e-9, 1 - 1e-9), mean=st.floats(1e-6, 100), cv=st.floats(0.01, 3))
def test_the_lognormal_quantile_inverts_its_distribution(share: float, mean: float, cv: float) -> None:
    variance = math.log(1 + cv**2)
    logarithm = NormalDist(math.log(mean) - variance / 2, math.sqrt(variance))
    assert logarithm.cdf(math.log(LogNormal(mean, cv).quantile(share))) == pytest.approx(share, rel=1e-6)


@FAST
@given(share=st.floats(0, 1), low=st.floats(0, 10), width=st.floats(1e-3, 10))
def test_the_uniform_quantile_inverts_its_distribution(share: float, low: float, width: float) -> None:
    assert (Uniform(low, low + width).quantile(share) - low) / width == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(
    ("cv", "distribution"),
    [
        (1.0, lambda x: -math.expm1(-x)),  # shape 1: the exponential
        (math.sqrt(0.5), lambda x: -math.expm1(-2 * x) - 2 * x * math.exp(-2 * x)),  # shape 2: Erlang
        (math.sqrt(2), lambda x: math.erf(math.sqrt(x / 2))),  # shape 1/2: a squared normal
    ],
)
def test_the_gamma_quantile_inverts_the_distributions_that_have_a_closed_form(
    cv: float, distribution: Callable[[float], float]
) -> None:
    model = Gamma(mean=0.5, cv=cv)
    for share in (1e-6, 0.01, 0.1, 0.5, 0.9, 0.99, 0.9999):
        assert distribution(model.quantile(share) / 0.5) == pytest.approx(share, rel=1e-4)
        assert 1 - distribution(model.quantile(share) / 0.5) == pytest.approx(1 - share, rel=1e-3)


@pytest.mark.parametrize("cv", [1e-11, 1e-4, 0.03, 0.3, 3.0])
def test_the_gamma_quantiles_have_its_mean_and_spread_at_any_cv(cv: float) -> None:
    points = 200_000
    relative = Gamma(mean=1, cv=cv).quantile((np.arange(points) + 0.5) / points)
    assert relative.mean() == pytest.approx(1, rel=1e-4)
    assert relative.std() / cv == pytest.approx(1, rel=1e-3)


def test_unbounded_latencies_have_no_largest_quantile() -> None:
    for model in (LogNormal(0.12, 0.2), Gamma(0.12, 0.2)):
        assert model.quantile(0.0) == 0
        assert model.quantile(1.0) == math.inf


@pytest.mark.parametrize("model", [LogNormal(0.12, 0), Gamma(0.12, 0), Uniform(0.12, 0.12), Gamma(0.12, 1e-300)])
def test_without_spread_a_latency_is_constant(model: Any) -> None:
    assert set(draws(model, 600)) == {120_000_000}
    assert model.quantile([0.0, 0.3, 1.0]).tolist() == [0.12] * 3


@pytest.mark.parametrize("kind", [LogNormal, Gamma])
def test_a_mean_of_zero_is_no_latency(kind: Any) -> None:
    assert set(draws(kind(0, 0.5), 10)) == {0}
    assert kind(0, 0.5).quantile([0.0, 0.5, 1.0]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("cv", [1e-12, 1e-6, 1000])
@pytest.mark.parametrize("kind", [LogNormal, Gamma])
def test_every_cv_that_is_allowed_gives_finite_draws_and_quantiles(kind: Any, cv: float) -> None:
    model = kind(100, cv)
    assert 0 <= min(draws(model, 2000)) <= max(draws(model, 2000)) < 2**62
    assert np.all(np.isfinite(model.quantile([0.001, 0.5, 0.999])))


def test_a_constant_with_spikes_has_exactly_two_quantiles() -> None:
    model = Spikes(0.120, probability=0.02, factor=3)
    assert model.quantile([0.0, 0.5, 0.98]).tolist() == [0.120] * 3
    assert model.quantile([0.98001, 0.99, 1.0]).tolist() == [pytest.approx(0.360)] * 3
    quicker = Spikes(0.120, probability=0.25, factor=0.5)
    assert quicker.quantile([0.0, 0.25, 0.2501, 1.0]).tolist() == [0.06, 0.06, 0.12, 0.12]


@settings(FAST, max_examples=30)
@given(share=st.floats(0.001, 0.999), probability=st.floats(0, 1), factor=st.floats(0.1, 10))
def test_the_spikes_quantile_inverts_the_mixture(share: float, probability: float, factor: float) -> None:
    at = Spikes(Uniform(1, 2), probability, factor).quantile(share)
    mixture = (1 - probability) * min(max(at - 1, 0), 1) + probability * min(max(at / factor - 1, 0), 1)
    if share < 1 - probability - 1e-4 or share > 1 - probability + 1e-4:  # between the two there may be a gap
        assert mixture == pytest.approx(share, abs=1e-4)


def test_every_inference_a_spike_or_none() -> None:
    base = LogNormal(0.12, 0.2)
    assert len(set(draws(Spikes(base, 0, 3), 100)) & set(draws(Spikes(base, 0, 5), 100))) == 100
    calm, spiked = Spikes(base, 0, 3), Spikes(base, 1, 3)
    ratio = np.array(draws(spiked, 600)) / np.array(draws(calm, 600))
    np.testing.assert_allclose(ratio, 3, rtol=1e-7)
    assert spiked.quantile(0.9) == pytest.approx(3 * base.quantile(0.9), rel=1e-4)


def ranks(values: Any) -> Any:
    return np.argsort(np.argsort(values))


@pytest.mark.parametrize("base", [LogNormal(0.12, 0.5), Gamma(0.12, 0.5), Uniform(0.1, 0.2)], ids=repr)
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_neighbours_have_the_rank_correlation_of_the_copula(base: Latency, correlation: float) -> None:
    order = ranks(draws(Correlated(base, correlation), DRAWS))
    expected = 6 / math.pi * math.asin(correlation / 2)
    assert np.corrcoef(order[:-1], order[1:])[0, 1] == pytest.approx(expected, abs=5 / math.sqrt(DRAWS))
    two_apart = 6 / math.pi * math.asin(correlation**2 / 2)
    tolerance = 5 * math.sqrt((1 + correlation**2) / (1 - correlation**2) / DRAWS)
    assert np.corrcoef(order[:-2], order[2:])[0, 1] == pytest.approx(two_apart, abs=tolerance)


def test_the_first_draw_of_a_correlated_latency_has_the_distribution_of_its_base() -> None:
    model = Correlated(Uniform(0, 1), 0.99)
    first = np.array([model.stream(seed).draw() for seed in range(2000)]) / 1e9
    assert first.mean() == pytest.approx(0.5, abs=4 / math.sqrt(12 * 2000))
    assert first.std() == pytest.approx(1 / math.sqrt(12), abs=4 * math.sqrt(1 / 15 / 2000) / 2)


def test_a_correlated_trace_draws_only_what_was_measured() -> None:
    assert set(draws(Correlated(Trace(MEASURED), 0.5), 5000)) == set(draws(Trace(MEASURED), 7))


def test_the_fast_path_of_a_lognormal_is_its_quantile() -> None:
    x = np.linspace(-5, 5, 101)
    model = LogNormal(0.12, 0.7)
    shares = [NormalDist().cdf(value) for value in x]
    np.testing.assert_allclose(latencies_of_normal(model, x), model.quantile(shares), rtol=1e-9)


@every_model
def test_a_model_is_a_value(model: Any) -> None:
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert twin == model and hash(twin) == hash(model) and repr(twin) == repr(model)
        assert draws(twin, 20) == draws(model, 20)
    assert [other for other in MODELS if other == model] == [model]
    with pytest.raises(AttributeError):
        model.mean = 3


@every_model
def test_the_repr_of_a_model_builds_it_again(model: Any) -> None:
    assert eval(repr(model)) == model


def test_the_repr_of_a_long_trace_is_short() -> None:
    assert repr(Trace(np.full(1000, 0.12))) == "Trace(<1000 latencies, mean 0.12 s>, order='sequence')"


def test_a_pickle_does_not_carry_tables_of_quantiles() -> None:
    model = Spikes(Gamma(0.12, 0.3), 0.02, 3)
    size = len(pickle.dumps(model))
    model.quantile(0.5)
    assert len(pickle.dumps(model)) == size < 500


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.12, Constant(0.12)),
        (0, Constant(0.0)),
        (100, Constant(100.0)),
        (np.float32(0.5), Constant(0.5)),
        (np.array(0.5), Constant(0.5)),
        ([0.1, 0.2], Trace([0.1, 0.2])),
        ((0.1, 0.2), Trace([0.1, 0.2])),
        (np.array([1, 2]), Trace([1.0, 2.0])),
        (LogNormal(0.12, 0.2), LogNormal(0.12, 0.2)),
    ],
    ids=repr,
)
def test_numbers_and_arrays_become_models(value: Any, expected: Latency) -> None:
    assert as_latency(value) == expected


class Countdown:
    """A user's own latency: 5, 4, 3, 2, 1, 0, 0, ... ms."""

    mean = 0.0

    def stream(self, seed: Any) -> Countdown:
        twin = Countdown()
        twin.left = 6
        return twin

    def draw(self) -> int:
        self.left = max(0, self.left - 1)
        return self.left * 10**6


def test_a_latency_of_the_users_own_is_passed_on_and_can_have_spikes() -> None:
    own = Countdown()
    assert as_latency(own) is own
    assert draws(Spikes(own, 1, 2), 6) == [10 * 10**6, 8 * 10**6, 6 * 10**6, 4 * 10**6, 2 * 10**6, 0]
    assert summary(own, draws=6)["max"] == 0.005


def test_what_needs_quantiles_says_so_of_a_latency_that_has_none() -> None:
    with pytest.raises(ValueError, match=r"^base must have quantile\(u\).*Countdown"):
        Correlated(Countdown(), 0.5)
    with pytest.raises(ValueError, match=r"^base must have quantile\(u\).*Countdown"):
        Spikes(Countdown(), 0.5, 2).quantile(0.5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Uniform(0.2, 0.1), r"^low must be <= high, got low=0.2 and high=0.1: swap them$"),
        (lambda: LogNormal(0.1, -0.2), r"^cv must be a number from 0 to 1000 .*, got -0.2$"),
        (lambda: Gamma(0.1, math.inf), r"^cv must be a number from 0 to 1000 .*, got inf$"),
        (lambda: Gamma(0.1, math.nan), r"^cv must be .*, got nan$"),
        (lambda: Spikes(0.1, -0.1, 3), r"^probability must be a share from 0 to 1, got -0.1$"),
        (lambda: Spikes(0.1, 2, 3), r"^probability must be a share from 0 to 1, got 2$"),
        (lambda: Spikes(0.1, 0.1, 0), r"^factor must be a finite number > 0, got 0$"),
        (lambda: Spikes(0.1, 0.1, math.inf), r"^factor must be a finite number > 0, got inf$"),
        (lambda: Spikes(-0.1, 0.1, 3), r"^base must be a number of seconds from 0 to 1e9, got -0.1$"),
        (lambda: Spikes("slow", 0.1, 3), r"^base must be a number of seconds, a list .* or a model .*, got 'slow'$"),
        (lambda: Correlated(0.1, 1), r"^correlation must be at least 0 and less than 1, got 1$"),
        (lambda: Correlated(0.1, -0.5), r"^correlation must be at least 0 and less than 1, got -0.5$"),
        (lambda: Correlated(None, 0.5), r"^base must be a number of seconds, .*, got None$"),
        (lambda: Trace([]), r"^latencies must be a non-empty list of numbers from 0 to 1e\+09, got \[\]$"),
        (lambda: Trace([[0.1], [0.2]]), r"^latencies must be a non-empty list .*, got \[\[0.1\], \[0.2\]\]$"),
        (lambda: Trace([[0.1], []]), r"^latencies must be a non-empty list .*, got \[\[0.1\], \[\]\]$"),
        (lambda: Trace(["a"]), r"^latencies must be a non-empty list .*, got \['a'\]$"),
        (lambda: Trace([0.1, -0.2]), r"^latencies must be a non-empty list .*, got -0.2 at place 1$"),
        (lambda: Trace(np.array([math.nan])), r"^latencies must be .*, got nan at place 0$"),
        (lambda: Trace([0.1], order="random"), r'^order must be "sequence" or "shuffled", got \'random\'$'),
        (lambda: Trace("/nowhere/trace.json"), r"^latencies must be .*, got '/nowhere/trace.json': .*No such file"),
        (lambda: as_latency("0.12"), r"^latency must be a number of seconds, .*, got '0.12'$"),
        (lambda: as_latency(None), r"^latency must be a number of seconds, .*, got None$"),
        (lambda: as_latency(True), r"^latency must be a number of seconds, .*, got True$"),
        (lambda: as_latency(Constant), r"^latency must be a number of seconds, .*Constant"),
        (lambda: as_latency(-1), r"^latency must be a number of seconds from 0 to 1e9, got -1$"),
        (lambda: as_latency([]), r"^latency must be a non-empty list .*, got \[\]$"),
        (lambda: Constant(1).stream(-1), r"^seed must be a whole number >= 0 or a SeedSequence, got -1$"),
        (lambda: Constant(1).stream(None), r"^seed must be a whole number >= 0 or a SeedSequence, got None$"),
        (lambda: Constant(1).quantile(1.5), r"^u must be from 0 to 1 .*, got 1.5$"),
        (lambda: Constant(1).quantile([0.5, math.nan]), r"^u must be from 0 to 1 .*, got \[0.5, nan\]$"),
        (lambda: measure(len, [], repeats=0), r"^repeats must be a whole number >= 1, got 0$"),
        (lambda: measure(len, [], repeats=1.5), r"^repeats must be a whole number >= 1, got 1.5$"),
        (lambda: measure(len, [], warmup=-1), r"^warmup must be a whole number >= 0, got -1$"),
        (lambda: measure(3, []), r"^policy must have act\(observation, decision\) or be a function .*, got 3$"),
        (lambda: summary(0.1, draws=0), r"^draws must be a whole number >= 1, got 0$"),
        (lambda: summary("slow"), r"^latency must be a number of seconds, .*, got 'slow'$"),
    ],
)
def test_an_error_names_the_argument_its_value_and_what_would_be_right(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


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
    monkeypatch.setattr(models, "_BLOCK", block)
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
