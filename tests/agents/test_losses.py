"""The losses against tables worked by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agents import losses

Q_TM1 = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
A_TM1 = [0, 1, 0]
R_T = [1.0, -1.0, 0.5]
DISCOUNT_T = [0.5, 0.9, 0.0]  # the last step terminates
Q_T = [[2.0, 4.0], [10.0, 0.0], [100.0, 200.0]]
Q_T_SELECTOR = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]


def step() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first four arguments of either error."""
    q_tm1 = torch.tensor(Q_TM1, requires_grad=True)
    return q_tm1, torch.tensor(A_TM1), torch.tensor(R_T), torch.tensor(DISCOUNT_T)


class TestQLearning:
    def test_table(self) -> None:
        # 1 + 0.5 * 4 - 1, -1 + 0.9 * 10 - 4, 0.5 - 5
        error = losses.td_error_q_learning(*step(), torch.tensor(Q_T))
        torch.testing.assert_close(error, torch.tensor([2.0, 4.0, -4.5]))

    def test_gradient_reaches_only_the_estimate_of_the_action_taken(self) -> None:
        q_tm1, a_tm1, r_t, discount_t = step()
        q_t = torch.tensor(Q_T, requires_grad=True)
        torch.autograd.backward(losses.td_error_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t).sum())
        assert q_t.grad is None
        torch.testing.assert_close(q_tm1.grad, torch.tensor([[-1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]]))

    def test_no_gradient_through_a_shared_network(self) -> None:
        q_tm1, a_tm1, r_t, discount_t = step()
        torch.autograd.backward(losses.td_error_q_learning(q_tm1, a_tm1, r_t, discount_t, q_tm1 * 7.0).sum())
        torch.testing.assert_close(q_tm1.grad, torch.tensor([[-1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]]))

    @pytest.mark.parametrize("name", ["a_tm1", "r_t", "discount_t", "q_t"])
    def test_wrong_shape_is_named(self, name: str) -> None:
        arguments = dict(zip(("q_tm1", "a_tm1", "r_t", "discount_t"), step(), strict=True))
        arguments["q_t"] = torch.tensor(Q_T)
        arguments[name] = arguments[name].unsqueeze(-1)
        with pytest.raises(ValueError, match=f"^{name} must have shape"):
            losses.td_error_q_learning(**arguments)

    def test_estimates_without_a_batch_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"q_tm1 must have shape \[B, A\], got \[2\]"):
            losses.td_error_q_learning(torch.zeros(2), *step()[1:], torch.tensor(Q_T))

    def test_float_actions_are_refused(self) -> None:
        q_tm1, a_tm1, r_t, discount_t = step()
        with pytest.raises(ValueError, match="a_tm1 must hold integers"):
            losses.td_error_q_learning(q_tm1, a_tm1.float(), r_t, discount_t, torch.tensor(Q_T))


class TestDoubleQLearning:
    def test_table(self) -> None:
        # The selector takes action 0, 1, 1: 1 + 0.5 * 2 - 1, -1 + 0.9 * 0 - 4, 0.5 - 5
        error = losses.td_error_double_q_learning(*step(), torch.tensor(Q_T), torch.tensor(Q_T_SELECTOR))
        torch.testing.assert_close(error, torch.tensor([1.0, -5.0, -4.5]))

    def test_is_q_learning_where_both_networks_are_one(self) -> None:
        q_t = torch.tensor(Q_T)
        double = losses.td_error_double_q_learning(*step(), q_t, q_t)
        torch.testing.assert_close(double, losses.td_error_q_learning(*step(), q_t))

    def test_gradient_reaches_only_the_estimate(self) -> None:
        q_tm1, a_tm1, r_t, discount_t = step()
        value = torch.tensor(Q_T, requires_grad=True)
        torch.autograd.backward(
            losses.td_error_double_q_learning(q_tm1, a_tm1, r_t, discount_t, value, q_tm1 * 2.0).sum()
        )
        assert value.grad is None
        torch.testing.assert_close(q_tm1.grad, torch.tensor([[-1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]]))

    @pytest.mark.parametrize("name", ["q_t_value", "q_t_selector"])
    def test_wrong_shape_is_named(self, name: str) -> None:
        values = {"q_t_value": torch.tensor(Q_T), "q_t_selector": torch.tensor(Q_T_SELECTOR)}
        values[name] = values[name][:, :1]
        with pytest.raises(ValueError, match=rf"^{name} must have shape \[3, 2\] to fit q_tm1, got \[3, 1\]"):
            losses.td_error_double_q_learning(*step(), **values)


class TestLosses:
    def test_huber_is_smooth_l1(self) -> None:
        x = torch.linspace(-3.0, 3.0, 61)
        expected = torch.nn.functional.smooth_l1_loss(x, torch.zeros(61), reduction="none")
        torch.testing.assert_close(losses.huber(x), expected)

    @pytest.mark.parametrize("delta", [0.5, 1.0, 2.0])
    def test_huber_of_any_delta(self, delta: float) -> None:
        x = torch.linspace(-3.0, 3.0, 61)
        expected = torch.nn.functional.huber_loss(x, torch.zeros(61), reduction="none", delta=delta)
        torch.testing.assert_close(losses.huber(x, delta), expected)

    def test_gradient_of_huber_is_the_clipped_error(self) -> None:
        x = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0], requires_grad=True)
        torch.autograd.backward(losses.huber(x).sum())
        torch.testing.assert_close(x.grad, x.detach().clamp(-1.0, 1.0))

    def test_huber_refuses_a_delta_of_zero(self) -> None:
        with pytest.raises(ValueError, match=r"delta must be > 0, got 0\.0"):
            losses.huber(torch.zeros(1), 0.0)

    def test_squared_has_no_half(self) -> None:
        torch.testing.assert_close(losses.squared(torch.tensor([-3.0, 0.5])), torch.tensor([9.0, 0.25]))
