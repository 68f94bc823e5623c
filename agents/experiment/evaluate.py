"""Scores of an agent that no longer learns, and how sure they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from agents.agent import Agent
from agents.experiment.episode import Episode, Phase, episode_seed, play_episode
from agents.experiment.phase_stats import go_to_encounter

__all__ = ["STATISTICS", "bootstrap_interval", "difference_interval", "evaluate", "interquartile_mean"]

_RESAMPLES = 10_000

Statistic = Callable[[npt.ArrayLike], npt.NDArray[np.float64]]


def evaluate(
    agent: Agent, environment: gym.Env[Any, Any], episodes: int, seed: int, max_frames: int | None = None
) -> list[Episode]:
    """Play `episodes` evaluation episodes, whose environment seeds depend on `seed` and the episode's number alone.

    An environment that goes from encounter to encounter begins with its first.

    Args:
        agent: Its ``eval_mode`` is set.
        environment: Where it plays.
        episodes: How many.
        seed: The run's.
        max_frames: Frames after which an episode is cut.
    """
    agent.eval_mode = True
    go_to_encounter(environment)
    return [
        play_episode(agent, environment, episode_seed(seed, Phase.FINAL, number), max_frames)
        for number in range(episodes)
    ]


def interquartile_mean(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the mean over the last axis without its lowest and highest quarter (rounded down); Agarwal et al. 2021."""
    ordered = np.sort(np.asarray(scores, np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    middle: npt.NDArray[np.float64] = ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)
    return middle


def mean(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the mean over the last axis."""
    return np.asarray(np.asarray(scores, np.float64).mean(axis=-1))


STATISTICS: Mapping[str, Statistic] = {"mean": mean, "iqm": interquartile_mean}


def bootstrap_interval(scores: Sequence[float], statistic: Statistic = mean) -> tuple[float, float]:
    """Return the 95 % percentile-bootstrap interval of a statistic of the scores, their mean (Efron 1979)."""
    low, high = np.percentile(_resampled(scores, 0, statistic), (2.5, 97.5))
    return float(low), float(high)


def difference_interval(
    scores: Sequence[float], others: Sequence[float], statistic: Statistic = mean
) -> tuple[float, float]:
    """Return the 95 % percentile-bootstrap interval of mean(scores) - mean(others), resampled independently."""
    differences = _resampled(scores, 0, statistic) - _resampled(others, 1, statistic)
    low, high = np.percentile(differences, (2.5, 97.5))
    return float(low), float(high)


def _resampled(scores: Sequence[float], stream: int, statistic: Statistic) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(stream)  # fixed, so that the same scores always give the same interval
    drawn = rng.integers(len(scores), size=(_RESAMPLES, len(scores)))
    return statistic(np.asarray(scores, np.float64)[drawn])
