"""`ReadingAges`: how late a sensor's readings are, by the ages at which a live run first saw them."""

# From a live run to a simulated sensor
# =====================================
#
# A run knows when a reading was taken (its stamp), and on which frame it was shown first. When it arrived lies between
# that frame's beginning and the one before: from an age A at first sight follows a latency from A - T to A, where T is
# a frame. All of these would have been seen on the same frame, so the middle, A - T / 2, gives back the very age, if
# the simulated reading is taken at the same place within its frame. Readings of a simulated sensor lie on the a-ths of
# a frame (`tensors/sensor_rows.py`), so each place there has the ages of the readings that were taken next to it.
# Moved to their place, by half of an a-th at most, they are seen on the same frame still.
#
# Anywhere else, as at another frame rate, the latencies of all readings are drawn: right in the mean, and as much as
# half a frame off one by one.

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from async_wrappers.checks import positive
from async_wrappers.latency.compound import Trace
from async_wrappers.latency.models import Floats, Model, Sampler

_NEAR = 1e-6  # frames, for the rounding of times


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ReadingAges(Model):
    """Latencies of a sensor's readings, by the ages that they had as a frame first showed them.

    Attributes:
        ages: In seconds, [N]; read-only.
        fps: Frames per second of the run.

    Args:
        ages: In seconds, in order.
        fps: Frames per second of the run that measured them.

    Raises:
        ValueError: No ages, one that is not from 0 to 1e9 s, or no frame rate.
    """

    ages: Floats
    fps: float

    def __init__(self, ages: ArrayLike, fps: Any) -> None:
        self._set(ages=Trace(ages).latencies, fps=positive("fps", fps, "frames per second"))

    def at(self, place: Any, apart: Any, fps: Any) -> Trace:
        """Return the latencies of readings that are taken at a place within a frame.

        Args:
            place: In frames, from 0 to below 1.
            apart: How far the next place is, in frames.
            fps: Frames per second of the simulation; those of all readings if the run had others.
        """
        if abs(float(fps) / self.fps - 1) > _NEAR:
            return self._all
        off = np.abs((-self.ages * self.fps - float(place) + 0.5) % 1 - 0.5)
        near = off <= max(float(apart) / 2, off.min()) + _NEAR
        return Trace(self._all.latencies[near])

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        return self._all.mean

    @cached_property
    def _all(self) -> Trace:
        return Trace(np.maximum(self.ages - 0.5 / self.fps, 0))

    def _sampler(self, seed: np.random.SeedSequence) -> Sampler:
        return self._all._sampler(seed)

    def _quantile(self, u: Floats) -> Floats:
        return self._all._quantile(u)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReadingAges):
            return NotImplemented
        return self.fps == other.fps and np.array_equal(self.ages, other.ages)

    def __hash__(self) -> int:
        return hash((self.fps, self._all))

    def __repr__(self) -> str:
        return f"ReadingAges(<{len(self.ages)} readings, mean {self.ages.mean():.4g} s>, fps={self.fps:g})"
