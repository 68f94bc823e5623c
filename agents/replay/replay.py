"""A replay memory: a storage, which keeps transitions, and a selector, which chooses among them.

    observe -> storage -> became valid, became invalid -> selector
    sample  <- storage.assemble <- positions <- selector.draw

Storages are a `Ring` (the newest transitions), a `Reservoir` (a uniform sample of all) and a `SequenceRing` (the newest
sequences, for agents with memory), selectors are `Uniform` and `Prioritized`. A ring puts its batches together with an
assembler, `NStep`.

To the files a storage is a log of entries, numbered from 0 for ever, of which some are still live. An entry never
changes once it is written. What does change, of old entries too, is the *snapshot*: a few arrays that are saved whole
each time. A ring of E environments is E logs: the numbers of one are E apart, and the remainder by E says which it is.

Transitions come one by one (`observe`) or in *blocks*, a row for each of some environments at once (`extend`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from async_wrappers.agents.files import (
    Arrays,
    Segment,
    check_segment,
    doing_without_damage,
    gaps,
    prune,
    read_index,
    read_segment,
    read_snapshot,
    write_index,
    write_segment,
)
from async_wrappers.agents.replay.reservoir import Reservoir
from async_wrappers.agents.replay.ring import FINAL, LOST, PIECE, TERMINAL, Ring, joined
from async_wrappers.agents.replay.selectors import SELECTORS, Positions, Selector, Uniform
from async_wrappers.agents.replay.sequence_ring import SequenceRing
from async_wrappers.agents.schema import TransitionSchema

__all__ = ["NStep", "Replay", "create_replay", "create_sequence_replay"]


class Replay:
    """Experience replay: keeps transitions, and draws batches of them.

    Args:
        storage: an empty storage; no other replay may use it.
        selector: a selector of no other storage.
        batch_size: transitions in a batch unless `sample` is given another number.
        seed: of the draws.

    Attributes:
        schema: what a transition is made of.
        num_envs: environments whose transitions are kept apart, E.

    Raises:
        ValueError: the batch size is below 1.
    """

    def __init__(
        self,
        storage: Ring | Reservoir | SequenceRing,
        selector: Selector,
        *,
        batch_size: int = 32,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        """See the class."""
        _check_batch_size(batch_size)
        self._storage = storage
        self._selector = selector
        self._batch_size = batch_size
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self.schema, self.num_envs = storage.schema, storage.num_envs
        storage.selector = selector
        selector.attach(storage)
        # The files that hold all live entries up to the last save or load, one log's after another's.
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        """Number of transitions that can be drawn, exactly; O(1)."""
        return self._storage.count

    @property
    def drawable(self) -> bool:
        """Whether a batch can be drawn."""
        return self._storage.count > 0

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._storage.add_count

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take once the replay is full; of packed observations, those that are stored now."""
        return self._storage.nbytes + self._selector.nbytes

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        """Store one transition; within an environment's episode each must follow the one before.

        Where transitions have priorities one may enter with its own (Horgan et al. 2018, section 3). An actor can give
        the n-step transition that begins at decision t - n its priority

            | R + gamma^n max_a Q(o_t, a) - Q(o_{t-n}, a_{t-n}) |

        with the values that it has at decision t anyway, and it gives it together with that decision, whose observation
        completes the transition. What is not given a priority enters with the largest one ever given.

        Args:
            transition: "observation" (the newest one alone, not a stack), "action" (int), "reward" (float), "interval"
                (int, frames), "terminal" (bool: no bootstrap), "truncated" (bool: bootstrap on the final observation),
                "next_observation", read only where the episode ends here, and "extras", where the schema has them. If
                an actor gives priorities: "priority" (float), of the transition that begins n decisions before this
                one, without effect in an episode's first n decisions, NaN or None for none; and, where the episode ends
                here, "final_priority" `[n]`, of the transitions that the final observation completes: entry m - 1 is of
                that of the last m decisions, NaN for none.
            env_id: the environment that it comes from, in [0, `num_envs`).

        Raises:
            KeyError: a key is missing; nothing is stored then.
            ValueError: an array has another shape or kind than the schema's, a number is out of its range, or a
                priority is given to a selector that has none; nothing is stored then.
        """
        self._storage.observe(transition, env_id)

    def extend(self, block: Mapping[str, Any]) -> None:
        """Store one transition of each of R environments: as `observe` called for each row in turn, but in arrays.

        Args:
            block: "env_ids" (int `[R]`, distinct), and what `observe` takes, `[R, ...]`: "observation", "action",
                "reward", "interval", "terminal", "truncated", "extras" and "priority". Of the rows whose episode ends,
                by env_id: "final", the last observation of each; "final_priority", `[n]` of those that have it.

        Raises:
            KeyError: a key is missing; nothing is stored then.
            ValueError: as for `observe`, the environments are not distinct, or a final observation is missing; nothing
                is stored then.
        """
        self._storage.extend(block)

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End an environment's running episode, if one runs, as a truncation would have: what followed is lost.

        Args:
            observation: what its last transition led to.
            env_id: the environment, in [0, `num_envs`).

        Raises:
            ValueError: the observation has another shape or kind than the schema's, or there is no such environment.
        """
        self._storage.cut(observation, env_id)

    def sample(self, batch_size: int | None = None, importance_exponent: float | None = None) -> dict[str, Any]:
        """Draw transitions as the selector chooses them.

        The arrays are fresh at every call. In a ring "observation" and "next_observation" are views of one array and
        overlap where `update_horizon` is 1 (`[B, k + 1, *shape]` then): do not write into them.

        Args:
            batch_size: number of transitions B, by default the constructor's.
            importance_exponent: beta of this batch, where transitions have priorities, by default the selector's: the
                paper lets it rise to 1.

        Returns:
            "observation" `[B, k, *shape]`, the last k observations of the episode, oldest first, zeros before its
            first, and a dict of such for a Dict space; "action" int64 `[B]`; "reward" and "discount" float32 `[B]` of
            the n decisions (`NStep`); "next_observation", a stack like "observation", at the end of the n decisions;
            "interval" int64 `[B]`, frames of the first decision; "index" int64 `[B]`, which names a transition;
            "extras", those of the first decision, `[B, ...]` in dicts like the schema's; and what the selector adds.

        Raises:
            ValueError: no transition can be drawn, or an argument is out of its range.
        """
        if batch_size is None:
            batch_size = self._batch_size
        else:
            _check_batch_size(batch_size)
        if not self._storage.count:
            raise ValueError("the replay holds no valid transition yet, observe more before sampling")
        positions, chosen = self._selector.draw(self._rng, batch_size, importance_exponent)
        batch = self._storage.assemble(positions)
        batch.update(chosen)
        return batch

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int | None = None) -> dict[str, Any]:
        """Put given transitions together.

        Args:
            slots: the index of each, `[B]`, each one of `valid_slots`.
            update_horizon: n, at least 1, where it is to be less than the assembler's.

        Returns:
            As `sample`, without what a selector adds.

        Raises:
            ValueError: no valid transition begins at one of the slots.
        """
        positions, valid = self._storage.find(slots)
        if not valid.all():
            raise ValueError(f"slots must be those of valid transitions, got {slots[~valid][0]}")
        return self._storage.assemble(positions, update_horizon)

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the index of every transition that can be drawn `[len(self)]`, ascending; reads the whole storage."""
        return self._storage.valid_slots()

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Give transitions their priorities. One that is no longer valid is left out: its place is another's now.

        Args:
            index: "index" of a batch, `[B]`; of one given twice the last priority stays.
            priority: `[B]`, the size of the temporal-difference error, or the square root of the loss.

        Raises:
            ValueError: a priority is out of the selector's range, an index has never been given out, the shapes differ,
                or the selector has no priorities; nothing is changed then.
        """
        slots, priorities = np.asarray(index), np.asarray(priority, np.float64)
        if slots.ndim != 1 or slots.shape != priorities.shape:
            raise ValueError(f"priority must have the shape [B] of index, {slots.shape}, got {priorities.shape}")
        if not slots.size:
            return
        positions, valid = self._storage.find(slots)
        if not valid.all() and (slots.min() < 0 or slots.max() >= self._storage.head):
            wrong = slots[(slots < 0) | (slots >= self._storage.head)][0]
            raise ValueError(f"index must be a batch's, in [0, {self._storage.head}), got {wrong}")
        self._selector.set_priorities(positions, priorities, valid)

    def clear(self) -> None:
        """Forget every transition, and what the files hold; the generators go on from where they are."""
        self._segments = []
        self._storage.clear()
        self._selector.clear()

    def end_running(self) -> None:
        """End every episode that is under way: its last observation is its final one."""
        self._storage.end_running()

    def episodes(self) -> Iterator[Arrays]:
        """Yield what a ring holds, episode by episode, oldest first: columns of consecutive slots, the final one last.

        An episode whose beginning has been overwritten or lost, or whose end is not there yet, is left out.

        Raises:
            ValueError: the storage is no ring: what it keeps are transitions, without their neighbours.
        """
        if not isinstance(self._storage, Ring):
            raise ValueError(
                "episodes need a ring (replay_eviction='oldest'), got a reservoir, which keeps transitions"
            )
        for first, head in self._storage.logs():
            run: list[Arrays] = []
            if first == head:
                continue
            for piece in self._storage.pieces(first):
                begin, ends = 0, np.flatnonzero((piece["kind"] == FINAL) | (piece["kind"] == LOST)) + 1
                for end in ends.tolist():
                    run.append({name: column[begin:end] for name, column in piece.items()})
                    if piece["kind"][end - 1] == FINAL and run[0]["age"][0] == 0:
                        yield joined(run)
                    begin, run = end, []
                run.append({name: column[begin:] for name, column in piece.items()})

    # Saving: into a dictionary, or into files that grow by what is new.

    def facts(self) -> dict[str, Any]:
        """Return the constructors' arguments as plain data, without the seed."""
        return {**self._storage.facts(), "batch_size": self._batch_size, **self._selector.facts()}

    def _counters(self) -> dict[str, Any]:
        """Return the facts and all that is not in the entries and the snapshot, as plain data."""
        counters = {**self._storage.counters(), "generator": self._rng.bit_generator.state, **self._selector.counters()}
        return {"facts": self.facts(), **counters, "transitions": len(self)}

    def _snapshot(self) -> Arrays:
        return {**self._storage.snapshot(), **self._selector.snapshot()}

    def _restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Take over counters and snapshot, and derive the rest from the entries that were put."""
        self._storage.restore(counters, snapshot)
        self._rng.bit_generator.state = counters["generator"]
        self._selector.restore(counters, snapshot)

    def state_dict(self) -> dict[str, Any]:
        """Return all that `load_state_dict` needs to continue bit for bit, in copies, oldest entry first.

        "first" and "slots", the live entries, are lists where there are several logs.
        """
        snapshot = {name: array.copy() for name, array in self._snapshot().items()}
        first = [first for first, _ in self._storage.logs()]
        slots = [joined(self._storage.pieces(each)) for each in first]
        of_logs = {"first": first, "slots": slots} if self.num_envs > 1 else {"first": first[0], "slots": slots[0]}
        return {**self._counters(), **of_logs, "snapshot": snapshot}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called; the generators go on from the state's, whatever the replay's seed.

        Raises:
            ValueError: the state comes from a replay with other constructor arguments; nothing is changed then.
        """
        self._check_facts(state["facts"])
        self.clear()
        of_logs = state["first"], state["slots"]
        for first, slots in zip(*of_logs, strict=True) if self.num_envs > 1 else [of_logs]:
            if slots:
                self._storage.put(first, slots)
        self._restore(state, state["snapshot"])

    def save(self, directory: Path, number: int) -> list[str]:
        """Write what is new since the last save or load, and the index `index_{number}.json`.

        Args:
            directory: where the files go; made if missing. In a new directory everything live is written.
            number: names the save; an index of the same number is replaced.

        Returns:
            The names of the files that `load` needs: the segments, oldest first, and the index.

        Raises:
            OSError: a file could not be written; the earlier indexes still load then.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        log = self._storage
        listed = log.still_listed(self._segments)
        whole = listed if all(segment.is_whole(directory) for segment in listed) else []
        if self.num_envs > 1:
            segments = whole + self._write_lanes(directory, whole)
        else:
            [(oldest, head)] = log.logs()
            first = whole[-1].stop if whole else oldest
            segments = whole + ([write_segment(directory, first, head, log.pieces(first))] if first < head else [])
        self._segments = listed = segments
        snapshot = []
        if arrays := self._snapshot():
            snapshot.append(write_segment(directory, log.oldest, log.head, [arrays]))
        index = write_index(directory, number, listed, snapshot, self._counters())
        return [*(segment.name for segment in listed + snapshot), index]

    def load(self, directory: Path, number: int, partial: bool = False) -> int:
        """Rebuild the replay and its generators as at `save(directory, number)`; later saves go on from there.

        An episode that was under way at that save is ended: the next transition belongs to another one.

        Args:
            directory: where the files are.
            number: names the save.
            partial: whether to do without the segments that are damaged or missing.

        Returns:
            How many transitions that could be drawn at that `save` are lost; 0 unless `partial`.

        Raises:
            FileNotFoundError: the index or its snapshot is missing.
            DamagedReplay: a segment is missing or torn, unless `partial`.
            ValueError: the index comes from a replay with other constructor arguments, or it is torn, or its snapshot
                is. The replay is left empty if a segment's checksum fails half-way, and unchanged by every other error.
        """
        directory = Path(directory)
        listed, of_snapshot, counters = read_index(directory, number)
        self._check_facts(counters["facts"])
        snapshot = read_snapshot(directory, of_snapshot)
        # The first pass reads no array, so most damage is found while the replay still holds what it held.
        whole: list[Segment] = []
        held: list[Segment] = []
        for segment in listed:
            with doing_without_damage(partial):
                check_segment(directory, segment)
                whole.append(segment)
        self.clear()
        for segment in whole:
            with doing_without_damage(partial, on_refusal=self.clear):
                held.append(self._put(directory, segment))
        self._storage.move_to(counters)
        for (oldest, head), of_log in zip(self._storage.logs(), self._by_log(held), strict=True):
            for first, stop in gaps(oldest, head, of_log):
                self._storage.lose(first, stop)
        self._restore(counters, snapshot)
        lost: int = counters["transitions"] - len(self)
        self.end_running()
        # Files of one environment each, of older versions: the next save writes all that lives into one.
        self._segments = held if self.num_envs == 1 or all(segment.lanes for segment in held) else []
        return lost

    def _put(self, directory: Path, segment: Segment) -> Segment:
        """Put a segment's entries into the storage; return it with what it holds of each of several logs."""
        first, lanes = segment.first, None
        for piece in read_segment(directory, segment):
            if piece.keys() == {_LANES} and self.num_envs > 1 and lanes is None:
                lanes = _Lanes(piece[_LANES], self.num_envs)
                continue
            if piece.keys() != set(self._storage.names()):
                raise ValueError(f"{segment.name} in {directory} is torn or altered: it lacks a field")
            if lanes is None:
                first = self._storage.put(first, piece)
            else:
                for at, part in lanes.parts(piece):
                    self._storage.put(at, part)
        return segment if lanes is None else replace(segment, lanes=lanes.bounds)

    def _by_log(self, segments: Iterable[Segment]) -> list[list[tuple[int, int]]]:
        """Return of each log what the segments hold: the number of the first entry and that after the last one."""
        of_logs: list[list[tuple[int, int]]] = [[] for _ in range(self.num_envs)]
        for segment in segments:
            if segment.lanes:
                for of_log, bounds in zip(of_logs, segment.lanes, strict=True):
                    of_log.append(bounds)
            else:
                of_logs[segment.first % self.num_envs].append((segment.first, segment.stop))
        return of_logs

    def _write_lanes(self, directory: Path, whole: Sequence[Segment]) -> list[Segment]:
        """Write what is new in any log into one segment, if anything is."""
        logs = self._storage.logs()
        held = [stop for _, stop in whole[-1].lanes] if whole else [oldest for oldest, _ in logs]
        bounds = [(max(stop, oldest), head) for stop, (oldest, head) in zip(held, logs, strict=True)]
        if all(first == stop for first, stop in bounds):
            return []
        lanes = _Lanes(np.array(bounds, np.int64), self.num_envs)
        pieces = lanes.joined(self._storage.pieces)
        new = [(first, stop) for first, stop in bounds if first < stop]
        least, most = min(first for first, _ in new), max(stop for _, stop in new)
        return [replace(write_segment(directory, least, most, pieces), lanes=lanes.bounds)]

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """Delete the indexes in `directory` whose number is not in `keep`, and the segments that no kept index lists.

        Where a kept index cannot be read nothing is deleted, and a warning is logged.

        Raises:
            OSError: a file could not be deleted.
        """
        prune(Path(directory), keep)

    def _check_facts(self, saved: Mapping[str, Any]) -> None:
        # One environment is not among the facts.
        own, saved = {"num_envs": 1, **self.facts()}, {"num_envs": 1, **saved}
        if differing := sorted(own.keys() ^ saved.keys()):
            raise ValueError(
                "the saved replay must be of the same kind, but only one of the two has "
                f"{', '.join(differing)}, make the replay alike"
            )
        for name, value in own.items():
            if saved[name] != value:
                raise ValueError(
                    f"{name} must be as in the saved replay, {saved[name]!r}, got {value!r}, make the replay alike"
                )


# A segment of several logs is one run of entries, one log's after another's, whatever the number of logs. Its first
# piece has one array, which says of each log the number of the first entry that is in it, and that after the last one.

_LANES = "lanes"


class _Lanes:
    """What a segment holds of several logs, whose numbers are `num_envs` apart.

    Raises:
        ValueError: It cannot hold that.
    """

    def __init__(self, bounds: npt.NDArray[np.int64], num_envs: int) -> None:
        ordered = bounds.shape == (num_envs, 2) and bool((bounds[:, 1] >= bounds[:, 0]).all())
        if not ordered or (bounds % num_envs != np.arange(num_envs)[:, None]).any():
            raise ValueError("what a segment holds of each environment must be ranges of its numbers")
        self.bounds = tuple((int(first), int(stop)) for first, stop in bounds)
        self._apart = num_envs
        self._left = [bound for bound in self.bounds if bound[0] < bound[1]]

    def joined(self, pieces: Callable[[int], Iterator[Arrays]]) -> Iterator[Arrays]:
        """Yield the first piece, then the entries of all logs, a few thousand at a time."""
        yield {_LANES: np.array(self.bounds, np.int64)}
        waiting: list[Arrays] = []
        entries = 0
        for first, _ in self._left:
            for piece in pieces(first):
                waiting.append(piece)
                entries += len(next(iter(piece.values())))
                if entries >= PIECE:
                    yield joined(waiting)
                    waiting, entries = [], 0
        if waiting:
            yield joined(waiting)

    def parts(self, piece: Arrays) -> Iterator[tuple[int, Arrays]]:
        """Yield what a piece holds of one log after another, each with the number of its first entry."""
        start, entries = 0, len(next(iter(piece.values())))
        while start < entries:
            if not self._left:
                raise ValueError("a segment holds more entries than it says")
            first, stop = self._left[0]
            count = min(entries - start, (stop - first) // self._apart)
            yield first, {name: column[start : start + count] for name, column in piece.items()}
            start, first = start + count, first + count * self._apart
            self._left[0] = first, stop
            if first == stop:
                del self._left[0]


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1 transition, got {batch_size}")


# The assembler: how a batch is put together from the columns of a ring.
#
# An assembler is its parameters and nothing else. Two of them, how far a transition reaches back and ahead, decide
# which transitions a ring lets be drawn; with the positions of those it reads the columns.


class NStep:
    """Transitions of n decisions (Sutton 1988) between two stacks of k observations (Mnih et al. 2015).

    With m <= n decisions, fewer than n only at the end of an episode, the transition at decision t has

        reward    R = sum_{i<m} gamma^{c_i} r_{t+i}
        discount  gamma^{c_m}, or 0 if the episode terminated within those m decisions

    so that its target is R + discount * V(o_{t+m}). The exponent c_i counts the decisions, c_i = i, or the frames, the
    sum of the first i intervals.

    Args:
        stack_size: observations in a stack, k.
        update_horizon: decisions in a return, n.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        *,
        stack_size: int = 1,
        update_horizon: int = 1,
        gamma: float = 0.99,
        discount_by: Literal["decision", "frame"] = "decision",
    ) -> None:
        """See the class."""
        if stack_size < 1:
            raise ValueError(f"stack_size must be >= 1 observation, got {stack_size}")
        if update_horizon < 1:
            raise ValueError(f"update_horizon must be >= 1 decision, got {update_horizon}")
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must lie in [0, 1], got {gamma}")
        if discount_by not in ("decision", "frame"):
            raise ValueError(f"discount_by must be 'decision' or 'frame', got {discount_by!r}")
        self.stack_size, self.update_horizon = stack_size, update_horizon
        self._gamma, self._discount_by = gamma, discount_by
        # A batch reads each stack and its next stack in one go; one step apart, they share all but one observation.
        stack = np.arange(1 - stack_size, 1)
        self._window = np.append(stack, 1 if update_horizon == 1 else stack)

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return {
            "stack_size": self.stack_size,
            "update_horizon": self.update_horizon,
            "gamma": self._gamma,
            "discount_by": self._discount_by,
        }

    def assemble(self, ring: Ring, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """See `Replay.sample` for what a batch holds."""
        steps = ring.steps.take(positions)
        if update_horizon is not None:
            steps = np.minimum(steps, update_horizon)
        observation, next_observation = self._stacks(ring, positions, steps)
        reward, discount = self._returns(ring, positions, steps)
        batch = {
            "observation": observation,
            "action": ring.action.take(positions),
            "reward": reward,
            "discount": discount,
            "next_observation": next_observation,
            "interval": ring.interval.take(positions).astype(np.int64),
            "index": ring.slots_at(positions),
        }
        if ring.schema.extras:
            batch["extras"] = ring.schema.extras.nest([array.take(positions, axis=0) for array in ring.extras])
        return batch

    def _stacks(self, ring: Ring, positions: Positions, steps: npt.NDArray[np.int32]) -> tuple[Any, Any]:
        """Return the stacks at `positions` and `steps` later, views of one array, with zeros before an episode."""
        around = positions[:, None] + self._window
        if self.update_horizon > 1:
            around[:, self.stack_size :] += steps[:, None]
        around = ring.reached(around, positions[:, None])
        age = ring.age.take(positions)
        begins = age.min() < self.stack_size - 1
        windows = []
        for array in ring.observation:
            window = array.take(around, axis=0, mode="wrap")
            if begins:
                self._blank(window, age, steps)
            windows.append(window)
        nest = ring.schema.observation.nest
        observation = nest([window[:, : self.stack_size] for window in windows])
        return observation, nest([window[:, -self.stack_size :] for window in windows])

    def _blank(self, window: npt.NDArray[Any], age: npt.NDArray[np.int64], steps: npt.NDArray[np.int32]) -> None:
        """Set to zero what lies before the episode's first observation."""
        missing = self.stack_size - 1 - age
        for row in np.flatnonzero(missing > 0):
            window[row, : missing[row]] = 0
            if self.update_horizon > 1:
                window[row, self.stack_size : self.stack_size + max(0, missing[row] - steps[row])] = 0

    def _returns(
        self, ring: Ring, positions: Positions, steps: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the discounted sums of rewards and the discounts of the bootstrap, summed in double precision."""
        if self.update_horizon == 1 and self._discount_by == "decision":
            terminal = ring.kind.take(positions) == TERMINAL
            return ring.reward.take(positions), np.where(terminal, np.float32(0), np.float32(self._gamma))
        reward = np.zeros(len(positions))
        discount = np.ones(len(positions))
        for step in range(self.update_horizon):
            at, taken = ring.reached(positions + step, positions), steps > step
            reward += np.where(taken, discount * ring.reward.take(at, mode="wrap"), 0.0)
            discount *= np.where(taken, self._step_discount(ring, at), 1.0)
        last = ring.reached(positions + steps - 1, positions)
        terminal = ring.kind.take(last, mode="wrap") == TERMINAL
        discount[terminal] = 0.0
        return reward.astype(np.float32), discount.astype(np.float32)

    def _step_discount(self, ring: Ring, positions: Positions) -> npt.NDArray[np.floating[Any]] | float:
        if self._discount_by == "decision":
            return self._gamma
        discount: npt.NDArray[np.floating[Any]] = self._gamma ** ring.interval.take(positions, mode="wrap")
        return discount


def create_replay(
    observation_space: gym.Space[Any],
    *,
    extras: Dict | None = None,
    selector: str | Callable[..., Selector] = "uniform",
    eviction: Literal["oldest", "reservoir"] = "oldest",
    capacity: int | None = None,
    replay_bytes: int | None = None,
    num_envs: int = 1,
    compression: Literal["lz4"] | None = None,
    stack_size: int = 1,
    update_horizon: int = 1,
    gamma: float = 0.99,
    discount_by: Literal["decision", "frame"] = "decision",
    batch_size: int = 32,
    seed: int = 0,
    **of_selector: Any,
) -> Replay:
    """Make an empty replay of n-step transitions.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of what the policy leaves for the learner beside its action; None where it leaves nothing.
        selector: how transitions are drawn: "uniform", "prioritized", or what makes a `Selector`.
        eviction: what goes when the replay is full, the "oldest" or a random transition ("reservoir": see `Reservoir`
            for what it costs).
        capacity: slots of a ring, of which an episode of T decisions takes T + 1; transitions of a reservoir. None for
            1,000,000, or for what `replay_bytes` holds.
        replay_bytes: memory in the place of `capacity`: the most slots whose `Replay.nbytes` is no more, that of the
            selector included; None for `capacity`, and where observations are packed.
        num_envs: environments, each of which has an equal share of the capacity, which is rounded down to a multiple of
            them; 1 in a reservoir.
        compression: "lz4" keeps observations of 256 bytes and more packed, which takes Atari's frames a ninth to a
            twenty-third of the memory and batches three times as long (benchmarks/README.md); batches, states and
            files are those of a replay without. None in a reservoir.
        stack_size: observations in a stack, k; 1 in a reservoir.
        update_horizon: decisions in a return, n.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".
        batch_size: transitions in a batch unless `sample` is given another number.
        seed: of the draws and, in a reservoir, of the eviction, each with a generator of its own.
        of_selector: the arguments of the selector, such as those of `Prioritized`.

    Raises:
        DependencyNotInstalled: the library of the compression is missing.
        TypeError: an argument that the selector does not have.
        ValueError: a space that cannot be stored, an unknown selector or eviction, another selector than "uniform" in a
            reservoir, or an argument out of its range.
    """
    if eviction not in ("oldest", "reservoir"):
        raise ValueError(f"eviction must be 'oldest' or 'reservoir', got {eviction!r}")
    if selector == "uniform" and of_selector:
        raise TypeError(f"{', '.join(of_selector)} must not be given where selector='uniform'")
    schema = TransitionSchema(observation_space, extras)
    n_step = NStep(stack_size=stack_size, update_horizon=update_horizon, gamma=gamma, discount_by=discount_by)
    made = _make_selector(selector, of_selector) if eviction == "oldest" else Uniform()
    if replay_bytes is not None:
        if capacity is not None:
            raise ValueError(f"capacity must be None where replay_bytes={replay_bytes}, got {capacity}")
        if compression is not None:
            raise ValueError(
                "replay_bytes must be None where observations are packed, which have no fixed size, got "
                f"{replay_bytes}: give capacity"
            )
        kind, least = (Ring, stack_size + update_horizon) if eviction == "oldest" else (Reservoir, 1)
        capacity = _capacity_of(replay_bytes, kind.slot_bytes(schema), made, num_envs, least)
    elif capacity is None:
        capacity = 1_000_000
    if eviction == "oldest":
        ring = Ring(schema, n_step, capacity, num_envs=num_envs, compression=compression)
        return Replay(ring, made, batch_size=batch_size, seed=seed)
    if num_envs != 1:
        raise ValueError(f"num_envs must be 1 where eviction='reservoir', got {num_envs}")
    if compression is not None:
        raise ValueError(f"compression must be None where eviction='reservoir', got {compression!r}")
    if selector != "uniform":
        raise ValueError(f"eviction must be 'oldest' where selector={selector!r}, got 'reservoir'")
    draws, evictions = np.random.SeedSequence(seed).spawn(2)
    reservoir = Reservoir(schema, n_step, capacity, batch_size=batch_size, seed=evictions)
    return Replay(reservoir, made, batch_size=batch_size, seed=draws)


def _capacity_of(replay_bytes: int, slot_bytes: int, selector: Selector, num_envs: int, least: int) -> int:
    """Return the most slots, as many for each environment, that take no more memory; at least `least` for each."""
    if num_envs < 1:
        raise ValueError(f"num_envs must be >= 1 environment, got {num_envs}")

    def nbytes(lane: int) -> int:
        return lane * num_envs * slot_bytes + selector.nbytes_at(lane * num_envs)

    most = int(replay_bytes) // (slot_bytes * num_envs)
    lane = bisect_right(range(most + 1), replay_bytes, key=nbytes) - 1
    if lane < least:
        raise ValueError(
            f"replay_bytes must be >= {nbytes(least)}, which one transition of each environment takes, got "
            f"{replay_bytes}"
        )
    return lane * num_envs


def create_sequence_replay(
    observation_space: gym.Space[Any],
    extras: Dict | None = None,
    *,
    selector: str | Any = "prioritized",
    kind: type[Replay] = Replay,
    capacity: int,
    batch_size: int = 64,
    seed: int = 0,
    num_envs: int = 1,
    length: int,
    period: int,
    stack_size: int = 1,
    gamma: float = 0.997,
    discount_by: Literal["decision", "frame"] = "decision",
    priority: Callable[[Any], Any] | None = None,
    **of_selector: Any,
) -> Replay:
    """Make an empty replay of sequences, whose batches are those of `sequences.py`.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of what the policy leaves beside its action, with its state, if it has one, as "state".
        selector: how sequences are drawn: "uniform", "prioritized", or what makes a `Selector`.
        kind: the replay's class, such as `prefetch.PrefetchedReplay`.
        capacity: sequences kept.
        batch_size: sequences in a batch.
        seed: of the draws.
        num_envs: environments.
        length: rows of a sequence.
        period: rows from the beginning of one sequence of an environment to that of the next.
        stack_size: observations in a stack, k.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".
        priority: what sequences enter with, as `SequenceRing` takes it; None for the largest priority so far.
        of_selector: the arguments of the selector, such as those of `Prioritized`.

    Raises:
        ValueError: an argument is out of its range.
    """
    ring = SequenceRing(
        observation_space,
        extras,
        capacity,
        priority,
        num_envs=num_envs,
        length=length,
        period=period,
        stack_size=stack_size,
        gamma=gamma,
        discount_by=discount_by,
    )
    return kind(ring, _make_selector(selector, of_selector), batch_size=batch_size, seed=seed)


def _make_selector(selector: Any, arguments: Mapping[str, Any]) -> Selector:
    factory = SELECTORS.get(selector) if isinstance(selector, str) else selector
    made = factory(**arguments) if callable(factory) else None
    if not isinstance(made, Selector):
        names = ", ".join(map(repr, SELECTORS))
        raise ValueError(f"selector must be {names}, or make a Selector, such as its class, got {selector!r}")
    return made
