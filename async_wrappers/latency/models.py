"""Latency models: how long one inference takes (tau_theta in arXiv 2412.14355), in seconds.

A model is an immutable description; `stream` makes a seeded source of draws from it, in whole nanoseconds, the unit of
time inside a schedule.

* `Constant`, `Uniform`, `LogNormal`, `Gamma`: independent draws of one distribution.
* `Trace`: measured latencies, played in order or drawn at random; `measure` makes one of a policy.
* `Spikes`, `Correlated`: another model, now and then much slower, or with slow inferences in a row.
* `as_latency`: a number, an array or a model as a model. `summary`: mean, spread and percentiles of any model.
"""

from __future__ import annotations

import json
import math
import numbers
import operator
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from async_wrappers.checks import number, whole

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

Floats: TypeAlias = NDArray[np.float64]

_BLOCK = 512  # draws made at a time
_FROM_BELOW = 2e-5  # nanoseconds by which a float may miss a whole number of them
_SPAWN_KEY = 0x1A7E9C1  # sets a stream apart from every other generator made of the same seed
_LONGEST = 1e9  # seconds: 31 years, and still far from the end of int64 nanoseconds
_QUANTILE_POINTS = 50_000  # of a tabulated distribution


class LatencyStream(Protocol):
    """A seeded, endless stream of latencies; a deep copy continues identically."""

    def draw(self) -> int:
        """Return the next inference's latency in nanoseconds, >= 0."""
        ...


@runtime_checkable
class Latency(Protocol):
    """How long one inference takes."""

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        ...

    def stream(self, seed: int | np.random.SeedSequence) -> LatencyStream:
        """Return a fresh stream of draws; the same seed gives the same draws."""
        ...


class _Quantiles(Protocol):
    """A latency whose distribution can be inverted."""

    @property
    def mean(self) -> float: ...
    def stream(self, seed: int | np.random.SeedSequence) -> LatencyStream: ...
    def quantile(self, u: ArrayLike) -> Any: ...


_Sampler: TypeAlias = Callable[[int], Floats]  # the next `count` latencies, in seconds


def nanoseconds(seconds: float) -> int:
    """Return whole nanoseconds, as a stream draws them: rounded down, but for what a float holds from just below."""
    return math.floor(seconds * 1e9 + _FROM_BELOW)


class _Stream:
    """Draws of a sampler, made in blocks and handed out one by one."""

    def __init__(self, sampler: _Sampler) -> None:
        self._sampler = sampler
        self._block: list[int] = []  # nanoseconds, the next draw last

    def draw(self) -> int:
        """Return the next inference's latency in nanoseconds."""
        try:
            return self._block.pop()
        except IndexError:
            # Down, so that a latency of exactly so many frames ends on a frame and not a nanosecond after it; the
            # small part keeps whole nanoseconds whole, which a float may hold from just below.
            nanoseconds = np.minimum(np.floor(self._sampler(_BLOCK) * 1e9 + _FROM_BELOW), 2.0**62)
            self._block = nanoseconds.astype(np.int64)[::-1].tolist()
            return self._block.pop()


class _Model:
    """What the models share: streams, quantiles, and copies. A model is a frozen dataclass."""

    def stream(self, seed: int | np.random.SeedSequence) -> LatencyStream:
        """Return a fresh stream of draws; the same seed gives the same draws.

        The stream is independent of other generators made of this seed, such as an environment's; the seed is left
        as it is.

        Args:
            seed: A whole number >= 0, or a SeedSequence.

        Raises:
            ValueError: `seed` is neither.
        """
        if not isinstance(seed, np.random.SeedSequence):
            try:
                seed = np.random.SeedSequence(operator.index(seed))
            except (TypeError, ValueError):
                raise ValueError(f"seed must be a whole number >= 0 or a SeedSequence, got {seed!r}") from None
        return _Stream(self._sampler(_child(seed, _SPAWN_KEY)))

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: Floats | Sequence[float]) -> Floats: ...
    def quantile(self, u: ArrayLike) -> float | Floats:
        """Return the latency in seconds that a share `u` of all inferences does not exceed.

        Args:
            u: Shares from 0 to 1: a number, or an array of any shape.

        Raises:
            ValueError: A share is not from 0 to 1.
        """
        shares = np.asarray(u, np.float64)
        if not np.all((shares >= 0) & (shares <= 1)):
            raise ValueError(f"u must be from 0 to 1 (0.99 for the 99th percentile), got {u!r}")
        seconds = self._quantile(shares.ravel())
        return float(seconds[0]) if shares.ndim == 0 else seconds.reshape(shares.shape)

    def _sampler(self, seed: np.random.SeedSequence) -> _Sampler:
        return _Independent(self, np.random.default_rng(seed))

    def _sample(self, rng: np.random.Generator, count: int) -> Floats:
        """Return independent latencies in seconds: one after the other from `rng`, so that blocks do not matter."""
        raise NotImplementedError

    def _quantile(self, u: Floats) -> Floats:
        """Return the quantiles in seconds of shares `u` [N]."""
        raise NotImplementedError

    def _of_normal(self, x: Floats) -> Floats:
        """Return the latencies in seconds of normal variables `x` [N]: ``quantile(Phi(x))``."""
        return self._quantile(_normal_share(x))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Constant(_Model):
    """Every inference takes equally long.

    Args:
        seconds: The latency.

    Raises:
        ValueError: `seconds` is not a number from 0 to 1e9.
    """

    seconds: float

    def __post_init__(self) -> None:
        self._set(seconds=seconds_of("seconds", self.seconds))

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        return self.seconds

    def _sample(self, rng: np.random.Generator, count: int) -> Floats:
        return np.full(count, self.seconds)

    def _quantile(self, u: Floats) -> Floats:
        return np.full(len(u), self.seconds)


@dataclass(frozen=True)
class Uniform(_Model):
    """Every latency from `low` to `high` is equally likely.

    Args:
        low: The shortest latency, in seconds.
        high: The longest latency, in seconds.

    Raises:
        ValueError: One is not a number from 0 to 1e9, or `low` is above `high`.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        self._set(low=seconds_of("low", self.low), high=seconds_of("high", self.high))
        if self.low > self.high:
            raise ValueError(f"low must be <= high, got low={self.low!r} and high={self.high!r}: swap them")

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        return (self.low + self.high) / 2

    def _sample(self, rng: np.random.Generator, count: int) -> Floats:
        return self._quantile(rng.random(count))

    def _quantile(self, u: Floats) -> Floats:
        return self.low + (self.high - self.low) * u


@dataclass(frozen=True)
class LogNormal(_Model):
    """The logarithm of the latency is normal: a skewed bell, as a network on a shared machine.

    With ``sigma^2 = ln(1 + cv^2)`` and a normal z, the latency is ``mean exp(sigma z - sigma^2 / 2)``.

    Args:
        mean: Mean of the latency itself (not of its logarithm), in seconds.
        cv: Coefficient of variation of the latency: standard deviation over mean. 0 is a constant.

    Raises:
        ValueError: `mean` is not a number from 0 to 1e9, or `cv` not one from 0 to 1000.
    """

    mean: float
    cv: float

    def __post_init__(self) -> None:
        self._set(mean=seconds_of("mean", self.mean), cv=_cv(self.cv))

    @property
    def _sigma(self) -> float:
        return math.sqrt(math.log1p(self.cv**2))

    def _sample(self, rng: np.random.Generator, count: int) -> Floats:
        return self.mean * rng.lognormal(-(self._sigma**2) / 2, self._sigma, count)

    def _quantile(self, u: Floats) -> Floats:
        if self.mean == 0 or self._sigma == 0:
            return np.full(len(u), self.mean)
        return self._of_normal(_normal_quantile(u))

    def _of_normal(self, x: Floats) -> Floats:
        return self.mean * np.exp(self._sigma * x - self._sigma**2 / 2)


@dataclass(frozen=True)
class Gamma(_Model):
    """A gamma distribution of shape ``1 / cv^2``: less of a tail than `LogNormal`; cv = 1 is the exponential.

    numpy has no incomplete gamma function: quantiles are of the density integrated on a grid of 50,000 points. From the
    share 1e-9 to 1 - 1e-9 they are off by less than a part in 1000 (in 20,000 if cv <= 1).

    Args:
        mean: Mean latency in seconds.
        cv: Coefficient of variation of the latency: standard deviation over mean. 0 is a constant.

    Raises:
        ValueError: `mean` is not a number from 0 to 1e9, or `cv` not one from 0 to 1000.
    """

    mean: float
    cv: float

    def __post_init__(self) -> None:
        self._set(mean=seconds_of("mean", self.mean), cv=_cv(self.cv))

    @property
    def _constant(self) -> bool:
        return self.cv < 1e-12  # a nanosecond in 1000 s; the shape would overflow

    def _sample(self, rng: np.random.Generator, count: int) -> Floats:
        if self._constant:
            return np.full(count, self.mean)
        return self.mean * (rng.standard_gamma(self.cv**-2, count) * self.cv**2)

    def _quantile(self, u: Floats) -> Floats:
        if self._constant:
            return np.full(len(u), self.mean)
        shares, logarithms = self._table
        seconds = self.mean * np.exp(np.interp(u, shares, logarithms))
        return np.where(u == 0, 0.0, np.where((u == 1) & (self.mean > 0), math.inf, seconds))

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        """Shares and the logarithms t of latency / mean there; t has the density ``exp(shape (t - expm1(t)))``."""
        shape, reach = self.cv**-2, 40 * self.cv**2  # where `expm1(t) - t` reaches it, the density has fallen by e^-40
        low = max(-(reach + 2 * math.sqrt(reach)), -750.0)  # exp(-750) is 0
        high = min(math.sqrt(2 * reach), math.log1p(2 * reach) + 1)
        t = np.linspace(low, high, _QUANTILE_POINTS)
        density = np.exp(shape * (t - np.expm1(t)))
        below = math.exp(shape * (low + 1)) / shape if low == -750 else 0.0  # the density there: exp(shape (t + 1))
        steps = (density[1:] + density[:-1]) / 2 * (t[1] - t[0])
        mass = np.cumsum(np.concatenate(([below], steps)))
        return mass / mass[-1], t


@dataclass(frozen=True, init=False)
class Spikes(_Model):
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
        """See the class."""
        self._set(
            base=as_latency(base, "base"),
            probability=number("probability", probability, "a share from 0 to 1", lambda share: 0 <= share <= 1),
            factor=number("factor", factor, "a finite number > 0", lambda times: 0 < times < math.inf),
        )

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        return self.base.mean * (1 - self.probability + self.probability * self.factor)

    def _sampler(self, seed: np.random.SeedSequence) -> _Sampler:
        return _Spiked(self, np.random.default_rng(_child(seed, 0)), _sampler_of(self.base, _child(seed, 1)))

    def _quantile(self, u: Floats) -> Floats:
        shares, seconds = self._table
        at = np.searchsorted(shares, u - 1e-9)  # the shares are sums: rounding must not reach into the next value
        return seconds[np.minimum(at, len(seconds) - 1)]

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        """The mixture's latencies in ascending order, and the share of inferences up to each."""
        calm = _with_quantiles("base", self.base).quantile((np.arange(_QUANTILE_POINTS) + 0.5) / _QUANTILE_POINTS)
        seconds = np.concatenate((calm, self.factor * calm))
        weights = np.repeat((1 - self.probability, self.probability), len(calm)) / len(calm)
        order = np.argsort(seconds, kind="stable")
        order = order[weights[order] > 0]
        return np.cumsum(weights[order]), seconds[order]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Trace(_Model):
    """Measured latencies.

    Quantiles are those of the trace: always one of its latencies.

    Attributes:
        latencies: The latencies in seconds [N]; read-only.
        order: As given.

    Args:
        latencies: Latencies in seconds, as an array or a list, or the path of a JSON file: a list of seconds, or an
            object with a list ``latency_s`` (seconds) or ``latency_ms`` (milliseconds).
        order: ``"sequence"``: in the trace's order, from a seeded random place, wrapping round. ``"shuffled"``: each
            inference draws one of them at random, whatever came before.

    Raises:
        ValueError: No latencies, one that is not from 0 to 1e9 s, an unknown order, or a file that is missing or
            holds something else.
    """

    latencies: Floats
    order: Literal["sequence", "shuffled"]

    def __init__(
        self,
        latencies: ArrayLike | os.PathLike[str],
        order: Literal["sequence", "shuffled"] = "sequence",
    ) -> None:
        """See the class."""
        if not isinstance(order, str) or order not in ("sequence", "shuffled"):
            raise ValueError(f'order must be "sequence" or "shuffled", got {order!r}')
        is_file = isinstance(latencies, (str, os.PathLike))
        self._set(latencies=_trace_of_file(latencies) if is_file else _trace_of(latencies, "latencies"), order=order)

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
        path = Path(path)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            unfinished.write_text(json.dumps({"latency_s": self.latencies.tolist()}) + "\n", encoding="utf-8")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _sampler(self, seed: np.random.SeedSequence) -> _Sampler:
        rng = np.random.default_rng(seed)
        return _Independent(self, rng) if self.order == "shuffled" else _InOrder(self.latencies, rng)

    def _sample(self, rng: np.random.Generator, count: int) -> Floats:
        return self.latencies[rng.integers(len(self.latencies), size=count)]

    def _quantile(self, u: Floats) -> Floats:
        rank = np.ceil(u * len(self._sorted) - 1e-9).astype(np.int64) - 1  # 0.07 * 100 is a little more than 7
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


@dataclass(frozen=True, init=False)
class Correlated(_Model):
    """A slow inference tends to be followed by a slow one; each by itself is distributed as `base`.

    A Gaussian copula: ``x_t = correlation x_{t-1} + sqrt(1 - correlation^2) e_t`` with normal e, and the latency is
    ``base.quantile(Phi(x_t))``. The rank correlation of neighbours is ``6 / pi asin(correlation / 2)``. What order the
    base's own draws come in does not matter.

    Args:
        base: The distribution of a single latency: a model with quantiles, or a number of seconds.
        correlation: Of neighbouring x, from 0 (independent) to just under 1.

    Raises:
        ValueError: `base` is no latency or has no `quantile`, or `correlation` is not in [0, 1).
    """

    base: Latency
    correlation: float

    def __init__(self, base: Latency | ArrayLike, correlation: float) -> None:
        """See the class."""
        wanted = "at least 0 and less than 1"
        self._set(
            base=_with_quantiles("base", as_latency(base, "base")),
            correlation=number("correlation", correlation, wanted, lambda rho: 0 <= rho < 1),
        )

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        return self.base.mean

    def _sampler(self, seed: np.random.SeedSequence) -> _Sampler:
        return _Copula(self, np.random.default_rng(seed))

    def _quantile(self, u: Floats) -> Floats:
        return np.asarray(_with_quantiles("base", self.base).quantile(u), np.float64)


class _Independent:
    """Samples a model whose draws do not depend on each other."""

    def __init__(self, model: _Model, rng: np.random.Generator) -> None:
        self._model, self._rng = model, rng

    def __call__(self, count: int) -> Floats:
        return self._model._sample(self._rng, count)


class _InOrder:
    """Plays latencies in order, round and round."""

    def __init__(self, latencies: Floats, rng: np.random.Generator) -> None:
        self._latencies, self._place = latencies, int(rng.integers(len(latencies)))

    def __call__(self, count: int) -> Floats:
        places = np.arange(self._place, self._place + count) % len(self._latencies)
        self._place = (self._place + count) % len(self._latencies)
        return self._latencies[places]

    def __deepcopy__(self, memo: dict[int, Any]) -> _InOrder:
        twin = object.__new__(_InOrder)
        twin._latencies, twin._place = self._latencies, self._place  # a long trace is not copied
        return twin


class _Spiked:
    """Samples `Spikes`; base and spikes have generators of their own, so that blocks do not matter."""

    def __init__(self, model: Spikes, rng: np.random.Generator, base: _Sampler) -> None:
        self._model, self._rng, self._base = model, rng, base

    def __call__(self, count: int) -> Floats:
        spikes = self._rng.random(count) < self._model.probability
        return self._base(count) * np.where(spikes, self._model.factor, 1.0)


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
        xs = np.array(path)
        base = self._model.base
        return base._of_normal(xs) if isinstance(base, _Model) else self._model._quantile(_normal_share(xs))


class _Foreign:
    """Samples a latency that is not of this module."""

    def __init__(self, stream: LatencyStream) -> None:
        self._stream = stream

    def __call__(self, count: int) -> Floats:
        return np.array([self._stream.draw() for _ in range(count)], np.float64) / 1e9


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
        return Trace(_trace_of(value, name))
    raise ValueError(
        f"{name} must be a number of seconds, a list of seconds or a model such as LogNormal(mean=0.12, cv=0.2) "
        f"or Trace(path), got {value!r}"
    )


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


def _child(seed: np.random.SeedSequence, key: int) -> np.random.SeedSequence:
    """Return a child of `seed`; unlike ``seed.spawn`` this changes nothing in it."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, key), pool_size=seed.pool_size)


def _sampler_of(latency: Latency, seed: np.random.SeedSequence) -> _Sampler:
    return latency._sampler(seed) if isinstance(latency, _Model) else _Foreign(latency.stream(seed))


def _with_quantiles(name: str, latency: Any) -> _Quantiles:
    if not callable(getattr(latency, "quantile", None)):
        raise ValueError(f"{name} must have quantile(u), as the models of async_wrappers.latency, got {latency!r}")
    with_quantiles: _Quantiles = latency
    return with_quantiles


def _normal_share(x: Floats) -> Floats:
    """Return Phi(x), less than 1: what lies beyond 8 sigma counts as 8 sigma."""
    erfc = math.erfc
    return np.array([0.5 * erfc(z) for z in (np.minimum(x, 8.0) * -math.sqrt(0.5)).tolist()])


def _normal_quantile(u: Floats) -> Floats:
    """Return the x of Phi(x) = u; infinite at 0 and 1."""
    from statistics import NormalDist  # here, for a quicker import of the package

    inverse = NormalDist().inv_cdf
    return np.array([inverse(p) if 0 < p < 1 else math.copysign(math.inf, p - 0.5) for p in u.tolist()])


def _trace_of_file(path: Any) -> Floats:
    """Return the latencies in a JSON file, in seconds [N]."""
    name = f"latencies in {os.fspath(path)!r}"
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
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
        return _trace_of(content["latency_ms"], f"{name} (latency_ms)", 1000)
    return _trace_of(content["latency_s"] if keys else content, name)


def _trace_of(values: Any, name: str, per_second: int = 1) -> Floats:
    """Return `values` as seconds [N], not to be written to, or raise a ValueError that names the argument."""
    wanted = f"{name} must be a non-empty list of numbers from 0 to {_LONGEST * per_second:.0e}"
    try:
        given = np.asarray(values)
    except (TypeError, ValueError):  # ragged, or on another device
        given = np.empty(0)
    if given.dtype.kind not in "iuf" or given.ndim != 1 or not given.size:
        raise ValueError(f"{wanted}, got {_short(values)}")
    seconds = given.astype(np.float64) / per_second
    possible = (seconds >= 0) & (seconds <= _LONGEST)
    if not possible.all():
        at = int(np.argmin(possible))
        raise ValueError(f"{wanted}, got {given[at].item()!r} at place {at}")
    seconds.setflags(write=False)
    return seconds


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def seconds_of(name: str, value: Any) -> float:
    """Return `value` as a number of seconds from 0 to 1e9, or raise a ValueError that names the argument."""
    return number(name, value, "a number of seconds from 0 to 1e9", lambda seconds: 0 <= seconds <= _LONGEST)


def _cv(value: Any) -> float:
    wanted = "a number from 0 to 1000 (standard deviation / mean)"
    return number("cv", value, wanted, lambda cv: 0 <= cv <= 1000)
