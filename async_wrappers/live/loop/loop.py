"""The environment loop: show the frame, hand out starts, collect actions, choose one, step; on every deadline."""

# The time line of a frame
# ========================
#
# Frame k begins at t_k = t_0 + k / fps, which depends on no other frame: a frame that begins late moves no
# later one. So errors do not add up, and after a slow step the loop is on time again as soon as it can be.
# A machine's frames are not made up for: one that begins more than half a frame late moves the later ones
# (`schedule/frames.py`).
#
#   t_k                                                                                          t_k+1
#    |  1 show      2 collect   3 start   4 choose   5 step            6 wait                      |
#   -+-----o------------o-----------o---------o---------o---------------o------------o------------+----> time
#    |     |            |           |         |         |               |            |            |
#    |    o_k is     actions     workers    one of    o_k+1 is       an action    a worker        |
#    |    shown      that have   read o_k   those     known, but     arrives:     that became     |
#    |               arrived                that      kept back      it is for    free reads      |
#    |                                      are due   until t_k+1    a later      o_k             |
#    |                                                               frame                        |
#
# 1. The observation is shown at its deadline, although `step` returned it earlier. Policies would otherwise read
#    the future by as much as the step was quick, and a slow step would look like a long delay. That is right for a
#    simulator, whose step is the frame. A machine's frame takes its time: the action is sent in 5, and the reading is
#    taken at t_k+1, just before it is shown (`machine.py`), so that it is fresh when inference begins.
# 2. Actions that have arrived by now are in time for this frame. On a real clock a decision that reads o_k
#    therefore takes effect on frame k + 1 at the earliest. On the virtual clock, where an inference may take no
#    time, it can be frame k; where the loop itself decides, between 3 and 4 (`in_loop.py`), it is.
# 3. Workers start before the choice, and may start again at any time during the wait, always on the newest frame that
#    is shown. Who starts when is the strategy's decision (`schedule/stagger.py`).
# 4. The dispatcher (`schedule/dispatch.py`) chooses among the actions that are due. If there is none, the frame gets
#    the default action. The loop waits for no worker, as the environment that it models does not wait.
#    With chunks the action that lands is the beginning of the frames' actions, until the next one lands.
#    Of a policy with memory the worker has sent features. The loop makes the action of them here, between the choice
#    and the step (`release.py`): only now is it known which decision follows the one applied last, and all
#    rewards of that one. So memory follows the applied actions, and no core is computed for a dropped one.
# 5. The step is made at once (of a machine, its first half). Rewards are summed up until the next decision takes
#    effect, which is when the transition of the one before is complete: the ledger closes it, and it is appended to the
#    journal.
# 6. The wait ends at the next deadline. Messages and releases before it are handled as they come, because a worker that
#    becomes free half a frame earlier finishes half a frame earlier.
#
# A pause cuts the episode in two, and only the environment goes on: no worker starts, inferences in flight are dropped
# when they end, a transition ends before the pause, and the frames receive the safe action. After it all is as in the
# beginning of an episode: nothing in flight, no last action, and the strategy spreads the workers anew. Frames of a
# pause keep their deadlines. On a real clock no environment is reset during one: a reset may move a robot that is to
# stand still.
#
# A life that is lost in a game that goes on (``info["game_over"]`` False) ends the episode for the learners, and for
# memory and chunks too; for the clock nothing has happened. Decisions of that life are dropped when they end.
#
# Between two episodes everything that could disturb a frame is done: garbage is collected, the strategy is prepared
# from the newest response times, inferences of the old episode end ("drain") or go on and are dropped when they end
# ("continue"). Within a frame no garbage is collected: a full collection takes longer than a frame.
#
# All of this is so on either clock (`clocks.py`): on the virtual one time is moved from event to event, between the
# choice and the step, and steps and waits take none.
#
#
# The books
# =========
#
#   Clock         who infers what, which action is due, and when (`clocks.py` has its books)
#   Ledger        which action each frame receives, and what the decision applied last has got (`wrappers/ledger.py`);
#                 everything complete is in the journal
#   Measurements  events and durations, for the report

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.checks import plain_data, reward_of
from async_wrappers.gymnasium_api import begun
from async_wrappers.live.inference.transport import Transport
from async_wrappers.live.loop.clocks import Clock, RealClock
from async_wrappers.live.loop.release import Release, refuse_to_hold
from async_wrappers.live.loop.safety import Guard, deadman_of, guard_of
from async_wrappers.live.loop.workers import Action, Features, Inference, Refusal
from async_wrappers.live.memory.exchange import Controls, Ticket
from async_wrappers.live.memory.glance import DEFAULT, PAUSED, Glance
from async_wrappers.live.memory.journal import Journal
from async_wrappers.live.recording.frame_rows import Recorder
from async_wrappers.live.report.report import EpisodeTiming, Measurements
from async_wrappers.live.report.sensor_readings import SensorReadings, note_readings
from async_wrappers.live.run_spec import LoopConfig, PhaseSpec
from async_wrappers.live.world.environment import (
    FrameStatus,
    phase_state_of,
    refuse_oracles,
    refuse_other_rate,
    score_of,
    set_phase_state,
    timed_sensors_of,
)
from async_wrappers.live.world.machine import Halves, Machine, MachineEnv, as_environment, halves_of
from async_wrappers.observations import observation_check
from async_wrappers.policy import Decision
from async_wrappers.wrapper_statistics import frozen, statistics_of
from async_wrappers.wrappers.chunk import Chunks, Landed
from async_wrappers.wrappers.default_action import holding_machine, make_default_action, written_call
from async_wrappers.wrappers.ledger import Ledger
from async_wrappers.wrappers.limits import foreseen, limiters_of


def episode_seed(seed: int, phase: int, episode: int) -> int:
    """Return the seed that episode number `episode` of a phase is reset with."""
    return int(np.random.SeedSequence((seed, phase, episode)).generate_state(1)[0]) & 0x7FFFFFFF


_SentBefore = tuple[Any, Any, int]


class _Episode:
    """Statistics and running decisions of an episode.

    Args:
        journal: Receives its transitions; None without learners.
        ledger: Of the loop, which has begun an episode.
        record: Of the phase.
        number: Of the episode.
        lived: Frames before it, as policies count them.
    """

    def __init__(self, journal: Journal | None, ledger: Ledger, record: Measurements, number: int, lived: int) -> None:
        self.journal, self.ledger, self.number = journal, ledger, number
        self.decision: tuple[int, int, int] | None = None  # start, delay and lag of the newest decision applied
        self.features: Inference | None = None  # of the newest decision applied, where a fast path may go on with them
        self.default_action: Any = None  # received on the newest frame without an action
        self.paused: int | None = None  # first frame of the pause that goes on
        self.pauses: list[tuple[int, int]] = []  # first frame, and the frame after the last
        self.effects = record.effects_of(number, lived, self.pauses)  # start and effect of each decision
        self.rewards, self.info = 0.0, dict[str, Any]()  # the latter of the newest step

    @property
    def score(self) -> float:
        """The return so far, as the environment reports it."""
        return score_of(self.info, self.rewards)

    @property
    def sent_before(self) -> _SentBefore:
        """What safe actions go on from: last action, last default action, frames in a row without an action."""
        return self.ledger.last_action, self.default_action, self.ledger.missed

    @sent_before.setter
    def sent_before(self, known: _SentBefore) -> None:
        self.ledger.last_action, self.default_action, self.ledger.missed = known

    @property
    def behind(self) -> tuple[int, int, int]:
        """Start, delay and lag of the decision behind the newest frame's action, as `Glance` has them."""
        if self.paused is not None:
            return PAUSED, -1, -1
        return (DEFAULT, -1, -1) if self.ledger.missed or self.decision is None else self.decision

    def land(self, inference: Inference, made: Action, observation: Any, newest: Any, frame: int) -> Any:
        """Let a decision take effect, which completes the one before; return the frame's action.

        Args:
            inference: Behind it.
            made: Its action.
            observation: Of the frame.
            newest: What a critic of effects reads.
            frame: On which it takes effect.
        """
        if self.journal is not None:
            self.journal.apply(inference.observation, made.action, made.extras, newest)
        if self.ledger.effect is not None:
            got = self.ledger.close(frame)
            if self.journal is not None:
                self.journal.close(*got)
        return self.ledger.land(inference.ticket.decision.start, frame, made.action, observation)

    def end(self, terminal: bool, following: Any, newest: Any, frame: int) -> None:
        """End it for the learners, for whom the next decision begins another one.

        Args:
            terminal: Whether it has terminated; else they bootstrap on `following`.
            following: What the next decision would have read.
            newest: What a critic of effects reads.
            frame: The frame after its last.
        """
        if self.journal is not None and self.ledger.effect is not None:
            self.journal.end(*self.ledger.close(frame), terminal=terminal, final=following, effect=newest)
        self.ledger.forget_decision()
        self.features = None


class EnvironmentLoop:
    """Plays an environment against a clock.

    Args:
        env: The environment, stepped once per frame, or a `Machine`, sent to and read once per frame.
        transport: Carries frames to workers and actions back.
        config: Workers, frames per second, strategy and so on.
        journal: Receives transitions; None without learners.
        controls: Numbers shared with the supervisor and the learners; None if there are none.
        stops: Asked on every frame whether to end.
        now: The time, in nanoseconds; that of the transport.
        warns: Called once, when an answer of the policy's is refused, with a sentence.
        release: Makes actions of the features that workers send, where the policy has memory; None where they send
            actions.
        recorder: Records each frame; None for no recording.
        clock: The kind of clock, `RealClock` or `VirtualClock`; the latter's transport is a `VirtualTransport`.
        glance: Receives each frame and inference of a phase that is shown; None where nobody can look on.

    Attributes:
        clock: The clock.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any] | Machine,
        transport: Transport,
        config: LoopConfig,
        journal: Journal | None = None,
        controls: Controls | None = None,
        stops: Callable[[], bool] = lambda: False,
        now: Callable[[], int] = time.monotonic_ns,
        warns: Callable[[str], None] | None = None,
        release: Release | None = None,
        recorder: Recorder | None = None,
        clock: type[Clock] = RealClock,
        glance: Glance | None = None,
    ) -> None:
        env = as_environment(env, clock.simulated)
        refuse_oracles(env)
        self._env, self._config, self._release = env, config, release
        refuse_to_hold(config.max_features_age, release)
        self._journal, self._controls, self._glance = journal, controls, glance
        self._asked_to_stop = False
        self._stops: Callable[[], bool] = lambda: self._asked_to_stop or stops()
        self._recorder = recorder
        line = written_call("AsyncRunner", "make_env", "make_policy", workers=config.processes, fps=config.fps)
        name, safe_line = "default_action", line
        if config.chunk is not None:
            line, name = config.chunk.call(line), "after"
        judged = config.limits is not None
        self._default_action = self._safe_action = make_default_action(config.default_action, env, line, name, judged)
        if config.pause_action is not None:
            self._safe_action = make_default_action(config.pause_action, env, safe_line, "pause_action", judged)
        self._holding = holding_machine(env)
        self._halted = False  # whether it is paused, where there are no controls
        self._let_go = False  # whether it was paused as the deadman was let go
        self._chunks = None if config.chunk is None else Chunks(config.chunk, env.action_space)
        self._ledger = Ledger(self._default_action, self._chunks)
        self._prefix = config.shown(env.observation_space, env.action_space)
        self._stacks = config.stacks(env.observation_space, env.action_space)
        if journal is not None:
            journal.begin_writing()
        warns = warns or partial(warnings.warn, category=RuntimeWarning, stacklevel=2)
        self._halves: Halves | Guard = halves_of(env)
        self._guard = guard_of(config, env, self._halves, warns, lambda: self.clock.begin_send())
        self._deadman = deadman_of(config, now, warns)
        self._limiters = limiters_of(env)
        self._check = observation_check(env.observation_space)
        self._sensors, self._is_stamped = timed_sensors_of(env), isinstance(env, MachineEnv)
        if self._sensors and not self._is_stamped:
            refuse_other_rate(env, config.fps)
        self._frame_ns = 1e9 / float(config.fps)
        self._ages: list[float] = []  # of the newest observation, in seconds, by sensor
        if self._guard is not None:
            self._halves = self._guard
            self._limiters[:0] = self._guard.limiters
        self._older = release if release is not None and release.reads_older else None
        terms = {"splits": release is not None, "spaced": self._halves.reads_late}
        started = None if self._stacks is None else self._note_start
        self.clock = clock(transport, config, controls, self._stops, now, warns, started, **terms)

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase; garbage is collected between its episodes and never inside a frame.

        An error brings a machine to rest.
        """
        try:
            return self._play(phase)
        except BaseException:
            self._halves.abandon()
            raise
        finally:
            self._asked_to_stop = False

    def _play(self, phase: PhaseSpec) -> Measurements:
        self.begun = False  # whether anything has been played
        clock, self._record = self.clock, (record := self.clock.begin_phase())
        record.lags = None if self._journal is None else record.numbers()
        record.held = None if self._config.max_features_age is None else 0
        record.chunk = None if self._chunks is None else 0
        record.sensors = {name: SensorReadings(name, of, record.numbers()) for name, of in self._sensors.items()}
        clock.pool.glance = self._glance if phase.shown_in is not None else None
        self._updates = 0  # before the phase
        self._updates = self._updates_made()
        if phase.phase_state is not None:
            set_phase_state(self._env, phase.phase_state)
        if self._guard is not None:
            self._guard.begin_run()
        self.begun = True
        frames = episodes = 0
        with frozen(self._env) if phase.eval_mode else nullcontext(), clock.undisturbed():
            while phase.goes_on(frames, episodes) and not record.stopped:
                clock.rest(self._must_wait)
                if record.stopped:
                    break
                frames += self._play_episode(phase, phase.first_episode + episodes, frames)
                episodes += 1
        clock.end_phase()
        record.phase_state = plain_data("the environment's phase_state", phase_state_of(self._env))
        record.statistics = statistics_of(self._env)
        return record

    def stop(self, stopped: bool = True) -> None:
        """End the phase that goes on before its next frame; from any thread. Or forget that it was asked to."""
        self._asked_to_stop = stopped

    def abandon(self) -> None:
        """Bring a machine to rest after an error elsewhere, between two phases."""
        self._halves.abandon()

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

    def _watch(self) -> bool:
        """Return whether it is to be paused; a deadman that is let go pauses it."""
        if self._deadman is not None and not self.paused:
            self._let_go = not self._deadman.held()
            if self._let_go:
                self._record.released += 1
                self.pause(True)
        return self.paused

    def _must_wait(self) -> bool:
        """Return whether the next episode has to wait, as a pause goes on."""
        paused = self._watch()
        if self._deadman is not None:
            self._deadman.remind(paused and self._let_go)
        return paused

    def _updates_made(self) -> int:
        """Return how many updates the learners have made in the phase."""
        return 0 if self._controls is None else int(self._controls.updates.sum()) - self._updates

    def _play_episode(self, phase: PhaseSpec, number: int, played: int) -> int:
        """Play an episode, or as much of it as fits into the phase; return its number of frames."""
        seed = episode_seed(self._config.seed, phase.number, number)
        observation, info = begun(self._env, seed=seed)
        self._check(observation)
        if self._sensors:
            self._note_ages(info, 0, begins=True)
        self._begin_episode(observation, number, seed, played)
        clock, halves, learns = self.clock, self._halves, self._journal is not None and not phase.eval_mode
        before = phase.frames_before + played
        episode = _Episode(self._journal if learns else None, self._ledger, self._record, number, before)
        if self._recorder is not None:
            self._recorder.begin_episode(phase.number, number)
        limit = phase.limit(played)
        info = {}
        frame, terminated, truncated = 0, False, False
        while not (terminated or truncated or frame == limit):
            hopeless = self._record.fates.get("refused") and self._record.hopeless
            if self._stops() or hopeless or self._gives_up(self._ledger.missed):
                self._record.stopped = True
                break
            if not (frame and halves.reads_late):
                clock.wait_for(frame)
            lived = before + frame
            if phase.on_frame is not None:
                self._tell(phase.on_frame, episode, lived)
            self._pause_or_resume(episode, observation, frame)
            shown = self._read(observation, frame)
            self._frame, self._stack = frame, shown
            ticket = Ticket(0, clock.show(shown), Decision(number, frame, lived, phase.eval_mode))
            clock.begin_frame(ticket, deepcopy(shown) if learns else None)  # an environment may reuse its array
            if self._deadman is not None and episode.paused is None and clock.is_held_up() and self._watch():
                self._pause(episode, observation, frame, frame)  # it was let go while the loop was held up
            sent_before = episode.sent_before
            action = self._action_of(episode, observation, frame)
            clock.pass_frame(frame)
            if halves.reads_late:
                clock.wait_to_send(frame)
            stopped = self._stopped(episode, sent_before, observation, frame)
            sent = self._send(halves.send, action if stopped is None else stopped)
            if sent is None:
                sent = stopped
            if sent is not None:
                self._note_sent(episode, sent, frame)
            self._record_frame(episode, observation, action, sent, frame)
            if halves.reads_late:
                clock.wait_for(frame + 1)
            observation, reward, terminated, truncated, info = halves.observe()
            reward = reward if type(reward) is float else reward_of(reward)
            self._check(observation)
            if episode.paused is None:
                self._ledger.reward += reward
            episode.rewards += reward
            episode.info = info
            if (glance := clock.pool.glance) is not None:
                shows = phase.number, number, frame, clock.deadline(frame), clock.lateness
                glance.frame(*shows, *episode.behind, float(episode.score))
            frame += 1
            if self._sensors:
                self._note_ages(info, frame)
            truncated = truncated or frame == phase.max_episode_frames
            if self._recorder is not None:
                self._recorder.pay(reward, terminated, truncated)
            if terminated and not truncated and not info.get("game_over", True):
                self._end_life(episode, observation, frame)
                if self._recorder is not None:
                    self._recorder.end_episode(observation, frame, self._ages)
                observation, next_life = self._env.reset()  # the game goes on
                self._check(observation)
                if self._sensors:
                    self._note_ages(next_life, frame, begins=True)
                terminated = False
        if terminated or truncated:
            episode.end(terminated, self._following(observation, frame), self._newest(observation, frame), frame)
        elif episode.journal is not None:
            episode.journal.abandon()
        self._end_episode(episode, observation, frame, played, info)
        return frame

    def _end_episode(
        self, episode: _Episode, observation: Any, frame: int, played: int, info: Mapping[str, Any]
    ) -> None:
        """Book an episode that has ended, or that the phase's end has cut, and leave a machine with the safe action."""
        if self._guard is not None:
            self._record.limited, self._record.unsent = self._guard.limited, [*self._guard.unsent]
        if self._halves.reads_late:
            # Nobody speaks to a machine between two episodes, so the last that it hears is no policy's.
            leave = self._halves.send if self._guard is None else self._guard.leave
            action = self._safe_action_of(episode, observation, frame)
            self.clock.wait_to_send(frame)
            self._send(leave, action)
        if self._recorder is not None:
            self._recorder.end_episode(observation, frame, self._ages)
        self.clock.end_episode(frame, played)
        moved = tuple(self.clock.moved)
        began = self.clock.begin - (moved[-1][1] if moved else 0)
        won = info.get("won")
        won = None if won is None else bool(won)
        timing = EpisodeTiming(episode.score, frame, episode.number, began, won, moved)
        self._record.episodes.append(timing)
        self._record.effects.append(episode.effects)
        if episode.paused is not None:
            episode.pauses.append((episode.paused, frame))
        self._record.pauses.append(episode.pauses)

    def _stopped(self, episode: _Episode, before: _SentBefore, observation: Any, frame: int) -> Any:
        """Return what is sent in the place of the frame's action, if the deadman was let go since it was chosen.

        It is asked if the loop has been held up. As where limits change what is sent, the frame keeps its action; the
        pause begins on the next one. `before` is the episode's `sent_before` from before the choice.
        """
        if self._deadman is None or episode.paused is not None or not self.clock.is_held_up() or not self._watch():
            return None
        since, episode.sent_before = episode.sent_before, before
        action = deepcopy(self._safe_action_of(episode, observation, frame))
        episode.sent_before = since
        return action

    def _send(self, send: Callable[[Any], Any], action: Any) -> Any:
        """Send an action; return what was sent if it differs, else None."""
        if not self._halves.reads_late:
            return send(action)
        self.clock.begin_send()  # limits ask again: what has held the loop up until they are reckoned counts
        sent = send(action)
        self.clock.end_send()
        return sent

    def _note_sent(self, episode: _Episode, sent: Any, frame: int) -> None:
        """Note that the frame's action is not the one that was to be sent."""
        if episode.paused is not None:
            return
        if self._ledger.missed:
            episode.default_action = deepcopy(sent)
        elif self._config.learns_from == "sent":
            self._ledger.note_sent(frame, sent)
            if self._release is not None:
                self._release.sent(sent, None if self._chunks is None else frame - self._ledger.start)
        else:
            self._ledger.last_action = deepcopy(sent)

    def _end_life(self, episode: _Episode, observation: Any, frame: int) -> None:
        """End an episode for the learners in a game that goes on, and begin the next one on the same clock.

        Inferences in flight are dropped when they end. The game's frames keep their deadlines and their numbers.
        """
        episode.end(True, self._following(observation, frame), self._newest(observation, frame), frame)
        self._ledger.forget_last_action()
        self.clock.close(frame - 1)
        if self._stacks is not None:
            self._stacks.begin()
        if self._release is not None:
            self._release.begin_episode()
        if episode.paused is None:
            self.clock.reopen()

    def _record_frame(self, episode: _Episode, observation: Any, action: Any, sent: Any, frame: int) -> None:
        """Record what is seen and sent on a frame, before the environment may write into either.

        `sent` is None if it is the action itself.
        """
        if self._recorder is None:
            return
        paused = episode.paused is not None
        self._recorder.act(
            observation,
            action,
            action if sent is None else sent,
            frame=frame,
            deadline=self.clock.deadline(frame),
            lateness=self.clock.lateness,
            decision=None if paused or self._ledger.missed else episode.decision,
            paused=paused,
            limited=self._guard is not None and self._guard.changed,
            ages=self._ages,
        )

    def _note_ages(self, info: Mapping[str, Any], frame: int, begins: bool = False) -> None:
        """Note how old each sensor's reading is as a frame begins, an episode's first one or another."""
        times = frame * self._frame_ns, self._frame_ns, begins, self._is_stamped
        self._ages = note_readings(self._record.sensors, info, *times)

    def _tell(self, on_frame: Callable[[FrameStatus], Any], episode: _Episode, lived: int) -> None:
        """Call the phase's `on_frame` as a frame begins, and note its result."""
        status = FrameStatus(
            lived,
            episode.score,
            self._ledger.missed,
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
        """Begin or end a pause on this frame, if asked; after a pause all is as in the beginning of an episode."""
        paused = self._watch()
        if paused and episode.paused is None:
            self._pause(episode, observation, frame, frame - 1)
        elif episode.paused is not None and not paused:
            if self._holding is not None:  # until the next action, where the pause has held it
                self._holding.held = deepcopy(self._safe_action_of(episode, observation, frame))
            episode.pauses.append((episode.paused, frame))
            episode.paused = None
            self._ledger.forget_last_action()
            self.clock.reopen()

    def _pause(self, episode: _Episode, observation: Any, frame: int, after: int) -> None:
        """Begin a pause on this frame; no action that started on frame `after` or before is applied."""
        episode.paused = frame
        episode.end(False, self._following(observation, frame), self._newest(observation, frame), frame)
        self.clock.close(after)
        if self._stacks is not None:
            self._stacks.begin()
        if self._release is not None:
            self._release.begin_episode()

    def _action_of(self, episode: _Episode, observation: Any, frame: int) -> Any:
        """Return the environment's action on this frame: a decision's, a chunk's, or the default action."""
        inference, newest, ledger = self.clock.choose(frame), self._newest(observation, frame), self._ledger
        made = None if inference is None else self._action_made(inference, ledger.reward, newest)
        if episode.paused is not None:
            return self._safe_action_of(episode, observation, frame)
        held = None if made is not None else self._held(episode, frame)
        if held is not None:
            inference, made = held, self._action_made(held, ledger.reward, newest)
        lands = inference is not None and made is not None
        if inference is not None and made is not None:
            lag = -1
            if self._record.lags is not None and self._controls is not None:
                lag = int(self._controls.updates.sum()) - made.updates
            if held is not None:
                self._record.held = (self._record.held or 0) + 1
            else:
                self._note_decision(episode, inference, frame, made.version, lag)
            episode.decision = inference.ticket.decision.start, frame - inference.ticket.decision.start, lag
            action = episode.land(inference, made, observation, newest, frame)
        else:
            action = ledger.go_on(frame, observation)
        if self._chunks is not None:
            self._note_chunk(lands, acts=not ledger.missed)
        if ledger.missed:
            self._record.note_missed(ledger.missed, frame, self.clock.lateness)
            if self._safe_action is not self._default_action:
                episode.default_action = deepcopy(action)
        return action

    def _held(self, episode: _Episode, frame: int) -> Inference | None:
        """Return the features by which a fast path decides on a frame without new ones; None if it does not."""
        longest, features = self._config.max_features_age, episode.features
        if longest is None or features is None or frame - features.ticket.decision.start > longest:
            return None
        return features

    def _note_decision(self, episode: _Episode, inference: Inference, frame: int, version: int, lag: int) -> None:
        """Note that the action of an inference takes effect, made with weights that many updates ago."""
        start = inference.ticket.decision.start
        self._record.versions.append(version)
        if self._record.lags is not None and self._controls is not None:
            self._record.lags.append(lag)
        episode.effects.note(start, frame, inference.worker)
        if self._stacks is not None:
            self._stacks.applied(start)
        if self._config.max_features_age is not None:
            episode.features = inference

    def _note_chunk(self, is_new: bool, acts: bool) -> None:
        """Note whether a frame receives a going chunk's action, or none although a new decision takes effect."""
        record = self._record
        record.chunk = (record.chunk or 0) + (acts and not is_new)
        record.ended += is_new and not acts

    def _safe_action_of(self, episode: _Episode, observation: Any, frame: int) -> Any:
        """Return the action on a frame of a pause, or after the last frame. It goes on from what was sent before.

        The default action counts frames without an action from before a pause on. A `pause_action` begins with the
        pause, and the last action to it is the one of the frame before, a decision's or the default one. So neither
        sets in motion what is at rest.
        """
        missed = 1 if episode.paused is None else frame - episode.paused + 1
        last_action = self._ledger.last_action
        if self._safe_action is self._default_action:
            missed += self._ledger.missed
        elif self._ledger.missed:
            last_action = episode.default_action
        return self._safe_action(observation, last_action, missed)

    def _newest(self, observation: Any, frame: int) -> Any:
        """Return what a fast path reads on a frame, and a critic of effects: its observation, or a little older one."""
        return observation if self._older is None else self._older.fresh(observation, frame)

    def _following(self, observation: Any, frame: int) -> Any:
        """Return the observation of the decision in flight that is due first; this frame's if none is in flight."""
        in_flight = self.clock.next_start()
        return self._read(observation, frame) if in_flight is None else self.clock.observation(in_flight)

    def _gives_up(self, missed: int) -> bool:
        """Return whether `stop_after_missed` frames in a row have had no action, so that the run ends."""
        most = self._config.stop_after_missed
        if most is None or missed < most:
            return False
        self._record.reason = f"no action for {missed} frames in a row (stop_after_missed={most})"
        return True

    def _begin_episode(self, observation: Any, episode: int, seed: int, played: int) -> None:
        """Begin an episode on the clock, the first one with a warm-up; whatever knows of the one before is cleared."""
        self._default_action.reset(seed)
        if self._safe_action is not self._default_action:
            self._safe_action.reset(seed)
        if self._guard is not None:
            self._guard.begin_episode()
        if not self.clock.is_up:
            first = observation if self._prefix is None else self._prefix.join(observation, [])
            answer = self.clock.bring_up(first if self._stacks is None else self._stacks.join(first), episode)
            if self._release is not None and answer is not None:
                self._release.warm_up(answer, observation)
        self.clock.begin_episode(seed, played)
        self._ledger.begin()
        if self._stacks is not None:
            self._stacks.begin()
        if self._release is not None:
            self._release.begin_episode()

    def _action_made(self, inference: Inference, paid: float, newest: Any) -> Action | None:
        """Return the action of an inference that takes effect now; None if its answer is refused.

        Args:
            inference: The one that is due. If the policy has memory, the action is made here, from its features.
            paid: Sum of the rewards of the decision applied before.
            newest: What a fast path reads.
        """
        answer: Action | Features | Refusal | None = inference.answer
        if self._release is not None and isinstance(answer, Features):
            answer = self._release.decide(answer, inference.ticket, paid, newest)
            if isinstance(answer, Action):
                self._record.accepted += 1
            elif answer is None:
                self._record.fates["discarded"] += 1
            else:
                self._record.fates["refused"] += 1
                self.clock.refuse(answer.reason)
        return answer if isinstance(answer, Action) else None

    def _told(self, observation: Any, frame: int) -> Any:
        """Return the observation of a frame that begins, with the actions that are committed by now."""
        assert self._prefix is not None and self._chunks is not None
        unfinished, coming = self.clock.committed(frame)
        landed = [
            Landed(inference.ticket.decision.start, due, frame, inference.answer.action)
            for due, inference in coming
            if isinstance(inference.answer, Action)
        ]
        actions = self._chunks.committed(frame, self._prefix.length, unfinished, landed)
        return self._prefix.join(observation, foreseen(self._limiters, actions) if self._limiters else actions)

    def _read(self, observation: Any, frame: int) -> Any:
        """Return a decision's input on its starting frame: the observation, with committed actions, in a stack."""
        shown = observation if self._prefix is None else self._told(observation, frame)
        if self._stacks is None:
            return shown
        return self._stacks.join(shown, self.clock.in_flight())

    def _note_start(self) -> None:
        """Remember the input of the workers that start on the frame shown last, where policies read stacks."""
        assert self._stacks is not None
        self._stacks.started(self._frame, self._stack)
