"""A fleet whose members an engine starts, hears and ends, such as hosts: who owes answers, and who is replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from async_wrappers.fleet.fleet import SECOND, Fleet, What


class Lost(NamedTuple):
    """A member has died, with all orders that it had.

    Attributes:
        host: Its number.
        incarnation: Which of its incarnations.
        why: How it ended, in words.
    """

    host: int
    incarnation: int
    why: str


class Engine(Protocol):
    """What runs members; `agents.play.hosts.engine.HostEngine` says what its methods do."""

    def start(self, host: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        """Start a member, or another incarnation of it."""

    def submit(self, host: int, order: Any) -> None:
        """Give a member an order."""

    def collect(self, timeout: float) -> Sequence[Any]:
        """Return what has come: answers, which have `host` and `incarnation`, and losses, as `Lost`."""

    def kill(self, host: int, why: str) -> None:
        """End a member, which is then lost."""


class EngineFleet:
    """Members of an engine, by number.

    A member that does not answer in time is ended. One that is lost is to be started again, unless it was lost so many
    times in a row without work between.

    Args:
        engine: Runs them.
        incarnations: Of the first of each, by number.
        losses: That are one too many.
        timeout: Seconds that an answer is waited for; None for no limit.
        given_up: From the last of the losses to the exception to raise.

    Attributes:
        incarnation: Of each now.
        owed: Orders of each that are not answered.
        restarts: Members that were to be started again.
    """

    def __init__(
        self,
        engine: Engine,
        incarnations: Mapping[int, int],
        losses: int,
        timeout: float | None,
        given_up: Callable[[Lost], Exception],
    ) -> None:
        """Begin with members that are not started."""
        self._engine, self._timeout, self._given_up = engine, timeout, given_up
        self.incarnation, self.owed, self.restarts = dict(incarnations), dict.fromkeys(incarnations, 0), 0
        self._until = dict.fromkeys(incarnations, 0)  # when each is late, in monotonic nanoseconds
        self._losses: dict[int, Lost] = {}
        self._rule = Fleet()
        for member in incarnations:
            self._rule.join(member, (0,) * (losses - 1))

    def start(self, member: int, rows: Mapping[str, Sequence[int]]) -> None:
        """Start a member, or another one in the place of one that was lost; it owes nothing."""
        self._engine.start(member, self.incarnation[member], rows)
        self._rule.started(member)
        self.owed[member] = 0

    def submit(self, member: int, order: Any) -> None:
        """Give a member an order."""
        if not self.owed[member]:
            self._expect(member)
        self.owed[member] += 1
        self._engine.submit(member, order)

    def works(self, member: int) -> None:
        """Take a member's next loss for the first in a row."""
        self._rule.works(member)

    def postpone(self, seconds: float) -> None:
        """Wait so much longer for all answers that are owed now."""
        for member in [member for member, count in self.owed.items() if count]:
            self._expect(member, self._until[member] + round(seconds * SECOND))

    def collect(self, seconds: float) -> Iterator[Any]:
        """Yield the answers that have come, or wait a while for the first, and then the losses (`Lost`).

        Each member that is lost is to be started again.

        Raises:
            Exception: One is given up, or the engine's.
        """
        for each in self._engine.collect(seconds):
            member = each.host
            if each.incarnation != self.incarnation[member]:
                continue
            if hasattr(each, "why"):  # a `Lost`, or what an engine of a user's own has in its place
                self._losses[member] = Lost(member, each.incarnation, each.why)
                self._rule.ended(member, time.monotonic_ns())
                continue
            self.owed[member] -= 1
            self._rule.heard(member)
            if self.owed[member]:
                self._expect(member)
            yield each
        while (order := self._rule.next_order(time.monotonic_ns())) is not None:
            what, name, why = order
            assert isinstance(name, int)
            if what == What.KILL:
                self._engine.kill(name, why)
            elif what == What.GIVE_UP:
                raise self._given_up(self._losses[name])
            else:
                self.incarnation[name] += 1
                self.restarts += 1
                yield self._losses[name]

    def _expect(self, member: int, until: int | None = None) -> None:
        """Let a member be late at a time; None for the timeout from now on."""
        if self._timeout is not None:
            self._until[member] = until or time.monotonic_ns() + round(self._timeout * SECOND)
            why = f"has not answered for {self._timeout:g} s, and was ended"
            self._rule.owes(member, self._until[member], why)
