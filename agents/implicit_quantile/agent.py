"""IQN asked in turn, with Dopamine's interface and parameter names."""

from __future__ import annotations

from agents.implicit_quantile.parts import ImplicitQuantile
from agents.turn_based import TurnBasedAgent

__all__ = ["ImplicitQuantileAgent"]


class ImplicitQuantileAgent(TurnBasedAgent):
    """IQN (Dabney et al. 2018), under any delay; its hyperparameters are those of `ImplicitQuantile` and `DQN`."""

    Parts = ImplicitQuantile
