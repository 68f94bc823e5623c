"""Networks of a policy and a value: two networks in one, their first weights, and what they read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from async_wrappers.agents.networks.policy_value import PolicyValueNetwork, create_policy_value_network
from async_wrappers.agents.networks.sequence_network import SequenceNetwork
from async_wrappers.agents.spaces.actions import BoxActions, DiscreteActions
from async_wrappers.agents.spaces.schema import each_array

REAL = BoxActions(Box(-1, 1, (2,)), "ppo")


def call(network: nn.Module, observation: Any, actions: Any) -> tuple[Tensor, Tensor]:
    """Return what a network without memory gives of three rows of two sequences, `[3, 2, ...]`."""
    previous = torch.full((3, 2, *actions.column.shape), actions.none)
    if actions.column.dtype.kind == "f":
        previous = previous.float()
    first = torch.zeros(3, 2, dtype=torch.bool)
    (parameters, values), _ = network(observation, previous, torch.zeros(3, 2), first, torch.zeros(2, 0))
    return parameters, values


@pytest.mark.parametrize("actions", [REAL, DiscreteActions(0, 3)], ids=["real", "discrete"])
def test_policy_and_value_are_two_networks_of_their_own(actions: Any) -> None:
    network = PolicyValueNetwork((1, 4), actions, (5, 6))
    observation = torch.randn(3, 2, 1, 4)
    parameters, values = call(network, observation, actions)
    for part, found in enumerate((parameters, values)):
        hidden = observation.flatten(2)
        for weight, bias in list(zip(network.weights, network.biases, strict=True))[:-1]:
            hidden = torch.tanh(hidden @ weight[part] + bias[part])
        last = hidden @ network.weights[-1][part] + network.biases[-1][part]
        expected = last[..., 0] if part else last
        width = 2 if actions is REAL and not part else expected.shape[-1]
        torch.testing.assert_close(found if part else found[..., :width], expected)
    if actions is REAL:
        assert (parameters[..., 2:] == 0).all()  # logarithms of the deviations


def test_weights_begin_orthogonal_with_the_gains_of_ppo() -> None:
    network = PolicyValueNetwork((1, 64), REAL, (64, 64))
    for layer, gains in ((0, (2.0, 2.0)), (1, (2.0, 2.0)), (2, (1e-4, 1.0))):
        for part, gain in enumerate(gains):
            weight = network.weights[layer][part]
            weight = weight[:, :1] if layer == 2 and part else weight
            torch.testing.assert_close(weight.T @ weight, gain * torch.eye(weight.shape[1]), atol=1e-4, rtol=1e-4)
    assert all((bias == 0).all() for bias in network.biases)


@pytest.mark.parametrize("std", ["parameter", "network"])
@pytest.mark.parametrize("chunk", [None, 3])
def test_parameters_of_chunks_are_those_of_each_entry(std: str, chunk: int | None) -> None:
    actions = BoxActions(Box(-1, 1, (2,) if chunk is None else (chunk, 2)), "ppo")
    network = create_policy_value_network((1, 4), actions, hidden=(8,), std=std)
    parameters, values = call(network, torch.randn(3, 2, 1, 4), actions)
    assert parameters.shape == ((3, 2, 4) if chunk is None else (3, 2, chunk, 4)) and values.shape == (3, 2)


def test_values_far_from_0_are_told_apart_under_bfloat16() -> None:
    network = create_policy_value_network((1, 8), REAL)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        network.biases[-1][1] += 100.0  # type: ignore[index, operator]
        _, values = call(network, torch.rand(3, 2, 1, 8), REAL)
    assert values.dtype == torch.float32 and len(values.unique()) == 6


@pytest.mark.parametrize(
    ("shape", "arguments", "kind"),
    [
        ((1, 4), {}, PolicyValueNetwork),
        ({"a": (1, 2), "b": (1,)}, {}, PolicyValueNetwork),
        ((1, 36, 36), {}, SequenceNetwork),
        ({"image": (1, 36, 36), "b": (1, 2)}, {}, SequenceNetwork),
        ((1, 4), {"torso": "mlp"}, SequenceNetwork),
        ((1, 4), {"feed_previous": True}, SequenceNetwork),
        ((1, 4), {"core": "gru"}, SequenceNetwork),
    ],
)
def test_vectors_without_memory_have_the_network_of_their_own_layers(shape: Any, arguments: Any, kind: type) -> None:
    network: Any = create_policy_value_network(shape, REAL, **arguments)
    assert type(network) is kind
    if kind is SequenceNetwork:
        assert network.head.policy.weight.norm(dim=1).tolist() == pytest.approx([0.01] * 2, rel=1e-3)
        assert network.head.value.weight.norm().item() == pytest.approx(1.0, rel=1e-3)
    if not network.state_size:
        observation = each_array(lambda each: torch.rand(3, 2, *each), shape)
        assert call(network, observation, REAL)[0].shape == (3, 2, 4)


@pytest.mark.parametrize("std", ["parameter", "network"])
@pytest.mark.parametrize("core", [None, "gru"])
def test_deviations_begin_at_log_std_init_and_all_else_as_without(std: str, core: str | None) -> None:
    made = []
    for given in ({}, {"log_std_init": -1.5}):
        torch.manual_seed(0)
        made.append(create_policy_value_network((1, 4), REAL, hidden=(8,), std=std, core=core, **given))
    outputs = []
    for network in made:
        state: Any = network.initial_state(2)
        first, observation = torch.zeros(3, 2, dtype=torch.bool), torch.zeros(3, 2, 1, 4)
        (parameters, values), _ = network(observation, torch.zeros(3, 2, 2), torch.zeros(3, 2), first, state)
        outputs.append((*parameters.chunk(2, dim=-1), values))
    (mean, log_std, value), (mean_too, given, value_too) = outputs
    torch.testing.assert_close((mean, value), (mean_too, value_too), rtol=0, atol=0)
    torch.testing.assert_close(given, log_std - 1.5)
    assert std == "network" or (given == -1.5).all()
    told = [(name, each.shape) for name, each in made[0].state_dict().items()]
    assert told == [(name, each.shape) for name, each in made[1].state_dict().items()]


@pytest.mark.parametrize("actions", [REAL, DiscreteActions(0, 3)], ids=["real", "discrete"])
def test_a_window_is_read_beside_the_observation_and_begins_with_each_episode(actions: Any) -> None:
    network = PolicyValueNetwork((1, 4), actions, (5,), action_window=2)
    plain = PolicyValueNetwork((1, 4 + 2 * actions.inputs), actions, (5,))
    plain.load_state_dict(network.state_dict())
    observation = torch.randn(5, 1, 1, 4)
    first = torch.tensor([True, False, False, True, False]).view(5, 1)
    previous = torch.tensor([0, 2, 1, 0, 2]).view(5, 1) if actions is not REAL else torch.randn(5, 1, 2)
    read = actions.read(previous.flatten(0, 1)).float()
    none = torch.zeros(actions.inputs)
    windows = [[none, none], [none, read[1]], [read[1], read[2]], [none, none], [none, read[4]]]
    beside = torch.cat([observation[:, 0, 0], torch.stack([torch.cat(each) for each in windows])], dim=1)
    expected, _ = plain(beside.view(5, 1, 1, -1), previous, torch.zeros(5, 1), first, torch.zeros(1, 0))
    found, state = network(observation, previous, torch.zeros(5, 1), first, network.initial_state(1))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(state, torch.cat(windows[-1]).unsqueeze(0))
    # As on a machine: row by row, with the state of the row before.
    state, rows = network.initial_state(1), []
    for row in range(5):
        at = slice(row, row + 1)
        features = network.encode(observation[row]).unsqueeze(0)
        outputs, state = network.decide(features, previous[at], torch.zeros(1, 1), first[at], state)
        rows.append(outputs[0])
    torch.testing.assert_close(torch.cat(rows), expected[0])


def test_wrong_arguments_and_observations_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^create_policy_value_network\.std must be 'parameter' or 'network'"):
        create_policy_value_network((1, 4), REAL, std="n")
    chunks = BoxActions(Box(-1, 1, (3, 2)), "ppo")
    with pytest.raises(ValueError, match=r"^action_window must be None where a decision gives a chunk of actions"):
        create_policy_value_network((1, 4), chunks, action_window=2)
    for log_std in (-10.5, 4.5, float("nan"), "-1", True):
        with pytest.raises(
            ValueError, match=r"^create_policy_value_network\.log_std_init must be a number from -10 to 4"
        ):
            create_policy_value_network((1, 4), REAL, log_std_init=log_std)
    with pytest.raises(ValueError, match=r"^observation must have the shape \[3, 2, 1, 4\], got \[3, 2, 1, 5\]$"):
        call(create_policy_value_network((1, 4), REAL), torch.zeros(3, 2, 1, 5), REAL)
