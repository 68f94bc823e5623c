"""The actions that were sent on the last frames, as numbers of the observation.

Under delay the observation does not say what the actions on their way still do. `SentActions` stands inside the delay
and keeps what is sent on each frame; `ToldActions` stands outside of it and joins the last of them to what the policy
reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from async_wrappers.tensors.arrays import Array, Library, Tree, each, first_array
from async_wrappers.wrappers.copies import Info, VectorEnv, VectorWrapper
from async_wrappers.wrappers.lockstep import autoreset_mode
from async_wrappers.wrappers.row_terms import is_of_numpy


def joined(xp: Any, observation: Tree, window: Array) -> Tree:
    """Return observations whose arrays of real numbers [N, n] have also the actions of a window [N, K, A]."""
    flat = xp.reshape(window, (window.shape[0], -1))

    def of(array: Array) -> Array:
        if array.ndim != 2 or not xp.isdtype(array.dtype, "real floating"):
            return array
        return xp.concat([array, xp.astype(flat, array.dtype)], axis=1)

    return each(of, observation)


def widened(space: Any, numbers: int) -> Any:
    """Return the space of one environment's observations with so many actions' numbers more.

    Args:
        space: Gymnasium's, or a simulator's own: a record with a ``shape`` and bounds, or with ``spaces`` of its own.
        numbers: That each vector of real numbers gains.
    """
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        wide = {key: widened(part, numbers) for key, part in parts.items()}
        return Dict(wide) if isinstance(space, gym.Space) else dataclasses.replace(space, spaces=wide)
    if len(space.shape) != 1 or np.dtype(space.dtype).kind != "f":
        return space
    ends = (space.low, -np.inf), (space.high, np.inf)
    if isinstance(space, Box):
        low, high = (np.append(bound, np.full(numbers, inf)).astype(bound.dtype) for bound, inf in ends)
        return Box(low, high, dtype=low.dtype.type)
    bounds = [(*bound, *(inf,) * numbers) if isinstance(bound, tuple) else bound for bound, inf in ends]
    return dataclasses.replace(space, shape=(space.shape[0] + numbers,), low=bounds[0], high=bounds[1])


class SentActions(VectorWrapper):
    """Keeps the actions that a vector of tensors is sent, in a window [N, K, A]; the newest is the last.

    Args:
        env: A vector that resets in the same step.
        length: Frames.

    Attributes:
        window: Of the running episodes; zero where an episode has no such frame.
        ended: Of the newest ended episode of each row, at its end.

    Raises:
        ValueError: Another vector, or actions that are no rows of real numbers.
    """

    def __init__(self, env: VectorEnv, length: int) -> None:
        gym.vector.VectorWrapper.__init__(self, env)
        if (mode := autoreset_mode(env)) is not AutoresetMode.SAME_STEP:
            raise ValueError(f"action_window needs a vector that resets in the same step, got {mode}: leave it 0")
        space = env.single_action_space
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ValueError(f"action_window needs actions of real numbers on one axis, got {space}: leave it 0")
        self._shape, self._dtype = (env.num_envs, length, *space.shape), space.dtype
        self.length = length
        self.window: Any = None
        self.ended: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Reset the vector, or by ``options={"reset_mask": ...}`` some of it."""
        chosen = None if options is None else options.get("reset_mask")
        observations, info = self.env.reset(seed=seed, options=options)
        if is_of_numpy(observations):
            raise ValueError(
                "action_window needs observations of PyTorch, JAX or CuPy, got NumPy's: put AppliedActions on each "
                "environment"
            )
        if chosen is None or self.window is None:
            self._library = Library(first_array(observations))
            self.window = self.ended = self._library.array(np.zeros(self._shape, self._dtype))
        else:
            self._forget(self._library.array(chosen))
        return observations, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Step the vector by a frame."""
        xp = self._library.xp
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        sent = xp.astype(xp.expand_dims(actions, axis=1), self.window.dtype)
        self.window = xp.concat([self.window[:, 1:], sent], axis=1)
        self._forget(terminated | truncated)
        return observations, rewards, terminated, truncated, info

    def _forget(self, over: Array) -> None:
        self.ended = self._library.where(over, self.window, self.ended)
        self.window = self._library.where(over, self.window * 0, self.window)


class ToldActions(VectorWrapper):
    """Joins the actions that were sent on the last frames to each vector of real numbers that the policy reads.

    Args:
        env: With a `SentActions` inside.
        sent: Which.

    Raises:
        ValueError: No part of the observations is a vector of real numbers.
    """

    def __init__(self, env: VectorEnv, sent: SentActions) -> None:
        gym.vector.VectorWrapper.__init__(self, env)
        assert env.single_action_space.shape is not None
        space = widened(env.single_observation_space, sent.length * env.single_action_space.shape[0])
        if space == env.single_observation_space:
            raise ValueError(f"action_window needs observations with real numbers on one axis, got {space}: leave it 0")
        self.single_observation_space, self._sent = space, sent
        self.observation_space = batch_space(space, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Reset the vector."""
        observations, info = self.env.reset(seed=seed, options=options)
        return joined(self._xp(observations), observations, self._sent.window), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Step the vector."""
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        xp = self._xp(observations)
        for name in ("final_obs", "final_observation"):
            if name in info:
                info = {**info, name: joined(xp, info[name], self._sent.ended)}
        return joined(xp, observations, self._sent.window), rewards, terminated, truncated, info

    def _xp(self, observations: Tree) -> Any:
        return Library(first_array(observations)).xp
