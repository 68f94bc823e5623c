"""Dopamine's Rainbow (Castro et al. 2018): C51 with n-step returns and prioritised replay.

These three matter most of the six that Hessel et al., "Rainbow: combining improvements in deep reinforcement learning",
AAAI 2018, put together; all six are in `agents.full_rainbow`.
"""

from agents.rainbow.agent import RainbowAgent
from agents.rainbow.parts import Rainbow

__all__ = ["Rainbow", "RainbowAgent"]
