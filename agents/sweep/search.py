"""Random search: points drawn from a grid with Ray Tune's distributions, all before anything runs.

What is drawn depends on the grid alone, so that an interrupted search goes on with the same points. This module needs
the extra `ray`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ray import tune

from agents.experiment.config import ConfigError
from agents.sweep.grid import DISTRIBUTION, Axis

__all__ = ["draw_bindings", "draw_points"]


def draw_bindings(axes: Sequence[Axis], num_samples: int) -> Iterator[dict[str, str]]:
    """Yield so many draws of one of each axis' choices, as text; distributions among them are drawn from.

    Raises:
        ConfigError: A distribution that Ray Tune does not take.
    """
    rng = np.random.RandomState(0)
    for _ in range(num_samples):
        chosen = {axis: axis.choices[tune.randint(0, len(axis.choices)).sample(random_state=rng)] for axis in axes}
        yield {
            key: _drawn(text, rng) for axis, texts in chosen.items() for key, text in zip(axis.keys, texts, strict=True)
        }


def draw_points(space: Mapping[str, Any], num_samples: int) -> list[dict[str, Any]]:
    """Return so many draws of values by key, from lists and from distributions of ``ray.tune``."""
    rng = np.random.RandomState(0)
    return [{key: _one(values, rng) for key, values in space.items()} for _ in range(num_samples)]


def _one(values: Any, rng: np.random.RandomState) -> Any:
    if isinstance(values, tune.search.sample.Domain):
        return _rounded(values.sample(random_state=rng))
    return values[tune.randint(0, len(values)).sample(random_state=rng)]


def _drawn(text: str, rng: np.random.RandomState) -> str:
    distribution = DISTRIBUTION.fullmatch(text)
    if distribution is None:
        return text
    try:
        arguments = ast.literal_eval(f"({distribution[2]},)")
        if len(arguments) > 1 and arguments[0] >= arguments[1]:  # which most of Ray Tune's take silently
            raise ValueError(f"the first bound must be the lower one, got {arguments[0]} and {arguments[1]}")
        domain = getattr(tune, distribution[1])(*arguments)
        return repr(_rounded(domain.sample(random_state=rng)))
    except (TypeError, ValueError, SyntaxError) as error:
        raise ConfigError(f"grid: {text} is no distribution of Ray Tune ({error})") from None


def _rounded(value: Any) -> Any:
    """Return what was drawn as a plain number, which can be read."""
    value = value.item() if isinstance(value, np.generic) else value
    return float(f"{value:.6g}") if isinstance(value, float) else value
