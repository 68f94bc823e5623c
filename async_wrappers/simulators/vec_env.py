"""rsl_rl's `VecEnv`: `step` returns observations, rewards, dones and extras, of which ``"time_outs"`` may be one."""

from __future__ import annotations

from abc import ABC, ABCMeta
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from async_wrappers.simulators.groups import own
from async_wrappers.tensors.arrays import Tree
from async_wrappers.wrappers.copies import Info, VectorEnv


def looks_like_vec_env(env: Any) -> bool:
    """Return whether it has what a `VecEnv` has."""
    names = ("num_envs", "num_actions", "episode_length_buf", "get_observations", "step")
    return all(hasattr(env, name) for name in names) and not hasattr(env, "single_action_space")


def tree_of(observations: Any) -> Tree:
    """Return observations as dicts of tensors; a tensor stays one."""
    return observations.to_dict() if hasattr(observations, "to_dict") else observations


def _space(tree: Tree) -> gym.Space[Any]:
    if isinstance(tree, dict):
        return Dict({key: _space(part) for key, part in tree.items()})
    return Box(-np.inf, np.inf, tuple(tree.shape[1:]), np.float32)


class VecEnvAsVector(gym.vector.VectorEnv[Any, Any, Any]):
    """A `VecEnv` as a vector of Gymnasium's; its reset does not reset, but begins with what is shown.

    Args:
        env: The environment.

    Attributes:
        simulator: That.
        types: Of the rewards and dones that it gives; a delay adds rewards up with more digits.
    """

    types: Any = None

    def __init__(self, env: Any) -> None:
        self.simulator, self.num_envs = env, env.num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = _space(tree_of(env.get_observations()))
        self.single_action_space = Box(-np.inf, np.inf, (env.num_actions,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin episodes where the environment stands."""
        return own(tree_of(self.simulator.get_observations())), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Step all robots."""
        observations, rewards, dones, extras = self.simulator.step(actions)
        over, self.types = dones != 0, (rewards.dtype, dones.dtype)
        late = extras["time_outs"] != 0 if "time_outs" in extras else over & ~over
        return own(tree_of(observations)), rewards, over & ~late, over & late, dict(extras)


class DelayedVecEnv:
    """A `VecEnv` under a delay: everything else is the environment's own.

    Args:
        bare: The environment as a vector, whose episodes begin now.
        vector: That, delayed.
    """

    def __init__(self, bare: VecEnvAsVector, vector: VectorEnv) -> None:
        env = self.env = bare.simulator
        self._bare, self._vector, self._like = bare, vector, env.get_observations()
        for kind in [kind for kind in type(env).__mro__ if isinstance(kind, ABCMeta) and kind is not ABC][-1:]:
            kind.register(DelayedVecEnv)  # it is one, also for who asks
        self._begin()

    def __getattr__(self, name: str) -> Any:
        """Return what the environment has."""
        if name in ("env", "_vector") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def episode_length_buf(self) -> Any:
        """Frames of each episode so far, [N]; rsl_rl sets them at random as it begins."""
        return self.env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: Any) -> None:
        self.env.episode_length_buf = value

    def _begin(self) -> None:
        observations, _ = self._vector.reset(seed=0)  # of drawn delays: the interface has none
        self._observations = self._shown(observations)

    def _shown(self, tree: Tree) -> Any:
        """Return observations as the environment gives them."""
        return type(self._like)(tree, batch_size=self._like.batch_size) if isinstance(tree, dict) else tree

    def get_observations(self) -> Any:
        """Return what the next decision reads."""
        return self._observations

    def reset(self) -> tuple[Any, Info]:
        """Reset the environment, if it can, and begin anew."""
        extras = self.env.reset()[1]
        self._begin()
        return self._observations, extras

    def step(self, actions: Any) -> tuple[Any, Any, Any, Info]:
        """Step all robots; ``extras["realtime"]`` says what landed, as `VectorRealtimeDelay` does."""
        observations, rewards, terminated, truncated, extras = self._vector.step(actions)
        self._observations = self._shown(observations)
        if "time_outs" in extras:
            extras["time_outs"] = truncated
        of_rewards, of_dones = self._bare.types
        return self._observations, rewards.to(of_rewards), (terminated | truncated).to(of_dones), extras
