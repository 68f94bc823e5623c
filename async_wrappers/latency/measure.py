"""Latencies of a policy that runs here (`measure`), and figures of any latency (`summary`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from async_wrappers.checks import whole
from async_wrappers.latency.models import as_latency
from async_wrappers.latency.trace import Trace

__all__ = ["measure", "summary"]


def measure(
    policy: Any,
    observation: Any,
    repeats: int = 50,
    warmup: int = 3,
    *,
    decision: Any = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Trace:
    """Time a policy's inferences, one after the other.

    An inference ends when the call returns: on an accelerator, return the action on the host.

    Args:
        policy: An object with ``act(observation, decision)``, or a function of the observation.
        observation: What the policy is given, every time.
        repeats: Inferences that are recorded.
        warmup: Inferences before them that are not.
        decision: The second argument of ``act``.
        clock: Returns the time in nanoseconds.

    Returns:
        The latencies, in the order in which they were measured.

    Raises:
        ValueError: `policy` is neither, `repeats` is not a whole number >= 1 or `warmup` not one >= 0.
    """
    repeats = whole("repeats", repeats, 1)
    warmup = whole("warmup", warmup, 0)
    act = getattr(policy, "act", None)
    if not callable(act) and not callable(policy):
        raise ValueError(f"policy must have act(observation, decision) or be a function of observation, got {policy!r}")
    arguments = (observation, decision) if callable(act) else (observation,)
    infer = act if callable(act) else policy
    for _ in range(warmup):
        infer(*arguments)
    nanoseconds = []
    for _ in range(repeats):
        before = clock()
        infer(*arguments)
        nanoseconds.append(clock() - before)
    return Trace(np.array(nanoseconds) / 1e9)


def summary(latency: Any, draws: int = 10_000, seed: int = 0) -> dict[str, float]:
    """Return ``mean``, ``std``, ``p50``, ``p95``, ``p99`` and ``max`` of a latency's draws, in seconds.

    Args:
        latency: A latency model, or what `as_latency` makes one of.
        draws: How many draws.
        seed: Of the stream they come from: the same seed gives the same summary.

    Raises:
        ValueError: `latency` is no latency, or `draws` not a whole number >= 1.
    """
    stream = as_latency(latency).stream(seed)
    seconds = np.array([stream.draw() for _ in range(whole("draws", draws, 1))]) / 1e9
    p50, p95, p99 = np.quantile(seconds, (0.5, 0.95, 0.99)).tolist()
    spread = {"mean": float(seconds.mean()), "std": float(seconds.std())}
    return {**spread, "p50": p50, "p95": p95, "p99": p99, "max": float(seconds.max())}
