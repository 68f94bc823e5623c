"""The report of a server of many environments: how late and how old the actions of each were, and what batches took."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from async_wrappers.files import path_of, write_text_atomically
from async_wrappers.latency.batches import MeasuredBatches
from async_wrappers.live.report.histogram import Histogram
from async_wrappers.live.report.report import as_json
from async_wrappers.live.report.shares import told
from async_wrappers.live.served.accelerators import Server
from async_wrappers.live.served.world import WorldRecord
from async_wrappers.schedule.served import ServedDecisions, ServedSchedule

_MS = 1e-6  # milliseconds of a nanosecond


@dataclass(frozen=True)
class ServedEnvironment:
    """Statistics of one environment of a server; those of a quantity are a dict of mean, std, p50, p95, p99 and max.

    Attributes:
        number: Its number.
        in_time: Share of its actions that had been computed when the frame began on which they were due.
        fresh: Share of its frames with the action of a new decision; at most 1 / every.
        delay_frames: Age of the observation behind each applied action.
        lateness_ms: By how much its frames began after their deadline.
        frames: Counts: total, fresh, default (the others), too_old (actions refused as older than ``max_age``).
        returns: Of the episodes that ended.
    """

    number: int
    in_time: float
    fresh: float
    delay_frames: dict[str, float]
    lateness_ms: dict[str, float]
    frames: dict[str, int]
    returns: tuple[float, ...]

    @classmethod
    def of(cls, record: WorldRecord) -> ServedEnvironment:
        """Return what a record says."""
        default = record.frames - record.fresh
        return cls(
            number=record.environment,
            in_time=record.in_time / record.due if record.due else math.nan,
            fresh=record.fresh / record.frames if record.frames else math.nan,
            delay_frames=record.delay.distribution(),
            lateness_ms=record.lateness.distribution(_MS),
            frames={
                "total": record.frames, "fresh": record.fresh, "default": default, "too_old": record.too_old,
            },
            returns=tuple(record.returns),
        )  # fmt: skip


@dataclass(frozen=True)
class ServedReport:
    """Statistics of a run of `ServedRunner`. Those of a quantity are a dict of mean, std, p50, p95, p99 and max;
    percentiles are within 0.4 %.

    Attributes:
        environments: Of each environment.
        in_time: Share of all actions that had been computed when the frame began on which they were due.
        fresh: Share of all frames with the action of a new decision.
        delay_frames: Age of the observation behind each applied action.
        lateness_ms: By how much frames began after their deadline.
        batch_size: How many observations batches had.
        batch_ms: How long batches took, from the order to the actions.
        busy: Share of the run for which each accelerator computed.
        frames: Counts: total, fresh, default, too_old, overtaken (observations that a newer one replaced before anybody
            read them).
        fps: Frames per second of an environment that were asked for.
        playout: Frames from an observation to its action.
        every: Frames between two observations of an environment that are inferred; with 1 each one is.
        phases: Nanoseconds by which the frames of each environment begin later.
        seconds: Of the run, on its clock.
        simulated: Whether that was the virtual one.
        batches: The newest latencies of batches, in seconds, by their size.
        decisions: Each decision, where they were logged; else None.
        streams: (start, effect) of each applied action, by environment, where they were logged.
        stopped: Why the run ended before its length was reached; None if it did not.
        restarts: Processes that hung, were stopped or exited, and were started again. What environments had played in
            one of them is in no other number of the report.
    """

    environments: tuple[ServedEnvironment, ...]
    in_time: float
    fresh: float
    delay_frames: dict[str, float]
    lateness_ms: dict[str, float]
    batch_size: dict[str, float]
    batch_ms: dict[str, float]
    busy: tuple[float, ...]
    frames: dict[str, int]
    fps: float
    playout: int
    every: int
    phases: tuple[int, ...]
    seconds: float
    simulated: bool
    batches: Mapping[int, Sequence[float]] = field(repr=False)
    decisions: ServedDecisions | None = field(default=None, repr=False)
    streams: tuple[tuple[tuple[int, int], ...], ...] = field(default=(), repr=False)
    stopped: str | None = None
    restarts: int = 0

    @classmethod
    def of(
        cls,
        records: Sequence[WorldRecord],
        server: Server,
        schedule: ServedSchedule,
        frames: int,
        simulated: bool,
        stopped: str | None,
        restarts: int = 0,
    ) -> ServedReport:
        """Return the report of a run.

        Args:
            records: Of the environments.
            server: That inferred for them.
            schedule: Of both.
            frames: Of each environment that were asked for.
            simulated: Whether time was.
            stopped: Why it ended early, if it did.
            restarts: Processes that were started again.
        """
        delay, lateness = Histogram(), Histogram()
        for record in records:
            delay, lateness = delay + record.delay, lateness + record.lateness
        total, fresh = sum(each.frames for each in records), sum(each.fresh for each in records)
        due, played = sum(each.due for each in records), max(each.frames for each in records)
        seconds = schedule.clock.begin(max(played, 1)) / 1e9
        return cls(
            environments=tuple(ServedEnvironment.of(record) for record in records),
            in_time=sum(each.in_time for each in records) / due if due else math.nan,
            fresh=fresh / total if total else math.nan,
            delay_frames=delay.distribution(),
            lateness_ms=lateness.distribution(_MS),
            batch_size=server.sizes.distribution(),
            batch_ms=server.durations.distribution(_MS),
            busy=tuple(busy / 1e9 / seconds for busy in server.busy),
            frames={
                "total": total,
                "fresh": fresh,
                "default": total - fresh,
                "too_old": sum(each.too_old for each in records),
                "overtaken": server.overtaken,
            },
            fps=float(schedule.clock.fps),
            playout=schedule.playout,
            every=schedule.every,
            phases=tuple(schedule.phases),
            seconds=seconds,
            simulated=simulated,
            batches={size: tuple(taken) for size, taken in sorted(server.latencies.items())},
            decisions=server.decisions(frames),
            streams=tuple(tuple(each.stream) for each in records) if any(each.stream for each in records) else (),
            stopped=stopped,
            restarts=restarts,
        )

    def batch_latency(self) -> MeasuredBatches:
        """Return how long the batches of the run took, as a model: `capacity` and `ServedSchedule` take it.

        Raises:
            ValueError: All batches had one size, or the larger ones took less time.
        """
        return MeasuredBatches(self.batches)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without latencies, decisions and streams."""
        without = ("batches", "decisions", "streams", "environments", "phases", "busy")
        plain = {name: value for name, value in vars(self).items() if name not in without}
        of_each = [{**vars(each), "returns": list(each.returns)} for each in self.environments]
        return {**plain, "phases": [*self.phases], "busy": [*self.busy], "environments": of_each}

    def to_json(self, path: str | Path) -> None:
        """Write the report as JSON; statistics without values are null."""
        text = json.dumps(as_json(self.to_dict()), indent=1, allow_nan=False) + "\n"
        write_text_atomically(path_of(path), text)

    def __str__(self) -> str:
        """Summarize for a person."""
        return "\n".join(f"{name:<10} {words}" for name, words in self._rows())

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of the summary, each with its name."""
        many, frames = len(self.environments), self.frames
        yield (
            "served",
            f"{many} environments at {self.fps:g} fps for {self.seconds:.1f} s, playout {self.playout} frames",
        )
        if self.stopped is not None:
            yield "stopped", self.stopped
        if self.restarts:
            yield "restarts", f"{self.restarts} processes hung, were stopped or exited, and were started again"
        yield "in time", f"{self.in_time:.2%} of the actions; of {many} environments {_extremes(self.environments)}"
        yield (
            "frames",
            (
                f"{frames['total']}: {told(frames)} ({frames['default']} frames), "
                f"{frames['too_old']} too old, {frames['overtaken']} observations overtaken"
            ),
        )
        yield "delay", f"{_line(self.delay_frames)} frames"
        yield "lateness", f"{_line(self.lateness_ms)} ms"
        yield "batches", f"{_line(self.batch_size)} observations"
        yield "inference", f"{_line(self.batch_ms)} ms"
        yield "busy", ", ".join(f"{busy:.0%}" for busy in self.busy)
        returns = [each for environment in self.environments for each in environment.returns]
        mean = f", mean return {sum(returns) / len(returns):.4g}" if returns else ""
        yield "episodes", f"{len(returns)}{mean}"


def _extremes(environments: Sequence[ServedEnvironment]) -> str:
    shares = [each.in_time for each in environments]
    return f"the least {min(shares):.2%}, the most {max(shares):.2%}"


def _line(d: dict[str, float]) -> str:
    return f"mean {d['mean']:.2f}, p50 {d['p50']:.2f}, p95 {d['p95']:.2f}, p99 {d['p99']:.2f}, max {d['max']:.2f}"
