"""Drawing ahead: the next batch is drawn in a thread while the learner computes, one update early.

All other calls of a replay wait until its thread is done, so that the draw sees the transitions at its beginning:
batches are those of a replay that draws at the same places without a thread. A save includes the drawn batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.replay.log import Saved
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.segments import Segment
from async_wrappers.agents.spaces.schema import Arrays, leaves, nest

Rows = npt.NDArray[Any]

if TYPE_CHECKING:
    from async_wrappers.agents.replay.mixture import UnrollSource

_DRAWN = "drawn/"  # prefix of the names of a batch drawn ahead, in snapshots
_ORDER = re.compile(r":(\d+(?:,\d+)+)$")  # suffix of a name: which axes lie farthest apart in memory, in this order


class _Ahead:
    """Draws a batch in a thread, and keeps it until it is taken."""

    def __init__(self) -> None:
        self.executor: Executor = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._drawing: Future[dict[str, Any]] | None = None
        self._drawn: dict[str, Any] | None = None

    @property
    def begun(self) -> bool:
        """Whether a batch is drawn, or is being drawn."""
        return self._drawing is not None or self._drawn is not None

    def begin(self, draw: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        """Begin to draw."""
        self._drawing = self.executor.submit(draw, *arguments)

    def join(self) -> None:
        """Wait until the thread is done."""
        if self._drawing is not None:
            drawing, self._drawing = self._drawing, None
            self._drawn = drawing.result()

    def take(self) -> dict[str, Any] | None:
        """Return the drawn batch, once; None if there is none."""
        self.join()
        batch, self._drawn = self._drawn, None
        return batch

    # The last bits of a sum depend on the order in which numbers lie in memory, so that order is saved, too.

    def arrays(self) -> Arrays:
        """Return the drawn batch as arrays by their path and the order of their axes; empty if there is none."""
        self.join()
        found: dict[str, Rows] = {}
        for path, array in leaves(self._drawn or {}):
            axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
            order = "" if axes == list(range(array.ndim)) else f":{','.join(map(str, axes))}"
            found["/".join(path) + order] = np.ascontiguousarray(array.transpose(axes))
        return found

    def restore(self, arrays: Arrays) -> None:
        """Load what `arrays` returned."""
        named: dict[tuple[str, ...], Rows] = {}
        for name, array in arrays.items():
            if (order := _ORDER.search(name)) is not None:
                array = array.transpose(np.argsort([int(axis) for axis in order[1].split(",")]))
            named[tuple(_ORDER.sub("", name).split("/"))] = array
        self._drawn = nest(list(named), list(named.values())) if arrays else None


class Prefetch(Saved):
    """A source of a mixture that draws its rows of the next batch ahead: `draw_ahead` draws, `draw` returns the result.

    Args:
        source: The source, for the sole use of this object.

    Attributes:
        ahead: Draws; its `executor` is a thread unless another one is set.
    """

    def __init__(self, source: UnrollSource) -> None:
        self.source = source
        self.replayed: bool = source.replayed
        self.ahead = _Ahead()

    def __len__(self) -> int:
        self.ahead.join()
        return len(self.source)

    @property
    def filled(self) -> bool:
        return self.ready(0)

    @property
    def nbytes(self) -> int:
        """Bytes of the source's arrays."""
        return self.source.nbytes

    def put(self, unrolls: Mapping[str, Rows], begun: bool) -> None:
        """Store unrolls once the thread is done."""
        self.ahead.join()
        self.source.put(unrolls, begun)

    def ready(self, rows: int) -> bool:
        """Return whether rows are drawn, or can be."""
        return self.ahead.begun or self.source.ready(rows)

    def draw(self, rows: int) -> dict[str, Any]:
        """Return the rows drawn ahead; draw now if there are none."""
        batch = self.ahead.take()
        return self.source.draw(rows) if batch is None else batch

    def draw_ahead(self, rows: int) -> None:
        """Begin to draw the rows of the next batch."""
        self.ahead.begin(self.source.draw, rows)

    # The drawn rows are saved in a folder of their own; the source in the folder that it would have without this.

    def facts(self) -> dict[str, Any]:
        """Return the source's facts."""
        return {**self.source.facts(), "prefetch": True}

    def state_dict(self) -> dict[str, Any]:
        """Return the source's state with the rows drawn ahead, None for none."""
        drawn = self.ahead.arrays()
        return {**self.source.state_dict(), "drawn": drawn or None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.ahead.join()
        self.source.load_state_dict(state)
        self.ahead.restore(state["drawn"] or {})

    def save(self, directory: Path, number: int) -> list[str]:
        names = super().save(Path(directory) / "drawn", number)
        return [*(f"drawn/{name}" for name in names), *self.source.save(directory, number)]

    def load(self, directory: Path, number: int) -> None:
        self.ahead.join()
        super().load(Path(directory) / "drawn", number)

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        kept = list(keep)
        super().prune(Path(directory) / "drawn", kept)
        self.source.prune(directory, kept)

    def _counters(self) -> dict[str, Any]:
        return {}

    def _snapshot(self) -> Arrays:
        return self.ahead.arrays()

    def _read(self, directory: Path, number: int, listed: Sequence[Segment], counters: Mapping[str, Any]) -> None:
        self.source.load(directory.parent, number)

    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        self.ahead.restore(snapshot)


class PrefetchedReplay(Replay):
    """A `Replay` that draws a batch ahead: `sample` returns it, and begins to draw the next one.

    The priorities of an update take effect in the batch after the next one: they are one update late.

    Args:
        replay: As in `Replay`: a storage, a selector, a batch size and a seed.

    Attributes:
        ahead: Draws; its `executor` is a thread unless another one is set.
    """

    def __init__(self, *replay: Any, **arguments: Any) -> None:
        self.ahead = _Ahead()
        super().__init__(*replay, **arguments)

    def sample(self, batch_size: int | None = None, importance_exponent: float | None = None) -> dict[str, Any]:
        """Return the batch drawn ahead, and begin to draw the next one; see `Replay.sample`.

        Raises:
            ValueError: An argument is given: a batch that was drawn ahead is that of the constructor's arguments.
        """
        if batch_size is not None or importance_exponent is not None:
            raise ValueError("a replay that draws ahead takes no arguments: choose prefetch=False for other batches")
        batch = self.ahead.take()
        batch = super().sample() if batch is None else batch
        self.ahead.begin(super().sample)
        return batch

    # Methods that change the storage or the selector, or read data that a draw changes.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        self.ahead.join()
        super().observe(transition, env_id)

    def extend(self, block: Mapping[str, Any]) -> None:
        self.ahead.join()
        super().extend(block)

    def cut(self, observation: Any, env_id: int = 0) -> None:
        self.ahead.join()
        super().cut(observation, env_id)

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        self.ahead.join()
        super().set_priorities(index, priority)

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        self.ahead.join()
        super().end_running(env_ids)

    def clear(self) -> None:
        """Forget the drawn batch, too."""
        self.ahead.take()
        super().clear()

    def _counters(self) -> dict[str, Any]:
        self.ahead.join()
        return super()._counters()

    def _snapshot(self) -> Arrays:
        drawn = {f"{_DRAWN}{name}": array for name, array in self.ahead.arrays().items()}
        return {**super()._snapshot(), **drawn}

    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        drawn = {name.removeprefix(_DRAWN): array for name, array in snapshot.items() if name.startswith(_DRAWN)}
        super()._restore(counters, {name: array for name, array in snapshot.items() if not name.startswith(_DRAWN)})
        self.ahead.restore(drawn)


# The source of a learner's batches.


class Source(Protocol):
    """The source of a learner's batches: a `Replay`, a mixture of several, or a student's rehearsal."""

    def sample(self) -> Mapping[str, Any]:
        """Return a batch; see `Replay.sample`."""

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int | None = None) -> Mapping[str, Any]:
        """Return given transitions; see `Replay.transitions`."""

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Set the priorities of a weighted batch's transitions; see `Replay.set_priorities`."""


class SampledBatch(NamedTuple):
    """A batch as the replay gave it.

    Attributes:
        number: How many were drawn before it.
        arrays: What `Replay.sample` returned.
        first_steps: The first steps of the same transitions, where their loss is added.
        sent: The tensors of the arrays, where they were sent to the device as soon as they were drawn.
    """

    number: int
    arrays: Mapping[str, npt.NDArray[Any]]
    first_steps: Mapping[str, npt.NDArray[Any]] | None
    sent: Mapping[str, Any] | None = None
