"""Dopamine's Rainbow asked in turn, with Dopamine's interface and parameter names."""

from __future__ import annotations

from agents.rainbow.parts import Rainbow
from agents.turn_based import TurnBasedAgent

__all__ = ["RainbowAgent"]


class RainbowAgent(TurnBasedAgent):
    """Dopamine's Rainbow (Castro et al. 2018), under any delay; its hyperparameters are those of `Rainbow`."""

    Parts = Rainbow
