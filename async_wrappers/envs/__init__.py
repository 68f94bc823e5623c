"""Environments by name: any registered Gymnasium id, and Atari."""

from async_wrappers.envs.atari import create_atari_environment
from async_wrappers.envs.clip_reward import ClipReward
from async_wrappers.envs.registered import create_gym_environment

__all__ = ["ClipReward", "create_atari_environment", "create_gym_environment"]
