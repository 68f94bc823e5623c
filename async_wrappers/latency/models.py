"""Models of how long one inference takes (tau_theta in arXiv 2412.14355), in seconds: their base, and distributions.

A model is an immutable description of a distribution. Its `stream` is a seeded source of draws. Randomness is drawn in
blocks, because one call of NumPy for 512 numbers costs little more than one for a single number.

`Constant`, `Uniform`, `LogNormal` and `Gamma` are here. Measured latencies, and a model with spikes or with memory, are
in `async_wrappers.latency.compound`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, Protocol, Self, TypeAlias, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from async_wrappers.checks import number

# The base's names are for models in other files, not for users of the package.

Floats: TypeAlias = NDArray[np.float64]
Sampler: TypeAlias = Callable[[int], Floats]  # the next `count` latencies, in seconds

LONGEST = 1e9  # seconds: 31 years, and still far from the end of int64 nanoseconds

QUANTILE_POINTS = 50_000  # of a tabulated distribution
_BLOCK = 512
# Nanoseconds by which a float of seconds may lie below the whole number of nanoseconds that was meant: 0.3 s is held as
# 299999999.99999997 ns. Added before rounding down.
_FROM_BELOW = 2e-5
# Sets a stream apart from every other generator made of the same seed, such as the environment's.
_SPAWN_KEY = 0x1A7E9C1


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


def nanoseconds(seconds: float) -> int:
    """Return whole nanoseconds, rounded down as in a stream: ``floor(10^9 seconds + 2e-5)``."""
    return math.floor(seconds * 1e9 + _FROM_BELOW)


def seconds_of(name: str, value: Any) -> float:
    """Return `value` as a number of seconds from 0 to 1e9, or raise a ValueError that names the argument."""
    return number(name, value, "a number of seconds from 0 to 1e9", lambda seconds: 0 <= seconds <= LONGEST)


class _Stream:
    """Draws of a sampler, made in blocks and handed out one by one."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._block: list[int] = []  # nanoseconds, the next draw last

    def draw(self) -> int:
        """Return the next inference's latency in nanoseconds."""
        try:
            return self._block.pop()
        except IndexError:
            # Rounded down, so that a latency of a whole number of frames ends on a frame and not a nanosecond after it.
            nanoseconds = np.minimum(np.floor(self._sampler(_BLOCK) * 1e9 + _FROM_BELOW), 2.0**62)
            self._block = nanoseconds.astype(np.int64)[::-1].tolist()
            return self._block.pop()


class Model:
    """The base class of models: streams, quantiles and copies. A model is a frozen dataclass."""

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
        return _Stream(self._sampler(child_seed(seed, _SPAWN_KEY)))

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

    def _sampler(self, seed: np.random.SeedSequence) -> Sampler:
        # Not a nested function: a copy of the stream must copy the generator.
        return partial(self._sample, np.random.default_rng(seed))

    def _sample(self, rng: np.random.Generator, count: int) -> Floats:
        """Return independent latencies in seconds: one after the other from `rng`, so that blocks do not matter."""
        raise NotImplementedError

    def _quantile(self, u: Floats) -> Floats:
        """Return the quantiles in seconds of shares `u` [N]."""
        raise NotImplementedError

    def _of_normal(self, x: Floats) -> Floats:
        """Return the latencies in seconds of normal variables `x` [N]: ``quantile(Phi(x))``."""
        return self._quantile(normal_share(x))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def sampler_of(latency: Latency, seed: np.random.SeedSequence) -> Sampler:
    """Return a sampler of any latency, also of a user's own."""
    return latency._sampler(seed) if isinstance(latency, Model) else partial(_drawn, latency.stream(seed))


def _drawn(stream: LatencyStream, count: int) -> Floats:
    """Return the next latencies of a user's own model, which has a stream alone."""
    return np.array([stream.draw() for _ in range(count)], np.float64) / 1e9


def with_quantiles(name: str, latency: Any) -> Any:
    """Return `latency`, or raise a ValueError that names the argument if it has no `quantile`."""
    if not callable(getattr(latency, "quantile", None)):
        raise ValueError(f"{name} must have quantile(u), as the models of async_wrappers.latency, got {latency!r}")
    return latency


def child_seed(seed: np.random.SeedSequence, key: int) -> np.random.SeedSequence:
    """Return a child of `seed`; unlike ``seed.spawn`` this changes nothing in it."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, key), pool_size=seed.pool_size)


def latencies_of_normal(latency: Any, x: Floats) -> Floats:
    """Return the latencies in seconds of normal variables `x` [N]: ``quantile(Phi(x))``."""
    if isinstance(latency, Model):
        return latency._of_normal(x)  # which may be quicker: a log-normal needs no quantile
    return np.asarray(latency.quantile(normal_share(x)), np.float64)


def normal_share(x: Floats) -> Floats:
    """Return ``Phi(x) = erfc(-x / sqrt(2)) / 2``, less than 1: x is cut at 8 standard deviations."""
    erfc = math.erfc
    return np.array([0.5 * erfc(z) for z in (np.minimum(x, 8.0) * -math.sqrt(0.5)).tolist()])


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
class _OfMeanAndCv(Model):
    """The base of distributions that are given by their mean and their coefficient of variation."""

    mean: float
    cv: float

    def __post_init__(self) -> None:
        wanted = "a number from 0 to 1000 (standard deviation / mean)"
        cv = number("cv", self.cv, wanted, lambda cv: 0 <= cv <= 1000)
        self._set(mean=seconds_of("mean", self.mean), cv=cv)


@dataclass(frozen=True)
class LogNormal(_OfMeanAndCv):
    """The logarithm of the latency is normal: a skewed bell, as of a network on a shared machine.

    With ``sigma^2 = ln(1 + cv^2)`` and a normal z, the latency is ``mean exp(sigma z - sigma^2 / 2)``.

    Args:
        mean: Mean of the latency itself (not of its logarithm), in seconds.
        cv: Coefficient of variation of the latency: standard deviation over mean. 0 is a constant.

    Raises:
        ValueError: `mean` is not a number from 0 to 1e9, or `cv` not one from 0 to 1000.
    """

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
class Gamma(_OfMeanAndCv):
    """A gamma distribution of shape ``1 / cv^2``: a lighter tail than `LogNormal`; cv = 1 is the exponential.

    numpy has no incomplete gamma function: quantiles are of the density integrated on a grid of 50,000 points. From the
    share 1e-9 to 1 - 1e-9 they are off by less than a part in 1000 (in 20,000 if cv <= 1).

    Args:
        mean: Mean latency in seconds.
        cv: Coefficient of variation of the latency: standard deviation over mean. 0 is a constant.

    Raises:
        ValueError: `mean` is not a number from 0 to 1e9, or `cv` not one from 0 to 1000.
    """

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
        t = np.linspace(low, high, QUANTILE_POINTS)
        density = np.exp(shape * (t - np.expm1(t)))
        # If the grid was cut at -750, the mass below it is the integral of exp(shape (t + 1)), as e^t is 0 there.
        below = math.exp(shape * (low + 1)) / shape if low == -750 else 0.0
        steps = (density[1:] + density[:-1]) / 2 * (t[1] - t[0])
        mass = np.cumsum(np.concatenate(([below], steps)))
        return mass / mass[-1], t


def _normal_quantile(u: Floats) -> Floats:
    """Return the x of Phi(x) = u; infinite at 0 and 1."""
    from statistics import NormalDist  # here, for a quicker import of the package

    inverse = NormalDist().inv_cdf
    return np.array([inverse(p) if 0 < p < 1 else math.copysign(math.inf, p - 0.5) for p in u.tolist()])
