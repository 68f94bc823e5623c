"""Sources of unrolls: what a batch of an actor-critic is drawn from, and drawing ahead in a thread.

Every unroll of every environment goes into each of an agent's sources, and each gives its share of a batch's rows
(`mixture.Mixture`). A source decides which unrolls it keeps and which it gives. `queue.UnrollQueue` gives each once;
`unrolls.StandardReplay` and `elite.EliteReplay` keep many, and are `UnrollReplay`s. A source of a user's own is one
too, with a selector of its own, and gin names it::

    @gin.configurable
    class NewestReplay(UnrollReplay):
        def __init__(self, spec: SourceSpec, capacity: int = 1000) -> None:
            super().__init__(spec, Newest(), capacity=capacity)

    VTraceAgent.sources = {"queue": 0.5, @mine.NewestReplay: 0.5}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.files import prune, read_index, read_snapshot, write_index, write_segment
from async_wrappers.agents.replay.sequences import Assembly
from async_wrappers.agents.schema import leaves, nest

__all__ = ["Encoder", "Prefetch", "SourceFactory", "SourceSpec", "UnrollSource"]

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
    """

    assembly: Assembly
    num_envs: int
    rows: int
    seed: int = 0
    encoder: Encoder | None = None
    updates: int | None = None


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


class Prefetch:
    """A source whose next rows are drawn while the learner computes.

    `draw_ahead` draws in a thread, `draw` returns what that drew. What is put meanwhile waits until the thread is done,
    so the draw sees what was there when it began: batches are those of a source that draws at the same places without a
    thread. A source that is saved saves what was drawn ahead.

    Args:
        source: The source; nobody else may use it.
    """

    def __init__(self, source: UnrollSource) -> None:
        """See the class."""
        self.source, self.replayed = source, source.replayed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._drawing: Future[dict[str, Any]] | None = None
        self._drawn: dict[str, Any] | None = None

    def __len__(self) -> int:
        """See `UnrollSource`."""
        self._join()
        return len(self.source)

    @property
    def filled(self) -> bool:
        """See `UnrollSource`."""
        return self.ready(0)

    @property
    def nbytes(self) -> int:
        """Bytes of the source's arrays."""
        return self.source.nbytes

    def put(self, unrolls: Mapping[str, Rows], begun: bool) -> None:
        """Take in unrolls once the thread is done."""
        self._join()
        self.source.put(unrolls, begun)

    def ready(self, rows: int) -> bool:
        """Return whether rows are drawn, or can be."""
        return self._drawing is not None or self._drawn is not None or self.source.ready(rows)

    def draw(self, rows: int) -> dict[str, Any]:
        """Return what was drawn ahead; draw now if nothing was."""
        self._join()
        batch, self._drawn = self._drawn, None
        return self.source.draw(rows) if batch is None else batch

    def draw_ahead(self, rows: int) -> None:
        """Begin to draw the rows of the next batch."""
        self._drawing = self._thread.submit(self.source.draw, rows)

    def _join(self) -> None:
        if self._drawing is not None:
            drawing, self._drawing = self._drawing, None
            self._drawn = drawing.result()

    def facts(self) -> dict[str, Any]:
        """Return the source's facts."""
        return {**self.source.facts(), "prefetch": True}

    def state_dict(self) -> dict[str, Any]:
        """Return the source's state with what was drawn ahead, None for nothing."""
        self._join()
        return {**self.source.state_dict(), "drawn": None if self._drawn is None else _flat(self._drawn)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `UnrollSource`."""
        self._join()
        self.source.load_state_dict(state)
        self._drawn = None if state["drawn"] is None else _nested(state["drawn"])

    def save(self, directory: Path, number: int) -> list[str]:
        """See `UnrollSource`."""
        self._join()
        drawn = Path(directory) / "drawn"
        drawn.mkdir(parents=True, exist_ok=True)
        segments = [] if self._drawn is None else [write_segment(drawn, number, number + 1, [_flat(self._drawn)])]
        names = [*(segment.name for segment in segments), write_index(drawn, number, [], segments, {})]
        return [*(f"drawn/{name}" for name in names), *self.source.save(directory, number)]

    def load(self, directory: Path, number: int, partial: bool = False) -> int:
        """See `UnrollSource`."""
        self._join()
        drawn = Path(directory) / "drawn"
        _, segments, _ = read_index(drawn, number)
        arrays = read_snapshot(drawn, segments)
        lost = self.source.load(directory, number, partial)
        self._drawn = _nested(arrays) if arrays else None
        return lost

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """See `UnrollSource`."""
        kept = list(keep)
        prune(Path(directory) / "drawn", kept)
        self.source.prune(directory, kept)


def _flat(batch: Mapping[str, Any]) -> dict[str, Rows]:
    return {"/".join(path): np.ascontiguousarray(array) for path, array in leaves(batch)}


def _nested(arrays: Mapping[str, Rows]) -> dict[str, Any]:
    nested: dict[str, Any] = nest([tuple(name.split("/")) for name in arrays], list(arrays.values()))
    return nested
