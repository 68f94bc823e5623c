"""Latency models made of something else: of measurements, of another model, of a number or of an array.

* `Trace`: measured latencies, and the JSON files that hold them. `measure` times a policy and makes one.
* `Spikes`, `Correlated`: another model, now and then much slower, or with slow inferences in a row.
* `as_latency`: a number, an array or a model as a model. `summary`: mean, spread and percentiles of any of them.
"""

from __future__ import annotations

import json
import math
import numbers
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from async_wrappers.checks import number, whole
from async_wrappers.files import path_of, write_text_atomically
from async_wrappers.latency.models import (
    LONGEST,
    QUANTILE_POINTS,
    Constant,
    Floats,
    Latency,
    Model,
    Sampler,
    child_seed,
    latencies_of_normal,
    sampler_of,
    seconds_of,
    with_quantiles,
)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Trace(Model):
    """Measured latencies.

    Quantiles are those of the trace: always one of its latencies.

    Attributes:
        latencies: The latencies in seconds [N]; read-only.
        order: As given.

    Args:
        latencies: Latencies in seconds, as an array or a list, or the path of a JSON file: a list of seconds, or an
            object with a list ``latency_s`` (seconds) or ``latency_ms`` (milliseconds).
        order: ``"sequence"``: in the trace's order, from a seeded random place, wrapping round. ``"shuffled"``: each
            inference draws one of them at random, independent of those before.

    Raises:
        ValueError: No latencies, one that is not from 0 to 1e9 s, an unknown order, or a file that is missing or
            holds something else.
    """

    latencies: Floats
    order: Literal["sequence", "shuffled"]

    def __init__(
        self, latencies: ArrayLike | os.PathLike[str], order: Literal["sequence", "shuffled"] = "sequence"
    ) -> None:
        if not isinstance(order, str) or order not in ("sequence", "shuffled"):
            raise ValueError(f'order must be "sequence" or "shuffled", got {order!r}')
        is_file = isinstance(latencies, (str, os.PathLike))
        seconds = _read_file(latencies) if is_file else _seconds_array(latencies, "latencies")
        self._set(latencies=seconds, order=order)

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        return float(self.latencies.mean())

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the latencies as ``{"latency_s": [...]}``, all or nothing; ``Trace(path)`` reads them back.

        Args:
            path: The file; an old one is replaced.

        Raises:
            OSError: The file cannot be written.
        """
        content = json.dumps({"latency_s": self.latencies.tolist()}) + "\n"
        write_text_atomically(path_of(path), content)

    def _sampler(self, seed: np.random.SeedSequence) -> Sampler:
        return super()._sampler(seed) if self.order == "shuffled" else _InOrder(self, np.random.default_rng(seed))

    def _sample(self, rng: np.random.Generator, count: int) -> Floats:
        return self.latencies[rng.integers(len(self.latencies), size=count)]

    def _quantile(self, u: Floats) -> Floats:
        # As a float, 0.07 * 100 is a little more than 7, and its ceiling would be 8.
        rank = np.ceil(u * len(self._sorted) - 1e-9).astype(np.int64) - 1
        return self._sorted[np.maximum(rank, 0)]

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(self.latencies)

    def __len__(self) -> int:
        return len(self.latencies)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return self.order == other.order and np.array_equal(self.latencies, other.latencies)

    def __hash__(self) -> int:
        return hash((self.order, tuple(self.latencies[:16].tolist()), len(self.latencies)))

    def __repr__(self) -> str:
        if len(self.latencies) <= 8:
            return f"Trace({self.latencies.tolist()}, order={self.order!r})"
        return f"Trace(<{len(self.latencies)} latencies, mean {self.mean:.4g} s>, order={self.order!r})"


class _InOrder:
    """Plays a trace in order, round and round."""

    def __init__(self, trace: Trace, rng: np.random.Generator) -> None:
        self._trace, self._place = trace, int(rng.integers(len(trace)))

    def __call__(self, count: int) -> Floats:
        places = np.arange(self._place, self._place + count) % len(self._trace)
        self._place = (self._place + count) % len(self._trace)
        return self._trace.latencies[places]


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
        observation: Observation of every inference.
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


def _read_file(path: Any) -> Floats:
    """Return the latencies in a JSON file, in seconds [N]."""
    name = f"latencies in {os.fspath(path)!r}"
    try:
        content = json.loads(path_of(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"latencies must be numbers or the path of a JSON file of them, got {os.fspath(path)!r}: {error}"
        ) from error
    keys = [key for key in ("latency_s", "latency_ms") if isinstance(content, dict) and key in content]
    if not isinstance(content, list) and len(keys) != 1:
        raise ValueError(
            f'{name} must be a list of seconds, or an object with either "latency_s" or "latency_ms", '
            f"got {_short(content)}"
        )
    if keys == ["latency_ms"]:
        return _seconds_array(content["latency_ms"], f"{name} (latency_ms)", 1000)
    return _seconds_array(content["latency_s"] if keys else content, name)


def _seconds_array(values: Any, name: str, per_second: int = 1) -> Floats:
    """Return `values` as seconds [N], not to be written to, or raise a ValueError that names the argument."""
    wanted = f"{name} must be a non-empty list of numbers from 0 to {LONGEST * per_second:.0e}"
    try:
        given = np.asarray(values)
    except (TypeError, ValueError):  # ragged, or on another device
        given = np.empty(0)
    if given.dtype.kind not in "iuf" or given.ndim != 1 or not given.size:
        raise ValueError(f"{wanted}, got {_short(values)}")
    seconds = given.astype(np.float64) / per_second
    possible = (seconds >= 0) & (seconds <= LONGEST)
    if not possible.all():
        at = int(np.argmin(possible))
        raise ValueError(f"{wanted}, got {given[at].item()!r} at place {at}")
    seconds.setflags(write=False)
    return seconds


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True, init=False)
class Spikes(Model):
    """Now and then an inference takes `factor` times as long: a page fault, a busy core, a garbage collection.

    Quantiles are of 50,000 evenly spaced quantiles of `base` and as many spikes; with a constant base they are exact.

    Args:
        base: The latency without spikes: a model, or a number of seconds for a `Constant`.
        probability: Share of inferences that are spikes.
        factor: A spike's latency over that of `base`.

    Raises:
        ValueError: `base` is no latency, `probability` is not from 0 to 1, or `factor` is not finite and > 0.
    """

    base: Latency
    probability: float
    factor: float

    def __init__(self, base: Latency | ArrayLike, probability: float, factor: float) -> None:
        self._set(
            base=as_latency(base, "base"),
            probability=number("probability", probability, "a share from 0 to 1", lambda share: 0 <= share <= 1),
            factor=number("factor", factor, "a finite number > 0", lambda times: 0 < times < math.inf),
        )

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        return self.base.mean * (1 - self.probability + self.probability * self.factor)

    def _sampler(self, seed: np.random.SeedSequence) -> Sampler:
        # Base and spikes have generators of their own, so that blocks do not matter.
        rng, base = np.random.default_rng(child_seed(seed, 0)), sampler_of(self.base, child_seed(seed, 1))
        return partial(self._spiked, rng, base)

    def _spiked(self, rng: np.random.Generator, base: Sampler, count: int) -> Floats:
        spikes = rng.random(count) < self.probability
        return base(count) * np.where(spikes, self.factor, 1.0)

    def _quantile(self, u: Floats) -> Floats:
        shares, seconds = self._table
        # The shares are sums of 100,000 weights: their rounding must not lead to the next value.
        at = np.searchsorted(shares, u - 1e-9)
        return seconds[np.minimum(at, len(seconds) - 1)]

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        """The mixture's latencies in ascending order, and the share of inferences up to each."""
        calm = with_quantiles("base", self.base).quantile((np.arange(QUANTILE_POINTS) + 0.5) / QUANTILE_POINTS)
        seconds = np.concatenate((calm, self.factor * calm))
        weights = np.repeat((1 - self.probability, self.probability), len(calm)) / len(calm)
        order = np.argsort(seconds, kind="stable")
        order = order[weights[order] > 0]
        return np.cumsum(weights[order]), seconds[order]


@dataclass(frozen=True, init=False)
class Correlated(Model):
    """A slow inference tends to be followed by a slow one; each by itself is distributed as `base`.

    A Gaussian copula: ``x_t = correlation x_{t-1} + sqrt(1 - correlation^2) e_t`` with normal e, and the latency is
    ``base.quantile(Phi(x_t))``. The rank correlation of neighbours is ``6 / pi asin(correlation / 2)``. The order of
    the base's own draws does not matter.

    Args:
        base: The distribution of a single latency: a model with quantiles, or a number of seconds.
        correlation: How much a latency is like the one before, from 0 (independent) to just under 1: the correlation of
            two x in a row.

    Raises:
        ValueError: `base` is no latency or has no `quantile`, or `correlation` is not in [0, 1).
    """

    base: Latency
    correlation: float

    def __init__(self, base: Latency | ArrayLike, correlation: float) -> None:
        wanted = "at least 0 and less than 1"
        self._set(
            base=with_quantiles("base", as_latency(base, "base")),
            correlation=number("correlation", correlation, wanted, lambda rho: 0 <= rho < 1),
        )

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        return self.base.mean

    def _sampler(self, seed: np.random.SeedSequence) -> Sampler:
        return _Copula(self, np.random.default_rng(seed))

    def _quantile(self, u: Floats) -> Floats:
        return np.asarray(with_quantiles("base", self.base).quantile(u), np.float64)


class _Copula:
    """Samples `Correlated`."""

    def __init__(self, model: Correlated, rng: np.random.Generator) -> None:
        self._model, self._rng = model, rng
        self._x: float | None = None

    def __call__(self, count: int) -> Floats:
        correlation = self._model.correlation
        normal = self._rng.standard_normal(count)
        path: list[float] = []
        if self._x is None:
            self._x, normal = float(normal[0]), normal[1:]
            path.append(self._x)
        x = self._x
        for noise in (math.sqrt(1 - correlation**2) * normal).tolist():
            x = correlation * x + noise
            path.append(x)
        self._x = x
        return latencies_of_normal(with_quantiles("base", self._model.base), np.array(path))


def as_latency(value: Any, name: str = "latency") -> Latency:
    """Return `value` as a latency model.

    Args:
        value: A number of seconds (a `Constant`), an array or list of seconds (a `Trace`), or a model (as it is).
        name: The argument's name, for the message.

    Raises:
        ValueError: `value` is none of these, or not a possible latency.
    """
    if isinstance(value, Latency) and not isinstance(value, type):
        return value
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return Constant(seconds_of(name, value))
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return as_latency(value.item(), name)
    if isinstance(value, (np.ndarray, list, tuple)) or hasattr(value, "__array__"):
        return Trace(_seconds_array(value, name))
    raise ValueError(
        f"{name} must be a number of seconds, a list of seconds or a model such as LogNormal(mean=0.12, cv=0.2) "
        f"or Trace(path), got {value!r}"
    )


def summary(latency: Any, draws: int = 10_000, seed: int = 0) -> dict[str, float]:
    """Return ``mean``, ``std``, ``p50``, ``p95``, ``p99`` and ``max`` of a latency's draws, in seconds.

    Args:
        latency: A latency model, or an argument of `as_latency`.
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
