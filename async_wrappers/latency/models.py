"""Models of how long one inference takes (tau_theta in arXiv 2412.14355), in seconds.

* `Constant`, `Uniform`, `LogNormal`, `Gamma`: independent draws of one distribution.
* `Spikes`, `Correlated`: another model, now and then much slower, or with slow inferences in a row.
* `as_latency`: a number, an array or a model as a model.

Measured latencies are a model too: `async_wrappers.latency.trace.Trace`.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from async_wrappers.checks import number
from async_wrappers.latency.stream import (
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
from async_wrappers.latency.trace import Trace, seconds_array

__all__ = ["Constant", "Correlated", "Gamma", "LogNormal", "Spikes", "Uniform", "as_latency"]

_QUANTILE_POINTS = 50_000  # of a tabulated distribution


@dataclass(frozen=True)
class Constant(Model):
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
class Uniform(Model):
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
class LogNormal(Model):
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
class Gamma(Model):
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
        # Below this the spread is a nanosecond in 1000 s, and the shape 1 / cv^2 would lose all digits or overflow.
        return self.cv < 1e-12

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
        # On a grid of logarithms, because for cv > 1 most of the mass lies at tiny latencies. The grid ends where the
        # density has fallen by e^-40 from its peak at t = 0: where `expm1(t) - t` reaches 40 / shape. exp(-750) is 0.
        shape, reach = self.cv**-2, 40 * self.cv**2
        low = max(-(reach + 2 * math.sqrt(reach)), -750.0)
        high = min(math.sqrt(2 * reach), math.log1p(2 * reach) + 1)
        t = np.linspace(low, high, _QUANTILE_POINTS)
        density = np.exp(shape * (t - np.expm1(t)))
        # If the grid was cut at -750, the mass below it is the integral of exp(shape (t + 1)), as e^t is 0 there.
        below = math.exp(shape * (low + 1)) / shape if low == -750 else 0.0
        steps = (density[1:] + density[:-1]) / 2 * (t[1] - t[0])
        mass = np.cumsum(np.concatenate(([below], steps)))
        return mass / mass[-1], t


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

    def _sampler(self, seed: np.random.SeedSequence) -> Sampler:
        return _Spiked(self, np.random.default_rng(child_seed(seed, 0)), sampler_of(self.base, child_seed(seed, 1)))

    def _quantile(self, u: Floats) -> Floats:
        shares, seconds = self._table
        # The shares are sums of 100,000 weights: their rounding must not lead to the next value.
        at = np.searchsorted(shares, u - 1e-9)
        return seconds[np.minimum(at, len(seconds) - 1)]

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        """The mixture's latencies in ascending order, and the share of inferences up to each."""
        calm = with_quantiles("base", self.base).quantile((np.arange(_QUANTILE_POINTS) + 0.5) / _QUANTILE_POINTS)
        seconds = np.concatenate((calm, self.factor * calm))
        weights = np.repeat((1 - self.probability, self.probability), len(calm)) / len(calm)
        order = np.argsort(seconds, kind="stable")
        order = order[weights[order] > 0]
        return np.cumsum(weights[order]), seconds[order]


@dataclass(frozen=True, init=False)
class Correlated(Model):
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


class _Spiked:
    """Samples `Spikes`; base and spikes have generators of their own, so that blocks do not matter."""

    def __init__(self, model: Spikes, rng: np.random.Generator, base: Sampler) -> None:
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
        return Trace(seconds_array(value, name))
    raise ValueError(
        f"{name} must be a number of seconds, a list of seconds or a model such as LogNormal(mean=0.12, cv=0.2) "
        f"or Trace(path), got {value!r}"
    )


def _normal_quantile(u: Floats) -> Floats:
    """Return the x of Phi(x) = u; infinite at 0 and 1."""
    from statistics import NormalDist  # here, for a quicker import of the package

    inverse = NormalDist().inv_cdf
    return np.array([inverse(p) if 0 < p < 1 else math.copysign(math.inf, p - 0.5) for p in u.tolist()])


def _cv(value: Any) -> float:
    wanted = "a number from 0 to 1000 (standard deviation / mean)"
    return number("cv", value, wanted, lambda cv: 0 <= cv <= 1000)
