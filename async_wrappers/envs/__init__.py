"""Environments by name: any registered Gymnasium id, and Atari."""

from async_wrappers.envs.factories import (
    ClipReward,
    EpisodicLife,
    FireOnReset,
    KeepEntries,
    create_atari_environment,
    create_atari_vector,
    create_gym_environment,
    create_gym_vector,
)

__all__ = [
    "ClipReward",
    "EpisodicLife",
    "FireOnReset",
    "KeepEntries",
    "create_atari_environment",
    "create_atari_vector",
    "create_gym_environment",
    "create_gym_vector",
]
