"""Distributions of actions as pure functions of the parameters that a network gives, `[..., P]`.

Stored actions (`agents.spaces.actions`) have one number each, `[...]`, or A numbers, `[..., A]`, which are independent
given the parameters: log-probabilities, entropies and divergences, `[...]`, are sums over them. Chunks of H actions
have one more dimension before the last one, and `losses.actor_critic.over_executed` sums over their entries.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Categorical:
    """Discrete actions; the parameters are logits `[..., A]`.

    Attributes:
        parameters: Numbers that a network gives for one action, P; here A.
    """

    def __init__(self, actions: int) -> None:
        """Take the number of actions, A."""
        self.parameters = actions

    def sample(self, parameters: Tensor, noise: npt.NDArray[np.floating]) -> Tensor:
        """Return actions `[...]` by uniform numbers `[...]`."""
        likelihood = (parameters.double() - parameters.amax(dim=-1, keepdim=True)).exp().cumsum(dim=-1)
        drawn = torch.as_tensor(noise, device=parameters.device).unsqueeze(-1) * likelihood[..., -1:]
        return (likelihood <= drawn).sum(dim=-1)

    @torch.no_grad()
    def sample_with_log_prob(self, parameters: Tensor, noise: npt.NDArray[np.floating]) -> tuple[Tensor, Tensor]:
        """Return actions and the logarithms of their probabilities, both without gradients."""
        drawn = self.sample(parameters, noise)
        return drawn, self.log_prob(parameters, drawn)

    def mode(self, parameters: Tensor) -> Tensor:
        """Return the actions that are taken where none are drawn."""
        return parameters.argmax(dim=-1)

    def log_prob(self, parameters: Tensor, stored: Tensor) -> Tensor:
        """Return the logarithm of the probability of stored actions."""
        return parameters.log_softmax(dim=-1).gather(-1, stored.unsqueeze(-1)).squeeze(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Return the entropy, in nats."""
        log_probs = parameters.log_softmax(dim=-1)
        return -(log_probs.exp() * log_probs).sum(dim=-1)

    def kl(self, parameters: Tensor, other: Tensor) -> Tensor:
        """Return KL(p || q), in nats, of the distributions p and q of parameters and of others."""
        log_p, log_q = parameters.log_softmax(dim=-1), other.log_softmax(dim=-1)
        return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


class Gaussian:
    """Real-valued actions; the parameters are the means and the logarithms of the deviations, `[..., 2 A]`."""

    def __init__(self, size: int) -> None:
        """Take the numbers of an action, A."""
        self.parameters = 2 * size

    def sample(self, parameters: Tensor, noise: npt.NDArray[np.floating]) -> Tensor:
        """Return actions `[..., A]` by standard normal numbers `[..., A]`."""
        mean, log_std = parameters.chunk(2, dim=-1)
        return mean + log_std.exp() * torch.as_tensor(noise, dtype=mean.dtype, device=mean.device)

    @torch.no_grad()
    def sample_with_log_prob(self, parameters: Tensor, noise: npt.NDArray[np.floating]) -> tuple[Tensor, Tensor]:
        """Return actions `[..., A]` by standard normal numbers, and their log-densities, both without gradients."""
        if type(self) is not Gaussian:  # a subclass draws or judges otherwise
            drawn = self.sample(parameters, noise)
            return drawn, self.log_prob(parameters, drawn)
        mean, log_std = parameters.chunk(2, dim=-1)
        std = log_std.exp()
        drawn = mean + std * torch.as_tensor(noise, dtype=mean.dtype, device=mean.device)
        return drawn, _log_density(drawn, mean, log_std, std)[0]

    def mode(self, parameters: Tensor) -> Tensor:
        """Return the means."""
        return parameters.chunk(2, dim=-1)[0]

    def log_prob(self, parameters: Tensor, stored: Tensor) -> Tensor:
        found: Tensor = _GaussianLogProb.apply(parameters, stored)  # type: ignore[no-untyped-call]
        return found

    def entropy(self, parameters: Tensor) -> Tensor:
        log_std = parameters.chunk(2, dim=-1)[1]
        return log_std.sum(dim=-1) + log_std.shape[-1] * (_HALF_LOG_TWO_PI + 0.5)

    def kl(self, parameters: Tensor, other: Tensor) -> Tensor:
        mean, log_std = parameters.chunk(2, dim=-1)
        other_mean, other_log_std = other.chunk(2, dim=-1)
        squares = (2 * (log_std - other_log_std)).exp() + ((mean - other_mean) * (-other_log_std).exp()) ** 2
        return (other_log_std - log_std + 0.5 * (squares - 1)).sum(dim=-1)


class _GaussianLogProb(torch.autograd.Function):
    """The log-density of a Gaussian, with its gradient by hand: a third of the operations of a small batch's.

    With z = (a - mean) / std it is -z^2 / 2 - log std - log sqrt(2 pi), summed over the A numbers; its derivatives are
    z / std by the mean and z^2 - 1 by log std. That by the action is not computed.
    """

    @staticmethod
    def forward(context: Any, parameters: Tensor, stored: Tensor) -> Tensor:
        """Return log-densities `[...]` from parameters `[..., 2 A]` and actions `[..., A]`."""
        mean, log_std = parameters.chunk(2, dim=-1)
        std = log_std.exp()
        log_prob, noise = _log_density(stored, mean, log_std, std)
        context.save_for_backward(noise, std)
        return log_prob

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient `[..., 2 A]`."""
        noise, std = context.saved_tensors
        slopes = torch.cat([noise / std, noise.square().sub_(1)], dim=-1)
        return slopes.mul_(gradient.unsqueeze(-1)), None


def _log_density(stored: Tensor, mean: Tensor, log_std: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-densities of a Gaussian, and z."""
    noise = (stored - mean).div_(std)
    negative = log_std.add(noise.square(), alpha=0.5).sum(dim=-1)
    return torch.rsub(negative, -mean.shape[-1] * _HALF_LOG_TWO_PI), noise


class SquashedGaussian:
    """The hyperbolic tangent of a Gaussian (Haarnoja et al. 2018, "Soft actor-critic algorithms", appendix C).

    An action lies in (-1, 1). Its density is that of the Gaussian divided by the derivative of tanh:

        log pi(tanh u) = sum_i [log N(u_i; mean_i, std_i) - 2 (log 2 - u_i - softplus(-2 u_i))]

    in which nothing is rounded to infinity near the bounds. The parameters are those of `Gaussian`.

    Attributes:
        log_std_range: What the logarithms of the deviations are clipped to.
    """

    def __init__(self, size: int, log_std_range: tuple[float, float] = (-20.0, 2.0)) -> None:
        """Take the numbers of an action, A, and the range."""
        self.parameters, self.log_std_range = 2 * size, log_std_range

    def sample_with_log_prob(self, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions `[..., A]` by standard normal numbers, and their log-densities `[...]`; both have gradients.

        The log-density is computed from `u` itself, which the action alone does not give back near the bounds.
        """
        mean, log_std = self._split(parameters)
        before = mean + log_std.exp() * noise
        return before.tanh(), (_of_noise(noise, log_std) - _log_slope(before)).sum(dim=-1)

    def sample(self, parameters: Tensor, noise: npt.NDArray[np.floating]) -> Tensor:
        """Return actions `[..., A]` by standard normal numbers `[..., A]`."""
        mean, log_std = self._split(parameters)
        return (mean + log_std.exp() * torch.as_tensor(noise, dtype=mean.dtype, device=mean.device)).tanh()

    def mode(self, parameters: Tensor) -> Tensor:
        """Return the squashed means."""
        return self._split(parameters)[0].tanh()

    def log_prob(self, parameters: Tensor, stored: Tensor) -> Tensor:
        """Return the log-densities of actions in (-1, 1); one on a bound counts as the number next to it."""
        mean, log_std = self._split(parameters)
        largest = 1 - torch.finfo(stored.dtype).eps
        before = stored.clamp(-largest, largest).atanh()
        return (_of_noise((before - mean) * (-log_std).exp(), log_std) - _log_slope(before)).sum(dim=-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Refuse: it has no closed form, and minus the mean of `log_prob` estimates it.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("a squashed Gaussian's entropy has no closed form: take -log_prob of its samples")

    def kl(self, parameters: Tensor, other: Tensor) -> Tensor:
        """Return that of the two Gaussians, which is the same: the tangent is invertible."""
        return Gaussian.kl(self, torch.cat(self._split(parameters), -1), torch.cat(self._split(other), -1))  # type: ignore[arg-type]

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = parameters.chunk(2, dim=-1)
        return mean, log_std.clamp(*self.log_std_range)


def _of_noise(noise: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-densities of ``mean + std noise``."""
    return -0.5 * noise**2 - log_std - _HALF_LOG_TWO_PI


def _log_slope(before: Tensor) -> Tensor:
    """Return log(1 - tanh(u)^2)."""
    return 2 * (math.log(2) - before - softplus(-2 * before))
