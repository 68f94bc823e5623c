"""How long the parts of training take: acting, stepping, drawing a batch, its loss, the gradient, priorities."""

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
    """Seconds that each part has taken since the last `take`; two looks at the clock for each, and nothing else.

    On a GPU they are those of the host, which waits for the device where it reads a result. What another thread
    computes beside the environments counts too, so that the sum may be more than the time that has passed.

    Attributes:
        seconds: By the name of `PARTS`.
    """

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        """Begin with none."""
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)

    def add(self, name: str, begin: float) -> float:
        """Count what has passed since `begin`, as ``time.perf_counter()`` says, to a part; return the time now."""
        now = perf_counter()
        self.seconds[name] += now - begin
        return now

    def take(self) -> dict[str, float]:
        """Return the seconds of the parts that took any, and begin anew."""
        taken = {name: seconds for name, seconds in self.seconds.items() if seconds}
        self.seconds = dict.fromkeys(PARTS, 0.0)
        return taken
