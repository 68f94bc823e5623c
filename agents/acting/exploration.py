"""Exploration: epsilon as a function of the frame count, and random numbers as a function of the decision.

Nothing here depends on what was asked before, so a resumed run explores as an uninterrupted one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import gin
import numpy as np
import numpy.typing as npt

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.actions import Actions
from async_wrappers.agents.settings import SHARE, factory, must, number, settings, whole
from async_wrappers.policy import Decision

__all__ = [
    "DecisionRandom",
    "Epsilon",
    "EpsilonSettings",
    "has_warmup",
    "identity_epsilon",
    "is_per_actor",
    "linearly_decaying_epsilon",
    "per_actor_epsilon",
    "zero_epsilon",
]


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
        if (frames == frames[0]).all() and (actors == actors[0]).all():  # as where all run in step
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

    def for_actions(self, actions: Actions, rows: Decisions) -> tuple[npt.NDArray[Any], ...]:
        """Return the numbers that a policy makes the actions of R decisions from.

        Of Discrete actions: a uniform number `[R]` and an action `[R]`; of chunks of them uniform numbers `[R, H]`
        alone. Of real-valued ones: standard normal and uniform numbers, float32 `[R, ...]` as actions are stored.
        """
        shape, dtype = actions.column
        if dtype.kind == "f":
            drawn = self.normals_and_uniforms(actions.inputs, rows)
            normals, uniforms = (each.astype(dtype).reshape(len(rows), *shape) for each in drawn)
            return normals, uniforms.clip(max=1 - np.finfo(dtype).epsneg)  # rounding to float32 may give 1
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

    def normals_and_uniforms(
        self, entries: int, decisions: Sequence[Decision]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Several standard normal and several uniform numbers in [0, 1) for each of R decisions, `[R, entries]` each.

        An `episode` of -1, as a worker's warm-up has, is 0.
        """
        drawn = np.empty((2, len(decisions), entries))
        for row, each in enumerate(decisions):
            generator = self.draw(max(each.episode, 0), each.start, each.eval_mode, each.env_id)
            generator.standard_normal(out=drawn[0, row])
            generator.random(out=drawn[1, row])
        return drawn[0], drawn[1]


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
