"""The timing report that every run ends with: text, JSON, a trace for Perfetto, and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from async_wrappers.files import write_atomically
from async_wrappers.live.report.spans import EpisodeTiming, Span

__all__ = ["TimingReport", "distribution"]


@dataclass(frozen=True)
class TimingReport:
    """What a run did and when.

    Attributes:
        latency_ms: Of each inference.
        interval_ms: Between two applied actions of an episode.
        delay_frames: Age of the observation behind each applied action.
        learner_step_ms: Of each update; None without a learner.
        frames: Counts: total, fresh (with an action of the agent's), default, dropped_actions (computed and never
            applied), late_actions (released after they were due), missed_deadlines (frames that began more than half
            a frame late).
        lateness_ms: By how much frames began after their deadline.
        drift_ms: Lateness of the last frame against the first one's clock.
        fps: Frames per second that were reached.
        workers: count, restarts, and busy_share (inference time per worker and run time).
        episodes: Each episode's return and frames.
        spans: Each inference, for the trace.
        exchange_us: Of each decision: what its way took, from ticket to action, less the inference itself; None on the
            virtual clock.
        playout_frames: Frames from a decision's start to when its action is due; 0 where that is when it is ready.
        lost: Inferences that gave no action, by what became of them.
        updates: Updates of all learners.
        scalars: What the last update returned, by name.
        phase_state: What the environment keeps for the next phase (its attribute ``phase_state``); None for nothing.
        notes: What `on_frame` returned, each with its frame.
    """

    latency_ms: dict[str, float]
    interval_ms: dict[str, float]
    delay_frames: dict[str, float]
    learner_step_ms: dict[str, float] | None
    frames: dict[str, int]
    lateness_ms: dict[str, float]
    drift_ms: float
    fps: float
    workers: dict[str, float]
    episodes: tuple[EpisodeTiming, ...]
    spans: tuple[Span, ...] = ()
    exchange_us: dict[str, float] | None = None
    playout_frames: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    updates: int = 0
    scalars: dict[str, float] = field(default_factory=dict)
    phase_state: Any = None
    notes: tuple[tuple[int, Any], ...] = ()

    @property
    def updates_per_frame(self) -> float:
        """Updates of all learners, per frame."""
        return self.updates / max(self.frames["total"], 1)

    @property
    def actions_per_frame(self) -> float:
        """Share of the frames that received an action of the agent's."""
        return self.frames["fresh"] / max(self.frames["total"], 1)

    @property
    def updates_per_action(self) -> float:
        """Updates of all learners, per action that was applied."""
        return self.updates / max(self.frames["fresh"], 1)

    @property
    def refused(self) -> int:
        """Answers of the policy's that were no action of the environment's."""
        return self.lost.get("refused", 0)

    @property
    def wins(self) -> int:
        """Episodes that were won."""
        return sum(episode.won is True for episode in self.episodes)

    @property
    def losses(self) -> int:
        """Episodes that were lost."""
        return sum(episode.won is False for episode in self.episodes)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the spans."""
        return {
            "latency_ms": self.latency_ms,
            "interval_ms": self.interval_ms,
            "delay_frames": self.delay_frames,
            "learner_step_ms": self.learner_step_ms,
            "frames": self.frames,
            "lateness_ms": self.lateness_ms,
            "drift_ms": self.drift_ms,
            "fps": self.fps,
            "workers": self.workers,
            "episodes": [{"return": episode.score, "frames": episode.frames} for episode in self.episodes],
            "exchange_us": self.exchange_us,
            "playout_frames": self.playout_frames,
            "lost": self.lost,
            "updates": self.updates,
            "updates_per_frame": self.updates_per_frame,
            "updates_per_action": self.updates_per_action,
            "actions_per_frame": self.actions_per_frame,
            "wins": self.wins,
            "losses": self.losses,
            "phase_state": self.phase_state,
            "notes": [list(note) for note in self.notes],
        }

    def to_json(self, path: str | Path) -> None:
        """Write the report as JSON; what no value was seen of is null, as is what JSON has no number for."""
        _write(Path(path), json.dumps(_as_json(self.to_dict()), indent=1, allow_nan=False) + "\n")

    def to_trace(self, path: str | Path) -> None:
        """Write the run in the trace event format, which Perfetto and chrome://tracing open.

        A row for each worker, with its inferences, and one for the environment, with the actions that took effect.
        """
        workers = int(self.workers["count"])
        rows = [*(f"worker {worker}" for worker in range(workers)), "environment"]
        events = [event for row, name in enumerate(rows) for event in _row(row, name)]
        for span in self.spans:
            events.append(_inference(span))
            if span.applied is not None:
                events.append(_application(span, workers))
        _write(Path(path), json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n")

    def to_png(self, path: str | Path, begin: float = 0.0, seconds: float = 1.0) -> None:
        """Draw who inferred when, and histograms of delay and interval; needs matplotlib.

        Args:
            path: Where to.
            begin: From where on in the run the time line is drawn, in seconds.
            seconds: How much of it. The histograms are of the whole run.

        Raises:
            ValueError: `seconds` is not positive.
        """
        from async_wrappers.live.report.picture import timing_picture

        picture = timing_picture(self.spans, int(self.workers["count"]), self.frames, begin, seconds)
        write_atomically(Path(path), lambda file: picture.savefig(file, dpi=130, format="png"))

    def __str__(self) -> str:
        """Summarize for a person."""
        total = max(self.frames["total"], 1)
        return "\n".join(
            (
                f"frames     {self.frames['total']} at {self.fps:.2f} fps: "
                f"{self.frames['fresh'] / total:.1%} with a fresh action, {self.frames['default']} default",
                f"actions    {self.frames['dropped_actions']} dropped, {self.frames['late_actions']} late, "
                f"{self.refused} refused",
                f"latency    {_line(self.latency_ms)} ms",
                f"delay      {_line(self.delay_frames)} frames",
                f"interval   {_line(self.interval_ms)} ms",
                f"deadlines  {self.frames['missed_deadlines']} missed, lateness p99 {self.lateness_ms['p99']:.3f} ms, "
                f"drift {self.drift_ms:.3f} ms",
                f"workers    {self.workers['count']:.0f}, busy {self.workers['busy_share']:.0%}, "
                f"{self.workers['restarts']:.0f} restarts",
                *(() if self.exchange_us is None else (f"exchange   {_line(self.exchange_us)} us",)),
                *((f"lost       {self.lost}",) if self.lost else ()),
                *(
                    (
                        f"learning   {self.updates} updates, {self.updates_per_frame:.2f} per frame, "
                        f"{self.updates_per_action:.2f} per action",
                    )
                    if self.learner_step_ms
                    else ()
                ),
                *((f"outcome    {self.wins} won, {self.losses} lost",) if self.wins or self.losses else ()),
                *((f"state      {self.phase_state}, for the next phase",) if self.phase_state is not None else ()),
                f"episodes   {len(self.episodes)}, returns {', '.join(f'{e.score:g}' for e in self.episodes[:8])}"
                + (", ..." if len(self.episodes) > 8 else ""),
            )
        )


def _row(row: int, name: str) -> list[dict[str, Any]]:
    """Return the events that name a row of a trace and give it its place."""
    of = {"ph": "M", "pid": 0, "tid": row}
    return [
        {**of, "name": "thread_name", "args": {"name": name}},
        {**of, "name": "thread_sort_index", "args": {"sort_index": row}},
    ]


def _inference(span: Span) -> dict[str, Any]:
    return {
        "name": f"o_{span.start}",
        "cat": "inference" if span.effect is not None else "inference,dropped",
        "ph": "X",
        "ts": span.began / 1e3,
        "dur": (span.ended - span.began) / 1e3,
        "pid": 0,
        "tid": span.worker,
        "args": {"episode": span.episode, "start": span.start},
    }


def _application(span: Span, row: int) -> dict[str, Any]:
    assert span.effect is not None
    assert span.applied is not None
    return {
        "name": f"a_{span.start}",
        "cat": "action",
        "ph": "i",
        "s": "t",
        "ts": span.applied / 1e3,
        "pid": 0,
        "tid": row,
        "args": {"episode": span.episode, "frame": span.effect, "delay": span.effect - span.start},
    }


def distribution(values: Sequence[float] | Iterable[float]) -> dict[str, float]:
    """Return mean, std, p50, p95, p99 and max; all nan where there is no value."""
    array = np.asarray(list(values), np.float64)
    if array.size == 0:
        return dict.fromkeys(("mean", "std", "p50", "p95", "p99", "max"), float("nan"))
    p50, p95, p99 = np.percentile(array, (50, 95, 99))
    return {
        "mean": float(array.mean()),
        "std": float(array.std()),
        "p50": float(p50),
        "p95": float(p95),
        "p99": float(p99),
        "max": float(array.max()),
    }


def _line(d: dict[str, float]) -> str:
    return f"mean {d['mean']:.2f}, p50 {d['p50']:.2f}, p95 {d['p95']:.2f}, p99 {d['p99']:.2f}, max {d['max']:.2f}"


def _as_json(value: Any) -> Any:
    """Return plain data with None for nan and the infinities, which are not JSON."""
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))
