"""What happened in a phase, as it was measured, and the report that it makes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from async_wrappers.live.report.spans import EpisodeTiming, Span
from async_wrappers.live.report.timing import TimingReport, distribution

__all__ = ["Measurements"]

_HOPELESS = 100  # refusals: a policy whose actions lie beyond the bounds now and then has given a good one by then


@dataclass
class Measurements:
    """One phase of a run. All times are whole nanoseconds; of a real clock, the monotonic one's.

    Attributes:
        fps: Frames per second that were asked for.
        workers: How many there are.
        simulated: Whether the clock was, so that frames took exactly what they should.
        playout: The strategy's, in frames.
        begin: When the first frame began.
        end: When the last frame ended.
        episodes: Return and length of each.
        effects: (start, effect) of each applied action, by episode.
        latencies: Of each inference.
        spans: Of each inference; on the virtual clock a reset cuts it off.
        exchanges: What each decision's transport took: from ticket to action, less the inference.
        lateness: Of each frame's beginning, against its deadline.
        versions: Of the weights behind each applied action.
        dropped: Actions computed and never applied.
        late: Actions released after they were due.
        accepted: Answers of the policy's that were actions of the environment's.
        refusal: The sentence about the first answer that was none; None where there was no such one.
        fates: Inferences that gave no action, by what became of them.
        restarts: Of workers.
        learner_steps: How long each update took.
        updates: How many updates were made.
        scalars: What the last update returned.
        stopped: Whether the phase was ended from outside.
        phase_state: What the environment keeps for the next phase; None if it keeps nothing.
        notes: What `PhaseSpec.on_frame` returned, each with its frame.
    """

    fps: float
    workers: int
    simulated: bool = False
    playout: int = 0
    begin: int = 0
    end: int = 0
    episodes: list[EpisodeTiming] = field(default_factory=list)
    effects: list[list[tuple[int, int]]] = field(default_factory=list)
    latencies: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    exchanges: list[int] = field(default_factory=list)
    lateness: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    dropped: int = 0
    late: int = 0
    accepted: int = 0
    refusal: str | None = None
    fates: dict[str, int] = field(default_factory=dict)
    restarts: int = 0
    learner_steps: list[int] | None = None
    updates: int = 0
    scalars: dict[str, float] = field(default_factory=dict)
    stopped: bool = False
    phase_state: Any = None
    notes: list[tuple[int, Any]] = field(default_factory=list)

    @property
    def hopeless(self) -> bool:
        """Whether so many answers were refused, and none accepted, that there is no use in going on."""
        return not self.accepted and self.fates.get("refused", 0) >= max(_HOPELESS, self.workers)

    def report(self) -> TimingReport:
        """Return the timing report."""
        frame = 1e9 / self.fps
        total, fresh = sum(episode.frames for episode in self.episodes), sum(map(len, self.effects))
        intervals = [after[1] - before[1] for applied in self.effects for before, after in itertools.pairwise(applied)]
        lateness = np.asarray(self.lateness, np.float64)
        wall = max(self.end - self.begin, 1)
        busy = sum(max(min(span.ended, self.end) - max(span.began, self.begin), 0) for span in self.spans)
        return TimingReport(
            latency_ms=distribution(latency / 1e6 for latency in self.latencies),
            interval_ms=distribution(interval * frame / 1e6 for interval in intervals),
            delay_frames=distribution(effect - start for applied in self.effects for start, effect in applied),
            learner_step_ms=None if self.learner_steps is None else distribution(t / 1e6 for t in self.learner_steps),
            frames={
                "total": total,
                "fresh": fresh,
                "default": total - fresh,
                "dropped_actions": self.dropped,
                "late_actions": self.late,
                "missed_deadlines": int((lateness > frame / 2).sum()),
            },
            lateness_ms=distribution(lateness / 1e6),
            drift_ms=float(lateness[-1] - lateness[0]) / 1e6 if lateness.size else 0.0,
            fps=self.fps if self.simulated else total / wall * 1e9,
            workers={
                "count": self.workers,
                "restarts": self.restarts,
                "busy_share": busy / (wall * self.workers),
            },
            episodes=tuple(replace(episode, began=episode.began - self.begin) for episode in self.episodes),
            spans=tuple(self._placed()),
            exchange_us=distribution(exchange / 1e3 for exchange in self.exchanges) if self.exchanges else None,
            playout_frames=self.playout,
            lost=dict(sorted(self.fates.items())),
            updates=self.updates,
            scalars=self.scalars,
            phase_state=self.phase_state,
            notes=tuple(self.notes),
        )

    def _placed(self) -> Iterator[Span]:
        """Yield the inferences on the run's time line, with what became of their actions.

        Of several that read the same frame, the action that took effect is that of the one that ended first.
        """
        effects = {
            (episode.number, start): (effect, episode.began + round(effect * 1e9 / self.fps))
            for episode, applied in zip(self.episodes, self.effects, strict=True)
            for start, effect in applied
        }
        first: dict[tuple[int, int], Span] = {}
        for span in self.spans:
            key = span.episode, span.start
            first[key] = min(first.get(key, span), span, key=lambda each: (each.ended, each.worker))
        for span in self.spans:
            key = span.episode, span.start
            effect, applied = effects[key] if key in effects and first[key] is span else (None, None)
            yield replace(
                span,
                began=span.began - self.begin,
                ended=span.ended - self.begin,
                effect=effect,
                applied=None if applied is None else applied - self.begin,
            )
