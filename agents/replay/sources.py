"""Sources of unrolls: what a batch of an actor-critic is drawn from.

Every unroll of every environment goes into each of an agent's sources, and each gives its share of a batch's rows
(`mixture.Mixture`). A source decides which unrolls it keeps and which it gives. `queue.UnrollQueue` gives each once;
`unrolls.StandardReplay` and `elite.EliteReplay` keep many: each is an `UnrollReplay`. A source of a user's own is one
too, with a selector of its own, and gin names it::

    @gin.configurable
    class NewestReplay(UnrollReplay):
        def __init__(self, spec: SourceSpec, capacity: int = 1000) -> None:
            super().__init__(spec, Newest(), capacity=capacity)

    VTraceAgent.sources = [("queue", 0.5), (@mine.NewestReplay, 0.5)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.replay.sequences import Assembly

__all__ = ["Encoder", "SourceFactory", "SourceSpec", "UnrollSource"]

Rows = npt.NDArray[Any]


class Encoder(Protocol):
    """Computes the features of observations, with a copy of the learner's network that nobody else writes to."""

    @property
    def size(self) -> int:
        """Features of an observation, F."""

    def refresh(self, newest: Callable[[], Any]) -> None:
        """Take over the learner's weights, and the environments' present states, as they are now.

        Args:
            newest: Returns these states, as `Assembly.newest` does.
        """

    def expire(self) -> None:
        """Take over the learner's weights when features are next asked for."""

    def unrolls(self, batch: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return the features `[B, T, F]` of a batch of unrolls (`sequences.py`), without row T."""

    def present(self) -> npt.NDArray[np.float32]:
        """Return the features `[N, F]` of the environments' states at the last `refresh`."""


@dataclass(frozen=True)
class SourceSpec:
    """What a source is made for.

    Attributes:
        assembly: What an unroll is made of, and the rows that the environments are at.
        num_envs: Environments, N.
        rows: Unrolls that a batch takes of it at most.
        seed: Of its draws.
        encoder: Computes features; None where the agent has none to offer.
        updates: Updates of the run; None where that is not known.
        in_flight: Decisions of an environment under way at most when one more starts; None where there is no limit.
    """

    assembly: Assembly
    num_envs: int
    rows: int
    seed: int = 0
    encoder: Encoder | None = None
    updates: int | None = None
    in_flight: int | None = 0


class UnrollSource(Protocol):
    """What `Mixture` asks of a source.

    Attributes:
        replayed: Whether it may give an unroll more than once.
    """

    replayed: bool

    def __len__(self) -> int:
        """Return how many unrolls can be drawn."""

    @property
    def filled(self) -> bool:
        """Whether it holds so much that learning can begin."""

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the source is full."""

    def put(self, unrolls: Mapping[str, Rows], begun: bool) -> None:
        """Take in unrolls that have become whole, in copies.

        Args:
            unrolls: Columns `[M, ...]` by name, as `Assembly.columns` says.
            begun: Whether learning has begun; until all sources are filled it has not.
        """

    def ready(self, rows: int) -> bool:
        """Return whether so many unrolls can be drawn."""

    def draw(self, rows: int) -> dict[str, Any]:
        """Return a batch of so many unrolls, `sequences.py`; what it has beside that is left out of mixtures."""

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data; the "capacity", in unrolls, is one of them."""

    def state_dict(self) -> dict[str, Any]:
        """Return all that `load_state_dict` needs to go on bit for bit, in copies."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called; the facts are known to agree."""

    def save(self, directory: Path, number: int) -> list[str]:
        """Write what `load` needs into a directory of its own; see `Replay.save`."""

    def load(self, directory: Path, number: int, partial: bool = False) -> int:
        """Go on as at `save`; see `Replay.load`."""

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """Delete the files that no save in `keep` needs; see `Replay.prune`."""


SourceFactory = Callable[[SourceSpec], UnrollSource]
