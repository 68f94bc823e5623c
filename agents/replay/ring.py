"""A uniform replay memory that keeps single observations in a ring and builds stacks when it samples.

An episode is a run of consecutive slots o_0 .. o_n. Every slot but the last holds an observation and the action taken
on it; the last holds the final observation alone. Slots are numbered from 0 for ever; slot g lies at position
g mod capacity, so the live slots are the newest `capacity` of them.

Two things break the pattern, both of a replay that comes from files. Slots whose file was damaged are lost: they end
the run of slots before them without a last one, and what comes after has no beginning. And an episode that was under
way when the files were written is over: its last slot holds an action too, of which nobody knows what it led to, so
that slot serves as the final observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agents.replay.log.saved import SavedReplay
from agents.replay.log.segments import Arrays, Segment
from agents.replay.observations import ObservationArrays

# What a slot holds: an action, one that terminated the episode, no action, nothing: its file was damaged.
_STEP, _TERMINAL, _FINAL, _LOST = 0, 1, 2, 3
_PIECE = 4096  # slots that go to or come from a file at a time, which bounds the memory a load needs


class RingReplay(SavedReplay):
    """Uniform experience replay (Mnih et al. 2015, Methods, Algorithm 1) with n-step returns (Sutton 1988).

    A sampled transition at decision t with m <= `update_horizon` steps has the reward
    sum_{i<m} gamma^{c_i} r_{t+i} and the discount gamma^{c_m}, or 0 if the episode terminated within those steps.
    The exponent c_i counts the decisions (c_i = i) or the frames (the sum of the first i intervals). m is smaller
    than `update_horizon` only at the end of an episode.

    A transition is valid when its steps are complete (all of them stored, or the episode at its end) and no slot
    that its stack needs has been overwritten. Memory is touched only as the ring fills.
    """

    def __init__(
        self,
        observation_shape: Any,
        observation_dtype: Any,
        *,
        capacity: int = 1_000_000,
        stack_size: int = 1,
        update_horizon: int = 1,
        gamma: float = 0.99,
        discount_by: Literal["decision", "frame"] = "decision",
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        """Makes an empty ring.

        Args:
            observation_shape: shape of one observation, such as `[H, W]`; for a Dict space, a mapping of them by key
                (`observation_schema` makes both arguments from a space).
            observation_dtype: dtype of one observation; for a Dict space, a mapping alike.
            capacity: slots in the ring; an episode of T transitions takes T + 1 slots.
            stack_size: observations in a stack, k.
            update_horizon: decisions in a return, n.
            gamma: discount of one decision or one frame, in [0, 1].
            discount_by: what `gamma` discounts, a "decision" or a "frame".
            batch_size: transitions in a sample unless `sample` is told otherwise.
            seed: seed of the sampling.

        Raises:
            ValueError: an argument is out of its range.
        """
        self._capacity, self._stack, self._horizon = capacity, stack_size, update_horizon
        self._gamma, self._discount_by, self._batch_size = gamma, discount_by, batch_size
        self._check_arguments()
        self._observations = ObservationArrays(observation_shape, observation_dtype, capacity)
        self._arrays = self._observations.arrays
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._allocate()
        self._reset(head=0, add_count=0)

    def _check_arguments(self) -> None:
        _at_least("stack_size", self._stack, 1, "observation")
        _at_least("update_horizon", self._horizon, 1, "decision")
        _at_least("capacity", self._capacity, self._stack + self._horizon, "slots (stack_size + update_horizon)")
        _at_least("batch_size", self._batch_size, 1, "transition")
        if not 0.0 <= self._gamma <= 1.0:
            raise ValueError(f"gamma must lie in [0, 1], got {self._gamma}")
        if self._discount_by not in ("decision", "frame"):
            raise ValueError(f"discount_by must be 'decision' or 'frame', got {self._discount_by!r}")

    def _allocate(self) -> None:
        # np.zeros asks for zeroed pages, which take no memory before they are written.
        self._action = np.zeros(self._capacity, np.int64)
        self._reward = np.zeros(self._capacity, np.float32)
        self._interval = np.zeros(self._capacity, np.int32)
        self._age = np.zeros(self._capacity, np.int64)  # observations before this one in its episode
        self._kind = np.zeros(self._capacity, np.uint8)
        self._steps = np.zeros(self._capacity, np.int32)  # steps of the return from here, 0: not valid
        self._fields: Arrays = {
            **self._observations.fields("observation"),
            "action": self._action,
            "reward": self._reward,
            "interval": self._interval,
            "age": self._age,
            "kind": self._kind,
        }
        # A sample reads each stack and its next stack in one go; one step apart, they share all but one observation.
        stack = np.arange(1 - self._stack, 1)
        self._window = np.append(stack, 1 if self._horizon == 1 else stack)

    def _reset(self, head: int, add_count: int, running: bool = False) -> None:
        """Sets the counters and derives the rest from the stored slots; the next save writes every live slot."""
        self._head = head  # slots ever appended
        self._add_count = add_count
        last = (head - 1) % self._capacity
        self._next_age = int(self._age[last]) + 1 if running and self._kind[last] != _LOST else 0
        self._steps.fill(0)
        self._steps[self._live_positions()] = self._derive_steps()
        self._valid = int(np.count_nonzero(self._steps))
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        """Number of valid transitions, exactly; O(1)."""
        return self._valid

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        return self._add_count

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays of the ring take once it is full."""
        return sum(array.nbytes for array in self._fields.values()) + self._steps.nbytes

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Slot numbers of all valid transitions `[len(self)]`, ascending; reads the whole ring."""
        return np.sort(self._slot_numbers(np.flatnonzero(self._steps)))

    # Writing.

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Stores one transition; within an episode each must follow the one before.

        Args:
            transition: "observation" (the newest one alone, `[*observation_shape]`), "action" (int), "reward"
                (float), "interval" (int, frames), "terminal" (bool: no bootstrap), "truncated" (bool: bootstrap on
                the final observation), and "next_observation", read only where the episode ends here.

        Raises:
            KeyError: a key is missing.
            ValueError: an observation has another shape or kind than the ring's, or the interval is negative.
        """
        terminal = bool(transition["terminal"])
        ended = terminal or bool(transition["truncated"])
        observation = self._observations.check("observation", transition["observation"])
        final = self._observations.check("next_observation", transition["next_observation"]) if ended else None
        interval = int(transition["interval"])
        _at_least("interval", interval, 0, "frames")
        kind = _TERMINAL if terminal else _STEP
        self._append(observation, int(transition["action"]), float(transition["reward"]), interval, kind)
        self._add_count += 1
        if final is not None:
            self._append(final, 0, 0.0, 0, _FINAL)

    def cut(self, observation: Any) -> None:
        """Ends the running episode, if one runs, as a truncation would have: what followed its last transition is lost.

        Args:
            observation: what the last transition led to.

        Raises:
            ValueError: it has another shape or kind than the ring's.
        """
        final = self._observations.check("observation", observation)
        if self._next_age:
            self._append(final, 0, 0.0, 0, _FINAL)

    def _append(self, observation: list[npt.NDArray[Any]], action: int, reward: float, frames: int, kind: int) -> None:
        if self._head >= self._capacity:
            self._forget_oldest()
        position = self._head % self._capacity
        if len(observation) == 1:  # a loop over one would take a tenth of the whole call
            self._arrays[0][position] = observation[0]
        else:
            for array, value in zip(self._arrays, observation, strict=True):
                array[position] = value
        self._action[position] = action
        self._reward[position] = reward
        self._interval[position] = frames
        self._age[position] = self._next_age
        self._kind[position] = kind
        self._head += 1
        self._complete_steps(kind)
        self._next_age = 0 if kind == _FINAL else self._next_age + 1

    def _forget_oldest(self) -> None:
        """Ends the validity of every transition whose stack needs the slot that is about to be overwritten."""
        oldest = self._head - self._capacity
        age = self._age.item(oldest % self._capacity)
        # The first observation of an episode is in k stacks; of those with any other, only the newest is still valid.
        for later in range(0 if age == 0 else self._stack - 1, self._stack):
            position = (oldest + later) % self._capacity
            same_episode = self._age.item(position) == age + later
            if same_episode and self._steps.item(position):
                self._make_invalid(position)

    def _complete_steps(self, kind: int) -> None:
        """Makes the transitions valid whose steps the newest slot completes; the ring is large enough for them."""
        age, last = self._next_age, self._head - 1
        if age >= self._horizon:
            self._make_valid((last - self._horizon) % self._capacity, self._horizon)
        if kind == _FINAL:
            for steps in range(1, min(self._horizon - 1, age) + 1):
                self._make_valid((last - steps) % self._capacity, steps)

    def _make_valid(self, position: int, steps: int) -> None:
        """Lets a transition be sampled, with a return of so many steps."""
        self._steps[position] = steps
        self._valid += 1

    def _make_invalid(self, position: int) -> None:
        """Lets a transition be sampled no more."""
        self._steps[position] = 0
        self._valid -= 1

    def _live_positions(self) -> npt.NDArray[np.int64]:
        """Positions of the live slots, oldest slot first."""
        return np.arange(self._oldest(), self._head) % self._capacity

    def _derive_steps(self) -> npt.NDArray[np.int64]:
        """The steps of every live slot, oldest first, from the stored slots alone."""
        positions = self._live_positions()
        age, order = self._age[positions], np.arange(len(positions))
        lost = self._kind[positions] == _LOST
        begins = age == 0
        begins[1:] |= lost[:-1]
        starts = np.flatnonzero(begins)
        ends = np.append(starts, len(positions)) - 1  # newest slot of each run
        lengths = np.diff(ends, prepend=-1)
        begin, end = np.repeat(ends - lengths + 1, lengths), np.repeat(ends, lengths)
        # A run ends with the final observation or, without one, before another: it was under way in an older process.
        ended = (self._kind[positions] == _FINAL) | np.append(~lost[1:], self._next_age == 0)[: len(positions)]
        complete = ended[end] | (end - order >= self._horizon)
        whole_stack = order - begin >= np.minimum(age, self._stack - 1)
        return np.where(complete & whole_stack & ~lost, np.minimum(end - order, self._horizon), 0)

    # Sampling.

    def sample(self, batch_size: int | None = None) -> dict[str, Any]:
        """Draws transitions independently and uniformly from all valid ones.

        The arrays are fresh at every call. "observation" and "next_observation" are views of one array and
        overlap where `update_horizon` is 1 (`[B, k + 1, *observation_shape]` then): do not write into them.

        Args:
            batch_size: number of transitions B, by default the constructor's.

        Returns:
            "observation" `[B, k, *observation_shape]`, the last k observations of the episode, oldest first, zeros
            before its first; "action" int64 `[B]`; "reward" float32 `[B]`, the n-step sum; "discount" float32
            `[B]` of the bootstrap value; "next_observation" as "observation", at the end of the n steps; "interval"
            int64 `[B]`, frames of the first step; "index" int64 `[B]`, slot numbers.

        Raises:
            ValueError: no transition is valid yet, or `batch_size` is less than 1.
        """
        return self._transitions(self._draw(batch_size))

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int | None = None) -> dict[str, Any]:
        """Puts given transitions together.

        Args:
            slots: where they begin, `[B]`, each one of `valid_slots`.
            update_horizon: n, at least 1, where it is to be less than the constructor's.

        Returns:
            As `sample`.

        Raises:
            ValueError: no valid transition begins at one of the slots.
        """
        valid = self._are_valid(slots)
        if not valid.all():
            raise ValueError(f"slots must be those of valid transitions, got {slots[~valid][0]}")
        return self._transitions(slots % self._capacity, update_horizon)

    def _are_valid(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether a valid transition begins at each of the slots, which may be long overwritten."""
        live = (slots >= self._oldest()) & (slots < self._head)
        return live & (self._steps.take(slots % self._capacity) > 0)

    def _transitions(self, positions: npt.NDArray[np.int64], horizon: int | None = None) -> dict[str, Any]:
        """Puts the transitions at `positions` together."""
        steps = self._steps.take(positions)
        if horizon is not None:
            steps = np.minimum(steps, horizon)
        observation, next_observation = self._stacks(positions, steps)
        reward, discount = self._returns(positions, steps)
        return {
            "observation": observation,
            "action": self._action.take(positions),
            "reward": reward,
            "discount": discount,
            "next_observation": next_observation,
            "interval": self._interval.take(positions).astype(np.int64),
            "index": self._slot_numbers(positions),
        }

    def _draw(self, batch_size: int | None) -> npt.NDArray[np.int64]:
        """Positions of valid transitions, drawn for a batch."""
        batch_size = self._batch_size if batch_size is None else batch_size
        _at_least("batch_size", batch_size, 1, "transition")
        if not self._valid:
            raise ValueError("the replay holds no valid transition yet, observe more before sampling")
        return self._draw_positions(batch_size)

    def _draw_positions(self, batch_size: int) -> npt.NDArray[np.int64]:
        live = min(self._head, self._capacity)
        positions = self._rng.integers(live, size=batch_size)
        if self._steps.take(positions).all():
            return positions
        # Drawing anew what is not valid leaves each draw uniform over the valid positions.
        while (rejected := np.flatnonzero(self._steps.take(positions) == 0)).size:
            positions[rejected] = self._rng.integers(live, size=rejected.size)
        return positions

    def _slot_numbers(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The live slot at each position: the newest one not beyond the head."""
        return self._head - 1 - (self._head - 1 - positions) % self._capacity

    def _stacks(self, positions: npt.NDArray[np.int64], steps: npt.NDArray[np.int32]) -> tuple[Any, Any]:
        """The stacks at `positions` and `steps` later, two views of one array, zeros before the episode's first."""
        around = positions[:, None] + self._window
        if self._horizon > 1:
            around[:, self._stack :] += steps[:, None]
        age = self._age.take(positions)
        begins = age.min() < self._stack - 1
        windows = []
        for array in self._arrays:
            window = array.take(around, axis=0, mode="wrap")
            if begins:
                self._blank(window, age, steps)
            windows.append(window)
        observation = self._observations.nest([window[:, : self._stack] for window in windows])
        return observation, self._observations.nest([window[:, -self._stack :] for window in windows])

    def _blank(self, window: npt.NDArray[Any], age: npt.NDArray[np.int64], steps: npt.NDArray[np.int32]) -> None:
        """Sets to zero what lies before the episode's first observation."""
        missing = self._stack - 1 - age
        for row in np.flatnonzero(missing > 0):
            window[row, : missing[row]] = 0
            if self._horizon > 1:
                window[row, self._stack : self._stack + max(0, missing[row] - steps[row])] = 0

    def _returns(
        self, positions: npt.NDArray[np.int64], steps: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """The discounted reward sums and the discounts of the bootstrap values, summed in double precision."""
        if self._horizon == 1 and self._discount_by == "decision":
            terminal = self._kind.take(positions) == _TERMINAL
            return self._reward.take(positions), np.where(terminal, np.float32(0), np.float32(self._gamma))
        reward = np.zeros(len(positions))
        discount = np.ones(len(positions))
        for step in range(self._horizon):
            at, taken = positions + step, steps > step
            reward += np.where(taken, discount * self._reward.take(at, mode="wrap"), 0.0)
            discount *= np.where(taken, self._step_discount(at), 1.0)
        terminal = self._kind.take(positions + steps - 1, mode="wrap") == _TERMINAL
        discount[terminal] = 0.0
        return reward.astype(np.float32), discount.astype(np.float32)

    def _step_discount(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.floating[Any]] | float:
        if self._discount_by == "decision":
            return self._gamma
        return self._gamma ** self._interval.take(positions, mode="wrap")

    # Checkpointing.

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without the seed."""
        return {
            **self._observations.facts(),
            "capacity": self._capacity,
            "stack_size": self._stack,
            "update_horizon": self._horizon,
            "gamma": self._gamma,
            "discount_by": self._discount_by,
            "batch_size": self._batch_size,
        }

    def _counters(self) -> dict[str, Any]:
        return {
            "facts": self.facts(),
            "head": self._head,
            "add_count": self._add_count,
            "running": self._next_age > 0,
            "generator": self._rng.bit_generator.state,
        }

    def _restore(self, counters: Mapping[str, Any], moment: Arrays) -> None:
        self._reset(counters["head"], counters["add_count"], counters["running"])
        self._rng.bit_generator.state = counters["generator"]

    def _lose(self, first: int, stop: int) -> None:
        positions = np.arange(first, stop) % self._capacity
        for array in self._fields.values():
            array[positions] = 0
        self._kind[positions] = _LOST

    def _end_running(self) -> None:
        if not self._next_age:
            return
        self._next_age = 0
        live, steps = self._live_positions(), self._derive_steps()
        for new in np.flatnonzero((self._steps[live] == 0) & (steps > 0)):
            self._make_valid(int(live[new]), int(steps[new]))

    def clear(self) -> None:
        """Forgets every transition; the generator goes on from where it is."""
        self._reset(head=0, add_count=0)

    def _oldest(self) -> int:
        return max(0, self._head - self._capacity)

    def _names(self) -> list[str]:
        return list(self._fields)

    def _pieces(self, first: int) -> Iterator[Arrays]:
        """The slots from `first` on as views, cut so that none crosses the ring's seam."""
        while first < self._head:
            start = first % self._capacity
            stop = min(start + _PIECE, self._capacity, start + self._head - first)
            yield {name: array[start:stop] for name, array in self._fields.items()}
            first += stop - start

    def _put(self, first: int, piece: Arrays) -> int:
        count = len(piece["kind"])
        positions = np.arange(first, first + count) % self._capacity
        for name, array in self._fields.items():
            array[positions] = piece[name]
        return count


def _at_least(name: str, value: int, least: int, unit: str) -> None:
    if value < least:
        raise ValueError(f"{name} must be >= {least} {unit}, got {value}")
