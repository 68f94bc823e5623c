"""The three things that a frame can receive: a new decision's action, a going chunk's, or the default action.

Reports, recordings, snapshots and pictures name and count them by these words. Frames of pauses are none of the three,
so shares are of the frames without them, and sum to 1.
"""

from __future__ import annotations

from collections.abc import Mapping

NAMES = {"fresh": "new decision", "chunk": "going chunk", "default": "default action"}
"""By the key of a count: the words for it. Without chunks there is no count of the second."""


def shares_of(frames: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each of the three among counts of frames; all are 0 where there is no frame."""
    counts = {name: frames[name] for name in NAMES if name in frames}
    whole = max(sum(counts.values()), 1)
    return {name: count / whole for name, count in counts.items()}


def told(frames: Mapping[str, int]) -> str:
    """Return the shares in words."""
    return ", ".join(f"{share:.1%} {NAMES[name]}" for name, share in shares_of(frames).items())
