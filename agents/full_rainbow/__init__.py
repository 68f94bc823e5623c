"""Rainbow with all six of its parts (Hessel et al., "Rainbow: combining improvements in deep RL", AAAI 2018).

C51, n-step returns, prioritised replay, double Q-learning, dueling heads and noisy layers; each can be left out.
"""

from agents.full_rainbow.agent import FullRainbowAgent
from agents.full_rainbow.parts import FullRainbow

__all__ = ["FullRainbow", "FullRainbowAgent"]
