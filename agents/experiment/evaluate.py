"""Evaluation: the scores of an agent that does not learn, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from async_wrappers.agents.play.play import EpisodeResult, Phase, environment_seed, go_to_encounter

if TYPE_CHECKING:
    from async_wrappers.agents.play.turns.agents import Agent

_RESAMPLES = 10_000


def evaluate(
    agent: Agent, environment: gym.Env[Any, Any], episodes: int, seed: int, max_frames: int | None = None
) -> list[EpisodeResult]:
    """Play `episodes` evaluation episodes, whose environment seeds depend on `seed` and the episode's number alone.

    An environment with a sequence of encounters begins with its first.

    Args:
        agent: Its ``eval_mode`` is set.
        environment: Where it plays.
        episodes: How many.
        seed: The run's.
        max_frames: Frames after which an episode is cut.
    """
    return list(islice(episodes_of(agent, environment, seed, max_frames), episodes))


def episodes_of(
    agent: Agent, environment: gym.Env[Any, Any], seed: int, max_frames: int | None = None, first: int = 0
) -> Iterator[EpisodeResult]:
    """Play evaluation episodes without end from a number on, each when it is asked for; see `evaluate`."""
    from async_wrappers.agents.play.turns.turns import Watched, play_episode  # `watch` needs no PyTorch

    agent.eval_mode = True
    go_to_encounter(environment)
    watched = Watched(environment)
    if first:
        agent.go_on_from(first)
    for number in count(first):
        episode = play_episode(agent, watched, environment_seed(seed, Phase.FINAL, number), max_frames)  # type: ignore[arg-type]
        yield episode._replace(digest=watched.digest)


def words_of_equal_episodes(episodes: int, different: int | None, agent: str = "") -> str:
    """Return the sentence below a table about episodes that are equal; empty where they all differ."""
    if different is None or different >= episodes:
        return ""
    which = f"{agent}: " if agent else ""
    return (
        f"{which}{episodes} episodes, {different} different: the others repeat {'it' if different == 1 else 'these'}, "
        "and an interval over all of them is too narrow; no-ops at the start, sticky or drawn actions make them differ"
    )


Statistic = Callable[..., Any]
"""From ``(scores, axis=-1)`` to the number that sums up scores along an axis, or an array of them."""


def interquartile_mean(scores: npt.ArrayLike, axis: int = -1) -> Any:
    """Return the mean without the lowest and the highest quarter of the scores (rounded down); Agarwal et al. 2021."""
    # Takes a second to import, and a run without a report never needs it.
    from scipy import stats

    return stats.trim_mean(scores, 0.25, axis=axis)


def mean(scores: npt.ArrayLike, axis: int = -1) -> Any:
    """Return the mean."""
    return np.asarray(scores, np.float64).mean(axis=axis)


STATISTICS: Mapping[str, Statistic] = {"mean": mean, "iqm": interquartile_mean}


def bootstrap_interval(scores: Sequence[float], statistic: Statistic = mean) -> tuple[float, float]:
    """Return the 95 % percentile-bootstrap interval of a statistic of the scores (Efron 1979)."""
    return _middle(_bootstrap(scores, 0, statistic))


def difference_interval(
    scores: Sequence[float], others: Sequence[float], statistic: Statistic = mean
) -> tuple[float, float]:
    """Return the 95 % percentile-bootstrap interval of statistic(scores) - statistic(others).

    The two are resampled independently.
    """
    return _middle(_bootstrap(scores, 0, statistic) - _bootstrap(others, 1, statistic))


def _bootstrap(scores: Sequence[float], seed: int, statistic: Statistic) -> npt.NDArray[np.float64]:
    """Return the statistic of each resample, `[_RESAMPLES]`.

    The seed is fixed, so that the same scores always give the same interval.
    """
    # SciPy refuses a single score, whose resamples are all that score.
    if len(scores) == 1:
        return np.full(_RESAMPLES, statistic(scores), np.float64)
    from scipy import stats

    drawn = stats.bootstrap((scores,), statistic, n_resamples=_RESAMPLES, method="percentile", rng=seed)
    distribution: npt.NDArray[np.float64] = drawn.bootstrap_distribution
    return distribution


def _middle(distribution: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the bounds of the middle 95 %."""
    low, high = np.percentile(distribution, (2.5, 97.5))
    return float(low), float(high)
