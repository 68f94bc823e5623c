"""QR-DQN's learner: quantile regression to the quantiles of the target."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agents import losses
from agents.learner import Batch, Learner, Replay

__all__ = ["QuantileLearner"]


class QuantileLearner(Learner):
    """Steps quantiles towards those of ``r + discount Z_target(o', a*)`` (Dabney et al. 2018, Algorithm 1).

    The quantiles are those of the midpoints tau_i = (2 i + 1) / 2 N, i = 0 .. N - 1 (their Lemma 2).

    Args:
        network: From observations [B, k, *shape] to quantiles [B, A, N]; updated in place.
        replay: Where transitions go and batches come from.
        kappa: Threshold of Huber's loss.
        arguments: The others of `Learner`.
    """

    def __init__(self, network: nn.Module, replay: Replay, *, kappa: float = 1.0, **arguments: Any) -> None:
        """See the class."""
        super().__init__(network, replay, **arguments)
        self._kappa = kappa

    def losses(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """Return the quantile Huber losses [B]."""
        with self.compute.autocast():
            with torch.no_grad():
                quantiles_t = self.target(batch["next_observation"])
                selector = self.network(batch["next_observation"]) if self.double else quantiles_t
            quantiles_tm1 = self.network(batch["observation"])
        count = quantiles_tm1.shape[2]
        midpoints = (torch.arange(count, device=quantiles_tm1.device) + 0.5) / count
        step = (batch["action"], batch["reward"], batch["discount"])
        tau_tm1 = midpoints.expand(len(quantiles_tm1), count)
        return losses.quantile_q_learning(quantiles_tm1, tau_tm1, *step, quantiles_t, selector.mean(dim=2), self._kappa)
