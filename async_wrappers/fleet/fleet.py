"""The rule of a fleet: which member is started, ended, started again or given up, and when.

`Fleet` holds the rule for its users: live workers, learners, served environments and accelerators, in processes, in
threads or on a Ray cluster. It takes events with their times and returns orders. It owns no clock, never sleeps,
starts nothing and ends nothing. All times are whole nanoseconds of one clock.
"""

# The life of a member
# ====================
#
#            started            ended, or could not be started                 pause is over
#   absent o---------> up o---------------------------------------> waits o------------------> START
#                      |  \                                           |
#                      |   \ late, or ails                            | ended too often in a row
#                      |    o-------------> KILL, then ended          o------------------> GIVE_UP
#                      |
#                      | asked to end
#                      o---------> ending o---- ended ----> over
#                                         o---- late -----> KILL, then ended
#
# * A driver tells the fleet what happened, then carries out its orders. Each order is given once: a driver that cannot
#   start a member says that it has ended. Orders are given one by one: where one raises, the others are still to come.
# * Ends in a row count those after which a member had not worked. What work is, the driver knows: an inference, an
#   update, a frame. A member that works now and then is started again for ever; one that only dies is given up.
# * The pause before a start grows with the ends in a row. It is zero after the first one, so that a member that was
#   killed from outside is missed for as short as can be.
# * A member owes something only while it is told to: a limit on silence would end those that have nothing to say.
# * That a process is stopped or hangs by the system's own account is not seen in its messages: the driver looks, and
#   reports why the member ails.
# * Late and ailing members are killed, stopped ones too, and never asked: they would not hear it.
# * At the same time kills come before starts, and members come in the order in which they joined.

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

SECOND = 1_000_000_000


class What(Enum):
    """What an order says."""

    KILL = "end it by force; then report its end"
    START = "start it, or another one in its place"
    GIVE_UP = "go on without it, or end the run"


class Order(NamedTuple):
    """What is to be done with a member.

    Attributes:
        what: That.
        member: With whom.
        why: Of a kill, the reason, as an end of a sentence; "" of one that was asked to end.
    """

    what: What
    member: Hashable
    why: str = ""


class _State(Enum):
    ABSENT, UP, WAITS, ENDING, KILLED, OVER = range(6)


@dataclass
class _Books:
    """The books of a member.

    Attributes:
        pauses: Nanoseconds before the next start, by ends in a row.
        is_endless: Whether the last pause holds for ever.
        state: Where it stands.
        ends: Those in a row after which it had not worked.
        due: When it is late, if something is owed or it was asked to end; while it waits, when it is started.
        why: The end of the sentence if it is late; of one that ails, the reason.
    """

    pauses: tuple[int, ...]
    is_endless: bool
    state: _State = _State.ABSENT
    ends: int = 0
    due: int | None = None
    why: str = ""


class Fleet:
    """Says what is to be done with members, which are named by any values that can be keys."""

    def __init__(self) -> None:
        """Begin without members."""
        self._books: dict[Hashable, _Books] = {}
        self._orders: list[Order] = []  # those that do not depend on the time

    def join(self, member: Hashable, pauses: tuple[int, ...] = (), is_endless: bool = False) -> None:
        """Take in a member, which has not been started yet.

        Args:
            member: Its name.
            pauses: Nanoseconds between its end and its next start, by ends in a row; after one more it is given up.
            is_endless: Whether it is never given up, and the last pause holds for all further ends.
        """
        self._books[member] = _Books(pauses, is_endless)

    def leave(self, member: Hashable) -> None:
        """Forget a member."""
        del self._books[member]
        self._orders = [order for order in self._orders if order.member != member]

    def started(self, member: Hashable) -> None:
        """A member, or another one in its place, has been started; it owes nothing."""
        books = self._books[member]
        books.state, books.due, books.why = _State.UP, None, ""

    def owes(self, member: Hashable, until: int, why: str) -> None:
        """A member that is up owes something.

        Args:
            member: Its name.
            until: When it is late.
            why: The reason for its kill then, such as "has not answered for 3 s".
        """
        books = self._books[member]
        if books.state == _State.UP:
            books.due, books.why = until, why

    def heard(self, member: Hashable) -> None:
        """What a member owed has come."""
        books = self._books[member]
        if books.state == _State.UP:
            books.due = None

    def works(self, member: Hashable) -> None:
        """A member has worked: its next end is the first in a row."""
        self._books[member].ends = 0

    def ails(self, member: Hashable, why: str) -> None:
        """A member that is up counts as dead, for a reason that is the end of a sentence."""
        books = self._books[member]
        if books.state == _State.UP:
            self._kill(member, books, why)

    def ended(self, member: Hashable, now: int) -> None:
        """A member has ended, in any way, or could not be started; its next start, if there is one, is set."""
        books = self._books[member]
        self._orders = [order for order in self._orders if order.member != member]
        if books.state in (_State.ENDING, _State.OVER):
            books.state, books.due = _State.OVER, None
            return
        books.ends += 1
        if books.ends > len(books.pauses) and not books.is_endless:
            books.state, books.due = _State.OVER, None
            self._orders.append(Order(What.GIVE_UP, member))
            return
        books.state = _State.WAITS
        books.due = now + books.pauses[min(books.ends, len(books.pauses)) - 1]

    def asked(self, member: Hashable, until: int) -> None:
        """A member was asked to end by a time; none takes its place. To ask once more is to give it more time."""
        books = self._books[member]
        if books.state in (_State.UP, _State.ENDING):
            books.state, books.due, books.why = _State.ENDING, until, ""
        else:
            books.state, books.due = _State.OVER, None
            self._orders = [order for order in self._orders if order.member != member or order.what == What.KILL]

    def orders(self, now: int) -> list[Order]:
        """Return all that is to be done by now, and was not ordered before."""
        return list(iter(lambda: self.next_order(now), None))

    def next_order(self, now: int) -> Order | None:
        """Return the first thing that is to be done by now, and was not ordered before; None for nothing."""
        for member, books in self._books.items():
            if books.due is None or books.due > now:
                continue
            if books.state == _State.WAITS:
                books.state, books.due = _State.ABSENT, None
                self._orders.append(Order(What.START, member))
            else:
                self._kill(member, books, books.why)
        if len(self._orders) > 1:
            rank = {member: number for number, member in enumerate(self._books)}
            self._orders.sort(key=lambda order: (order.what == What.START, rank[order.member]))
        return self._orders.pop(0) if self._orders else None

    def undone(self, order: Order) -> None:
        """An order for a kill or a start was interrupted: it is given again, unless the member is forgotten."""
        waits = {What.KILL: (_State.KILLED, _State.OVER), What.START: (_State.ABSENT,)}
        books = self._books.get(order.member)
        if books is not None and books.state in waits[order.what]:
            self._orders.insert(0, order)

    def next_time(self) -> int | None:
        """Return when the next order is due, perhaps already; None if nothing is to be done but on an event."""
        if self._orders:
            return 0
        return min((books.due for books in self._books.values() if books.due is not None), default=None)

    def is_up(self, member: Hashable) -> bool:
        """Return whether a member has been started, and neither has ended nor is to be killed."""
        return self._books[member].state in (_State.UP, _State.ENDING)

    def ends(self, member: Hashable) -> int:
        """Return after how many ends in a row a member had not worked."""
        return self._books[member].ends

    def _kill(self, member: Hashable, books: _Books, why: str) -> None:
        books.state = _State.OVER if books.state == _State.ENDING else _State.KILLED
        books.due = None
        self._orders.append(Order(What.KILL, member, why))
