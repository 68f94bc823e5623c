"""Noisy linear layers: exploration by noise on the weights, drawn from a generator that the caller owns."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from async_wrappers.agents.spaces.compute import drawn

_LARGE_BATCH = 16


class NoisyLinear(nn.Module):
    """A linear layer with factorised Gaussian noise (Fortunato et al. 2018, arXiv 1706.10295, eq. 9 to 11).

    y = (W + S . (f_out f_in^T)) x + b + s . f_out, with f = sgn(e) sqrt|e| of standard normal e, one draw for the whole
    batch. Without noise, as the layer begins and as evaluation wants it, y = W x + b. Batches of 16 and more are
    computed in another order than smaller ones, which rounds differently.

    Args:
        in_features: p, the size of the input.
        out_features: q, the size of the output.
        sigma0: The noise's scale: S and s begin at sigma0 / sqrt(p); W and b are uniform within 1 / sqrt(p).

    Raises:
        ValueError: `sigma0` is negative.
    """

    def __init__(self, in_features: int, out_features: int, sigma0: float = 0.5) -> None:
        super().__init__()
        if not sigma0 >= 0:
            raise ValueError(f"sigma0 must be >= 0, got {sigma0}")
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma0 * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma0 * bound))
        self._noise: tuple[Tensor, Tensor] | None = None  # f_in [p], f_out [q]

    def resample(self, rng: np.random.Generator | None) -> None:
        """Draw new noise, or with None have none."""
        self._noise = None if rng is None else (self._draw(rng, self.in_features), self._draw(rng, self.out_features))

    def _draw(self, rng: np.random.Generator, size: int) -> Tensor:
        return drawn(rng, partial(_noise, size=size), self._to_device)

    def _to_device(self, array: npt.NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(array).to(self.weight.device, non_blocking=True)

    def forward(self, features: Tensor) -> Tensor:
        """Map `[B, p]` to `[B, q]`."""
        if self._noise is None:
            return functional.linear(features, self.weight, self.bias)
        f_in, f_out = self._noise
        if len(features) < _LARGE_BATCH:
            # The noise is of rank one, so that it scales input and output: no noisy copy of the weights is made.
            mean = functional.linear(features, self.weight, self.bias)
            return mean + functional.linear(features * f_in, self.weight_sigma, self.bias_sigma) * f_out
        # A copy takes less time than a second product of matrices, and saves two more in the backward pass.
        weight = (self.weight_sigma * f_in).mul_(f_out.unsqueeze(1)).add_(self.weight)
        return functional.linear(features, weight, torch.addcmul(self.bias, self.bias_sigma, f_out))


def _noise(rng: np.random.Generator, size: int) -> npt.NDArray[np.float32]:
    normal = rng.standard_normal(size, np.float32)
    return np.copysign(np.sqrt(np.abs(normal)), normal)


def make_noisy(network: nn.Module, sigma0: float) -> nn.Module:
    """Replace every linear layer of `network` by a noisy one, in place; its weights are drawn anew."""
    for name, child in network.named_children():
        if isinstance(child, nn.Linear):
            setattr(network, name, NoisyLinear(child.in_features, child.out_features, sigma0))
        else:
            make_noisy(child, sigma0)
    return network
