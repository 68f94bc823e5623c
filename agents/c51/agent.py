"""C51 asked in turn, with Dopamine's interface and parameter names."""

from __future__ import annotations

from agents.c51.parts import C51
from agents.turn_based import TurnBasedAgent

__all__ = ["C51Agent"]


class C51Agent(TurnBasedAgent):
    """C51 (Bellemare et al. 2017), under any delay; its hyperparameters are those of `C51` and `DQN`."""

    Parts = C51
