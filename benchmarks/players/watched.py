"""An environment of Gymnasium's with a turnstile in front."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from benchmarks.players.turnstile import Turnstile


class Watched(gym.Wrapper[Any, Any, Any, Any]):
    """Comes to the turnstile before each step."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._turnstile = Turnstile()

    def step(self, action: Any) -> Any:
        """Step, after waiting if need be."""
        self._turnstile.enter()
        return self.env.step(action)
