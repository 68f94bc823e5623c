"""A grid that was given in Python, as the points of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from agents.experiment.config import ConfigError
from agents.experiment.optional_imports import extra
from agents.sweep.grid import Point

__all__ = ["points_of"]

Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def points_of(grid: Grid, num_samples: int | None = None) -> list[Point]:
    """Return all combinations of the values by key, or the points that were given one by one.

    Args:
        grid: The values by key, or the points.
        num_samples: Draw so many points of the values, or distributions of ``ray.tune``, instead.

    Raises:
        ConfigError: An empty grid, points of different keys, or a value that is not plain data.
    """
    if num_samples is not None:
        chosen = _drawn(grid, num_samples)
    elif isinstance(grid, Mapping):
        for key, values in grid.items():
            _check_list(key, values)
        chosen = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())] if grid else []
    else:
        chosen = [dict(point) for point in grid]
    if not chosen or not chosen[0]:
        raise ConfigError("grid: it is empty: give values for at least one key")
    for point in chosen:
        if point.keys() != chosen[0].keys():
            raise ConfigError(f"grid: all points must have the keys {', '.join(chosen[0])}, got {', '.join(point)}")
        for key, value in point.items():
            _check_plain(key, value)
    return [Point("", point) for point in chosen]


def _drawn(grid: Grid, num_samples: int) -> list[dict[str, Any]]:
    if not isinstance(grid, Mapping):
        raise ConfigError("grid: a random search draws from values by key, and not from points")
    with extra("search='random'", "ray"):
        from agents.sweep.search import draw_points
    for key, values in grid.items():
        if not hasattr(values, "sample"):
            _check_list(key, values)
    points = draw_points(grid, num_samples) if all(map(_holds_values, grid.values())) else []
    return list({json.dumps(point): point for point in points}.values())


def _holds_values(values: Any) -> bool:
    return hasattr(values, "sample") or len(values) > 0


def _check_list(key: str, values: Any) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ConfigError(f"grid[{key!r}] must be a list of values, got {values!r}")


def _check_plain(key: str, value: Any) -> None:
    try:
        same = json.loads(json.dumps(value)) == value
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ConfigError(f"grid[{key!r}] must hold numbers, texts, truth values, None or lists of them, got {value!r}")
