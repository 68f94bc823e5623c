"""The network of implicit quantiles: its embedding by hand, and its place in any Q-network."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from async_wrappers.agents.families.value_based.quantile import CosineEmbedding, ImplicitQuantileNetwork
from async_wrappers.agents.networks.noisy import make_noisy
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import MLPTorso


def test_the_embedding_is_a_rectified_sum_of_cosines() -> None:
    embedding = CosineEmbedding(2, 1)
    with torch.no_grad():
        embedding.linear.weight.copy_(torch.tensor([[1.0, 10.0]]))
        embedding.linear.bias.fill_(0.5)
    tau = torch.tensor([[0.0, 0.25, 0.5]])
    # cos(0) + 10 cos(0) + 0.5; cos(pi / 4) + 10 cos(pi / 2) + 0.5; cos(pi / 2) + 10 cos(pi) + 0.5 < 0
    expected = torch.tensor([[[11.5], [math.sqrt(0.5) + 0.5], [0.0]]])
    torch.testing.assert_close(embedding(tau), expected)


@pytest.mark.parametrize("head", ["linear", "dueling"])
@pytest.mark.parametrize(
    ("torso", "size"),
    [("nature", 64 * 7 * 7), ("55k", 2 * 7 * 7), ("mlp", 256), (lambda shape: MLPTorso(shape, (9,)), 9)],
)
def test_it_stands_before_the_last_hidden_layer_of_any_torso(torso: object, size: int, head: str) -> None:
    torch.manual_seed(0)
    network = ImplicitQuantileNetwork(create_network((1, 84, 84), 5, torso=torso, head=head), 16)  # type: ignore[arg-type]
    assert network.embedding.linear.out_features == size
    values = network(torch.randint(0, 256, (2, 1, 84, 84), dtype=torch.uint8), torch.rand(2, 7))
    assert values.shape == (2, 5, 7) and values.dtype == torch.float32
    values.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_a_quantile_does_not_depend_on_which_others_are_asked_for() -> None:
    network = ImplicitQuantileNetwork(create_network((3,), 2), 4)
    observation, tau = torch.randn(4, 3), torch.rand(4, 6)
    together = network(observation, tau)
    alone = torch.cat([network(observation, tau[:, i : i + 1]) for i in range(6)], dim=2)
    torch.testing.assert_close(together, alone)
    rows = torch.cat([network(observation[i : i + 1], tau[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(together, rows)


def test_it_can_be_noisy() -> None:
    network = make_noisy(ImplicitQuantileNetwork(create_network((3,), 2), 4), 0.5)
    assert network(torch.randn(4, 3), torch.rand(4, 6)).shape == (4, 2, 6)


def test_a_network_without_torso_and_head_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^network must have a torso and a head to read quantiles from, got Linear"):
        ImplicitQuantileNetwork(nn.Linear(3, 2))


def test_an_embedding_of_no_cosines_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^quantile_embedding_dim must be >= 1 cosine, got 0"):
        ImplicitQuantileNetwork(create_network((3,), 2), 0)


def test_an_observation_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^observation must have the shape \[B, 3\], got \[2, 4\]"):
        ImplicitQuantileNetwork(create_network((3,), 2))(torch.zeros(2, 4), torch.rand(2, 1))


def test_a_call_is_encode_core_values() -> None:
    network = ImplicitQuantileNetwork(create_network((1, 40, 40), 3))
    observation, tau = torch.rand(2, 1, 40, 40), torch.rand(2, 5)
    psi = network.encode(observation)
    assert psi.shape == (2, network.embedding.linear.out_features)
    same, state = network.core(psi)
    assert same is psi
    assert state == ()
    assert torch.equal(network.values(psi, tau), network(observation, tau))
    # psi holds for every tau, so the torso runs once for several sets of them.
    assert torch.equal(network.values(psi, tau[:, :2]), network(observation, tau[:, :2]))
