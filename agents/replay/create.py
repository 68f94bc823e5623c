"""A replay memory for an environment, by what it forgets and how it draws."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym

from agents.replay.observations import observation_schema
from agents.replay.prioritized import PrioritizedReplay
from agents.replay.reservoir import ReservoirReplay
from agents.replay.ring import RingReplay


def create_replay(
    observation_space: gym.Space[Any],
    *,
    prioritized: bool = False,
    eviction: Literal["oldest", "reservoir"] = "oldest",
    **arguments: Any,
) -> RingReplay | ReservoirReplay:
    """Makes an empty replay of observations of a space.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        prioritized: draw by priorities, not uniformly.
        eviction: what goes when the replay is full, the "oldest" or a random transition ("reservoir": see
            `ReservoirReplay` for what it costs).
        arguments: the other arguments of the replay.

    Raises:
        ValueError: a space that cannot be stored, an unknown eviction, priorities in a reservoir, or an argument out of
            its range.
    """
    if eviction not in ("oldest", "reservoir"):
        raise ValueError(f"eviction must be 'oldest' or 'reservoir', got {eviction!r}")
    schema = observation_schema(observation_space)
    if eviction == "reservoir":
        if prioritized:
            raise ValueError("eviction must be 'oldest' where prioritized=True, got 'reservoir'")
        return ReservoirReplay(*schema, **arguments)
    return (PrioritizedReplay if prioritized else RingReplay)(*schema, **arguments)
