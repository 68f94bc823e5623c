"""QR-DQN asked in turn, with Dopamine's interface and parameter names."""

from __future__ import annotations

from agents.quantile.parts import Quantile
from agents.turn_based import TurnBasedAgent

__all__ = ["QuantileAgent"]


class QuantileAgent(TurnBasedAgent):
    """QR-DQN (Dabney et al. 2018), under any delay; its hyperparameters are those of `Quantile` and `DQN`."""

    Parts = Quantile
