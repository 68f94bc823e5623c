"""What an environment must not contain when the runner itself is the delay."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from async_wrappers.wrappers.action_history import CommittedActions, DecisionDelay

__all__ = ["refuse_oracles"]


def refuse_oracles(env: gym.Env[Any, Any]) -> None:
    """Refuse wrappers that show the delay of a `RealtimeDelay`: they cannot know the runner's.

    Raises:
        ValueError: `env` contains `CommittedActions` or `DecisionDelay`.
    """
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, CommittedActions) and not layer.known:
            raise ValueError(
                "make_env must not use CommittedActions(known=False) in AsyncRunner, whose workers compute the actions "
                "in flight and cannot know them: leave it out, or simulate a delay of transport with RealtimeDelay"
            )
        if isinstance(layer, CommittedActions | DecisionDelay):
            name = type(layer).__name__
            raise ValueError(
                f"make_env must not use {name} in AsyncRunner, whose delay lies outside all wrappers: "
                f"leave {name} and its RealtimeDelay out, or use AppliedActions"
            )
        layer = layer.env
