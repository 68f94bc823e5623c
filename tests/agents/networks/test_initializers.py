"""Initial weights against the formulae that name them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import gin
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from async_wrappers.agents.networks.noisy import make_noisy
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import INITIALIZERS, MLPTorso, initialize, variance_scaling

SHAPES = {"linear": (300, 200), "convolution": (64, 32, 4, 4), "one kernel": (120, 100, 3)}


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    pixels = math.prod(shape[2:])
    return shape[1] * pixels, shape[0] * pixels


def drawn(initializer: Any, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    torch.manual_seed(seed)
    weight = torch.empty(shape)
    fill = INITIALIZERS[initializer] if isinstance(initializer, str) else initializer
    fill(weight)
    return weight.numpy().astype(np.float64).ravel()


def is_drawn_from(values: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Kolmogorov and Smirnov's test at the level .001; with fixed seeds, it gives the same answer each time."""
    ranks, expected = np.arange(len(values) + 1) / len(values), cdf(np.sort(values))
    gap = max(np.abs(expected - ranks[1:]).max(), np.abs(expected - ranks[:-1]).max())
    return bool(gap < 1.95 / math.sqrt(len(values)))


def normal_cdf(values: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + torch.erf(torch.from_numpy(values) / math.sqrt(2)).numpy())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("xavier_uniform", lambda fan_in, fan_out: math.sqrt(6 / (fan_in + fan_out))),
        ("variance_scaling", lambda fan_in, _: math.sqrt(3 * (1 / math.sqrt(3)) / fan_in)),
    ],
)
def test_the_uniform_ones_fill_their_bounds(
    name: str, bound: Callable[[int, int], float], shape: tuple[int, ...]
) -> None:
    values, most = drawn(name, shape), bound(*fans(shape))
    assert 0.999 * most < np.abs(values).max() <= most * (1 + 1e-6)
    assert values.var() == pytest.approx(most**2 / 3, rel=0.03)
    assert is_drawn_from(values, lambda x: (x + most) / (2 * most))
    assert not is_drawn_from(values, lambda x: normal_cdf(x / values.std()))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_lecuns_normal_has_its_variance_although_it_is_cut_off(shape: tuple[int, ...]) -> None:
    values, deviation = drawn("lecun_normal", shape), math.sqrt(1 / fans(shape)[0])
    assert values.std() == pytest.approx(deviation, rel=0.02)
    density = math.exp(-2) / math.sqrt(2 * math.pi)  # of the standard normal at 2
    mass = math.erf(math.sqrt(2))  # of what lies between -2 and 2
    whole = deviation / math.sqrt(1 - 4 * density / mass)
    assert 1.98 * whole < np.abs(values).max() <= 2 * whole * (1 + 1e-6)
    assert is_drawn_from(values, lambda x: 0.5 + (normal_cdf(x / whole) - 0.5) / mass)
    assert not is_drawn_from(values, lambda x: normal_cdf(x / deviation))


@settings(deadline=None, max_examples=15)
@given(
    shape=st.tuples(st.integers(8, 60), st.integers(8, 60)) | st.tuples(*[st.integers(4, 12)] * 4),
    scale=st.floats(0.01, 10.0),
    mode=st.sampled_from(["fan_in", "fan_out", "fan_avg"]),
    distribution=st.sampled_from(["uniform", "normal", "truncated_normal"]),
)
def test_the_variance_is_scale_over_fan(shape: tuple[int, ...], scale: float, mode: str, distribution: str) -> None:
    fan_in, fan_out = fans(shape)
    fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
    fill = lambda weight: variance_scaling(weight, scale, mode, distribution)  # noqa: E731
    values = np.concatenate([drawn(fill, shape, seed) for seed in range(-(-20_000 // math.prod(shape)))])
    assert values.mean() == pytest.approx(0.0, abs=6 * math.sqrt(scale / fan / len(values)))
    assert values.var() == pytest.approx(scale / fan, rel=0.08)


def test_its_numbers_are_bound_by_gin() -> None:
    gin.clear_config()
    gin.parse_config("variance_scaling.scale = 3.0\nvariance_scaling.mode = 'fan_out'")
    try:
        assert np.abs(drawn("variance_scaling", (100, 400))).max() == pytest.approx(math.sqrt(9 / 100), rel=1e-3)
        assert np.abs(drawn("xavier_uniform", (100, 400))).max() == pytest.approx(math.sqrt(6 / 500), rel=1e-3)
    finally:
        gin.clear_config()


def layers() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.Conv1d(2, 3, 3), nn.LayerNorm(4), nn.Linear(5, 6), nn.Linear(6, 2, False)
    )


def test_weights_are_drawn_biases_are_zero_and_other_layers_are_left_alone() -> None:
    before, after = layers(), layers()
    initialize(after, "xavier_uniform")
    for layer in (after[0], after[1], after[3]):
        assert not layer.bias.any()
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one.weight, other.weight) == isinstance(one, nn.LayerNorm)
    initialize(after, nn.init.ones_)
    assert (after[0].weight == 1).all() and (after[4].weight == 1).all()


def test_pytorchs_own_weights_are_left_as_they_were_drawn() -> None:
    before, after = layers(), layers()
    state = torch.get_rng_state()
    initialize(after, "torch")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, other) for one, other in zip(before.parameters(), after.parameters(), strict=True))


def test_a_network_begins_as_it_is_told_and_noisy_layers_as_their_paper_says() -> None:
    torch.manual_seed(0)
    network = create_network((2, 40, 40), 3, 5, head="dueling", initializer="xavier_uniform")
    assert not any(parameter.any() for name, parameter in network.named_parameters() if name.endswith("bias"))
    most = {name: float(parameter.detach().abs().max()) for name, parameter in network.named_parameters()}
    assert most["torso.layers.0.weight"] == pytest.approx(math.sqrt(6 / (64 * 2 + 64 * 32)), rel=0.01)
    assert most["head.advantage.weight"] == pytest.approx(math.sqrt(6 / (512 + 15)), rel=0.01)
    make_noisy(network, 0.1)
    assert network.head.advantage.weight.abs().max().item() == pytest.approx(1 / math.sqrt(512), rel=0.01)  # type: ignore[union-attr]
    assert float(network.torso.layers[0].weight.detach().abs().max()) == most["torso.layers.0.weight"]  # type: ignore[index, union-attr]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: initialize(layers(), "xavier"),
            r"initializer must be one of 'torch', 'xavier_uniform', .*got 'xavier'",
        ),
        (lambda: initialize(layers(), 3), r"initializer must be a name or a function of a tensor, got int"),
        (
            lambda: variance_scaling(torch.empty(3, 3), 0.0),
            r"variance_scaling.scale must be a number > 0 and finite, got 0.0",
        ),
        (
            lambda: variance_scaling(torch.empty(3, 3), "a"),
            r"variance_scaling.scale must be a number > 0 and finite, got 'a'",
        ),
        (
            lambda: variance_scaling(torch.empty(3, 3), mode=["a"]),
            r"variance_scaling.mode must be one of .*, got \['a'\]",
        ),
        (
            lambda: variance_scaling(torch.empty(3, 3), mode="fan"),
            r"variance_scaling.mode must be one of .*, got 'fan'",
        ),
        (lambda: variance_scaling(torch.empty(3, 3), distribution="x"), r"variance_scaling.distribution must .*'x'"),
        (
            lambda: variance_scaling(torch.empty(3)),
            r"weight must have shape \[outputs, inputs, \*kernel\], got \[3\]",
        ),
        (
            lambda: create_network((4,), 2, torso=MLPTorso, initializer="he"),
            r"initializer must be one of .*, got 'he'",
        ),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert re.fullmatch(sentence, str(caught.value).splitlines()[0])  # gin adds a line, in whose call it was
