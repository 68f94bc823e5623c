"""Random vectors of `RecordingEnv`s in every autoreset mode, and one sub-environment of their infos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import strategies as st

from async_wrappers import VectorRealtimeDelay
from tests.worlds.recording_env import RecordingEnv

__all__ = ["DISABLED", "NEXT_STEP", "SAME_STEP", "WORLDS", "Sub", "World", "info_of", "plain", "wrapped"]

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


@dataclass(frozen=True)
class Sub:
    """What one sub-environment does, over and over again."""

    lengths: list[int]  # frames of each episode
    ends: list[tuple[bool, bool]]
    rewards: list[float]

    def make(self, reuse: bool = False) -> RecordingEnv:
        return RecordingEnv(self.lengths, self.ends, self.rewards, reuse=reuse)


@dataclass(frozen=True)
class World:
    delay: int
    noops: int
    subs: list[Sub]
    mode: AutoresetMode
    steps: int
    reuse: bool

    @property
    def own_mode(self) -> AutoresetMode:
        if self.delay == self.noops == 0:
            return self.mode
        return NEXT_STEP if self.mode is NEXT_STEP and self.noops <= self.delay else SAME_STEP


LENGTHS = st.one_of(st.integers(1, 3), st.integers(1, 25))
ENDS = st.sampled_from([(True, False), (False, True), (True, True)])
SUBS = st.builds(
    Sub,
    lengths=st.lists(LENGTHS, min_size=1, max_size=5),
    ends=st.lists(ENDS, min_size=1, max_size=5),
    rewards=st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=20),
)
WORLDS = st.builds(
    World,
    delay=st.integers(0, 5),
    noops=st.integers(0, 4),
    subs=st.lists(SUBS, min_size=1, max_size=4),
    mode=st.sampled_from(AutoresetMode),
    steps=st.integers(1, 12),
    reuse=st.booleans(),
)


def plain(value: Any) -> Any:
    """Return lists, numbers and dictionaries."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def info_of(info: dict[str, Any], i: int) -> dict[str, Any]:
    """Return what a vector's info says of one sub-environment."""
    single = {}
    for key, value in info.items():
        if key.startswith("_") or (f"_{key}" in info and not info[f"_{key}"][i]):
            continue
        single[key] = info_of(value, i) if isinstance(value, dict) else plain(value[i])
    return single


def wrapped(world: World, default_action: Any, **chunk: Any) -> tuple[VectorRealtimeDelay, list[RecordingEnv]]:
    reuse = world.reuse and world.mode is not SAME_STEP  # Gymnasium resets over the final info that it hands out
    recorders = [sub.make(reuse) for sub in world.subs]
    makers = [lambda recorder=recorder: recorder for recorder in recorders]
    vector = SyncVectorEnv(makers, copy=not world.reuse, autoreset_mode=world.mode)
    return VectorRealtimeDelay(vector, world.delay, world.noops, default_action, **chunk), recorders
