"""Learners of tests: one that counts its updates, and one that writes down what it observes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Counting", "Rating", "Writing"]


class Counting:
    """A learner whose weights are the number of updates in them.

    Args:
        length: Of its weights.
    """

    ready = True

    def __init__(self, length: int = 1) -> None:
        self.count = np.zeros(length)
        self.closed = False

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Learn nothing from it."""

    def update(self) -> Mapping[str, float]:
        return self.apply(self.gradients())

    def gradients(self) -> Any:
        return 1.0

    def apply(self, gradients: Any) -> Mapping[str, float]:
        self.count = self.count + gradients
        return {"count": float(self.count[0])}

    def weights(self) -> Mapping[str, Any]:
        return {"count": self.count}

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        self.count = weights["count"].copy()

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]

    def close(self) -> None:
        self.closed = True


class Rating(Counting):
    """A learner that says how far off the policy was."""

    def apply(self, gradients: Any) -> Mapping[str, float]:
        return {"Rho": super().apply(gradients)["count"], "Loss": 1.0}


class Writing(Counting):
    """A learner that learns nothing, and writes down what it observes.

    Args:
        seen: Where.
    """

    ready = False

    def __init__(self, seen: list[Any] | None = None) -> None:
        super().__init__()
        self.seen = [] if seen is None else seen

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.seen.append(transition)
