"""The batching core: which frames an accelerator infers together, where it serves many realtime environments.

`Batcher` holds the rule for both of its users: the simulation (`async_wrappers.schedule.served`), whose batches take
what a model says, and a live server. It takes observations and ends, and returns batches. It owns no clock, never
sleeps, and does no input or output.
"""

# The rule
# ========
#
# A free accelerator starts at once. It infers the newest frames of the environments that wait, divided evenly among the
# accelerators that are idle: ceil(waiting / idle). There is no size of a batch to choose, and no time to wait for more
# observations. While a batch is computed the next observations gather, so batches are as large as the load makes
# them: alone at a small load an observation is inferred at once, at a large one the fixed cost of a batch is shared
# by many.
#
# Two systems are its corners. With one environment and many accelerators each frame is a batch of one, as in Riemer et
# al. (arXiv 2412.14355). With many environments and one accelerator it is SEED RL's central inference, with no batch
# size and no timeout.
#
#   environment 0  ---o-------------o-------------o----
#   environment 1  ------o-------------o--------------o      o  an observation begins to wait
#   environment 2  ---------o-------------o-----------
#   accelerator        [0 ][ 1 2 ][ 0 ][ 1 2 ]
#
# The books
# =========
#
#   _waiting   environment -> (deadline, frame) of its newest observation that nobody has read; in the order in which
#              environments began to wait. A newer frame of the same environment takes the older one's place
#   _idle      accelerators that compute nothing, the one with the lowest number first
#
# An observation that is overtaken was never read: its environment has no decision with that start.
#
# Where a batch holds fewer than all that wait, the earliest deadlines go first; of equal ones the environment that has
# waited longest, so that none starves. A deadline is the beginning of the frame on which the action is due.

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from async_wrappers.checks import whole


class Batch(NamedTuple):
    """Observations that an accelerator infers together.

    Attributes:
        accelerator: Which one.
        frames: Pairs of an environment and the frame of it that is read.
    """

    accelerator: int
    frames: list[tuple[int, int]]


class Batcher:
    """Divides the observations that wait among the accelerators that are free.

    Each moment: call `observe` for each observation and `finished` for each end of that moment, then `starts`.

    Args:
        accelerators: How many; each infers one batch at a time.
        most: Greatest number of observations in a batch; None for no limit.

    Attributes:
        overtaken: Observations that a newer one of their environment replaced before anybody read them.

    Raises:
        ValueError: A number is not a whole number >= 1.
    """

    def __init__(self, accelerators: int = 1, most: int | None = None) -> None:
        self._idle = list(range(whole("accelerators", accelerators, 1)))
        self._most = None if most is None else whole("most", most, 1, or_none=True)
        self._waiting: dict[int, tuple[int, int]] = {}
        self.overtaken = 0

    def observe(self, environment: int, frame: int, deadline: int) -> None:
        """Note the newest observation of an environment.

        Args:
            environment: Its number.
            frame: The number of the frame.
            deadline: When its action must have been computed, in nanoseconds.
        """
        self.overtaken += environment in self._waiting
        self._waiting[environment] = (deadline, frame)

    def forget(self, environment: int) -> None:
        """Drop the observation of an environment whose episode has ended."""
        self._waiting.pop(environment, None)

    def finished(self, accelerator: int) -> None:
        """Note that an accelerator is free."""
        heappush(self._idle, accelerator)

    def gone(self, accelerator: int) -> None:
        """Take away an accelerator that computes nothing, until it is reported as free again."""
        self._idle.remove(accelerator)
        heapify(self._idle)

    def starts(self) -> list[Batch]:
        """Return the batches that start now."""
        starting: list[Batch] = []
        while self._waiting and self._idle:
            count = -(-len(self._waiting) // len(self._idle))
            if self._most is not None:
                count = min(count, self._most)
            starting.append(Batch(heappop(self._idle), self._take(count)))
        return starting

    def _take(self, count: int) -> list[tuple[int, int]]:
        """Return that many observations, those with the earliest deadlines; they wait no longer."""
        waiting = self._waiting
        if count == len(waiting):
            taken = [(environment, frame) for environment, (_, frame) in waiting.items()]
            waiting.clear()
            return taken
        first = sorted(waiting.items(), key=lambda item: item[1][0])[:count]  # stable: then who waited longest
        for environment, _ in first:
            del waiting[environment]
        return [(environment, frame) for environment, (_, frame) in first]
