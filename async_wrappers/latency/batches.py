"""Models of how long an inference of many observations takes: L(b), in seconds, for a batch of b.

* `LinearBatches`: a fixed cost and one for each observation, ``L(b) = fixed + each * b``, log-normal about that.
* `MeasuredBatches`: measured latencies of several sizes, with the straight line through them; `measure_batches` makes
  one of a policy.

A model's `stream` is a seeded source of draws, as those of one inference are (`async_wrappers.latency`).
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from async_wrappers.checks import number, whole
from async_wrappers.files import path_of, write_text_atomically
from async_wrappers.latency.compound import Trace
from async_wrappers.latency.models import LatencyStream, LogNormal, nanoseconds, seconds_of

SIZES = (1, 2, 4, 8, 16, 32, 64)  # that are measured unless others are asked for
_ONE = 1_000_000_000  # draws of a model with a mean of one second are factors of this


class BatchStream(Protocol):
    """A seeded, endless stream of latencies of batches."""

    def draw(self, batch: int) -> int:
        """Return the latency of the next batch in nanoseconds, >= 0.

        Args:
            batch: Its number of observations, >= 1.
        """
        ...


@runtime_checkable
class BatchLatency(Protocol):
    """How long an inference of b observations takes."""

    def mean(self, batch: int) -> float:
        """Return the mean latency of a batch of that size, in seconds."""
        ...

    def stream(self, seed: int | np.random.SeedSequence) -> BatchStream:
        """Return a fresh stream of draws; the same seed gives the same draws."""
        ...


@dataclass(frozen=True)
class LinearBatches:
    """A batch of b observations takes ``fixed + each * b`` seconds on average.

    Args:
        fixed: Seconds of a batch, however small.
        each: Seconds that each of its observations adds.
        cv: Coefficient of variation of the latency, log-normal; 0 is a constant.

    Raises:
        ValueError: `fixed` or `each` is not a number of seconds from 0 to 1e9, both are 0, or `cv` is not a number from
            0 to 1000.
    """

    fixed: float
    each: float
    cv: float = 0.0

    def __post_init__(self) -> None:
        """Check the arguments."""
        object.__setattr__(self, "fixed", seconds_of("fixed", self.fixed))
        object.__setattr__(self, "each", seconds_of("each", self.each))
        wanted = "a number from 0 to 1000 (standard deviation / mean)"
        object.__setattr__(self, "cv", number("cv", self.cv, wanted, lambda cv: 0 <= cv <= 1000))
        if not self.fixed and not self.each:
            raise ValueError(
                "fixed or each must be > 0 seconds, got 0 for both: batches that take no time need no plan"
            )

    def mean(self, batch: int) -> float:
        """Return the mean latency of a batch of that size, in seconds."""
        return self.fixed + self.each * batch

    def stream(self, seed: int | np.random.SeedSequence) -> BatchStream:
        """Return a fresh stream of draws; the same seed gives the same draws."""
        return _Spread(self, LogNormal(1.0, self.cv).stream(seed)) if self.cv else _Exact(self)


class _Exact:
    """Latencies without a spread."""

    def __init__(self, model: LinearBatches) -> None:
        self._model = model

    def draw(self, batch: int) -> int:
        """Return the latency of a batch in nanoseconds."""
        return nanoseconds(self._model.mean(batch))


class _Spread:
    """The mean latency times draws of a distribution whose mean is 1."""

    def __init__(self, model: LinearBatches, factors: LatencyStream) -> None:
        self._model, self._factors = model, factors

    def draw(self, batch: int) -> int:
        """Return the latency of the next batch in nanoseconds."""
        return nanoseconds(self._model.mean(batch) * self._factors.draw() / _ONE)


class MeasuredBatches:
    """Measured latencies of batches of several sizes.

    Between two sizes that were measured each quantile is interpolated, and beyond the largest it grows as the fitted
    line does; below the smallest it is that of the smallest.

    Args:
        latencies: A mapping from the size of a batch to its latencies in seconds, or the path of a JSON file that
            `to_json` wrote.

    Attributes:
        traces: By size, the smallest first: the latencies.
        fit: The line through their medians, with their spread about it.

    Raises:
        ValueError: Fewer than two sizes, one that is not a whole number >= 1, latencies that are none, or medians
            through which the line falls as the batch grows.
    """

    def __init__(self, latencies: Mapping[int, Any] | str | Path) -> None:
        given = latencies if isinstance(latencies, Mapping) else _read(path_of(latencies))
        sizes = sorted(whole("a size of a batch", size, 1) for size in given)
        if len(sizes) < 2:
            raise ValueError(f"latencies must hold at least two sizes of batches, got {sizes}")
        self.traces: dict[int, Trace] = {size: Trace(given[size], "shuffled") for size in sizes}
        self.fit = _fit({size: trace.latencies for size, trace in self.traces.items()})
        self._sizes = sizes

    def mean(self, batch: int) -> float:
        """Return the mean latency of a batch of that size, in seconds."""
        below, above, share, beyond = self._between(batch)
        return (1 - share) * self.traces[below].mean + share * self.traces[above].mean + beyond

    def quantile(self, batch: int, u: float) -> float:
        """Return the latency in seconds that a share `u` of the batches of that size does not exceed."""
        below, above, share, beyond = self._between(batch)
        low, high = self.traces[below].quantile(u), self.traces[above].quantile(u)
        return (1 - share) * low + share * high + beyond

    def stream(self, seed: int | np.random.SeedSequence) -> BatchStream:
        """Return a fresh stream of draws; the same seed gives the same draws."""
        return _Drawn(self, np.random.default_rng(seed))

    def to_json(self, path: str | Path) -> None:
        """Write the latencies as ``{"batch_latency_s": {"1": [...], ...}}``, all or nothing."""
        plain = {"batch_latency_s": {str(size): trace.latencies.tolist() for size, trace in self.traces.items()}}
        write_text_atomically(path_of(path), json.dumps(plain) + "\n")

    def _between(self, batch: int) -> tuple[int, int, float, float]:
        """Return the measured sizes about a size, the place between them, and the seconds beyond the largest."""
        sizes = self._sizes
        place = bisect_left(sizes, batch)
        if place == len(sizes):
            return sizes[-1], sizes[-1], 0.0, self.fit.each * (batch - sizes[-1])
        if place == 0:
            return sizes[0], sizes[0], 0.0, 0.0
        below, above = sizes[place - 1], sizes[place]
        return below, above, (batch - below) / (above - below), 0.0

    def __repr__(self) -> str:
        """Return the sizes, and the line."""
        return f"MeasuredBatches(<{len(self._sizes)} sizes, {self._sizes[0]} to {self._sizes[-1]}>, fit={self.fit})"


class _Drawn:
    """Draws of measured latencies by their quantiles."""

    def __init__(self, model: MeasuredBatches, generator: np.random.Generator) -> None:
        self._model, self._generator = model, generator

    def draw(self, batch: int) -> int:
        """Return the latency of the next batch in nanoseconds."""
        return nanoseconds(self._model.quantile(batch, float(self._generator.random())))


def measure_batches(
    infer: Callable[[Any], Any],
    observation: Any,
    sizes: Iterable[int] = SIZES,
    repeats: int = 30,
    warmup: int = 3,
    *,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> MeasuredBatches:
    """Time a policy's inferences of batches of several sizes.

    The sizes take turns, so that a machine which slows down meanwhile does so for all of them. An inference ends when
    the call returns: on an accelerator, return the actions on the host.

    Args:
        infer: From observations [b, ...] to actions [b].
        observation: One observation [...], an array, which is repeated.
        sizes: Sizes of the batches.
        repeats: Inferences of each size that are recorded.
        warmup: Inferences of each size before them that are not.
        clock: Returns the time in nanoseconds.

    Raises:
        ValueError: Fewer than two sizes, a number out of range, or latencies that fall as the batch grows.
    """
    repeats, warmup = whole("repeats", repeats, 1), whole("warmup", warmup, 0)
    batches = {whole("a size of a batch", size, 1): np.stack([np.asarray(observation)] * size) for size in sizes}
    seconds: dict[int, list[float]] = {size: [] for size in batches}
    for turn in range(warmup + repeats):
        for size, batch in batches.items():
            before = clock()
            infer(batch)
            if turn >= warmup:
                seconds[size].append((clock() - before) / 1e9)
    return MeasuredBatches(seconds)


def _fit(latencies: Mapping[int, np.ndarray[Any, np.dtype[np.float64]]]) -> LinearBatches:
    """Return the line through the medians that is nearest in relative error, and the spread about the medians.

    The cost of an observation is that of the least squares of ``(fixed + each b - median(b)) / median(b)``; a line that
    would meet b = 0 below zero goes through zero.

    Raises:
        ValueError: The line falls as b grows.
    """
    sizes = np.array(list(latencies), np.float64)
    medians = np.array([np.median(seconds) for seconds in latencies.values()])
    if not medians.all():
        raise ValueError("latencies must be > 0 seconds at each size of a batch, got a median of 0")
    columns = np.stack([1 / medians, sizes / medians], axis=1)
    (fixed, each), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)
    if fixed < 0:
        fixed, each = 0.0, float((sizes / medians).sum() / ((sizes / medians) ** 2).sum())
    if each < -1e-9 * medians.max():
        shown = ", ".join(f"{size:.0f}: {1000 * median:.3g} ms" for size, median in zip(sizes, medians, strict=True))
        raise ValueError(
            f"latencies must not fall as the batch grows, got medians of {shown}: measure on a machine at rest, with "
            "more repeats"
        )
    ratios = np.concatenate([seconds / median for seconds, median in zip(latencies.values(), medians, strict=True)])
    return LinearBatches(float(fixed), max(float(each), 0.0), float(ratios.std() / ratios.mean()))


def _read(path: Path) -> dict[int, Any]:
    """Return the latencies in a JSON file, by size."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))["batch_latency_s"]
        return {int(size): seconds for size, seconds in content.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f'latencies must be those of batches by their size, or a JSON file {{"batch_latency_s": {{"1": [...]}}}}, '
            f"got {str(path)!r}: {error!r}"
        ) from None
