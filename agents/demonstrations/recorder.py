"""Writing down what happens to an environment, frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from agents.demonstrations.demonstration import Demonstration
from agents.demonstrations.playback import delay_layer

__all__ = ["Recorder"]


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Hands over each episode when it has ended; one that is reset before its end is forgotten.

    Args:
        env: The environment of frames: no delay in it.
        keep: Receives the episodes.

    Attributes:
        episodes: How many have been handed over.
    """

    def __init__(self, env: gym.Env[Any, Any], keep: Callable[[Demonstration], object]) -> None:
        """See the class."""
        super().__init__(env)
        self.episodes = 0
        self._keep = keep
        self._begin(None)

    @classmethod
    def inside(
        cls, environment: gym.Env[Any, Any], keep: Callable[[Demonstration], object]
    ) -> tuple[gym.Env[Any, Any], Recorder]:
        """Put one below an environment's delay, or around it if there is none; return the environment and it."""
        layer = delay_layer(environment)
        if layer is None:
            recorder = cls(environment, keep)
            return recorder, recorder
        layer.env = recorder = cls(layer.env, keep)
        return environment, recorder

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin(seed)
        self._observations.append(np.array(observation))
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a frame and write it down."""
        received = np.array(action)  # before the step: an environment may change the array that it receives
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._actions.append(received)
        self._rewards.append(float(reward))
        self._observations.append(np.array(observation))
        if terminated or truncated:
            self._hand_over(terminated)
        return observation, reward, terminated, truncated, info

    def cut(self) -> None:
        """End the running episode, if one runs, as a truncation."""
        if self._actions:
            self._hand_over(terminated=False)

    def _hand_over(self, terminated: bool) -> None:
        observations, actions = np.stack(self._observations), np.stack(self._actions)
        self._keep(Demonstration(observations, actions, np.array(self._rewards), bool(terminated), self._seed))
        self.episodes += 1
        self._begin(None)

    def _begin(self, seed: int | None) -> None:
        self._observations: list[Any] = []
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._seed = seed
