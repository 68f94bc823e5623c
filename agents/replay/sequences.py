"""Sequences: consecutive rows of one environment, time first, and their assembly from transitions.

Rows
----
An episode of t decisions is a run of t + 1 rows, as in the ring (`ring.py`): each but the last holds an observation
and the decision made on it, the last one holds the final observation alone. Rows of an environment follow one another
across episodes without padding::

    row              0     1     2     3       |  4     5     6     ...
    observation      o_0   o_1   o_2   o_3     |  o_0   o_1   o_2
    previous action  -1    a_0   a_1   a_2     |  -1    a_0   a_1
    previous reward  0     r_0   r_1   r_2     |  0     r_0   r_1
    first            True                      |  True
    action, reward   a_0   a_1   a_2   0       |  a_0   a_1   a_2
    mask             1     1     1     0       |  1     1     1
    discount         g     g     0 or g  0     |  g     g     g

`discount` is gamma per decision or gamma ** interval, 0 where the episode terminated, and g where it was truncated or
cut: such a step bootstraps on the value of the final observation, in the next row. A final row has no decision: mask
and discount are 0, no step is learnt there and nothing is carried across it. It runs through a network's core as any
other row, which gives its value, and the core's state after it is discarded, since the next row is a first one.

A sequence is L rows and the observation of row L, on which the last step bootstraps; row L is the first row of the next
sequence, where they do not overlap. So each step lies in one sequence. `state` is the core's state before row 0,
computed by the weights that acted.

Rounds
------
With `decisions` a sequence is what an environment has played in a round, which is over when all environments together
have made so many. Each environment's sequence ends where its next row begins, whatever its length: this row's
observation follows the last step, and the rows after it are zeros. So one sequence of each environment is of one round,
however many final rows there are.

The batch
---------
A source of sequences returns (T = L, B sequences, k observations in a stack):

==========================  =============================================================================
observation                 [T + k, B, *shape], single observations, k - 1 before row 0; a dict for a Dict
previous_action             as stored, [T + 1, B, ...]; where there was none -1, of real-valued actions 0
previous_reward             float32 [T + 1, B]
first                       bool [T + 1, B]
action, reward, discount    as stored [T, B, ...] (`agents.spaces.actions`), float32, float32 [T, B]
mask                        float32 [T, B], 1 where a decision was made, else 0
extras                      what the policy left beside its action, [T, B, ...] by name; zeros in final rows
state                       float32 [B, S]; left out where the policy remembers nothing, S = 0
return                      float32 [T, B], the discounted sum of the episode's rewards so far,
                            g_s = discount g_{s-1} + r_s; left out where it is not asked for
index                       int64 [B], the sequence's number
replayed                    float32 [B], 1 where the sequence was drawn from a replay, 0 where it is learnt
                            from once; left out where all are
==========================  =============================================================================

Observations may be PyTorch's tensors: they are then kept and given on their device.

An extra named "version", int64 [T, B], is the number of updates of the weights that made the decision, if the policy
returns it. With memory "torso_version" is that of the features: live they are computed before core and head
(`async_wrappers.policy`).

Where a decision gives a chunk of H actions, action and previous_action have one more dimension, H, and "executed", bool
[T, B, H], marks those that were applied. A transition may have this field; without it all were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from async_wrappers.agents.losses.loss import Discounting
from async_wrappers.agents.replay.log import Packed
from async_wrappers.agents.replay.selectors import Positions
from async_wrappers.agents.spaces.schema import (
    MAX_VALUE,
    STATE,
    VALUE,
    WHOLE_NUMBER,
    Arrays,
    Column,
    TransitionSchema,
    batch_of_one,
)
from async_wrappers.array_libraries import alike, on_host, own_array, stacked

SEQUENCES_OF_A_PIECE = 64  # that go to or come from a file at a time, which bounds the memory that a load needs

Rows = npt.NDArray[Any]


class Assembly:
    """Assembles the transitions of N environments into sequences, which the module's comment describes.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of the policy's extras; its entry `STATE`, a Box `[S]`, is kept once per sequence. None
            without extras.
        emit: called with the columns `[M, ...]` of M completed sequences, by name, sequence first; it must copy them.
        num_envs: N.
        length: rows of a sequence, L.
        period: rows from the beginning of one sequence of an environment to that of the next, at most L; they share the
            other rows.
        stack_size: observations in a stack, k.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".
        with_values: whether `emit` is given the policy's values too, which transitions may have among their extras:
            `VALUE` `[M, L]` and `MAX_VALUE` `[M, L + 1]`, NaN where there are none.
        chunk: actions of a decision, H, where it gives several at once; None for one.
        action: shape and dtype of a stored action; by default whole numbers, one or, of chunks, H.
        with_returns: whether sequences have the discounted returns so far, "return".
        decisions: those of a round, of all environments together; None for sequences of L rows.

    Attributes:
        columns: shape and dtype of each array of a sequence, by name.
        schema: the fields of a row, without the state.
        observation_names: the names of the observation's columns, in the order of the schema.
        add_count: transitions ever observed.

    Raises:
        ValueError: a space cannot be stored, or an argument is out of its range.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        extras: Dict | None,
        emit: Callable[[Mapping[str, Rows]], None],
        *,
        num_envs: int = 1,
        length: int,
        period: int,
        stack_size: int = 1,
        gamma: float = 0.99,
        discount_by: Literal["decision", "frame"] = "decision",
        with_values: bool = False,
        chunk: int | None = None,
        action: Column | None = None,
        with_returns: bool = False,
        decisions: int | None = None,
    ) -> None:
        if action is None:
            action = WHOLE_NUMBER._replace(shape=() if chunk is None else (chunk,))
        _check_sizes(period, num_envs=num_envs, length=length, stack_size=stack_size)
        self.num_envs, self.length, self.stack_size = num_envs, length, stack_size
        self._emit, self._period = emit, period
        self._discounting = Discounting(gamma=gamma, discount_by=discount_by)
        self.schema = TransitionSchema(observation_space, without_state(extras))
        stored = WHOLE_NUMBER if action.dtype == WHOLE_NUMBER.dtype else action
        self._facts = TransitionSchema(observation_space, extras, stored).as_dict() | {"length": length}
        self._facts |= {"period": period, "stack_size": stack_size, "gamma": gamma, "discount_by": discount_by}
        self._facts["num_envs"] = num_envs
        optional = {"chunk": chunk, "with_values": with_values, "with_returns": with_returns, "decisions": decisions}
        self._facts |= {name: value for name, value in optional.items() if value}
        state = extras.spaces.get(STATE) if extras is not None else None
        self._state_size: int | None = None if state is None else int(state.shape[0])  # type: ignore[index]
        self.observation_names = list(self.schema.observation.columns)
        self._extra_names = list(self.schema.extras.columns) if self.schema.extras else []
        self._of_chunks = () if chunk is None else ("executed",)
        self._of_returns = ("return",) if with_returns else ()
        self._with_values = with_values
        # Where there was no action before; a network reads zeros of it.
        self._none = -1 if action.dtype == WHOLE_NUMBER.dtype else 0
        rows, sizes = length + 1, self._sizes(action, () if chunk is None else (chunk,))
        self._buffers: dict[str, Rows] = {
            name: np.zeros((num_envs, size, *column.shape), column.dtype) for name, (size, column) in sizes.items()
        }
        # Of a whole sequence: the state before row 0 alone, and where episodes begin in the place of the ages.
        self.columns = {name: Column((size, *column.shape), column.dtype) for name, (size, column) in sizes.items()}
        self.columns["first"] = Column((rows,), np.dtype(np.bool_))
        for name in ("age", VALUE, MAX_VALUE):
            self.columns.pop(name, None)
        if self._state_size is not None:
            self.columns[STATE] = sizes[STATE][1]
        self._everyone = list(range(num_envs))
        # Of each environment: rows of the running sequence, observations of the running episode, and the last step.
        self._position, self._age = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._last_action = np.zeros((num_envs, *action.shape), action.dtype)
        self._last_reward, self._last_return = np.zeros(num_envs, np.float32), np.zeros(num_envs)
        self._last_state = np.zeros((num_envs, self._state_size or 0), np.float32)
        self._decisions = decisions
        self._decided, self._round_over = np.zeros(1, np.int64), np.zeros(num_envs, bool)
        self.add_count = 0

    @property
    def of_rounds(self) -> bool:
        """Whether sequences end with a round of decisions."""
        return self._decisions is not None

    def _sizes(self, action: Column, entries: tuple[int, ...]) -> dict[str, tuple[int, Column]]:
        """Return the arrays of unfinished sequences: of each, by name, its length, and the shape and dtype of a row."""
        steps, rows, frames = self.length, self.length + 1, self.length + self.stack_size
        number = Column((), np.dtype(np.float32))
        sizes = {name: (frames, column) for name, column in self.schema.observation.columns.items()}
        sizes |= {"previous_action": (rows, action), "previous_reward": (rows, number)}
        sizes["age"] = rows, Column((), np.dtype(np.int64))
        if self._state_size is not None:
            sizes[STATE] = rows, Column((self._state_size,), np.dtype(np.float32))
        sizes |= {"action": (steps, action), "reward": (steps, number), "discount": (steps, number)}
        sizes["mask"] = steps, number
        if self.schema.extras:
            sizes |= {name: (steps, column) for name, column in self.schema.extras.columns.items()}
        for name in self._of_chunks:
            sizes[name] = steps, Column(entries, np.dtype(np.bool_))
        sizes |= dict.fromkeys(self._of_returns, (steps, number))
        if self._with_values:
            sizes |= {VALUE: (steps, number), MAX_VALUE: (rows, number)}
        return sizes

    # Writing.

    def observe(self, transition: Mapping[str, Any], env_id: int = 0) -> None:
        """Store one transition, as `Replay.observe` does; within an episode each must follow the previous one."""
        if not 0 <= env_id < self.num_envs:
            raise ValueError(f"env_id must lie in [0, {self.num_envs}), got {env_id}")
        ended = transition["terminal"] or transition["truncated"]
        block: dict[str, Any] = {name: np.asarray(transition[name])[None] for name in _NUMBERS}
        block["env_ids"] = np.array([env_id])
        block["observation"] = batch_of_one(transition["observation"])
        block["final"] = {env_id: transition["next_observation"]} if ended else {}
        for name in self._of_chunks:
            block[name] = np.asarray(transition.get(name, True))[None]
        if "extras" in transition:
            block["extras"] = batch_of_one(transition["extras"])
        self.extend(block)

    def extend(self, block: Mapping[str, Any]) -> None:
        """Store one transition of each of R environments, columns `[R]` as `Replay.extend` takes them.

        Raises:
            KeyError: a key is missing; nothing is stored then.
            ValueError: the environments are not distinct or unknown, an array has another shape or kind than the
                schema's, or a final observation is missing; nothing is stored then.
        """
        env_ids = np.array(block["env_ids"])  # a copy: PyTorch warns of an index that is read-only
        rows, numbers = len(env_ids), env_ids.tolist()
        which: Any = _EVERYONE if numbers == self._everyone else env_ids
        known = which is _EVERYONE or not rows or (min(numbers) >= 0 and max(numbers) < self.num_envs)
        if not known or len(set(numbers)) < rows:
            raise ValueError(f"env_ids must be distinct and lie in [0, {self.num_envs}), got {numbers}")
        terminal = np.asarray(block["terminal"], bool)
        ended = env_ids[terminal | np.asarray(block["truncated"], bool)]
        observation = self.schema.observation.check_rows(block["observation"], rows)
        extras: list[Rows] = []
        state: Any = None
        needs_extras = bool(self._extra_names) or self._state_size is not None
        given = dict(block["extras"] if needs_extras else block.get("extras", {}))
        values = {name: given.pop(name, np.nan) for name in (VALUE, MAX_VALUE)} if self._with_values else {}
        if needs_extras:
            state = given.pop(STATE, None)
            extras = self.schema.extras.check_rows(given, rows) if self.schema.extras else []
        if (self._state_size is not None) and np.shape(state) != (rows, self._state_size):
            raise ValueError(f"extras[{STATE!r}] must be [{rows}, {self._state_size}], got {np.shape(state)}")
        finals = []
        for env_id in ended.tolist():
            if env_id not in block["final"]:
                raise ValueError(f"final must hold the last observation of environment {env_id}, whose episode ended")
            finals.append(self.schema.observation.check(block["final"][env_id]))
        action = np.asarray(block["action"], self._last_action.dtype)
        reward = np.asarray(block["reward"], np.float32)
        discount = self._discounting.of(np.asarray(block["interval"]))
        at = self._begin_row(env_ids, which, observation, values.pop(MAX_VALUE, np.nan))
        for name, array in values.items():
            self._buffers[name][at] = array
        self._buffers["action"][at], self._buffers["reward"][at] = action, reward
        self._buffers["discount"][at], self._buffers["mask"][at] = np.where(terminal, 0.0, discount), 1.0
        for name in self._of_chunks:
            self._buffers[name][at] = block.get(name, True)
        for name, array in zip(self._extra_names, extras, strict=True):
            self._buffers[name][at] = array
        for name in self._of_returns:
            before = np.where(self._age[which] == 1, 0.0, self._last_return[which])
            self._buffers[name][at] = self._last_return[which] = discount * before + reward
        self._position[which] += 1
        self._last_action[which], self._last_reward[which] = action, reward
        if state is not None:
            self._last_state[which] = state
        self.add_count += rows
        self._decided[0] += rows
        if self._decisions is not None and self._decided[0] >= self._decisions:
            self._decided[0], self._round_over[:] = 0, True
        if len(ended):
            self._append_final(ended, [stacked(arrays) for arrays in zip(*finals, strict=True)])

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End an environment's running episode, if one runs, as a truncation does; see `Replay.cut`."""
        if not 0 <= env_id < self.num_envs:
            raise ValueError(f"env_id must lie in [0, {self.num_envs}), got {env_id}")
        final = [array[None] for array in self.schema.observation.check(observation)]
        if self._age[env_id]:
            self._append_final(np.array([env_id]), final)

    def _append_final(self, env_ids: npt.NDArray[np.int64], observation: list[Rows]) -> None:
        self._begin_row(env_ids, env_ids, observation)
        at = env_ids, self._position[env_ids]
        for name in (*_OF_DECISION, *self._of_chunks, *self._of_returns, *self._extra_names):
            self._buffers[name][at] = 0
        self._position[env_ids] += 1
        self._age[env_ids] = 0

    def _present(self, env_ids: npt.NDArray[np.int64], which: Any) -> tuple[Any, Any]:
        """Return the index of the present rows of some environments: slices where all are in step, which are faster."""
        if which is _EVERYONE and not np.count_nonzero(self._position != (first := self._position.item(0))):
            return which, first
        return env_ids, self._position[env_ids]

    def _begin_row(
        self, env_ids: npt.NDArray[np.int64], which: Any, observation: list[Rows], max_value: Any = np.nan
    ) -> Any:
        """Write the fields of a row that are known before its decision, and emit the sequences that end before it.

        Args:
            env_ids: Whose row it is.
            which: The same as an index: a slice where they are all environments, which is faster.
            observation: The arrays of the observations.
            max_value: Of the values of actions.

        Returns:
            The index of the row; see `_present`.
        """
        at, age = self._present(env_ids, which), self._age[which]
        for name, array in zip(self.observation_names, observation, strict=True):
            buffer = self._buffers[name]
            if type(buffer) is not type(array):  # the first tensors, or an array of NumPy's after them
                buffer = self._buffers[name] = alike(buffer, array)
                array = alike(array, buffer)
            buffer[at[0], at[1] + self.stack_size - 1] = array
        self._buffers["age"][at] = age
        self._buffers["previous_action"][at] = self._last_action[which]
        self._buffers["previous_reward"][at] = self._last_reward[which]
        if self._state_size is not None:
            self._buffers[STATE][at] = self._last_state[which]
        if np.count_nonzero(age) < len(age):
            begins = env_ids[age == 0]
            first = begins, self._position[begins]
            self._buffers["previous_action"][first] = self._none
            self._buffers["previous_reward"][first] = 0.0
            if self._state_size is not None:
                self._buffers[STATE][first] = 0.0
        if self._with_values:
            self._buffers[MAX_VALUE][at] = max_value
        self._age[which] += 1
        whole = (self._position[which] == self.length) | self._round_over[which]
        if not np.count_nonzero(whole):
            return at
        self._finish(env_ids[whole])
        return self._present(env_ids, which)

    def _finish(self, env_ids: npt.NDArray[np.int64]) -> None:
        """Emit whole sequences, and move the rows that the next ones begin with to the front."""
        whole = {name: buffer[env_ids] for name, buffer in self._buffers.items()}
        if self._decisions is not None:
            self._pad(whole, env_ids)
        ages = whole.pop("age")
        whole["first"] = ages == 0
        if self._state_size is not None:
            whole[STATE] = whole[STATE][:, 0]
        self._emit(whole)
        if self._decisions is not None:
            ages = self._buffers["age"][env_ids, self._position[env_ids]]
            self._keep_last_row(env_ids)
        else:
            for buffer in self._buffers.values():
                kept = buffer.shape[1] - self._period
                buffer[env_ids, :kept] = buffer[env_ids, self._period :]
            self._position[env_ids] = self.length - self._period
            ages = ages[:, self._period]
        # Stacks of the new first row reach back to its episode's first observation, and no further.
        before = self.stack_size - 1 - ages
        for env_id, blank in zip(env_ids[before > 0], before[before > 0], strict=True):
            for name in self.observation_names:
                self._buffers[name][env_id, :blank] = 0

    def _pad(self, whole: dict[str, Rows], env_ids: npt.NDArray[np.int64]) -> None:
        """Set the rows after the last one of each sequence to zeros."""
        for row, last in enumerate(self._position[env_ids].tolist()):
            for array in whole.values():
                array[row, last + array.shape[1] - self.length :] = 0  # the last row itself has no decision

    def _keep_last_row(self, env_ids: npt.NDArray[np.int64]) -> None:
        """Move the last row of each sequence, and the observations of its stack, to the front."""
        for env_id, last in zip(env_ids.tolist(), self._position[env_ids].tolist(), strict=True):
            for buffer in self._buffers.values():
                kept = buffer.shape[1] - self.length
                buffer[env_id, :kept] = own_array(buffer[env_id, last : last + kept])
        self._position[env_ids] = 0
        self._round_over[env_ids] = False

    # Reading.

    def batch_at(self, columns: Mapping[str, Any], positions: Positions) -> dict[str, Any]:
        """Return the sequences at positions `[B]` of columns `[capacity, ...]`; see `batch`."""
        taken: Arrays = {}
        for name in self.columns:
            column = columns[name]
            if name == STATE:
                taken[name] = column[positions]
            elif isinstance(column, Packed):
                taken[name] = column.take(positions).swapaxes(0, 1)
            else:
                taken[name] = column.swapaxes(0, 1)[:, positions]
        return self.batch(taken)

    def batch(self, columns: Mapping[str, Rows]) -> dict[str, Any]:
        """Return columns of B sequences, `[T, B, ...]` as in the module's comment, with observations nested."""
        of_observation, of_extras = self.schema.observation, self.schema.extras
        names: tuple[str, ...] = ("previous_action", "previous_reward", "first", "action", "reward", "discount", "mask")
        names += (*self._of_chunks, *self._of_returns)
        batch: dict[str, Any] = {"observation": of_observation.nest([columns[name] for name in self.observation_names])}
        batch |= {name: columns[name] for name in names}
        if of_extras is not None:
            batch["extras"] = of_extras.nest([columns[name] for name in self._extra_names])
        if self._state_size is not None:
            batch[STATE] = columns[STATE]
        return batch

    def newest(self) -> Any:
        """Return the last observation of each environment that has one, in stacks `[N, k, *shape]`.

        Rows before the episode are zeros. The observation of a decision in flight is not known here yet.
        """
        shown = np.flatnonzero(self._position)
        row = self._position[shown] - 1
        before = self.stack_size - 1 - self._buffers["age"][shown, row]
        blank = np.arange(self.stack_size) < before[:, None]
        stacks = []
        for name in self.observation_names:
            frames = self._buffers[name][shown[:, None], row[:, None] + np.arange(self.stack_size)]
            frames[blank] = 0
            stacks.append(frames)
        return self.schema.observation.nest(stacks)

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End the running episodes, all or some, with their last observations, since how they continue is not known.

        The last row's decision is lost with that.
        """
        every = np.arange(self.num_envs) if env_ids is None else env_ids
        for env_id in every[self._age[every] > 0]:
            row = self._position[env_id] - 1
            for name in (*_OF_DECISION, *self._of_chunks, *self._of_returns, *self._extra_names):
                self._buffers[name][env_id, row] = 0
            self._age[env_id] = 0

    # State.

    @property
    def nbytes(self) -> int:
        """Bytes of the sequences under construction."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data."""
        return dict(self._facts)

    def snapshot(self) -> Arrays:
        """Return the unfinished sequences, not copied."""
        return {f"running/{name}": on_host(array) for name, array in self._arrays().items()}

    def restore(self, snapshot: Arrays, add_count: int) -> None:
        """Load what `snapshot` returned."""
        for name, array in self._arrays().items():
            array[...] = alike(snapshot[f"running/{name}"], array)
        self.add_count = add_count

    def clear(self) -> None:
        """Forget everything."""
        for array in self._arrays().values():
            array[...] = 0
        self.add_count = 0

    def _arrays(self) -> dict[str, Rows]:
        counts = {"position": self._position, "episode_age": self._age, "last_action": self._last_action}
        counts |= {"last_return": self._last_return} if self._of_returns else {}
        counts |= {} if self._decisions is None else {"decided": self._decided, "round_over": self._round_over}
        return {**self._buffers, **counts, "last_reward": self._last_reward, "last_state": self._last_state}


_EVERYONE = slice(None)
_OF_DECISION = ("action", "reward", "discount", "mask")  # 0 in a final row
_NUMBERS = ("action", "reward", "interval", "terminal", "truncated")


def without_state(extras: Dict | None) -> Dict | None:
    """Return the extras that are kept for each row: all but the state; None where there are no others."""
    rest = {} if extras is None else {name: space for name, space in extras.spaces.items() if name != STATE}
    return Dict(rest) if rest else None


def _check_sizes(period: int, length: int, **sizes: int) -> None:
    for name, value in {"length": length, **sizes}.items():
        if value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    if not 1 <= period <= length:
        raise ValueError(f"period must lie in [1, {length}] rows, the length of a sequence, got {period}")
