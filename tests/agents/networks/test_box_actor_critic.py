"""The batched critics against one network each, their frozen use, and the observations that actor and critics read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from async_wrappers.agents.networks.box_actor_critic import BoxActorCritic, Critics, create_box_actor_critic
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.spaces.actions import BoxActions
from async_wrappers.agents.spaces.schema import each_array

ACTIONS = BoxActions(Box(-2, 2, (3,)), "sac")
FLAT: Callable[[Any], nn.Module] = partial(MLPTorso, hidden=())


@settings(deadline=None, max_examples=20)
@given(number=st.integers(1, 4), layers=st.integers(0, 3), rows=st.integers(1, 5), seed=st.integers(0, 100))
def test_the_values_are_those_of_each_critic_alone(number: int, layers: int, rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    critics = Critics((4,), 3, FLAT, number, layers, 5)
    features, action = torch.randn(rows, 4), torch.randn(rows, 3)
    values = critics.values(features, action)
    assert values.shape == (number, rows) and len(critics.each) == number
    for own, critic in zip(values, critics.each, strict=True):
        assert torch.equal(own, critic(torch.cat([features, action], 1))[:, 0])
    assert torch.equal(values, critics(features, action))


def test_critics_begin_unlike_each_other() -> None:
    one, other = Critics((4,), 3, FLAT).each
    assert all(not torch.equal(mine, its) for mine, its in zip(one.parameters(), other.parameters(), strict=True))


def test_frozen_critics_give_the_action_the_same_gradient_and_themselves_none() -> None:
    critics = Critics((4,), 3, FLAT)
    features, action = torch.randn(6, 4), torch.randn(6, 3, requires_grad=True)
    values = critics.values(features, action)
    (wanted,) = torch.autograd.grad(values.square().sum(), action)
    frozen = critics.values(features, action, frozen=True)
    assert torch.equal(frozen, values)
    frozen.square().sum().backward()
    assert action.grad is not None and torch.equal(action.grad, wanted)
    assert all(parameter.grad is None for parameter in critics.parameters())
    with torch.no_grad():
        next(critics.parameters()).zero_()
    assert not torch.equal(critics.values(features, action, frozen=True), frozen)  # the memory is shared


OBSERVATIONS: dict[str, tuple[Any, Any]] = {
    "a vector": ((1, 4), torch.randn(5, 1, 4)),
    "a stack of vectors in double precision": ((3, 4), torch.randn(5, 3, 4).double()),
    "an image": ((1, 84, 84), torch.zeros(5, 1, 84, 84, dtype=torch.uint8)),
    "a Dict of an image and vectors": (
        {"eye": (1, 36, 36), "arm": {"angle": (1, 2)}},
        {"eye": torch.zeros(5, 1, 36, 36, dtype=torch.uint8), "arm": {"angle": torch.randn(5, 1, 2)}},
    ),
}


@pytest.mark.parametrize(("shape", "observation"), OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_actor_and_critics_read_observations_of_any_kind(shape: Any, observation: Any) -> None:
    network = create_box_actor_critic(shape, ACTIONS, num_critics=3, hidden_units=8)
    stacks = each_array(lambda tensor: tensor.unsqueeze(0), observation)
    parameters, _ = network.actor(stacks, None, None, None, torch.zeros(5, 0))
    assert parameters.shape == (1, 5, 6) and parameters.dtype == torch.float32
    values = network.critics(observation, torch.zeros(5, 3))
    assert values.shape == (3, 5) and values.dtype == torch.float32
    values.sum().backward()
    assert all(parameter.grad is not None for parameter in network.critics.parameters())


def test_the_parts_are_the_actor_that_acts_and_the_critics_that_have_a_target() -> None:
    network = create_box_actor_critic((1, 4), ACTIONS)
    assert isinstance(network, BoxActorCritic)
    assert network.acting is network.actor and network.with_target is network.critics
    names = {name.split(".")[0] for name, _ in network.named_parameters()}
    assert names == {"actor", "critics", "log_temperature"}
    # 2 x 256 units: 4 x 256 + 256 x 256 + 256 x 6 and biases; twice (7 x 256 + 256 x 256 + 256) and biases.
    sizes = [sum(each.numel() for each in part.parameters()) for part in (network.actor, network.critics)]
    assert sizes == [68_614, 2 * 68_097]
    assert network.log_temperature.item() == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_critics": 0}, "number must be > 0, got 0"),
        ({"hidden_units": -1}, r"units must be > 0, got \[-1, -1\]"),
        ({"torso": "resnet"}, 'torso must be one of "auto", .*, got "resnet"'),
        ({"initializer": "zeros"}, "initializer must be one of .* got 'zeros'"),
    ],
)
def test_what_no_network_can_have_is_refused_in_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_box_actor_critic((1, 4), ACTIONS, **arguments)


def test_an_initializer_fills_each_layer_of_each_critic() -> None:
    network = create_box_actor_critic((1, 4), ACTIONS, initializer=lambda weight: nn.init.constant_(weight, 0.5))
    critics: Any = network.critics
    for name, parameter in critics.each.named_parameters():
        assert np.unique(parameter.detach().numpy()).tolist() == [0.5 if "weight" in name else 0.0]
