"""The virtual clock: one thread, real policies, simulated time."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

from async_wrappers.live.actions import RefusedAction, as_action, refusal
from async_wrappers.live.loop import Phase, encounter_of, episode_seed
from async_wrappers.live.oracles import refuse_oracles
from async_wrappers.live.protocols import Decision, as_act
from async_wrappers.live.report.measurements import Record
from async_wrappers.live.report.timing import EpisodeTiming, Span
from async_wrappers.live.run_spec import Job, made_environment
from async_wrappers.schedule.simulated import Inference, SimulatedSchedule
from async_wrappers.wrappers.default_action import make_default_action

__all__ = ["VirtualBackend"]


class VirtualBackend:
    """Plays episodes on a simulated schedule; every inference is really computed, also those that are never applied.

    Args:
        job: What is to be done; its latency model says how long inferences take.

    Raises:
        ValueError: No latency model, or learners.
    """

    def __init__(self, job: Job) -> None:
        """See the class."""
        terms = job.terms
        if terms.latency is None:
            raise ValueError("latency must be given on the virtual clock, as a model or in seconds, got None")
        if job.learners:
            raise ValueError(f"learners={job.learners} need backend='process', got backend='virtual'")
        self._seed = terms.seed
        self._warned = False
        self._schedule = SimulatedSchedule(terms.latency, terms.workers, terms.fps, terms.stagger)
        self._env = made_environment(job.make_env)
        self._action_space = self._env.action_space
        try:
            refuse_oracles(self._env)
            self._default_action = make_default_action(terms.default_action, self._env, terms.line)
            self._act = [as_act(job.make_policy()) for _ in range(terms.workers)]
        except BaseException:
            self._env.close()
            raise

    def play(self, phase: Phase) -> Record:
        """Play a phase."""
        self._log = self._schedule.keep_log()
        counts, clock = self._schedule.counts, self._schedule.clock
        dropped, late = counts.dropped, counts.late
        self._record = record = Record(float(clock.fps), self._schedule.workers, simulated=True)
        if phase.encounter is not None:
            self._env.set_wrapper_attr("encounter", phase.encounter, force=False)
        frames = episodes = 0
        while phase.goes_on(frames, episodes) and not record.hopeless:
            self._log.clear()
            number = phase.first_episode + episodes
            played = self._play_episode(phase, number, frames)
            begin, end = clock.begin(frames), clock.begin(frames + played)
            record.latencies += [inference.finished - inference.started for inference in self._log]
            record.spans += [_span(inference, number, begin, end) for inference in self._log]
            record.end = end
            frames += played
            episodes += 1
        record.lateness = [0] * frames
        record.dropped, record.late = counts.dropped - dropped, counts.late - late
        record.playout = self._schedule.playout or 0
        record.encounter = encounter_of(self._env)
        return record

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _play_episode(self, phase: Phase, number: int, played: int) -> int:
        """Play an episode, or what of it the phase has room for; return its frames."""
        seed = episode_seed(self._seed, phase.number, number)
        observation, _ = self._env.reset(seed=seed)
        self._refused: set[tuple[int, int]] = set()  # (start, worker) of actions outside the action space
        self._default_action.reset(seed)
        steps = self._schedule.steps(seed)
        limit = phase.limit(played)
        computed: dict[tuple[int, int], Any] = {}  # actions by (start, worker)
        effects: list[tuple[int, int]] = []
        last_action: Any = None
        info: dict[str, Any] = {}
        score, frame, over = 0.0, 0, False
        while not (over or frame == limit or self._record.hopeless):
            applied, readers = next(steps)
            for worker in readers:
                decision = Decision(number, frame, phase.frames_before + played + frame, phase.eval_mode)
                computed[frame, worker] = self._infer(worker, observation, decision)
            if applied is None or applied in self._refused:
                action = self._default_action(observation, last_action)
            else:
                action, last_action = computed[applied], deepcopy(computed[applied])
                computed = {key: value for key, value in computed.items() if key[0] > applied[0]}
                effects.append((applied[0], frame))
            observation, reward, terminated, truncated, info = self._env.step(action)
            score += float(reward)
            frame += 1
            over = terminated or truncated or frame == phase.max_episode_frames
        began = self._schedule.clock.begin(played)
        self._record.episodes.append(EpisodeTiming(score, frame, number, began, info.get("won")))
        self._record.effects.append(effects)
        return frame

    def _infer(self, worker: int, observation: Any, decision: Decision) -> Any:
        """Return a worker's action; an answer that is none is refused, and the default action takes its frame."""
        try:
            answer = self._act[worker](deepcopy(observation), decision)
        except Exception as error:
            error.add_note(f"raised in worker {worker}")
            raise
        try:
            action = deepcopy(as_action(self._action_space, answer))
        except RefusedAction as reason:
            self._refused.add((decision.start, worker))
            self._record.fates["refused"] = self._record.fates.get("refused", 0) + 1
            self._refuse(refusal(worker, answer, self._action_space, reason))
            return None
        self._record.accepted += 1
        return action

    def _refuse(self, sentence: str) -> None:
        self._record.refusal = self._record.refusal or sentence
        if not self._warned:
            self._warned = True
            consequence = "the default action takes the place of each that is refused"
            warnings.warn(f"{sentence}; {consequence}", RuntimeWarning, stacklevel=2)


def _span(inference: Inference, episode: int, begin: int, end: int) -> Span:
    """Place an inference on the run's time line; the episode's end cuts it off."""
    ended = min(begin + inference.finished, end)
    return Span(inference.worker, episode, inference.start, min(begin + inference.started, end), ended)
