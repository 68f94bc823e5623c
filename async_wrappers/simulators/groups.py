"""Isaac Lab's and mjlab's environments: one object steps N robots, and shows groups of tensors.

They reset robots in the same step, say so by `terminated` and `truncated` [N], and show no last observation. Spaces of
single environments may be Gymnasium's or the simulator's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from async_wrappers.simulators.action_window import widened
from async_wrappers.tensors.arrays import Library, Tree, each, first_array
from async_wrappers.wrappers.copies import Info, VectorEnv


def looks_like_groups(env: Any) -> bool:
    """Return whether it has what these environments have."""
    inner = getattr(env, "unwrapped", env)
    names = ("num_envs", "single_action_space", "single_observation_space", "episode_length_buf", "reset", "step")
    return all(hasattr(inner, name) for name in names)


def space_of(space: Any) -> gym.Space[Any]:
    """Return a simulator's space of one environment as Gymnasium's."""
    if isinstance(space, gym.Space):
        return space
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        return Dict({key: space_of(part) for key, part in parts.items()})
    dtype = np.dtype(space.dtype)
    low, high = (np.broadcast_to(np.asarray(bound, dtype), space.shape) for bound in (space.low, space.high))
    return Box(low, high, dtype=dtype.type)


class GroupsAsVector(gym.vector.VectorEnv[Any, Any, Any]):
    """Such an environment as a vector of Gymnasium's.

    Args:
        env: The environment.

    Attributes:
        simulator: That.
        reward_type: Of the rewards that it gives; a delay adds them up with more digits.

    Raises:
        ValueError: It leaves resets to its caller.
    """

    reward_type: Any = None

    def __init__(self, env: Any) -> None:
        inner = getattr(env, "unwrapped", env)
        if not getattr(getattr(inner, "cfg", None), "auto_reset", True):
            raise ValueError("env must reset robots in the same step, got cfg.auto_reset=False: set it to True")
        self.simulator, self.num_envs = env, inner.num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = space_of(inner.single_observation_space)
        self.single_action_space = space_of(inner.single_action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Reset all robots, or by ``options={"reset_mask": ...}`` some of them."""
        options = dict(options or {})
        chosen = options.pop("reset_mask", None)
        which = {} if chosen is None else {"env_ids": chosen.nonzero().reshape(-1)}
        observations, extras = self.simulator.reset(seed=seed, options=options or None, **which)
        return own(observations), dict(extras)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Step all robots."""
        observations, rewards, terminated, truncated, extras = self.simulator.step(actions)
        self.reward_type = rewards.dtype
        return own(observations), rewards, terminated, truncated, dict(extras)


def own(observations: Tree) -> Tree:
    """Return a copy: a simulator may write into its arrays on the next frame."""
    xp = Library(first_array(observations)).xp
    return each(lambda array: xp.asarray(array, copy=True), observations)


class DelayedGroups(gym.Env[Any, Any]):
    """Such an environment under a delay: everything else is the simulator's own.

    Args:
        bare: The environment as a vector.
        vector: That, delayed.
        window: Frames whose actions are told.
    """

    def __init__(self, bare: GroupsAsVector, vector: VectorEnv, window: int) -> None:
        env = self.env = bare.simulator
        self._bare, self._vector = bare, vector
        numbers = window * math.prod(bare.single_action_space.shape or ())
        inner = getattr(env, "unwrapped", env)
        self.num_envs, self.metadata = vector.num_envs, getattr(inner, "metadata", {})
        self.render_mode, self.spec = getattr(inner, "render_mode", None), getattr(inner, "spec", None)
        self.single_action_space, self.action_space = inner.single_action_space, inner.action_space
        self.single_observation_space, self.observation_space = (
            (widened(inner.single_observation_space, numbers), vector.observation_space)
            if numbers
            else (inner.single_observation_space, inner.observation_space)
        )

    def __getattr__(self, name: str) -> Any:
        """Return what the simulator has."""
        if name in ("env", "_vector") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def unwrapped(self) -> Any:
        """The simulator's environment."""
        return getattr(self.env, "unwrapped", self.env)

    @property
    def episode_length_buf(self) -> Any:
        """Frames of each episode so far, [N]; scripts set them at random as they begin."""
        return self.unwrapped.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: Any) -> None:
        self.unwrapped.episode_length_buf = value

    def reset(self, *, seed: int | None = None, env_ids: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Reset all robots, or those of some numbers, as the simulator does."""
        if env_ids is None:
            return self._vector.reset(seed=seed, options=options)
        mask = self.unwrapped.episode_length_buf < 0
        mask[env_ids] = True
        return self._vector.reset(seed=seed, options={**(options or {}), "reset_mask": mask})

    def step(self, action: Any) -> Any:
        """Step all robots; ``extras["realtime"]`` says what landed, as `VectorRealtimeDelay` does."""
        observations, rewards, *rest = self._vector.step(action)
        return observations, rewards.to(self._bare.reward_type), *rest

    def render(self) -> Any:
        """Render the simulator's newest frame."""
        return self.env.render()

    def close(self) -> None:
        """Close the simulator."""
        self.env.close()
