"""The environment loop: publish the frame, hand out starts, collect actions, choose one, step; on every deadline."""

# The time line of a frame
# ========================
#
# Frame k begins at t_k = t_0 + k / fps, the same instant whatever happened before: a frame that begins late moves no
# later one. So errors do not add up, and after a slow step the loop is on time again as soon as it can be.
#
#   t_k                                                                                          t_k+1
#    |  1 publish   2 collect   3 start   4 choose   5 step            6 wait                      |
#   -+-----o------------o-----------o---------o---------o---------------o------------o------------+----> time
#    |     |            |           |         |         |               |            |            |
#    |    o_k is     actions     workers    one of    o_k+1 is       an action    a worker        |
#    |    shown      that have   read o_k   those     known, but     arrives:     that became     |
#    |               arrived                that      kept back      it is for    free reads      |
#    |                                      are due   until t_k+1    a later      o_k             |
#    |                                                               frame                        |
#
# 1. The observation is published at its deadline, although `step` returned it earlier. Policies would otherwise read
#    the future by as much as the step was quick, and a slow step would look like a long delay.
# 2. What has arrived by now is in time for this frame. On a real clock a decision that reads o_k therefore takes effect
#    on frame k + 1 at the earliest. On the virtual clock, where an inference may take no time, it can be frame k.
# 3. Workers start before the choice, and may start again at any time during the wait, always on the newest frame that
#    is published. Who starts when is the strategy's decision (`schedule/stagger.py`).
# 4. The dispatcher (`schedule/dispatch.py`) chooses among the actions that are due. If there is none, the frame gets
#    the default action. The loop waits for nobody: an environment that does not wait is what it stands for.
#    With chunks the action that lands is the beginning of the frames' actions, until the next one lands.
#    Of a policy with memory the worker has sent features. The loop makes the action of them here, between the choice
#    and the step (`release.py`): only now is it known which decision follows the one applied last, and all that was
#    paid for that one. So memory is of what was applied, and for what is dropped no core is computed.
# 5. The step is made at once. Rewards are summed up until the next decision takes effect, which is when the transition
#    of the one before is complete, and is appended to the journal (`Transitions`).
# 6. The wait ends at the next deadline. Messages and releases before it are handled as they come, because a worker that
#    becomes free half a frame earlier finishes half a frame earlier.
#
# A pause cuts the episode in two for everybody but the environment, which goes on: no worker starts, what is in flight
# is dropped when it ends, a transition ends before the pause, and the frames receive the safe action. Its end is as the
# beginning of an episode: nothing in flight, no last action, and the strategy spreads the workers anew. Frames of a
# pause keep their deadlines. On a real clock no environment is reset during one: a reset may move what is to stand
# still.
#
# A life that is lost in a game that goes on (``info["game_over"]`` False) ends the episode for the learners, and for
# memory and chunks too; for the clock nothing has happened. What was decided on in that life is dropped when it ends.
#
# Between two episodes everything that could disturb a frame is done: garbage is collected, the strategy is prepared
# from the newest response times, inferences of the old episode end ("drain") or go on and are dropped when they end
# ("continue"). Within a frame no garbage is collected: a full collection takes longer than a frame.
#
#
# The virtual clock
# =================
#
# With a `simulation` the same loop plays on time that stands still until it is moved. Three things differ:
#
# * The clock moves from event to event. The dispatcher knows when an inference will have ended as soon as it starts, so
#   it books the end itself, and `_pass_frame` moves time to each of its events in turn. This comes before the step: a
#   simulated step takes no time, and so the last frame of an episode passes like all others.
# * A reset discards what is in flight, and the episode's seed starts latencies and estimates anew. An episode is then
#   a function of its seed, as one of `RealtimeDelay` is, whichever episodes were played before.
# * Nothing is measured before the run, and lateness is zero.
#
#
# The books
# =========
#
#   WorkerPool    every inference once, from its ticket until its action is applied or ruled out: who infers, what was
#                 ordered and when, what the learners will see as its observation, what it came to. Also which workers
#                 are up, which are overdue, and how long the newest responses took
#   Dispatcher    times: which worker is free or idle, when which action is due. It knows actions by (start, worker),
#                 which is the key by which `WorkerPool` keeps them
#   Transitions   the reward since the last decision took effect; everything complete is in the journal
#   Measurements  what happened, for the report
#
# A frame is known by two numbers: `start`, counted from the beginning of its episode, and `number`, counted from the
# beginning of the run. The ring of published frames is indexed by `number`, so that no two episodes share a slot, and
# an inference belongs to the present episode if its number is not below that of the episode's first frame.

from __future__ import annotations

import gc
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.checks import plain_data
from async_wrappers.live.environment import FrameStatus, phase_state_of, refuse_oracles, score_of, set_phase_state
from async_wrappers.live.inference.transport import Ready, Transport, VirtualTransport
from async_wrappers.live.memory.exchange import Controls, Fate, Finished, Ticket
from async_wrappers.live.memory.journal import Journal, Transitions
from async_wrappers.live.release import Release
from async_wrappers.live.report import EpisodeTiming, Measurements, Span
from async_wrappers.live.run_spec import LoopConfig, PhaseSpec
from async_wrappers.live.workers import Inference, WorkerPool
from async_wrappers.schedule.dispatch import Dispatcher, refuse_old_playout
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.simulated import modelled_conditions
from async_wrappers.schedule.stagger import Conditions, keeps_playout
from async_wrappers.wrappers.chunk import Chunks, Landed
from async_wrappers.wrappers.default_action import make_default_action, written_call

__all__ = ["EnvironmentLoop", "episode_seed"]

_LOOK = 20_000_000  # nanoseconds between two looks at whether a pause is over


def episode_seed(seed: int, phase: int, episode: int) -> int:
    """Return the seed that episode number `episode` of a phase is reset with."""
    return int(np.random.SeedSequence((seed, phase, episode)).generate_state(1)[0]) & 0x7FFFFFFF


class _Episode:
    """What an episode has come to so far.

    Args:
        journal: Where its transitions go; None if nobody learns from it.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self.transitions = Transitions(journal)
        self.effects: list[tuple[int, int]] = []  # start and effect of each decision
        self.last_action: Any = None
        self.missed = 0  # frames in a row without an action
        self.paused: int | None = None  # first frame of the pause that goes on
        self.pauses: list[tuple[int, int]] = []  # first frame, and the frame after the last
        self.rewards = self.score = 0.0

    def cut(self, following: Any, frame: int) -> None:
        """End it for the learners, for whom another one begins."""
        self.transitions.end(False, following, frame)
        self.transitions = Transitions(self._journal)

    def end_life(self, following: Any, frame: int) -> None:
        """End it for the learners by the loss of a life, while the game goes on."""
        self.transitions.end(True, following, frame)
        self.transitions = Transitions(self._journal)
        self.last_action, self.missed = None, 0


class EnvironmentLoop:
    """Plays an environment against the monotonic clock.

    Args:
        env: Stepped once per frame.
        transport: Carries frames to workers and actions back.
        config: Workers, frames per second, strategy and so on.
        journal: Where transitions go; None if nobody learns.
        controls: What is shared with the supervisor and the learners; None if there are none.
        stops: Asked on every frame whether to end.
        now: The clock, in nanoseconds; that of the transport.
        warns: Called once, when an answer of the policy's is refused, with a sentence.
        simulation: The transport and clock of a simulated run; None on a real clock. Then no time passes but what
            frames and inferences take, a reset discards what is in flight, and nothing is measured before.
        release: Makes actions of the features that workers send, where the policy has memory; None where they send
            actions.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        transport: Transport,
        config: LoopConfig,
        journal: Journal | None = None,
        controls: Controls | None = None,
        stops: Callable[[], bool] = lambda: False,
        now: Callable[[], int] = time.monotonic_ns,
        warns: Callable[[str], None] | None = None,
        simulation: VirtualTransport | None = None,
        release: Release | None = None,
    ) -> None:
        """See the class."""
        refuse_oracles(env)
        self._simulation, self._release = simulation, release
        self._env, self._transport, self._config = env, transport, config
        self._journal, self._controls, self._stops, self._now = journal, controls, stops, now
        self._clock, self._stagger = FrameClock(config.fps), deepcopy(config.stagger)  # a strategy serves one loop
        ends = None if simulation is None else self._start_simulated
        self._dispatcher = Dispatcher(self._clock, self._stagger, ends, config.max_age)
        self._pool = WorkerPool(transport, config.workers, now, self._refuse)
        self._warns = warns or partial(warnings.warn, category=RuntimeWarning, stacklevel=2)
        self._warned = self._warned_of_age = False
        line = written_call("AsyncRunner", "make_env", "make_policy", workers=config.workers, fps=config.fps)
        name = "default_action" if config.chunk is None else "after_chunk"
        if config.chunk is not None:
            line = line.format("default_action='chunk', {}")
        self._default_action = self._safe_action = make_default_action(config.default_action, env, line, name)
        if config.pause_action is not None:
            self._safe_action = make_default_action(config.pause_action, env, line, "pause_action")
        self._halted = False  # whether it is paused, where there are no controls
        self._chunks = None if config.chunk is None else Chunks(config.chunk, env.action_space)
        self._prefix = config.shown(env.observation_space, env.action_space)
        self._stacks = config.stacks(env.observation_space, env.action_space)
        if journal is not None:
            journal.begin_writing()
        if config.latency is not None:
            self._prepare(modelled_conditions(config.latency, config.workers, self._clock))
            refuse_old_playout(config.max_age, self._stagger.playout)
        self._ended: list[tuple[int, Span, int, int | None]] = []  # inferences: number, span, latency, exchange
        self._is_late = False  # whether a worker has been reported as overdue
        self._number = -1  # of the frame published last
        self._first = 0  # number of the episode's first frame
        self._since: float = math.inf  # what was ordered before that time is not of this phase
        self._last_deadline = 0  # of the frame after the last one played

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase; garbage is collected between its episodes and never inside a frame."""
        self.begun = False  # whether anything has been played
        simulated = self._simulation is not None
        self._record = record = Measurements(float(self._clock.fps), self._config.workers, simulated)
        self._since = math.inf
        before = self._dispatcher.dropped, self._dispatcher.late, self._dispatcher.too_old
        record.lags = None if self._journal is None else []
        self._updates = 0  # before the phase
        self._updates = self._updates_made()
        if phase.phase_state is not None:
            set_phase_state(self._env, phase.phase_state)
        self.begun = True
        frames = episodes = 0
        with nullcontext() if simulated else _no_garbage_collection():
            while phase.goes_on(frames, episodes) and not record.stopped:
                if not simulated:
                    _collect_garbage()
                    self._await_resume()
                    if record.stopped:
                        break
                frames += self._play_episode(phase, phase.first_episode + episodes, frames)
                episodes += 1
        record.dropped += self._dispatcher.dropped - before[0]
        record.late = self._dispatcher.late - before[1]
        record.too_old = self._dispatcher.too_old - before[2]
        record.playout = self._stagger.playout or 0
        record.phase_state = plain_data("the environment's phase_state", phase_state_of(self._env))
        return record

    def pause(self, paused: bool) -> None:
        """Pause from the next frame on, or go on; from any thread."""
        if self._controls is None:
            self._halted = paused
        else:
            self._controls.halted = int(paused)

    @property
    def paused(self) -> bool:
        """Whether it is to be paused."""
        return self._halted if self._controls is None else bool(self._controls.halted)

    def _await_resume(self) -> None:
        """Wait until no pause goes on, so that nothing is reset in one; old inferences end meanwhile."""
        begin = max(self._now(), self._last_deadline)
        while self.paused and not self._record.stopped:
            for event, inference in self._pool.collect(self._now() + _LOOK):
                self._note(event, inference)
            self._record.stopped = self._stops()
        if self._record.episodes:  # else the phase has not begun
            self._record.waited += max(0, self._now() - begin)

    def _updates_made(self) -> int:
        """Return how many updates the learners have made in the phase."""
        return 0 if self._controls is None else int(self._controls.updates.sum()) - self._updates

    def _play_episode(self, phase: PhaseSpec, number: int, played: int) -> int:
        """Play an episode, or what of it the phase has room for; return its frames."""
        seed = episode_seed(self._config.seed, phase.number, number)
        observation, _ = self._env.reset(seed=seed)
        self._default_action.reset(seed)
        if self._safe_action is not self._default_action:
            self._safe_action.reset(seed)
        self._begin_episode(observation, number, seed, played)
        learns = self._journal is not None and not phase.eval_mode
        episode = _Episode(self._journal if learns else None)
        limit = phase.limit(played)
        info: dict[str, Any] = {}
        frame, terminated, truncated = 0, False, False
        while not (terminated or truncated or frame == limit):
            if self._stops() or self._record.hopeless or self._gives_up(episode.missed):
                self._record.stopped = True
                break
            if self._simulation is None:
                self._wait_for(frame)
            else:
                self._record.lateness.append(0)
            lived = phase.frames_before + played + frame
            if phase.on_frame is not None:
                self._tell(phase.on_frame, episode, lived)
            self._pause_or_resume(episode, observation, frame)
            shown = self._read(observation, frame)
            self._shown = deepcopy(shown) if learns else None  # an environment may reuse its array
            self._stack = None if self._stacks is None else shown
            self._publish(shown)
            self._ticket = Ticket(0, self._number, number, frame, lived, phase.eval_mode)
            self._take_turns()
            self._report_overdue()
            self._dispatcher.frame(frame)
            self._listen(0)
            self._start_workers()
            action = self._action_of(episode, observation, frame)
            if self._simulation is not None:
                # A simulated step takes no time, so the frame may pass before it: then its last starts are made, too.
                self._pass_frame(self._simulation, self._begin + self._clock.begin(frame + 1))
            observation, reward, terminated, truncated, info = self._env.step(action)
            if episode.paused is None:
                episode.transitions.reward(float(reward))
            episode.rewards += float(reward)
            episode.score = score_of(info, episode.rewards)
            frame += 1
            truncated = truncated or frame == phase.max_episode_frames
            if terminated and not truncated and not info.get("game_over", True):
                self._end_life(episode, observation, frame)
                observation = self._env.reset()[0]  # the game goes on
                terminated = False
        if terminated or truncated:
            episode.transitions.end(terminated, self._following(observation, frame), frame)
        else:
            episode.transitions.abandon()
        if self._simulation is None:
            self._last_deadline = self._begin + self._clock.begin(frame)
            self._record.end = max(self._last_deadline, self._now())
        else:
            self._last_deadline = self._record.end = self._record.begin + self._clock.begin(played + frame)
            self._discard(self._simulation)
        self._record_inferences()
        self._record.episodes.append(EpisodeTiming(episode.score, frame, number, self._begin, info.get("won")))
        self._record.effects.append(episode.effects)
        if episode.paused is not None:
            episode.pauses.append((episode.paused, frame))
        self._record.pauses.append(episode.pauses)
        return frame

    def _end_life(self, episode: _Episode, observation: Any, frame: int) -> None:
        """End an episode for the learners in a game that goes on, and begin the next one on the same clock.

        What is in flight is dropped when it ends. The game's frames keep their deadlines and their numbers.
        """
        episode.end_life(self._following(observation, frame), frame)
        self._dispatcher.close(frame - 1)
        if self._chunks is not None:
            self._chunks.clear()
        if self._release is not None:
            self._release.begin_episode()
        if episode.paused is None:
            self._dispatcher.reopen(self._now() - self._begin)

    def _tell(self, on_frame: Callable[[FrameStatus], Any], episode: _Episode, lived: int) -> None:
        """Call the phase's `on_frame` as a frame begins, and note what it returns."""
        status = FrameStatus(
            lived,
            episode.score,
            episode.missed,
            self.paused,
            len(episode.effects),
            self._record,
            self._env,
            self._updates_made,
            self.pause,
        )
        if (note := on_frame(status)) is not None:
            self._record.notes.append((lived, plain_data("the note of on_frame", note)))

    def _pause_or_resume(self, episode: _Episode, observation: Any, frame: int) -> None:
        """Begin or end a pause on this frame, if one is asked for; what follows is as the beginning of an episode."""
        if self.paused and episode.paused is None:
            episode.paused = frame
            episode.cut(self._following(observation, frame), frame)
            self._dispatcher.close(frame - 1)
            if self._chunks is not None:
                self._chunks.clear()
            if self._stacks is not None:
                self._stacks.begin()
            if self._release is not None:
                self._release.begin_episode()
        elif episode.paused is not None and not self.paused:
            episode.pauses.append((episode.paused, frame))
            episode.paused, episode.last_action, episode.missed = None, None, 0
            self._dispatcher.reopen(self._now() - self._begin)

    def _action_of(self, episode: _Episode, observation: Any, frame: int) -> Any:
        """Return what the environment receives on this frame: a decision's action, a chunk's, or a default one."""
        due = self._dispatcher.choose()
        decision = None if due is None else self._released(self._pool.take(due), episode.transitions.paid)
        if self._config.max_age is not None:
            self._pool.forget(frame - self._config.max_age)
        if episode.paused is not None:
            return self._safe_action(observation, episode.last_action, frame - episode.paused + 1)
        is_fresh = decision is not None and not decision.refused
        action: Any = None
        if decision is not None and is_fresh:
            start, action = decision.ticket.start, decision.action
            self._record.versions.append(decision.version)
            if self._record.lags is not None and self._controls is not None:
                self._record.lags.append(int(self._controls.updates.sum()) - decision.updates)
            episode.effects.append((start, frame))
            if self._stacks is not None:
                self._stacks.applied(start)
            episode.transitions.apply(decision.observation, action, frame, decision.extras, start)
        if self._chunks is not None:
            if is_fresh:
                self._chunks.forget(frame)
                self._chunks.add(start, frame, action)
            action = self._chunks.at(frame)
            is_fresh = action is not None
        if not is_fresh:
            episode.missed += 1
            return self._default_action(observation, episode.last_action, episode.missed)
        episode.missed = 0
        episode.last_action = deepcopy(action)  # an environment may write into what it receives
        return action

    def _following(self, observation: Any, frame: int) -> Any:
        """Return what the next decision would have read: that of the one in flight due first, else of this frame."""
        if self._simulation is None:
            running = self._pool.of_episode(self._first)
            in_flight = self._dispatcher.in_flight(inference.ticket.start for inference in running)
        else:
            in_flight = self._dispatcher.next_start()
        if in_flight is not None:
            return self._pool.observation(in_flight, self._first)
        return self._read(observation, frame)

    def _gives_up(self, missed: int) -> bool:
        """Return whether the run is to end, as no action has come for so many frames."""
        most = self._config.stop_after_missed
        if most is None or missed < most:
            return False
        self._record.reason = f"no action for {missed} frames in a row (stop_after_missed={most})"
        return True

    def _begin_episode(self, observation: Any, episode: int, seed: int, played: int) -> None:
        """Free the workers that may start, prepare the strategy, and set time zero."""
        if self._simulation is None:
            self._begin_on_the_clock(observation, episode)
        else:
            self._begin_simulated(self._simulation, seed, played)
        self._first = self._number + 1
        self._pool.begin_episode()
        if self._chunks is not None:
            self._chunks.clear()
        if self._stacks is not None:
            self._stacks.begin()
        if self._release is not None:
            self._release.begin_episode()
        if not self._record.episodes:
            self._record.begin = self._since = self._begin
        self._dispatcher.begin(self._pool.free)

    def _begin_on_the_clock(self, observation: Any, episode: int) -> None:
        config, drains = self._config, self._config.between_episodes == "drain"
        if self._number < 0:
            first = observation if self._prefix is None else self._prefix.join(observation, [])
            self._publish(first if self._stacks is None else self._stacks.join(first))
            # in evaluation mode, as exploring may need no inference
            infer = partial(self._pool.start, ticket=Ticket(0, 0, episode, start=0, frame=0, eval_mode=True))
            calibration_time = config.calibration_time if config.latency is None else 0.0
            answer = self._pool.warm_up(infer, config.start_timeout, calibration_time, self._stops)
            if self._release is not None and answer is not None:
                self._release.warm_up(answer)
        if drains:
            for event, running in self._pool.drain(config.start_timeout, self._stops):
                self._note(event, running)
        if config.latency is None:
            self._prepare(self._measured())
            self._warn_of_old_playout()
        self._begin = max(self._now(), self._last_deadline)  # the last frame has its full length
        if self._record.episodes and not drains:  # the next deadline of the same clock
            late = self._begin - self._last_deadline
            self._begin = self._last_deadline + self._clock.begin(self._clock.frame_at(late))

    def _begin_simulated(self, simulation: VirtualTransport, seed: int, played: int) -> None:
        """Begin with all workers idle; the episode's seed starts latencies and estimates anew."""
        if self._number < 0:
            self._pool.collect(0)  # all workers come up at once
        # An episode that an error has ended leaves inferences behind.
        simulation.discard()
        self._pool.running.clear()
        self._ended.clear()
        begin = self._record.begin if self._record.episodes else simulation.now()
        self._begin = begin + self._clock.begin(played)  # of all frames at once, so that no rounding adds up
        self._stagger.restart()
        simulation.restart(seed, self._begin)

    def _measured(self) -> Conditions:
        """Return what the newest response times say."""
        known = sorted(self._pool.responses) or [0]

        def quantile(q: float) -> int:
            return known[min(int(q * len(known)), len(known) - 1)]

        return Conditions(self._config.workers, self._clock, sum(known) // len(known), quantile)

    def _warn_of_old_playout(self) -> None:
        """Say once that a playout which was measured lets no action be young enough; the next reset measures again."""
        if not self._warned_of_age:
            try:
                refuse_old_playout(self._config.max_age, self._stagger.playout)
            except ValueError as error:
                self._warned_of_age = True
                self._warns(str(error))

    def _prepare(self, conditions: Conditions) -> None:
        self._stagger.prepare(conditions)
        if self._controls is not None:
            self._controls.patience = conditions.quantile(0.99)

    def _wait_for(self, frame: int) -> None:
        """Sleep until the frame's deadline; workers that become free before it may start on the frame before."""
        deadline = self._begin + self._clock.begin(frame)
        while (now := self._now()) < deadline:
            event = self._dispatcher.next_event() if frame else None
            self._listen(deadline if event is None else min(deadline, self._begin + event))
            if frame > 0 and self._now() < deadline:
                self._start_workers()
        self._record.lateness.append(now - deadline)

    def _pass_frame(self, simulation: VirtualTransport, deadline: int) -> None:
        """Let simulated time pass up to a deadline, event by event; what ends on it is of the next frame."""
        while (event := self._dispatcher.next_event()) is not None and self._begin + event < deadline:
            self._take_turns()
            simulation.advance(self._begin + event)
            self._listen(0)  # before a worker's next inference takes the place of the one that has ended
            self._start_workers()
        self._take_turns()
        simulation.advance(deadline)

    def _released(self, decision: Inference, paid: float) -> Inference:
        """Make the action of a decision that takes effect now, if the policy has memory and its worker sent features.

        Args:
            decision: What is due; its action, extras and version become those of the release.
            paid: What the decision applied before has been paid.
        """
        if self._release is None or decision.refused:
            return decision
        fate, action, decision.extras, decision.version = self._release.decide(decision.action, decision.ticket, paid)
        decision.action, decision.refused = action, fate != Fate.DONE
        if fate == Fate.DONE:
            self._record.accepted += 1
            return decision
        self._record.fates[fate.name.lower()] += 1
        if fate == Fate.REFUSED:
            self._refuse(action)
        return decision

    def _discard(self, simulation: VirtualTransport) -> None:
        """End the episode for all inferences in flight, which count as far as they have come."""
        for event, inference in self._pool.take_in(simulation.discard()):
            self._note(event, inference, self._last_deadline)

    def _told(self, observation: Any, frame: int) -> Any:
        """Return the observation of a frame that begins, with the actions that are committed by now."""
        assert self._prefix is not None and self._chunks is not None
        self._listen(0)  # what ends as the frame begins is known
        is_certain, playout, coming = keeps_playout(self._stagger), self._stagger.playout or 0, []
        starts = (inference.ticket.start for inference in self._pool.of_episode(self._first))
        unfinished = [(start, max(start + playout if is_certain else 0, frame + 1)) for start in starts]
        for due, start, worker in self._dispatcher.coming(self._now() - self._begin):
            inference = self._pool.waiting(start, worker)
            if due > frame and not is_certain:
                unfinished.append((start, frame + 1))
            elif not inference.refused:
                coming.append(Landed(start, due, frame, inference.action))
        length = self._prefix.length
        return self._prefix.join(observation, self._chunks.committed(frame, length, unfinished, coming))

    def _read(self, observation: Any, frame: int) -> Any:
        """Return what a decision that starts on a frame reads: its observation, with committed actions, in a stack."""
        shown = observation if self._prefix is None else self._told(observation, frame)
        if self._stacks is None:
            return shown
        in_flight = [inference.ticket.start for inference in self._pool.of_episode(self._first)]
        return self._stacks.join(shown, [*in_flight, *self._pool.waiting_starts])

    def _publish(self, observation: Any) -> None:
        self._number += 1
        self._transport.publish(self._number, observation)

    def _start_workers(self) -> None:
        """Let the workers that may start infer the frame published last."""
        workers = self._dispatcher.starts(self._now() - self._begin)
        if self._stacks is not None and workers:
            self._stacks.started(self._ticket.start, self._stack)
        if self._simulation is not None:
            self._listen(0)  # the dispatcher has started them by `_start_simulated`, and some may have ended
            return
        for worker in workers:
            self._pool.start(worker, self._ticket, self._shown)

    def _start_simulated(self, worker: int, frame: int, now: int) -> int:
        """Let a worker start, and return when its inference will have ended: a simulation knows."""
        assert self._simulation is not None
        self._pool.start(worker, self._ticket, self._shown)
        return self._simulation.end_of(worker) - self._begin

    def _report_overdue(self) -> None:
        """Let the supervisor know, on a real clock, of inferences that go on for far too long."""
        if self._controls is None or self._simulation is not None:
            return
        late = self._pool.overdue(*self._config.overdue)
        if late or self._is_late:
            self._controls.overdue[:] = 0  # one that has ended after all is let live
        for worker in late:
            self._controls.overdue[worker] = 1 + self._controls.incarnations[worker]
        self._is_late = bool(late)

    def _take_turns(self) -> None:
        """Tell learners how many turns are granted, and the strategy how many they have taken."""
        if self._controls is not None and (granted := self._stagger.granted) is not None:
            self._controls.granted = granted
            self._stagger.learned(int(self._controls.turns.min()))

    def _listen(self, until: int) -> None:
        """Take in what has happened; wait for it until a monotonic time."""
        self._take_turns()
        if self._simulation is not None and not self._simulation.has_news():
            return
        for event, inference in self._pool.collect(until):
            self._note(event, inference)
            if isinstance(event, Ready):
                self._dispatcher.free(event.worker, self._now() - self._begin)
            else:
                self._take_in(event, inference)

    def _note(self, event: Ready | Finished, inference: Inference | None, cut: int | None = None) -> None:
        """Record an inference of this phase; at most up to `cut`, where a reset has ended it."""
        if isinstance(event, Ready) or inference is None or inference.sent < self._since:
            return
        simulated = self._simulation is not None
        if event.fate == Fate.DONE:
            self._record.accepted += self._release is None  # features are not yet an action
        else:
            self._record.fates[event.fate.name.lower()] += 1
        if event.fate == Fate.DONE or simulated:
            ticket, latency = inference.ticket, event.ended - event.began
            ended = event.ended if cut is None else min(event.ended, cut)
            span = Span(event.worker, ticket.episode, ticket.start, event.began, ended)
            exchange = None if simulated else self._now() - inference.sent - latency
            self._ended.append((inference.number, span, latency, exchange))

    def _record_inferences(self) -> None:
        """Record the inferences that have ended, between two episodes.

        Simulated ones in the order in which they began, as `SimulatedSchedule` logs them.
        """
        if self._simulation is not None:
            self._ended.sort(key=lambda entry: entry[0])
        for _, span, latency, exchange in self._ended:
            self._record.spans.append(span)
            self._record.latencies.append(latency)
            if exchange is not None:
                self._record.exchanges.append(exchange)
        self._ended.clear()

    def _refuse(self, sentence: str | None) -> None:
        """Take note that an answer of the policy's is no action, and say so the first time."""
        sentence = sentence or "an answer of the policy's is no action of the environment's"
        self._record.refusal = self._record.refusal or sentence
        if not self._warned:
            self._warned = True
            self._warns(f"{sentence}; the default action takes the place of each that is refused")

    def _take_in(self, event: Finished, inference: Inference | None) -> None:
        """Let the dispatcher know: of an action, or that there will be none, and of the worker."""
        if event.fate == Fate.LOST:
            self._dispatcher.gone(event.worker)
        if inference is None:
            return
        start, current, done = inference.ticket.start, self._is_current(inference), event.fate == Fate.DONE
        if self._simulation is not None:
            self._pool.wait(inference, event)  # the dispatcher has known when it would end
            return
        if current and done:
            self._pool.wait(inference, event)
            self._dispatcher.finished(event.worker, start, event.began - self._begin, event.ended - self._begin)
            return
        if current:
            self._dispatcher.lost(start)
        elif done and inference.sent >= self._since:
            self._record.dropped += 1
        if event.fate != Fate.LOST:
            self._dispatcher.free(event.worker, self._now() - self._begin)

    def _is_current(self, inference: Inference) -> bool:
        """Return whether an inference was begun in the present episode."""
        return inference.ticket.number >= self._first


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect no garbage but by `_collect_garbage`: a collection would hold up a frame."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if collects:
            gc.enable()


def _collect_garbage() -> None:
    gc.collect()
    gc.freeze()  # what has lived until now is never looked at again by a collection
