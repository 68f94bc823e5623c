"""Quantiles of each action's return, learnt by regression: N fixed ones (QR-DQN), or any requested ones (IQN).

QR-DQN is of Dabney, Rowland, Bellemare, Munos, "Distributional RL with quantile regression", AAAI 2018; IQN of Dabney,
Ostrovski, Silver, Munos, "Implicit quantile networks for distributional RL", ICML 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from async_wrappers.agents.families.value_based.dqn import DQN, refuse_loss_type
from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, WIDEST, again, agent, number, whole
from async_wrappers.agents.losses import values as losses
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.networks.torsos import initialize, output_size, read_observation
from async_wrappers.agents.spaces.compute import drawn
from async_wrappers.agents.spaces.schema import first_array

_KAPPA = "Threshold of Huber's loss; 0 is quantile regression itself."


@agent("QuantileAgent", refuse=refuse_loss_type)
class Quantile(DQN):
    """QR-DQN (Dabney et al. 2018), ``QuantileAgent`` in gin: N quantiles of each action's return.

    The network is called with (observation shape, number of actions, number of quantiles) and gives [B, A, N].
    """

    name: ClassVar[str] = "quantile"
    learner_kind: str = "QuantileLearner"

    num_atoms: int = whole(200, "N, the number of quantiles (Dopamine's name).", 1, "quantile", most=WIDEST)
    kappa: float = number(1.0, _KAPPA, NOT_NEGATIVE)
    replay_scheme: str | Callable[..., Any] = again(DQN, "replay_scheme", "prioritized")

    def settle(self) -> None:
        super().settle()
        self.outputs = (self.num_atoms,)

    def values(self, network: Callable[..., Tensor], observation: Any, rng: np.random.Generator) -> Tensor:
        """Return the quantiles' means [B, A]."""
        return network(observation).mean(dim=2)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the quantile Huber loss to ``r + discount Z_target(o', a*)`` (Dabney et al. 2018, Algorithm 1).

        The quantiles are those of the midpoints tau_i = (2 i + 1) / 2 N, i = 0 .. N - 1 (their Lemma 2).
        """
        with torch.no_grad():
            quantiles_t = networks.target(batch["next_observation"])
            selector = networks.online(batch["next_observation"]) if self.double_dqn else quantiles_t
        quantiles_tm1 = networks.online(batch["observation"])
        count = quantiles_tm1.shape[2]
        midpoints = (torch.arange(count, device=quantiles_tm1.device) + 0.5) / count
        tau_tm1 = midpoints.expand(len(quantiles_tm1), count)
        step = (batch["action"], batch["reward"], batch["discount"])
        loss = losses.quantile_q_learning(quantiles_tm1, tau_tm1, *step, quantiles_t, selector.mean(dim=2), self.kappa)
        return LossOutput(loss, priority=loss)


@agent("ImplicitQuantileAgent", refuse=refuse_loss_type)
class ImplicitQuantile(DQN):
    """IQN (Dabney et al. 2018), ``ImplicitQuantileAgent`` in gin: any quantile of each action's return.

    The network is one of Q-values, with a torso and a head, that `ImplicitQuantileNetwork` takes over.
    """

    name: ClassVar[str] = "implicit_quantile"
    learner_kind: str = "ImplicitQuantileLearner"
    values_draw: ClassVar[bool] = True

    num_tau_samples: int = whole(32, "N, quantiles that are learnt from a transition.", 1, "quantile", most=WIDEST)
    num_tau_prime_samples: int = whole(32, "N', quantiles of its target.", 1, "quantile", most=WIDEST)
    num_quantile_samples: int = whole(32, "K, quantiles whose mean chooses an action.", 1, "quantile", most=WIDEST)
    quantile_embedding_dim: int = whole(64, "Number of cosines.", 1, "cosine", most=WIDEST)
    kappa: float = number(1.0, _KAPPA, NOT_NEGATIVE)

    def values(self, network: Callable[..., Tensor], observation: Any, rng: np.random.Generator) -> Tensor:
        """Return the means [B, A] of K drawn quantiles (Dabney et al. 2018, eq. 5)."""
        tau = self._draw(rng, len(first_array(observation)), self.num_quantile_samples)
        return network(observation, tau).mean(dim=2)

    def values_without_draws(self, network: Callable[..., Tensor], observation: Any) -> Tensor:
        """Return the means [B, A] of the quantiles in the middle of K equal parts, without drawing."""
        count = self.num_quantile_samples
        middles = (torch.arange(count, dtype=torch.float32) + 0.5) / count
        return network(observation, middles.expand(len(first_array(observation)), count)).mean(dim=2)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the quantile Huber loss of N drawn quantiles to N' drawn ones (Dabney et al. 2018, eq. 2 and 3).

        The N' are those of the target ``r + discount Z_target(o', a*)``; K further quantiles choose a*.
        """
        observation, next_observation = batch["observation"], batch["next_observation"]
        counts = self.num_tau_samples, self.num_tau_prime_samples, self.num_quantile_samples
        tau, tau_prime, tau_selector = (self._draw(rng, len(batch["action"]), count) for count in counts)
        with torch.no_grad():
            quantiles_t = networks.target(next_observation, tau_prime)
            selector = networks.online if self.double_dqn else networks.target
            q_t_selector = selector(next_observation, tau_selector).mean(dim=2)
        quantiles_tm1 = networks.online(observation, tau)
        step = (batch["action"], batch["reward"], batch["discount"])
        loss = losses.quantile_q_learning(quantiles_tm1, tau, *step, quantiles_t, q_t_selector, self.kappa)
        return LossOutput(loss, priority=loss)

    def _draw(self, rng: np.random.Generator, batch: int, count: int) -> Tensor:
        return drawn(rng, lambda rng: rng.random((batch, count), np.float32), self.compute.tensor)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the network's output for one observation and one quantile, [A, 1]."""
        return (self.num_actions, 1)

    def network_inputs(self, observation: Any) -> tuple[Any, ...]:
        """Return the inputs of the network: one observation and one quantile."""
        return (observation, torch.full((1, 1), 0.5))

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network of implicit quantiles."""
        return ImplicitQuantileNetwork(super().build_network(network), self.quantile_embedding_dim)


class ImplicitQuantileNetwork(nn.Module):
    """Z_tau(o, a) = f(psi(o) * phi(tau)) for each action and each requested tau (Dabney et al. 2018, section 3.1).

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
        features: Tensor = self.trunk(read_observation(observation, self.observation_shape))
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
    """Return the layers before the last hidden layer, that layer, and the number of features between them."""
    layers = getattr(torso, "layers", None)
    if isinstance(layers, nn.Sequential) and len(layers) > 1:
        trunk, last = layers[:-2], layers[-2]
        if isinstance(last, nn.Linear) and any(True for _ in trunk.parameters()):
            return trunk, layers[-2:], last.in_features
    return torso, nn.Identity(), output_size(torso)
