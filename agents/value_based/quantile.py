"""QR-DQN (Dabney, Rowland, Bellemare, Munos, "Distributional RL with quantile regression", AAAI 2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from agents.learner import Batch, LossOutput, Networks
from agents.losses import values as losses
from agents.spec import check_count, check_numbers
from agents.value_based.dqn import DQN

__all__ = ["Quantile"]


@gin.configurable("QuantileAgent", module="agents")
class Quantile(DQN):
    """QR-DQN (Dabney et al. 2018), ``QuantileAgent`` in gin: N quantiles of each action's return.

    The network is called with (observation shape, number of actions, number of quantiles) and gives [B, A, N].

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        num_atoms: N, the number of quantiles (Dopamine's name).
        kappa: Threshold of Huber's loss; 0 is quantile regression itself.
        replay_scheme: ``"prioritized"`` or ``"uniform"``.
        shared: The others of `DQN`; `loss_type` has no effect.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "quantile"
    learner_kind: str = "QuantileLearner"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        num_atoms: int = 200,
        kappa: float = 1.0,
        replay_scheme: str = "prioritized",
        **shared: Any,
    ) -> None:
        """See the class."""
        super().__init__(observation_space, action_space, replay_scheme=replay_scheme, **shared)
        check_count("num_atoms", num_atoms, 1)
        check_numbers(kappa=kappa)
        if not 0 <= kappa < float("inf"):
            raise ValueError(f"kappa must be >= 0 and finite, got {kappa}")
        self.num_atoms = num_atoms
        self._kappa = kappa

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
        loss = losses.quantile_q_learning(quantiles_tm1, tau_tm1, *step, quantiles_t, selector.mean(dim=2), self._kappa)
        return LossOutput(loss, priority=loss)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the network's output for one observation, [A, N]."""
        return (self.num_actions, self.num_atoms)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network of quantiles."""
        return network(self.observation_shape, self.num_actions, self.num_atoms)
