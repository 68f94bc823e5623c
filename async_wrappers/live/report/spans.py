"""One inference, from its start until its action has landed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """One inference on the run's time line, in nanoseconds.

    Attributes:
        worker: Who inferred.
        episode: Number of the episode.
        start: Frame of the episode whose observation was read.
        began: When it began.
        ended: When the action was there.
        effect: Frame on which the action took effect; None if it never did.
        applied: When that frame began.
        lag: Age of the weights behind it when it took effect, in updates of all learners; None without learners.
    """

    worker: int
    episode: int
    start: int
    began: int
    ended: int
    effect: int | None = None
    applied: int | None = None
    lag: int | None = None
