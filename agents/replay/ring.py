"""The ring: the newest transitions, as single observations in columns, with the valid ones marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.replay.log import Log, action_of, blank_columns, numbers_of, row_bytes
from async_wrappers.agents.replay.segments import Segment
from async_wrappers.agents.replay.selectors import Positions
from async_wrappers.agents.spaces.schema import Arrays, TransitionSchema

if TYPE_CHECKING:
    from async_wrappers.agents.replay.n_step import NStep

# == What is stored ==
# An agent that reads stacks of k observations and learns from n-step returns needs, of the transition at decision t,
# the observations o_{t-k+1} .. o_t, the action a_t, the rewards r_t .. r_{t+n-1} and the observations
# o_{t+n-k+1} .. o_{t+n}. Stored whole, every observation would lie in memory 2 k times, 8 times for Atari. The ring
# stores each observation once, and a transition is no more than a place where reading begins.
# An assembler (`n_step.py`) reads the stacks and sums up the rewards when a batch is drawn.
#
# == Slots ==
# An episode of T decisions is a run of T + 1 consecutive slots. Each but the last holds an observation and the decision
# made on it; the last holds the final observation alone. Two episodes, the first of three decisions and terminated:
#
#     slot           0     1     2         3      |  4     5     6     ...
#     observation    o_0   o_1   o_2       o_3    |  o_0   o_1   o_2
#     action         a_0   a_1   a_2       -      |  a_0   a_1   a_2
#     age            0     1     2         3      |  0     1     2
#     kind           STEP  STEP  TERMINAL  FINAL  |  STEP  STEP  STEP
#
# The age counts the observations before this one in its episode: a slot of age 0 begins an episode. The final slot
# costs one observation per episode. In exchange every stack and every return is read in the same way, whether the
# episode is running, terminated or was truncated: a return bootstraps on the observation at its end, with discount 0 if
# a TERMINAL slot lies on the way.
#
# Slots are numbered from 0 for ever. Slot g lies at position g mod C of arrays of C = `capacity` rows, so the live
# slots are the newest C. The number is a transition's name ("index" in a batch): by it a priority that comes too late
# is recognised, though its position holds another transition by then.
#
# == Validity ==
# A transition is valid, so it can be drawn, when nothing that it is read from is missing:
#
#   it is complete      its n decisions are stored, or its episode has ended and at least one is
#   its stack is whole  the min(age, k - 1) slots before it are live; before an episode's first observation are zeros
#
# A window of the K actions before an observation (`n_step.py`) reaches K slots back, as a stack of K + 1 observations
# does: below, k is the larger of the two.
#
# `steps[position]` is the number m <= n of decisions in its return, and 0 where no valid transition begins. It is
# brought up to date as slots are written, so that a draw looks at one number and never at an episode's boundaries.
# Both changes cost O(1) per slot, whatever the capacity:
#   A new slot completes one transition, the one n slots before it. A FINAL slot completes up to n - 1 more, whose
#   returns end with the episode: m = 1 .. n - 1.
#
#   An overwritten slot spoils the stacks that it is in. An episode's first observation is in the stacks of the first k
#   decisions, and all of them may still be valid. Any other observation is in k stacks as well, but those of its own
#   and the next k - 2 decisions also need the slot before it, which has been overwritten already: only the decision
#   k - 1 later is still valid.
#
# Nothing of this is saved: `steps` follows from ages and kinds alone, and is derived when a ring is loaded.
#
# == What breaks the pattern ==
# One thing, in a ring that comes from files. An episode that was under way when the files were written is over, because
# the process that played it is gone. Its last slot holds an action, but that action's outcome is unknown, so the slot
# serves as the final observation. Joined to the next observation that is stored it would make a transition that never
# happened.
#
# == Several environments ==
# A ring of E environments is E *lanes*: the arrays keep C rows, lane e has those from e C/E on, and each lane is a ring
# as described here, with a head and an age of its own. The environment's number `env_id` is then position // (C/E),
# so it takes no column and no byte, and one environment is exactly the ring above.
#
# Consecutive observations of one environment are consecutive rows of its lane, from which stacks, returns and sequences
# are read. `steps`, the selector and an assembler's reads take positions, and see no lanes except where a read wraps
# around: at a lane's end instead of the arrays' end.
#
# Slot g of lane e gets the number g E + e, which is g for one environment. A lane that is never written again, for
# demonstrations, is a part that is never evicted. To the files each lane is a log of its own, and a save writes the new
# slots of all of them into one file. The price: every environment has the same share of the memory, however fast it
# plays.
#
# Rows of several environments come as a block, and are written in arrays (`extend`): all rows at once, then the final
# slots of those that end. This leaves what the same rows leave one by one (`observe`), which is faster for one row; the
# selector is notified of all that became valid in the order of the rows.
#
# A transition's priority at entry
# --------------------------------
# A transition becomes valid n slots after its own, so its priority comes with the slot that completes it. An actor then
# has all inputs of the priority: the values of the observation in that slot, which it acts on, and those of the
# decision n steps ago. A final slot completes up to n transitions, and brings a priority for each.


# What a slot holds: a decision, one that terminated the episode, no decision.
STEP, TERMINAL, FINAL = 0, 1, 2

_AGE, _STEPS = np.dtype(np.int64), np.dtype(np.int32)


class Ring(Log):
    """Columns of the newest `capacity` slots, a lane for each environment; the comment above explains it.

    Memory is touched only as the ring fills.

    Args:
        schema: the fields of a transition.
        assembler: puts batches together; how far it reads decides what is valid.
        capacity: slots of all lanes together, rounded down to a multiple of `num_envs`: lanes are of one length; an
            episode of T decisions takes T + 1.
        num_envs: environments, E.
        compression: "lz4" keeps observations packed (`Packed`); None keeps them as they are.

    Attributes:
        add_count: transitions ever observed.
        count: transitions that are valid now.
        written: live slots.
        observation: the columns of the observation, `[capacity, *shape]` each, in the order of the schema.
        extras: the columns of the extras, in the order of the schema; none without extras.
        action: `[capacity, ...]`, as the schema stores an action.
        reward: float32 `[capacity]`.
        interval: int32 `[capacity]`, frames.
        age: int64 `[capacity]`, observations before this one in its episode.
        kind: uint8 `[capacity]`, `STEP`, `TERMINAL` or `FINAL`.
        steps: int32 `[capacity]`, decisions in the return of the valid transition that begins here; 0: none does.

    Raises:
        ValueError: an argument is out of its range; the capacity, if a lane is less than one transition needs.
        DependencyNotInstalled: the library of the compression is missing.
    """

    count = add_count = written = 0

    def __init__(
        self,
        schema: TransitionSchema,
        assembler: NStep,
        capacity: int = 1_000_000,
        *,
        num_envs: int = 1,
        compression: Literal["lz4"] | None = None,
    ) -> None:
        self._stack, self._horizon = assembler.reach, assembler.update_horizon
        if num_envs < 1:
            raise ValueError(f"num_envs must be >= 1 environment, got {num_envs}")
        if compression not in (None, "lz4"):
            raise ValueError(f"compression must be 'lz4' or None, got {compression!r}")
        least, of_what = self._stack + self._horizon, "stack_size + update_horizon"
        if self._stack > assembler.stack_size:
            of_what = "action_window + 1 + update_horizon"
        if capacity < least * num_envs:
            of_what = of_what if num_envs == 1 else f"({of_what}) * num_envs"
            raise ValueError(f"capacity must be >= {least * num_envs} slots ({of_what}), got {capacity}")
        self._lane = capacity // num_envs  # slots of a lane
        self.capacity = capacity = self._lane * num_envs
        self.schema, self.num_envs, self._assembler = schema, num_envs, assembler
        made = blank_columns(capacity, schema.columns, schema.observation.columns if compression else ())
        of_extras = schema.extras.columns if schema.extras else {}
        self.observation = [made[name] for name in schema.observation.columns]
        self.extras = [made[name] for name in of_extras]
        self._check_observation = schema.observation.check
        self._check_extras = schema.extras.check if schema.extras else None
        self.action, self.reward, self.interval = made["action"], made["reward"], made["interval"]
        self.age, self.kind, self.steps = np.zeros(capacity, _AGE), made.pop("kind"), np.zeros(capacity, _STEPS)
        self._columns = {name: made[name] for name in made if name not in of_extras}
        self._columns |= {"age": self.age, "kind": self.kind, **{name: made[name] for name in of_extras}}
        # Of each lane: slots ever written, which is the next one's number in the lane, and the age of the next one.
        self._heads, self._next_age = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        # The same memory, for one number at a time: that is twice as fast as through an array.
        self._head_of, self._next_age_of = self._heads.data, self._next_age.data
        self._age_at, self._steps_at = self.age.data, self.steps.data
        self._numbers_at: list[Any] = [each.data for each in (self.reward, self.interval, self.kind)]
        self._action_at: Any = self.action if self.schema.action.shape else self.action.data
        self.clear()

    def _derive(self) -> None:
        """Derive validity from the counters and the stored slots."""
        self.written = int(np.minimum(self._heads, self._lane).sum())
        self.steps.fill(0)
        self.steps[self.live_positions()] = self._derive_steps()
        self.count = int(np.count_nonzero(self.steps))

    @property
    def head(self) -> int:  # type: ignore[override]  # of several lanes
        """One more than the largest number of a slot ever written."""
        return max(stop for _, stop in self.logs()) - self.num_envs + 1

    @property
    def oldest(self) -> int:
        """The least number of a live slot, or of the next one where a lane has none."""
        return min(first for first, _ in self.logs())

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays of the ring take once it is full; of packed observations, those that are stored now."""
        return super().nbytes + self.steps.nbytes

    @staticmethod
    def slot_bytes(schema: TransitionSchema) -> int:
        """Return the bytes of a slot whose observation is not packed; `nbytes` is `capacity` times as many."""
        return row_bytes(schema.columns) + _AGE.itemsize + _STEPS.itemsize

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without the compression, which changes nothing else."""
        own = {"capacity": self.capacity} | ({"num_envs": self.num_envs} if self.num_envs > 1 else {})
        return {**self.schema.as_dict(), **own, **self._assembler.facts()}

    # Writing.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        """Store one transition; see `Replay.observe`."""
        # All is read and checked before anything is written, so that a refused transition leaves no trace.
        env_id = self._check_env_id(env_id) if env_id else 0
        terminal = bool(transition["terminal"])
        ended = terminal or bool(transition["truncated"])
        observation = self._check_observation(transition["observation"])
        final = self._check_observation(transition["next_observation"], "next_observation") if ended else None
        interval = int(transition["interval"])
        if interval < 0:
            raise ValueError(f"interval must be >= 0 frames, got {interval}")
        extras = self._check_extras(transition["extras"]) if self._check_extras else ()
        action, reward = transition["action"], float(transition["reward"])
        action = action_of(action, self.schema.action) if self.schema.action.shape else int(action)
        kind = TERMINAL if terminal else STEP
        priority, tails = transition.get("priority"), transition.get("final_priority") if ended else None
        if priority is not None:
            priority = self._check_priority("priority", priority, ()).item()
        if tails is not None:
            tails = self._check_priority("final_priority", tails, (self._horizon,)).tolist()
        self._append(env_id, observation, action, reward, interval, kind, extras, priority)
        self.add_count += 1
        if final is not None:
            self._append(env_id, final, 0, 0.0, 0, FINAL, priority=tails[-1] if tails else None, tails=tails)

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End the running episode, if one runs, as a truncation does; see `Replay.cut`."""
        env_id = self._check_env_id(env_id)
        final = self._check_observation(observation)
        if self._next_age_of[env_id]:
            self._append(env_id, final, 0, 0.0, 0, FINAL)

    def _append(
        self,
        env_id: int,
        observation: list[npt.NDArray[Any]],
        action: Any,
        reward: float,
        interval: int,
        kind: int,
        extras: Sequence[npt.NDArray[Any]] = (),
        priority: float | None = None,
        tails: Sequence[float] | None = None,
    ) -> None:
        """Write the next slot of a lane; `priority` and `tails` are those of the transitions that it completes."""
        slot, age, lane = self._head_of[env_id], self._next_age_of[env_id], self._lane
        begin = env_id * lane
        position = begin + slot % lane
        if slot >= lane:
            self._forget(position, begin)
        else:
            self.written += 1
        # A loop over one array would take a tenth of the whole call.
        if len(observation) == 1:
            self.observation[0][position] = observation[0]
        else:
            for array, value in zip(self.observation, observation, strict=True):
                array[position] = value
        rewards, intervals, kinds = self._numbers_at
        self._action_at[position] = action
        rewards[position] = reward
        intervals[position] = interval
        kinds[position] = kind
        self._age_at[position] = age
        if self.extras:
            # A final slot has no decision: zeros, so that the columns hold no rest of an overwritten one.
            values: list[Any] = list(extras) or [0] * len(self.extras)
            for array, value in zip(self.extras, values, strict=True):
                array[position] = value
        self._head_of[env_id] = slot + 1
        # The slot completes the transition n before it; a final slot those between as well, with what is left of them.
        horizon = self._horizon
        if age >= horizon:
            self._make_valid(begin + (slot - horizon) % lane, horizon, priority)
        if kind == FINAL:
            for steps in range(1, min(horizon - 1, age) + 1):
                self._make_valid(begin + (slot - steps) % lane, steps, tails[steps - 1] if tails else None)
            self._next_age_of[env_id] = 0
        else:
            self._next_age_of[env_id] = age + 1

    def _make_valid(self, position: int, steps: int, priority: float | None = None) -> None:
        self._steps_at[position] = steps
        self.count += 1
        if priority is None:
            self.selector.became_valid(position)
        else:
            self.selector.all_became_valid(np.array([position]), np.array([priority]))

    def _forget(self, oldest: int, begin: int) -> None:
        """End the validity of every transition whose stack needs the slot that is about to be overwritten.

        Args:
            oldest: the position of that slot.
            begin: the first position of its lane.
        """
        lane, steps_at, age_at = self._lane, self._steps_at, self._age_at
        age = age_at[oldest]
        # The first observation of an episode is in k stacks; of those with any other, only the newest is still valid.
        for later in range(0 if age == 0 else self._stack - 1, self._stack):
            position = begin + (oldest - begin + later) % lane
            same_episode = age_at[position] == age + later
            if same_episode and steps_at[position]:
                steps_at[position] = 0
                self.count -= 1
                self.selector.became_invalid(position)

    def _check_env_id(self, env_id: int) -> int:
        if not 0 <= env_id < self.num_envs:
            raise ValueError(f"env_id must lie in [0, {self.num_envs}), got {env_id}")
        return int(env_id)

    def _check_priority(self, name: str, value: Any, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        priority = np.asarray(value, np.float64)
        if priority.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {priority.shape}")
        self.selector.check_entering(priority)
        return priority

    # Writing a block: the same as above in arrays, a row for each of R lanes.

    def extend(self, block: Mapping[str, Any]) -> None:
        """Store a transition of each of several environments; see `Replay.extend`."""
        env_ids = self._check_env_ids(np.asarray(block["env_ids"]))
        rows = len(env_ids)
        terminal = numbers_of(block, "terminal", rows, np.bool_)
        ended = (terminal | numbers_of(block, "truncated", rows, np.bool_)).nonzero()[0]
        observation = self.schema.observation.check_rows(block["observation"], rows)
        action = numbers_of(block, "action", rows, self.schema.action.dtype, self.schema.action.shape)
        reward, interval = numbers_of(block, "reward", rows, np.float32), numbers_of(block, "interval", rows, np.int32)
        if np.count_nonzero(interval < 0):
            raise ValueError(f"interval must be >= 0 frames, got {interval.min()}")
        extras = self.schema.extras.check_rows(block["extras"], rows) if self.schema.extras else []
        priority, tails = block.get("priority"), block.get("final_priority")
        if priority is not None:
            priority = self._check_priority("priority", priority, (rows,))
        final = self._final_rows(env_ids[ended].tolist(), block["final"]) if ended.size else []
        if tails is not None:
            tails = self._tail_rows(env_ids[ended].tolist(), tails)
        kind = np.where(terminal, TERMINAL, STEP)
        came = self._append_rows(env_ids, observation, action, reward, interval, kind, extras)
        self.add_count += rows
        if not ended.size:
            self._report(came.gone, came.position, None if priority is None else priority[came.row])
            return
        then = self._append_rows(env_ids[ended], final, 0, 0.0, 0, FINAL)
        # Each row's final slot follows the row, as if the rows had come one after the other.
        order = np.concatenate([came.row, ended[then.row]]).argsort(kind="stable")
        entering = None
        if priority is not None or tails is not None:
            of_steps = np.full(len(came.row), np.nan) if priority is None else priority[came.row]
            of_ends = np.full(len(then.row), np.nan) if tails is None else tails[then.row, then.steps - 1]
            entering = np.concatenate([of_steps, of_ends])[order]
        self._report(came.gone, np.concatenate([came.position, then.position])[order], entering)
        # In a ring that holds hardly more than one transition, a row's final slot may spoil what the row completed.
        self._report(then.gone)

    def _append_rows(
        self,
        env_ids: npt.NDArray[np.int64],
        observation: list[npt.NDArray[Any]],
        action: npt.NDArray[Any] | int,
        reward: npt.NDArray[np.float32] | float,
        interval: npt.NDArray[np.int32] | int,
        kind: npt.NDArray[np.uint8] | int,
        extras: Sequence[npt.NDArray[Any]] = (),
    ) -> _Appended:
        """Write the next slot of each of R lanes; either none of them is a final slot or all are."""
        slot, age, lane, horizon = self._heads[env_ids], self._next_age[env_ids], self._lane, self._horizon
        begin = env_ids * lane
        position = begin + slot % lane
        full = (slot >= lane).nonzero()[0]
        gone = self._forget_rows(position[full], begin[full]) if full.size else full
        self.written += len(slot) - len(full)
        for array, values in zip(self.observation, observation, strict=True):
            array[position] = values
        self.action[position] = action
        self.reward[position] = reward
        self.interval[position] = interval
        self.age[position] = age
        self.kind[position] = kind
        for number, array in enumerate(self.extras):
            array[position] = extras[number] if extras else 0
        self._heads[env_ids] = slot + 1
        row, steps = (age >= horizon).nonzero()[0], np.array(horizon)
        if isinstance(kind, int):  # a final slot completes those between as well
            self._next_age[env_ids] = 0
            each = range(1, horizon)
            rows = [row, *((age >= steps).nonzero()[0] for steps in each)]
            steps = np.repeat((horizon, *each), [len(some) for some in rows])
            row = np.concatenate(rows)
        else:
            self._next_age[env_ids] = age + 1
        valid = begin[row] + (slot[row] - steps) % lane
        self.steps[valid] = steps
        self.count += len(valid)
        return _Appended(gone, row, steps, valid)

    def _forget_rows(self, oldest: Positions, begin: Positions) -> Positions:
        """Do what `_forget` does for positions `[R]` of as many lanes; return those that are no longer valid."""
        lane, age, gone = self._lane, self.age[oldest], [oldest[:0]]
        for later in range(self._stack):
            row = np.flatnonzero(age == 0) if later < self._stack - 1 else np.arange(len(age))
            position = begin[row] + (oldest[row] - begin[row] + later) % lane
            same_episode = self.age[position] == age[row] + later
            gone.append(position[same_episode & (self.steps[position] > 0)])
        positions = np.concatenate(gone)
        self.steps[positions] = 0
        self.count -= len(positions)
        return positions

    def _report(
        self, gone: Positions, came: Positions | None = None, priority: npt.NDArray[np.float64] | None = None
    ) -> None:
        """Notify the selector of the transitions that are no longer valid, then of those that became valid."""
        if gone.size:
            self.selector.all_became_invalid(gone)
        if came is not None and came.size:
            self.selector.all_became_valid(came, priority)

    def _check_env_ids(self, env_ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        if env_ids.ndim == 1 and env_ids.dtype == np.int64 and env_ids.size:  # almost always they ascend
            within = env_ids.item(0) >= 0 and env_ids.item(-1) < self.num_envs
            if within and not np.count_nonzero(env_ids[1:] <= env_ids[:-1]):
                return env_ids
        if env_ids.ndim != 1 or (env_ids.size and env_ids.dtype.kind not in "iu"):
            raise ValueError(f"env_ids must be whole numbers [R], got {env_ids.dtype} {list(env_ids.shape)}")
        if env_ids.size and not (env_ids.min() >= 0 and env_ids.max() < self.num_envs):
            wrong = env_ids[(env_ids < 0) | (env_ids >= self.num_envs)][0]
            raise ValueError(f"env_ids must lie in [0, {self.num_envs}), got {wrong}")
        ordered = np.sort(env_ids)
        if (twice := np.flatnonzero(ordered[1:] == ordered[:-1])).size:
            raise ValueError(f"env_ids must be distinct, got {ordered[twice[0]]} twice")
        return env_ids.astype(np.int64)

    def _final_rows(self, env_ids: list[int], final: Mapping[int, Any]) -> list[npt.NDArray[Any]]:
        """Return the last observation of each ended episode, `[rows, *shape]` for each column."""
        if missing := [env_id for env_id in env_ids if env_id not in final]:
            raise ValueError(f"final must hold the last observation of every episode that ends, got none of {missing}")
        rows = [self._check_observation(final[env_id], f"final[{env_id}]") for env_id in env_ids]
        return [np.stack(each) for each in zip(*rows, strict=True)]

    def _tail_rows(self, env_ids: list[int], given: Mapping[int, Any]) -> npt.NDArray[np.float64]:
        """Return the priorities that each ended episode's final slot brings, `[rows, n]`."""
        tails = np.full((len(env_ids), self._horizon), np.nan)
        for row, env_id in enumerate(env_ids):
            if env_id in given:
                tails[row] = self._check_priority(f"final_priority[{env_id}]", given[env_id], (self._horizon,))
        return tails

    def clear(self) -> None:
        """Forget every slot."""
        self._heads.fill(0)
        self._next_age.fill(0)
        self.add_count = 0
        self._derive()

    # Reading. A number below `written` stands for a live slot, in the order of the lanes.

    def logs(self) -> list[tuple[int, int]]:
        """Return, of each lane, the numbers of the oldest live slot and of the next one."""
        env_id, oldest = np.arange(self.num_envs), np.maximum(0, self._heads - self._lane)
        first, stop = oldest * self.num_envs + env_id, self._heads * self.num_envs + env_id
        return list(zip(first.tolist(), stop.tolist(), strict=True))

    def live_positions(self) -> Positions:
        """Return the positions of the live slots, lane by lane, oldest slot first."""
        live = np.minimum(self._heads, self._lane)
        env_id = np.repeat(np.arange(self.num_envs), live)
        end = np.cumsum(live)
        slot = np.arange(end[-1]) - np.repeat(end - self._heads, live)
        positions: Positions = env_id * self._lane + slot % self._lane
        return positions

    def written_positions(self, numbers: npt.NDArray[np.int64]) -> Positions:
        """Return the positions that have been written to, of which there are `written`, by their numbers `[B]`."""
        if self.num_envs == 1 or self.written == self.capacity:
            return numbers
        live = np.minimum(self._heads, self._lane)
        end = np.cumsum(live)
        env_id = end.searchsorted(numbers, side="right")
        positions: Positions = env_id * self._lane + numbers - (end - live)[env_id]
        return positions

    def reached(self, positions: Positions, origin: Positions) -> Positions:
        """Return positions that were counted from `origin`, with those beyond an end of its lane at its other end."""
        if self.num_envs == 1:
            return positions  # every read wraps around at the end of the arrays, which saves a batch 5 % of its time
        begin = origin - origin % self._lane
        wrapped: Positions = begin + (positions - begin) % self._lane
        return wrapped

    def marks(self, positions: Positions) -> npt.NDArray[Any]:
        """Return `steps` at positions `[B]`: 0 where no valid transition begins."""
        return self.steps.take(positions)

    def valid_slots(self) -> npt.NDArray[np.int64]:
        """Return the slot numbers of all valid transitions `[count]`, ascending; reads the whole ring."""
        return np.sort(self.slots_at(np.flatnonzero(self.steps)))

    def slots_at(self, positions: Positions) -> npt.NDArray[np.int64]:
        """Return the number of the live slot at each position: the newest one of its lane before the lane's head."""
        if self.num_envs == 1:
            last = self._heads.item() - 1
            return last - (last - positions) % self.capacity
        env_id = positions // self._lane
        newest = self._heads[env_id] - 1
        return (newest - (newest - positions) % self._lane) * self.num_envs + env_id

    def find(self, slots: npt.NDArray[np.int64]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Return the position of each slot `[B]`, and whether the slot lives and a valid transition begins there."""
        if self.num_envs == 1:
            head = self._heads.item()
            positions = slots % self._lane
            live = (slots >= max(0, head - self._lane)) & (slots < head)
        else:
            in_lane, env_id = np.divmod(slots, self.num_envs)
            heads = self._heads[env_id]
            positions = env_id * self._lane + in_lane % self._lane
            live = (in_lane >= np.maximum(0, heads - self._lane)) & (in_lane < heads)
        return positions, live & (self.steps.take(positions) > 0)

    def assemble(self, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Put the valid transitions at positions `[B]` together; see `Replay.sample`."""
        return self._assembler.assemble(self, positions, update_horizon)

    def _derive_steps(self) -> npt.NDArray[np.int64]:
        """Return the steps of every live slot, in the order of `live_positions`, from the stored slots alone."""
        positions = self.live_positions()
        age, order = self.age[positions], np.arange(len(positions))
        begins = age == 0
        # A run that ends without a final slot was under way in a process that is gone.
        abandoned = np.ones(len(positions), bool)
        # No run continues in the next lane, and the last run of a lane ends here unless the environment plays on.
        lane_end = np.cumsum(np.minimum(self._heads, self._lane))
        begins[lane_end[:-1][lane_end[:-1] < len(positions)]] = True
        used = self._heads > 0
        abandoned[lane_end[used] - 1] = self._next_age[used] == 0
        starts = np.flatnonzero(begins)
        ends = np.append(starts, len(positions)) - 1  # newest slot of each run
        lengths = np.diff(ends, prepend=-1)
        begin, end = np.repeat(ends - lengths + 1, lengths), np.repeat(ends, lengths)
        # A run ends with the final observation or, without one, before another: it was under way in an older process.
        ended = (self.kind[positions] == FINAL) | abandoned
        complete = ended[end] | (end - order >= self._horizon)
        whole_stack = order - begin >= np.minimum(age, self._stack - 1)
        return np.where(complete & whole_stack, np.minimum(end - order, self._horizon), 0)

    # Saving. A slot is an entry of its lane's log, and never changes once it is written. Its number is the entry's: the
    # remainder by E says which lane it is of, and numbers of one lane are E apart.

    def counters(self) -> dict[str, Any]:
        """Return the data beside the slots, as plain data: lists, an item for each lane, if there are several."""
        head, running = self._heads.tolist(), (self._next_age > 0).tolist()
        several = self.num_envs > 1
        own = {"head": head, "running": running} if several else {"head": head[0], "running": running[0]}
        return {"add_count": self.add_count, **own}

    def move_to(self, counters: Mapping[str, Any]) -> None:
        self._heads[:] = counters["head"]

    def restore(self, counters: Mapping[str, Any], snapshot: Arrays) -> None:
        """Load the counters, and derive validity from the slots that were put."""
        self.move_to(counters)
        self.add_count = counters["add_count"]
        last = np.arange(self.num_envs) * self._lane + (self._heads - 1) % self._lane
        self._next_age[:] = np.where(counters["running"], self.age[last] + 1, 0)
        self._derive()

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End the running episodes, all or those of some lanes: the last observation of each is its final one."""
        ended = slice(None) if env_ids is None else env_ids
        if not self._next_age[ended].any():
            return
        self._next_age[ended] = 0
        live, steps = self.live_positions(), self._derive_steps()
        for new in np.flatnonzero((self.steps[live] == 0) & (steps > 0)):
            self._make_valid(live.item(new), steps.item(new))

    def still_listed(self, listed: list[Segment]) -> list[Segment]:
        """Return the segments with a live slot; none if most slots are dead, and all must be rewritten."""
        kept = [segment for segment in listed if _any_after(segment, self.logs())]
        if self.num_envs == 1:
            return kept
        # Of several lanes the slowest one keeps a file, in which slots of the faster ones are long gone.
        written = sum(stop - first for segment in kept for first, stop in segment.lanes) // self.num_envs
        return kept if written <= 2 * self.capacity else []


def _any_after(segment: Segment, logs: Sequence[tuple[int, int]]) -> bool:
    """Return whether a segment holds a slot that lives."""
    each = segment.lanes or [(segment.first, segment.stop)]
    return any(stop > first and stop > oldest for (first, stop), (oldest, _) in zip(each, logs, strict=True))


class _Appended(NamedTuple):
    """The changes of validity by slots of R lanes.

    Attributes:
        gone: positions of the transitions that are no longer valid.
        row: of each transition that became valid, the row that completed it, in [0, R).
        steps: the decisions in its return; one number where it is the same of all.
        position: where it begins.
    """

    gone: Positions
    row: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    position: Positions
