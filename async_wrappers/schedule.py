"""The decision schedule: which observation a decision reads, and on which frame its action lands.

A *frame* is one ``step`` of the wrapped environment. A *decision* is one run of the policy: it reads the observation at
the beginning of frame ``start`` and its action is applied on frame ``effect >= start``. A schedule is the stream of
decisions that take effect; starts and effects both strictly increase. It knows no environment, clock or policy.

Three rules give a schedule its meaning, and every consumer keeps them:

1. On frame ``e_j`` the environment receives action j; on every other frame it receives the default action.
2. Decision j is computed from ``o_{s_j}``, the observation at the start of frame ``s_j``, and from nothing newer.
3. The reward of decision j is the sum over frames ``e_j .. e_{j+1} - 1``; rewards before ``e_0`` go to decision 0.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Protocol

__all__ = ["PlainSchedule", "Schedule"]


class Schedule(Protocol):
    """Anything that yields the decisions of an episode."""

    def decisions(self) -> Iterator[tuple[int, int]]:
        """Return an endless stream of ``(start, effect)``: frames of the episode, both strictly increasing."""
        ...


class PlainSchedule:
    """Constant delay and spacing: ``s_j = j (noops + 1)``, ``e_j = s_j + delay``.

    ======================================================== ======== ============================
    interaction                                              delay    noops
    ======================================================== ======== ============================
    turn-based (ordinary Gymnasium)                          0        0
    sequential: observe, think ``d`` frames, act, observe    ``d``    ``d``
    one worker that never rests                              ``d``    ``d - 1``
    N staggered workers                                      ``d``    ``max(1, ceil(d / N)) - 1``
    an action on every frame                                 ``d``    0
    ======================================================== ======== ============================

    Args:
        delay: Age of the observation behind an action, in frames.
        noops: Frames between two actions, filled by the default action.

    Raises:
        ValueError: An argument is negative or not a whole number of frames.
    """

    def __init__(self, delay: int = 0, noops: int = 0) -> None:
        """See the class."""
        self.delay = whole_frames("delay", delay)
        self.noops = whole_frames("noops", noops)

    def decisions(self) -> Iterator[tuple[int, int]]:
        """Yield ``(start, effect)`` of one episode's decisions, for ever."""
        start, delay, interval = 0, self.delay, self.noops + 1
        while True:
            yield start, start + delay
            start += interval

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"PlainSchedule(delay={self.delay}, noops={self.noops})"


def whole_frames(name: str, value: Any) -> int:
    """Return `value` as an int, or raise a ValueError that names the argument.

    Args:
        name: The argument's name, for the message.
        value: A number of frames.

    Raises:
        ValueError: `value` is negative, fractional or not a number.
    """
    try:
        frames = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number of frames (an int), got {value!r}") from None
    if frames < 0:
        raise ValueError(f"{name} must be >= 0 frames, got {frames}")
    return frames
