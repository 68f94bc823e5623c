"""Exploration: epsilon as a function of the frame count, and random draws as a function of where in a run they fall.

Nothing here depends on what was asked before, so a resumed run explores as an uninterrupted one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gin
import numpy as np

from agents.decision import Decision


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
    return "actor" in inspect.signature(schedule).parameters


_WITHOUT_WARMUP = [inspect.unwrap(schedule) for schedule in (identity_epsilon, zero_epsilon, per_actor_epsilon)]


def has_warmup(schedule: Callable[..., Any]) -> bool:
    """Return whether a schedule of epsilon depends on its warm-up; the user's own are taken to."""
    while isinstance(schedule, partial):
        schedule = schedule.func
    return inspect.unwrap(schedule) not in _WITHOUT_WARMUP


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
    """

    schedule: Callable[..., float]
    decay_period: int
    warmup: int
    train: float
    evaluation: float
    per_actor: bool = False

    def of_actor(self, actor: int, actors: int) -> Epsilon:
        """Return the epsilon of one of several actors: another one where the schedule takes the number of its actor."""
        if not self.per_actor:
            return self
        return replace(self, schedule=partial(self.schedule, actor=actor, actors=actors))

    def map_schedule(self, function: Callable[..., Any]) -> Epsilon:
        """Return the same with what `function` makes of the schedule."""
        return replace(self, schedule=function(self.schedule))

    def __call__(self, decision: Decision) -> float:
        """Return epsilon for a decision."""
        if decision.eval_mode:
            return self.evaluation
        return self.schedule(self.decay_period, decision.frame, self.warmup, self.train)


class DecisionRandom:
    """Random numbers of each decision as a pure function of (seed, episode, start, eval_mode).

    The generator is counter-based: Philox (Salmon et al. 2011), keyed by the seed. A decision's stream begins at the
    256-bit counter whose 64-bit words are (0, start, episode, eval_mode), lowest first, so that it would run into
    another decision's stream only after 2^64 steps.
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
        self._philox = np.random.Philox(key=key)
        self._generator = np.random.Generator(self._philox)
        self._counter = np.zeros(4, np.uint64)
        # Setting the state of one generator takes a fraction of the time that making a new one does.
        self._state = self._philox.state
        self._state["state"] = {"counter": self._counter, "key": key}

    def draw(self, episode: int, start: int, eval_mode: bool) -> np.random.Generator:
        """The generator of one decision, at the beginning of its stream.

        Args:
            episode: number of the episode.
            start: where in the episode the decision falls, such as its first frame.
            eval_mode: whether the decision belongs to an evaluation.

        Returns:
            A generator that this object owns: the next call moves it to another stream.

        Raises:
            ValueError: `episode` or `start` lies outside [0, 2^64).
        """
        for name, value in (("episode", episode), ("start", start)):
            if not 0 <= value < 2**64:
                raise ValueError(f"{name} must lie in [0, 2**64), got {value}")
        self._counter[1], self._counter[2], self._counter[3] = start, episode, eval_mode
        self._philox.state = self._state
        return self._generator

    def uniform_and_action(self, num_actions: int, episode: int, start: int, eval_mode: bool) -> tuple[float, int]:
        """What an epsilon-greedy decision needs: a uniform number in [0, 1) and an action in [0, num_actions).

        Args:
            num_actions: number of actions, at least 1.
            episode: as in `draw`.
            start: as in `draw`.
            eval_mode: as in `draw`.

        Returns:
            The two draws, independent and uniform.

        Raises:
            ValueError: `num_actions` is less than 1, or a number is out of range as in `draw`.
        """
        if num_actions < 1:
            raise ValueError(f"num_actions must be >= 1, got {num_actions}")
        generator = self.draw(episode, start, eval_mode)
        return generator.random(), int(generator.integers(num_actions))
