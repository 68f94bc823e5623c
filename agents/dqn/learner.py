"""DQN's learner: the loss of Q-learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agents import losses
from agents.learner import Batch, Learner, Replay

__all__ = ["DQNLearner"]

LOSSES: Mapping[str, Callable[[Tensor], Tensor]] = {"huber": losses.huber, "mse": losses.squared}


class DQNLearner(Learner):
    """Steps the weights towards ``r + discount * max_a Q_target(o', a)`` (Mnih et al. 2015, Algorithm 1).

    Args:
        network: From observations [B, k, *shape] to Q-values [B, A]; updated in place.
        replay: Where transitions go and batches come from.
        loss_type: ``"huber"``, or ``"mse"`` (the squared error).
        arguments: The others of `Learner`.

    Raises:
        ValueError: An unknown loss, or an argument out of range.
    """

    def __init__(self, network: nn.Module, replay: Replay, *, loss_type: str = "huber", **arguments: Any) -> None:
        """See the class."""
        if loss_type not in LOSSES:
            raise ValueError(f"loss_type must be one of {', '.join(map(repr, LOSSES))}, got {loss_type!r}")
        super().__init__(network, replay, **arguments)
        self._loss = LOSSES[loss_type]

    def losses(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """Return the losses [B] of the temporal-difference errors."""
        with self.compute.autocast():
            with torch.no_grad():
                q_t = self.target(batch["next_observation"])
                q_t_selector = self.network(batch["next_observation"]) if self.double else None
            q_tm1 = self.network(batch["observation"])
        step = (q_tm1, batch["action"], batch["reward"], batch["discount"])
        if q_t_selector is not None:
            return self._loss(losses.td_error_double_q_learning(*step, q_t, q_t_selector))
        return self._loss(losses.td_error_q_learning(*step, q_t))
