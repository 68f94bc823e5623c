"""The clocks that an environment loop plays on: `RealClock`, on which time passes, and `VirtualClock`, which is moved.

A clock knows when frames begin, who infers which of them, and when inferences end. The environment loop asks both the
same questions, and does not know which of the two it has.
"""

# The virtual clock
# =================
#
# On it the same loop plays on time that stands still until it is moved. Three things differ:
#
# * The clock moves from event to event. The dispatcher knows when an inference will have ended as soon as it starts, so
#   it books the end itself, and `pass_frame` moves time to each of its events in turn. This comes before the step: a
#   simulated step takes no time, and so the last frame of an episode passes like all others.
# * A reset discards what is in flight, and the episode's seed starts latencies and estimates anew. An episode is then
#   a function of its seed, as one of `RealtimeDelay` is, whichever episodes were played before.
# * Nothing is measured before the run, and lateness is zero.
#
#
# The books
# =========
#
#   WorkerPool    every inference once, from its ticket until its action is applied or ruled out: worker, ticket, time,
#                 observation for the learners, and result. Also which workers are up, which are overdue, and how long
#                 the newest responses took
#   Dispatcher    times: which worker is free or idle, when which action is due. It knows actions by (start, worker),
#                 which is the key by which `WorkerPool` keeps them
#
# A frame is known by two numbers: `start`, counted from the beginning of its episode, and `number`, counted from the
# beginning of the run. The ring of shown frames is indexed by `number`, so that no two episodes share a slot, and
# an inference belongs to the present episode if its number is not below that of the episode's first frame.

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

from async_wrappers.live.inference.transport import Ready, Transport, VirtualTransport
from async_wrappers.live.loop.workers import Inference, WorkerPool
from async_wrappers.live.memory.exchange import Controls, Fate, Finished, Ticket
from async_wrappers.live.report.bounded import BoundedMeasurements
from async_wrappers.live.report.journey import Span
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.run_spec import LoopConfig
from async_wrappers.live.world.realtime import Spin
from async_wrappers.policy import Decision
from async_wrappers.schedule.dispatch import Dispatcher, refuse_early_stop, refuse_old_playout
from async_wrappers.schedule.frames import FrameClock, Spacing
from async_wrappers.schedule.simulated import modelled_conditions
from async_wrappers.schedule.stagger import Conditions, keeps_playout
from async_wrappers.wrappers.past_frames import refuse_old_features

_LOOK = 20_000_000  # nanoseconds between two looks at whether a pause is over
_OVERSLEPT = 200_000  # nanoseconds by which a sleep may be too long


class Clock:
    """Base of both clocks. Call on each frame: `wait_for`, `show`, `begin_frame`, `choose`, `pass_frame`.

    Args:
        transport: Carries frames to workers and actions back.
        config: Workers, frames per second, strategy and so on.
        controls: Numbers shared with the supervisor and the learners; None if there are none.
        stops: Asked now and then whether to end.
        now: The time, in nanoseconds; that of the transport.
        warns: Called with a sentence for the user.
        started: Called when workers have started to infer the present frame; None where nobody asks.
        splits: Whether workers send features, of which a policy with memory makes actions later.
        spaced: Whether frames are a machine's, which are not made up for (`schedule/frames.py`).

    Attributes:
        pool: The workers and their inferences.
        record: The measurements of the phase that goes on.
        begin: When the running episode's first frame began, later by what deadlines have been moved by since.
        moved: When they were: the frame, and by how many nanoseconds in all until then.
        lateness: By how many nanoseconds the frame that goes on began late.
        is_up: Whether the workers have come up (`bring_up`).
    """

    simulated: bool
    record: Measurements

    def __init__(
        self,
        transport: Transport,
        config: LoopConfig,
        controls: Controls | None,
        stops: Callable[[], bool],
        now: Callable[[], int],
        warns: Callable[[str], None],
        started: Callable[[], None] | None,
        splits: bool,
        spaced: bool = False,
    ) -> None:
        self._transport, self._config, self._controls = transport, config, controls
        self._stops, self._now, self._warns, self._started = stops, now, warns, started
        self._splits, self._warned = splits, False
        self._grants = controls is not None and config.stagger.granted is not None  # turns, to learners
        self._spin = None if config.realtime is None else Spin(config.realtime.spin)
        self._frames, self._stagger = FrameClock(config.fps), deepcopy(config.stagger)  # a strategy serves one loop
        self._dispatcher = Dispatcher(self._frames, self._stagger, self._ends(), config.max_age)
        self._spacing = Spacing(self._frames.fps) if spaced and not self.simulated else None
        self.moved: list[tuple[int, int]] = []
        self.pool = WorkerPool(transport, config.workers, now, self.refuse, splits)
        if config.latency is not None:
            modelled = modelled_conditions(config.latency, config.workers, self._frames)
            self._prepare(modelled)
            self._refuse_old_playout()
            if self._stagger.playout is None:
                refuse_early_stop(config.stop_after_missed, self._frames.frame_at(modelled.quantile(0.0)))
        self._ended: list[tuple[Span, int, int | None, int, int]] = []  # inferences, as `Measurements` notes them
        self._number = -1  # of the frame shown last
        self._first = 0  # number of the episode's first frame
        self._since: float = math.inf  # tickets from before that time are not of this phase
        self._last_deadline = 0  # of the frame after the last one played
        self.begin = self.lateness = 0
        self.is_up = False

    # A phase and its episodes.

    def begin_phase(self) -> Measurements:
        """Begin a phase, and return its measurements, empty so far."""
        self._since = math.inf
        self._counted = self._dispatcher.dropped, self._dispatcher.late, self._dispatcher.too_old
        of = float(self._frames.fps), self._config.processes, self.simulated
        if self._config.timeline is None:
            self.record = Measurements(*of)
        else:
            self.record = BoundedMeasurements(*of, timeline=self._config.timeline)
        return self.record

    def end_phase(self) -> None:
        """Record the dispatcher's counts of the phase."""
        dropped, late, too_old = self._counted
        self.record.dropped += self._dispatcher.dropped - dropped
        self.record.late = self._dispatcher.late - late
        self.record.too_old = self._dispatcher.too_old - too_old
        self.record.playout = self._stagger.playout or 0

    def undisturbed(self) -> AbstractContextManager[None]:
        """Return a context in which work that can be put off delays no frame."""
        return nullcontext()

    def rest(self, paused: Callable[[], bool]) -> None:
        """Do the work between two episodes that would disturb a frame; wait until no pause goes on."""

    def bring_up(self, shown: Any, episode: int) -> Any:
        """Let the workers come up, before the first frame of all; return an answer of the policy's, if there is one.

        A run that is stopped meanwhile, or in which none comes up, leaves it to the next one.

        Args:
            shown: Observation of the first frame, as policies read it.
            episode: Its number.
        """
        raise NotImplementedError

    def begin_episode(self, seed: int, played: int) -> None:
        """Free the workers that may start, prepare the strategy, and set time zero.

        Args:
            seed: Of the episode.
            played: Frames of the phase before it.
        """
        self.moved = []
        self._set_begin(seed, played)
        self._first = self._number + 1
        self.pool.begin_episode()
        if not self.record.episodes:
            self.record.begin = self._since = self.begin
        self._dispatcher.begin(self.pool.free)

    def end_episode(self, frames: int, played: int) -> None:
        """Record the inferences that have ended, and when the episode's last frame ended.

        Args:
            frames: Of the episode.
            played: Of the phase before it.
        """
        self.record.note_inferences(self._ended)
        self._ended.clear()

    def close(self, after: int) -> None:
        """Start no more inferences, and apply none that started on frame `after` or before."""
        self._dispatcher.close(after)

    def reopen(self) -> None:
        """Let workers start again, as at the beginning of an episode."""
        self._dispatcher.reopen(self._now() - self.begin)

    # A frame.

    def deadline(self, frame: int) -> int:
        """Return when the running episode's frame was to begin, the one that goes on."""
        return self.begin + self._frames.begin(frame)

    def wait_for(self, frame: int) -> None:
        """Let a frame begin; its lateness is recorded once it is played (`begin_frame`)."""
        raise NotImplementedError

    def show(self, observation: Any) -> int:
        """Show the frame's observation to the workers; return its number in the run."""
        self._number += 1
        self._transport.show(self._number, observation)
        return self._number

    def begin_frame(self, ticket: Ticket, observation: Any) -> None:
        """Collect arrived messages, and let the workers that may start infer the frame shown last.

        Args:
            ticket: The order for them.
            observation: The workers' input, for the learners; None if nothing is learnt.
        """
        self._ticket, self._shown = ticket, observation
        self.record.note_frame(self.lateness)
        if self._grants:
            self.take_turns()
        self._report_overdue()
        self._dispatcher.frame(ticket.decision.start)
        self.listen(0)
        self._start_workers()

    def choose(self, frame: int) -> Inference | None:
        """Return the inference that takes effect on the frame; None for the default action."""
        due = self._dispatcher.choose(0 if self._spacing is None else self._frames.frame_in(self._passed()))
        chosen = None if due is None else self.pool.take(due)
        if self._config.max_age is not None:
            self.pool.forget(frame - self._config.max_age)
        return chosen

    def pass_frame(self, frame: int) -> None:
        """Let the frame pass, where that is known before the environment's step."""

    def is_held_up(self) -> bool:
        """Return whether the frame began more than half a frame ago."""
        return self._passed() > self._frames.begin(1) // 2

    def _passed(self) -> int:
        """Return how many nanoseconds ago the frame began."""
        return 0

    def wait_to_send(self, frame: int) -> None:
        """Wait until a machine may be sent to."""

    def begin_send(self) -> bool:
        """Note that a machine is sent to now; return whether it has had no word for so long that it is at rest."""
        return False

    def end_send(self) -> None:
        """Note that a machine was sent to."""

    def listen(self, until: int) -> None:
        """Handle messages of workers; wait for them until a monotonic time."""
        raise NotImplementedError

    def _hear(self, events: Iterable[tuple[Ready | Finished, Inference | None]]) -> None:
        """Handle messages, each with the inference that it ends."""
        for event, inference in events:
            self._note(event, inference)
            if isinstance(event, Ready):
                self._dispatcher.free(event.worker, self._now() - self.begin)
            else:
                self._take_in(event, inference)

    def take_turns(self) -> None:
        """Tell learners how many turns are granted, and the strategy how many they have taken."""
        if self._controls is not None and (granted := self._stagger.granted) is not None:
            self._controls.granted = granted
            self._stagger.learned(int(self._controls.turns.min()))

    # Decisions in flight.

    def next_start(self) -> int | None:
        """Return the start of the decision in flight that is due first; None if there is none."""
        raise NotImplementedError

    def observation(self, start: int) -> Any:
        """Return the observation of the decision with this start; None where there is none."""
        return self.pool.observation(start, self._first)

    def in_flight(self) -> list[int]:
        """Return the starts of the episode's decisions that go on or wait for their frame."""
        return [*self._running(), *self.pool.waiting_starts]

    def committed(self, frame: int) -> tuple[list[tuple[int, int]], list[tuple[int, Inference]]]:
        """Return which actions in flight are known as a frame begins.

        Returns:
            Of those unknown (start, first frame on which the action may land), and of those that will be
            applied for certain (frame on which it lands, inference).
        """
        self.listen(0)  # inferences that end as the frame begins are known
        is_certain, playout = keeps_playout(self._stagger), self._stagger.playout or 0
        running = [start for start in self._running() if start > self._dispatcher.applied]  # the others are ruled out
        pending = [(start, max(start + playout if is_certain else 0, frame + 1)) for start in running]
        coming = []
        for due, start, worker in self._dispatcher.coming(self._now() - self.begin):
            if due > frame and not is_certain:
                pending.append((start, frame + 1))
            else:
                coming.append((due, self.pool.waiting(start, worker)))
        return pending, coming

    def refuse(self, sentence: str | None) -> None:
        """Note that a policy's answer is no action, and warn of the first one."""
        sentence = sentence or "an answer of the policy's is no action of the environment's"
        self.record.refusal = self.record.refusal or sentence
        if not self._warned:
            self._warned = True
            self._warns(f"{sentence}; the default action takes the place of each that is refused")

    def _running(self) -> Iterator[int]:
        return (inference.ticket.decision.start for inference in self.pool.of_episode(self._first))

    def _ends(self) -> Callable[[int, int, int], int] | None:
        """Return the function from an inference's start to its end; None if ends are reported afterwards."""
        return None

    def _set_begin(self, seed: int, played: int) -> None:
        """Prepare the strategy, and set when the episode's first frame begins."""
        raise NotImplementedError

    def _prepare(self, conditions: Conditions) -> None:
        self._stagger.prepare(conditions)
        if self._controls is not None:
            self._controls.patience = conditions.quantile(0.99)

    def _refuse_old_playout(self) -> None:
        """Refuse a playout under which every action, or all features, would be too old, or the run end at once."""
        refuse_old_playout(self._config.max_age, self._stagger.playout)
        refuse_old_features(self._config.max_features_age, self._stagger.playout)
        refuse_early_stop(self._config.stop_after_missed, self._stagger.playout)

    def _start_workers(self) -> None:
        """Let the workers that may start infer the frame shown last."""
        raise NotImplementedError

    def _report_overdue(self) -> None:
        """Report inferences that have run for far too long to the supervisor."""

    def _note(self, event: Ready | Finished, inference: Inference | None) -> None:
        """Record an inference of this phase."""
        raise NotImplementedError

    def _take_in(self, event: Finished, inference: Inference | None) -> None:
        """Report an inference's action, or its loss, and the free worker to the dispatcher."""
        raise NotImplementedError

    def _book(self, inference: Inference, span: Span, latency: int, exchange: int | None) -> None:
        """Record an inference that has ended: with the episode's end, or at once in measurements that are bounded."""
        noted = span, latency, exchange, inference.number, inference.ticket.decision.frame
        if self._config.timeline is None:
            self._ended.append(noted)
        else:
            self.record.note_inference(*noted)

    def _note_fate(self, fate: Fate) -> None:
        if fate == Fate.DONE:
            self.record.accepted += not self._splits  # features are not yet an action
        else:
            self.record.fates[fate.name.lower()] += 1


class RealClock(Clock):
    """The monotonic clock: frames begin on their deadlines, workers report when they have ended."""

    simulated = False
    _is_late = False  # whether a worker has been reported as overdue
    _due = _sends = 0  # when the frame was to begin, and when its action is sent
    _warned_of_age = False

    def undisturbed(self) -> AbstractContextManager[None]:
        """Return a context without garbage collection but by `rest`."""
        return _no_garbage_collection()

    def rest(self, paused: Callable[[], bool]) -> None:
        """Collect garbage; wait until no pause goes on, so that nothing is reset in one. Old inferences end meanwhile.

        Args:
            paused: Asked whether a pause goes on.
        """
        gc.collect()
        gc.freeze()  # no later collection looks at objects that live now
        begin, record = max(self._now(), self._last_deadline), self.record
        while paused() and not record.stopped:
            for event, inference in self.pool.collect(self._now() + _LOOK):
                self._note(event, inference)
            record.stopped = self._stops()
        if record.episodes:  # else the phase has not begun
            record.waited += max(0, self._now() - begin)

    def bring_up(self, shown: Any, episode: int) -> Any:
        """Let each worker infer once, and measure how long it takes; see `Clock.bring_up`."""
        number = self.show(shown)
        # in evaluation mode, as exploring may need no inference
        infer = partial(self.pool.start, ticket=Ticket(0, number, Decision(episode, 0, 0, True)))
        config = self._config
        calibration_time = config.calibration_time if config.latency is None else 0.0
        answer = self.pool.warm_up(infer, config.start_timeout, calibration_time, self._stops)
        self.is_up = not self._stops()
        if self.is_up and calibration_time > 0 and not self.pool.responses:
            self._warns(
                f"the policy gave no action in calibration_time={calibration_time:g} s, so the first episode is "
                "planned as if actions took no time: give a longer calibration_time, or a latency"
            )
        return answer

    def end_episode(self, frames: int, played: int) -> None:
        self._last_deadline = self.begin + self._frames.begin(frames)
        self.record.end = max(self._last_deadline, self._now())
        self.record.loop_time = time.thread_time_ns() - self._used
        super().end_episode(frames, played)

    def wait_for(self, frame: int) -> None:
        """Sleep until the frame's deadline; workers that become free before it may start on the frame before."""
        deadline = self.begin + self._frames.begin(frame)
        # From `awake` on it looks for messages again and again, and does not sleep: a worker that becomes free then
        # starts at once. Reading the clock alone would be more punctual by 3 us.
        awake = deadline if self._spin is None else deadline - self._spin.length
        while (now := self._now()) < deadline:
            event = self._dispatcher.next_event() if frame else None
            self.listen(max(awake, now) if event is None else min(max(awake, now), self.begin + event))
            if self._spin is not None and now < awake <= (woken := self._now()):
                self._spin.note(woken - awake)
            if frame > 0 and self._now() < deadline:
                self._start_workers()
        self._due, self.lateness = deadline, now - deadline
        if self._spacing is not None:
            self._make_up_for(frame, self.lateness)

    def listen(self, until: int) -> None:
        if self._grants:
            self.take_turns()
        self._hear(self.pool.collect(until))

    def deadline(self, frame: int) -> int:
        """That of a frame which has moved the next ones is its own."""
        return self._due

    def _passed(self) -> int:
        return self._now() - self._due - self.lateness

    def wait_to_send(self, frame: int) -> None:
        if self._spacing is None:
            return
        until, now = self._spacing.next_send, self._now()
        self._make_up_for(frame + 1, until - now)
        while now < until:
            if until - now > _OVERSLEPT:  # else it looks at the time again and again
                self.listen(until - _OVERSLEPT)
            now = self._now()

    def begin_send(self) -> bool:
        """The newest call counts."""
        if self._spacing is None:
            return False
        self._sends = self._now()
        return self._spacing.is_at_rest(self._sends)

    def end_send(self) -> None:
        if self._spacing is not None:
            self._spacing.sent(self._sends, self._now())

    def _make_up_for(self, frame: int, late: int) -> None:
        """Move a machine's deadlines from this frame on, if it is more than half a frame late, by as much."""
        assert self._spacing is not None
        if skipped := self._spacing.skipped(late):
            self.begin += late
            self.moved.append((frame, late + (self.moved[-1][1] if self.moved else 0)))
            self.record.skipped += skipped
            self._dispatcher.skip(frame, skipped)

    def next_start(self) -> int | None:
        """Which of the inferences that go on ends first is not known, so the oldest counts."""
        return self._dispatcher.in_flight(self._running())

    def end_phase(self) -> None:
        """Record how the loop is scheduled."""
        super().end_phase()
        if self._spin is not None and (realtime := self._config.realtime) is not None:
            of = {"priority": realtime.priority, "lock": realtime.lock, "core": realtime.core}
            self.record.realtime = {**of, "spin_us": self._spin.length / 1e3}

    def _set_begin(self, seed: int, played: int) -> None:
        if not self.record.episodes:
            self._used = time.thread_time_ns()  # of the processor, without the warm-up
        config, drains = self._config, self._config.between_episodes == "drain"
        if drains:
            for event, running in self.pool.drain(config.start_timeout, self._stops, self._report_overdue):
                self._note(event, running)
        if config.latency is None:
            self._prepare(self._measured())
            self._warn_of_old_playout()
        self.begin = max(self._now(), self._last_deadline)  # the last frame has its full length
        if self._spacing is not None:
            self.begin = max(self.begin, self._spacing.next_send)
        if self.record.episodes and not drains:  # the next deadline of the same clock
            late = self.begin - self._last_deadline
            self.begin = self._last_deadline + self._frames.begin(self._frames.frame_at(late))

    def _measured(self) -> Conditions:
        """Return the strategy's conditions, estimated from the newest response times."""
        known = sorted(self.pool.responses) or [0]

        def quantile(q: float) -> int:
            return known[min(int(q * len(known)), len(known) - 1)]

        return Conditions(self._config.workers, self._frames, sum(known) // len(known), quantile)

    def _warn_of_old_playout(self) -> None:
        """Warn once that the measured playout would be refused if it had been known."""
        if not self._warned_of_age:
            try:
                self._refuse_old_playout()
            except ValueError as error:
                self._warned_of_age = True
                self._warns(str(error))

    def _start_workers(self) -> None:
        workers = self._dispatcher.starts(self._now() - self.begin)
        if workers and self._started is not None:
            self._started()
        for worker in workers:
            self.pool.start(worker, self._ticket, self._shown)

    def _report_overdue(self) -> None:
        if self._controls is None:
            return
        late = self.pool.overdue(*self._config.overdue)
        if late or self._is_late:
            self._controls.overdue[:] = 0  # one that has ended after all is let live
        for worker in late:
            self._controls.overdue[worker] = 1 + self._controls.incarnations[worker]
        self._is_late = bool(late)

    def _note(self, event: Ready | Finished, inference: Inference | None) -> None:
        if isinstance(event, Ready) or inference is None or inference.sent < self._since:
            return
        self._note_fate(event.fate)
        if event.fate == Fate.DONE:
            if event.trip is not None:
                self.record.round_trips.append(event.trip)
            ticket, latency, whole = inference.ticket, event.ended - event.began, self._now() - inference.sent
            computed = latency if event.trip is None else min(latency, event.trip.ended - event.trip.began)
            parts = {"inference": computed, "transport": max(whole - computed, 0)}
            span = Span(event.worker, ticket.decision.episode, ticket.decision.start, event.began, event.ended, **parts)
            self._book(inference, span, latency, whole - latency)

    def _take_in(self, event: Finished, inference: Inference | None) -> None:
        if event.fate == Fate.LOST:
            self._dispatcher.gone(event.worker)
        if inference is None:
            return
        start, done = inference.ticket.decision.start, event.fate == Fate.DONE
        if inference.ticket.number >= self._first:  # it is of the present episode
            if done:
                self.pool.wait(inference, event)
                self._dispatcher.finished(event.worker, start, *self._times(event, inference))
                return
            self._dispatcher.lost(start)
        elif done and inference.sent >= self._since:
            self.record.dropped += 1
        if event.fate != Fate.LOST:
            self._dispatcher.free(event.worker, self._now() - self.begin)

    def _times(self, event: Finished, inference: Inference) -> tuple[int, int]:
        """Return when an inference began and ended, in nanoseconds since the episode began."""
        return event.began - self.begin, event.ended - self.begin


class VirtualClock(Clock):
    """Simulated time: it stands still until it is moved to the next event."""

    simulated = True
    _transport: VirtualTransport

    def bring_up(self, shown: Any, episode: int) -> None:
        """Mark all workers as ready; nothing is measured."""
        self.pool.collect(0)
        self.is_up = True

    def end_episode(self, frames: int, played: int) -> None:
        """Inferences in flight are cut off, and their time so far counts."""
        self._last_deadline = self.record.end = self.record.begin + self._frames.begin(played + frames)
        for event, inference in self.pool.take_in(self._transport.discard()):
            self._note(event, inference, self._last_deadline)
        self._ended.sort(key=lambda entry: entry[3])  # in the order of starts, as `SimulatedSchedule` logs them
        super().end_episode(frames, played)

    def wait_for(self, frame: int) -> None:
        """Let a frame begin; it is never late."""

    def pass_frame(self, frame: int) -> None:
        """Move time to the next frame's beginning, event by event; inferences that end then are in time for it.

        A simulated step takes no time, so the frame may pass before it: then its last starts are made, too.
        """
        deadline = self.begin + self._frames.begin(frame + 1)
        while (event := self._dispatcher.next_event()) is not None and self.begin + event < deadline:
            if self._grants:
                self.take_turns()
            self._transport.advance(self.begin + event)
            self.listen(0)  # before a worker's next inference takes the place of the one that has ended
            self._start_workers()
        if self._grants:
            self.take_turns()
        self._transport.advance(deadline)

    def listen(self, until: int) -> None:
        """Handle inferences that have ended by now, without a wait: simulated time never stands still by itself."""
        if self._grants:
            self.take_turns()
        if ended := self._transport.collect(until):
            self._hear(self.pool.take_in(ended))

    def next_start(self) -> int | None:
        """All ends are booked."""
        return self._dispatcher.next_start()

    def _ends(self) -> Callable[[int, int, int], int]:
        return self._start

    def _start(self, worker: int, frame: int, now: int) -> int:
        """Start a worker, and return when its inference will end."""
        self.pool.start(worker, self._ticket, self._shown, self.begin + now)
        return self._transport.end_of(worker) - self.begin

    def _set_begin(self, seed: int, played: int) -> None:
        """Begin with all workers idle; the episode's seed starts latencies and estimates anew."""
        # An episode that an error has ended leaves inferences behind.
        self._transport.discard()
        self.pool.running.clear()
        self._ended.clear()
        begin = self.record.begin if self.record.episodes else self._transport.now()
        self.begin = begin + self._frames.begin(played)  # of all frames at once, so that no rounding adds up
        self._stagger.restart()
        self._transport.restart(seed, self.begin)

    def _start_workers(self) -> None:
        if self._dispatcher.starts(self._transport.time - self.begin) and self._started is not None:  # by `_start`
            self._started()
        self.listen(0)  # some may have ended

    def _note(self, event: Ready | Finished, inference: Inference | None, cut: float = math.inf) -> None:
        """Record an inference; at most up to `cut`, where a reset has ended it."""
        if isinstance(event, Ready) or inference is None or inference.sent < self._since:
            return
        self._note_fate(event.fate)
        ticket, ended = inference.ticket, int(min(event.ended, cut))
        span = Span(event.worker, ticket.decision.episode, ticket.decision.start, event.began, ended)
        self._book(inference, span, event.ended - event.began, None)

    def _take_in(self, event: Finished, inference: Inference | None) -> None:
        if inference is not None:
            self.pool.wait(inference, event)  # the dispatcher has known when it would end


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect no garbage in the block: a collection would delay a frame.

    What `RealClock.rest` freezes is unfrozen at the end, unless the program had frozen objects of its own before:
    Python unfreezes all or none.
    """
    collects, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.disable()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        if collects:
            gc.enable()
