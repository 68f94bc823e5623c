"""Measurements in bounded memory, for a run without end: the newest decisions one by one, all earlier ones as counts.

At 1,000 frames a second an hour has 3.6 million inferences. `Measurements` keeps every one, for exact percentiles and
the whole time line. `BoundedMeasurements` keeps the decisions that started in the last so many seconds, and counts the
numbers of all decisions and frames in a `Histogram` for each kind, as they come. What grows still is a row for each
episode and each pause, and what `on_frame` returns.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from async_wrappers.live.report.histogram import Histogram
from async_wrappers.live.report.journey import Span
from async_wrappers.live.report.report import EffectsOfEpisode, Measurements


class _Applied(NamedTuple):
    """An action that took effect.

    Attributes:
        frame: Frames played before the one that it read, over all episodes.
        worker: Who inferred it.
        episode: Number of the episode.
        start: Frame of the episode that it read.
        effect: Frame of the episode on which it took effect.
        lag: Age of its weights, in updates; None without learners.
    """

    frame: int
    worker: int
    episode: int
    start: int
    effect: int
    lag: int | None


class _CountedEffects(EffectsOfEpisode):
    """The effects of an episode, which the record counts; the list stays empty.

    Args:
        record: Of the phase.
        episode: Number of the episode.
        first: Frames played before it, over all episodes.
        pauses: The episode's, as they end.
    """

    def __init__(self, record: BoundedMeasurements, episode: int, first: int, pauses: list[tuple[int, int]]) -> None:
        self._record, self._episode, self._first, self._pauses = record, episode, first, pauses
        self._count, self._last = 0, -1

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def note(self, start: int, effect: int, worker: int) -> None:
        # If a pause lies between the two, it is the last one: an action takes effect only when a pause is over.
        paused = bool(self._pauses) and self._last < self._pauses[-1][0]
        interval = None if not self._count or paused else effect - self._last
        self._count, self._last = self._count + 1, effect
        self._record.note_effect(self._first + start, worker, self._episode, start, effect, interval)


@dataclass
class BoundedMeasurements(Measurements):
    """Measurements whose time line has the decisions that started in the last seconds of the environment's time.

    Attributes:
        timeline: Seconds of it.
        delays: Frames from each applied action's start to its effect.
        intervals: Frames between two applied actions of an episode, unless a pause lies between them.
    """

    timeline: float = 1.0
    latencies: Any = field(default_factory=Histogram)
    exchanges: Any = field(default_factory=Histogram)
    lateness: Any = field(default_factory=Histogram)
    versions: Any = field(default_factory=Histogram)
    delays: Histogram = field(default_factory=Histogram)
    intervals: Histogram = field(default_factory=Histogram)

    def __post_init__(self) -> None:
        """Begin with no frame."""
        self._window = math.ceil(self.timeline * self.fps)  # frames
        self._frame = -1  # frames played before the present one, over all episodes
        self._inferences: deque[tuple[int, int, Span]] = deque()  # frame that was read, number
        self._applied: deque[_Applied] = deque()
        self._inferred = self._missed = 0  # nanoseconds of inference; frames

    def numbers(self) -> Any:
        """Return a histogram, which counts what is appended."""
        return Histogram()

    def joined(self, parts: Sequence[Any]) -> Any:
        """Return the histogram of several ones' numbers."""
        return reduce(add, parts, Histogram())

    def effects_of(self, episode: int, first: int, pauses: list[tuple[int, int]]) -> EffectsOfEpisode:
        self._frame = first - 1
        return _CountedEffects(self, episode, first, pauses)

    def note_frame(self, late: int) -> None:
        """Decisions that started before the time line are dropped."""
        super().note_frame(late)
        self._missed += late > self._half_frame
        self._frame += 1
        first = self._frame - self._window
        # One that a younger one has overtaken goes a little later.
        while self._inferences and self._inferences[0][0] <= first:
            self._inferences.popleft()
        while self._applied and self._applied[0].frame <= first:
            self._applied.popleft()

    def note_inference(self, span: Span, latency: int, exchange: int | None, number: int, frame: int) -> None:
        self.latencies.append(latency)
        if exchange is not None:
            self.exchanges.append(exchange)
        self._inferred += span.ended - span.began
        self._inferences.append((frame, number, span))

    def note_effect(self, frame: int, worker: int, episode: int, start: int, effect: int, interval: int | None) -> None:
        """Note an action that takes effect; see `_Applied`, and `intervals`."""
        self.delays.append(effect - start)
        if interval is not None:
            self.intervals.append(interval)
        lags: Any = self.lags
        self._applied.append(_Applied(frame, worker, episode, start, effect, None if lags is None else lags.last))

    def _statistics(self, numbers: Any, per: float) -> dict[str, float]:
        counted: Histogram = numbers
        return counted.distribution(1 / per)

    def _interval_ms(self) -> dict[str, float]:
        return self.intervals.distribution(1e3 / self.fps)

    def _delay_frames(self) -> dict[str, float]:
        return self.delays.distribution()

    def _missed_deadlines(self) -> int:
        return self._missed

    def _drift_ms(self) -> float:
        lateness: Histogram = self.lateness
        return ((lateness.last or 0) - (lateness.first or 0)) / 1e6

    def _busy(self) -> int:
        return self._inferred

    def _timeline_s(self) -> float:
        return self.timeline

    def _placed(self) -> Iterator[Span]:
        """Yield the time line's inferences in the order of their starts, with the effects of their actions."""
        episodes = {episode.number: episode for episode in self.episodes}
        effects = {(each.episode, each.start, each.worker): each for each in self._applied}
        for frame, _, span in sorted(self._inferences, key=lambda each: each[1]):
            if frame <= self._frame - self._window:
                continue
            placed = replace(span, began=span.began - self.begin, ended=span.ended - self.begin)
            found = effects.get((span.episode, span.start, span.worker))
            if found is not None:
                applied = self._at(episodes[span.episode], found.effect)
                placed = replace(placed, effect=found.effect, applied=applied, lag=found.lag)
            yield placed
