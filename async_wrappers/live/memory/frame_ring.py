"""The frame ring: the newest observations, written by the environment loop alone and read by all workers."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.live.memory.block import Block, Codec

__all__ = ["FrameRing"]

_ABSENT = np.iinfo(np.int64).min  # the number of no frame


class FrameRing:
    """Keeps the last `depth` frames, each under its number.

    A frame's number is taken away before its bytes are overwritten and set after they are whole, so a reader that finds
    the right number before and after its copy has read exactly that frame. (This relies on stores and loads that stay
    in order, as on x86-64.)

    Args:
        block: Shared memory; the environment's process and all workers make a ring over the same one.
        space: Of the observations.
        depth: Frames kept.
    """

    def __init__(self, block: Block, space: gym.Space[Any], depth: int) -> None:
        """See the class."""
        self._codec = Codec("observation_space", space)
        self._depth = depth
        entries = block.array(self._entry(self._codec), depth)
        self._numbers = entries["number"]
        self._fields = [entries["observation"][k : k + 1] for k in range(depth)]

    @classmethod
    def size(cls, space: gym.Space[Any], depth: int) -> int:
        """Return the bytes that a ring takes."""
        return cls._entry(Codec("observation_space", space)).itemsize * depth

    @staticmethod
    def _entry(codec: Codec) -> np.dtype[Any]:
        return np.dtype([("number", np.int64), ("observation", codec.dtype)], align=True)

    def clear(self) -> None:
        """Forget all frames; by the writer, before the first."""
        self._numbers[:] = _ABSENT

    def write(self, number: int, observation: Any) -> None:
        """Publish frame `number`; the one that was written `depth` frames ago goes."""
        place = number % self._depth
        self._numbers[place] = _ABSENT
        self._codec.write(self._fields[place], observation)
        self._numbers[place] = number

    def read(self, number: int) -> Any:
        """Return a copy of frame `number`.

        Raises:
            LookupError: It has been overwritten, or not yet been written.
        """
        place = number % self._depth
        if self._numbers[place] == number:
            observation = self._codec.read(self._fields[place])
            if self._numbers[place] == number:
                return observation
        raise LookupError(f"frame {number} is not in the ring")
