"""`RealtimeDelay`: the effect of inference latency on an agent, simulated on any Gymnasium environment."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from math import inf
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded

from async_wrappers.checks import flag, reward_of, whole
from async_wrappers.gymnasium_api import OLDER, begun, no_step, refuse_ends
from async_wrappers.needs import refuse
from async_wrappers.observations import observation_check
from async_wrappers.schedule.plain import PlainSchedule, make_schedule
from async_wrappers.wrappers.action_conversion import at_bounds, floats_of
from async_wrappers.wrappers.chunk import Chunks, as_chunk
from async_wrappers.wrappers.copies import (
    OBSERVATION_UNSHARED,
    OUTCOME_UNSHARED,
    own_copy,
    own_info,
    pictures_of,
    references,
)
from async_wrappers.wrappers.default_action import DefaultAction, make_default_action, written_call
from async_wrappers.wrappers.ledger import Ledger
from async_wrappers.wrappers.limits import Limiter, foreseen, limiters_of, reports_sent
from async_wrappers.wrappers.past_frames import FrameSight, FreshFrames, PastFrames, checked_age, refuse_old_features
from async_wrappers.wrappers.recorded import given, recorded

if TYPE_CHECKING:
    from async_wrappers.schedule.served_stream import ServedStream
    from async_wrappers.schedule.simulated import Counts, SimulatedSchedule

_DEFAULTS = {"delay": 0, "noops": 0, "stagger": "tickets", "playout": "p99"}  # of a schedule; else None

# Python 3.11 keeps up to 30 attributes in an object itself, and more in a dictionary, where each costs more time. A
# frame touches most of `RealtimeDelay`'s, so what belongs together is one attribute.


class RealtimeDelay(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Delays actions: the environment does not wait while the policy computes them.

    One ``step`` of this wrapper is one *decision*, which may span several *frames* (steps of the wrapped environment).
    No action waits in it: ``step`` is called with the action when that is due.
    Decision j is computed from the observation at the beginning of frame ``s_j`` and applied on frame
    ``e_j = s_j + delay``; decisions start every ``noops + 1`` frames; every other frame receives the default action.
    Frames before the first action lands run inside the first ``step``. `async_wrappers.schedule.plain` has the rules.

    * The reward of a step is the sum over its frames: an episode's sum is that of the environment.
    * Nothing is stepped after ``terminated`` or ``truncated``. At the end of an episode of T frames the observation
      is the one that the next decision would have read, ``o_min(s_{j+1}, T)``: still a delayed one. A truncated
      transition bootstraps on it.
    * ``info`` and ``render()`` are of the *newest* frame: a policy that takes time cannot know them yet, so one
      that reads ``info`` cheats. ``metadata["render_fps"]`` counts a picture for each decision, where their interval is
      constant. The info that came with the delayed observation is
      ``info["realtime"]["observation_info"]``.
    * Observations are copied, deeply, when the environment shows them: it may reuse its arrays.
    * A ``copy.deepcopy`` of the wrapper, where the environment can be copied, goes on from the same frame by itself,
      with the same actions in flight and the same latencies to come.

    ``info["realtime"]`` after a step:

    ==================== =======================================================================================
    ``delay``            age of the observation behind this step's action, in frames
    ``interval``         frames from this action's effect to the next one's (or to the end of the episode)
    ``default_frames``   frames of this step on which the environment received the default action
    ``frame``            frames stepped so far in this episode
    ``start``            frame of the returned observation: the start of the next decision
    ``applied``          False if the episode ended before this step's action could land (only in a first step)
    ``finished``         first frame that began when this step's inference had ended (the end, if it was not applied)
    ``observation_info`` the environment's info at the frame of the returned observation
    ``sent``             the action that was sent on the frame of this step's effect, where the environment reports
                         another one (``info["sent"]`` of a `LimitAction` or `MachineEnv`); else there is no such entry
    ==================== =======================================================================================

    What was sent is also what ``"repeat"`` and `RampDown` go on from.

    After ``reset`` it holds ``frame``, ``start`` and ``observation_info``.

    With ``default_action=Chunk(length)`` the policy gives the actions of `length` frames at once, from the frame of its
    observation on: frame k receives ``chunk[k - start]`` until the next chunk lands (`async_wrappers.wrappers.chunk`).
    `action_space` is of chunks, and after a step ``info["realtime"]`` also holds ``executed``, bool [length]: which
    entries of this step's chunk are of the frames from its effect to the next one's (or to the end of the episode),
    which is where they were applied. The log-probability of a step is the sum of its executed entries'. ``sent`` is
    then the chunk with the entries that were sent. ``default_frames`` then counts the frames on which `Chunk.after`
    acted, and ``chunk_frames`` those of the going chunk: of this step's frames only that of the effect is in neither.

    With `report_effect` it also holds, after a step, ``effect_observation`` and ``effect_info``: observation and info
    of the frame on which the action landed, and neither where ``applied`` is False. ``next_effect_observation`` is that
    of the frame on which the next decision's action will land; at the end of an episode its last one. The policy could
    not know them when it chose the action, so they are for a teacher or a critic, not for a policy.

    With `fresh_age` it also holds, after ``reset`` too, ``fresh_observation``: that of the frame so many frames before
    the one on which the next decision's action will land (frame 0 where there is none). A fast path that runs when the
    action is due can read it (`async_wrappers.FreshObservation`). ``reset`` then runs the frames up to the first action
    that lands, which else run inside the first ``step``. With `max_features_age` each frame without new features, as
    long as those of the decision before are young enough, is a decision too: it starts from the same observation, and
    after its step ``info["realtime"]["held"]`` is True. At the end of an episode, ``o_min(s_{j+1}, T)`` is that of the
    next decision with features of its own, as without `max_features_age`, even if the next one would have been held.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import RealtimeDelay
        >>> env = RealtimeDelay(gym.make("CartPole-v1"), delay=2, noops=1, default_action="repeat")
        >>> observation, info = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step(1)
        >>> float(reward), info["realtime"]["frame"], info["realtime"]["start"]
        (4.0, 4, 2)

    Instead of the two constants, a latency model gives the schedule of N workers whose inferences take random times
    (`async_wrappers.schedule.simulated`). It is seeded by ``reset(seed=)``; ``counts`` has figures of frames and
    inferences.

        >>> from async_wrappers.latency import LogNormal
        >>> env = RealtimeDelay(gym.make("CartPole-v1"), latency=LogNormal(mean=0.120, cv=0.2), workers=10, fps=60,
        ...                     default_action="repeat")

    Args:
        env: The environment to wrap; it is stepped once per frame.
        delay: Age of the observation behind an action, in frames.
        noops: Frames between two actions, filled by the default action.
        default_action: What frames receive on which no action of the policy lands: ``"noop"``, ``"repeat"``,
            ``"random"``, an action, a `RampDown`, or a function of (newest observation, last agent action or None). It
            is looked up only where an action can be late or missing. A `async_wrappers.Chunk` lets the policy give the
            actions of several frames at once; ``"chunk"`` is one of ``delay + noops + 1`` frames.
        latency: How long an inference takes: a model of `async_wrappers.latency`, or a number of seconds.
        workers: With a latency: number of inferences that run at a time; None for 1.
        fps: With a latency: frames per second; None for the environment's own, which
            `async_wrappers.frame_rate.frame_rate` explains.
        stagger: With a latency: when workers start, a name or an object of `async_wrappers.schedule.stagger`.
        playout: With a latency and ``stagger="tickets"``: frames from an observation to the frame on which its action
            is due; or a quantile of the latency such as ``"p99"``.
        slot: With a latency and ``stagger="tickets"``: least number of frames between two starts; None: as few whole
            frames as the workers sustain; ``"even"``: as few as they sustain, fractions included, evenly spread.
        max_age: With a latency: greatest age in frames that an observation may have when its action is applied. An
            older action is refused (``counts.too_old``), and the frame receives the default action. None for no limit.
        max_features_age: With a fast path: greatest age in frames of the features with which it goes on, on a frame on
            which no new ones are due. Such a frame is a decision of its own then, by the same observation and another
            fresh one (`held` counts them). None: the frame receives the default action.
        schedule: A `PlainSchedule`, a `SimulatedSchedule` or a `ServedStream`, in the place of `delay`, `noops`,
            `latency` and the arguments that need a latency. The wrapper plays its own copy.
        report_effect: Report the observations on which actions land; otherwise they are not even copied.

    Attributes:
        report_effect: As given; it may be changed between two episodes.
        fresh_age: Frames; None at first, for no fresh observations. It may be changed between two episodes.
        max_features_age: As given.
        held: Decisions so far that went on with the features of the one before.
        chunk: The `Chunk` that the default action is; None if it is another one.
        hears_sent: Whether the environment reports what was sent in the place of an action, in units of its own actions
            (`async_wrappers.wrappers.limits.reports_sent`).

    Raises:
        ValueError: Negative or fractional frames, an unknown default action, ``"noop"`` where the environment has
            none, constants and a latency at the same time, an argument that needs a latency without one, no frame rate
            with a latency, a chunk that is shorter than delay + interval, or an action space that has no chunks.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        delay: int = 0,
        noops: int = 0,
        default_action: Any = "noop",
        *,
        latency: Any = None,
        workers: int | None = None,
        fps: Any = None,
        stagger: Any = "tickets",
        playout: int | str = "p99",
        slot: int | str | None = None,
        max_age: int | None = None,
        max_features_age: int | None = None,
        schedule: PlainSchedule | SimulatedSchedule | ServedStream | None = None,
        report_effect: bool = False,
    ) -> None:
        if not isinstance(env, gym.Env):
            raise ValueError(f"env must be a gymnasium.Env, got {env!r}: {OLDER}")
        report_effect = flag("report_effect", report_effect)
        default_action, latency, fps = given(default_action), given(latency), given(fps)
        stagger, schedule = given(stagger), given(schedule)
        if fps is None and latency is not None and schedule is None:
            from async_wrappers.frame_rate import frame_rate  # with a latency alone, as in `make_schedule`

            fps = frame_rate(env)
        timing = {"delay": delay, "noops": noops, "latency": latency, "workers": workers, "fps": fps}
        timing |= {"stagger": stagger, "playout": playout, "slot": slot}
        longest = max_features_age
        if longest is not None:
            longest = whole("max_features_age", longest, 1, unit="frames", or_none=True)
        optional = {"max_age": max_age, "max_features_age": longest, "schedule": schedule}
        optional |= {"report_effect": report_effect or None}
        told = {name: value for name, value in optional.items() if value is not None}
        told = recorded(**timing, default_action=default_action, **told)
        gym.utils.RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **told)
        gym.Wrapper.__init__(self, env)
        space: Any = env.observation_space
        array = (np.dtype(space.dtype), space.shape) if isinstance(space, gym.spaces.Box) else (None, None)
        self._check = observation_check(space)
        self._past = PastFrames(self._check, array, report_effect, longest)
        self.hears_sent = reports_sent(env)
        self._kept: _Kept | None = None  # where a wrapper shows committed actions
        timing["max_age"] = max_age
        asked = {name: value for name, value in timing.items() if not _is(value, _DEFAULTS.get(name))}
        if schedule is None:
            self._schedule = make_schedule(**timing)
        else:
            self._schedule, asked = _copied_alone(schedule, asked), {"schedule": schedule}
        lands, interval = self._schedule.playout, self._schedule.decision_interval
        needed = None if lands is None or interval is None else (lands, interval)
        self.chunk = chunk = as_chunk(default_action, needed)
        refuse_old_features(longest, lands, chunk)
        self._chunks = None if chunk is None else Chunks(chunk, env.action_space)
        line, name = written_call("RealtimeDelay", "env", **asked), "default_action"
        if chunk is not None:
            self.action_space = chunk.policy_space(env.action_space)
            line, name, default_action = chunk.call(line), "after", chunk.after
        acts: DefaultAction | None = None
        # Without a delay each frame receives an action of the agent's, if decisions or chunks cover them all.
        if needed is None or lands or (interval != 1 and chunk is None):
            acts = make_default_action(default_action, env, line, name)
        self._default_action, self._ledger = acts, Ledger(acts, self._chunks)
        self._floats = floats_of(self.action_space)
        self.metadata = pictures_of(env.metadata, interval)
        self._running = self._at_once = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; decisions in flight are discarded and all buffers are empty.

        A seed also restarts the generator of ``default_action="random"``, the latencies and the estimates of the
        stagger strategy; without one they go on.
        """
        self._running = False
        observation, info = begun(self.env, seed=seed, options=options)
        self._past.begin(observation)
        if self._default_action is not None:
            self._default_action.reset(seed)
        self._ledger.begin()
        if self._kept is not None:
            self._kept.clear()
        self._schedule_frames = self._schedule.frames(seed)
        self._start, effect = self._schedule.first()  # of the decision that the agent makes next
        self._delay = effect - self._start
        self._frame, self._over = 0, False
        self._newest: tuple[Any, Any, bool, bool, dict[str, Any]] = (observation, 0.0, False, False, info)
        # The schedule is asked for a frame before the frame is played: `_due` is the start of the action that it
        # receives, None for the default action. A step ends when the next action is due, so this is one frame ahead.
        self._due, read = next(self._schedule_frames)
        if read:
            self._past.take(0, observation, info)
            if self._kept is not None:
                self._kept.note_limits(self._frame)
        # The agent needs the observation of the first decision that takes effect. With random latencies that may not be
        # frame 0: the first inferences may be overtaken by newer ones.
        fresh, ledger = self._past.fresh, self._ledger
        if fresh is None and self._past.longest is not None:
            refuse("nothing fresh", {"max_features_age": self._past.longest})
        until = self._start if fresh is None else effect
        while self._frame < until and not self._over:
            self._step_frame(ledger.go_on(self._frame, self._newest[0]))
        self._running, self._at_once = True, False
        # Constants, an action on each frame, and nothing to report but the observation of a decision's start.
        self._is_plain = (
            type(self._schedule) is PlainSchedule
            and self._schedule.noops == 0
            and not (self._chunks or self._kept or self.hears_sent or self._past.reports)
        )
        never_read = self._frame <= self._start and self._over
        start, observation, info_then = self._now() if never_read else self._past.of(self._start)
        realtime = {"frame": self._frame, "start": start, "observation_info": info_then}
        if fresh is not None:
            realtime["fresh_observation"] = fresh.shown
        return observation, {**self._newest[4], "realtime": realtime}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Run one decision: the frames up to its effect, its action, and the frames until the next one's effect.

        Args:
            action: The action computed from the observation that the last ``reset`` or ``step`` returned.

        Returns:
            The observation that the next decision reads, the reward of this step's frames, terminated, truncated and
            info.

        Raises:
            ResetNeeded: The episode is over, or none has begun.
        """
        if not self._running:
            raise ResetNeeded("RealtimeDelay: call reset() before step(): no episode is running")
        if self._floats is not None:
            action = at_bounds(self._floats, action)
        self._running = False  # an exception in the environment ends the episode
        if self._at_once:
            return self._step_at_once(action)
        first, start, delay = self._frame, self._start, self._delay
        past, ledger = self._past, self._ledger
        # Only the first step has frames before its effect: every later one begins where the step before ended.
        while self._due is None and not self._over:
            self._step_frame(ledger.go_on(self._frame, self._newest[0]))
        applied, effect, held = not self._over, self._frame, past.goes_on
        ended = self._schedule.finished
        finished = effect if ended is None or not applied else ended()
        # Copied before the action is applied, for the environment may reuse its arrays.
        landed: FrameSight | None = None
        if past.report_effect and applied:
            landed = past.landing or self._now()
        if applied:
            known = finished if self._schedule.keeps_playout else effect
            self._step_frame(ledger.land(start, effect, action, self._newest[0], known))
            while self._due is None and not self._over:
                self._step_frame(ledger.go_on(self._frame, self._newest[0]))
        frame, due = self._frame, self._due
        reward, interval, executed, sent = ledger.close(frame)
        # At the end of an episode there is no next decision, but a truncated transition bootstraps on its observation:
        # that of the decision in flight that would be applied first. If none is in flight, it is the last observation.
        if self._over:
            due = self._schedule.in_flight(start, self._frame)
            seen, observation, info_then = self._now() if due is None else past.of(due)
        else:
            assert due is not None
            seen, observation, info_then = past.of(due)
            self._start, self._delay, self._running = due, frame - due, True
            self._at_once = self._is_plain
        _, _, terminated, truncated, info = self._newest
        realtime = {
            "delay": delay,
            "interval": interval,
            "default_frames": frame - first - applied,
            "frame": frame,
            "start": seen,
            "applied": applied,
            "finished": finished,
            "observation_info": info_then,
        }
        if sent is not None:
            realtime["sent"] = own_copy(sent)
        if self.chunk is not None:
            acted = int(executed.sum())
            realtime["default_frames"] = frame - first - acted
            realtime["chunk_frames"] = max(acted - 1, 0)
            realtime["executed"] = executed
        if past.report_effect:
            past.landing = self._now()
            if landed is not None:  # a vector's info has no room for None among numbers
                realtime |= {"effect_observation": landed[1], "effect_info": landed[2]}
            realtime["next_effect_observation"] = past.landing[1]
        if past.fresh is not None:
            realtime["fresh_observation"] = past.fresh.shown
        if past.longest is not None:
            realtime["held"] = held and applied
            past.held += held and applied
        return observation, reward, terminated, truncated, {**info, "realtime": realtime}

    def _step_at_once(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Run the one frame of a step that is plain, and not an episode's first: in a straight line, for speed.

        No default action comes after an episode's first action, so the ledger is not asked, and nor is the schedule:
        the oldest frame that was read is the next decision's.
        """
        self._newest = outcome = self.env.step(action)
        try:
            observation, reward, terminated, truncated, info = outcome
        except (TypeError, ValueError):
            raise no_step(self.env, outcome) from None
        if not (type(terminated) is bool and type(truncated) is bool and type(info) is dict):
            refuse_ends(terminated, truncated, info)
        reward = 0.0 + (reward if type(reward) is float else reward_of(reward))
        effect = self._frame
        self._frame = frame = effect + 1
        past = self._past
        if terminated or truncated:
            past.check(observation)
            self._over = True
            due = self._schedule.in_flight(self._start, frame)
            start, shown, info_then = self._now() if due is None else past.of(due)
        else:
            if type(observation) is np.ndarray and observation.dtype is past.dtype and observation.shape == past.shape:
                # The environment may write into an array that it, or whoever holds its outcome, still has.
                if not (
                    references(observation) == OBSERVATION_UNSHARED
                    and references(outcome) == OUTCOME_UNSHARED
                    and observation.flags.owndata
                ):
                    observation = observation.copy()
                past.read.append((frame, observation, own_info(info) if info else {}))
            else:
                past.take(frame, observation, info)
            start, shown, info_then = past.read.popleft()
            self._start, self._running = start, True
        realtime = {
            "delay": self._delay,
            "interval": 1,
            "default_frames": 0,
            "frame": frame,
            "start": start,
            "applied": True,
            "finished": effect,
            "observation_info": info_then,
        }
        told = {**info, "realtime": realtime} if info else {"realtime": realtime}
        return shown, reward, terminated, truncated, told

    @property
    def report_effect(self) -> bool:
        return self._past.report_effect

    @report_effect.setter
    def report_effect(self, value: bool) -> None:
        self._past.report_effect = value

    @property
    def fresh_age(self) -> int | None:
        return None if self._past.fresh is None else self._past.fresh.age

    @fresh_age.setter
    def fresh_age(self, value: int | None) -> None:
        self._past.fresh = None if value is None else FreshFrames(whole("fresh_age", value, 0, unit="frames"))

    def report_fresh(self, name: str, age: int) -> None:
        """Report fresh observations from the next episode on; see the class.

        Args:
            name: Of the argument that is the age, for messages.
            age: Frames before the one on which an action lands.

        Raises:
            ValueError: The age is no number of frames or more than the delay, actions are chunks, or another age is
                reported already.
        """
        self.fresh_age = checked_age(self, name, age)

    @property
    def max_features_age(self) -> int | None:
        return self._past.longest

    @property
    def held(self) -> int:
        return self._past.held

    @property
    def playout(self) -> int | None:
        """Frames from a decision's start to the frame on which its action is due; None if that is when it is ready."""
        return self._schedule.playout

    @property
    def most_in_flight(self) -> int | None:
        """Decisions under way at most when one more starts; None with a latency that `max_age` does not limit."""
        most, longest = self._schedule.most_in_flight, self._past.longest
        return most if most is None or longest is None else longest

    @property
    def decision_interval(self) -> int | None:
        """Frames from one decision's effect to the next one's; None with a latency, which lets them vary."""
        interval, longest = self._schedule.decision_interval, self._past.longest
        if longest is None or interval is None or self.playout is None:
            return interval
        return 1 if self.playout + interval - 1 <= longest else None

    @property
    def counts(self) -> Counts | None:
        """Frames, actions and inferences so far, with a latency; None with constants."""
        return self._schedule.counts

    def keep_committed(self) -> None:
        """Keep what `committed` needs, from the next reset on."""
        self._kept = _Kept(self._schedule.keep_log(), [] if self._chunks is None else limiters_of(self.env))

    def committed(self, frame: int, length: int) -> list[Any]:
        """Return the actions of `length` frames as far as they are known when `frame`, a returned start, begins.

        With chunks alone, and after `keep_committed`; see `async_wrappers.wrappers.chunk.Chunks.committed`. Where the
        environment limits actions they are those that it will be sent (`async_wrappers.wrappers.limits.foreseen`).
        """
        assert self._chunks is not None and self._kept is not None
        unfinished = self._schedule.unfinished(frame, self._chunks.newest(frame))
        actions = self._chunks.committed(frame, length, unfinished)
        return foreseen(limiters, actions) if (limiters := self._kept.limiters_at(frame)) else actions

    def going_on(self, frame: int, landed: int) -> list[int]:
        """Return the starts of decisions before `frame` whose landing is uncertain when it begins.

        After `keep_committed`. Those that would be too old on the first frame on which they can land are left out.

        Args:
            frame: A returned start.
            landed: Start of the newest action that lands by `frame`; -1 if there is none.
        """
        most = inf if self._schedule.max_age is None else self._schedule.max_age
        return [start for start, lands in self._schedule.unfinished(frame, landed) if lands - start <= most]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy or a pickle: all but the iterator over the schedule's frames."""
        return {name: value for name, value in vars(self).items() if name != "_schedule_frames"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a state, and begin an iterator at its frame: the schedule holds the rest."""
        vars(self).update(state)
        if "_frame" in state:  # it has been reset
            self._schedule_frames = self._schedule.frames_from(self._frame + (not self._over))

    def _step_frame(self, action: Any) -> None:
        """Run one frame; ask the schedule about the next one, and keep its observation if a decision reads it."""
        self._newest = outcome = self.env.step(action)
        try:
            observation, reward, terminated, truncated, info = outcome
        except (TypeError, ValueError):
            raise no_step(self.env, outcome) from None
        # Exact types are compared for speed: this runs on every frame, and a call for a float costs time.
        if not (type(terminated) is bool and type(truncated) is bool and type(info) is dict):
            refuse_ends(terminated, truncated, info)
        self._ledger.reward += reward if type(reward) is float else reward_of(reward)
        if self.hears_sent and "sent" in info and not self._ledger.missed:
            self._ledger.note_sent(self._frame, info["sent"])
        self._frame += 1
        past = self._past
        if past.fresh is not None:
            past.take_fresh(observation)
        if terminated or truncated:
            past.check(observation)
            self._over = True
            return
        self._due, read = next(self._schedule_frames)
        if self._due is None and past.longest is not None:
            self._due = past.due_again(self._frame)
        if read:
            past.take(self._frame, observation, info)
            if self._kept is not None:
                self._kept.note_limits(self._frame)

    def _now(self) -> FrameSight:
        return self._frame, own_copy(self._newest[0]), own_info(self._newest[4])


class _Kept:
    """What is kept for `RealtimeDelay.committed`.

    Args:
        log: Of the episode's inferences, which the schedule writes.
        limiters: Of the environment.
    """

    def __init__(self, log: list[Any], limiters: list[Limiter]) -> None:
        self._log, self._limiters = log, limiters
        self._then: deque[tuple[int, list[Limiter]]] = deque()  # copies as of frames that decisions read, oldest first

    def clear(self) -> None:
        """Begin an episode."""
        self._log.clear()
        self._then.clear()

    def note_limits(self, frame: int) -> None:
        """Keep copies of the limiters as a frame begins that a decision reads."""
        if self._limiters:
            self._then.append((frame, [limiter.ahead() for limiter in self._limiters]))

    def limiters_at(self, frame: int) -> list[Limiter]:
        """Return the limiters as of a frame; at an episode's end that is the newest one, which no decision has read."""
        while self._then and self._then[0][0] < frame:
            self._then.popleft()
        return self._then[0][1] if self._then else self._limiters


def _is(value: Any, default: Any) -> bool:
    """Return whether an argument was left at its default; ``==`` alone would give an array for an array."""
    return value is default or (type(value) is type(default) and value == default)


def _copied_alone(schedule: Any, asked: Mapping[str, Any]) -> Any:
    """Return a copy of a schedule; refuse what is none, and arguments beside it."""
    if asked:
        raise ValueError(
            f"schedule must stand alone, got schedule={schedule!r} beside {', '.join(asked)}: leave one of them out"
        )
    if not hasattr(schedule, "frames_from"):
        raise ValueError(f"schedule must be a PlainSchedule, a SimulatedSchedule or a ServedStream, got {schedule!r}")
    return deepcopy(schedule)
