"""An episode that somebody played, frame by frame, and where such episodes come from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Demonstration", "read_demonstrations"]

_HDF5 = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class Demonstration:
    """One episode of T frames, without delay.

    Attributes:
        observations: `[T + 1, *shape]`; the last one is what the last frame led to.
        actions: `[T, *shape]`, what the environment received on each frame.
        rewards: float64 `[T]`.
        terminated: Whether the environment ended; else the episode was cut, and its end may be bootstrapped on.
        seed: Of the reset, where it is known.
    """

    observations: npt.NDArray[Any]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float64]
    terminated: bool
    seed: int | None = None

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.rewards)


def read_demonstrations(source: str) -> Iterator[Demonstration]:
    """Yield the episodes of a source, one after the other.

    Args:
        source: A file (a pickle of the published layout: see `agents.demonstrations.pickled`), or a directory or the
            id of a Minari dataset.

    Raises:
        ValueError: There is no such source, or it holds something else.
        gymnasium.error.DependencyNotInstalled: It is a Minari dataset, and Minari is missing.
    """
    if os.path.isfile(source):
        with open(source, "rb") as file:
            if file.read(len(_HDF5)) == _HDF5:
                raise ValueError(
                    f"{source} is an HDF5 file, not a pickle of demonstrations: name the directory of a Minari "
                    "dataset, in which such a file lies beside its metadata.json"
                )
        from agents.demonstrations.pickled import read_pickle

        yield from read_pickle(Path(source))
    else:
        from agents.demonstrations.dataset import read_dataset

        yield from read_dataset(source)
