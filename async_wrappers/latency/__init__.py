"""Latency models: how long one inference takes, in seconds."""

from async_wrappers.latency.models import (
    Constant,
    Correlated,
    Gamma,
    Latency,
    LatencyStream,
    LogNormal,
    Spikes,
    Trace,
    Uniform,
    as_latency,
    measure,
    nanoseconds,
    seconds_of,
    summary,
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
