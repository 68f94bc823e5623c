"""Policies: from rows of observations to rows of actions, as pure functions.

A *row* is one decision's observation. A worker has one row at a time; a batch of environments has many. A policy holds
weights and nothing that acting changes: what it remembers from decision to decision is its `state`, which it is given
and returns, and what it draws is a function of the decision. So an inference whose action is never applied changes
nothing, and a resumed run acts as an uninterrupted one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from async_wrappers.agents.networks.noisy import noisy_layers, resample_noise
from async_wrappers.agents.replay.sequences import STATE, TORSO_VERSION, VERSION
from async_wrappers.agents.schema import Compute, batch_of_one, each_array, stacked
from async_wrappers.agents.settings import SHARE, factory, must, number, settings, whole

__all__ = [
    "Decision",
    "DecisionRandom",
    "Decisions",
    "EpisodeClock",
    "Epsilon",
    "EpsilonGreedyPolicy",
    "EpsilonSettings",
    "Memory",
    "OneRow",
    "Outcome",
    "Policy",
    "PolicyCopies",
    "PolicyOutput",
    "RecurrentPolicy",
    "SplitWorkerPolicy",
    "WorkerPolicy",
    "frames_per_decision",
    "has_warmup",
    "identity_epsilon",
    "is_per_actor",
    "linearly_decaying_epsilon",
    "one_row",
    "per_actor_epsilon",
    "zero_epsilon",
]


# Decisions: what a policy may know of the one that it makes, and how a turn-based agent counts them.


class Decision(NamedTuple):
    """All that a policy may depend on besides the observation and its weights.

    Attributes:
        episode: Number of the episode among those of its mode (training or evaluation), from 0.
        start: Frame of the episode whose observation is read.
        frame: Training frames played before the decision starts, over all episodes; exploration schedules use it.
        eval_mode: True in evaluation.
        env_id: Number of the environment among those that are played side by side.
    """

    episode: int
    start: int
    frame: int
    eval_mode: bool
    env_id: int = 0


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
        episode, start, frame, eval_mode, env_id = (np.array(column) for column in zip(*decisions, strict=True))
        return cls(episode, start, frame, eval_mode, env_id)

    def __len__(self) -> int:
        """Return R."""
        return len(self.start)

    def __getitem__(self, row: Any) -> Any:
        """Return one decision, or those of a slice."""
        columns: tuple[npt.NDArray[Any], ...] = self.episode, self.start, self.frame, self.eval_mode, self.env_id
        if isinstance(row, slice):
            return Decisions(*(column[row] for column in columns))
        return Decision(*(column[row].item() for column in columns))


class Outcome(NamedTuple):
    """What became of a decision.

    Attributes:
        interval: Frames from its action's effect to the next one's, or to the end of the episode.
        closed: Training frames played when its reward was complete.
        applied: False if the episode ended before its action could land; it then teaches nothing.
    """

    interval: int
    closed: int
    applied: bool


def frames_per_decision(environment: gym.Env[Any, Any]) -> int | None:
    """Return the frames from one decision's effect to the next one's; None if they vary.

    The environment says so in an attribute ``decision_interval``, as `RealtimeDelay` does, or is turn-based.
    """
    if not environment.has_wrapper_attr("decision_interval"):
        return 1
    interval: int | None = environment.get_wrapper_attr("decision_interval")
    return interval


class EpisodeClock:
    """Counts episodes and frames from what the environment reports in ``info["realtime"]``.

    An environment without that report is turn-based: one frame per decision and no delay.
    """

    def __init__(self) -> None:
        """Begin at training frame 0, before the first episode."""
        self.frames = 0
        self.train_episodes = 0
        self.eval_episodes = 0
        self._eval_mode = False
        self._begin = 0  # training frames when the episode began
        self._frame = 0  # frames of this episode

    def begin(self, eval_mode: bool, realtime: Mapping[str, Any] | None = None) -> Decision:
        """Begin an episode and return its first decision."""
        self._eval_mode, self._begin, self._frame = eval_mode, self.frames, 0
        if eval_mode:
            self.eval_episodes += 1
        else:
            self.train_episodes += 1
        return self._decision(0 if realtime is None else int(realtime["start"]))

    def advance(self, realtime: Mapping[str, Any] | None = None) -> tuple[Decision, Outcome]:
        """Return the next decision and what became of the last one."""
        outcome = self.end(realtime)
        return self._decision(self._frame if realtime is None else int(realtime["start"])), outcome

    def end(self, realtime: Mapping[str, Any] | None = None) -> Outcome:
        """Return what became of the last decision."""
        self._frame = self._frame + 1 if realtime is None else int(realtime["frame"])
        if not self._eval_mode:
            self.frames = self._begin + self._frame
        if realtime is None:
            return Outcome(interval=1, closed=self.frames, applied=True)
        return Outcome(int(realtime["interval"]), self.frames, bool(realtime["applied"]))

    def state_dict(self) -> dict[str, int]:
        """Return the counts between two episodes."""
        return {"frames": self.frames, "train_episodes": self.train_episodes, "eval_episodes": self.eval_episodes}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore the counts."""
        self.frames = state["frames"]
        self.train_episodes = state["train_episodes"]
        self.eval_episodes = state["eval_episodes"]

    def _decision(self, start: int) -> Decision:
        episode = (self.eval_episodes if self._eval_mode else self.train_episodes) - 1
        frame = self.frames if self._eval_mode else self._begin + start
        return Decision(episode, start, frame, self._eval_mode)


# Exploration: epsilon as a function of the frame count, and random draws as a function of where in a run they fall.
#
# Nothing here depends on what was asked before, so a resumed run explores as an uninterrupted one.


@gin.configurable(module="agents")
def linearly_decaying_epsilon(decay_period: int, frame: int, warmup_frames: int, epsilon: float) -> float:
    """Epsilon that stays 1 during the warm-up, then falls linearly (Mnih et al. 2015; formula of Dopamine, 2018).

    epsilon + clip((1 - epsilon) (decay_period + warmup_frames - frame) / decay_period, 0, 1 - epsilon).

    Args:
        decay_period: frames that the fall takes; 0 falls at once after the warm-up.
        frame: frames played so far.
        warmup_frames: frames before the fall begins.
        epsilon: the value after the fall, in [0, 1].

    Returns:
        The probability of a random action at `frame`.

    Raises:
        ValueError: `decay_period` is negative.
    """
    if decay_period < 0:
        raise ValueError(f"decay_period must be >= 0 frames, got {decay_period}")
    if decay_period == 0:
        return 1.0 if frame < warmup_frames else epsilon
    bonus = (1.0 - epsilon) * (decay_period + warmup_frames - frame) / decay_period
    return epsilon + min(max(bonus, 0.0), 1.0 - epsilon)


@gin.configurable(module="agents")
def identity_epsilon(decay_period: int, frame: int, warmup_frames: int, epsilon: float) -> float:
    """`epsilon` at every frame; the arguments are those of `linearly_decaying_epsilon`."""
    return epsilon


@gin.configurable(module="agents")
def zero_epsilon(decay_period: int, frame: int, warmup_frames: int, epsilon: float) -> float:
    """0 at every frame, the greedy policy; the arguments are those of `linearly_decaying_epsilon`."""
    return 0.0


@gin.configurable(module="agents")
def per_actor_epsilon(
    decay_period: int,
    frame: int,
    warmup_frames: int,
    epsilon: float,
    actor: int = 0,
    actors: int = 1,
    base: float = 0.4,
    last_exponent: float = 8.0,
) -> float:
    """An epsilon for each actor, the same at every frame (Horgan et al. 2018, Ape-X, section 4).

    base ** linspace(1, last_exponent, actors)[actor]; an actor alone has `base`.

    Args:
        decay_period: not used.
        frame: not used.
        warmup_frames: not used.
        epsilon: not used.
        actor: which one, from 0; the agent fills it in for the policy of each worker.
        actors: how many there are.
        base: the first actor's epsilon, in [0, 1].
        last_exponent: of the last actor.

    Raises:
        ValueError: `actor` is not one of `actors`, or `base` is out of range.
    """
    if not 0 <= actor < actors:
        raise ValueError(f"actor must lie in [0, {actors}), one for each of the actors, got {actor}")
    if not 0.0 <= base <= 1.0:
        raise ValueError(f"base must lie in [0, 1], got {base}")
    return float(base ** np.linspace(1.0, last_exponent, actors)[actor])


def is_per_actor(schedule: Callable[..., Any]) -> bool:
    """Return whether a schedule of epsilon takes the number of its actor."""
    return "actor" in inspect.signature(_plain(schedule)).parameters


# By name, for another process has a function that was sent to it as a copy.
_WITHOUT_WARMUP = [each.__qualname__ for each in (identity_epsilon, zero_epsilon, per_actor_epsilon)]


def has_warmup(schedule: Callable[..., Any]) -> bool:
    """Return whether a schedule of epsilon depends on its warm-up; a user's own schedule counts as one that does."""
    plain = _plain(schedule)
    ours = getattr(plain, "__module__", None) == __name__
    return not (ours and getattr(plain, "__qualname__", None) in _WITHOUT_WARMUP)


def _plain(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a schedule as it was written, without arguments and without gin's values, which a pickled one brings."""
    inner: Any = schedule
    while inner is not None:
        schedule = inner
        inner = schedule.func if isinstance(schedule, partial) else getattr(schedule, "function", None)
    plain: Callable[..., Any] = inspect.unwrap(schedule)
    return plain


@dataclass(frozen=True)
class Epsilon:
    """The probability of a random action, as a function of the decision.

    Attributes:
        schedule: From (decay period, frame, warm-up, final epsilon) to epsilon in training.
        decay_period: Frames.
        warmup: Frames.
        train: Final epsilon in training.
        evaluation: Epsilon in evaluation.
        per_actor: Whether the schedule takes the keywords ``actor`` and ``actors``.
        environments: How many environments the policy plays, each of which is an actor of the schedule; None where
            the actor is fixed.
    """

    schedule: Callable[..., float]
    decay_period: int
    warmup: int
    train: float
    evaluation: float
    per_actor: bool = False
    environments: int | None = None

    def of_actor(self, actor: int, actors: int) -> Epsilon:
        """Return the epsilon of one of several actors: another one where the schedule takes the number of its actor."""
        if not self.per_actor:
            return self
        return replace(self, schedule=partial(self.schedule, actor=actor, actors=actors))

    def of_environments(self, environments: int) -> Epsilon:
        """Return the epsilon of several environments: each its own where the schedule takes the number of its actor."""
        return replace(self, environments=environments) if self.per_actor else self

    def __call__(self, decision: Decision) -> float:
        """Return epsilon for a decision."""
        if decision.eval_mode:
            return self.evaluation
        return self._in_training(decision.frame, decision.env_id)

    def of_rows(self, decisions: Decisions) -> npt.NDArray[np.float64]:
        """Return epsilon for R decisions `[R]`; the schedule is called once for each (frame, actor) among them."""
        epsilons = np.full(len(decisions), float(self.evaluation))
        training = np.flatnonzero(~decisions.eval_mode)
        if not training.size:
            return epsilons
        if self.environments is not None and not has_warmup(self.schedule):  # not a function of the frame
            epsilons[training] = self._each_environments[decisions.env_id[training]]
            return epsilons
        frames = decisions.frame[training]
        actors = decisions.env_id[training] if self.environments is not None else np.zeros_like(frames)
        if (frames == frames[0]).all() and (actors == actors[0]).all():  # as where all go in step
            epsilons[training] = self._in_training(int(frames[0]), int(actors[0]))
            return epsilons
        distinct, which = np.unique(np.stack([frames, actors]), axis=1, return_inverse=True)
        values = [self._in_training(int(frame), int(actor)) for frame, actor in distinct.T]
        epsilons[training] = np.array(values)[which.reshape(-1)]
        return epsilons

    def _in_training(self, frame: int, actor: int) -> float:
        of_actor = {} if self.environments is None else {"actor": actor, "actors": self.environments}
        return self.schedule(self.decay_period, frame, self.warmup, self.train, **of_actor)

    @cached_property
    def _each_environments(self) -> npt.NDArray[np.float64]:
        """Each environment's epsilon, where it is the same on every frame."""
        return np.array([self._in_training(0, actor) for actor in range(self.environments or 1)])


@settings
class EpsilonSettings:
    """What an agent that explores by epsilon declares beside its own settings; a base before `NetworkAgent`."""

    epsilon_fn: Callable[..., float] = factory(
        linearly_decaying_epsilon,
        "From (decay period, frame, warm-up, final epsilon) to epsilon in training.",
        "@linearly_decaying_epsilon",
    )
    epsilon_train: float = number(0.01, "Final epsilon in training.", SHARE)
    epsilon_eval: float = number(0.001, "Epsilon in evaluation.", SHARE)
    epsilon_decay_period: int = whole(250_000, "Over which epsilon falls.", 0, "frames")
    epsilon_warmup: int | None = whole(
        None,
        "Frames before epsilon falls; None means until learning begins, ``min_replay_history * decision_interval``, "
        "and is refused where these vary.",
        0,
        "frames",
        none="until learning begins",
    )

    # Of the agent.
    min_replay_history: int
    decision_interval: int | None

    def check_warmup(self) -> None:
        """Check that epsilon's warm-up is known in frames, though the frames between two decisions vary.

        Raises:
            ValueError: It is not set, and epsilon depends on it.
        """
        history = self.min_replay_history
        must(
            self.epsilon_warmup is not None or not history or not has_warmup(self.epsilon_fn),
            "DQNAgent.epsilon_warmup must be bound, in frames, where the frames between two decisions vary (a latency, "
            f"or live play), got None, which stands for min_replay_history = {history} decisions: bind "
            f"DQNAgent.epsilon_warmup = {history} for an action on every frame, and more for fewer",
        )

    @property
    def epsilon(self) -> Epsilon:
        """The schedule of exploration."""
        warmup = self.epsilon_warmup
        if warmup is None:
            warmup = self.min_replay_history * (self.decision_interval or 1)
        return Epsilon(
            self.epsilon_fn,
            self.epsilon_decay_period,
            warmup,
            self.epsilon_train,
            self.epsilon_eval,
            is_per_actor(self.epsilon_fn),
        )


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

    def uniforms(self, entries: int, decisions: Sequence[Decision]) -> npt.NDArray[np.float64]:
        """Several uniform numbers in [0, 1) for each of R decisions, `[R, entries]`.

        The first one of each is that of `uniforms_and_actions`. An `episode` of -1, as a worker's warm-up has, is 0.
        """
        drawn = [
            self.draw(max(each.episode, 0), each.start, each.eval_mode, each.env_id).random(entries)
            for each in decisions
        ]
        return np.array(drawn)


_ENV_ID_BITS = 32  # of the counter's highest word, where the environment's number begins
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


Values = Callable[[nn.Module, Any, np.random.Generator], Tensor]
"""From (network, inputs, generator) to Q-values [R, A]."""


class Memory(NamedTuple):
    """What a policy with memory is given as its state, for R rows.

    Attributes:
        core: What it returned as its state for these environments' last decisions, [R, S].
        previous_action: The environment's action of their last decisions, [R, ...].
        previous_reward: What these decisions were paid, float32 [R].
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


class Policy(Protocol):
    """A pure function of (inputs, state, decisions) and the weights.

    One with memory has two further members: an attribute ``remembers``, True, and a method ``initial_state(rows)``,
    which returns the core that episodes begin with, [rows, S].
    """

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Choose an action for each row.

        Args:
            inputs: Stacks of observations [R, k, *shape], or a dict of them.
            state: `Memory`, which holds what the policy returned for these rows before; () without memory.
            decisions: R of them.
        """

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Read these tensors in place from now on."""

    def weights(self) -> Mapping[str, Any]:
        """Return the weights in the layout that inference reads; not a copy."""


class EpsilonGreedyPolicy:
    """Chooses ``argmax_a Q(o, a)``, or with probability epsilon an action drawn uniformly.

    All that it draws (epsilon's coin, the noise of noisy layers, quantiles) comes from the decision's own stream, a
    function of (seed, episode, start). Evaluation is without noise.

    Args:
        network: Read in place.
        values: From (network, inputs, generator) to Q-values [R, A].
        num_actions: A.
        epsilon: The probability of a random action, as a function of the decision.
        seed: Of the exploration.
        compute: Where the forward pass runs; the network must have been placed there.
        first_action: Number of the first action.
        read: Turns batches of stacks into what the network reads; None is for arrays that it reads as they are.
        values_draw: Whether `values` draws from its generator; each row then has a forward pass of its own.
        leaves_values: Leave ``value``, Q(o, a) of the chosen action, and ``max_value``, the largest Q(o, .), as extras,
            float32 [R] each.
    """

    def __init__(
        self,
        network: nn.Module,
        values: Values,
        num_actions: int,
        epsilon: Callable[[Decision], float],
        seed: int = 0,
        compute: Compute | None = None,
        first_action: int = 0,
        read: Callable[[Any], Any] | None = None,
        values_draw: bool = False,
        leaves_values: bool = False,
    ) -> None:
        """See the class."""
        self.network = network
        self._values = values
        self._noisy_layers = noisy_layers(network)
        self._num_actions = num_actions
        self.epsilon = epsilon
        self._random = DecisionRandom(seed)
        self.compute = compute or Compute()
        self._first_action = first_action
        self._read = read or self.compute.tensor
        self._row_by_row = values_draw or bool(self._noisy_layers)
        self._leaves_values = leaves_values

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Return the chosen actions [R] for stacks [R, k, *shape], or for a dict of them."""
        if len(decisions) == 1 and not self._leaves_values:
            return PolicyOutput(np.array([self._first_action + self._act_on_one(inputs, decisions[0])]))
        rows = Decisions.of(decisions)
        # A worker's warm-up inference belongs to no episode and has the number -1.
        episodes = np.maximum(rows.episode, 0)
        uniforms, actions = self._random.uniforms_and_actions(
            self._num_actions, episodes, rows.start, rows.eval_mode, rows.env_id
        )
        greedy = uniforms >= self._epsilons(rows)
        if self._leaves_values:
            return self._act_with_values(inputs, rows, greedy, actions)
        chosen = np.flatnonzero(greedy)
        if self._row_by_row:  # what a row draws besides is of its own stream
            for row in chosen:
                one = each_array(lambda array, row=row: array[row : row + 1], inputs)
                actions[row] = self._act_on_one(one, rows[row])
        elif 2 * len(chosen) > len(rows):
            # A few values that nobody reads cost less than to pick the other rows out.
            np.copyto(actions, self._greedy_actions(inputs), where=greedy)
        elif len(chosen):
            actions[chosen] = self._greedy_actions(each_array(lambda array: array[chosen], inputs))
        return PolicyOutput(actions + self._first_action)

    def _act_with_values(
        self, inputs: Any, rows: Decisions, greedy: npt.NDArray[np.bool_], actions: npt.NDArray[np.int64]
    ) -> PolicyOutput:
        """Return the actions with their values: the given ones where a row is not greedy."""
        if self._row_by_row:
            each = [
                self._values_of_row(each_array(lambda array, row=row: array[row : row + 1], inputs), rows[row])
                for row in range(len(rows))
            ]
            values = torch.cat(each)
        else:
            values = self.q_values(inputs)
        q = values.float().cpu().numpy()
        actions = np.where(greedy, q.argmax(axis=1), actions)
        extras = {"value": q[np.arange(len(q)), actions], "max_value": q.max(axis=1)}
        return PolicyOutput(actions + self._first_action, extras=extras)

    def _greedy_actions(self, inputs: Any) -> npt.NDArray[np.int64]:
        actions: npt.NDArray[np.int64] = self.q_values(inputs).argmax(dim=1).cpu().numpy()
        return actions

    def _epsilons(self, rows: Decisions) -> npt.NDArray[np.float64]:
        if isinstance(self.epsilon, Epsilon):
            return self.epsilon.of_rows(rows)
        return np.array([self.epsilon(decision) for decision in rows], np.float64)

    def _act_on_one(self, one: Any, decision: Decision) -> int:
        """Return an action for a stack [1, k, *shape]."""
        rng, uniform, random_action = self._coin(decision)
        if uniform < self.epsilon(decision):
            return random_action
        return int(self._q_values(one, rng, noisy=not decision.eval_mode)[0].argmax())

    def _values_of_row(self, one: Any, decision: Decision) -> Tensor:
        """Return the values [1, A] that `_act_on_one` chooses by."""
        return self._q_values(one, self._coin(decision)[0], noisy=not decision.eval_mode)

    def _coin(self, decision: Decision) -> tuple[np.random.Generator, float, int]:
        """Return a decision's coin, and before it its generator: noise and quantiles are drawn after the coin."""
        rng = self._random.draw(max(decision.episode, 0), decision.start, decision.eval_mode, decision.env_id)
        return rng, rng.random(), int(rng.integers(self._num_actions))

    def q_values(self, inputs: Any) -> Tensor:
        """Return the Q-values [R, A] of stacks [R, k, *shape], without noise."""
        return self._q_values(inputs, self._random.draw(0, 0, eval_mode=True), noisy=False)

    @torch.inference_mode()
    def _q_values(self, inputs: Any, rng: np.random.Generator, noisy: bool) -> Tensor:
        resample_noise(self._noisy_layers, rng if noisy else None)
        with self.compute.autocast():
            return self._values(self.network, self._read(inputs), rng)

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied. `version` is not needed."""
        device = self.compute.torch_device
        here = {name: tensor.to(device) for name, tensor in weights.items()}
        self.network.requires_grad_(False).load_state_dict(here, assign=True)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights in the layout that inference reads; not a copy."""
        return self.network.state_dict()


Choose = Callable[..., tuple[Any, dict[str, Any]]]
"""From what the network gives [R, ...], the decisions, and a uniform number and action [R] of each decision's own
stream, to actions [R], counted from 0, and extras [R, ...]. Of chunks: from uniform numbers [R, H] to actions
[R, H]."""


class RecurrentPolicy:
    """Acts by a network over sequences, a row at a time: with its core's state, the previous action and reward.

    Beside the extras of `choose` it leaves ``state``, what the core remembers after the decision, if there is a core.

    Args:
        network: Read in place; a `networks.sequence_network.SequenceNetwork`.
        choose: Makes actions of what the network gives.
        num_actions: A.
        seed: Of the exploration.
        compute: Where the forward pass runs; the network must have been placed there.
        first_action: Number of the first action.
        read: Turns batches of stacks into what the network reads.
        version: Returns how many updates the weights have, which is left as ``version``, and where the network
            remembers as ``torso_version`` too, which differs where `release` comes later; None leaves nothing.
        chunk: Actions that a decision gives at once, H, for which `choose` is given uniform numbers [R, H]; None for
            one action.

    Attributes:
        remembers: Whether the network reads more than the observation.
    """

    def __init__(
        self,
        network: Any,
        choose: Choose,
        num_actions: int,
        seed: int,
        compute: Compute,
        first_action: int,
        read: Callable[[Any], Any],
        version: Callable[[], int] | None = None,
        chunk: int | None = None,
    ) -> None:
        """See the class."""
        self.network, self.compute, self._version, self._chunk = network, compute, version, chunk
        self.remembers: bool = network.feed_previous or network.state_size > 0
        self._choose, self._num_actions, self._first_action, self._read = choose, num_actions, first_action, read
        self._random = DecisionRandom(seed)

    def initial_state(self, rows: int) -> Tensor:
        """Return what episodes begin with, [rows, S]."""
        state: Tensor = self.network.initial_state(rows)
        return state

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Return the chosen actions [R] for stacks [R, k, *shape], the core's states [R, S] and the extras."""
        rows = Decisions.of(decisions)
        stacks = each_array(lambda tensor: tensor.unsqueeze(0), self._read(inputs))
        memory = state if self.remembers else self._blank(len(rows))
        return self._chosen(*self._forward(self.network, stacks, memory), rows, self.version)

    @torch.inference_mode()
    def encode(self, inputs: Any) -> Tensor:
        """Return the network's features [R, F] of stacks [R, k, *shape], which `release` decides by."""
        with self.compute.autocast():
            features: Tensor = self.network.encode(self._read(inputs))
        return features

    def release(
        self, features: Tensor, memory: Memory, decisions: Sequence[Decision], torso_version: int | None = None
    ) -> PolicyOutput:
        """Return what `act` does, of features [R, F] that `encode` gave then, perhaps in another process.

        Args:
            features: Of R rows.
            memory: What is remembered now.
            decisions: R of them.
            torso_version: How many updates the weights had that made the features; those of now if not given.
        """
        outputs, core = self._forward(self.network.decide, features.unsqueeze(0), memory)
        version = self.version if torso_version is None else torso_version
        return self._chosen(outputs, core, Decisions.of(decisions), version)

    @property
    def version(self) -> int | None:
        """How many updates the weights have; None where that is not left beside actions."""
        return None if self._version is None else self._version()

    def _chosen(self, outputs: Any, core: Tensor, rows: Decisions, torso_version: int | None) -> PolicyOutput:
        actions, extras = self._choose(outputs, rows, *self._drawn(rows))
        if self.network.state_size:
            extras[STATE] = core.cpu().numpy()
        if self._version is not None:
            extras[VERSION] = np.full(len(rows), self._version())
            if self.remembers:
                extras[TORSO_VERSION] = np.full(len(rows), torso_version)
        return PolicyOutput(actions + self._first_action, core if self.remembers else (), extras)

    def _drawn(self, rows: Decisions) -> tuple[npt.NDArray[Any], ...]:
        """Return a uniform number and an action of each decision's own stream; for chunks uniform numbers alone."""
        if self._chunk is not None:
            return (self._random.uniforms(self._chunk, rows),)
        # A worker's warm-up inference belongs to no episode and has the number -1.
        episodes = np.maximum(rows.episode, 0)
        return self._random.uniforms_and_actions(self._num_actions, episodes, rows.start, rows.eval_mode, rows.env_id)

    @torch.inference_mode()
    def _forward(self, decide: Callable[..., Any], rows: Any, memory: Memory) -> tuple[Any, Tensor]:
        """Call the network, or what of it decides by features, on one step of R sequences [1, R, ...]."""
        first = memory.first
        action = memory.previous_action - self._first_action
        action = np.where(first if action.ndim == 1 else first[:, None], -1, action)
        reward = np.where(first, np.float32(0), memory.previous_reward)
        tensors = [self.compute.tensor(array[None]) for array in (action, reward, first)]
        with self.compute.autocast():
            outputs, core = decide(rows, *tensors, memory.core)
        if isinstance(outputs, tuple):
            return tuple(each[0] for each in outputs), core
        return outputs[0], core

    def _blank(self, rows: int) -> Memory:
        action = np.zeros(rows if self._chunk is None else (rows, self._chunk), np.int64)
        return Memory(self.initial_state(rows), action, np.zeros(rows, np.float32), np.ones(rows, bool))

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Read these tensors in place from now on, which have `version` updates; those on another device are copied."""
        if self._version is not None:
            self._version = lambda: version
        device = self.compute.torch_device
        here = {name: tensor.to(device) for name, tensor in weights.items()}
        self.network.requires_grad_(False).load_state_dict(here, assign=True)

    def note_updates(self, updates: int) -> None:
        """Take note of how many updates the weights have, where versions count something else."""
        if self._version is not None:
            self._version = lambda: updates

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights in the layout that inference reads; not a copy."""
        weights: Mapping[str, Tensor] = self.network.state_dict()
        return weights


class PolicyCopies:
    """Copies of a policy, such as one on each of some devices, each of which acts on a share of the rows at a time.

    The rows are cut into shares of equal size, one row more or less, in their order; all copies compute at once.

    Args:
        policies: At least one; their weights are their own.
    """

    def __init__(self, policies: Sequence[Policy]) -> None:
        """See the class."""
        self._policies = policies
        self._threads = ThreadPoolExecutor(len(policies), thread_name_prefix="act")

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """See `Policy.act`; the policies are without memory."""
        rows = Decisions.of(decisions)
        begins = [len(rows) * part // len(self._policies) for part in range(len(self._policies) + 1)]
        shares = [(policy, slice(*cut)) for policy, cut in zip(self._policies, pairwise(begins), strict=True)]

        def act_on(share: tuple[Policy, slice]) -> PolicyOutput:
            policy, part = share
            return policy.act(each_array(lambda array: array[part], inputs), (), rows[part])

        # Where there are fewer rows than copies, some have nothing to do.
        outputs = list(self._threads.map(act_on, [(policy, part) for policy, part in shares if part.start < part.stop]))
        left = [output.extras or {} for output in outputs]
        extras = {name: np.concatenate([each[name] for each in left]) for name in left[0]}
        return PolicyOutput(np.concatenate([output.action for output in outputs]), extras=extras or None)

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Act on copies of these tensors from now on."""
        for policy in self._policies:
            policy.load_weights({name: tensor.detach().clone() for name, tensor in weights.items()}, version)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights that act; not a copy."""
        return self._policies[0].weights()


class WorkerPolicy:
    """A policy of rows as a worker of an asynchronous runner calls it: one observation in, one action out.

    Args:
        policy: Reads stacks of one observation, and has no memory.
        without_tuples: Turns an observation into an array or dicts of arrays; None for one that always is.
        whole_stacks: Whether an observation is a stack already, [k, *shape].

    Attributes:
        policy: As given.
    """

    def __init__(
        self, policy: Policy, without_tuples: Callable[[Any], Any] | None = None, whole_stacks: bool = False
    ) -> None:
        """See the class."""
        self.policy = policy
        self._without_tuples, self._whole_stacks = without_tuples, whole_stacks

    def act(self, observation: Any, decision: Decision) -> Any:
        """Return the environment's action for one observation, [*shape] or a dict of such.

        Where the policy leaves extras, the action comes with them: an object with ``action`` and ``extras``.
        `decision` is any object with the attributes of `async_wrappers.agents.policy.Decision`.
        """
        if self._without_tuples is not None:
            observation = self._without_tuples(observation)
        stack = observation if self._whole_stacks else stacked([observation])
        output = self.policy.act(batch_of_one(stack), (), (decision,))
        if output.extras is None:
            return output.action[0].item() if output.action.ndim == 1 else output.action[0]
        extras = {name: values[0] for name, values in output.extras.items()}
        return PolicyOutput(output.action[0], (), extras)

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied."""
        self.policy.load_weights(weights, version)

    def note_updates(self, updates: int) -> None:
        """Take note of how many updates the weights have; see `RecurrentPolicy.note_updates`."""
        if hasattr(self.policy, "note_updates"):
            self.policy.note_updates(updates)

    def weights(self) -> Mapping[str, Any]:
        """Return the weights in the layout that inference reads; not a copy."""
        return self.policy.weights()


class SplitWorkerPolicy:
    """A policy with memory as an asynchronous runner calls it: workers encode, the environment loop releases.

    What goes from one to the other are the features of one observation, float32 [F], whatever the network computes in;
    where versions are left, a dict of ``features`` and ``version``, how many updates the torso's weights have.

    Args:
        policy: Whose network has `encode` and `decide`, as a `networks.sequence_network.SequenceNetwork`.
        blank: An observation as the policy reads it, [1, 1, *shape] or a dict of such.
        without_tuples: As in `WorkerPolicy`.
        whole_stacks: As in `WorkerPolicy`.

    Attributes:
        policy: As given.
        features: The space of what `encode` returns.

    Raises:
        ValueError: The network is not in two halves.
    """

    def __init__(
        self,
        policy: RecurrentPolicy,
        blank: Any,
        without_tuples: Callable[[Any], Any] | None = None,
        whole_stacks: bool = False,
    ) -> None:
        """See the class."""
        if not (hasattr(policy.network, "encode") and hasattr(policy.network, "decide")):
            raise ValueError(
                "network must have encode(observation) and decide(features, previous_action, previous_reward, first, "
                f"state) to play live with memory, as SequenceNetwork has, got {type(policy.network).__name__}"
            )
        self.policy = policy
        self._without_tuples, self._whole_stacks = without_tuples, whole_stacks
        encoded = policy.encode(blank)
        self._dtype = encoded.dtype  # of the network's features, float32 or narrower
        self.features: gym.Space[Any] = Box(-np.inf, np.inf, tuple(encoded.shape[1:]), np.float32)
        if policy.version is not None:
            version = Box(0, np.iinfo(np.int64).max, (), np.int64)
            self.features = Dict({"features": self.features, "version": version})

    def encode(self, observation: Any, decision: Decision) -> Any:
        """Return the features of one observation, [*shape] or a dict of such."""
        if self._without_tuples is not None:
            observation = self._without_tuples(observation)
        stack = observation if self._whole_stacks else stacked([observation])
        features = self.policy.encode(batch_of_one(stack))[0].float().cpu().numpy()
        version = self.policy.version
        return features if version is None else {"features": features, "version": np.array(version)}

    def release(self, features: Any, memory: Any, decision: Decision) -> PolicyOutput:
        """Return the environment's action, what the core remembers [1, S] and the extras.

        Args:
            features: What `encode` returned.
            memory: Any object with the attributes of `async_wrappers.policy.Memory`.
            decision: Any object with the attributes of `Decision`.
        """
        version = None
        if self.policy.version is not None:
            features, version = features["features"], int(features["version"])
        # A copy, as `encode` gave it: where an array begins in memory may decide on how it is computed with.
        row = torch.tensor(features, device=self.policy.compute.torch_device).to(self._dtype).unsqueeze(0)
        core = self.policy.initial_state(1) if memory.first else memory.state
        action = np.array([0 if memory.first else memory.previous_action])
        reward = np.array([memory.previous_reward], np.float32)
        of_one = Memory(core, action, reward, np.array([memory.first]))
        output = self.policy.release(row, of_one, (decision,), version)
        extras = {name: values[0] for name, values in (output.extras or {}).items()}
        return PolicyOutput(output.action[0], output.state, extras)

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied."""
        self.policy.load_weights(weights, version)

    def note_updates(self, updates: int) -> None:
        """Take note of how many updates the weights have; see `RecurrentPolicy.note_updates`."""
        if hasattr(self.policy, "note_updates"):
            self.policy.note_updates(updates)

    def weights(self) -> Mapping[str, Any]:
        """Return the weights in the layout that inference reads; not a copy."""
        return self.policy.weights()


def one_row(
    policy: RecurrentPolicy,
    blank: Any,
    without_tuples: Callable[[Any], Any] | None = None,
    whole_stacks: bool = False,
) -> WorkerPolicy | SplitWorkerPolicy:
    """Return a policy over sequences as a worker calls it: in two halves where it remembers, else as it is."""
    if policy.remembers:
        return SplitWorkerPolicy(policy, blank, without_tuples, whole_stacks)
    return WorkerPolicy(policy, without_tuples, whole_stacks)


class OneRow:
    """The reverse of `WorkerPolicy`: a worker's policy, which reads one observation, as a policy of one row.

    Args:
        policy: With ``act(observation, decision)`` and, if it learns, ``load_weights(weights, version)``.
    """

    def __init__(self, policy: Any) -> None:
        """See the class."""
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
        """See `Policy.load_weights`."""
        self._policy.load_weights(weights, version)

    def weights(self) -> Mapping[str, Any]:
        """See `Policy.weights`."""
        weights: Mapping[str, Any] = self._policy.weights()
        return weights
