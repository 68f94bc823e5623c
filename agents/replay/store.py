"""The interface of a learner's store, and of the source of its batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Source(Protocol):
    """The source of a learner's batches: a `Replay`, or a mixture of several."""

    def sample(self) -> Mapping[str, Any]:
        """Return a batch; see `Replay.sample`."""

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int | None = None) -> Mapping[str, Any]:
        """Return given transitions; see `Replay.transitions`."""

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Set the priorities of a weighted batch's transitions; see `Replay.set_priorities`."""


class Store(Source, Protocol):
    """The store of a learner's transitions, and the source of its batches unless another one is given.

    A `Replay`, or a queue (`UnrollQueue`), whose methods are those of `Replay` of the same names.
    """

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""

    @property
    def drawable(self) -> bool:
        """Whether a batch can be drawn."""

    def __len__(self) -> int:
        """See `Replay`."""

    def observe(self, transition: Mapping[str, Any]) -> None:
        """See `Replay`."""

    def extend(self, block: Mapping[str, Any]) -> None:
        """See `Replay`."""

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """See `Replay`."""

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """See `Replay`."""

    def facts(self) -> dict[str, Any]:
        """See `Replay`."""

    def state_dict(self) -> dict[str, Any]:
        """See `Replay`."""

    def save(self, directory: Path, number: int) -> list[str]:
        """See `Replay`."""

    def load(self, directory: Path, number: int, partial: bool = False) -> int:
        """See `Replay`."""

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """See `Replay`."""


class SampledBatch(NamedTuple):
    """A batch as the replay gave it.

    Attributes:
        number: How many were drawn before it.
        arrays: What `Replay.sample` returned.
        first_steps: The first steps of the same transitions, where their loss is added.
    """

    number: int
    arrays: Mapping[str, npt.NDArray[Any]]
    first_steps: Mapping[str, npt.NDArray[Any]] | None
