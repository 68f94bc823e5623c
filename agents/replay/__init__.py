"""Replay memories: where an agent keeps its transitions and draws its batches from."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Dict

from agents.replay.replay import Replay
from agents.replay.reservoir import Reservoir
from agents.replay.ring import NStep, Ring
from agents.replay.selectors import Prioritized, Uniform
from agents.schema import TransitionSchema

__all__ = ["NStep", "Prioritized", "Replay", "Reservoir", "Ring", "Uniform", "create_replay"]


# A replay memory for an environment, by what it forgets and how it draws.


def create_replay(
    observation_space: gym.Space[Any],
    *,
    extras: Dict | None = None,
    prioritized: bool = False,
    eviction: Literal["oldest", "reservoir"] = "oldest",
    capacity: int = 1_000_000,
    stack_size: int = 1,
    update_horizon: int = 1,
    gamma: float = 0.99,
    discount_by: Literal["decision", "frame"] = "decision",
    batch_size: int = 32,
    seed: int = 0,
    **priorities: Any,
) -> Replay:
    """Make an empty replay of n-step transitions.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of what the policy leaves for the learner beside its action; None where it leaves nothing.
        prioritized: draw by priorities, not uniformly.
        eviction: what goes when the replay is full, the "oldest" or a random transition ("reservoir": see `Reservoir`
            for what it costs).
        capacity: slots of a ring, of which an episode of T decisions takes T + 1; transitions of a reservoir.
        stack_size: observations in a stack, k; 1 in a reservoir.
        update_horizon: decisions in a return, n.
        gamma: discount of one decision or one frame, in [0, 1].
        discount_by: what `gamma` discounts, a "decision" or a "frame".
        batch_size: transitions in a batch unless `sample` is given another number.
        seed: of the draws and, in a reservoir, of the eviction, each with a generator of its own.
        priorities: the arguments of `Prioritized`, where `prioritized`.

    Raises:
        TypeError: an argument of `Prioritized` without `prioritized`.
        ValueError: a space that cannot be stored, an unknown eviction, priorities in a reservoir, or an argument out of
            its range.
    """
    if eviction not in ("oldest", "reservoir"):
        raise ValueError(f"eviction must be 'oldest' or 'reservoir', got {eviction!r}")
    if priorities and not prioritized:
        raise TypeError(f"{', '.join(priorities)} must not be given without prioritized=True")
    schema = TransitionSchema(observation_space, extras)
    n_step = NStep(stack_size=stack_size, update_horizon=update_horizon, gamma=gamma, discount_by=discount_by)
    if eviction == "oldest":
        selector = Prioritized(**priorities) if prioritized else Uniform()
        return Replay(Ring(schema, n_step, capacity), selector, batch_size=batch_size, seed=seed)
    if prioritized:
        raise ValueError("eviction must be 'oldest' where prioritized=True, got 'reservoir'")
    draws, evictions = np.random.SeedSequence(seed).spawn(2)
    reservoir = Reservoir(schema, n_step, capacity, batch_size=batch_size, seed=evictions)
    return Replay(reservoir, Uniform(), batch_size=batch_size, seed=draws)
