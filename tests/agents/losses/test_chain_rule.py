"""The gradients of SAC's and PPO's losses by the chain rule are autograd's, for perceptrons of any sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.losses.actor_critic import (
    clipped_policy_loss,
    clipped_value_loss,
    critic_loss,
    policy_loss,
    soft_target,
    temperature_loss,
)
from async_wrappers.agents.losses.chain_rule import (
    Given,
    Minibatch,
    clipped_loss,
    gradients_of,
    joint_loss,
    perceptrons,
)
from async_wrappers.agents.losses.loss import LossOutput, mean_loss, mean_slopes
from async_wrappers.agents.networks.policy_value import LOG_STD_RANGE, PolicyValueNetwork
from async_wrappers.agents.spaces.actions import BoxActions
from async_wrappers.agents.spaces.distributions import Gaussian, SquashedGaussian

SIZES = st.integers(1, 4)


def assert_from_the_node(loss: Tensor, slope: Tensor, parameters: list[Tensor], wanted: Any) -> None:
    """The node of a loss gives, without autograd, what autograd gets of it."""
    by_slopes = gradients_of(loss)
    assert by_slopes is not None
    found = by_slopes(slope)
    assert all(torch.equal(found[each], gradient) for each, gradient in zip(parameters, wanted, strict=True))
    assert gradients_of(loss + 1) is None


def layers(inputs: int, outputs: int, hidden: list[int]) -> nn.Sequential:
    made: list[nn.Module] = []
    for units in hidden:
        made += [nn.Linear(inputs, units), nn.ReLU()]
        inputs = units
    return nn.Sequential(*made, nn.Linear(inputs, outputs)).double()


def autograds(modules: Any, of: Given) -> Tensor:
    """The joint loss by the pure functions of each loss."""
    actor, critics, targets = modules
    distribution, alpha = SquashedGaussian(of.action.shape[1], of.log_std_range), of.log_temperature.exp()
    next_noise, noise = of.noise.chunk(2)

    def values(each: Any, features: Tensor, action: Tensor) -> Tensor:
        return torch.cat([critic(torch.cat([features, action], 1)) for critic in each], 1).T

    next_drawn, next_log_prob = distribution.sample_with_log_prob(actor(of.next_seen), next_noise)
    after = values(targets, of.next_met, next_drawn)
    target = soft_target(of.reward, of.discount, after, next_log_prob, alpha)
    drawn, log_prob = distribution.sample_with_log_prob(actor(of.seen), noise)
    for critic in critics:
        critic.requires_grad_(False)  # the policy's loss gives the critics' weights no gradient
    of_policy = policy_loss(log_prob, values(critics, of.met, drawn), alpha)
    for critic in critics:
        critic.requires_grad_(True)
    of_critics = critic_loss(values(critics, of.met, of.action), target)
    return of_critics + of_policy + temperature_loss(of.log_temperature, log_prob, of.target_entropy)


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, SIZES, SIZES, st.lists(st.integers(1, 7), max_size=3), st.integers(0, 2**31))
def test_loss_and_gradient_are_those_of_autograd(
    batch: int, features: int, actions: int, number: int, hidden: list[int], seed: int
) -> None:
    torch.manual_seed(seed)
    rows: Any = {"dtype": torch.float64}
    actor = layers(features, 2 * actions, hidden)
    critics, targets = ([layers(features + actions, 1, hidden) for _ in range(number)] for _ in range(2))
    (of_actor,), of_critics, of_targets = (perceptrons(each) or [] for each in ([actor], critics, targets))
    seen = [torch.randn(batch, features, **rows) for _ in range(4)]
    of = Given(
        of_actor,
        of_critics,
        of_targets,
        nn.Parameter(torch.tensor(-0.5, **rows)),
        seen[0],
        seen[1],
        seen[2],
        seen[3],
        torch.randn(batch, actions, **rows).tanh(),
        torch.randn(batch, **rows),
        torch.rand(batch, **rows),
        torch.randn(2 * batch, actions, **rows),
        (-0.3, 0.2),  # many deviations are beyond it
        -0.7,
    )
    parameters: list[Tensor] = [*actor.parameters(), *(each for critic in critics for each in critic.parameters())]
    parameters.append(of.log_temperature)
    weights = torch.randn(batch, **rows)
    found, _, metrics = joint_loss(of, parameters)
    wanted = autograds((actor, critics, targets), of)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    gradients = [torch.autograd.grad(loss, parameters, weights) for loss in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)
    assert_from_the_node(found, weights, parameters, gradients[0])
    parts = metrics["CriticLoss"] + metrics["PolicyLoss"] + metrics["TemperatureLoss"]
    torch.testing.assert_close(parts, wanted.mean(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(2, 1),
        nn.Sequential(),
        nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)),
        nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)),
        nn.Sequential(nn.Linear(2, 2, bias=False)),
        nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2))),
    ],
    ids=["no sequence", "empty", "tanh", "relu last", "no relu", "no bias", "parametrised"],
)
def test_other_modules_are_no_perceptrons(module: nn.Module) -> None:
    assert perceptrons([layers(2, 1, [3]), module]) is None
    assert perceptrons([layers(2, 1, [3])]) is not None


class ByAutograd(SAC):
    """A user's own agent, whose `draw` is another method: its loss is autograd's."""

    def draw(self, *arguments: Any) -> Any:
        return super().draw(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"num_critics": 3, "priority": "loss"}, {"num_layers": 0}, {"critic_at": "effect"}],
    ids=["plain", "three critics", "linear", "effect"],
)
def test_the_agents_loss_is_the_same_in_both_ways(arguments: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    spaces = Box(-1, 1, (3,), np.float32), Box(-2, 2, (2,), np.float32)
    both = []
    observation, following = (torch.from_numpy(rng.standard_normal((8, 1, 3), np.float32)) for _ in range(2))
    parts = [{"start": each, "effect": each.flip(0)} for each in (observation, following)]
    met, next_met = parts if arguments.get("critic_at") else (observation, following)
    batch = {
        "observation": met,
        "next_observation": next_met,
        "action": torch.from_numpy(rng.uniform(-1, 1, (8, 2)).astype(np.float32)),
        "reward": torch.arange(8.0),
        "discount": torch.full((8,), 0.9),
    }
    for kind in (SAC, ByAutograd):
        spec = kind(*spaces, seed=1, hidden_units=16, replay_capacity=100, device="cpu", **arguments)
        learner = make_learner(spec)
        output = spec.loss(learner.networks, batch, np.random.default_rng(5))
        output.loss.mean().backward()  # type: ignore[no-untyped-call]
        gradients = {name: each.grad for name, each in learner.network.named_parameters()}
        both.append((output.loss, output.priority, output.metrics, gradients, output.loss.grad_fn))
    (*hand, by_hand), (*auto, by_autograd) = both
    assert type(by_hand).__name__ == "_JointLossBackward" != type(by_autograd).__name__
    torch.testing.assert_close(hand, auto, rtol=1e-5, atol=1e-6)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=9), st.booleans())
def test_the_slopes_of_a_mean_loss_are_autograds_bit_for_bit(losses: list[float], weighted: bool) -> None:
    loss = torch.tensor(losses, requires_grad=True)
    batch = {"weight": torch.rand(len(losses), generator=torch.Generator().manual_seed(0))} if weighted else {}
    mean_loss(LossOutput(loss, loss.detach()), batch).backward()  # type: ignore[no-untyped-call]
    assert loss.grad is not None
    assert torch.equal(mean_slopes(loss.detach(), batch), loss.grad)


class WithTerm(SAC):
    """A user's own agent, which adds a term to SAC's loss."""

    def loss(self, networks: Any, batch: Any, rng: np.random.Generator) -> LossOutput:
        output = super().loss(networks, batch, rng)
        return output._replace(loss=output.loss + 0.5 * networks.module.log_temperature)


def learner_of(kind: type[SAC]) -> Any:
    """A learner of a small SAC that can make an update."""
    spaces = Box(-1, 1, (3,), np.float32), Box(-2, 2, (2,), np.float32)
    settings = {"hidden_units": 8, "batch_size": 4, "min_replay_history": 10, "replay_capacity": 50}
    learner = make_learner(kind(*spaces, seed=1, device="cpu", **settings))
    for step in range(12):
        observation = np.full(3, step / 12, np.float32)
        learner.observe(
            {"observation": observation, "action": np.zeros(2, np.float32), "reward": 1.0, "interval": 1}
            | {"terminal": False, "truncated": False, "next_observation": observation}
        )
    return learner


def test_a_learner_follows_a_term_that_is_added_to_the_loss() -> None:
    plain, with_term = (learner_of(kind).gradients()["log_temperature"] for kind in (SAC, WithTerm))
    assert with_term - plain == pytest.approx(0.5, abs=1e-6)


def test_a_parameter_that_is_not_to_be_learnt_has_no_gradient() -> None:
    learner = learner_of(SAC)
    learner.network.log_temperature.requires_grad_(False)
    learner.network.actor.requires_grad_(False)
    frozen = {"log_temperature", *(f"actor.{name}" for name, _ in learner.network.actor.named_parameters())}
    names = {name for name, _ in learner.network.named_parameters()}
    assert frozen < names
    assert set(learner.gradients()) == names - frozen


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_on_a_parameter_is_called(kind: str) -> None:
    learner, heard = learner_of(SAC), []
    getattr(learner.network.log_temperature, kind)(heard.append)
    learner.gradients()
    assert len(heard) == 1


class Named(torch.autograd.Function):
    """A user's own node, with a name that ours has."""

    @staticmethod
    def forward(context: Any, weight: Tensor) -> Tensor:
        context.chain_rule = weight
        return weight.sum().expand(3)

    @staticmethod
    def backward(context: Any, *slopes: Any) -> Any:
        return slopes[0].sum().expand_as(context.chain_rule)


def test_a_loss_of_another_node_is_autograds() -> None:
    assert gradients_of(Named.apply(torch.ones(2, requires_grad=True))) is None  # type: ignore[no-untyped-call]
    assert gradients_of(torch.ones(2)) is None


class WithHook(SAC):
    """A user's own agent, which changes the gradients of SAC's losses by a hook."""

    def loss(self, networks: Any, batch: Any, rng: np.random.Generator) -> LossOutput:
        output = super().loss(networks, batch, rng)
        output.loss.register_hook(lambda slope: 0.0 * slope)  # type: ignore[no-untyped-call]
        return output


def test_a_hook_on_the_loss_is_called() -> None:
    gradients = learner_of(WithHook).gradients()
    assert gradients and not any(gradient.any() for gradient in gradients.values())
    assert learner_of(SAC).gradients()["log_temperature"] != 0


# PPO.


@settings(max_examples=60, deadline=None)
@given(
    SIZES,
    SIZES,
    SIZES,
    st.lists(st.integers(1, 7), max_size=3),
    st.sampled_from([-0.3, 0.0, 12.0, -12.0]),
    st.sampled_from([0.0, 0.1]),
    st.integers(0, 2**31),
)
def test_the_clipped_loss_and_its_gradient_are_those_of_autograd(
    decisions: int, features: int, actions: int, hidden: list[int], log_std: float, of_entropy: float, seed: int
) -> None:
    torch.manual_seed(seed)
    rows: Any = {"dtype": torch.float64}
    space = BoxActions(Box(-1, 1, (actions,), np.float32), "ppo")
    network = PolicyValueNetwork((1, features), space, hidden).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        of_network: Any = network.parameters_of.log_std
        of_network.add_(log_std)  # 12 and -12 are beyond what deviations are held to
    observation = torch.randn(decisions, features, **rows)
    noise = torch.randn(decisions, actions, **rows)
    advantage, target = torch.randn(2, decisions, **rows)
    policy, value = observation, observation
    for number, (weight, bias) in enumerate(network.layers):
        policy, value = (each @ weight[i] + bias[i] for i, each in enumerate((policy, value)))
        if number < len(hidden):
            policy, value = policy.tanh(), value.tanh()
    log_stds = of_network.clamp(*LOG_STD_RANGE).expand_as(policy)
    parameters, values = torch.cat([policy, log_stds], dim=1), value[:, 0]
    # Actions that the policy drew. Of others, a deviation of e^-10 would make log-probabilities of -1e9, whose
    # differences have few digits.
    drawn = (policy + log_stds.exp() * noise).detach()
    distribution = Gaussian(actions)
    log_prob = distribution.log_prob(parameters, drawn)
    log_mu = log_prob.detach() + 0.3 * torch.randn(decisions, **rows)  # many ratios are clipped
    epsilon, of_value = 0.2, 0.7

    wanted = clipped_policy_loss(log_prob - log_mu, advantage, epsilon) + of_value * clipped_value_loss(values, target)
    wanted = wanted - of_entropy * distribution.entropy(parameters)
    weights = epsilon, of_value, of_entropy
    given = Minibatch(
        network.layers, of_network, LOG_STD_RANGE, observation, drawn, log_mu, advantage, target, *weights
    )
    found, numbers = clipped_loss(given)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(numbers["Value"], values)
    slope, learnt = torch.randn(decisions, **rows), list(network.parameters())
    gradients = [torch.autograd.grad(loss, learnt, slope) for loss in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)
    assert_from_the_node(found, slope, learnt, gradients[0])


def test_the_gradient_of_a_layer_that_stands_in_two_places_is_the_sum() -> None:
    torch.manual_seed(0)
    network = PolicyValueNetwork((1, 2), BoxActions(Box(-1, 1, (1,), np.float32), "ppo"), (4, 4, 4))
    network.weights[2] = network.weights[1]
    of_network: Any = network.parameters_of.log_std
    rows = torch.randn(4, 5, 1)
    given = Minibatch(
        network.layers, of_network, LOG_STD_RANGE, torch.randn(5, 2), *rows[0:1], *rows[1:, :, 0], 0.2, 0.7, 0.0
    )
    shared, learnt = network.weights[1], list(network.parameters())
    by_slopes = gradients_of(clipped_loss(given)[0])
    assert by_slopes is not None
    (wanted,) = torch.autograd.grad(clipped_loss(given)[0], [shared], torch.ones(5))
    found = by_slopes(torch.ones(5))
    torch.testing.assert_close(found[shared], wanted)
    with torch.no_grad():
        copies = [nn.Parameter(each.clone()) for each in (shared, shared)]
    network.weights[1], network.weights[2] = copies
    apart = torch.autograd.grad(clipped_loss(given._replace(layers=network.layers))[0], copies, torch.ones(5))
    torch.testing.assert_close(wanted, apart[0] + apart[1])
    assert len(learnt) == len(set(learnt))
