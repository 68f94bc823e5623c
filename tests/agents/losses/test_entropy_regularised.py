"""SAC's target and its three losses against tables worked by hand, and where their gradients go."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from async_wrappers.agents.losses.actor_critic import critic_loss, policy_loss, soft_target, temperature_loss

# Two critics and three transitions, alpha = 1/2; the last one terminated.
R, DISCOUNT = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5, 0.25, 0.0])
Q_T = torch.tensor([[4.0, 8.0, 100.0], [6.0, 4.0, 50.0]])
LOG_PROB = torch.tensor([-2.0, 4.0, 1.0])
ALPHA = torch.tensor(0.5)
# y = 1 + 1/2 (4 + 1/2 * 2) = 3.5;  -2 + 1/4 (4 - 1/2 * 4) = -1.5;  3
TARGET = [3.5, -1.5, 3.0]
# Q = (3, -1, 1) and (4, -3, 3): 1/2 (1/4 + 1/4) = 1/4;  1/2 (1/4 + 9/4) = 5/4;  1/2 (4 + 0) = 2
Q_TM1 = torch.tensor([[3.0, -1.0, 1.0], [4.0, -3.0, 3.0]])
CRITIC_LOSS = [0.25, 1.25, 2.0]
# alpha log pi - min Q = -1 - 3;  2 + 3;  1/2 - 1
POLICY_LOSS = [-4.0, 5.0, -0.5]
# log alpha = log 1/2, target entropy -1: log 2 (log pi - 1) = log 2 (-3, 3, 0)
TEMPERATURE_LOSS = [-3 * math.log(2), 3 * math.log(2), 0.0]


def test_the_target_is_the_return_and_the_least_target_critic_with_its_entropy() -> None:
    assert soft_target(R, DISCOUNT, Q_T, LOG_PROB, ALPHA).tolist() == TARGET


def test_the_critics_loss_is_half_the_squared_errors_of_all_critics() -> None:
    assert critic_loss(Q_TM1, torch.tensor(TARGET)).tolist() == CRITIC_LOSS


def test_the_policys_loss_is_its_log_density_times_alpha_less_the_least_critic() -> None:
    assert policy_loss(LOG_PROB, Q_TM1, ALPHA).tolist() == POLICY_LOSS


def test_the_temperatures_loss_is_the_entropys_distance_from_its_target() -> None:
    assert temperature_loss(ALPHA.log(), LOG_PROB, -1.0).tolist() == pytest.approx(TEMPERATURE_LOSS)


def test_gradients_reach_what_each_loss_learns_and_nothing_else() -> None:
    q, target, log_prob, log_alpha = (
        each.clone().requires_grad_() for each in (Q_TM1, torch.tensor(TARGET), LOG_PROB, ALPHA.log())
    )
    assert not soft_target(R, DISCOUNT, q, log_prob, log_alpha.exp()).requires_grad
    critic_loss(q, target).sum().backward()
    assert q.grad is not None and target.grad is None
    assert q.grad.tolist() == [[-0.5, 0.5, -2.0], [0.5, -1.5, 0.0]]  # Q - y

    q.grad = None
    policy_loss(log_prob, q, log_alpha.exp()).sum().backward()
    assert log_alpha.grad is None and q.grad is not None and log_prob.grad is not None
    assert log_prob.grad.tolist() == [0.5, 0.5, 0.5]
    assert q.grad.tolist() == [[-1.0, 0.0, -1.0], [0.0, -1.0, 0.0]]  # the least critic's alone

    log_prob.grad = None
    temperature_loss(log_alpha, log_prob, -1.0).sum().backward()
    assert log_prob.grad is None and log_alpha.grad is not None
    assert float(log_alpha.grad) == 0.0  # -(-3 + 3 + 0)


@given(entropy=st.floats(-20, 20), wanted=st.floats(-20, 20))
def test_alpha_falls_where_the_entropy_is_above_its_target(entropy: float, wanted: float) -> None:
    log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)
    temperature_loss(log_alpha, torch.tensor([-entropy], dtype=torch.float64), wanted).mean().backward()
    assert log_alpha.grad is not None and float(log_alpha.grad) == pytest.approx(entropy - wanted)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ((R, DISCOUNT, Q_T[0], LOG_PROB), r"the critics' values must have the shape \[E, 3\], got \[3\]"),
        ((R, DISCOUNT, Q_T.T, LOG_PROB), r"the critics' values must have the shape \[E, 3\], got \[3, 2\]"),
        ((R, DISCOUNT, Q_T, LOG_PROB[:, None]), r"log_prob_t must have the shape \[3\], got \[3, 1\]"),
    ],
)
def test_a_shape_that_would_be_broadcast_is_refused(given_: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        soft_target(*given_, ALPHA)
