"""The losses against tables worked by hand, and against loops over the papers' formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from async_wrappers.agents.losses import values as losses

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


SUPPORT = torch.tensor([-1.0, 0.0, 1.0])


class TestProjection:
    @pytest.mark.parametrize(
        ("z", "p", "expected"),
        [
            ([-1.0, 0.0, 1.0], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),  # onto itself
            ([0.5], [1.0], [0.0, 0.5, 0.5]),  # halfway
            ([-0.25], [1.0], [0.25, 0.75, 0.0]),  # a quarter below 0
            ([-7.0, 9.0], [0.25, 0.75], [0.25, 0.0, 0.75]),  # beyond the ends
            ([0.25, 0.25, 0.25], [0.2, 0.3, 0.5], [0.0, 0.75, 0.25]),  # a terminal step: every atom in one place
        ],
    )
    def test_table(self, z: list[float], p: list[float], expected: list[float]) -> None:
        projected = losses.project_categorical(torch.tensor([z]), torch.tensor([p]), SUPPORT)
        torch.testing.assert_close(projected, torch.tensor([expected]))

    def test_rows_are_projected_each_by_itself(self) -> None:
        z, p = torch.tensor([[0.5], [-1.0]]), torch.ones(2, 1)
        torch.testing.assert_close(
            losses.project_categorical(z, p, SUPPORT), torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
        )

    def test_mass_is_kept_and_so_is_the_mean_of_what_lies_within(self) -> None:
        generator = torch.Generator().manual_seed(0)
        support = torch.linspace(-3.0, 5.0, 21)
        z = -3.0 + 8.0 * torch.rand(50, 9, generator=generator)
        p = torch.rand(50, 9, generator=generator).softmax(dim=1)
        projected = losses.project_categorical(z, p, support)
        torch.testing.assert_close(projected.sum(dim=1), torch.ones(50))
        torch.testing.assert_close(projected @ support, (z * p).sum(dim=1))

    def test_a_place_that_is_not_a_number_spoils_its_own_row_alone(self) -> None:
        z = torch.tensor([[float("nan"), 0.0], [0.0, 0.0]])
        projected = losses.project_categorical(z, torch.full((2, 2), 0.5), SUPPORT)
        assert projected[0].isnan().any()
        assert projected[1].tolist() == [0.0, 1.0, 0.0]

    @pytest.mark.parametrize(
        ("z", "p", "support", "message"),
        [
            ((3,), (3,), (3,), r"^z must have shape \[B, M\], got \[3\]"),
            ((2, 3), (2, 4), (3,), r"^p must have shape \[2, 3\] to fit z, got \[2, 4\]"),
            ((2, 3), (2, 3), (1,), r"^support must have shape \[N\], N >= 2, got \[1\]"),
        ],
    )
    def test_wrong_shapes_are_named(self, z: tuple[int], p: tuple[int], support: tuple[int], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            losses.project_categorical(torch.zeros(z), torch.zeros(p), torch.zeros(support))


def logs(probabilities: list[list[list[float]]]) -> Tensor:
    """Logits whose softmax is `probabilities`."""
    return torch.tensor(probabilities).log()


class TestCategoricalQLearning:
    # One step with o_t's actions worth -0.5 + 0.25 = -0.25 and 0.5: Q-learning takes action 1, the selector action 0.
    LOGITS_TM1 = [[[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]]
    LOGITS_T = [[[0.5, 0.25, 0.25], [0.25, 0.0, 0.75]]]

    def step(self, r_t: float = 0.5, discount_t: float = 0.5) -> tuple[Tensor, ...]:
        logits_tm1 = logs(self.LOGITS_TM1).requires_grad_()
        return SUPPORT, logits_tm1, torch.tensor([1]), torch.tensor([r_t]), torch.tensor([discount_t])

    def test_table(self) -> None:
        # z = 0.5 + 0.5 (-1, 0, 1) = (0, 0.5, 1) with p = (0.25, 0, 0.75): m = (0, 0.25, 0.75).
        logits_t = logs(self.LOGITS_T)
        loss = losses.categorical_q_learning(*self.step(), logits_t, losses.expected_value(logits_t, SUPPORT))
        torch.testing.assert_close(loss, -torch.tensor([0.25]).log())

    def test_a_terminal_step_has_the_reward_alone_for_target(self) -> None:
        # r = -0.5: m = (0.5, 0.5, 0) against (0.5, 0.25, 0.25).
        loss = losses.categorical_q_learning(*self.step(-0.5, 0.0), logs(self.LOGITS_T), torch.tensor([[1.0, 0.0]]))
        torch.testing.assert_close(loss, -torch.tensor([0.5]).log() / 2 - torch.tensor([0.25]).log() / 2)

    def test_the_gradient_is_softmax_minus_target_of_the_action_taken(self) -> None:
        step = self.step()
        logits_t = logs(self.LOGITS_T).requires_grad_()
        torch.autograd.backward(losses.categorical_q_learning(*step, logits_t, torch.tensor([[0.0, 1.0]])).sum())
        expected = torch.tensor([[[0.0, 0.0, 0.0], [0.5 - 0.0, 0.25 - 0.25, 0.25 - 0.75]]])
        torch.testing.assert_close(step[1].grad, expected)
        assert logits_t.grad is None

    @pytest.mark.parametrize("name", ["a_tm1", "r_t", "discount_t", "logits_t", "q_t_selector", "support"])
    def test_wrong_shape_is_named(self, name: str) -> None:
        names = ("support", "logits_tm1", "a_tm1", "r_t", "discount_t")
        arguments = dict(zip(names, self.step(), strict=True))
        arguments |= {"logits_t": logs(self.LOGITS_T), "q_t_selector": torch.zeros(1, 2)}
        arguments[name] = arguments[name].unsqueeze(-1)
        with pytest.raises(ValueError, match=f"^{name} must have shape .* to fit logits_tm1"):
            losses.categorical_q_learning(**arguments)


def test_the_expected_value_is_the_probabilities_times_the_atoms() -> None:
    logits = logs([[[0.25, 0.25, 0.5], [1.0, 0.0, 0.0]]])
    torch.testing.assert_close(losses.expected_value(logits, SUPPORT), torch.tensor([[0.25, -1.0]]))


def test_the_expected_value_is_not_rounded_under_autocast() -> None:
    logits, support = torch.randn(3, 4, 51), torch.linspace(-10.0, 10.0, 51)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = losses.expected_value(logits, support)
    torch.testing.assert_close(rounded, losses.expected_value(logits, support))


class TestQuantileHuber:
    # Two quantiles at 0 of tau 0.25 and 0.75, targets 2 and -0.5: u = 2 and -0.5 for both.
    @pytest.mark.parametrize(
        ("kappa", "expected"),
        [
            # L = 1.5 and 0.125: (0.25 * 1.5 + 0.75 * 0.125) / 2 + (0.75 * 1.5 + 0.25 * 0.125) / 2
            (1.0, 0.8125),
            # L = 0.5 (2 - 0.25) = 0.875 and 0.125, divided by kappa 1.75 and 0.25:
            # (0.4375 + 0.1875) / 2 + (1.3125 + 0.0625) / 2
            (0.5, 1.0),
            # |u| = 2 and 0.5: (0.5 + 0.375) / 2 + (1.5 + 0.125) / 2
            (0.0, 1.25),
        ],
    )
    def test_table(self, kappa: float, expected: float) -> None:
        theta, tau = torch.zeros(1, 2), torch.tensor([[0.25, 0.75]])
        loss = losses.quantile_huber(theta, tau, torch.tensor([[2.0, -0.5]]), kappa)
        torch.testing.assert_close(loss, torch.tensor([expected]))

    def test_the_gradient_is_zero_where_a_share_of_tau_of_the_targets_lies_below(self) -> None:
        theta = torch.tensor([[0.0]], requires_grad=True)
        target = torch.tensor([[-5.0, 5.0, 6.0, 7.0]])
        torch.autograd.backward(losses.quantile_huber(theta, torch.tensor([[0.25]]), target).sum())
        torch.testing.assert_close(theta.grad, torch.zeros(1, 1))

    @pytest.mark.parametrize(
        ("theta", "tau", "target", "kappa", "message"),
        [
            ((2,), (2,), (2,), 1.0, r"^theta must have shape \[B, N\], got \[2\]"),
            ((2, 3), (2, 1), (2, 4), 1.0, r"^tau must have shape \[2, 3\] to fit theta, got \[2, 1\]"),
            ((2, 3), (2, 3), (1, 4), 1.0, r"^target must have shape \[2, M\] to fit theta, got \[1, 4\]"),
            ((2, 3), (2, 3), (2, 4), -1.0, r"^kappa must be >= 0, got -1\.0"),
        ],
    )
    def test_wrong_arguments_are_named(
        self, theta: tuple[int], tau: tuple[int], target: tuple[int], kappa: float, message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            losses.quantile_huber(torch.zeros(theta), torch.zeros(tau), torch.zeros(target), kappa)


class TestQuantileQLearning:
    QUANTILES_TM1 = [[[9.0, 9.0], [0.0, 0.0]]]
    QUANTILES_T = [[[3.0, -2.0, 1.0], [0.0, 0.0, 0.0]]]

    def step(self) -> tuple[Tensor, ...]:
        quantiles_tm1 = torch.tensor(self.QUANTILES_TM1, requires_grad=True)
        tau, a_tm1 = torch.tensor([[0.25, 0.75]]), torch.tensor([1])
        return quantiles_tm1, tau, a_tm1, torch.tensor([0.5]), torch.tensor([0.5])

    def test_table(self) -> None:
        # Action 0: targets 0.5 + 0.5 (3, -2, 1) = (2, -0.5, 1):
        # (0.375 + 0.09375 + 0.125) / 3 + (1.125 + 0.03125 + 0.375) / 3
        loss = losses.quantile_q_learning(*self.step(), torch.tensor(self.QUANTILES_T), torch.tensor([[1.0, 0.0]]))
        torch.testing.assert_close(loss, torch.tensor([2.125 / 3]))

    def test_the_gradient_reaches_only_the_action_taken(self) -> None:
        step, quantiles_t = self.step(), torch.tensor(self.QUANTILES_T, requires_grad=True)
        torch.autograd.backward(losses.quantile_q_learning(*step, quantiles_t, torch.tensor([[0.0, 1.0]])).sum())
        # u = 0.5 for both quantiles, so -tau u
        torch.testing.assert_close(step[0].grad, torch.tensor([[[0.0, 0.0], [-0.125, -0.375]]]))
        assert quantiles_t.grad is None

    @pytest.mark.parametrize("name", ["a_tm1", "r_t", "discount_t", "q_t_selector", "quantiles_t"])
    def test_wrong_shape_is_named(self, name: str) -> None:
        names = ("quantiles_tm1", "tau_tm1", "a_tm1", "r_t", "discount_t")
        arguments = dict(zip(names, self.step(), strict=True))
        arguments |= {"quantiles_t": torch.tensor(self.QUANTILES_T), "q_t_selector": torch.zeros(1, 2)}
        arguments[name] = arguments[name].unsqueeze(0)
        with pytest.raises(ValueError, match=f"^{name} must have shape .* to fit quantiles_tm1"):
            losses.quantile_q_learning(**arguments)


def test_importance_weights_scale_each_loss_before_the_mean() -> None:
    loss = losses.importance_weighted(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 0.5, 0.25]))
    torch.testing.assert_close(loss, torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"^weight must have shape \[3\] to fit loss, got \[3, 1\]"):
        losses.importance_weighted(torch.zeros(3), torch.zeros(3, 1))


# Slow references, written in loops from the papers' algorithms.


def c51_in_loops(support: list[float], p_tm1: Any, p_t: Any, a: int, r: float, discount: float, selector: Any) -> float:
    """Bellemare et al. 2017, Algorithm 1, for one transition; probabilities `[A][N]`."""
    spacing = support[1] - support[0]
    best = max(range(len(selector)), key=lambda action: selector[action])
    m = [0.0] * len(support)
    for j, z in enumerate(support):
        b = (min(max(r + discount * z, support[0]), support[-1]) - support[0]) / spacing
        b = min(max(b, 0.0), len(support) - 1.0)
        lower, upper = math.floor(b), math.ceil(b)
        if lower == upper:
            m[lower] += p_t[best][j]
        else:
            m[lower] += p_t[best][j] * (upper - b)
            m[upper] += p_t[best][j] * (b - lower)
    return -sum(m[i] * math.log(p_tm1[a][i]) for i in range(len(support)))


def quantiles_in_loops(
    theta: Any, tau: Any, theta_t: Any, a: int, r: float, discount: float, selector: Any, kappa: float
) -> float:
    """Dabney et al. 2018, eq. 3 (IQN), for one transition; quantiles `[A][N]` and `[A][M]`."""
    best = max(range(len(selector)), key=lambda action: selector[action])
    total = 0.0
    for i, estimate in enumerate(theta[a]):
        for value in theta_t[best]:
            u = r + discount * value - estimate
            huber = u * u / 2 if abs(u) <= kappa else kappa * (abs(u) - kappa / 2)
            total += abs(tau[i] - (1.0 if u < 0 else 0.0)) * huber / kappa / len(theta_t[best])
    return total


STEPS = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(2, 8), st.integers(1, 6), st.integers(0, 10**6))


class TestAgainstLoops:
    @settings(max_examples=40, deadline=None)
    @given(STEPS, st.floats(0.1, 30.0), st.floats(-5.0, 5.0))
    def test_categorical_q_learning(self, sizes: tuple[int, ...], width: float, low: float) -> None:
        batch, actions, atoms, _, seed = sizes
        draw = torch.Generator().manual_seed(seed)
        support = torch.linspace(low, low + width, atoms, dtype=torch.float64)
        logits_tm1, logits_t = 2 * torch.randn(2, batch, actions, atoms, generator=draw, dtype=torch.float64)
        a_tm1 = torch.randint(actions, (batch,), generator=draw)
        r_t, discount_t = 3 * torch.randn(batch, generator=draw).double(), torch.rand(batch, generator=draw).double()
        selector = torch.randn(batch, actions, generator=draw).double()
        loss = losses.categorical_q_learning(support, logits_tm1, a_tm1, r_t, discount_t, logits_t, selector)
        p_tm1, p_t = logits_tm1.softmax(-1).tolist(), logits_t.softmax(-1).tolist()
        expected = [
            c51_in_loops(
                support.tolist(),
                p_tm1[b],
                p_t[b],
                int(a_tm1[b]),
                float(r_t[b]),
                float(discount_t[b]),
                selector[b].tolist(),
            )
            for b in range(batch)
        ]
        torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-8)

    @settings(max_examples=40, deadline=None)
    @given(STEPS, st.floats(0.05, 3.0))
    def test_quantile_q_learning(self, sizes: tuple[int, ...], kappa: float) -> None:
        batch, actions, quantiles, samples, seed = sizes
        draw = torch.Generator().manual_seed(seed)
        theta = 2 * torch.randn(batch, actions, quantiles, generator=draw).double()
        theta_t = 2 * torch.randn(batch, actions, samples, generator=draw).double()
        tau = torch.rand(batch, quantiles, generator=draw).double()
        a_tm1 = torch.randint(actions, (batch,), generator=draw)
        r_t, discount_t = torch.randn(batch, generator=draw).double(), torch.rand(batch, generator=draw).double()
        selector = torch.randn(batch, actions, generator=draw).double()
        loss = losses.quantile_q_learning(theta, tau, a_tm1, r_t, discount_t, theta_t, selector, kappa)
        expected = [
            quantiles_in_loops(
                theta[b].tolist(),
                tau[b].tolist(),
                theta_t[b].tolist(),
                int(a_tm1[b]),
                float(r_t[b]),
                float(discount_t[b]),
                selector[b].tolist(),
                kappa,
            )
            for b in range(batch)
        ]
        torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)
