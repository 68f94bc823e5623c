"""Environments by name: any registered Gymnasium id, Atari, and MinAtar."""

from async_wrappers.envs.atari import EpisodicLife, FireOnReset, create_atari_environment, create_atari_vector
from async_wrappers.envs.factories import ClipReward, KeepEntries, create_gym_environment, create_gym_vector
from async_wrappers.envs.minatar import MinAtarEnv, create_minatar_environment

__all__ = [
    "ClipReward",
    "EpisodicLife",
    "FireOnReset",
    "KeepEntries",
    "MinAtarEnv",
    "create_atari_environment",
    "create_atari_vector",
    "create_gym_environment",
    "create_gym_vector",
    "create_minatar_environment",
]
