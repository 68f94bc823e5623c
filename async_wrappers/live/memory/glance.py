"""The newest frames and inferences of a run in shared memory, for whoever looks on.

The environment loop writes a row for each of them, in less than a microsecond, and waits for nobody. A reader copies
the rows, and keeps those that were not overwritten meanwhile.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.fleet.block import Block

_DEPTH = 4096  # rows of each kind, four seconds at 1,000 frames a second
_WHOLE = ("phase", "episode", "frame", "deadline", "lateness", "start", "delay", "lag")
_FRAME = np.dtype([*((name, "<i8") for name in _WHOLE), ("score", "<f8")])
_INFERENCE = np.dtype([(name, "<i8") for name in ("worker", "episode", "start", "began", "ended")])
_FRAME_SIZE, _INFERENCE_SIZE = _FRAME.itemsize, _INFERENCE.itemsize
_COUNTS = 64  # bytes
PAUSED, DEFAULT = -2, -1
"""The start of a frame of a pause, and of one that received the default action."""

Rows = npt.NDArray[Any]


class Glance:
    """Rows of frames and of inferences, the newest 4,096 of each.

    =========== ====================================================================================================
    frame       ``phase``, ``episode``, ``frame`` of the episode, ``deadline`` and ``lateness`` in nanoseconds,
                ``start`` of the decision that acts (`PAUSED`, `DEFAULT` without one), ``delay`` from there until it
                took effect (-1 without one; a chunk goes on afterwards), ``lag`` in updates (-1 without learners), and
                the episode's ``score`` after the frame
    inference   ``worker``, ``episode``, ``start``, and when it ``began`` and ``ended``, in nanoseconds
    =========== ====================================================================================================

    Args:
        block: Shared memory of `size()` bytes.
    """

    def __init__(self, block: Block) -> None:
        self._counts = block.array(np.int64, 2).data
        """How many rows of each kind were written."""
        self._frames = block.array(_FRAME, _DEPTH, _COUNTS)
        self._inferences = block.array(_INFERENCE, _DEPTH, _COUNTS + _FRAME_SIZE * _DEPTH)
        self._put_frame = partial(struct.Struct(f"<{len(_WHOLE)}qd").pack_into, self._frames.view(np.uint8).data)
        self._put_inference = partial(struct.Struct("<5q").pack_into, self._inferences.view(np.uint8).data)

    @staticmethod
    def size() -> int:
        """Return the bytes that it takes."""
        return _COUNTS + (_FRAME_SIZE + _INFERENCE_SIZE) * _DEPTH

    # The loop's side.

    def frame(self, *row: float) -> None:
        """Add a frame's row, its values in the order above."""
        count = self._counts[0]
        self._put_frame(count % _DEPTH * _FRAME_SIZE, *row)
        self._counts[0] = count + 1

    def inference(self, *row: int) -> None:
        """Add an inference's row, its values in the order above."""
        count = self._counts[1]
        self._put_inference(count % _DEPTH * _INFERENCE_SIZE, *row)
        self._counts[1] = count + 1

    # The reader's side.

    def frames(self, since: int = 0) -> tuple[Rows, int]:
        """Return the rows of frames from number `since` on that are still there, and the number of the next one."""
        return self._newest(0, self._frames, since)

    def inferences(self, since: int = 0) -> tuple[Rows, int]:
        """Return the rows of inferences likewise."""
        return self._newest(1, self._inferences, since)

    def _newest(self, kind: int, rows: Rows, since: int) -> tuple[Rows, int]:
        end = self._counts[kind]
        numbers = np.arange(max(since, end - _DEPTH, 0), end)
        copied = rows[numbers % _DEPTH]
        # What the loop has begun to write since then has taken the places of the oldest ones.
        whole = numbers > self._counts[kind] - _DEPTH
        return copied[whole], end
