"""What lies on a run's time line: its episodes and its inferences."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["EpisodeTiming", "Span"]


@dataclass(frozen=True)
class EpisodeTiming:
    """One episode.

    Attributes:
        score: Its return.
        frames: Its length.
        number: Its number in its kind of phase.
        won: Whether it was won, where the environment's last ``info`` says so (``"won"``), else None.
        began: When its first frame began, in nanoseconds on the run's time line; no part of what makes two equal.
    """

    score: float
    frames: int
    number: int = 0
    began: int = field(default=0, compare=False)
    won: bool | None = None


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
    """

    worker: int
    episode: int
    start: int
    began: int
    ended: int
    effect: int | None = None
    applied: int | None = None
