"""PPO's returns and losses against tables worked by hand, and against one episode after another."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from async_wrappers.agents.losses.actor_critic import (
    approximate_kl,
    clipped_policy_loss,
    clipped_value_loss,
    gae,
    normalized,
)

# Three steps: gamma 1/2, lambda 1/2, values 1, 2, 3 and 4, rewards 1, 0 and 2.
VALUES, REWARDS = (1.0, 2.0, 3.0, 4.0), (1.0, 0.0, 2.0)

#   delta = 1 + 1/2 * 2 - 1 = 1;  0 + 1/2 * 3 - 2 = -1/2;  2 + 1/2 * 4 - 3 = 1
#   A_2 = 1;  A_1 = -1/2 + 1/4 * 1 = -1/4;  A_0 = 1 + 1/4 * -1/4 = 15/16
PLAIN = (0.5, 0.5, 0.5), (1.0, 1.0, 1.0), (15 / 16, -1 / 4, 1.0)
# The first step terminated, the middle row is the final one: delta_0 = 1 - 1 = 0, and nothing is carried.
TERMINATED = (0.0, 0.0, 0.5), (1.0, 0.0, 1.0), (0.0, 0.0, 1.0)
# The first step was truncated, or cut: it bootstraps on the final observation's value, 2: delta_0 = 1.
TRUNCATED = (0.5, 0.0, 0.5), (1.0, 0.0, 1.0), (1.0, 0.0, 1.0)
# The last step terminated: delta_2 = 2 - 3 = -1;  A_1 = -1/2 - 1/4 = -3/4;  A_0 = 1 - 3/16 = 13/16
ENDED = (0.5, 0.5, 0.0), (1.0, 1.0, 1.0), (13 / 16, -3 / 4, -1.0)
# The sequence begins with a final row: the episode's last decision was in the sequence before.
BEGINS_FINAL = (0.0, 0.5, 0.5), (0.0, 1.0, 1.0), (0.0, -1 / 4, 1.0)
TABLE = {
    "plain": PLAIN,
    "terminated inside": TERMINATED,
    "truncated inside": TRUNCATED,
    "terminated at the end": ENDED,
    "a final row first": BEGINS_FINAL,
}


@pytest.mark.parametrize(("discounts", "mask", "expected"), TABLE.values(), ids=TABLE)
def test_three_steps_by_hand(
    discounts: tuple[float, ...], mask: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    found = gae(*map(torch.tensor, (VALUES, REWARDS, discounts, mask)), lambda_=0.5)
    assert found.advantages.tolist() == pytest.approx(list(expected))
    assert found.targets.tolist() == pytest.approx([a + v for a, v in zip(expected, VALUES[:-1], strict=True)])


def test_a_batch_of_sequences_is_each_of_them_alone() -> None:
    columns = [
        torch.stack([torch.tensor(each) for each in given_], dim=1)
        for given_ in zip(*((VALUES, REWARDS, discounts, mask) for discounts, mask, _ in TABLE.values()), strict=True)
    ]
    found = gae(*columns, lambda_=0.5)
    for column, (_, _, expected) in enumerate(TABLE.values()):
        assert found.advantages[:, column].tolist() == pytest.approx(list(expected))


@st.composite
def sequences(draw: st.DrawFn) -> dict[str, Tensor]:
    """Rows with episodes that end, by a terminal or not, each with a final row after it."""
    steps = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values, rewards = rng.normal(size=steps + 1), rng.normal(size=steps)
    discounts, mask = np.full(steps, 0.9), np.ones(steps)
    s = int(rng.integers(2)) - 1  # a sequence may begin with a final row
    while s < steps:
        if s >= 0 and rng.random() < 0.3:
            discounts[s] = rng.choice([0.0, 0.9])
        elif s >= 0:
            s += 1
            continue
        if s + 1 < steps:
            mask[s + 1] = discounts[s + 1] = rewards[s + 1] = 0.0
        s += 2
    arrays = {"values": values, "rewards": rewards, "discounts": discounts, "mask": mask}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@settings(deadline=None, max_examples=100)
@given(sequences(), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_advantages_are_the_sums_of_each_episode_alone(given_: dict[str, Tensor], lambda_: float) -> None:
    values, rewards, discounts, mask = (each.tolist() for each in given_.values())
    expected = [0.0] * len(rewards)
    for s in range(len(rewards)):
        weight = 1.0
        for t in range(s, len(rewards)):  # to the end of the episode that s belongs to
            if not mask[t]:
                break
            expected[s] += weight * (rewards[t] + discounts[t] * values[t + 1] - values[t])
            weight *= discounts[t] * lambda_
            if discounts[t] == 0:
                break
    found = gae(**given_, lambda_=lambda_)
    assert found.advantages.tolist() == pytest.approx(expected)
    assert found.targets.tolist() == pytest.approx([a + v for a, v in zip(expected, values[:-1], strict=True)])


@settings(deadline=None, max_examples=50)
@given(sequences())
def test_with_lambda_1_targets_are_discounted_returns(given_: dict[str, Tensor]) -> None:
    values, rewards, discounts, mask = (each.tolist() for each in given_.values())
    after, expected = values[-1], []
    for s in reversed(range(len(rewards))):
        after = rewards[s] + discounts[s] * after if mask[s] else values[s]
        expected.append(after)
    assert gae(**given_, lambda_=1.0).targets.tolist() == pytest.approx(expected[::-1])


@pytest.mark.parametrize("name", ["values", "discounts", "mask"])
def test_shapes_that_differ_are_refused(name: str) -> None:
    given_ = {"values": torch.zeros(4, 2), "rewards": torch.zeros(3, 2), "discounts": torch.zeros(3, 2)}
    given_["mask"] = torch.ones(3, 2)
    given_[name] = torch.zeros(2, 2)
    with pytest.raises(ValueError, match=f"^{name} must have"):
        gae(**given_)


# The clip: epsilon = 1/4. Of ratio and advantage: the loss, and its derivative by the ratio.
CLIP = {
    "as likely": (1.0, 2.0, -2.0, -2.0),
    "likelier, within": (1.2, 2.0, -2.4, -2.0),
    "likelier, beyond, and good: held": (1.5, 2.0, -2.5, 0.0),
    "likelier, beyond, and bad: not held": (1.5, -2.0, 3.0, 2.0),
    "less likely, beyond, and good: not held": (0.5, 2.0, -1.0, -2.0),
    "less likely, beyond, and bad: held": (0.5, -2.0, 1.5, 0.0),
}


@pytest.mark.parametrize(("ratio", "advantage", "loss", "slope"), CLIP.values(), ids=CLIP)
def test_the_clipped_objective_by_hand(ratio: float, advantage: float, loss: float, slope: float) -> None:
    log_ratio = torch.tensor(math.log(ratio), dtype=torch.float64, requires_grad=True)
    found = clipped_policy_loss(log_ratio, torch.tensor(advantage, dtype=torch.float64), 0.25)
    (gradient,) = torch.autograd.grad(found, log_ratio)
    assert found.item() == pytest.approx(loss)
    assert gradient.item() == pytest.approx(slope * ratio)  # d ratio / d log ratio = ratio


# Of a value whose old one is 1, epsilon 1/4: value, target, loss.
VALUE_CLIP = {
    "within": (1.2, 2.0, 0.64),
    "beyond, towards the target: that of 5/4": (1.5, 2.0, 0.5625),
    "beyond, past the target: its own": (1.5, 1.0, 0.25),
    "below, away from the target: its own": (0.5, 2.0, 2.25),
    "below, towards the target: that of 3/4": (0.5, 0.0, 0.5625),
}


@pytest.mark.parametrize(("value", "target", "loss"), VALUE_CLIP.values(), ids=VALUE_CLIP)
def test_the_clipped_error_of_the_value_by_hand(value: float, target: float, loss: float) -> None:
    found = clipped_value_loss(*map(torch.tensor, (value, target, 1.0)), epsilon=0.25)
    assert found.item() == pytest.approx(loss)
    assert clipped_value_loss(*map(torch.tensor, (value, target))).item() == pytest.approx((value - target) ** 2)


def test_advantages_are_normalised_by_mean_and_deviation_of_each_minibatch() -> None:
    # Minibatches of three, of one and of two sequences; of the last, one row has no decision.
    advantages = torch.tensor([[1.0, 2.0, 3.0, 5.0, 2.0, 6.0], [4.0, 5.0, 6.0, 5.0, 9.0, 4.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0, 0.0, 1.0]])
    found = normalized(advantages, mask, [3, 1, 2])
    first = advantages[:, :3]
    assert torch.allclose(found[:, :3], (first - 3.5) / first.std())
    assert found[:, 3].tolist() == [0.0, 0.0]
    assert found[:, 4:].flatten().tolist() == pytest.approx([-1.0, 1.0, 0.0, 0.0])


def test_the_estimate_of_the_divergence_is_unbiased_and_never_negative() -> None:
    mu, pi = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.4, 0.4, 0.2])
    each = approximate_kl((pi / mu).log())
    assert (each >= 0).all()
    assert (mu * each).sum().item() == pytest.approx((mu * (mu / pi).log()).sum().item(), rel=1e-5)
