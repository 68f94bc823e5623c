"""Sources of unrolls, from which a batch of an actor-critic is drawn, and the replays among them.

Every unroll of every environment goes into each of an agent's sources, and each gives its share of a batch's rows
(`mixture.Mixture`). A source decides which unrolls it keeps and which it gives. `mixture.UnrollQueue` gives each once;
`StandardReplay` and `elite.EliteReplay` keep many: each is an `UnrollReplay`, a ring of unrolls with a selector. A
source of a user's own is one too, with a selector of its own, and gin names it::

    @gin.configurable
    class NewestReplay(UnrollReplay):
        def __init__(self, spec: SourceSpec, capacity: int = 1000) -> None:
            super().__init__(spec, Newest(), capacity=capacity)

    VTraceAgent.sources = [("queue", 0.5), (@mine.NewestReplay, 0.5)]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.hyperparameters import SHARE, choice, flag, made_for, must, number, set_all, settings, whole
from async_wrappers.agents.replay.log import PlacedLog, blank_columns
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.segments import Segment
from async_wrappers.agents.replay.selectors import Distinct, Positions, Selector, Uniform
from async_wrappers.agents.replay.sequences import SEQUENCES_OF_A_PIECE, Assembly
from async_wrappers.agents.spaces.schema import Arrays, Column

Rows = npt.NDArray[Any]

if TYPE_CHECKING:
    from async_wrappers.agents.replay.elite import NetworkEncoder


@dataclass(frozen=True)
class SourceSpec:
    """The environments and the batch that a source serves.

    Attributes:
        assembly: The columns of an unroll, and the environments' present rows.
        num_envs: Environments, N.
        rows: Largest number of unrolls that a batch takes of it.
        seed: Of its draws.
        encoder: Computes features; None where the agent has none.
        updates: Updates of the run; None where that is not known.
        in_flight: Largest number of an environment's decisions in flight when another one starts; None without a limit.
        behind: Rows by which the source may have given less than its share of all batches, at most.
        learners: How many synchronous learners there are, each with environments and sources of its own.
    """

    assembly: Assembly
    num_envs: int
    rows: int
    seed: int = 0
    encoder: NetworkEncoder | None = None
    updates: int | None = None
    in_flight: int | None = 0
    behind: int = 0
    learners: int = 1


class UnrollRing(PlacedLog):
    """Columns of `capacity` unrolls, for a `Replay`: each takes the oldest one's place, or a given one.

    To the files it is a log, as a `Reservoir` is: an entry is an unroll and the place that it went to.

    Args:
        assembly: The columns of an unroll.
        capacity: Unrolls.
        compression: ``"lz4"`` keeps observations packed; None keeps them as they are.
        further: Columns beside those of the assembly.

    Attributes:
        schema: The fields of a row.
        capacity: As given.
        head: Unrolls ever written.
        number: Of the unroll at each place, counted from 0 for ever; -1 where there is none.
    """

    piece = SEQUENCES_OF_A_PIECE

    def __init__(
        self,
        assembly: Assembly,
        capacity: int,
        compression: Literal["lz4"] | None = None,
        further: Mapping[str, Column] | None = None,
    ) -> None:
        self._assembly, self.schema, self.capacity = assembly, assembly.schema, capacity
        self._further = dict(further or {})
        packed = assembly.observation_names if compression else ()
        self.number = np.full(capacity, -1)
        columns = blank_columns(capacity, {**assembly.columns, **self._further}, packed)
        self._columns = {"number": self.number, **columns}
        self.head = 0

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._assembly.add_count

    @property
    def count(self) -> int:
        """Unrolls that can be drawn."""
        return int(np.count_nonzero(self.number >= 0))

    @property
    def oldest(self) -> int:
        """The number of the oldest unroll."""
        kept = self.number[self.number >= 0]
        return int(kept.min()) if kept.size else self.head

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the ring is full; of packed observations, those that are stored now."""
        return super().nbytes - self.number.nbytes

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without those of the assembly."""
        shapes = {name: list(column.shape) for name, column in self._further.items()}
        return {"kind": "ring", "capacity": self.capacity, "further": shapes}

    # Writing.

    def put_whole(self, unroll: Mapping[str, npt.NDArray[Any]], place: int | None = None) -> None:
        """Write an unroll, its columns by name, at a place, by default the oldest one's."""
        place = self.head % self.capacity if place is None else place
        if self.number[place] >= 0:
            self.selector.became_invalid(place)
        for name, column in self._columns.items():
            column[place] = self.head if name == "number" else unroll[name]
        self.head += 1
        self.selector.became_valid(place)

    def clear(self) -> None:
        """Forget every unroll."""
        self.head = 0
        self.number.fill(-1)

    # Reading.

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Return the places of unrolls by their numbers `[B]`, and whether each is still there."""
        live = self.live_positions()
        if not live.size:
            return np.zeros(len(slots), np.int64), np.zeros(len(slots), np.bool_)
        place = np.searchsorted(self.number[live], slots).clip(max=len(live) - 1)
        return live[place], self.number[live[place]] == slots

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the numbers of all unrolls that are there, ascending."""
        return self.number[self.live_positions()]

    def assemble(self, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Return the unrolls at places `[B]`, in the layout of `sequences.py`."""
        return {**self._assembly.batch_at(self._columns, positions), "index": self.number[positions]}

    def further(self, name: str, positions: Positions) -> npt.NDArray[Any]:
        """Return the rows at places `[B]` of a column beside the assembly's."""
        values: npt.NDArray[Any] = self._columns[name][positions]
        return values

    # Saving.

    def snapshot(self) -> Arrays:
        """Return the number of the unroll at each place."""
        return {"held": self.number}

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Load the counters, and forget the unrolls that were gone: 0.1.0 went on without those of damaged files."""
        self.move_to(counters)
        self.number[self.number != snapshot["held"]] = -1

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments that stay in use; none if most of their unrolls are dead, and all must be rewritten."""
        kept = [each for each in listed if ((self.number >= each.first) & (self.number < each.stop)).any()]
        written = sum(segment.stop - segment.first for segment in kept)
        return kept if written <= 2 * self.capacity else []


@settings
class UnrollReplay(Replay):
    """A replay as a source of a mixture: a ring of unrolls, and a selector. Subclass it for a source of your own.

    A `Mixture` calls `put`, `ready`, `draw`, `filled`, `nbytes`, `replayed`, `len` and what saves: `facts`,
    `state_dict`, `load_state_dict`, `save`, `load` and `prune`.

    Args:
        spec: The environments and the batch that it serves.
        selector: Chooses places of the ring; None for that of `settle`.
        given: The settings below; a subclass may declare further ones.

    Raises:
        TypeError: A setting that the class does not declare.
        ValueError: A setting is out of its range.
    """

    replayed = True
    is_part = True  # its error messages name the class, too
    gin_name = "UnrollReplay"
    _storage: UnrollRing  # the mixture passes unrolls by `put`

    capacity: int = whole(
        1000,
        "Unrolls kept, at least those of a batch. Several learners share them equally.",
        1,
        "unroll",
    )
    training_fill_in_factor: float = number(
        0.2, "Share of the capacity that is filled before learning begins, in [0, 1].", SHARE
    )
    replay_compression: Literal["lz4"] | None = choice(
        None,
        '``"lz4"`` keeps observations of 256 bytes and more packed; None keeps them as they are.',
        "lz4",
        none=True,
    )

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Collect the settings of a subclass."""
        super().__init_subclass__(**arguments)
        cls.gin_name = cls.__name__
        settings(cls)

    def __init__(self, spec: SourceSpec, selector: Selector | None = None, **given: Any) -> None:
        set_all(self, given)
        must(
            self.capacity >= spec.rows * spec.learners,
            f"{self.gin_name}.capacity must be >= {spec.rows * spec.learners} unrolls, those that a batch takes of it, "
            f"got {self.capacity}",
        )
        self.capacity //= spec.learners
        further: Mapping[str, Column] = {}
        if selector is None:
            selector, further = self.settle(spec)
        ring = UnrollRing(spec.assembly, self.capacity, self.replay_compression, further)
        super().__init__(ring, selector, batch_size=spec.rows, seed=spec.seed)
        # Rounded before it is rounded up, since 0.07 * 100 is a little more than 7.
        self._least = max(spec.rows, math.ceil(round(self.training_fill_in_factor * self.capacity, 6)))

    def settle(self, spec: SourceSpec) -> tuple[Selector, Mapping[str, Column]]:
        """Return the ring's selector, and the columns beside an unroll's that `put` writes."""
        return Uniform(), {}

    @property
    def filled(self) -> bool:
        """Whether it holds enough for learning to begin."""
        return len(self) >= self._least

    def put(self, unrolls: Mapping[str, npt.NDArray[Any]], begun: bool) -> None:
        """Store copies of completed unrolls, each in the place of the oldest one.

        Args:
            unrolls: Columns `[M, ...]` by name, as `Assembly.columns` says.
            begun: Whether learning has begun; until all sources are filled it has not.
        """
        for row in range(len(unrolls["mask"])):
            self._storage.put_whole({name: column[row] for name, column in unrolls.items()})

    def ready(self, rows: int) -> bool:
        """Return whether this number of unrolls can be drawn, and learning can begin."""
        return len(self) >= max(rows, self._least)

    def draw(self, rows: int) -> dict[str, Any]:
        """Return a batch of this number of unrolls as the selector chooses them (`sequences.py`).

        A mixture leaves out its further columns.
        """
        return self.sample(rows)

    def facts(self) -> dict[str, Any]:
        """Return the constructors' arguments as plain data, without the seed; "capacity" is in unrolls."""
        return {**super().facts(), "source": type(self).__name__, "least": self._least}


@made_for("spec", "Its agent and unrolls; the agent gives it.")
class StandardReplay(UnrollReplay):
    """The newest unrolls, drawn uniformly; ``"standard"`` among an agent's sources.

    Raises:
        ValueError: An argument is out of its range.
    """

    with_replacement: bool = flag(True, "Whether an unroll may come twice in a batch.")

    def settle(self, spec: SourceSpec) -> tuple[Selector, Mapping[str, Column]]:
        return (Uniform() if self.with_replacement else Distinct()), {}
