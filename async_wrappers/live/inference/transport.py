"""What the environment loop asks of whatever carries observations to workers and actions back."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from async_wrappers.live.memory.slots import Finished, Ticket

__all__ = ["Ready", "SimulatedTransport", "Transport"]


class Ready(NamedTuple):
    """A worker has come up, for the first time or, after it was lost, again."""

    worker: int


class Transport(Protocol):
    """Carries frames to workers and actions back; used by the environment loop alone.

    Each worker is `Ready` once; from then on each ticket is answered by one `Finished`. A worker that has died, with a
    ticket or without, gives a `Finished` of fate LOST and number -1, and may be ready again after that.
    """

    def publish(self, number: int, observation: Any) -> None:
        """Show the newest frame, of which workers must read a copy; numbers go up by one."""
        ...

    def start(self, worker: int, ticket: Ticket) -> None:
        """Let a ready worker infer the frame of a ticket."""
        ...

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return what has happened since the last call; wait for it, until that monotonic time in nanoseconds.

        It returns as soon as there is something to return.
        """
        ...


class SimulatedTransport(Transport, Protocol):
    """Carries frames and actions within this thread, on a clock that stands still until it is moved."""

    def now(self) -> int:
        """Return the time in nanoseconds."""
        ...

    def restart(self, seed: int, now: int) -> None:
        """Begin an episode: its seed starts all latencies anew, and time is `now`."""
        ...

    def has_news(self) -> bool:
        """Return whether `collect` would return anything; most moments of a simulated frame have nothing."""
        ...

    def end_of(self, worker: int) -> int:
        """Return when the inference that a worker started last will have ended."""
        ...

    def advance(self, until: int) -> None:
        """Let time pass; `collect` returns what has ended by then."""
        ...

    def discard(self) -> list[Finished]:
        """Return what has not been collected, as it will have ended, and forget it."""
        ...
