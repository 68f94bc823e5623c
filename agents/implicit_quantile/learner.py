"""IQN's learner: quantile regression at drawn quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agents import losses
from agents.learner import Batch, Learner, Replay

__all__ = ["ImplicitQuantileLearner"]


class ImplicitQuantileLearner(Learner):
    """Steps drawn quantiles towards drawn ones of ``r + discount Z_target(o', a*)`` (Dabney et al. 2018, eq. 2 and 3).

    Args:
        network: From (observations [B, k, *shape], tau [B, K]) to quantiles [B, A, K]; updated in place.
        replay: Where transitions go and batches come from.
        num_tau_samples: N, quantiles that are learnt from a transition.
        num_tau_prime_samples: N', quantiles of its target.
        num_quantile_samples: K, quantiles whose mean chooses the next action.
        kappa: Threshold of Huber's loss.
        arguments: The others of `Learner`.
    """

    def __init__(
        self,
        network: nn.Module,
        replay: Replay,
        *,
        num_tau_samples: int = 32,
        num_tau_prime_samples: int = 32,
        num_quantile_samples: int = 32,
        kappa: float = 1.0,
        **arguments: Any,
    ) -> None:
        """See the class."""
        super().__init__(network, replay, **arguments)
        self._counts = (num_tau_samples, num_tau_prime_samples, num_quantile_samples)
        self._kappa = kappa

    def losses(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """Return the quantile Huber losses [B]."""
        observation, next_observation = batch["observation"], batch["next_observation"]
        tau, tau_prime, tau_selector = (self._draw(rng, len(batch["action"]), count) for count in self._counts)
        with self.compute.autocast():
            with torch.no_grad():
                quantiles_t = self.target(next_observation, tau_prime)
                selector = self.network if self.double else self.target
                q_t_selector = selector(next_observation, tau_selector).mean(dim=2)
            quantiles_tm1 = self.network(observation, tau)
        step = (batch["action"], batch["reward"], batch["discount"])
        return losses.quantile_q_learning(quantiles_tm1, tau, *step, quantiles_t, q_t_selector, self._kappa)

    def _draw(self, rng: np.random.Generator, batch: int, count: int) -> Tensor:
        return self.compute.tensor(rng.random((batch, count), np.float32))
