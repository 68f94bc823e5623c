"""Telling the policy what the environment received: `AppliedActions`.

Under delay the newest observation alone is not Markov: what the environment was doing when the observation was taken
depends on the actions applied before it, default ones included (Katsikopoulos and Engelbrecht, "Markov decision
processes with delays and asynchronous cost collection", 2003).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from numpy.typing import NDArray

from async_wrappers.schedule import whole_frames

__all__ = ["AppliedActions"]


class AppliedActions(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Adds the last actions really applied, default ones included, to the observation.

    Put it *inside* the delay, ``RealtimeDelay(AppliedActions(env, length=4), delay=8)``: then the actions are those
    applied before the observation's frame, which a real policy also knows when it begins to compute. Actions that are
    chosen but not yet applied are not shown.

    Discrete and MultiDiscrete actions are one-hot, Box actions are their values; before the episode's first action
    all is zero. Newest last.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import AppliedActions
        >>> env = AppliedActions(gym.make("CartPole-v1"), length=3, flat=True)
        >>> env.observation_space.shape
        (10,)

    Args:
        env: An environment with Discrete, MultiDiscrete or Box actions.
        length: How many applied actions are shown, in frames.
        flat: False gives ``Dict(observation=..., applied_actions=Box [length, width])``. True appends the actions to a
            vector observation; where that is of unsigned integers (Atari's RAM), a one is the type's largest number.

    Raises:
        ValueError: `length` is not a positive number of frames, or the spaces cannot be used.
    """

    def __init__(self, env: gym.Env[Any, Any], length: int = 1, flat: bool = False) -> None:
        """See the class."""
        gym.utils.RecordConstructorArgs.__init__(self, length=length, flat=flat)
        gym.Wrapper.__init__(self, env)
        length = whole_frames("length", length)
        if length < 1:
            raise ValueError(f"length must be >= 1 frame, got {length}")
        self._flat = flat
        self._encode, low, high = _encoder(env.action_space)
        self._recent: NDArray[Any] = np.zeros((length, low.size), np.float32)
        space = env.observation_space
        if not flat:
            actions = Box(np.tile(low, (length, 1)), np.tile(high, (length, 1)), dtype=np.float32)
            self.observation_space = Dict({"observation": space, "applied_actions": actions})
            return
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ValueError(f"flat=True needs a vector observation, got {space}: use flat=False")
        one = space.dtype.type(1)
        if np.issubdtype(space.dtype, np.integer):
            if isinstance(env.action_space, Box):
                raise ValueError(f"flat=True cannot put Box actions into {space.dtype} observations: use flat=False")
            one = space.dtype.type(np.iinfo(space.dtype).max)
        encode = self._encode
        self._encode = lambda action: encode(action).astype(space.dtype) * one
        self._recent = self._recent.astype(space.dtype)
        bounds = ((space.low, low), (space.high, high))
        low, high = (np.concatenate([end, np.tile(bound.astype(space.dtype) * one, length)]) for end, bound in bounds)
        self.observation_space = Box(low, high, dtype=space.dtype.type)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and forget the actions of the last episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._recent[:] = 0
        return self._join(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment by one frame and remember the action."""
        sent = self._encode(action)  # before the step: an environment may change the array that it receives
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._recent[:-1] = self._recent[1:]
        self._recent[-1] = sent
        return self._join(observation), reward, terminated, truncated, info

    def _join(self, observation: Any) -> Any:
        if not self._flat:
            return {"observation": observation, "applied_actions": self._recent.copy()}
        return np.concatenate([observation, self._recent.ravel()])


Encoder = Callable[[Any], NDArray[Any]]


def _encoder(space: gym.Space[Any]) -> tuple[Encoder, NDArray[Any], NDArray[Any]]:
    """Return the function from an action to a float32 vector, and the vector's bounds, for `space`."""
    if isinstance(space, Discrete):
        table, first = np.eye(int(space.n), dtype=np.float32), int(space.start)
        return lambda action: table[int(action) - first], *_unit_bounds(int(space.n))
    if isinstance(space, MultiDiscrete):
        counts = space.nvec.ravel()
        begins = np.concatenate([[0], np.cumsum(counts)[:-1]]) - space.start.ravel()
        width = int(counts.sum())

        def one_hots(action: Any) -> NDArray[Any]:
            vector = np.zeros(width, np.float32)
            vector[begins + np.ravel(action)] = 1
            return vector

        return one_hots, *_unit_bounds(width)
    if isinstance(space, Box):
        # zeros stand before the episode's first action, so the bounds must hold them
        low, high = np.minimum(space.low, 0).ravel(), np.maximum(space.high, 0).ravel()
        return (
            lambda action: np.array(action, np.float32).ravel(),
            low.astype(np.float32),
            high.astype(np.float32),
        )
    raise ValueError(f"AppliedActions needs Discrete, MultiDiscrete or Box actions, got {space}")


def _unit_bounds(width: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.zeros(width, np.float32), np.ones(width, np.float32)
