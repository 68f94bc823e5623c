"""The losses on a teacher's values, worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from async_wrappers.agents.losses import teaching

LOG = math.log


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("q_teacher", "q", "temperature", "expected"),
    [
        # p = (3/4, 1/4) against (1/2, 1/2): 3/4 log 3/2 + 1/4 log 1/2
        ([LOG(3), 0.0], [7.0, 7.0], 1.0, 0.75 * LOG(1.5) + 0.25 * LOG(0.5)),
        # the same with values a tenth of it at a tenth of the temperature
        ([LOG(3) / 10, 0.0], [7.0, 7.0], 0.1, 0.75 * LOG(1.5) + 0.25 * LOG(0.5)),
        # p = (1/2, 1/2) against (3/4, 1/4): 1/2 log 2/3 + 1/2 log 2
        ([1.0, 1.0], [LOG(3), 0.0], 1.0, 0.5 * LOG(2 / 3) + 0.5 * LOG(2)),
        ([5.0, 1.0], [8.0, 4.0], 0.5, 0.0),  # softmax knows differences alone
    ],
)
def test_distillation_is_the_divergence_of_the_two_policies(
    q_teacher: list[float], q: list[float], temperature: float, expected: float
) -> None:
    loss = teaching.distillation(rows(q_teacher), rows(q), temperature)
    assert loss.tolist() == pytest.approx([expected])


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_the_temperature_of_a_policys_distillation_is_the_teachers_alone(temperature: float) -> None:
    # p = (3/4, 1/4) against (1/4, 3/4): 3/4 log 3 + 1/4 log 1/3
    loss = teaching.policy_distillation(rows([LOG(3) * temperature, 0.0]), rows([0.0, LOG(3)]), temperature)
    assert loss.tolist() == pytest.approx([0.5 * LOG(3)])


@pytest.mark.parametrize(
    ("q_teacher", "q", "expected"),
    [([2.0, 9.0], [0.0, LOG(3)], -LOG(0.75)), ([2.0, 1.0], [0.0, LOG(3)], -LOG(0.25))],
)
def test_the_best_action_alone_is_a_cross_entropy(q_teacher: list[float], q: list[float], expected: float) -> None:
    assert teaching.best_action_distillation(rows(q_teacher), rows(q), 1.0).tolist() == pytest.approx([expected])


def test_the_error_of_the_values_is_the_mean_square() -> None:
    assert teaching.value_error(rows([1.0, 2.0], [0.0, 0.0]), rows([2.0, 5.0], [1.0, 0.0])).tolist() == [5.0, 0.5]


@pytest.mark.parametrize(
    ("q", "action", "margin", "of_maximum", "mean_of_all"),
    [
        # q + l - q(a_E) is (0, -2 + 1, 1 + 1): the maximum is 2, the mean of the positive parts 2/3
        ([3.0, 1.0, 4.0], 0, 1.0, 2.0, 2 / 3),
        ([3.0, 1.0, 4.0], 2, 0.8, 0.0, 0.0),  # (-.2, -2.2, 0): the teacher's action is the best by the margin
        ([3.0, 3.0, 3.0], 1, 0.5, 0.5, 1 / 3),
    ],
)
def test_the_large_margin(q: list[float], action: int, margin: float, of_maximum: float, mean_of_all: float) -> None:
    actions = torch.tensor([action])
    assert teaching.large_margin(rows(q), actions, margin, of_maximum=True).tolist() == pytest.approx([of_maximum])
    assert teaching.large_margin(rows(q), actions, margin).tolist() == pytest.approx([mean_of_all])


@pytest.mark.parametrize(
    ("q", "action", "temperature", "expected"),
    [
        ([0.0, 0.0], 0, 1.0, LOG(2)),
        ([LOG(3), 0.0], 1, 1.0, LOG(4)),
        ([LOG(3) / 10, 0.0], 0, 0.1, LOG(4) - LOG(3)),
    ],
)
def test_conservative_q_learning(q: list[float], action: int, temperature: float, expected: float) -> None:
    assert teaching.conservative(rows(q), torch.tensor([action]), temperature).tolist() == pytest.approx([expected])


@pytest.mark.parametrize(("score", "weight"), [(-3.0, 1.0), (0.0, 1.0), (0.25, 0.75), (1.0, 0.0), (1.5, 0.0)])
def test_the_weight_lies_in_0_to_1(score: float, weight: float) -> None:
    assert teaching.clipped_weight(score) == weight


def test_a_row_without_a_label_has_no_loss_and_no_gradient() -> None:
    q = rows([1.0, 2.0], [1.0, 2.0]).requires_grad_()
    labels = rows([math.nan, math.nan], [3.0, 0.0])
    for loss in (
        teaching.distillation(labels, q, 0.1),
        teaching.best_action_distillation(labels, q, 0.1),
        teaching.value_error(labels, q),
    ):
        assert loss[0] == 0 and loss[1] > 0
        (gradient,) = torch.autograd.grad(loss.sum(), q)
        assert gradient[0].tolist() == [0, 0] and gradient.isfinite().all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-20, 20), min_size=3, max_size=3), st.lists(st.floats(-20, 20), min_size=3, max_size=3))
def test_a_divergence_is_never_negative_and_pulls_towards_the_teacher(one: list[float], other: list[float]) -> None:
    q = rows(one).requires_grad_()
    loss = teaching.distillation(rows(other), q, 1.0)
    assert loss.item() >= -1e-9
    (gradient,) = torch.autograd.grad(loss.sum(), q)
    expected = rows(one).softmax(1) - rows(other).softmax(1)
    assert torch.allclose(gradient, expected, atol=1e-9)


def test_wrong_arguments_are_refused_in_a_sentence() -> None:
    q = rows([1.0, 2.0])
    with pytest.raises(ValueError, match=r"q_teacher must have the shape \[B, A\] of q, \[1, 2\], got \[1, 3\]"):
        teaching.distillation(rows([1.0, 2.0, 3.0]), q, 1.0)
    with pytest.raises(ValueError, match="temperature must be > 0, got 0"):
        teaching.distillation(q, q, 0)
    with pytest.raises(ValueError, match="temperature must be > 0, got -1"):
        teaching.conservative(q, torch.tensor([0]), -1)
    with pytest.raises(ValueError, match="margin must be >= 0, got -1"):
        teaching.large_margin(q, torch.tensor([0]), -1)
    with pytest.raises(ValueError, match=r"a must have shape \[B\]"):
        teaching.conservative(q, torch.tensor([0, 1]), 1)
