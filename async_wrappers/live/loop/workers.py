"""The workers as the environment loop sees them, and the inferences of a run, each booked once.

Who is up, who infers which frame and for how long; an inference is booked from its ticket until its action is applied
or can no longer be.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from async_wrappers.fleet.standstill import Standstill
from async_wrappers.latency import nanoseconds
from async_wrappers.live.inference.transport import Ready, Transport
from async_wrappers.live.memory.exchange import Fate, Finished, Ticket
from async_wrappers.live.memory.glance import Glance
from async_wrappers.schedule.dispatch import Due


class Action(NamedTuple):
    """An answer that can be applied.

    Attributes:
        action: An element of the action space.
        extras: Values that the policy left for the learner beside the action.
        version: Of the weights behind it; of a policy with memory those of its release.
        updates: That the learners had made until those weights; of a policy with memory until those of its features.
    """

    action: Any
    extras: Any
    version: int
    updates: int


class Features(NamedTuple):
    """The answer of a worker whose policy has memory: `Release` makes an action of it when it takes effect.

    Attributes:
        features: The result of the policy's ``encode``.
        updates: That the learners had made until the weights behind them.
    """

    features: Any
    updates: int


class Refusal(NamedTuple):
    """An answer that is no action. The frame on which it would take effect receives the default action.

    Attributes:
        reason: A sentence; None where there is none.
    """

    reason: str | None


@dataclass(slots=True)
class Inference:
    """One run of the policy.

    Attributes:
        number: How many inferences of the run were ordered before it.
        worker: Who infers.
        ticket: The order.
        sent: When, in nanoseconds of the loop's clock.
        observation: A copy of the policy's input, for the learners; None if nothing is learnt.
        excused: Nanoseconds since then for which the loop itself stood still.
        answer: Its result; None before it has ended. A refusal waits for its frame in a simulation alone: on a
            real clock such an inference counts as lost when it ends.
    """

    number: int
    worker: int
    ticket: Ticket
    sent: int
    observation: Any = None
    excused: int = 0
    answer: Action | Features | Refusal | None = None


_INFERENCES, _LEAST = 50, 3  # that calibration measures, if time allows; at least
_REMEMBERED = 1000  # response times that estimates are made of
_LOOK = 20_000_000  # nanoseconds between two looks at whether to give up


class NoWorkers(RuntimeError):
    """No worker has inferred in time."""


class WorkerPool:
    """Keeps account of N workers behind a transport.

    It has the inferences that go on, by worker, and those whose actions wait for their frame, as the dispatcher names
    them. A worker has one inference at a time, and never infers a frame of an episode twice. So (start, worker), the
    dispatcher's name of an action, is the name of an inference of the episode, too.

    Args:
        transport: Carries tickets out and actions back.
        workers: How many are expected.
        now: The clock: monotonic nanoseconds.
        refused: Called for each answer that is no action, with the sentence that says why, if there is one.
        splits: Whether workers answer features.
    """

    def __init__(
        self,
        transport: Transport,
        workers: int,
        now: Callable[[], int],
        refused: Callable[[str | None], None],
        splits: bool,
    ) -> None:
        self._splits = splits
        self._transport, self._workers, self._now, self._refused = transport, workers, now, refused
        self.running: dict[int, Inference] = {}
        """By worker: its running inference, also one of an earlier episode."""
        self._waiting: dict[Due, Inference] = {}
        self._ordered = 0
        self._up: set[int] = set()
        self._overdue: set[int] = set()  # timed out; ignored until they report
        self.responses: deque[int] = deque(maxlen=_REMEMBERED)
        """From a ticket to its action, in nanoseconds: the newest ones."""
        self._longest = 0  # of all, those of the warm-up included
        self._standstill = Standstill()
        self.glance: Glance | None = None
        """Receives each inference that ends; None where nobody looks on."""

    @property
    def free(self) -> list[int]:
        """The workers that are up and infer nothing."""
        return sorted(self._up - self.running.keys())

    def start(self, worker: int, ticket: Ticket, observation: Any = None, sent: int | None = None) -> None:
        """Let a free worker infer a shown frame.

        Args:
            worker: Who infers.
            ticket: The order.
            observation: Kept with the inference, for the learners.
            sent: The time, where the caller knows it.
        """
        sent = self._now() if sent is None else sent
        self.running[worker] = Inference(self._ordered, worker, ticket, sent, observation)
        self._ordered += 1
        self._transport.start(worker, ticket)

    def overdue(self, times: float, least: int) -> list[int]:
        """Return the workers whose inference has gone on for `times` the longest one so far, and `least` nanoseconds.

        A worker that was started anew warms up with its first inference, so those of the warm-up count among the
        longest.
        """
        now = self._now()
        self._excuse(self._standstill.passed(now))
        before = now - max(least, int(times * self._longest))
        return [worker for worker, inference in self.running.items() if inference.sent + inference.excused < before]

    def _excuse(self, still: int) -> None:
        """Hold time for which the loop stood still against no worker."""
        if still:
            for inference in self.running.values():
                inference.excused += min(still, self._now() - inference.sent)

    def begin_episode(self) -> None:
        """Drop the actions of the episode before; inferences that go on stay until they end."""
        self._waiting.clear()

    def wait(self, inference: Inference, finished: Finished) -> None:
        """Keep an answer until it takes effect, or a newer one does."""
        if finished.fate == Fate.REFUSED:
            inference.answer = Refusal(finished.action)
        elif self._splits:
            inference.answer = Features(finished.action, finished.updates)
        else:
            inference.answer = Action(finished.action, finished.extras, finished.version, finished.updates)
        self._waiting[Due(inference.ticket.decision.start, inference.worker)] = inference

    def take(self, due: Due) -> Inference:
        """Return the inference whose action is applied now, and drop those that are no newer."""
        taken = self._waiting[due]
        self._waiting = {key: value for key, value in self._waiting.items() if key.start > due.start}
        return taken

    def forget(self, start: int) -> None:
        """Drop the actions that waited and read a frame of the episode before `start`: they will never be applied."""
        if any(due.start < start for due in self._waiting):
            self._waiting = {due: inference for due, inference in self._waiting.items() if due.start >= start}

    @property
    def waiting_starts(self) -> list[int]:
        """Starts of the inferences whose actions wait for their frame."""
        return [due.start for due in self._waiting]

    def waiting(self, start: int, worker: int) -> Inference:
        """Return the inference whose action waits for its frame."""
        return self._waiting[Due(start, worker)]

    def of_episode(self, first: int) -> Iterator[Inference]:
        """Yield the inferences that go on and read shown frame `first` or a newer one."""
        return (inference for inference in self.running.values() if inference.ticket.number >= first)

    def observation(self, start: int, first: int) -> Any:
        """Return the input of a decision of the present episode; None if none has that start.

        Args:
            start: Frame of the episode.
            first: Number of the first frame that was published in the episode.
        """
        known = (*self._waiting.values(), *self.of_episode(first))
        return next((inference.observation for inference in known if inference.ticket.decision.start == start), None)

    def collect(self, until: int) -> list[tuple[Ready | Finished, Inference | None]]:
        """Return new events, each with the inference that it ends; wait for one until a monotonic time."""
        self._excuse(self._standstill.passed(self._now()))
        events = self._transport.collect(until)
        self._excuse(self._standstill.passed(self._now(), until))
        return self.take_in(events)

    def take_in(self, happened: Iterable[Ready | Finished]) -> list[tuple[Ready | Finished, Inference | None]]:
        """Return new events, each with the inference that it ends, which is booked as ended."""
        events: list[tuple[Ready | Finished, Inference | None]] = []
        for event in happened:
            running = self.running.pop(event.worker, None)
            self._overdue.discard(event.worker)
            if isinstance(event, Ready):
                self._up.add(event.worker)
            elif event.fate == Fate.LOST:
                self._up.discard(event.worker)
            elif event.fate == Fate.DONE and running is not None:
                self.responses.append(event.ended - running.sent)
                self._longest = max(self._longest, event.ended - running.sent)
                if self.glance is not None:
                    ticket = running.ticket
                    self.glance.inference(
                        event.worker, ticket.decision.episode, ticket.decision.start, event.began, event.ended
                    )
            elif event.fate == Fate.REFUSED:
                self._refused(event.action)
            events.append((event, running))
        return events

    def warm_up(
        self, infer: Callable[[int], None], start_timeout: float, calibration_time: float, stops: Callable[[], bool]
    ) -> Any:
        """Let each worker infer once; then measure response times while all are at work. Return an answer, if any.

        Args:
            infer: Starts an inference of a worker.
            start_timeout: Seconds until all have inferred once; those that have not are named and left out.
            calibration_time: Seconds of measuring at most; at least three inferences are measured, unless it is 0.
            stops: Asked now and then whether to give up.

        Raises:
            NoWorkers: None has.
        """
        warm: set[int] = set()
        answer = None
        deadline = self._now() + nanoseconds(start_timeout)
        for worker in self.free:  # those that came up while a pause was waited out
            infer(worker)
        while len(warm) < self._workers and not stops():
            if self._now() > deadline:
                self._name_missing(warm, start_timeout)
                break
            for event, _ in self.collect(self._now() + _LOOK):
                if isinstance(event, Ready):
                    infer(event.worker)
                elif event.fate != Fate.LOST:
                    warm.add(event.worker)
                    answer = event.action if event.fate == Fate.DONE else answer
        self.responses.clear()
        if calibration_time > 0:
            self._calibrate(infer, calibration_time, start_timeout, stops)
        return answer

    def drain(
        self, timeout: float, stops: Callable[[], bool], look: Callable[[], None]
    ) -> Iterator[tuple[Ready | Finished, Inference | None]]:
        """Yield events until no inference is running; warn of those still running after `timeout` seconds.

        Args:
            timeout: Seconds.
            stops: Asked now and then whether to give up.
            look: Called as often. It reports overdue inferences, whose workers are then ended: they count as lost.
        """
        deadline = self._now() + nanoseconds(timeout)
        while (running := self.running.keys() - self._overdue) and not stops():
            if self._now() > deadline:
                self._overdue |= running
                slow = ", ".join(map(str, sorted(running)))
                warnings.warn(f"workers {slow} have inferred for more than {timeout} s: not waited for", stacklevel=2)
                return
            look()
            yield from self.collect(self._now() + _LOOK)

    def _calibrate(
        self, infer: Callable[[int], None], calibration_time: float, timeout: float, stops: Callable[[], bool]
    ) -> None:
        begin, ended, done = self._now(), 0, 0
        while done < _INFERENCES and not stops():
            if self._now() - begin >= nanoseconds(calibration_time if ended >= _LEAST else calibration_time + timeout):
                return
            for worker in self.free:
                infer(worker)
            for event, _ in self.collect(self._now() + _LOOK):
                ended += isinstance(event, Finished) and event.fate != Fate.LOST
                # Another fate says nothing of how long an action takes: a policy's server may still be away.
                done += isinstance(event, Finished) and event.fate == Fate.DONE

    def _name_missing(self, warm: set[int], start_timeout: float) -> None:
        absent = set(range(self._workers)) - warm
        missing = ", ".join(map(str, sorted(absent)))
        self._overdue |= absent
        if not warm:
            why = self._trouble()
            raise NoWorkers(f"no worker has inferred within start_timeout={start_timeout} s; missing: {missing}{why}")
        late = f"workers {missing} have not inferred within {start_timeout} s: not waited for{self._trouble()}"
        warnings.warn(late, stacklevel=2)

    def _trouble(self) -> str:
        """Return what a transport over a network knows of the reason, as the end of a sentence."""
        trouble = getattr(self._transport, "trouble", None)
        return "" if trouble is None else f"; {trouble}"
