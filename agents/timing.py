"""The times of the parts of training: acting, stepping, drawing a batch, its loss, the gradient, priorities."""

from __future__ import annotations

from time import perf_counter

__all__ = ["PARTS", "PartTimes"]

PARTS = {
    "Act": "acting",
    "Step": "stepping the environments",
    "Store": "storing transitions",
    "Sample": "drawing batches",
    "Loss": "losses",
    "Backward": "gradients",
    "Optimizer": "steps of the optimiser",
    "Priorities": "setting priorities",
}
"""Each part by its name in TensorBoard (``Time/Act``), in words."""


class PartTimes:
    """Seconds that each part has taken since the last `take`, at the cost of two readings of the clock for each.

    On a GPU they are those of the host, which waits for the device where it reads a result. The time of a parallel
    thread counts too, so that the sum may exceed the elapsed time.

    Attributes:
        seconds: By the name of `PARTS`.
    """

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        """Begin with none."""
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)

    def add(self, name: str, begin: float) -> float:
        """Add the time since `begin`, a value of ``time.perf_counter()``, to a part; return the present time."""
        now = perf_counter()
        self.seconds[name] += now - begin
        return now

    def take(self) -> dict[str, float]:
        """Return the seconds of the parts that took any, and reset them."""
        taken = {name: seconds for name, seconds in self.seconds.items() if seconds}
        self.seconds = dict.fromkeys(PARTS, 0.0)
        return taken
