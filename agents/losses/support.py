"""The check that returns lie within the support of a categorical distribution."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any


class SupportWarning(RuntimeWarning):
    """Returns lie outside the support, and are clipped to its ends."""


class SupportMonitor:
    """Watches one environment's transitions, and warns once if an episode's discounted return lies outside the support.

    A transition needs its reward, interval, terminal and truncated alone, and follows the one before it in its episode.
    """

    def __init__(self, low: float, high: float, gamma: float, discount_by: str) -> None:
        self._low, self._high = low, high
        self._gamma, self._by_frame = gamma, discount_by == "frame"
        self._sum, self._discount = 0.0, 1.0
        self._warned = False

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Add a transition's reward; check the sum where the episode ends."""
        self._sum += self._discount * float(transition["reward"])
        self._discount *= self._gamma ** (transition["interval"] if self._by_frame else 1)
        if not (transition["terminal"] or transition["truncated"]):
            return
        value, self._sum, self._discount = self._sum, 0.0, 1.0
        # The sum is nan where transitions of the episode are missing.
        if self._warned or math.isnan(value) or self._low <= value <= self._high:
            return
        self._warned = True
        warnings.warn(
            f"the discounted return of an episode is {value:.4g}, outside the support [{self._low:g}, "
            f"{self._high:g}], whose end stands for all beyond it: set vmin and vmax so that returns fit",
            SupportWarning,
            stacklevel=2,
        )

    def cut(self) -> None:
        """Discard the return of this episode, whose rest is missing."""
        self._sum = math.nan
