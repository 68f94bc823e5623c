"""Noisy linear layers: the formula, where the noise comes from, and that it is gone when it should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from async_wrappers.agents.acting.exploration import noisy_layers, resample_noise
from async_wrappers.agents.networks.noisy import NoisyLinear, make_noisy
from async_wrappers.agents.networks.q_network import create_network


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def layer(sigma0: float = 0.5, sizes: tuple[int, int] = (6, 4)) -> NoisyLinear:
    torch.manual_seed(0)
    return NoisyLinear(*sizes, sigma0)


def test_without_noise_it_is_a_linear_layer() -> None:
    noisy, features = layer(), torch.randn(3, 6)
    expected = functional.linear(features, noisy.weight, noisy.bias)
    assert torch.equal(noisy(features), expected)
    noisy.resample(rng())
    assert not torch.equal(noisy(features), expected)
    noisy.resample(None)
    assert torch.equal(noisy(features), expected)


@pytest.mark.parametrize("batch_size", [1, 15, 16, 32])
def test_the_noise_is_that_of_the_factorised_formula(batch_size: int) -> None:
    noisy, features = layer(), torch.randn(batch_size, 6)
    noisy.resample(rng(7))
    same = rng(7)
    e_in, e_out = (torch.from_numpy(same.standard_normal(size, np.float32)) for size in (6, 4))
    f_in, f_out = (e.sign() * e.abs().sqrt() for e in (e_in, e_out))
    weight = noisy.weight + noisy.weight_sigma * torch.outer(f_out, f_in)
    torch.testing.assert_close(
        noisy(features), functional.linear(features, weight, noisy.bias + noisy.bias_sigma * f_out)
    )


def test_one_draw_serves_the_whole_batch() -> None:
    noisy, features = layer(), torch.randn(1, 6)
    noisy.resample(rng())
    rows = noisy(features.expand(5, 6))
    torch.testing.assert_close(rows, rows[:1].expand(5, 4))


def test_the_noise_has_mean_zero_and_the_scale_of_sigma() -> None:
    # f has mean 0 and E f^2 = E|e| = sqrt(2 / pi); the noise of one output is s (sum_j x_j f_j + 1) f_i.
    noisy, features, generator = layer(0.5), torch.ones(1, 6), rng()
    outputs = []
    for _ in range(4000):
        noisy.resample(generator)
        outputs.append(noisy(features)[0] - functional.linear(features, noisy.weight, noisy.bias)[0])
    noise = torch.stack(outputs).detach()
    s, second = 0.5 / 6**0.5, (2 / np.pi) ** 0.5
    variance = s**2 * (6 * second + 1) * second
    assert noise.mean().abs() < 4 * (variance / noise.numel()) ** 0.5 * 2
    assert float(noise.var()) == pytest.approx(variance, rel=0.1)


def test_it_begins_with_the_papers_ranges() -> None:
    noisy = layer(0.5, (100, 50))
    assert noisy.weight.abs().max() <= 0.1 and noisy.weight.abs().max() > 0.09
    assert noisy.weight_sigma.unique().tolist() == pytest.approx([0.05])
    assert noisy.bias_sigma.unique().tolist() == pytest.approx([0.05])


def test_every_parameter_learns_where_there_is_noise() -> None:
    noisy = layer()
    noisy.resample(rng())
    noisy(torch.randn(3, 6)).square().sum().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in noisy.parameters())


def test_a_large_batch_has_the_gradients_of_its_halves() -> None:
    noisy, features = layer(), torch.randn(16, 6, requires_grad=True)
    noisy.resample(rng())
    learnt = [*noisy.parameters(), features]
    whole = torch.autograd.grad(noisy(features).square().sum(), learnt)
    halves = torch.autograd.grad(sum(noisy(half).square().sum() for half in features.split(8)), learnt)
    torch.testing.assert_close(whole, halves)


def test_a_negative_sigma_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^sigma0 must be >= 0, got -0\.1"):
        layer(-0.1)


@pytest.mark.parametrize("torso", ["nature", "55k", "70k-deep", "mlp"])
@pytest.mark.parametrize("head", ["linear", "dueling"])
def test_every_linear_layer_of_a_network_becomes_noisy_each_with_its_own_noise(torso: str, head: str) -> None:
    network = create_network((1, 84, 84), 6, 3, torso=torso, head=head)
    count = sum(isinstance(module, nn.Linear) for module in network.modules())
    assert make_noisy(network, 0.5) is network
    layers = noisy_layers(network)
    assert len(layers) == count > 1
    assert not any(isinstance(module, nn.Linear) for module in network.modules())
    resample_noise(layers, rng())
    drawn = [layer._noise[1][0].item() for layer in layers if layer._noise is not None]
    assert len(set(drawn)) == count
    observation = torch.zeros(2, 1, 84, 84, dtype=torch.uint8)
    values = network(observation)
    resample_noise(layers, rng())
    assert torch.equal(network(observation), values)  # the same draws, the same values
    resample_noise(layers, rng(1))
    assert not torch.equal(network(observation), values)
    resample_noise(layers, None)
    assert torch.equal(network(observation), network(observation))


def test_the_noise_is_no_part_of_the_weights() -> None:
    noisy = layer()
    names = set(noisy.state_dict())
    noisy.resample(rng())
    assert set(noisy.state_dict()) == names == {"weight", "bias", "weight_sigma", "bias_sigma"}
