"""The network of implicit quantile networks: values of any quantile that one asks for."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from agents.networks.torsos import as_float32, check_observation, initialize, output_size

__all__ = ["CosineEmbedding", "ImplicitQuantileNetwork"]


class ImplicitQuantileNetwork(nn.Module):
    """Z_tau(o, a) = f(psi(o) * phi(tau)) for each action and each tau asked for (Dabney et al. 2018, section 3.1).

    psi is the torso up to its last hidden layer, which with the head is f; a torso with nothing to learn before that
    layer is psi as a whole. phi is `CosineEmbedding`.

    Args:
        network: A Q-network, whose torso and head this one takes over; the embedding begins as they do.
        embedding_size: n, the number of cosines.

    Raises:
        ValueError: `network` has no torso and head, or `embedding_size` is below 1.
    """

    def __init__(self, network: nn.Module, embedding_size: int = 64) -> None:
        super().__init__()
        torso, head = getattr(network, "torso", None), getattr(network, "head", None)
        if not isinstance(torso, nn.Module) or not isinstance(head, nn.Module):
            raise ValueError(
                f"network must have a torso and a head to read quantiles from, got {type(network).__name__}: make it "
                "with create_network, or as a QNetwork"
            )
        self.observation_shape: Any = network.observation_shape
        self.trunk, self.hidden, size = _split(torso)
        self.embedding = CosineEmbedding(embedding_size, size)
        initialize(self.embedding, getattr(network, "initializer", "torch"))
        self.head = head

    def forward(self, observation: Any, tau: Tensor) -> Tensor:
        """Compute values of quantiles.

        Args:
            observation: `[B, *observation_shape]`, as in `QNetwork`.
            tau: Which quantiles, float32 `[B, K]` in [0, 1].

        Returns:
            Values `[B, A, K]`, float32.
        """
        features, _ = self.core(self.encode(observation))
        return self.values(features, tau)

    def encode(self, observation: Any) -> Tensor:
        """Map observations to psi(o), `[B, size]`, which holds for all tau."""
        check_observation(observation, self.observation_shape)
        features: Tensor = self.trunk(as_float32(observation))
        return features

    def core(self, features: Tensor, state: Any = (), first: Tensor | None = None) -> tuple[Tensor, Any]:
        """Return the features and the state unchanged; see `QNetwork.core`."""
        return features, state

    def values(self, features: Tensor, tau: Tensor) -> Tensor:
        """Map psi `[B, size]` and tau `[B, K]` to f(psi * phi(tau)), values `[B, A, K]` in float32."""
        embedded = features.unsqueeze(1) * self.embedding(tau)  # [B, K, size]
        values: Tensor = self.head(self.hidden(embedded.flatten(0, 1)))
        return values.view(*tau.shape, -1).transpose(1, 2).float()


class CosineEmbedding(nn.Module):
    """phi_j(tau) = ReLU(sum over i = 1..n of cos(pi i tau) w_ij + b_j) (Dabney et al. 2018, eq. 4).

    As in Dopamine, i runs from 1; at the paper's 0 the cosine is constant, as the bias is.

    Args:
        size: n, the number of cosines.
        output_size: The number of features j.

    Raises:
        ValueError: `size` is below 1.
    """

    def __init__(self, size: int, output_size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"quantile_embedding_dim must be >= 1 cosine, got {size}")
        self.size = size
        self.linear = nn.Linear(size, output_size)

    def forward(self, tau: Tensor) -> Tensor:
        """Map `[B, K]` to `[B, K, output_size]`."""
        frequency = math.pi * torch.arange(1, self.size + 1, dtype=tau.dtype, device=tau.device)
        features: Tensor = self.linear(torch.cos(tau.unsqueeze(-1) * frequency)).relu()
        return features


def _split(torso: nn.Module) -> tuple[nn.Module, nn.Module, int]:
    """Return what comes before the last hidden layer, that layer, and the number of features between them."""
    layers = getattr(torso, "layers", None)
    if isinstance(layers, nn.Sequential) and len(layers) > 1:
        trunk, last = layers[:-2], layers[-2]
        if isinstance(last, nn.Linear) and any(True for _ in trunk.parameters()):
            return trunk, layers[-2:], last.in_features
    return torso, nn.Identity(), output_size(torso)
