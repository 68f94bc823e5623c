"""Latency models: how long one inference takes, in seconds.

A model is an immutable description; `Latency.stream` makes a seeded source of draws from it, in whole nanoseconds, the
unit of time inside a schedule.

* `Constant`, `Uniform`, `LogNormal`, `Gamma`: independent draws of one distribution.
* `Trace`: measured latencies, played in order or drawn at random; `measure` makes one of a policy.
* `Spikes`, `Correlated`: another model, now and then much slower, or with slow inferences in a row.
* `as_latency`: a number, an array or a model as a model. `summary`: mean, spread and percentiles of any model.
"""

from async_wrappers.latency.compound import Correlated, Spikes, Trace, as_latency, measure, summary
from async_wrappers.latency.models import (
    Constant,
    Gamma,
    Latency,
    LatencyStream,
    LogNormal,
    Uniform,
    nanoseconds,
    seconds_of,
)

__all__ = [
    "Constant",
    "Correlated",
    "Gamma",
    "Latency",
    "LatencyStream",
    "LogNormal",
    "Spikes",
    "Trace",
    "Uniform",
    "as_latency",
    "measure",
    "nanoseconds",
    "seconds_of",
    "summary",
]
