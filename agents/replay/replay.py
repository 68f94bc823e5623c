"""A replay memory: a storage, which keeps transitions, and a selector, which chooses among them.

    observe -> storage -> became valid, became invalid -> selector
    sample  <- storage.assemble <- positions <- selector.draw

Storages are a `Ring` (the newest transitions), a `Reservoir` (a uniform sample of all) and, for agents with memory, a
`SequenceRing` (the newest sequences); selectors are `Uniform` and `Prioritized`. A ring puts its batches together with
an assembler, `NStep`. `log.py` explains how a replay is saved.

Transitions come one by one (`observe`) or in *blocks*, a row for each of some environments at once (`extend`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.replay.log import Log, Saved
from async_wrappers.agents.replay.n_step import NStep
from async_wrappers.agents.replay.reservoir import Reservoir
from async_wrappers.agents.replay.ring import FINAL, Ring
from async_wrappers.agents.replay.segments import Segment, joined
from async_wrappers.agents.replay.selectors import SELECTORS, Selector, Uniform
from async_wrappers.agents.spaces.schema import WHOLE_NUMBER, Arrays, Column, TransitionSchema
from async_wrappers.array_libraries import on_host


class Replay(Saved):
    """Experience replay: keeps transitions, and draws batches of them.

    Args:
        storage: an empty storage; no other replay may use it.
        selector: a selector of no other storage.
        batch_size: transitions in a batch unless `sample` is given another number.
        seed: of the draws.

    Attributes:
        schema: the fields of a transition.
        num_envs: environments whose transitions are kept apart, E.

    Raises:
        ValueError: the batch size is below 1.
    """

    def __init__(
        self,
        storage: Log,
        selector: Selector,
        *,
        batch_size: int = 32,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
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

        with the values that it computes at decision t anyway. It passes the priority together with that decision, whose
        observation completes the transition. A transition without a priority enters with the largest one ever given.

        Args:
            transition: "observation" (the newest one alone, not a stack), "action" (as it is stored), "reward" (float),
                "interval" (int, frames), "terminal" (bool: no bootstrap), "truncated" (bool: bootstrap on the final
                observation), "next_observation", read only where the episode ends here, and "extras", where the schema
                has them. If an actor gives priorities: "priority" (float), of the transition that begins n decisions
                before this one, without effect in an episode's first n decisions, NaN or None for none; and, where the
                episode ends here, "final_priority" `[n]`, of the transitions that the final observation completes:
                entry m - 1 is of that of the last m decisions, NaN for none.
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
        shown = {name: block[name] for name in ("observation", "final") if name in block}
        self._storage.extend({**block, **on_host(shown)})

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End an environment's running episode, if one runs, as a truncation does: its continuation is lost.

        Args:
            observation: its last transition's next observation.
            env_id: the environment, in [0, `num_envs`).

        Raises:
            ValueError: the observation has another shape or kind than the schema's, or there is no such environment.
        """
        self._storage.cut(on_host(observation), env_id)

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
            first, and a dict of such for a Dict space; "action" `[B, ...]`; "reward" and "discount" float32 `[B]` of
            the n decisions (`NStep`); "next_observation", a stack like "observation", at the end of the n decisions;
            "interval" int64 `[B]`, frames of the first decision; "index" int64 `[B]`, which names a transition;
            "action_window" and "next_action_window" `[B, K, ...]`, the stored actions before the two observations,
            oldest first, where there is a window (`NStep`);
            "extras", those of the first decision, `[B, ...]` in dicts like the schema's; and the selector's arrays.

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
        """Return given transitions as a batch.

        Args:
            slots: the index of each, `[B]`, each one of `valid_slots`.
            update_horizon: n, at least 1, if it is less than the assembler's.

        Returns:
            As `sample`, without the selector's arrays.

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
        """Set transitions' priorities. One that is no longer valid is left out, since another has its place now.

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
        """Forget every transition, and the files; the generators continue from where they are."""
        self._segments = []
        self._storage.clear()
        self._selector.clear()

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End the running episodes, of all environments or of some: the last observation of each is its final one."""
        self._storage.end_running(env_ids)

    def episodes(self) -> Iterator[Arrays]:
        """Yield a ring's content, episode by episode, oldest first: columns of consecutive slots, the final one last.

        An episode whose beginning has been overwritten, or that is still running, is left out.

        Raises:
            ValueError: the storage is no ring: it keeps transitions without their neighbours.
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
                begin, ends = 0, np.flatnonzero(piece["kind"] == FINAL) + 1
                for end in ends.tolist():
                    run.append({name: column[begin:end] for name, column in piece.items()})
                    if run[0]["age"][0] == 0:
                        yield joined(run)
                    begin, run = end, []
                run.append({name: column[begin:] for name, column in piece.items()})

    # Saving: into a dictionary, or into append-only files.

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
        first = [first for first, _ in self._storage.logs()]
        slots = [joined(self._storage.pieces(each)) for each in first]
        of_logs = {"first": first, "slots": slots} if self.num_envs > 1 else {"first": first[0], "slots": slots[0]}
        return {**super().state_dict(), **of_logs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._check_facts(state)
        self.clear()
        of_logs = state["first"], state["slots"]
        for first, slots in zip(*of_logs, strict=True) if self.num_envs > 1 else [of_logs]:
            if slots:
                self._storage.put(first, slots)
        self._restore(state, state["snapshot"])

    def _range(self, number: int) -> tuple[int, int]:
        return self._storage.oldest, self._storage.head

    def _write_entries(self, directory: Path) -> list[Segment]:
        self._segments = self._storage.write(directory, self._segments)
        return self._segments

    def _read(self, directory: Path, number: int, listed: Sequence[Segment], counters: Mapping[str, Any]) -> None:
        self._segments = self._storage.read(directory, listed, counters, self.clear)

    def _after_load(self) -> None:
        self.end_running()


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1 transition, got {batch_size}")


def create_replay(
    observation_space: gym.Space[Any],
    *,
    extras: Dict | None = None,
    selector: str | Callable[..., Selector] = "uniform",
    eviction: Literal["oldest", "reservoir"] = "oldest",
    capacity: int | None = None,
    replay_bytes: int | None = None,
    action: Column = WHOLE_NUMBER,
    num_envs: int = 1,
    compression: Literal["lz4"] | None = None,
    batch_size: int = 32,
    seed: int = 0,
    **further: Any,
) -> Replay:
    """Make an empty replay of n-step transitions.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of the policy's extras; None without extras.
        selector: how transitions are drawn: "uniform", "prioritized", or a function that makes a `Selector`.
        eviction: which transition is dropped when the replay is full, the "oldest" or a random transition ("reservoir":
            see `Reservoir` for what it costs).
        capacity: slots of a ring, of which an episode of T decisions takes T + 1; transitions of a reservoir. None for
            1,000,000, or for what `replay_bytes` holds.
        replay_bytes: memory in the place of `capacity`: the most slots whose `Replay.nbytes` is no more, that of the
            selector included; None for `capacity`, and where observations are packed.
        action: shape and dtype of a stored action (`agents.spaces.actions`).
        num_envs: environments, each of which has an equal share of the capacity, which is rounded down to a multiple of
            them; 1 in a reservoir.
        compression: "lz4" keeps observations of 256 bytes and more packed, which takes Atari's frames a ninth to a
            twenty-third of the memory and batches three times as long (benchmarks/README.md); batches, states and files
            are those of an unpacked replay. None in a reservoir.
        batch_size: transitions in a batch unless `sample` is given another number.
        seed: of the draws and, in a reservoir, of the eviction, each with a generator of its own.
        further: the settings of `NStep` (in a reservoir stacks are of 1, and there is no window), and the arguments of
            the selector, such as those of `Prioritized`.

    Raises:
        DependencyNotInstalled: the library of the compression is missing.
        TypeError: an argument that the selector does not have.
        ValueError: a space that cannot be stored, an unknown selector or eviction, another selector than "uniform" in a
            reservoir, or an argument out of its range.
    """
    of_steps = {each.name for each in fields(NStep)}
    n_step = NStep(**{name: value for name, value in further.items() if name in of_steps})
    of_selector = {name: value for name, value in further.items() if name not in of_steps}
    if eviction not in ("oldest", "reservoir"):
        raise ValueError(f"eviction must be 'oldest' or 'reservoir', got {eviction!r}")
    if selector == "uniform" and of_selector:
        raise TypeError(f"{', '.join(of_selector)} must not be given where selector='uniform'")
    schema = TransitionSchema(observation_space, extras, action)
    made = make_selector(selector, of_selector) if eviction == "oldest" else Uniform()
    if replay_bytes is not None:
        there = {"a size in bytes": True, "compression": compression is not None}
        refuse(there, {"replay_bytes": replay_bytes, "capacity": capacity})
        kind, least = (Ring, n_step.reach + n_step.update_horizon) if eviction == "oldest" else (Reservoir, 1)
        capacity = _capacity_of(replay_bytes, kind.slot_bytes(schema), made, num_envs, least)
    elif capacity is None:
        capacity = 1_000_000
    if eviction == "oldest":
        ring = Ring(schema, n_step, capacity, num_envs=num_envs, compression=compression)
        return Replay(ring, made, batch_size=batch_size, seed=seed)
    there = {"a reservoir": True, "an uneven selector": selector != "uniform"}
    of_ring = {"num_envs": num_envs, "compression": compression, "eviction": eviction}
    refuse(there, of_ring, selector=selector)
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


def make_selector(selector: Any, arguments: Mapping[str, Any]) -> Selector:
    """Make a selector from its name, or by its factory.

    Raises:
        ValueError: It is neither.
    """
    factory = SELECTORS.get(selector) if isinstance(selector, str) else selector
    made = factory(**arguments) if callable(factory) else None
    if not isinstance(made, Selector):
        names = ", ".join(map(repr, SELECTORS))
        raise ValueError(f"selector must be {names}, or make a Selector, such as its class, got {selector!r}")
    return made
