"""Recording: the wrapper that makes demonstrations of the episodes that an environment plays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from agents.demonstrations.demonstration import Demonstration
from agents.demonstrations.playback import delay_layer

__all__ = ["Recorder"]


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Passes each episode to `keep` when it has ended; an episode that is reset before its end is dropped.

    Args:
        env: An environment of frames, without a delay.
        keep: Called with each episode.

    Attributes:
        episodes: Number of episodes that have ended.
    """

    def __init__(self, env: gym.Env[Any, Any], keep: Callable[[Demonstration], object]) -> None:
        """See the class."""
        super().__init__(env)
        self.episodes = 0
        self._keep = keep
        self._start_episode(None)

    @classmethod
    def inside(
        cls, environment: gym.Env[Any, Any], keep: Callable[[Demonstration], object]
    ) -> tuple[gym.Env[Any, Any], Recorder]:
        """Put a recorder below an environment's delay, or around an environment without one; return both."""
        layer = delay_layer(environment)
        if layer is None:
            recorder = cls(environment, keep)
            return recorder, recorder
        layer.env = recorder = cls(layer.env, keep)
        return environment, recorder

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._start_episode(seed)
        self._observations.append(np.array(observation))
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a frame and record it."""
        # Copied before the step, since an environment may change the array that it receives.
        received = np.array(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._actions.append(received)
        self._rewards.append(float(reward))
        self._observations.append(np.array(observation))
        if terminated or truncated:
            self._end_episode(terminated)
        return observation, reward, terminated, truncated, info

    def truncate_episode(self) -> None:
        """End the running episode, if there is one, as a truncation."""
        if self._actions:
            self._end_episode(terminated=False)

    def _end_episode(self, terminated: bool) -> None:
        observations, actions = np.stack(self._observations), np.stack(self._actions)
        self._keep(Demonstration(observations, actions, np.array(self._rewards), bool(terminated), self._seed))
        self.episodes += 1
        self._start_episode(None)

    def _start_episode(self, seed: int | None) -> None:
        self._observations: list[Any] = []
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._seed = seed
