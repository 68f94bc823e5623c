"""Decisions, their random numbers, and the contract of a policy of rows: a pure function from observations to actions.

A *row* is one decision's observation. A worker has one row at a time; a batch of environments has many. A policy holds
weights and nothing that acting changes: what it remembers from decision to decision is its `state`, which it is given
and returns, and what it draws is a function of the decision. So an inference whose action is never applied changes
nothing, and a resumed run acts as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.spaces.actions import Actions, BoxActions
from async_wrappers.agents.spaces.schema import batch_of_one, each_array, stacked
from async_wrappers.policy import Decision


@dataclass(frozen=True, eq=False)
class Decisions(Sequence[Decision]):
    """R decisions in arrays [R], each with the attribute of `Decision` of the same name; read as a sequence of them."""

    episode: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    frame: npt.NDArray[np.int64]
    eval_mode: npt.NDArray[np.bool_]
    env_id: npt.NDArray[np.int64]

    @classmethod
    def of(cls, decisions: Sequence[Decision]) -> Decisions:
        """Return any sequence of decisions in arrays."""
        if isinstance(decisions, Decisions):
            return decisions
        return cls(*map(np.array, zip(*decisions, strict=True)))

    def __len__(self) -> int:
        """Return R."""
        return len(self.start)

    def __getitem__(self, row: Any) -> Any:
        """Return one decision, or those of a slice."""
        episode, start, frame, eval_mode, env_id = self.episode, self.start, self.frame, self.eval_mode, self.env_id
        if isinstance(row, slice):
            return Decisions(episode[row], start[row], frame[row], eval_mode[row], env_id[row])
        return Decision(episode.item(row), start.item(row), frame.item(row), eval_mode.item(row), env_id.item(row))


def only_decision(decisions: Sequence[Decision]) -> Decision | None:
    """Return the decision where there is one alone, the common case of an agent in turn; else None."""
    if not isinstance(decisions, Decisions):
        return decisions[0] if len(decisions) == 1 else None
    if len(decisions.start) != 1:
        return None
    of = decisions
    return Decision(of.episode.item(), of.start.item(), of.frame.item(), of.eval_mode.item(), of.env_id.item())


class DecisionRandom:
    """Random numbers of each decision as a pure function of (seed, episode, start, eval_mode, env_id).

    The generator is counter-based: Philox (Salmon et al. 2011), keyed by the seed. A decision's stream begins at the
    256-bit counter whose 64-bit words are (0, start, episode, 2^32 env_id + eval_mode), lowest first, so that it would
    run into another decision's stream only after 2^64 steps. Environment 0 draws alike however many there are.
    """

    def __init__(self, seed: int) -> None:
        """Makes the streams of one seed.

        Args:
            seed: any integer >= 0; different seeds give unrelated streams.

        Raises:
            ValueError: `seed` is negative.
        """
        if seed < 0:
            raise ValueError(f"seed must be >= 0, got {seed}")
        key = np.random.SeedSequence(seed).generate_state(2, np.uint64).astype(np.uint64)
        self._key = key
        self._philox = np.random.Philox(key=key)
        self._generator = np.random.Generator(self._philox)
        self._counter = np.zeros(4, np.uint64)
        # Setting the state of one generator takes a fraction of the time that making a new one does.
        self._state = self._philox.state
        self._state["state"] = {"counter": self._counter, "key": key}

    def draw(self, episode: int, start: int, eval_mode: bool, env_id: int = 0) -> np.random.Generator:
        """The generator of one decision, at the beginning of its stream.

        Args:
            episode: number of the episode.
            start: where in the episode the decision falls, such as its first frame.
            eval_mode: whether the decision belongs to an evaluation.
            env_id: number of the environment.

        Returns:
            A generator that this object owns: the next call moves it to another stream.

        Raises:
            ValueError: `episode` or `start` lies outside [0, 2^64), or `env_id` outside [0, 2^32).
        """
        if not (0 <= episode < _COUNTER_END and 0 <= start < _COUNTER_END and 0 <= env_id < _ENV_ID_END):
            for name, value, bits in (("episode", episode, 64), ("start", start, 64), ("env_id", env_id, _ENV_ID_BITS)):
                if not 0 <= value < 1 << bits:
                    raise ValueError(f"{name} must lie in [0, 2**{bits}), got {value}")
        # The number of an environment stands above the bit of the evaluation.
        self._counter[1], self._counter[2], self._counter[3] = start, episode, (env_id << _ENV_ID_BITS) + eval_mode
        self._philox.state = self._state
        return self._generator

    def uniform_and_action(
        self, num_actions: int, episode: int, start: int, eval_mode: bool, env_id: int = 0
    ) -> tuple[float, int]:
        """What an epsilon-greedy decision needs: a uniform number in [0, 1) and an action in [0, num_actions).

        Args:
            num_actions: number of actions, at least 1.
            episode: as in `draw`.
            start: as in `draw`.
            eval_mode: as in `draw`.
            env_id: as in `draw`.

        Returns:
            The two draws, independent and uniform.

        Raises:
            ValueError: `num_actions` is less than 1, or a number is out of range as in `draw`.
        """
        if num_actions < 1:
            raise ValueError(f"num_actions must be >= 1, got {num_actions}")
        generator = self.draw(episode, start, eval_mode, env_id)
        return generator.random(), int(generator.integers(num_actions))

    def uniforms_and_actions(
        self,
        num_actions: int,
        episodes: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        eval_mode: bool | npt.NDArray[np.bool_],
        env_ids: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """`uniform_and_action` of R decisions at once, bit for bit.

        Args:
            num_actions: number of actions, at least 1.
            episodes: number of each decision's episode, >= 0, `[R]`.
            starts: where in its episode each falls, >= 0, `[R]`.
            eval_mode: as in `draw`, of all of them or `[R]`.
            env_ids: number of each decision's environment, in [0, 2^32), `[R]`.

        Returns:
            The uniform numbers `[R]` and the actions `[R]`.

        Raises:
            ValueError: `num_actions` is less than 1, or a number is out of range.
        """
        if num_actions < 1:
            raise ValueError(f"num_actions must be >= 1, got {num_actions}")
        for name, values, bits in (
            ("episodes", episodes, 63),
            ("starts", starts, 63),
            ("env_ids", env_ids, _ENV_ID_BITS),
        ):
            if values.size and (values.min() < 0 or values.max() >= 1 << bits):
                raise ValueError(f"{name} must lie in [0, 2**{bits}), got {values.min()} to {values.max()}")
        if len(starts) <= _FEW:
            modes = np.broadcast_to(eval_mode, len(starts)).tolist()
            decisions = zip(episodes.tolist(), starts.tolist(), modes, env_ids.tolist(), strict=True)
            drawn = [self.uniform_and_action(num_actions, *decision) for decision in decisions]
            return np.array([each for each, _ in drawn], np.float64), np.array([each for _, each in drawn], np.int64)
        # NumPy's generator steps its counter before it draws: its first block belongs to the counter 1.
        counters = np.empty((4, len(starts)), np.uint64)
        counters[0], counters[1], counters[2] = 1, starts, episodes
        counters[3] = (env_ids.astype(np.uint64) << np.uint64(_ENV_ID_BITS)) + np.asarray(eval_mode, np.uint64)
        first, second = _philox_block(counters, self._key)
        uniforms: npt.NDArray[np.float64] = (first >> np.uint64(11)) * np.float64(2.0**-53)
        # An action is the upper half of (32 random bits) * num_actions. Where the lower half is small, NumPy may refuse
        # the bits and draw others (Lemire 2019): once in 2^32 / num_actions draws, which its generator then does.
        product = (second & _LOW) * np.uint64(num_actions) if num_actions < 2**32 else np.zeros_like(second)
        actions = (product >> np.uint64(32)).astype(np.int64)
        for row in np.flatnonzero((product & _LOW) < num_actions) if num_actions > 1 else ():
            evaluates = bool(np.broadcast_to(eval_mode, len(starts))[row])
            decision = int(episodes[row]), int(starts[row]), evaluates, int(env_ids[row])
            actions[row] = self.uniform_and_action(num_actions, *decision)[1]
        return uniforms, actions

    def for_actions(self, actions: Actions, rows: Decisions) -> tuple[Any, ...]:
        """Return the numbers that a policy makes the actions of R decisions from.

        Of Discrete actions: a uniform number `[R]` and an action `[R]`; of chunks of them uniform numbers `[R, H]`
        alone. Of real-valued ones, float32 `[R, ...]` as actions are stored: standard normal numbers, and a function
        that draws uniform ones, which few decisions need.
        """
        shape, dtype = actions.column
        if dtype.kind == "f":
            normals = self.normals(actions.inputs, rows).astype(dtype).reshape(len(rows), *shape)

            def uniforms() -> npt.NDArray[Any]:
                drawn = self.uniforms_beside_normals(actions.inputs, rows).astype(dtype).reshape(len(rows), *shape)
                return drawn.clip(max=1 - np.finfo(dtype).epsneg)  # rounding to float32 may give 1

            return normals, uniforms
        if actions.chunk is not None:
            return (self.uniforms(actions.chunk, rows),)
        # A worker's warm-up inference belongs to no episode and has the number -1.
        episodes = np.maximum(rows.episode, 0)
        return self.uniforms_and_actions(actions.inputs, episodes, rows.start, rows.eval_mode, rows.env_id)

    def uniforms(self, entries: int, decisions: Sequence[Decision]) -> npt.NDArray[np.float64]:
        """Several uniform numbers in [0, 1) for each of R decisions, `[R, entries]`.

        The first one of each is that of `uniforms_and_actions`. An `episode` of -1, as a worker's warm-up has, is 0.
        """
        drawn = [
            self.draw(max(each.episode, 0), each.start, each.eval_mode, each.env_id).random(entries)
            for each in decisions
        ]
        return np.array(drawn)

    def normals(self, entries: int, decisions: Sequence[Decision]) -> npt.NDArray[np.float64]:
        """Several standard normal numbers for each of R decisions, `[R, entries]`.

        An `episode` of -1, as a worker's warm-up has, is 0.
        """
        normals = np.empty((len(decisions), entries))
        for generator, row in zip(self._generators(decisions), normals, strict=True):
            generator.standard_normal(out=row)
        return normals

    def uniforms_beside_normals(self, entries: int, decisions: Sequence[Decision]) -> npt.NDArray[np.float64]:
        """Several uniform numbers in [0, 1) for each of R decisions, `[R, entries]`, which follow its `normals`."""
        uniforms = np.empty((len(decisions), entries))
        for generator, row in zip(self._generators(decisions), uniforms, strict=True):
            generator.standard_normal(entries)
            generator.random(out=row)
        return uniforms

    def _generators(self, decisions: Sequence[Decision]) -> Iterator[np.random.Generator]:
        rows = Decisions.of(decisions)
        columns = np.maximum(rows.episode, 0), rows.start, rows.eval_mode, rows.env_id
        for decision in zip(*(column.tolist() for column in columns), strict=True):
            yield self.draw(*decision)


_ENV_ID_BITS = 32  # of the counter's highest word, where the environment's number begins
_COUNTER_END, _ENV_ID_END = 1 << 64, 1 << _ENV_ID_BITS
_FEW = 16  # decisions: up to so many NumPy's generator is faster one by one, for a single one 20 times
_LOW = np.uint64(2**32 - 1)
# Multipliers of Philox 4x64 and what is added to its key from round to round (Salmon et al. 2011, random123).
_MULTIPLIERS = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], np.uint64)
_HIGH_HALVES, _LOW_HALVES = _MULTIPLIERS >> np.uint64(32), _MULTIPLIERS & _LOW
_KEY_STEPS = np.array([0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B], np.uint64)


def _philox_block(
    counters: npt.NDArray[np.uint64], key: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the first two words [R] of the Philox 4x64-10 blocks at R counters [4, R], word by word."""
    # The two multiplications of a round are done at once: `x` holds words 0 and 2, `y` words 1 and 3. A 64-bit product
    # has 128 bits, which are put together from products of 32-bit halves.
    x, y, shift = counters[0::2], counters[1::2], np.uint64(32)
    keys = key[:, None]
    for _ in range(10):
        low, high = x & _LOW, x >> shift
        middle = _HIGH_HALVES * low + (_LOW_HALVES * low >> shift)
        upper = _HIGH_HALVES * high + (middle >> shift) + ((middle & _LOW) + _LOW_HALVES * high >> shift)
        lower = _MULTIPLIERS * x
        x, y = upper[::-1] ^ y ^ keys, lower[::-1]
        keys = keys + _KEY_STEPS[:, None]
    return x[0], y[0]


# The contract of a policy of rows.


class Memories(NamedTuple):
    """The state argument of a policy with memory, for R rows: `async_wrappers.policy.Memory` in arrays.

    Attributes:
        core: The state that it returned for these environments' last decisions, [R, S].
        previous_action: The environment's action of their last decisions, [R, ...].
        previous_reward: The rewards of these decisions, float32 [R].
        first: Bool [R], True where an episode begins: nothing of the above is to be read there.
    """

    core: Any
    previous_action: npt.NDArray[Any]
    previous_reward: npt.NDArray[np.float32]
    first: npt.NDArray[np.bool_]


class PolicyOutput(NamedTuple):
    """What a policy returns for R rows.

    Attributes:
        action: The environment's actions, [R, ...].
        state: What the policy remembers, [R, ...]; () for one without memory.
        extras: What it leaves for the learner beside the actions, by name, each [R, ...]; None for nothing.
    """

    action: npt.NDArray[Any]
    state: Any = ()
    extras: Mapping[str, npt.NDArray[Any]] | None = None


class RowsPolicy(Protocol):
    """A pure function of (inputs, state, decisions) and the weights; a worker has it in a `WorkerPolicy`.

    One with memory has two further members: an attribute ``remembers``, True, and a method ``initial_state(rows)``,
    which returns the core that episodes begin with, [rows, S].
    """

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Choose an action for each row.

        Args:
            inputs: Stacks of observations [R, k, *shape], or a dict of them.
            state: `Memories`, which holds what the policy returned for these rows before; () without memory.
            decisions: R of them.
        """

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Read these tensors in place from now on."""

    def weights(self) -> Mapping[str, Any]:
        """Return the weights in the layout that inference reads; not a copy."""


# Policies of rows for callers that have one row at a time: workers.


class OfWorker:
    """A policy of rows as a worker has it, whose observations come one at a time.

    Args:
        policy: Reads stacks of observations.
        without_tuples: Turns an observation into an array or dicts of arrays; None for one that always is.
        whole_stacks: Whether an observation is a stack already, [k, *shape].

    Attributes:
        policy: As given.
    """

    def __init__(
        self, policy: Any, without_tuples: Callable[[Any], Any] | None = None, whole_stacks: bool = False
    ) -> None:
        self.policy = policy
        self._without_tuples, self._whole_stacks = without_tuples, whole_stacks

    def row_of(self, observation: Any) -> Any:
        """Return an observation, [*shape] or a dict of such, as the policy reads it: [1, k, *shape]."""
        if type(observation) is np.ndarray:  # most are, and need no walk through a tree
            return observation[None] if self._whole_stacks else np.stack((observation,))[None]
        if self._without_tuples is not None:
            observation = self._without_tuples(observation)
        return batch_of_one(observation if self._whole_stacks else stacked([observation]))

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied."""
        self.policy.load_weights(weights, version)

    def note_updates(self, updates: int) -> None:
        """Set the weights' number of updates; see `RecurrentPolicy.note_updates`."""
        if hasattr(self.policy, "note_updates"):
            self.policy.note_updates(updates)

    def weights(self) -> Mapping[str, Any]:
        """Return the weights in the layout that inference reads; not a copy."""
        weights: Mapping[str, Any] = self.policy.weights()
        return weights


class WorkerPolicy(OfWorker):
    """A policy without memory as a worker calls it: one observation in, one action out. The arguments: `OfWorker`."""

    def act(self, observation: Any, decision: Decision) -> Any:
        """Return the environment's action for one observation, [*shape] or a dict of such.

        Where the policy leaves extras, the action comes with them: an object with ``action`` and ``extras``.
        """
        output = self.policy.act(self.row_of(observation), (), (decision,))
        if output.extras is None:
            of_box = output.action.ndim > 1 or isinstance(getattr(self.policy, "actions", None), BoxActions)
            return np.asarray(output.action[0]) if of_box else output.action[0].item()
        extras = {name: values[0, ...] for name, values in output.extras.items()}  # arrays, also where the shape is ()
        return PolicyOutput(output.action[0], (), extras)


class OneRow:
    """The reverse of `WorkerPolicy`: a worker's policy, which reads one observation, as a policy of one row.

    Args:
        policy: With ``act(observation, decision)`` and, if it learns, ``load_weights(weights, version)``.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Return the action of one stack of one observation [1, 1, *shape]."""
        (decision,) = decisions
        answer = self._policy.act(each_array(lambda array: array[0, 0], inputs), decision)
        if not hasattr(answer, "extras"):
            return PolicyOutput(np.asarray([answer]))
        extras = {name: np.asarray(value)[None] for name, value in answer.extras.items()}
        return PolicyOutput(np.asarray([answer.action]), (), extras)

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self._policy.load_weights(weights, version)

    def weights(self) -> Mapping[str, Any]:
        weights: Mapping[str, Any] = self._policy.weights()
        return weights
