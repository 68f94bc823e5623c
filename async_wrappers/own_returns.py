"""Returns of the environment's own rewards, in ``info["episode_return"]``, where wrappers change them.

What an agent learns from may be normalised, clipped or shaped; what a run reports is the game's. So the sum is taken
below all wrappers that change rewards, or where a ``RecordEpisodeStatistics`` outside of one stands. Gymnasium's are
known; a user's is one if its ``step`` may return another reward than it got, or as its class attribute
``changes_rewards`` says.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode

from async_wrappers.checks import reward_of
from async_wrappers.own_code import changes_rewards
from async_wrappers.wrapper_statistics import layers_of

_CHANGE = (
    gym.RewardWrapper,
    wrappers.NormalizeReward,
    gym.vector.VectorRewardWrapper,
    wrappers.vector.NormalizeReward,
)
_RECORD = (wrappers.RecordEpisodeStatistics, wrappers.vector.RecordEpisodeStatistics)


def reward_changers(env: Any) -> list[str]:
    """Return the names of the wrappers that may change rewards, from the inside on, of an environment or a vector."""
    return [type(layer).__name__ for layer in layers_of(env) if _changes(layer)][::-1]


def with_own_returns(env: Any) -> Any:
    """Return an environment or a vector that reports its own returns, where wrappers change its rewards."""
    envs = getattr(getattr(env, "unwrapped", None), "envs", None)
    if isinstance(envs, list) and isinstance(env, gym.vector.VectorEnv):
        envs[:] = map(with_own_returns, envs)
    layers = [*layers_of(env)]
    changers = [place for place, layer in enumerate(layers) if _changes(layer) and not _says(layer, "reports_returns")]
    if not changers or any(isinstance(layer, OwnReturns | VectorOwnReturns) for layer in layers):
        return env
    recorded = [place for place, layer in enumerate(layers[: changers[-1]]) if isinstance(layer, _RECORD)]
    at = layers[recorded[0] if recorded else changers[-1]]
    at.env = VectorOwnReturns(at.env) if isinstance(at, gym.vector.VectorWrapper) else OwnReturns(at.env)
    return env


def _changes(layer: Any) -> bool:
    says = _says(layer, "changes_rewards")
    return isinstance(layer, _CHANGE) or changes_rewards(layer) if says is None else bool(says)


def _says(layer: Any, name: str) -> Any:
    return getattr(type(layer), name, None)


class OwnReturns(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Reports the sum of the episode's rewards so far in ``info["episode_return"]``, where nothing inside does.

    Args:
        env: The environment to wrap.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._return = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and the return."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._return = 0.0
        return observation, {"episode_return": 0.0, **info}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment by one frame."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return += reward if type(reward) is float else reward_of(reward)
        return observation, reward, terminated, truncated, {"episode_return": self._return, **info}


class VectorOwnReturns(gym.vector.VectorWrapper, gym.utils.RecordConstructorArgs):
    """`OwnReturns` of a vector: ``info["episode_return"]`` is an array `[N]`, and one of the ends in ``final_info``.

    Args:
        env: The vector to wrap.
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.vector.VectorWrapper.__init__(self, env)
        self._returns = np.zeros(env.num_envs)
        self._over = np.zeros(env.num_envs, bool)  # rows whose next step is the reset of Gymnasium's NEXT_STEP
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environments, or those of ``options["reset_mask"]``, and their returns."""
        chosen = None if options is None else options.get("reset_mask")
        begun = np.ones(self.num_envs, bool) if chosen is None else np.array(chosen)
        observations, info = self.env.reset(seed=seed, options=options)
        self._returns, self._over = np.where(begun, 0.0, self._returns), self._over & ~begun
        return observations, {"episode_return": self._returns, **info}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments by one frame."""
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        returns = np.where(self._over, 0.0, self._returns + rewards)
        over = np.logical_or(terminated, truncated)
        if self._mode is AutoresetMode.SAME_STEP:
            if over.any():
                of_ends = {"episode_return": returns, "_episode_return": over}
                info = {**info, "final_info": {**of_ends, **info.get("final_info", {})}, "_final_info": over}
            returns = np.where(over, 0.0, returns)
        elif self._mode is AutoresetMode.NEXT_STEP:
            self._over = over
        self._returns = returns
        return observations, rewards, terminated, truncated, {"episode_return": returns, **info}
