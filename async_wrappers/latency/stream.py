"""The base of all latency models: protocols, seeded streams of whole nanoseconds, and the models' base class.

A model is an immutable description of a distribution. Its `stream` is a seeded source of draws. Randomness is drawn in
blocks, because one call of NumPy for 512 numbers costs little more than one for a single number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Protocol, Self, TypeAlias, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from async_wrappers.checks import number

__all__ = [
    "LONGEST",
    "Floats",
    "Independent",
    "Latency",
    "LatencyStream",
    "Model",
    "Quantiles",
    "Sampler",
    "child_seed",
    "latencies_of_normal",
    "nanoseconds",
    "normal_share",
    "sampler_of",
    "seconds_of",
    "with_quantiles",
]

Floats: TypeAlias = NDArray[np.float64]

LONGEST = 1e9  # seconds: 31 years, and still far from the end of int64 nanoseconds

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


class Quantiles(Protocol):
    """A `Latency` whose distribution can be inverted."""

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        ...

    def stream(self, seed: int | np.random.SeedSequence) -> LatencyStream:
        """Return a fresh stream of draws."""
        ...

    def quantile(self, u: ArrayLike) -> Any:
        """Return the latencies in seconds that shares `u` of all inferences do not exceed."""
        ...


Sampler: TypeAlias = Callable[[int], Floats]  # the next `count` latencies, in seconds


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
        return Independent(self, np.random.default_rng(seed))

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


class Independent:
    """Samples a model whose draws do not depend on each other."""

    def __init__(self, model: Model, rng: np.random.Generator) -> None:
        self._model, self._rng = model, rng

    def __call__(self, count: int) -> Floats:
        """Return the next latencies in seconds [count]."""
        return self._model._sample(self._rng, count)


class _Foreign:
    """Samples a user's own latency, which has a stream alone."""

    def __init__(self, stream: LatencyStream) -> None:
        self._stream = stream

    def __call__(self, count: int) -> Floats:
        return np.array([self._stream.draw() for _ in range(count)], np.float64) / 1e9


def sampler_of(latency: Latency, seed: np.random.SeedSequence) -> Sampler:
    """Return a sampler of any latency, also of a user's own."""
    return latency._sampler(seed) if isinstance(latency, Model) else _Foreign(latency.stream(seed))


def with_quantiles(name: str, latency: Any) -> Quantiles:
    """Return `latency`, or raise a ValueError that names the argument if it has no `quantile`."""
    if not callable(getattr(latency, "quantile", None)):
        raise ValueError(f"{name} must have quantile(u), as the models of async_wrappers.latency, got {latency!r}")
    with_quantiles: Quantiles = latency
    return with_quantiles


def child_seed(seed: np.random.SeedSequence, key: int) -> np.random.SeedSequence:
    """Return a child of `seed`; unlike ``seed.spawn`` this changes nothing in it."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, key), pool_size=seed.pool_size)


def latencies_of_normal(latency: Quantiles, x: Floats) -> Floats:
    """Return the latencies in seconds of normal variables `x` [N]: ``quantile(Phi(x))``."""
    if isinstance(latency, Model):
        return latency._of_normal(x)  # which may be quicker: a log-normal needs no quantile
    return np.asarray(latency.quantile(normal_share(x)), np.float64)


def normal_share(x: Floats) -> Floats:
    """Return ``Phi(x) = erfc(-x / sqrt(2)) / 2``, less than 1: x is cut at 8 standard deviations."""
    erfc = math.erfc
    return np.array([0.5 * erfc(z) for z in (np.minimum(x, 8.0) * -math.sqrt(0.5)).tolist()])
