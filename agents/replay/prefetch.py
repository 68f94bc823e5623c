"""Drawing ahead: the next batch is drawn in a thread while the learner computes, one update early.

What else is asked of a replay waits until its thread is done, so that the draw sees what was there when it began:
batches are those of a replay that draws at the same places without a thread. What is saved includes what was drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.files import Arrays, prune, read_index, read_snapshot, write_index, write_segment
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.sources import UnrollSource
from async_wrappers.agents.schema import leaves, nest

__all__ = ["Prefetch", "PrefetchedReplay"]

Rows = npt.NDArray[Any]

_DRAWN = "drawn/"  # before the names of what was drawn ahead, in snapshots


class Prefetch:
    """A source of a mixture that draws its rows of the next batch ahead: `draw_ahead` draws, `draw` returns that.

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


class PrefetchedReplay(Replay):
    """A `Replay` that draws a batch ahead: `sample` returns what was drawn, and begins to draw the next one.

    The priorities that an update finds decide on the batch after the next one: they are one update late.

    Args:
        replay: As in `Replay`: a storage, a selector, a batch size and a seed.
    """

    def __init__(self, *replay: Any, **arguments: Any) -> None:
        """See the class."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._drawing: Future[dict[str, Any]] | None = None
        self._drawn: dict[str, Any] | None = None
        super().__init__(*replay, **arguments)

    def _join(self) -> None:
        if self._drawing is not None:
            drawing, self._drawing = self._drawing, None
            self._drawn = drawing.result()

    def sample(self, batch_size: int | None = None, importance_exponent: float | None = None) -> dict[str, Any]:
        """Return what was drawn ahead, and begin to draw the next batch; see `Replay.sample`.

        Raises:
            ValueError: An argument is given: a batch that was drawn ahead is that of the constructor's arguments.
        """
        if batch_size is not None or importance_exponent is not None:
            raise ValueError("a replay that draws ahead takes no arguments: choose prefetch=False for other batches")
        self._join()
        batch, self._drawn = self._drawn, None
        batch = super().sample() if batch is None else batch
        self._drawing = self._thread.submit(super().sample)
        return batch

    # What changes the storage or the selector, or reads what a draw changes.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        """See `Replay`."""
        self._join()
        super().observe(transition, env_id)

    def extend(self, block: Mapping[str, Any]) -> None:
        """See `Replay`."""
        self._join()
        super().extend(block)

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """See `Replay`."""
        self._join()
        super().cut(observation, env_id)

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """See `Replay`."""
        self._join()
        super().set_priorities(index, priority)

    def end_running(self) -> None:
        """See `Replay`."""
        self._join()
        super().end_running()

    def clear(self) -> None:
        """Forget what was drawn, too."""
        self._join()
        self._drawn = None
        super().clear()

    def _counters(self) -> dict[str, Any]:
        self._join()
        return super()._counters()

    def _snapshot(self) -> Arrays:
        self._join()
        drawn = {} if self._drawn is None else _flat(self._drawn)
        return {**super()._snapshot(), **{f"{_DRAWN}{name}": array for name, array in drawn.items()}}

    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        drawn = {name.removeprefix(_DRAWN): array for name, array in snapshot.items() if name.startswith(_DRAWN)}
        super()._restore(counters, {name: array for name, array in snapshot.items() if not name.startswith(_DRAWN)})
        self._drawn = _nested(drawn) if drawn else None


def _flat(batch: Mapping[str, Any]) -> dict[str, Rows]:
    return {"/".join(path): np.ascontiguousarray(array) for path, array in leaves(batch)}


def _nested(arrays: Mapping[str, Rows]) -> dict[str, Any]:
    nested: dict[str, Any] = nest([tuple(name.split("/")) for name in arrays], list(arrays.values()))
    return nested
