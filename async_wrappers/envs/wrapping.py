"""The order in which an environment is wrapped, shared by all environment factories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from async_wrappers.envs.clip_reward import ClipReward

__all__ = ["Wrapper", "wrap"]

Wrapper = Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]


def wrap(env: gym.Env[Any, Any], clip_rewards: bool, wrappers: Sequence[Wrapper] | None) -> gym.Env[Any, Any]:
    """Return `env` wrapped: reward clipping innermost, then `wrappers` in the order given, the first one innermost.

    Raises:
        TypeError: `wrappers` is not a list of callables (in gin: ``wrappers = [@AppliedActions, @RealtimeDelay]``).
    """
    wrappers = () if wrappers is None else wrappers
    if callable(wrappers) or not all(callable(wrapper) for wrapper in wrappers):
        raise TypeError(
            f"wrappers must be a list of wrapper classes or functions, such as [@RealtimeDelay], got {wrappers!r}"
        )
    if clip_rewards:
        env = ClipReward(env)
    for wrapper in wrappers:
        env = wrapper(env)
    return env
