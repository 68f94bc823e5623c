"""Scores of an agent that no longer learns, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from agents.agent import Agent
from agents.experiment.episode import Episode, Phase, episode_seed, play_episode

__all__ = ["bootstrap_interval", "difference_interval", "evaluate"]

_RESAMPLES = 10_000


def evaluate(
    agent: Agent, environment: gym.Env[Any, Any], episodes: int, seed: int, max_frames: int | None = None
) -> list[Episode]:
    """Play `episodes` evaluation episodes, whose environment seeds depend on `seed` and the episode's number alone.

    Args:
        agent: Its ``eval_mode`` is set.
        environment: Where it plays.
        episodes: How many.
        seed: The run's.
        max_frames: Frames after which an episode is cut.
    """
    agent.eval_mode = True
    return [
        play_episode(agent, environment, episode_seed(seed, Phase.FINAL, number), max_frames)
        for number in range(episodes)
    ]


def bootstrap_interval(scores: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile-bootstrap interval of the mean score (Efron 1979)."""
    low, high = np.percentile(_resampled_means(scores, 0), (2.5, 97.5))
    return float(low), float(high)


def difference_interval(scores: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile-bootstrap interval of mean(scores) - mean(others), resampled independently."""
    low, high = np.percentile(_resampled_means(scores, 0) - _resampled_means(others, 1), (2.5, 97.5))
    return float(low), float(high)


def _resampled_means(scores: Sequence[float], stream: int) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(stream)  # fixed, so that the same scores always give the same interval
    drawn = rng.integers(len(scores), size=(_RESAMPLES, len(scores)))
    means: npt.NDArray[np.float64] = np.asarray(scores, np.float64)[drawn].mean(axis=1)
    return means
