"""Distributions against SciPy's, PyTorch's, and the functions that V-trace learns and acts by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor
from torch import distributions as torch_distributions

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.losses import actor_critic
from async_wrappers.agents.spaces.actions import DiscreteActions
from async_wrappers.agents.spaces.distributions import Categorical, Gaussian, SquashedGaussian
from async_wrappers.policy import Decision

FINITE = st.floats(-8, 8)
seeds = st.integers(0, 2**32 - 1)


def drawn(seed: int, *shape: int, scale: float = 2.0) -> Tensor:
    return torch.from_numpy(scale * np.random.default_rng(seed).standard_normal(shape))


class TestSquashedGaussian:
    """Haarnoja et al. 2018, appendix C, in double precision, in which SciPy computes."""

    @given(mean=st.floats(-3, 3), log_std=st.floats(-4, 2), noise=st.floats(-6, 6))
    def test_a_samples_log_density_is_scipys_by_the_change_of_variables(
        self, mean: float, log_std: float, noise: float
    ) -> None:
        parameters = torch.tensor([mean, log_std], dtype=torch.float64)
        action, log_prob = SquashedGaussian(1).sample_with_log_prob(
            parameters, torch.tensor([noise], dtype=torch.float64)
        )
        before = mean + np.exp(log_std) * noise
        # log(1 - tanh(u)^2) = -2 log cosh(u), which np.logaddexp computes at any u.
        log_slope = -2 * (np.logaddexp(before, -before) - np.log(2))
        assert float(action) == pytest.approx(np.tanh(before))
        assert float(log_prob) == pytest.approx(norm.logpdf(before, mean, np.exp(log_std)) - log_slope)

    @pytest.mark.parametrize("before", [5.0, 9.0, 20.0, -20.0, 80.0, 500.0])
    def test_near_the_bounds_nothing_is_rounded_away_even_in_single_precision(self, before: float) -> None:
        parameters = torch.tensor([before, 0.0], requires_grad=True)  # tanh(9) is 1 in float32 already
        action, log_prob = SquashedGaussian(1).sample_with_log_prob(parameters, torch.tensor([0.5]))
        wanted = norm.logpdf(0.5) + 2 * (np.logaddexp(before + 0.5, -before - 0.5) - np.log(2))
        assert abs(action.item()) <= 1 and log_prob.item() == pytest.approx(wanted, rel=1e-5)
        log_prob.backward()
        assert parameters.grad is not None and bool(parameters.grad.isfinite().all())

    @pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.5, -1.0), (-1.0, 0.5)])
    def test_the_density_of_actions_integrates_to_one(self, mean: float, log_std: float) -> None:
        parameters, squashed = torch.tensor([mean, log_std], dtype=torch.float64), SquashedGaussian(1)
        whole, _ = quad(
            lambda action: float(squashed.log_prob(parameters, torch.tensor([action], dtype=torch.float64)).exp()),
            -1,
            1,
        )
        assert whole == pytest.approx(1, abs=1e-6)

    @given(seed=seeds)
    def test_the_log_density_of_an_action_is_that_of_its_sample(self, seed: int) -> None:
        # Away from the bounds, near which an action does not give its sample back.
        squashed, parameters, noise = SquashedGaussian(3), drawn(seed, 5, 6).tanh(), drawn(seed + 1, 5, 3).tanh()
        action, log_prob = squashed.sample_with_log_prob(parameters, noise)
        assert torch.allclose(squashed.log_prob(parameters, action), log_prob)
        assert torch.equal(squashed.sample(parameters, noise.numpy()), action)

    @pytest.mark.parametrize("bound", [-1.0, 1.0])
    def test_an_action_on_a_bound_has_a_finite_log_density(self, bound: float) -> None:
        assert SquashedGaussian(1).log_prob(torch.zeros(2), torch.tensor([bound])).isfinite()

    def test_a_deviation_outside_its_range_is_clipped(self) -> None:
        squashed, noise = SquashedGaussian(1, (-1.0, 1.0)), torch.tensor([0.5])
        for log_std, clipped in ((-50.0, -1.0), (50.0, 1.0)):
            outside, inside = (torch.tensor([0.25, each]) for each in (log_std, clipped))
            assert torch.equal(squashed.sample_with_log_prob(outside, noise)[1],
                               squashed.sample_with_log_prob(inside, noise)[1])  # fmt: skip

    def test_its_mode_is_the_squashed_mean_and_its_entropy_has_no_closed_form(self) -> None:
        assert torch.equal(SquashedGaussian(1).mode(torch.tensor([0.5, 1.0])), torch.tensor([0.5]).tanh())
        with pytest.raises(NotImplementedError, match="no closed form"):
            SquashedGaussian(1).entropy(torch.zeros(2))

    @given(seed=seeds)
    def test_its_divergence_is_that_of_the_gaussians(self, seed: int) -> None:
        one, other = drawn(seed, 4, 6).tanh(), drawn(seed + 1, 4, 6).tanh()  # no deviation is clipped
        assert torch.allclose(SquashedGaussian(3).kl(one, other), Gaussian(3).kl(one, other))


class TestGaussian:
    @given(seed=seeds)
    def test_it_is_pytorchs(self, seed: int) -> None:
        ours, parameters, other = Gaussian(3), drawn(seed, 5, 6), drawn(seed + 1, 5, 6)
        theirs, theirs_other = (
            torch_distributions.Independent(torch_distributions.Normal(each[:, :3], each[:, 3:].exp()), 1)
            for each in (parameters, other)
        )
        stored = drawn(seed + 2, 5, 3)
        assert torch.allclose(ours.log_prob(parameters, stored), theirs.log_prob(stored))
        assert torch.allclose(ours.entropy(parameters), theirs.entropy())
        assert torch.allclose(ours.kl(parameters, other), torch_distributions.kl_divergence(theirs, theirs_other))
        assert torch.equal(ours.mode(parameters), theirs.mean)

    @given(seed=seeds)
    def test_a_sample_is_the_mean_and_noise_times_the_deviation(self, seed: int) -> None:
        parameters, noise = drawn(seed, 5, 6), drawn(seed + 1, 5, 3)
        wanted = parameters[:, :3] + parameters[:, 3:].exp() * noise
        assert torch.equal(Gaussian(3).sample(parameters, noise.numpy()), wanted)

    @given(seed=seeds)
    def test_a_sample_has_the_log_prob_of_a_stored_action_bit_for_bit(self, seed: int) -> None:
        parameters, noise = drawn(seed, 5, 6).float(), drawn(seed + 1, 5, 3).float().numpy()
        action, log_prob = Gaussian(3).sample_with_log_prob(parameters.requires_grad_(), noise)
        assert torch.equal(action, Gaussian(3).sample(parameters, noise))
        assert torch.equal(log_prob, Gaussian(3).log_prob(parameters, action))
        assert not action.requires_grad and not log_prob.requires_grad


class TestCategorical:
    @given(seed=seeds, chunk=st.booleans())
    def test_it_is_what_vtrace_learns_by_bit_for_bit(self, seed: int, chunk: bool) -> None:
        shape = (6, 3, 4) if chunk else (6, 4)
        rng = np.random.default_rng(seed)
        logits, other = (torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for _ in range(2))
        actions, ours = torch.from_numpy(rng.integers(4, size=shape[:-1])), Categorical(4)
        assert torch.equal(ours.log_prob(logits, actions), actor_critic.log_prob(logits, actions))
        assert torch.equal(ours.entropy(logits), actor_critic.entropy(logits))
        assert torch.equal(ours.kl(logits, other), actor_critic.kl_divergence(logits, other))

    @given(seed=seeds)
    def test_a_sample_has_the_log_prob_of_a_stored_action(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        logits, noise = torch.from_numpy(rng.standard_normal((6, 4)).astype(np.float32)), rng.random(6)
        action, log_prob = Categorical(4).sample_with_log_prob(logits, noise)
        assert torch.equal(action, Categorical(4).sample(logits, noise))
        assert torch.equal(log_prob, Categorical(4).log_prob(logits, action))

    @given(seed=seeds, chunk=st.booleans())
    def test_it_is_what_vtrace_acts_by(self, seed: int, chunk: bool) -> None:
        spec = VTrace.__new__(VTrace)
        spec.stores_value, spec.drawn_evaluation = False, False
        spec.actions = DiscreteActions(0, 4, 3 if chunk else None)
        shape = (6, 3, 4) if chunk else (6, 4)
        rng = np.random.default_rng(seed)
        logits, noise = torch.from_numpy(rng.standard_normal(shape).astype(np.float32)), rng.random(shape[:-1])
        for evaluates, wanted in (
            (False, Categorical(4).sample(logits, noise)),
            (True, Categorical(4).mode(logits)),
        ):
            rows = Decisions.of([Decision(0, start, start, evaluates) for start in range(6)])
            assert spec.choose((logits,), rows, noise)[0].tolist() == wanted.tolist()


class Shifted(Gaussian):
    """A user's own distribution."""

    def sample(self, parameters: Tensor, noise: Any) -> Tensor:
        return super().sample(parameters, noise) + 100

    def log_prob(self, parameters: Tensor, stored: Tensor) -> Tensor:
        return super().log_prob(parameters, stored - 100) + 7


def test_a_gaussian_of_ones_own_draws_and_judges_by_its_own_methods() -> None:
    parameters, noise = torch.zeros(3, 4), np.ones((3, 2))
    actions, log_prob = Shifted(2).sample_with_log_prob(parameters, noise)
    plain, plain_log_prob = Gaussian(2).sample_with_log_prob(parameters, noise)
    torch.testing.assert_close(actions, plain + 100)
    torch.testing.assert_close(log_prob, plain_log_prob + 7)


def test_actions_are_drawn_without_gradients() -> None:
    logits = torch.zeros(3, 4, requires_grad=True)
    assert not Categorical(4).sample_with_log_prob(logits, np.full(3, 0.5))[1].requires_grad
