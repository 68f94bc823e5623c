"""The workers as the environment loop sees them: who is free, who infers which frame, and for how long."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from async_wrappers.latency import nanoseconds
from async_wrappers.live.inference.transport import Ready, Transport
from async_wrappers.live.inflight import Inference, Inflight
from async_wrappers.live.memory.slots import Fate, Finished, Ticket

__all__ = ["NoWorkers", "WorkerPool"]

_INFERENCES, _LEAST = 50, 3  # that calibration measures, if time allows; at least
_REMEMBERED = 1000  # response times that estimates are made of
_LOOK = 20_000_000  # nanoseconds between two looks at whether to give up


class NoWorkers(RuntimeError):
    """No worker has inferred in time."""


class WorkerPool:
    """Keeps account of N workers behind a transport.

    Args:
        transport: Carries tickets out and actions back.
        inflight: Where inferences are booked.
        workers: How many are expected.
        now: The clock: monotonic nanoseconds.
        refused: Called for each answer that is no action, with the sentence that says why, if there is one.
    """

    def __init__(
        self,
        transport: Transport,
        inflight: Inflight,
        workers: int,
        now: Callable[[], int],
        refused: Callable[[str | None], None] = lambda sentence: None,
    ) -> None:
        """See the class."""
        self._transport, self._inflight, self._workers, self._now = transport, inflight, workers, now
        self._refused = refused
        self._up: set[int] = set()
        self._overdue: set[int] = set()  # timed out; ignored until they report
        self.responses: deque[int] = deque(maxlen=_REMEMBERED)
        """From a ticket to its action, in nanoseconds: the newest ones."""

    @property
    def free(self) -> list[int]:
        """The workers that are up and infer nothing."""
        return sorted(self._up - self._inflight.running.keys())

    def start(self, worker: int, ticket: Ticket, observation: Any = None) -> None:
        """Let a free worker infer a published frame; `observation` is kept with it, for the learners."""
        self._inflight.order(worker, ticket, self._now(), observation)
        self._transport.start(worker, ticket)

    def collect(self, until: int) -> list[tuple[Ready | Finished, Inference | None]]:
        """Return what happened, each with the inference that it ends; wait for it until a monotonic time."""
        return self.take_in(self._transport.collect(until))

    def take_in(self, happened: Iterable[Ready | Finished]) -> list[tuple[Ready | Finished, Inference | None]]:
        """Return what happened, each with the inference that it ends, which is booked as ended."""
        events: list[tuple[Ready | Finished, Inference | None]] = []
        for event in happened:
            running = self._inflight.end(event.worker)
            self._overdue.discard(event.worker)
            if isinstance(event, Ready):
                self._up.add(event.worker)
            elif event.fate == Fate.LOST:
                self._up.discard(event.worker)
            elif event.fate == Fate.DONE and running is not None:
                self.responses.append(event.ended - running.sent)
            elif event.fate == Fate.REFUSED:
                self._refused(event.action)
            events.append((event, running))
        return events

    def warm_up(
        self,
        infer: Callable[[int], None],
        start_timeout: float,
        calibration_time: float,
        stops: Callable[[], bool],
    ) -> None:
        """Let each worker infer once; then measure response times while all are at work.

        Args:
            infer: Starts an inference of a worker.
            start_timeout: Seconds until all have inferred once; those that have not are named and left out.
            calibration_time: Seconds of measuring at most; at least three inferences are measured, unless it is 0.
            stops: Asked now and then whether to give up.

        Raises:
            NoWorkers: None has.
        """
        warm: set[int] = set()
        deadline = self._now() + nanoseconds(start_timeout)
        while len(warm) < self._workers and not stops():
            if self._now() > deadline:
                self._name_missing(warm, start_timeout)
                break
            for event, _ in self.collect(self._now() + _LOOK):
                if isinstance(event, Ready):
                    infer(event.worker)
                elif event.fate != Fate.LOST:
                    warm.add(event.worker)
        self.responses.clear()
        if calibration_time > 0:
            self._calibrate(infer, calibration_time, start_timeout, stops)

    def drain(self, timeout: float, stops: Callable[[], bool]) -> Iterator[tuple[Ready | Finished, Inference | None]]:
        """Yield what happens until no inference goes on; name those that go on after so many seconds."""
        deadline = self._now() + nanoseconds(timeout)
        while (running := self._inflight.running.keys() - self._overdue) and not stops():
            if self._now() > deadline:
                self._overdue |= running
                slow = ", ".join(map(str, sorted(running)))
                warnings.warn(f"workers {slow} have inferred for more than {timeout} s: not waited for", stacklevel=2)
                return
            yield from self.collect(self._now() + _LOOK)

    def _calibrate(
        self, infer: Callable[[int], None], calibration_time: float, timeout: float, stops: Callable[[], bool]
    ) -> None:
        begin, done = self._now(), 0
        while done < _INFERENCES and not stops():
            if self._now() - begin >= nanoseconds(calibration_time if done >= _LEAST else calibration_time + timeout):
                return
            for worker in self.free:
                infer(worker)
            for event, _ in self.collect(self._now() + _LOOK):
                done += isinstance(event, Finished) and event.fate != Fate.LOST

    def _name_missing(self, warm: set[int], start_timeout: float) -> None:
        absent = set(range(self._workers)) - warm
        missing = ", ".join(map(str, sorted(absent)))
        self._overdue |= absent
        if not warm:
            raise NoWorkers(f"no worker has inferred within start_timeout={start_timeout} s; missing: {missing}")
        warnings.warn(f"workers {missing} have not inferred within {start_timeout} s: not waited for", stacklevel=2)
