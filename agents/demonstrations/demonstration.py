"""A demonstration: an episode that a person, a script or an agent has played, frame by frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Demonstration"]


@dataclass(frozen=True)
class Demonstration:
    """One episode of T frames, without delay.

    Attributes:
        observations: `[T + 1, *shape]`; the last one follows the last frame.
        actions: `[T, *shape]`, the actions that the environment received.
        rewards: float64 `[T]`.
        terminated: Whether the environment ended the episode; else it is truncated, and its end may be bootstrapped on.
        seed: Seed of the reset; None if it is not known.
    """

    observations: npt.NDArray[Any]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float64]
    terminated: bool
    seed: int | None = None

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.rewards)
