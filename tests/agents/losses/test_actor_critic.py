"""V-trace against tables worked by hand, the double sum of the paper, and the n-step return."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from async_wrappers.agents.losses.actor_critic import (
    VTraceTerms,
    effective_sample_size,
    entropy,
    implied_policy,
    kl_divergence,
    log_prob,
    masked_mean,
    vtrace,
)

# Three steps: gamma 1/2, ratios pi / mu of 2, 1/2 and 1, values 1, 2, 3 and 4, rewards 1, 0 and 2.
VALUES, REWARDS = (1.0, 2.0, 3.0, 4.0), (1.0, 0.0, 2.0)
RATIOS = (2.0, 0.5, 1.0)


def sequence(
    discounts: tuple[float, ...] = (0.5, 0.5, 0.5), mask: tuple[float, ...] = (1.0, 1.0, 1.0)
) -> dict[str, Tensor]:
    return {
        "values": torch.tensor(VALUES),
        "rewards": torch.tensor(REWARDS),
        "discounts": torch.tensor(discounts),
        "log_rhos": torch.tensor(RATIOS).log(),
        "mask": torch.tensor(mask),
    }


# By hand, with rho-bar = c-bar = 1, so that rho = c = 1, 1/2, 1:
#   delta = 1 (1 + 1/2 * 2 - 1) = 1;  1/2 (0 + 1/2 * 3 - 2) = -1/4;  1 (2 + 1/2 * 4 - 3) = 1
#   x_2 = 1;  x_1 = -1/4 + 1/2 * 1/2 * 1 = 0;  x_0 = 1 + 1/2 * 1 * 0 = 1
#   v = 2, 2, 4;  advantage = 1 (1 + 1/2 * 2 - 1) = 1;  1/2 (0 + 1/2 * 4 - 2) = 0;  1 (2 + 1/2 * 4 - 3) = 1
PLAIN = ((2.0, 2.0, 4.0), (1.0, 0.0, 1.0))
# The middle row is a final one: its decision is none. Its value, 2, is what the first step bootstraps on.
#   delta = 1, 0, 1;  x = 1, 0, 1;  v = 2, 2, 4;  advantage = 1 (1 + 1/2 * 2 - 1) = 1, 0, 1
TRUNCATED = ((2.0, 2.0, 4.0), (1.0, 0.0, 1.0))
# The first step terminated: delta_0 = 1 (1 - 1) = 0, v_0 = 1, advantage 0.
TERMINATED = ((1.0, 2.0, 4.0), (0.0, 0.0, 1.0))
# lambda = 1/2: x_1 = -1/4 + 1/2 * 1/4 * 1 = -1/8; x_0 = 1 + 1/2 * 1/2 * -1/8 = 31/32
#   advantage = 1 (1 + 1/2 * 15/8 - 1) = 15/16;  1/2 (1/2 * 4 - 2) = 0;  1
HALF = ((63 / 32, 15 / 8, 4.0), (15 / 16, 0.0, 1.0))
# rho-bar = 2, c-bar = 1: delta_0 = 2, x_0 = 2 + 1/2 * 1 * 0 = 2, v_0 = 3; advantage_0 = 2 (1 + 1 - 1) = 2
WIDE = ((3.0, 2.0, 4.0), (2.0, 0.0, 1.0))
# The same, with the policy gradient's ratio clipped at 1.
NARROW_GRADIENT = ((3.0, 2.0, 4.0), (1.0, 0.0, 1.0))
TABLE = {
    "plain": (sequence(), {}, PLAIN),
    "a final row in the middle": (sequence((0.5, 0.0, 0.5), (1.0, 0.0, 1.0)), {}, TRUNCATED),
    "a terminal and its final row": (sequence((0.0, 0.0, 0.5), (1.0, 0.0, 1.0)), {}, TERMINATED),
    "lambda": (sequence(), {"lambda_": 0.5}, HALF),
    "rho-bar": (sequence(), {"clip_rho": 2.0}, WIDE),
    "rho-bar of the gradient": (sequence(), {"clip_rho": 2.0, "clip_pg_rho": 1.0}, NARROW_GRADIENT),
}


@pytest.mark.parametrize(("given_", "arguments", "expected"), TABLE.values(), ids=TABLE)
def test_three_steps_by_hand(
    given_: dict[str, Tensor], arguments: dict[str, float], expected: tuple[tuple[float, ...], ...]
) -> None:
    returns = vtrace(**given_, **arguments)
    assert [each.tolist() for each in returns] == [pytest.approx(list(each)) for each in expected]


def test_a_batch_of_sequences_is_each_of_them_alone() -> None:
    plain = [(given_, expected) for given_, arguments, expected in TABLE.values() if not arguments]
    batch = {name: torch.stack([given_[name] for given_, _ in plain], dim=1) for name in plain[0][0]}
    returns = vtrace(**batch)
    for column, (_, expected) in enumerate(plain):
        assert [each[:, column].tolist() for each in returns] == [pytest.approx(list(each)) for each in expected]


@st.composite
def sequences(draw: st.DrawFn, on_policy: bool = False) -> dict[str, Tensor]:
    """Rows with episodes that end, by a terminal or not, each with a final row after it."""
    steps = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values, rewards = rng.normal(size=steps + 1), rng.normal(size=steps)
    discounts, mask = np.full(steps, 0.9), np.ones(steps)
    for s in range(steps):
        if rng.random() < 0.3:
            discounts[s] = rng.choice([0.0, 0.9])
            if s + 1 < steps:
                mask[s + 1] = discounts[s + 1] = rewards[s + 1] = 0.0
    log_rhos = np.zeros(steps) if on_policy else rng.normal(size=steps)
    arrays = {"values": values, "rewards": rewards, "discounts": discounts, "log_rhos": log_rhos, "mask": mask}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@settings(deadline=None, max_examples=60)
@given(
    sequences(), st.sampled_from([0.5, 1.0]), st.sampled_from([0.7, 1.0, 3.0]), st.sampled_from([0.6, 1.0, math.inf])
)
def test_targets_are_the_double_sum_of_equation_1(
    given_: dict[str, Tensor], lambda_: float, clip_rho: float, clip_c: float
) -> None:
    values, rewards, discounts, log_rhos, mask = (each.tolist() for each in given_.values())
    steps = len(rewards)
    ratio = [math.exp(each) for each in log_rhos]
    expected = []
    for s in range(steps):
        total = values[s]
        for t in range(s, steps):
            weight = 1.0
            for i in range(s, t):
                weight *= discounts[i] * mask[i] * lambda_ * min(clip_c, ratio[i])
            total += (
                weight * mask[t] * min(clip_rho, ratio[t]) * (rewards[t] + discounts[t] * values[t + 1] - values[t])
            )
        expected.append(total)
    returns = vtrace(**given_, lambda_=lambda_, clip_rho=clip_rho, clip_c=clip_c)
    assert returns.targets.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    after = [*expected[1:], values[-1]]
    advantages = [
        mask[s] * min(clip_rho, ratio[s]) * (rewards[s] + discounts[s] * after[s] - values[s]) for s in range(steps)
    ]
    assert returns.advantages.tolist() == pytest.approx(advantages, rel=1e-9, abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(sequences(on_policy=True))
def test_on_policy_a_target_is_the_n_step_return_up_to_its_episodes_end(given_: dict[str, Tensor]) -> None:
    values, rewards, discounts, _, mask = (each.tolist() for each in given_.values())
    steps, expected = len(rewards), []
    for s in range(steps):
        total, discount, t = 0.0, 1.0, s
        while t < steps and mask[t]:
            total, discount, t = total + discount * rewards[t], discount * discounts[t], t + 1
        expected.append(total + discount * values[t])
    assert vtrace(**given_).targets.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_no_gradient_flows_through_a_target() -> None:
    given_ = sequence()
    given_["values"].requires_grad_()
    returns = vtrace(**given_)
    assert isinstance(returns, VTraceTerms)
    assert not any(each.requires_grad for each in returns)


@pytest.mark.parametrize("name", ["values", "discounts", "log_rhos", "mask"])
def test_a_shape_that_differs_is_named(name: str) -> None:
    given_ = sequence()
    given_[name] = given_[name][1:]
    with pytest.raises(ValueError, match=f"^{name} must have "):
        vtrace(**given_)


def test_log_probabilities_and_entropy_are_those_of_the_softmax() -> None:
    logits = torch.tensor([[math.log(1.0), math.log(3.0)], [0.0, 0.0]])
    assert log_prob(logits, torch.tensor([1, 0])).exp().tolist() == pytest.approx([0.75, 0.5])
    expected = [-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), math.log(2)]
    assert entropy(logits).tolist() == pytest.approx(expected)


def test_the_mean_is_over_decisions_alone() -> None:
    losses = torch.tensor([[1.0, 2.0], [100.0, 3.0]])
    mask = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    assert masked_mean(losses, mask).mean().item() == pytest.approx(2.0)
    assert masked_mean(losses, torch.zeros(2, 2)).tolist() == [0.0, 0.0]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_the_divergence_is_that_of_torch_distributions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = (torch.from_numpy(3 * rng.normal(size=(4, 3, 5))) for _ in range(2))
    p, q = (torch.distributions.Categorical(logits=logits) for logits in (one, other))
    torch.testing.assert_close(kl_divergence(one, other), torch.distributions.kl_divergence(p, q))
    assert (kl_divergence(one, one + 2.0).abs() < 1e-12).all()


def test_the_implied_policy_by_hand() -> None:
    pi, mu = torch.tensor([0.5, 0.25, 0.25]).log(), torch.tensor([0.8, 0.1, 0.1]).log()
    # min(mu, pi) = .5, .1, .1; with rho-bar 2, min(2 mu, pi) = .5, .2, .2.
    assert implied_policy(pi, mu).softmax(0).tolist() == pytest.approx([5 / 7, 1 / 7, 1 / 7])
    assert implied_policy(pi, mu + 3.0, clip_rho=2.0).softmax(0).tolist() == pytest.approx([5 / 9, 2 / 9, 2 / 9])
    assert implied_policy(pi, pi).softmax(0).tolist() == pytest.approx(pi.exp().tolist())


def test_the_effective_sample_size_by_hand() -> None:
    log_rhos, mask = torch.tensor([[1.0, 7.0], [1.0, 2.0]]).log(), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    # Ratios 1, 1, 2: (1 + 1 + 2)^2 / (3 (1 + 1 + 4)).
    assert effective_sample_size(log_rhos, mask).item() == pytest.approx(16 / 18)
    assert effective_sample_size(log_rhos + 200.0, mask).item() == pytest.approx(16 / 18)
    assert effective_sample_size(torch.tensor([[100.0], [0.0]]), torch.ones(2, 1)).item() == pytest.approx(1 / 2)
    assert effective_sample_size(log_rhos, torch.zeros(2, 2)).item() == 0.0
