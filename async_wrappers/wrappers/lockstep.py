"""A vector environment of any autoreset mode, stepped frame by frame, and single sub-environments of its batches.

Gymnasium's three modes differ in what `step` returns when an episode ends: its last observation (``NEXT_STEP``, whose
next step resets; ``DISABLED``, where the caller resets), or the next episode's first one (``SAME_STEP``, the last one
then being in ``info["final_obs"]``). `Lockstep` reports ends in one form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from async_wrappers.wrappers.copies import own_copy, own_info

__all__ = ["End", "Frame", "Lockstep", "autoreset_mode", "batch", "clear", "put", "row", "rows", "with_row"]

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]
Info = dict[str, Any]


class End(NamedTuple):
    """An episode of one sub-environment has ended."""

    env: int
    terminated: bool
    truncated: bool
    observation: Any  # the last one
    info: Info  # the last one, of this sub-environment alone


class Frame(NamedTuple):
    """The result of a frame. Rows of sub-environments that begin a new episode hold its first observation."""

    observations: Any
    rewards: Any
    info: Info
    ends: list[End]


class Lockstep:
    """Steps all sub-environments by one frame.

    Args:
        env: The vector environment.
        mode: Its autoreset mode.
        resets: In ``DISABLED`` mode, reset what has ended, at once.
    """

    def __init__(self, env: VectorEnv, mode: AutoresetMode, resets: bool) -> None:
        """See the class."""
        self._env = env
        self._mode = mode
        self._resets = resets and mode is AutoresetMode.DISABLED
        self.autoreset_frames = int(mode is AutoresetMode.NEXT_STEP)  # between an end and the next episode
        self.batches_finals = False  # final observations came as one array, as AtariVectorEnv's do

    def step(self, actions: Any) -> Frame:
        """Run one frame."""
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        over = np.logical_or(terminated, truncated)
        if not over.any():
            return Frame(observations, rewards, info, [])
        ends = [
            End(i, bool(terminated[i]), bool(truncated[i]), *self._last(observations, info, i))
            for i in np.flatnonzero(over).tolist()
        ]
        info = {key: value for key, value in info.items() if key not in _FINALS}
        if self._resets:
            observations, reset_info = self._env.reset(options={"reset_mask": over})
            info = own_info(info)
            for i in np.flatnonzero(over).tolist():
                put(self._env, info, i, row(reset_info, i, self._env.num_envs))
        return Frame(observations, rewards, info, ends)

    def _last(self, observations: Any, info: Info, i: int) -> tuple[Any, Info]:
        """Return copies of the last observation and info of sub-environment `i`, which has ended."""
        n = self._env.num_envs
        if self._mode is not AutoresetMode.SAME_STEP:
            return own_copy(rows(self._env.observation_space, observations)[i]), own_info(row(info, i, n))
        if "final_obs" not in info:
            raise ValueError(f"env must give info['final_obs'] at an end, as it resets in the same step: {self._env}")
        finals = info["final_obs"]
        self.batches_finals = isinstance(finals, np.ndarray) and not finals.dtype.hasobject
        return own_copy(finals[i]), own_info(row(info.get("final_info", {}), i, n))


_FINALS = frozenset({"final_obs", "_final_obs", "final_info", "_final_info"})


def autoreset_mode(env: VectorEnv) -> AutoresetMode:
    """Return the autoreset mode of `env`.

    Raises:
        ValueError: Its metadata has no autoreset mode.
    """
    mode = env.metadata.get("autoreset_mode")
    # AtariVectorEnv writes its mode into a dictionary that all AtariVectorEnvs share: the last one made wins. Its
    # attribute is its own.
    if env.metadata is env.unwrapped.metadata:
        mode = getattr(env.unwrapped, "autoreset_mode", mode)
    if not isinstance(mode, AutoresetMode):
        raise ValueError(f"env must have its AutoresetMode in metadata['autoreset_mode'], got {mode!r} from {env}")
    return mode


def rows(space: gym.Space[Any], batched: Any) -> list[Any]:
    """Return the elements of a batch of the (batched) `space`, one for each sub-environment."""
    return list(batched) if isinstance(batched, np.ndarray) else list(iterate(space, batched))


def batch(single_space: gym.Space[Any], elements: list[Any]) -> Any:
    """Return the batch of `elements` of the `single_space`."""
    empty: Any = create_empty_array(single_space, len(elements))
    return concatenate(single_space, elements, empty)


def with_row(env: VectorEnv, observations: Any, i: int, observation: Any) -> Any:
    """Return `observations`, which may be changed, with that of sub-environment `i` replaced."""
    if isinstance(observations, np.ndarray):
        observations[i] = observation
        return observations
    elements = rows(env.observation_space, observations)
    elements[i] = observation
    return batch(env.single_observation_space, elements)


def row(info: Info, i: int, num_envs: int) -> Info:
    """Return the info of sub-environment `i` alone; `info` is of all."""
    single: Info = {}
    for key, value in info.items():
        mask = info.get(f"_{key}")
        if _is_mask(key, info) or (mask is not None and not mask[i]):
            continue
        if isinstance(value, dict):
            single[key] = row(value, i, num_envs)
        elif isinstance(value, np.ndarray) and value.ndim and len(value) == num_envs:
            single[key] = bool(value[i]) if value.dtype == bool and value.ndim == 1 else value[i]
    return single


def put(env: VectorEnv, info: Info, i: int, single: Info) -> None:
    """Make `single` the info of sub-environment `i` in `info`, which is of all."""
    clear(info, i)
    for key, value in single.items():
        if key not in info or f"_{key}" in info:
            env._add_info(info, {key: value}, i)
        elif isinstance(value, dict):
            put(env, info[key], i, value)
        else:
            info[key][i] = value


def clear(info: Info, i: int) -> None:
    """Remove sub-environment `i` from `info`, as far as it has masks."""
    for key, value in info.items():
        if _is_mask(key, info):
            value[i] = False
        elif isinstance(value, dict):
            clear(value, i)
        elif f"_{key}" in info:
            value[i] = None if value.dtype.hasobject else np.zeros((), value.dtype)


def _is_mask(key: str, info: Info) -> bool:
    return key.startswith("_") and key[1:] in info
