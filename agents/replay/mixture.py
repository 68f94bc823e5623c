"""A queue of unrolls, and a mixture of sources: all unrolls go into each, and each gives its share of a batch.

    transitions -> assembly -> unrolls -> every source
                                          queue, 0.5     rows 0 .. 15  -> batch of 32
                                          standard, 0.5  rows 16 .. 31

A batch is that of `sequences.py` with two further columns: "source" int64 `[B]`, the number of the row's source in the
order in which they were given, and "replayed" float32 `[B]`, 0 for rows that are learnt from once, of a queue, and 1
for rows of a replay.

An unroll is put together once and goes into each source. `Shares` computes the number of rows that a batch takes of
each source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from async_wrappers.agents.replay.elite import EliteReplay, NetworkEncoder
from async_wrappers.agents.replay.log import Saved, blank_columns, row_bytes
from async_wrappers.agents.replay.memory import check_memory
from async_wrappers.agents.replay.prefetch import Prefetch
from async_wrappers.agents.replay.replay_settings import TOLERANCE, WHEN_FULL, checked_sources
from async_wrappers.agents.replay.segments import Segment
from async_wrappers.agents.replay.sequences import Assembly
from async_wrappers.agents.replay.unrolls import SourceSpec, StandardReplay, UnrollReplay
from async_wrappers.agents.spaces.schema import STATE, Arrays, Column, each_array
from async_wrappers.array_libraries import alike, joined_arrays, on_host

# How many unrolls can wait
# =========================
#
# With n decisions of an environment in flight, n transitions become known at once when its episode ends, beside that of
# the last decision and a final row: K + 1 rows with K = n + 1. Between 1 and T rows of an unfinished unroll are there
# already (the last row completes the one before it), so at most (T + K) // T unrolls of an environment are completed
# before the learner's turn.
#
# It may then make an update for each decision. Where one takes as many unrolls as an environment has completed, the
# queue never holds more than rows - 1 and those of one turn. Where it takes fewer, it needs several turns to catch up.
# In each of them a decision adds 2 rows at most, its own and a final one, and an update takes as many at least. So only
# the decisions in flight come on top: rows - 1 and N (T + K) / T unrolls.
#
# The share of a queue need not give whole rows. An update then takes its share on average, and the queue may be behind
# it by some rows (`Shares`), for which further room is kept.
#
# A circular buffer of N batches from which each is learnt K times keeps N batches, not one. An update takes the K-th
# part of a batch on average, which must be 2 rows at least. While the N (K - 1) updates of its further passes are made,
# as many decisions come, of 2 rows at most.


def whole_at_once(length: int, in_flight: int) -> int:
    """Return the largest number of an environment's unrolls that are completed before the learner's turn.

    Args:
        length: Rows of an unroll, T.
        in_flight: Largest number of decisions in flight when another one starts.
    """
    return (length + in_flight + 1) // length


def most_waiting(
    rows: int, num_envs: int, length: int, in_flight: int, batches: int = 1, replay_coefficient: int = 1
) -> int:
    """Return the largest number of waiting unrolls where acting waits for the learner.

    Args:
        rows: Unrolls that an update takes.
        num_envs: Environments, N.
        length: Rows of an unroll, T.
        in_flight: Largest number of an environment's decisions in flight when another one starts.
        batches: Of the circular buffer.
        replay_coefficient: How often each is learnt from.
    """
    of_each = whole_at_once(length, in_flight)
    if of_each * replay_coefficient > rows:
        of_each = 1 - (-(in_flight + 1) // length)
    further = replay_coefficient - 1
    kept = batches * rows + -(-2 * batches * further // length) if further else rows
    return kept + num_envs * max(2, of_each)


class UnrollQueue(Saved):
    """Unrolls, first in, first out: each step is learnt from once (Espeholt et al. 2018, IMPALA, section 3).

    A batch takes the oldest unrolls away.

    With a replay coefficient K above 1 it is a circular buffer (Luo et al. 2020, IMPACT, section 3.2). Batches are
    drawn in turn from N places. A place without a batch takes the oldest unrolls that no place has, and they leave
    after K draws. If ``"drop_oldest"`` pushes one of them out, its whole batch leaves, so that all other unrolls are
    learnt from K times.

    Args:
        spec: The environments and the batch that it serves.
        capacity: Unrolls that can wait, at least those of a batch; None for `most_waiting`, the largest number before
            the learner's turn. That has no limit if ``spec.in_flight`` is None, or of several learners: where acting
            waits, the queue then begins with the room for the decisions in flight that are known, and grows.
        when_full: What becomes of an unroll that finds the queue full: ``"drop_oldest"``, ``"drop_newest"`` (the unroll
            itself), ``"alternate"`` (one or the other, with a chance of 0.5 each); or ``"wait"``: acting must wait for
            the learner, and it is an error if it does not. Until learning begins, ``"wait"`` drops the oldest.
        batches: N, the places of a circular buffer.
        replay_coefficient: K, how often each batch is drawn.

    Attributes:
        replayed: Whether K is above 1.
        dropped: Unrolls that were dropped.

    Raises:
        ValueError: An argument is out of its range, or memory does not hold so many unrolls.
    """

    filled = True
    _arrays: ClassVar[str] = "waiting"

    def __init__(
        self,
        spec: SourceSpec,
        *,
        capacity: int | None = None,
        when_full: Literal["wait", "drop_oldest", "drop_newest", "alternate"] = "wait",
        batches: int = 1,
        replay_coefficient: int = 1,
    ) -> None:
        self.replayed = replay_coefficient > 1
        self._batches, self._replay_coefficient = batches if self.replayed else 1, replay_coefficient
        # Of each place, the unroll after its batch and the draws so far. If all unrolls before have left, it is empty.
        self._places, self._place = [(0, 0)] * self._batches, 0  # the place that is next
        self._by_itself, self._grows = capacity is None, False
        # Sequences of rounds end before they are full, and more of them become whole at an episode's end.
        rounds = capacity is None and when_full == "wait" and spec.assembly.of_rounds
        if capacity is None:
            ring = self._batches, replay_coefficient
            capacity = most_waiting(spec.rows, spec.num_envs, spec.assembly.length, spec.in_flight or 0, *ring)
            # A learner on hosts that waits for others may be given the rest of a block meanwhile.
            self._grows = (spec.in_flight is None or spec.learners > 1) and when_full == "wait"
        self._makes_room = self._grows or rounds
        kept = self._batches * spec.rows
        if capacity < kept:
            whose = "a batch" if self._batches == 1 else f"{batches} batches"
            raise ValueError(f"capacity must be >= {kept} unrolls, those of {whose}, got {capacity}")
        if when_full not in WHEN_FULL:
            raise ValueError(f"when_full must be one of {', '.join(map(repr, WHEN_FULL))}, got {when_full!r}")
        self._assembly, self._in_flight = spec.assembly, spec.in_flight
        self._capacity, self._when_full = capacity, when_full
        self._least = capacity  # before it has grown
        of_each = whole_at_once(spec.assembly.length, spec.in_flight or 0)
        few = of_each * replay_coefficient <= spec.rows
        self._at_once = spec.num_envs * of_each if few else capacity - kept
        self._num_envs, self._rows = spec.num_envs, spec.rows
        self._open = spec.assembly.length + (spec.in_flight or 0) + 1  # rows that a decision leaves, at most
        if self._by_itself:
            check_memory(
                capacity * row_bytes(spec.assembly.columns),
                f"a queue of {capacity:,} unrolls, as many as become whole at once where {spec.in_flight or 0:,} "
                "decisions of each environment are on their way",
                "give a shorter delay, fewer environments or shorter unrolls",
            )
            # Room for rows that are behind, once learning has begun; `_least` decides which are dropped before.
            self._capacity += spec.behind if when_full == "wait" else 0
        self._columns = self._empty(self._capacity)
        # Unrolls are numbered from 0 for ever; number u lies at u mod capacity.
        self._head = self._tail = 0
        self.dropped = 0
        self._rng = np.random.Generator(np.random.PCG64(spec.seed))

    def __len__(self) -> int:
        """Return how many unrolls wait."""
        return self._head - self._tail

    @property
    def crowded(self) -> bool:
        """Whether unrolls may not fit although an update is made with each decision from now on.

        Only the last draw from a place of a circular buffer makes room, and a round of decisions may end amid a pass.
        So as many rounds are looked at as all passes have updates: after them rounds and passes meet as they do now.
        """
        all_passes = self._replay_coefficient * self._batches  # updates
        turns = [self._next_of(self._place + later)[1] for later in range(self._batches)]

        def room_made(updates: int) -> int:
            draws = (drawn - (later - updates) // self._batches for later, drawn in enumerate(turns))
            return self._rows * sum(each // self._replay_coefficient for each in draws)

        for each in range(1, all_passes + 2):
            room = self._least + room_made((each - 1) * self._num_envs)
            if len(self) + self._whole_within(each) > room:
                return True
        return False

    def _whole_within(self, rounds: int) -> int:
        """Return how many unrolls become whole at most in a number of rounds, in which each environment decides once.

        A decision closes two rows at most: its own, and that of the episode's end.
        """
        further = (self._open + 2 * (rounds - 1)) // self._assembly.length - self._open // self._assembly.length
        return self._at_once + self._num_envs * further

    def in_words(self) -> str | None:
        """Return the capacity in words; None where unrolls may be dropped, or the user has set the capacity."""
        if not self._by_itself or self._when_full != "wait":
            return None
        more = ", and more where latencies ask for it" if self._grows else ""
        return f"{self._capacity:,} unrolls ({self.nbytes / 1e6:,.3g} MB){more}"

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the queue has been full."""
        return sum(array.nbytes for array in self._columns.values())

    def put(self, unrolls: Mapping[str, npt.NDArray[Any]], begun: bool) -> None:
        """Store unrolls, or drop those that do not fit; see `UnrollReplay.put`.

        Raises:
            RuntimeError: The queue is full without an update, although acting should wait for the learner.
        """
        for name, column in self._columns.items():
            if type(column) is not type(unrolls[name]):
                self._columns[name] = alike(column, unrolls[name])
        for row in range(len(unrolls["mask"])):
            full = len(self) >= (self._capacity if begun or self._grows else self._least)
            if full and self._makes_room and begun:
                self._grow()
            elif full:
                if self._when_full == "wait" and begun:
                    raise RuntimeError(
                        f"the queue holds its capacity of {self._capacity} unrolls, and more have become whole before "
                        "the learner's next update: under a delay make the agent by TurnBasedAgent.playing (or set "
                        f"spec.in_flight to the decisions in flight, got {self._in_flight}), let it update before each "
                        "decision while it is ready, or choose when_full='drop_oldest', 'drop_newest' or 'alternate' "
                        "where it is to be the slower one"
                    )
                if self._drops_newest():
                    self.dropped += 1
                    continue
                self._drop_oldest()
            for name, column in self._columns.items():
                column[self._head % self._capacity] = unrolls[name][row]
            self._head += 1

    def _empty(self, capacity: int) -> dict[str, npt.NDArray[Any]]:
        return blank_columns(capacity, self._assembly.columns)

    def _grow(self, least: int = 0) -> None:
        """Double the room, to at least a given number of unrolls; waiting unrolls stay."""
        index = np.arange(self._tail, self._head)
        capacity = max(2 * self._capacity, least)
        columns = self._empty(capacity)
        for name, old in self._columns.items():
            column = columns[name] = alike(columns[name], old)
            column[index % capacity] = old[index % self._capacity]
        self._columns, self._capacity = columns, capacity

    def _drops_newest(self) -> bool:
        if self._when_full == "alternate":
            return bool(self._rng.random() < 0.5)
        return self._when_full == "drop_newest"

    def _drop_oldest(self) -> None:
        gone = 1 if self._tail == self._unplaced else self._rows
        self._tail += gone
        self.dropped += gone

    @property
    def _unplaced(self) -> int:
        """The first unroll that no place has."""
        return max(self._tail, max(self._places)[0])

    def _next_of(self, place: int) -> tuple[int, int]:
        """Return the first unroll of a place, or of the batch that it takes when it is next, and the draws so far."""
        stop, drawn = self._places[place % self._batches]
        return (stop - self._rows, drawn) if stop > self._tail else (self._unplaced, 0)

    def ready(self, rows: int) -> bool:
        """Return whether this number of unrolls wait, or the next place has a batch."""
        return self._head - self._next_of(self._place)[0] >= rows

    def draw(self, rows: int) -> dict[str, Any]:
        """Take the oldest unrolls away, and return them in arrays of their own.

        Of a circular buffer they are those of the next place, and leave after the last draw.

        Raises:
            ValueError: Fewer wait.
        """
        if not self.ready(rows):
            raise ValueError(f"a batch takes {rows} unrolls of the queue, and {len(self)} wait: observe more first")
        first, drawn = self._next_of(self._place)
        index = np.arange(first, first + rows)
        self._places[self._place] = first + rows, drawn + 1
        self._place = (self._place + 1) % self._batches
        if drawn + 1 == self._replay_coefficient:  # it is the oldest batch
            self._tail = first + rows
        return {**self._assembly.batch_at(self._columns, index % self._capacity), "index": index}

    # Saving: all waiting unrolls, whole each time.

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        ring = {"batches": self._batches, "replay_coefficient": self._replay_coefficient} if self.replayed else {}
        return {"kind": "queue", "capacity": self._least, "when_full": self._when_full, **ring}

    def _counters(self) -> dict[str, Any]:
        counts = {"head": self._head, "tail": self._tail, "dropped": self.dropped}
        ring = {"places": self._places, "place": self._place} if self.replayed else {}
        return {**counts, **ring, "generator": self._rng.bit_generator.state}

    def _snapshot(self) -> Arrays:
        positions = np.arange(self._tail, self._head) % self._capacity
        return {name: on_host(column[positions]) for name, column in self._columns.items()}

    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        self._tail = self._head = 0
        if self._makes_room and (waiting := counters["head"] - counters["tail"]) > self._capacity:
            self._grow(waiting)
        self._head, self._tail, self.dropped = counters["head"], counters["tail"], counters["dropped"]
        self._place = counters.get("place", 0)
        self._places = [(stop, drawn) for stop, drawn in counters.get("places") or self._of_passes(counters)]
        self._rng.bit_generator.state = counters["generator"]
        positions = np.arange(self._tail, self._head) % self._capacity
        for name, column in self._columns.items():
            column[positions] = alike(snapshot[name], column)

    def _of_passes(self, counters: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Return the places that a state of version 0.1.0 means, which counted passes over all places."""
        done = counters.get("pass", 0)
        first = self._tail - self._rows * (self._place if done == self._replay_coefficient - 1 else 0)
        draws = [done + (place < self._place) for place in range(self._batches)]
        return [(first + self._rows * (place + 1) if drawn else 0, drawn) for place, drawn in enumerate(draws)]

    def _range(self, number: int) -> tuple[int, int]:
        return self._tail, self._head


UnrollSource = UnrollReplay | UnrollQueue | Prefetch
SourceFactory = Callable[[SourceSpec], UnrollSource]

SOURCES: Mapping[str, SourceFactory] = {"queue": UnrollQueue, "standard": StandardReplay, "elite": EliteReplay}


class Shares:
    """How many rows a batch takes of each source.

    Shares need not be whole numbers of rows. In batch k, counted from 1, source i with the share p_i must still give
    p_i B k rows less those that it has given, and the B rows go one by one to the source that is furthest behind (the
    method of the largest remainder, where none is ahead). A source is never a whole row ahead of its share of all rows
    so far, nor, of n sources, n - 1 rows behind, so that over time every share is held exactly.

    Args:
        shares: p, which sum to 1.
        batch_size: Rows of a batch, B.

    Attributes:
        shares: p, as files have them.
        batches: Batches so far.
        given: Rows that each source has given.
        rows: Rows that the next batch takes of each source.
        most: Rows that a batch takes of each source at most.
        behind: Rows by which a source is behind its share at most; 0 where shares give whole rows.
    """

    def __init__(self, shares: Sequence[float], batch_size: int) -> None:
        self._batch_size = batch_size
        self._owed = owed = [share * batch_size for share in shares]  # per batch
        self.shares = [each / batch_size for each in owed]
        whole = all(abs(each - round(each)) < TOLERANCE for each in owed)
        further = 0 if whole else max(0, len(owed) - 2)
        self.behind = 0 if whole else len(owed) - 1
        self.most = [min(batch_size, max(1, math.ceil(each - TOLERANCE)) + further) for each in owed]
        self.restore(0, [0] * len(owed))

    def give(self) -> None:
        """Count the rows of a batch as given."""
        self.restore(self.batches + 1, [given + rows for given, rows in zip(self.given, self.rows, strict=True)])

    def restore(self, batches: int, given: Sequence[int]) -> None:
        """Continue after `batches` batches, in which each source has given `given` rows."""
        self.batches, self.given = batches, list(given)
        owed = [each * (batches + 1) - given for each, given in zip(self._owed, self.given, strict=True)]
        self.rows = [0] * len(owed)
        for _ in range(self._batch_size):
            # Rounded, so that of two equally far behind the first one is next on every machine.
            most = max(range(len(owed)), key=lambda source: round(owed[source], 6))
            owed[most] -= 1
            self.rows[most] += 1


class Mixture(Saved):
    """The store of a learner of unrolls, in the place of a replay.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of the policy's extras, with its state, if it has one, as "state"; None without extras.
        sources: pairs of a source and its share, which sum to 1; a source is a name of `SOURCES`, or a function that
            makes one from a `SourceSpec`. None for the queue alone.
        num_envs: environments, N.
        unroll_length: T, in rows: the decisions and the final observations of an environment.
        batch_size: unrolls of a batch, B.
        stack_size: observations in a stack, k.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".
        seed: of all draws.
        encoder: computes features, for sources that use them.
        updates: updates of the run, for sources whose draws depend on them; None where they are not known.
        prefetch: whether the replays' rows of the next batch are drawn in threads while the learner computes, one
            update early (`prefetch.Prefetch`).
        chunk: actions of a decision, H, where it gives several at once; None for one.
        action: shape and dtype of a stored action, as for `Assembly`.
        in_flight: the largest number of an environment's decisions in flight when another one starts, from which a
            queue's capacity follows; None without a limit.
        with_returns: as for `Assembly`.
        decisions: as for `Assembly`.
        learners: synchronous learners, each with environments and a mixture of its own.

    Attributes:
        sources: The sources, in their order.

    Raises:
        ValueError: an argument is out of its range, or a source refuses its own.
    """

    _kind: ClassVar[str] = "mixture"
    _arrays: ClassVar[str] = "arrays"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        extras: Dict | None = None,
        sources: Sequence[tuple[Any, float]] | None = None,
        *,
        num_envs: int = 1,
        unroll_length: int = 100,
        batch_size: int = 32,
        stack_size: int = 1,
        gamma: float = 0.99,
        discount_by: Literal["decision", "frame"] = "decision",
        seed: int = 0,
        encoder: NetworkEncoder | None = None,
        updates: int | None = None,
        prefetch: bool = False,
        chunk: int | None = None,
        action: Column | None = None,
        in_flight: int | None = 0,
        with_returns: bool = False,
        decisions: int | None = None,
        learners: int = 1,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be >= 1 unroll, got {batch_size}")
        factories = checked_sources([("queue", 1.0)] if sources is None else sources)
        self._assembly = Assembly(
            observation_space,
            extras,
            self._put,
            num_envs=num_envs,
            length=unroll_length,
            period=unroll_length,
            stack_size=stack_size,
            gamma=gamma,
            discount_by=discount_by,
            chunk=chunk,
            action=action,
            with_returns=with_returns,
            decisions=decisions,
        )
        self._batch_size, self._encoder = batch_size, encoder
        self._shares = Shares([share for _, share in factories], batch_size)
        seeds = np.random.SeedSequence(seed).spawn(len(factories))
        self.sources: list[UnrollSource] = []
        for (source, _), rows, own in zip(factories, self._shares.most, seeds, strict=True):
            factory = SOURCES[source] if isinstance(source, str) else source
            of_source = int(own.generate_state(1)[0])
            spec = SourceSpec(
                self._assembly, num_envs, rows, of_source, encoder, updates, in_flight, self._shares.behind, learners
            )
            made = factory(spec)
            self.sources.append(Prefetch(made) if prefetch and made.replayed else made)
        # Whether learning has begun: from a queue alone it may at once.
        self._begun = all(source.filled for source in self.sources)

    def __len__(self) -> int:
        """Return how many unrolls can be drawn, of all sources together."""
        return sum(map(len, self.sources))

    @property
    def drawable(self) -> bool:
        """Whether a batch can be drawn."""
        return all(source.ready(rows) for source, rows in zip(self.sources, self._shares.rows, strict=True))

    @property
    def crowded(self) -> bool:
        """Whether the unrolls that become whole before an update makes room may not fit into a queue."""
        return any(source.crowded for source in self.sources if isinstance(source, UnrollQueue))

    def queue_in_words(self) -> str | None:
        """Return the queue's capacity in words where acting waits for the learner; None where it does not."""
        words = [source.in_words() for source in self.sources if isinstance(source, UnrollQueue)]
        return next((each for each in words if each is not None), None)

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._assembly.add_count

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the sources are full."""
        return sum(source.nbytes for source in self.sources) + self._assembly.nbytes

    # Writing.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        """Store one transition; see `Replay.observe`."""
        self._assembly.observe(transition, env_id)

    def extend(self, block: Mapping[str, Any]) -> None:
        """Store one transition of each of R environments; see `Replay.extend`."""
        self._assembly.extend(block)

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End an environment's running episode, if one runs, as a truncation would have; see `Replay.cut`."""
        self._assembly.cut(observation, env_id)

    def _put(self, unrolls: Mapping[str, npt.NDArray[Any]]) -> None:
        # A damaged file may have taken so much that a replay must be filled again.
        self._begun = self._begun and all(source.filled for source in self.sources)
        for source in self.sources:  # a queue alone keeps tensors on their device
            source.put(unrolls if isinstance(source, UnrollQueue) else on_host(unrolls), self._begun)

    # Reading.

    def sample(self) -> dict[str, Any]:
        """Return a batch of B unrolls, in arrays of their own; the module's comment lists the columns.

        Raises:
            ValueError: not all sources can give their rows.
        """
        rows = self._shares.rows
        if not self.drawable:
            raise ValueError(
                f"a batch takes {', '.join(map(str, rows))} unrolls of its sources, and they hold "
                f"{', '.join(str(len(source)) for source in self.sources)}: observe more first"
            )
        # A draw that is still under way sees the weights and the states from before.
        for source in self.sources:
            if isinstance(source, Prefetch):
                source.ahead.join()
        if self._encoder is not None and self._encoder.is_used:
            self._encoder.refresh(self._assembly.newest)
        parts = [source.draw(n) if n else None for source, n in zip(self.sources, rows, strict=True)]
        self._begun = True
        self._shares.give()
        for source, n in zip(self.sources, self._shares.rows, strict=True):
            if isinstance(source, Prefetch) and n:
                source.draw_ahead(n)
        replayed = np.array([source.replayed for source in self.sources], np.float32)
        number = np.repeat(np.arange(len(rows)), rows)
        return {**_joined([part for part in parts if part]), "source": number, "replayed": replayed[number]}

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int | None = None) -> dict[str, Any]:
        """Refuse: unrolls have no single transitions.

        Raises:
            ValueError: always.
        """
        raise ValueError("a mixture gives whole unrolls: one_step_loss must be False")

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Refuse: rows are chosen by their sources alone.

        Raises:
            ValueError: always.
        """
        raise ValueError("a mixture has no priorities: its sources choose by themselves")

    # Saving: unfinished unrolls whole each time, each source in a directory of its own.

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without the seed."""
        sources = [source.facts() for source in self.sources]
        own = {"batch_size": self._batch_size, "shares": self._shares.shares, "sources": sources}
        own["capacity"] = sum(each["capacity"] for each in sources)
        return {"source": "mixture", **self._assembly.facts(), **own}

    def _counters(self) -> dict[str, Any]:
        counts = {"add_count": self.add_count, "batches": self._shares.batches, "given": self._shares.given}
        return {"facts": self.facts(), **counts, "begun": self._begun}

    def _snapshot(self) -> Arrays:
        return self._assembly.snapshot()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "sources": [source.state_dict() for source in self.sources]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for source, of_source in zip(self.sources, state["sources"], strict=True):
            source.load_state_dict(of_source)

    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        self._begun = counters["begun"]
        self._shares.restore(counters["batches"], counters["given"])
        self._assembly.restore(snapshot, counters["add_count"])
        self._expire()

    def _expire(self) -> None:
        if self._encoder is not None:
            self._encoder.expire()

    def _range(self, number: int) -> tuple[int, int]:
        return self._shares.batches, self._shares.batches + 1

    def save(self, directory: Path, number: int) -> list[str]:
        """Write the unfinished unrolls and the sources; see `Saved`."""
        names = [
            f"{folder}/{name}"
            for source, folder in self._folders()
            for name in source.save(Path(directory) / folder, number)
        ]
        # The process that loads this has the present weights, and no older ones.
        self._expire()
        return [*names, *super().save(directory, number)]

    def _read(self, directory: Path, number: int, listed: Sequence[Segment], counters: Mapping[str, Any]) -> None:
        for source, folder in self._folders():
            source.load(directory / folder, number)

    def _after_load(self) -> None:
        self.end_running()

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End running episodes with their last observations; see `Assembly.end_running`."""
        self._assembly.end_running(env_ids)

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        kept = list(keep)
        super().prune(directory, kept)
        for source, folder in self._folders():
            source.prune(Path(directory) / folder, kept)

    def _folders(self) -> list[tuple[UnrollSource, str]]:
        return [(source, f"source_{number}") for number, source in enumerate(self.sources)]


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of several batches in one."""
    first = parts[0]
    names = [name for name in first if all(name in part for part in parts)]
    if len(parts) == 1:
        return {name: first[name] for name in names}
    return {
        name: each_array(
            partial(_concatenated, axis=0 if name in (STATE, "index") else 1), *(part[name] for part in parts)
        )
        for name in names
    }


def _concatenated(*arrays: Any, axis: int) -> Any:
    return joined_arrays(arrays, axis)
