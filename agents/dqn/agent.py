"""DQN asked in turn, with Dopamine's interface and parameter names."""

from __future__ import annotations

from agents.dqn.parts import DQN
from agents.turn_based import TurnBasedAgent

__all__ = ["DQNAgent"]


class DQNAgent(TurnBasedAgent):
    """DQN (Mnih et al. 2015), under any delay; its hyperparameters are those of `DQN`."""

    Parts = DQN
