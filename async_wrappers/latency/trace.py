"""Measured latencies as a model: `Trace`, and the JSON files that hold them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from async_wrappers.files import write_atomically
from async_wrappers.latency.stream import LONGEST, Floats, Independent, Model, Sampler

__all__ = ["Trace", "seconds_array"]


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
        seconds = _read_file(latencies) if is_file else seconds_array(latencies, "latencies")
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
        write_atomically(Path(path), lambda file: file.write(content.encode()))

    def _sampler(self, seed: np.random.SeedSequence) -> Sampler:
        rng = np.random.default_rng(seed)
        return Independent(self, rng) if self.order == "shuffled" else _InOrder(self.latencies, rng)

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


def _read_file(path: Any) -> Floats:
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
        return seconds_array(content["latency_ms"], f"{name} (latency_ms)", 1000)
    return seconds_array(content["latency_s"] if keys else content, name)


def seconds_array(values: Any, name: str, per_second: int = 1) -> Floats:
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
