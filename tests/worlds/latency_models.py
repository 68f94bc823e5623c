"""One latency model of every kind, for tests that hold for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from async_wrappers.latency import (
    Constant,
    Correlated,
    Gamma,
    Latency,
    LogNormal,
    Spikes,
    Trace,
    Uniform,
)

__all__ = ["DRAWS", "FAST", "MEASURED", "MODELS", "draws", "every_model", "random_models"]

FAST = settings(deadline=None, database=None)
DRAWS = 20_000
MEASURED = [0.110, 0.125, 0.118, 0.300, 0.121, 0.109, 0.140]

MODELS = [
    Constant(0.120),
    Uniform(0.100, 0.180),
    LogNormal(mean=0.120, cv=0.2),
    LogNormal(mean=0.120, cv=1.5),
    Gamma(mean=0.120, cv=0.5),
    Gamma(mean=0.120, cv=2.0),
    Spikes(0.120, probability=0.02, factor=3),
    Spikes(LogNormal(0.120, 0.2), probability=0.1, factor=0.5),
    Spikes(Trace(MEASURED), probability=0.5, factor=4),
    Spikes(Spikes(Gamma(0.05, 0.5), 0.1, 2), 0.1, 4),
    Trace(MEASURED),
    Trace(MEASURED, order="shuffled"),
    Correlated(LogNormal(0.120, 0.2), correlation=0.6),
    Correlated(Spikes(Uniform(0.1, 0.2), 0.1, 3), correlation=0.8),
    Correlated(Trace(MEASURED), correlation=0.3),
]
every_model = pytest.mark.parametrize("model", MODELS, ids=repr)
random_models = pytest.mark.parametrize("model", [m for m in MODELS if not isinstance(m, Constant)], ids=repr)


def draws(model: Latency, count: int, seed: Any = 0) -> list[int]:
    """Return the first draws of a stream, in nanoseconds."""
    stream = model.stream(seed)
    return [stream.draw() for _ in range(count)]
