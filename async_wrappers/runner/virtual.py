"""The virtual clock: one thread, real policies, simulated time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium as gym

from async_wrappers.default_action import make_default_action
from async_wrappers.runner.oracles import refuse_oracles
from async_wrappers.runner.protocols import Decision, as_act
from async_wrappers.simulation import Inference, SimulatedSchedule
from async_wrappers.timing import EpisodeTiming, Span, TimingReport, distribution

__all__ = ["VirtualBackend"]


class VirtualBackend:
    """Plays episodes on a simulated schedule; every inference is really computed, also those that are never applied.

    Args:
        make_env: Makes the environment.
        make_policy: Makes one worker's policy.
        schedule: Who starts when, and what is applied when.
        default_action: As in `RealtimeDelay`.
        eval_mode: What policies are told.
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        make_policy: Callable[[], Any],
        schedule: SimulatedSchedule,
        default_action: Any,
        eval_mode: bool,
    ) -> None:
        """See the class."""
        self._env = make_env()
        refuse_oracles(self._env)
        self._default_action = make_default_action(default_action, self._env)
        self._schedule = schedule
        self._act = [as_act(make_policy()) for _ in range(schedule.workers)]
        self._eval_mode = eval_mode

    def run(self, seed: Callable[[int], int], frames: int | None, episodes: int | None) -> TimingReport:
        """Play so many frames or episodes, and report."""
        log = self._schedule.keep_log()
        counts = self._schedule.counts
        before = (counts.dropped, counts.late)
        played: list[EpisodeTiming] = []
        spans: list[Span] = []
        latencies: list[int] = []
        effects: list[list[tuple[int, int]]] = []  # (start, effect) by episode
        total = 0
        while (episodes is None or len(played) < episodes) and (frames is None or total < frames):
            log.clear()
            number = len(played)
            episode, applied = self._play(number, seed(number), total, None if frames is None else frames - total)
            latencies += [inference.finished - inference.started for inference in log]
            begin, end = (self._schedule.clock.begin(frame) for frame in (total, total + episode.frames))
            spans += [_span(inference, number, begin, end) for inference in log]
            effects.append(applied)
            played.append(episode)
            total += episode.frames
        return self._report(played, spans, latencies, effects, counts.dropped - before[0], counts.late - before[1])

    def _play(
        self, number: int, seed: int, total: int, limit: int | None
    ) -> tuple[EpisodeTiming, list[tuple[int, int]]]:
        """Play one episode, or its first `limit` frames."""
        observation, _ = self._env.reset(seed=seed)
        self._default_action.reset(seed)
        steps = self._schedule.steps(seed)
        computed: dict[tuple[int, int], Any] = {}  # actions by (start, worker)
        effects: list[tuple[int, int]] = []
        last_action: Any = None
        score, frame = 0.0, 0
        while limit is None or frame < limit:
            applied, readers = next(steps)
            for worker in readers:
                decision = Decision(number, frame, total + frame, self._eval_mode)
                computed[frame, worker] = deepcopy(self._act[worker](deepcopy(observation), decision))
            if applied is None:
                action = self._default_action(observation, last_action)
            else:
                action, last_action = computed[applied], deepcopy(computed[applied])
                computed = {key: value for key, value in computed.items() if key[0] > applied[0]}
                effects.append((applied[0], frame))
            observation, reward, terminated, truncated, _ = self._env.step(action)
            score += float(reward)
            frame += 1
            if terminated or truncated:
                break
        return EpisodeTiming(score, frame), effects

    def _report(
        self,
        episodes: list[EpisodeTiming],
        spans: list[Span],
        latencies: list[int],
        effects: list[list[tuple[int, int]]],
        dropped: int,
        late: int,
    ) -> TimingReport:
        clock = self._schedule.clock
        total, fresh = sum(episode.frames for episode in episodes), sum(map(len, effects))
        frame_ms = 1000 / float(clock.fps)
        intervals = [
            (after[1] - before[1]) * frame_ms for applied in effects for before, after in itertools.pairwise(applied)
        ]
        busy = sum(span.ended - span.began for span in spans)
        return TimingReport(
            latency_ms=distribution(latency / 1e6 for latency in latencies),
            interval_ms=distribution(intervals),
            delay_frames=distribution(effect - start for applied in effects for start, effect in applied),
            learner_step_ms=None,
            frames={
                "total": total,
                "fresh": fresh,
                "default": total - fresh,
                "dropped_actions": dropped,
                "late_actions": late,
                "missed_deadlines": 0,
            },
            lateness_ms=distribution([0.0]),
            drift_ms=0.0,
            fps=float(clock.fps),
            workers={
                "count": self._schedule.workers,
                "restarts": 0,
                "busy_share": busy / max(clock.begin(total) * self._schedule.workers, 1),
            },
            episodes=tuple(episodes),
            spans=tuple(spans),
        )


def _span(inference: Inference, episode: int, begin: int, end: int) -> Span:
    """Place an inference on the run's time line; the episode's end cuts it off."""
    ended = min(begin + inference.finished, end)
    return Span(inference.worker, episode, inference.start, min(begin + inference.started, end), ended)
