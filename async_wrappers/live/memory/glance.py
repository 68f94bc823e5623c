"""The newest frames and inferences of a run in shared memory, for whoever looks on.

The environment loop writes a row for each of them, in less than a microsecond, and waits for nobody. A reader copies
the rows, and keeps those that were not overwritten meanwhile.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.processes.block import Block

_DEPTH = 4096  # rows of each kind, four seconds at 1,000 frames a second
_FRAME = np.dtype(
    [
        *((name, "<i8") for name in ("phase", "episode", "frame", "deadline", "lateness", "start", "lag")),
        ("score", "<f8"),
    ]
)
_INFERENCE = np.dtype([(name, "<i8") for name in ("worker", "episode", "start", "began", "ended")])
_COUNTS = 64  # bytes
PAUSED, DEFAULT = -2, -1
"""The start of a frame of a pause, and of one that received the default action."""

Rows = npt.NDArray[Any]


class Glance:
    """Rows of frames and of inferences, the newest 4,096 of each.

    =========== ====================================================================================================
    frame       ``phase``, ``episode``, ``frame`` of the episode, ``deadline`` and ``lateness`` in nanoseconds,
                ``start`` of the decision that took effect (`PAUSED`, `DEFAULT` without one), ``lag`` in updates (-1
                without learners), and the episode's ``score`` after the frame
    inference   ``worker``, ``episode``, ``start``, and when it ``began`` and ``ended``, in nanoseconds
    =========== ====================================================================================================

    Args:
        block: Shared memory of `size()` bytes.
    """

    def __init__(self, block: Block) -> None:
        """See the class."""
        self._counts = block.array(np.int64, 2)
        self._frames = block.array(_FRAME, _DEPTH, _COUNTS)
        self._inferences = block.array(_INFERENCE, _DEPTH, _COUNTS + _FRAME.itemsize * _DEPTH)
        self._write_frame = struct.Struct("<7qd").pack_into
        self._write_inference = struct.Struct("<5q").pack_into
        self._frame_bytes, self._inference_bytes = (
            self._frames.view(np.uint8).data,
            self._inferences.view(np.uint8).data,
        )

    @staticmethod
    def size() -> int:
        """Return the bytes that it takes."""
        return _COUNTS + (_FRAME.itemsize + _INFERENCE.itemsize) * _DEPTH

    # The loop's side.

    def frame(self, *row: float) -> None:
        """Add a frame's row, its values in the order above."""
        count = int(self._counts[0])
        self._write_frame(self._frame_bytes, count % _DEPTH * _FRAME.itemsize, *row)
        self._counts[0] = count + 1

    def inference(self, *row: int) -> None:
        """Add an inference's row, its values in the order above."""
        count = int(self._counts[1])
        self._write_inference(self._inference_bytes, count % _DEPTH * _INFERENCE.itemsize, *row)
        self._counts[1] = count + 1

    # The reader's side.

    def frames(self, since: int = 0) -> tuple[Rows, int]:
        """Return the rows of frames from number `since` on that are still there, and the number of the next one."""
        return self._newest(0, self._frames, since)

    def inferences(self, since: int = 0) -> tuple[Rows, int]:
        """Return the rows of inferences likewise."""
        return self._newest(1, self._inferences, since)

    def _newest(self, kind: int, rows: Rows, since: int) -> tuple[Rows, int]:
        end = int(self._counts[kind])
        numbers = np.arange(max(since, end - _DEPTH, 0), end)
        copied = rows[numbers % _DEPTH]
        # What the loop has begun to write since then has taken the places of the oldest ones.
        whole = numbers > int(self._counts[kind]) - _DEPTH
        return copied[whole], end
