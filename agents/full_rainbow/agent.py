"""Rainbow asked in turn, with Dopamine's interface and parameter names."""

from __future__ import annotations

from agents.full_rainbow.parts import FullRainbow
from agents.turn_based import TurnBasedAgent

__all__ = ["FullRainbowAgent"]


class FullRainbowAgent(TurnBasedAgent):
    """Rainbow (Hessel et al. 2018), under any delay; its hyperparameters are those of `FullRainbow` and `DQN`."""

    Parts = FullRainbow
