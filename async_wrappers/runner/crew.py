"""The workers as the environment loop sees them: who is free, who infers which frame, and for how long."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from async_wrappers.runner.protocols import Ready, Transport
from async_wrappers.runner.slots import Controls, Fate, Finished, Ticket

__all__ = ["Crew", "NoWorkers", "Running"]

_INFERENCES, _LEAST = 50, 3  # that calibration measures, if time allows; at least
_REMEMBERED = 1000  # response times that estimates are made of


class NoWorkers(RuntimeError):
    """No worker has inferred in time."""


class Running(NamedTuple):
    """An inference that goes on: its ticket, when that was sent, and in which round (an episode, or the warm-up)."""

    ticket: Ticket
    sent: int
    round: int


class Crew:
    """Keeps account of N workers behind a transport.

    Args:
        transport: Carries tickets out and actions back.
        workers: How many are expected.
        controls: Where workers' incarnations are; None if workers are never restarted.
    """

    def __init__(self, transport: Transport, workers: int, controls: Controls | None = None) -> None:
        """See the class."""
        self._transport, self._workers, self._controls = transport, workers, controls
        self.running: dict[int, Running] = {}
        """By worker: what it infers."""
        self.responses: deque[int] = deque(maxlen=_REMEMBERED)
        """From a ticket to its action, in nanoseconds: the newest ones."""
        self.round = 0
        """Of the inferences that are begun; what was begun in an earlier one is too old to be applied."""

    def start(self, worker: int, number: int, episode: int, start: int, frame: int, eval_mode: bool) -> None:
        """Let a free worker infer published frame `number`."""
        incarnation = 0 if self._controls is None else int(self._controls.incarnations[worker])
        ticket = Ticket(incarnation, number, episode, start, frame, eval_mode)
        self.running[worker] = Running(ticket, time.monotonic_ns(), self.round)
        self._transport.start(worker, ticket)

    def collect(self, until: int) -> list[tuple[Ready | Finished, Running | None]]:
        """Return what happened, each inference with what was ordered; wait for it until a monotonic time."""
        events: list[tuple[Ready | Finished, Running | None]] = []
        for event in self._transport.collect(until):
            running = self.running.pop(event.worker, None)
            if isinstance(event, Finished) and running is not None and event.fate == Fate.DONE:
                self.responses.append(event.ended - running.sent)
            events.append((event, running))
        return events

    def warm_up(
        self, number: int, start_timeout: float, calibration_time: float, stops: Callable[[], bool]
    ) -> Sequence[int]:
        """Let each worker infer published frame `number` once; then measure response times while all are at work.

        Args:
            number: The published frame.
            start_timeout: Seconds until all have inferred once; those that have not are named and left out.
            calibration_time: Seconds of measuring at most; at least three response times are measured, unless it is 0.
            stops: Asked now and then whether to give up.

        Returns:
            The workers that have come up.

        Raises:
            NoWorkers: None has.
        """
        warm: set[int] = set()
        deadline = time.monotonic() + start_timeout
        while len(warm) < self._workers and not stops():
            if time.monotonic() > deadline:
                missing = ", ".join(str(worker) for worker in range(self._workers) if worker not in warm)
                if not warm:
                    raise NoWorkers(
                        f"no worker has inferred within start_timeout={start_timeout} s; missing: {missing}"
                    )
                warnings.warn(
                    f"workers {missing} have not inferred within {start_timeout} s: not waited for", stacklevel=2
                )
                break
            for event, _ in self.collect(time.monotonic_ns() + 20_000_000):
                if isinstance(event, Ready):
                    self._warm(event.worker, number)
                elif event.fate != Fate.LOST:
                    warm.add(event.worker)
        self.responses.clear()
        free, ends = set(warm), time.monotonic() + calibration_time
        while calibration_time > 0 and not stops():
            done = len(self.responses)
            if done >= _INFERENCES or (done >= _LEAST and time.monotonic() > ends):
                break
            for worker in free:
                self._warm(worker, number)
            free = self._freed(time.monotonic_ns() + 20_000_000)
        return sorted(free | warm - set(self.running))

    def drain(self, stops: Callable[[], bool]) -> set[int]:
        """Wait until no inference goes on; return the workers that this frees."""
        free: set[int] = set()
        while self.running and not stops():
            free |= self._freed(time.monotonic_ns() + 20_000_000)
        return free

    def _warm(self, worker: int, number: int) -> None:
        self.start(worker, number, 0, 0, 0, True)  # in evaluation mode: exploring may need no inference

    def _freed(self, until: int) -> set[int]:
        return {event.worker for event, _ in self.collect(until) if isinstance(event, Ready) or event.fate != Fate.LOST}
