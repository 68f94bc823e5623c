"""Dopamine's Rainbow (Castro et al. 2018): C51 with n-step returns and prioritised replay.

These three matter most of the six that Hessel et al., "Rainbow: combining improvements in deep reinforcement learning",
AAAI 2018, put together; all six are in `agents.value_based.full_rainbow`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gin
import gymnasium as gym

from agents.value_based.c51 import C51

__all__ = ["Rainbow"]


@gin.configurable("RainbowAgent", module="agents")
class Rainbow(C51):
    """Dopamine's Rainbow (Castro et al. 2018; Hessel et al. 2018), ``RainbowAgent`` in gin.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        update_horizon: n of the n-step return, in decisions.
        replay_scheme: ``"prioritized"`` or ``"uniform"``.
        shared: Those of `C51` and `DQN`.
    """

    name: ClassVar[str] = "rainbow"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        update_horizon: int = 3,
        replay_scheme: str = "prioritized",
        **shared: Any,
    ) -> None:
        """See the class."""
        super().__init__(
            observation_space, action_space, update_horizon=update_horizon, replay_scheme=replay_scheme, **shared
        )
