"""Measurements of a phase, and the report made of them: text, JSON, and a trace for Perfetto."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from async_wrappers.files import path_of, write_atomically, write_text_atomically
from async_wrappers.latency import Trace
from async_wrappers.live.report.ages import Ages, ages_of, draw_ages
from async_wrappers.live.report.histogram import RELATIVE_ERROR
from async_wrappers.live.report.journey import MOST_JOURNEYS, RoundTrip, Span, parts_ms
from async_wrappers.live.report.picture import ages_picture, timing_picture
from async_wrappers.live.report.sensor_readings import SensorReadings, in_words
from async_wrappers.live.report.shares import shares_of, told

if TYPE_CHECKING:
    from async_wrappers.wrappers.measured_latencies import Latencies


@dataclass(frozen=True)
class EpisodeTiming:
    """One episode.

    Attributes:
        score: Its return, unclipped where the environment gives ``info["episode_return"]``.
        frames: Its length.
        number: Its number among the episodes of its kind of phase.
        won: Whether it was won, where the environment's last ``info`` says so (``"won"``), else None.
        began: When its first frame began, in nanoseconds on the run's time line; ignored when two are compared.
        moved: Frames of a machine from which on the deadlines were later, and by how many nanoseconds in all.
    """

    score: float
    frames: int
    number: int = 0
    began: int = field(default=0, compare=False)
    won: bool | None = None
    moved: tuple[tuple[int, int], ...] = field(default=(), compare=False)


class EffectsOfEpisode(list[tuple[int, int]]):
    """(start, effect) of each applied action of an episode."""

    def note(self, start: int, effect: int, worker: int) -> None:
        """Note that an action takes effect, which `worker` inferred."""
        self.append((start, effect))


@dataclass(frozen=True)
class Gap:
    """Frames in a row that received the default action.

    Attributes:
        place: Number of the episode among those of the phase.
        end: The frame after the last of them.
        frames: How many they are.
        late: Nanoseconds by which the latest of them began after its deadline: for so long the loop was held up.
    """

    place: int
    end: int
    frames: int
    late: int


_PARTS = ("out", "queue", "inference", "back", "round_trip")
_STILL_MS = 500  # of a frame's lateness, for which no policy and no server is to blame
_HOPELESS = 100  # refusals: a policy whose actions lie beyond the bounds now and then has given a good one by then


@dataclass
class Measurements:
    """One phase of a run. All times are whole nanoseconds; of a real clock, the monotonic one's.

    Attributes:
        fps: Frames per second that were asked for.
        workers: How many there are.
        simulated: Whether the clock was simulated, so that every frame had its exact length.
        playout: The strategy's, in frames.
        begin: When the first frame began.
        end: When the last frame ended.
        episodes: Return and length of each.
        effects: (start, effect) of each applied action, by episode.
        latencies: Of each inference.
        spans: Of each inference; on the virtual clock a reset cuts it off.
        exchanges: Transport time of each decision: from ticket to action, less the inference.
        round_trips: The times of the newest round trips to workers on another machine.
        lateness: Of each frame's beginning, against its deadline.
        versions: Of the weights behind each applied action.
        lags: Age of the weights behind each applied action when it was applied, in updates of all learners; None
            without learners.
        dropped: Actions computed and never applied.
        late: Actions released after they were due.
        too_old: Actions that would have been applied, and were refused as older than ``max_age``.
        held: Frames on which a fast path went on with the features of an earlier decision; None where it may not.
        chunk: Frames that received the action of a chunk which had landed before; None without chunks.
        ended: Decisions that took effect after their chunk's end, so that the frame received the default action.
        gap: The longest one without an action of the policy's; None if there was none.
        limited: Frames on which a limit changed the action.
        skipped: Frames of a machine that passed while the loop was held up, and were not made up.
        released: How often the deadman was let go.
        unsent: The newest actions of a dry run.
        pauses: First frame of each pause and the frame after its last, by episode.
        waited: Nanoseconds for which the next episode waited for the end of a pause.
        accepted: Number of the policy's answers that were actions.
        refusal: The refusal of the first answer that was no action; None if there was none.
        fates: Inferences that gave no action, by their fate.
        restarts: Of workers.
        learner_steps: How long each update took.
        updates: How many updates were made.
        scalars: Scalars of the last update.
        off_policy: Means over the phase's updates of the off-policy scalars
            (`async_wrappers.live.learning.learner.OFF_POLICY`); empty where the learners do not return them.
        stopped: Whether the phase was ended before its time.
        reason: Why, where the loop itself did it.
        phase_state: The environment's, for the next phase; None if it keeps nothing.
        statistics: Of the environment's wrappers, after the phase.
        notes: Values that `PhaseSpec.on_frame` returned, each with its frame.
        recording: Where the phase was recorded, how many frames of it, and how many were dropped; None without one.
        loop_time: Processor time of the environment loop's thread; None on the virtual clock.
        realtime: How the loop was scheduled, as in the report.
        sensors: What was seen of each sensor, by name; empty where the environment reports no ages.
    """

    fps: float
    workers: int
    simulated: bool = False
    playout: int = 0
    begin: int = 0
    end: int = 0
    episodes: list[EpisodeTiming] = field(default_factory=list)
    effects: list[EffectsOfEpisode] = field(default_factory=list)
    latencies: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    exchanges: list[int] = field(default_factory=list)
    round_trips: deque[RoundTrip] = field(default_factory=lambda: deque(maxlen=MOST_JOURNEYS))
    lateness: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    lags: list[int] | None = None
    dropped: int = 0
    late: int = 0
    too_old: int = 0
    held: int | None = None
    chunk: int | None = None
    ended: int = 0
    gap: Gap | None = None
    limited: int = 0
    skipped: int = 0
    released: int = 0
    unsent: list[Any] = field(default_factory=list)
    pauses: list[list[tuple[int, int]]] = field(default_factory=list)
    waited: int = 0
    accepted: int = 0
    refusal: str | None = None
    fates: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    learner_steps: list[int] | None = None
    updates: int = 0
    scalars: dict[str, float] = field(default_factory=dict)
    off_policy: dict[str, float] = field(default_factory=dict)
    stopped: bool = False
    reason: str | None = None
    phase_state: Any = None
    statistics: dict[str, Any] = field(default_factory=dict)
    notes: list[tuple[int, Any]] = field(default_factory=list)
    recording: dict[str, Any] | None = None
    loop_time: int | None = None
    realtime: dict[str, Any] | None = None
    sensors: dict[str, SensorReadings] = field(default_factory=dict)
    _late: int = field(default=0, init=False, repr=False)  # nanoseconds, of the latest frame of the running gap

    @property
    def hopeless(self) -> bool:
        """Whether 100 answers were refused and none accepted, so that the run is hopeless."""
        return not self.accepted and self.fates["refused"] >= max(_HOPELESS, self.workers)

    def note_learning(self, statistics: Sequence[tuple[Any, dict[str, float], dict[str, float]]]) -> None:
        """Note the duration of each update, the scalars of the first learner's newest one, and the means of all."""
        self.learner_steps = self.joined([steps for steps, *_ in statistics])
        self.scalars = statistics[0][1]
        by_learner = [(len(steps), means) for steps, _, means in statistics if steps]
        for name in by_learner[0][1] if by_learner else ():
            self.off_policy[name] = sum(n * means[name] for n, means in by_learner) / len(self.learner_steps)

    def numbers(self) -> list[int]:
        """Return where numbers of one kind are appended."""
        return []

    def joined(self, parts: Sequence[list[int]]) -> list[int]:
        """Return the numbers of several parts."""
        return [number for part in parts for number in part]

    def effects_of(self, episode: int, first: int, pauses: list[tuple[int, int]]) -> EffectsOfEpisode:
        """Return where the actions that take effect in an episode are noted.

        Args:
            episode: Its number.
            first: Frames played before it, over all episodes; as in the tickets.
            pauses: The episode's, as they end.
        """
        return EffectsOfEpisode()

    def note_frame(self, late: int) -> None:
        """Note that a frame has begun, so many nanoseconds after its deadline."""
        self.lateness.append(late)

    def note_missed(self, missed: int, frame: int, late: int) -> None:
        """Note that a frame receives the default action, the one of number `missed` in a row, and began so late."""
        self._late = max(late, 0 if missed == 1 else self._late)
        if self.gap is None or missed > self.gap.frames:
            self.gap = Gap(len(self.episodes), frame + 1, missed, self._late)

    def note_inferences(self, ended: Iterable[tuple[Span, int, int | None, int, int]]) -> None:
        """Note inferences, each as `note_inference` takes it."""
        for each in ended:
            self.note_inference(*each)

    def note_inference(self, span: Span, latency: int, exchange: int | None, number: int, frame: int) -> None:
        """Note an inference.

        Args:
            span: Its place on the time line.
            latency: Of the inference, which a reset may have cut off.
            exchange: Transport time of its decision; None on the virtual clock.
            number: How many inferences were ordered before it.
            frame: Frames played before the one that it read, over all episodes.
        """
        self.spans.append(span)
        self.latencies.append(latency)
        if exchange is not None:
            self.exchanges.append(exchange)

    def _longest_gap(self) -> dict[str, float] | None:
        if self.gap is None:
            return None
        gap, episode = self.gap, self.episodes[self.gap.place]
        began = self._at(episode, gap.end - gap.frames)
        seconds = (self._at(episode, gap.end) - began) / 1e9
        return {"frames": gap.frames, "seconds": seconds, "at": began / 1e9, "held_up": gap.late / 1e9}

    def report(self) -> TimingReport:
        """Return the timing report."""
        total = sum(episode.frames for episode in self.episodes)
        fresh = sum(map(len, self.effects)) + (self.held or 0) - self.ended
        paused = sum(end - begin for pauses in self.pauses for begin, end in pauses)
        wall = max(self.end - self.begin - self.waited, 1)
        busy = self._busy() / (wall * max(self.workers, 1))
        return TimingReport(
            latency_ms=self._statistics(self.latencies, 1e6),
            interval_ms=self._interval_ms(),
            delay_frames=self._delay_frames(),
            learner_step_ms=None if self.learner_steps is None else self._statistics(self.learner_steps, 1e6),
            frames={
                "total": total,
                "fresh": fresh,
                **({} if self.held is None else {"held": self.held}),
                **({} if self.chunk is None else {"chunk": self.chunk, "ended": self.ended}),
                "default": total - fresh - (self.chunk or 0) - paused,
                "paused": paused,
                "dropped_actions": self.dropped,
                "late_actions": self.late,
                "too_old": self.too_old,
                "limited": self.limited,
                "missed_deadlines": self._missed_deadlines(),
                "skipped": self.skipped,
            },
            lateness_ms=self._statistics(self.lateness, 1e6),
            drift_ms=self._drift_ms(),
            fps=self.fps if self.simulated else total / wall * 1e9,
            workers={"count": self.workers, "restarts": self.restarts, "busy_share": busy},
            episodes=tuple(replace(episode, began=episode.began - self.begin) for episode in self.episodes),
            spans=tuple(self._placed()),
            exchange_us=self._statistics(self.exchanges, 1e3) if self.exchanges else None,
            journey_ms=parts_ms(self.round_trips),
            playout_frames=self.playout,
            longest_gap=self._longest_gap(),
            asked_fps=self.fps,
            lost=dict(sorted(self.fates.items())),
            updates=self.updates,
            scalars=self.scalars,
            phase_state=self.phase_state,
            statistics=self.statistics,
            notes=tuple(self.notes),
            lag_updates=None if self.lags is None else self._statistics(self.lags, 1),
            off_policy=self.off_policy,
            stopped=self.reason,
            released=self.released,
            unsent=tuple(self.unsent),
            pauses=tuple(
                (self._at(episode, begin), self._at(episode, end))
                for episode, pauses in zip(self.episodes, self.pauses, strict=False)
                for begin, end in pauses
            ),
            recording=self.recording,
            timeline_s=self._timeline_s(),
            loop_share=None if self.loop_time is None else self.loop_time / wall,
            realtime=self.realtime,
            sensors={
                name: {"age_ms": self._statistics(seen.ages, 1e6), "rate": seen.rate, "lost": seen.lost}
                for name, seen in self.sensors.items()
            },
            readings=self.sensors,
        )

    def _statistics(self, numbers: list[int], per: float) -> dict[str, float]:
        """Return the distribution of numbers in the unit that has `per` of theirs."""
        return distribution(number / per for number in numbers)

    def _interval_ms(self) -> dict[str, float]:
        frame = 1e9 / self.fps
        return distribution(interval * frame / 1e6 for interval in self._intervals())

    def _delay_frames(self) -> dict[str, float]:
        return distribution(effect - start for applied in self.effects for start, effect in applied)

    def _missed_deadlines(self) -> int:
        return sum(late > self._half_frame for late in self.lateness)

    def _drift_ms(self) -> float:
        return (self.lateness[-1] - self.lateness[0]) / 1e6 if self.lateness else 0.0

    def _busy(self) -> int:
        """Return for how many nanoseconds of the run workers have inferred, over all."""
        return sum(max(min(span.ended, self.end) - max(span.began, self.begin), 0) for span in self.spans)

    def _timeline_s(self) -> float | None:
        """Return the length of the time line in seconds; None for the whole run."""
        return None

    @property
    def _half_frame(self) -> float:
        """Nanoseconds after which a frame's beginning counts as missed."""
        return 1e9 / self.fps / 2

    def _at(self, episode: EpisodeTiming, frame: int) -> int:
        """Return when a frame of an episode began, on the run's time line."""
        moves = bisect_right(episode.moved, frame, key=itemgetter(0))
        moved = episode.moved[moves - 1][1] if moves else 0
        return episode.began + round(frame * 1e9 / self.fps) + moved - self.begin

    def _intervals(self) -> Iterator[int]:
        """Yield the frames between two applied actions of an episode, unless a pause lies between them."""
        for number, applied in enumerate(self.effects):
            pauses = self.pauses[number] if self.pauses else ()
            for (_, before), (_, after) in pairwise(applied):
                if not any(before < begin <= after for begin, _ in pauses):
                    yield after - before

    def _placed(self) -> Iterator[Span]:
        """Yield the inferences on the run's time line, with the effects of their actions.

        Of several that read the same frame, the action that took effect is that of the one that ended first.
        """
        lags = iter(self.lags or ())
        effects = {
            (episode.number, start): (effect, self._at(episode, effect), next(lags, None))
            for episode, applied in zip(self.episodes, self.effects, strict=True)
            for start, effect in applied
        }
        first: dict[tuple[int, int], Span] = {}
        for span in self.spans:
            key = span.episode, span.start
            first[key] = min(first.get(key, span), span, key=lambda each: (each.ended, each.worker))
        for span in self.spans:
            key = span.episode, span.start
            effect, applied, lag = effects[key] if key in effects and first[key] is span else (None, None, None)
            yield replace(
                span,
                began=span.began - self.begin,
                ended=span.ended - self.begin,
                effect=effect,
                applied=applied,
                lag=lag,
            )


@dataclass(frozen=True)
class TimingReport:
    """Statistics and time line of a run. Those of a quantity are a dict of mean, std, p50, p95, p99 and max.

    Attributes:
        latency_ms: How long inferences took.
        interval_ms: Time between two applied actions of an episode.
        delay_frames: Age of the observation behind each applied action.
        learner_step_ms: How long updates took; None without a learner.
        frames: Counts: total, fresh (with the action of a new decision), default (with the default action), paused (the
            rest of total), dropped_actions (computed and never applied), late_actions (released after they were due),
            too_old (actions refused as older than ``max_age``), limited (frames on which `Limits` changed the action),
            missed_deadlines (frames that began more than half a frame late), skipped (frames of a machine that were not
            made up).
            With chunks also chunk (frames that received the action of a chunk which had landed before) and ended
            (decisions that took effect after their chunk's end, so that the frame received the default action).
            With ``max_features_age`` also held: fresh ones on which a fast path went on with earlier features, which
            `delay_frames` and `interval_ms` leave out.
        lateness_ms: By how much frames began after their deadline.
        drift_ms: Lateness of the last frame less that of the first.
        fps: Frames per second that were reached.
        workers: count, restarts, and busy_share (inference time per worker and run time). With a policy in the loop
            the count is 0, and the share that of its inferences in the run time.
        episodes: Each episode's return and frames.
        spans: Each inference, for the trace.
        exchange_us: Transport time of decisions, which is the time from ticket to action without the inference; None on
            the virtual clock.
        journey_ms: With a policy on another machine, parts of a round trip (`async_wrappers.live.report.journey`):
            out, queue, inference, back, their sum round_trip, and doubt, by which out and back may be off; each a dict
            of mean, p50, p99 and max. Else empty.
        playout_frames: Frames from a decision's start until its action is due; 0 if it is due when it is ready.
        longest_gap: The longest time without an action of the policy's, frames before an episode's first one included:
            ``frames``, ``seconds``, ``at`` (the second of the run in which it began) and ``held_up`` (seconds by which
            the latest of its frames was late: the loop itself was stopped or busy then). None if there was none.
        asked_fps: Frames per second that were asked for.
        lost: Inferences that gave no action, by reason.
        updates: Updates of all learners.
        scalars: Scalars of the last update, by name.
        phase_state: The environment's attribute of that name, for the next phase; None if it has none.
        statistics: Of the environment's wrappers after the run (`async_wrappers.wrapper_statistics`).
        notes: Values that `on_frame` returned, each with its frame.
        lag_updates: Age of the weights behind each applied action: updates that the learners had made when it was
            applied, beyond those in its weights; None without a learner.
        off_policy: Means over the updates of Rho (the ratio of the policy that learns to the one that acted),
            EffectiveSampleSize (of these ratios, a share) and KL, where the learner returns them.
        stopped: Why the run ended before its length was reached; None if it did not.
        released: How often the deadman was let go.
        unsent: The actions that a dry run would have sent, one a frame; of the newest 100,000 frames.
        pauses: When each pause began and ended, in nanoseconds of the run's time line.
        recording: ``directory``, ``frames`` (those in its files) and ``dropped`` of a run that was recorded; None
            without a recording.
        timeline_s: How many of the last seconds of the environment's time `spans` covers; percentiles are then those of
            a histogram, within 0.4 %, and all other numbers exact. None: `spans` has all inferences, and percentiles
            are exact.
        loop_share: Share of a core that the environment loop's thread used, steps of the environment included; None on
            the virtual clock.
        realtime: The loop's ``priority`` (None: ordinary), ``lock``, ``core``, and ``spin_us`` at the end; None without
            `Realtime`.
        sensors: By name, of each sensor whose ages the environment reports: ``age_ms``, the age of its reading as each
            frame begins, ``rate``, readings seen in a second, and ``lost``, the share of steady readings that no frame
            has shown.
        readings: By name, what `latencies` makes its sensors of: the newest 100,000 readings.
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
    journey_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    playout_frames: int = 0
    longest_gap: dict[str, float] | None = None
    asked_fps: float = math.nan
    lost: dict[str, int] = field(default_factory=dict)
    updates: int = 0
    scalars: dict[str, float] = field(default_factory=dict)
    phase_state: Any = None
    notes: tuple[tuple[int, Any], ...] = ()
    lag_updates: dict[str, float] | None = None
    off_policy: dict[str, float] = field(default_factory=dict)
    stopped: str | None = None
    released: int = 0
    unsent: tuple[Any, ...] = ()
    pauses: tuple[tuple[int, int], ...] = ()
    recording: dict[str, Any] | None = None
    timeline_s: float | None = None
    loop_share: float | None = field(default=None, compare=False)
    realtime: dict[str, Any] | None = field(default=None, compare=False)
    statistics: dict[str, Any] = field(default_factory=dict, repr=False)
    sensors: dict[str, dict[str, Any]] = field(default_factory=dict)
    readings: dict[str, SensorReadings] = field(default_factory=dict, repr=False)

    @property
    def updates_per_frame(self) -> float:
        """Updates of all learners, per frame."""
        return self.updates / max(self.frames["total"], 1)

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the frames, without those of pauses, which sum to 1: fresh, default and, with chunks, chunk."""
        return shares_of(self.frames)

    @property
    def actions_per_frame(self) -> float:
        """Share of the frames, without those of pauses, that received the action of a new decision."""
        return self.shares["fresh"]

    @property
    def updates_per_action(self) -> float:
        """Updates of all learners, per action that was applied."""
        return self.updates / max(self.frames["fresh"], 1)

    @property
    def refused(self) -> int:
        """Number of the policy's answers that were no action."""
        return self.lost.get("refused", 0)

    def latency_trace(self) -> Trace:
        """Return how long the inferences took, in the order of their starts, as a latency model.

        `RealtimeDelay`, the virtual clock and `plan` take it. Of a policy on another machine it is the round trips.

        Raises:
            ValueError: There was no inference.
        """
        return Trace([(span.ended - span.began) / 1e9 for span in self._by_start()])

    def latencies(self) -> Latencies:
        """Return all that simulations need of this run: decisions, in the order of their starts, transport, sensors.

        `RealtimeDelay` takes it, `SensorDelay`, their vectors, `plan`, and ``latencies().to_json(path)`` writes it.

        Raises:
            ValueError: There was no inference, or too few readings of a sensor.
        """
        from async_wrappers.wrappers.measured_latencies import Latencies  # which needs what is of tensors

        spans = self._by_start()
        sensors = {name: seen.sensor(self.asked_fps) for name, seen in self.readings.items()}
        if any(span.transport is None for span in spans):
            return Latencies(self.latency_trace(), None, sensors)
        transport = np.array([span.transport for span in spans], np.float64) / 1e9
        inference = np.array([span.inference for span in spans], np.float64) / 1e9
        return Latencies(inference + transport, transport, sensors)

    def _by_start(self) -> list[Span]:
        return sorted(self.spans, key=lambda span: (span.began, span.worker))

    @property
    def wins(self) -> int:
        """Episodes that were won."""
        return sum(episode.won is True for episode in self.episodes)

    @property
    def losses(self) -> int:
        """Episodes that were lost."""
        return sum(episode.won is False for episode in self.episodes)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without spans, pauses, unsent actions, statistics, the last update's
        scalars, and readings one by one.
        """
        without = ("spans", "scalars", "pauses", "unsent", "statistics", "asked_fps", "readings")
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in without}
        plain["episodes"] = [{"return": episode.score, "frames": episode.frames} for episode in self.episodes]
        last = {"phase_state": plain.pop("phase_state"), "notes": [list(note) for note in plain.pop("notes")]}
        counted = {
            "updates_per_frame": self.updates_per_frame,
            "updates_per_action": self.updates_per_action,
            "actions_per_frame": self.actions_per_frame,
            "wins": self.wins,
            "losses": self.losses,
        }
        return {**plain, **counted, **last}

    def to_json(self, path: str | Path) -> None:
        """Write the report as JSON; statistics without values, nan and the infinities are null."""
        write_text_atomically(path_of(path), json.dumps(as_json(self.to_dict()), indent=1, allow_nan=False) + "\n")

    def to_trace(self, path: str | Path) -> None:
        """Write the run in the trace event format, which Perfetto and chrome://tracing open.

        A row for each worker, with its inferences, and one for the environment, with the actions that took effect, each
        with both ages (``delay`` in frames, ``lag`` in updates), and the pauses.
        """
        workers = int(self.workers["count"])
        rows = [*(f"worker {worker}" for worker in range(workers)), "environment"]
        events = [event for row, name in enumerate(rows) for event in _row(row, name)]
        for span in self.spans:
            events.append(_inference(span))
            if span.applied is not None:
                events.append(_application(span, workers))
        events += [_pause(begin, end, workers) for begin, end in self.pauses]
        write_text_atomically(path_of(path), json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n")

    def to_png(self, path: str | Path, begin: float | None = None, seconds: float | None = 1.0) -> None:
        """Draw who inferred when, and histograms of delay, interval and, with learners, lag; needs matplotlib.

        Args:
            path: Where to.
            begin: First second of the run that the time line shows; None for that around the longest gap without an
                action of the policy's.
            seconds: Length of the time line; None for the whole run. The histograms are of the whole run, or of
                `timeline_s`.

        Raises:
            ValueError: `seconds` is not positive.
        """
        last = max((span.ended for span in self.spans), default=0) / 1e9
        if seconds is None:
            begin, seconds = begin or 0.0, max(last - (begin or 0.0), 1 / self.asked_fps)
        if begin is None:
            begin = self._worst(seconds, last)
        workers = int(self.workers["count"])
        gap = self._gap, self._gap_in_words
        picture = timing_picture(self.spans, workers, self.frames, begin, seconds, self.pauses, *gap)
        write_atomically(path_of(path), lambda file: picture.savefig(file, dpi=130, format="png"))

    def ages(self) -> Ages:
        """Return both ages over time, of the inferences in `spans` (`async_wrappers.live.report.ages.Ages`)."""
        return ages_of(self.episodes, self.spans, self.asked_fps)

    def draw_ages(self, above: Any, below: Any) -> None:
        """Draw both ages over time into two axes of matplotlib's, with the longest gap shaded."""
        draw_ages(self.ages(), above, below, self._gap)

    def to_ages_png(self, path: str | Path) -> None:
        """Draw the age of the observation behind the last action, and that of readings, over time; needs matplotlib."""
        picture = ages_picture(self.draw_ages, self._gap_in_words)
        write_atomically(path_of(path), lambda file: picture.savefig(file, dpi=130, format="png"))

    @property
    def _gap(self) -> tuple[float, float] | None:
        """First and last second of the longest gap."""
        if (gap := self.longest_gap) is None:
            return None
        return gap["at"], gap["at"] + gap["seconds"]

    @property
    def _gap_in_words(self) -> str:
        """A sentence on it; empty if there was none."""
        if (gap := self.longest_gap) is None:
            return ""
        words = f"{gap['seconds']:.2f} s without an action of the policy ({gap['frames']} frames), from second "
        words += f"{gap['at']:.2f} on"
        held_up = gap["held_up"] > max(gap["seconds"] / 2, 2 / self.asked_fps)
        return f"{words}: {self._stood_still(gap['held_up'])}" if held_up else words

    @staticmethod
    def _stood_still(seconds: float) -> str:
        return f"the loop itself stood still for {seconds:.2f} s"

    def _worst(self, seconds: float, last: float) -> float:
        """Return the first second of a time line around the longest gap, or around its beginning where it is longer."""
        begin, end = self._gap or (0.0, 0.0)
        middle = min((begin + end) / 2, begin + 0.4 * seconds)
        return max(min(middle - seconds / 2, last - seconds), 0.0)

    def __str__(self) -> str:
        """Summarize for a person."""
        return "\n".join(f"{name:<10} {words}" for name, words in self._rows())

    def _repr_html_(self) -> str:
        """Return the report as a table, for a notebook."""
        distributions = {
            "latency": (self.latency_ms, "ms"),
            "delay": (self.delay_frames, "frames"),
            "lag": (self.lag_updates, "updates"),
            "interval": (self.interval_ms, "ms"),
            "lateness": (self.lateness_ms, "ms"),
            "exchange": (self.exchange_us, "us"),
            "update": (self.learner_step_ms, "ms"),
        }
        names = ("mean", "std", "p50", "p95", "p99", "max")
        heads = "".join(f"<th>{name}</th>" for name in ("", "unit", *names))
        rows = "".join(
            f"<tr><th>{name}</th><td>{unit}</td>" + "".join(f"<td>{found[each]:.2f}</td>" for each in names) + "</tr>"
            for name, (found, unit) in distributions.items()
            if found
        )
        shown = [(name, words) for name, words in self._rows() if name not in distributions]
        facts = "".join(f"<tr><th>{name}</th><td>{escape(words)}</td></tr>" for name, words in shown)
        return f"<table>{facts}</table><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of the summary, each with its name."""
        total, default = self.frames["total"], self.frames["default"]
        paused = f", {self.frames['paused']} paused" if self.frames.get("paused") else ""
        held = f", {self.frames['held']} by held features" if self.frames.get("held") else ""
        yield "frames", f"{total} at {self.fps:.2f} fps: {told(self.frames)} ({default} frames){held}{paused}"
        if self.longest_gap is not None:
            yield "gap", self._gap_in_words
        if self.stopped is not None:
            yield "stopped", self.stopped
        if self.timeline_s is not None:
            within = f"within {RELATIVE_ERROR:.1%}"
            yield "time line", f"the last {self.timeline_s:g} s; percentiles are of the whole run, {within}"
        dropped, late = self.frames["dropped_actions"], self.frames["late_actions"]
        old = f", {self.frames['too_old']} too old" if self.frames.get("too_old") else ""
        limited = f", {self.frames['limited']} limited" if self.frames.get("limited") else ""
        ended = f", {self.frames['ended']} after their chunk's end" if self.frames.get("ended") else ""
        yield "actions", f"{dropped} dropped, {late} late, {self.refused} refused{old}{limited}{ended}"
        yield "latency", f"{_line(self.latency_ms)} ms"
        yield "delay", f"{_line(self.delay_frames)} frames"
        for name, seen in self.sensors.items():
            yield "sensor", f"{name}: {in_words(seen)}"
        if self.lag_updates is not None:
            yield "lag", f"{_line(self.lag_updates)} updates"
        if self.off_policy:
            yield "ratios", ", ".join(f"{name} {mean:.3f}" for name, mean in self.off_policy.items())
        yield "interval", f"{_line(self.interval_ms)} ms"
        missed, lateness = self.frames["missed_deadlines"], f"lateness p99 {self.lateness_ms['p99']:.3f} ms"
        skipped = f" and {self.frames['skipped']} frames skipped" if self.frames.get("skipped") else ""
        still = f"; {self._stood_still(self.lateness_ms['max'] / 1e3)}" if self.lateness_ms["max"] >= _STILL_MS else ""
        yield "deadlines", f"{missed} missed{skipped}, {lateness}, drift {self.drift_ms:.3f} ms{still}"
        if self.realtime is not None:
            yield "realtime", self._scheduled(self.realtime)
        w = self.workers
        if w["count"]:
            yield "workers", f"{w['count']:.0f}, busy {w['busy_share']:.0%}, {w['restarts']:.0f} restarts"
        else:
            yield "workers", f"none: the policy runs in the loop, {w['busy_share']:.1%} of the time"
        if self.exchange_us is not None:
            yield "exchange", f"{_line(self.exchange_us)} us"
        if self.journey_ms:
            parts = ", ".join(f"{name} {self.journey_ms[name]['p50']:.2f}" for name in _PARTS)
            yield "journey", f"p50 {parts} ms; out and back +- {self.journey_ms['doubt']['p50']:.2f}"
        if self.lost:
            yield "lost", f"{self.lost}"
        if self.learner_step_ms:
            per_frame, per_action = f"{self.updates_per_frame:.2f}", f"{self.updates_per_action:.2f}"
            yield "learning", f"{self.updates} updates, {per_frame} per frame, {per_action} per action"
        if self.wins or self.losses:
            yield "outcome", f"{self.wins} won, {self.losses} lost"
        if self.recording is not None:
            written, dropped = self.recording["frames"], self.recording["dropped"]
            yield "recording", f"{written} frames in {self.recording['directory']}, {dropped} dropped"
        if self.phase_state is not None:
            yield "state", f"{self.phase_state}, for the next phase"
        returns = [f"{episode.score:g}" for episode in self.episodes[:8]] + ["..."] * (len(self.episodes) > 8)
        yield "episodes", f"{len(self.episodes)}, returns {', '.join(returns)}"

    def _scheduled(self, realtime: dict[str, Any]) -> str:
        priority, core = realtime["priority"], realtime["core"]
        words = ["ordinary priority" if priority is None else f"SCHED_FIFO {priority}"]
        words += ["memory locked"] * realtime["lock"] + ([] if core is None else [f"core {core}"])
        words += [f"awake for the last {realtime['spin_us']:.0f} us of a wait", f"{self.loop_share:.0%} of a core"]
        return ", ".join(words)


def _row(row: int, name: str) -> list[dict[str, Any]]:
    """Return the events that name a row of a trace and give it its place."""
    names = {"thread_name": {"name": name}, "thread_sort_index": {"sort_index": row}}
    return [{"ph": "M", "pid": 0, "tid": row, "name": event, "args": args} for event, args in names.items()]


def _inference(span: Span) -> dict[str, Any]:
    category = "inference" if span.effect is not None else "inference,dropped"
    lasts = {"ts": span.began / 1e3, "dur": (span.ended - span.began) / 1e3}
    args = {"episode": span.episode, "start": span.start}
    return {"name": f"o_{span.start}", "cat": category, "ph": "X", **lasts, "pid": 0, "tid": span.worker, "args": args}


def _application(span: Span, row: int) -> dict[str, Any]:
    assert span.effect is not None and span.applied is not None
    place = {"ts": span.applied / 1e3, "pid": 0, "tid": row}
    args = {"episode": span.episode, "frame": span.effect, "delay": span.effect - span.start}
    if span.lag is not None:
        args["lag"] = span.lag
    return {"name": f"a_{span.start}", "cat": "action", "ph": "i", "s": "t", **place, "args": args}


def _pause(begin: int, end: int, row: int) -> dict[str, Any]:
    place = {"ts": begin / 1e3, "dur": (end - begin) / 1e3, "pid": 0, "tid": row}
    return {"name": "pause", "cat": "pause", "ph": "X", **place}


def distribution(values: Iterable[float]) -> dict[str, float]:
    """Return mean, std, p50, p95, p99 and max; all nan where there is no value."""
    names = ("mean", "std", "p50", "p95", "p99", "max")
    array = np.asarray(list(values), np.float64)
    if array.size == 0:
        return dict.fromkeys(names, float("nan"))
    numbers = array.mean(), array.std(), *np.percentile(array, (50, 95, 99)), array.max()
    return dict(zip(names, map(float, numbers), strict=True))


def _line(d: dict[str, float]) -> str:
    return f"mean {d['mean']:.2f}, p50 {d['p50']:.2f}, p95 {d['p95']:.2f}, p99 {d['p99']:.2f}, max {d['max']:.2f}"


def as_json(value: Any) -> Any:
    """Return plain data with None for nan and the infinities, which are not JSON."""
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
