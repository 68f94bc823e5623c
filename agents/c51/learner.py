"""C51's learner: the cross-entropy to the projected distribution of the target."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agents import losses
from agents.learner import Batch, Learner, Replay

__all__ = ["C51Learner", "SupportWarning"]


class SupportWarning(RuntimeWarning):
    """Returns leave the support, which cannot tell them apart from its end."""


class C51Learner(Learner):
    """Steps the weights towards ``r + discount Z_target(o', a*)``, projected (Bellemare et al. 2017, Algorithm 1).

    Args:
        network: From observations [B, k, *shape] to logits [B, A, N]; updated in place.
        replay: Where transitions go and batches come from.
        support: The atoms, [N], where the network computes.
        gamma: Discount, to compare returns with the support.
        discount_by: ``"decision"`` or ``"frame"``.
        arguments: The others of `Learner`.
    """

    def __init__(
        self,
        network: nn.Module,
        replay: Replay,
        *,
        support: Tensor,
        gamma: float = 0.99,
        discount_by: str = "decision",
        **arguments: Any,
    ) -> None:
        """See the class."""
        super().__init__(network, replay, **arguments)
        self._support = support
        self._returns = _Returns(gamma, discount_by)
        self._low, self._high = float(support[0]), float(support[-1])
        self._warned = False

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition; warn once if an episode's return lies outside the support."""
        super().observe(transition)
        if self._warned or (value := self._returns.after(transition)) is None:
            return
        if not self._low <= value <= self._high:
            self._warned = True
            warnings.warn(
                f"the discounted return of an episode is {value:.4g}, outside the support [{self._low:g}, "
                f"{self._high:g}], whose end stands for all beyond it: set vmin and vmax so that returns fit",
                SupportWarning,
                stacklevel=2,
            )

    def cut(self, observation: Any) -> None:
        """End the running episode, whose return is not known."""
        super().cut(observation)
        self._returns.forget()

    def losses(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """Return the cross-entropies [B]."""
        with self.compute.autocast():
            with torch.no_grad():
                logits_t = self.target(batch["next_observation"])
                logits_t_selector = self.network(batch["next_observation"]) if self.double else logits_t
                q_t_selector = losses.expected_value(logits_t_selector, self._support)
            logits_tm1 = self.network(batch["observation"])
        step = (batch["action"], batch["reward"], batch["discount"])
        return losses.categorical_q_learning(self._support, logits_tm1, *step, logits_t, q_t_selector)


class _Returns:
    """The discounted return of each episode, from its transitions."""

    def __init__(self, gamma: float, discount_by: str) -> None:
        self._gamma, self._by_frame = gamma, discount_by == "frame"
        self._sum, self._discount = 0.0, 1.0

    def after(self, transition: Mapping[str, Any]) -> float | None:
        """Return the episode's discounted return if this transition ends it, and none before was missed."""
        self._sum += self._discount * float(transition["reward"])
        self._discount *= self._gamma ** (transition["interval"] if self._by_frame else 1)
        if not (transition["terminal"] or transition["truncated"]):
            return None
        whole, self._sum, self._discount = self._sum, 0.0, 1.0
        return None if math.isnan(whole) else whole

    def forget(self) -> None:
        """Have no return of this episode, whose transitions are not all seen."""
        self._sum = math.nan
