"""The environment loop's end of the wire: one connection per worker, and nothing in it ever waits for the network.

A connection is made, shakes hands, carries tickets and answers, and is lost; then it is made again, after a pause that
grows from one attempt to the next. All of this happens in `RemoteTransport.collect`, between two frames. For the loop
a connection that is up is a worker, and one that is lost is a worker that has died.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from async_wrappers.fleet.standstill import Standstill
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.live.inference.transport import Ready, wait_for
from async_wrappers.live.memory.exchange import Fate, Finished, Ticket
from async_wrappers.live.memory.layout import SharedLayout
from async_wrappers.live.remote.address import Address, prepare
from async_wrappers.live.remote.handshake import ClientHandshake, Hello, Refused
from async_wrappers.live.remote.wire import (
    HEADER,
    AnswerRecord,
    Answers,
    Kind,
    TicketRecords,
    WireError,
    checked,
    named,
    printable,
)
from async_wrappers.live.report.journey import RoundTrip
from async_wrappers.live.run_spec import LoopConfig, LoopEnd
from async_wrappers.wrappers.action_conversion import RefusedAction, as_action, refusal

_PAUSES = (50_000_000, 500_000_000)  # nanoseconds between two attempts: at first, and at most
_HANDSHAKE = 3_000_000_000  # nanoseconds from the beginning of an attempt to its end
_FAILURES = 5  # exceptions of a worker's policy in a row, without an answer between them, that are let pass
_NEVER = 1 << 62
_RECENT = 2_000_000_000  # nanoseconds for which a loss may be due to a standstill of this end
_LONGEST_WAIT = 60_000  # milliseconds, of one system call
_IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK)


@dataclass(frozen=True)
class RemotePolicy:
    """The place of a run's policy, and the secret that its server knows; None for none.

    Attributes:
        sends_policy: Whether the workers get `RunSpec.make_policy` from here.
        patience: Seconds that they have to end.
    """

    address: Address
    token: bytes | None = field(default=None, repr=False)

    sends_policy = False  # the server has one
    patience = 3.0

    def transport(self, end: LoopEnd) -> RemoteTransport:
        """Return the environment loop's end."""
        return RemoteTransport(end.layout, end.config, self, end.warns)


class _Lost(Exception):
    """A connection cannot be used any more; the message says why, for a sentence that begins with its name."""


class _Connection:
    """One worker's connection, in one of four states.

    Attributes:
        end: The socket; None while it waits for its next attempt.
        handshake: While it shakes hands.
        is_up: Whether tickets may be sent.
        due: When it tries again, or gives the handshake or the answer up.
        pause: Before the next attempt.
        ticket: The one that is not yet answered.
        sent: When that was sent.
        excused: Nanoseconds since then for which this end itself stood still.
        unsent: Bytes that the network has not yet taken.
        expected: The beginning of the ticket's answer.
        got: Bytes of the answer so far.
        answer: Holds them.
        buffer: Its bytes.
        failures: Exceptions of the policy in a row.
        has_answered: Whether this worker has ever answered.
        was_up: Whether it has ever been up.
    """

    def __init__(self, worker: int, answer: AnswerRecord) -> None:
        self.worker = worker
        self.end: socket.socket | None = None
        self.handshake: ClientHandshake | None = None
        self.is_connecting = self.is_up = False
        self.due = 0
        self.pause = _PAUSES[0]
        self.attempts = self.incarnation = self.failures = 0
        self.has_answered = self.was_up = False
        self.ticket: Ticket | None = None
        self.sent = self.excused = 0
        self.unsent: memoryview | None = None
        self.answer, self.buffer = answer, memoryview(answer.data)
        self.expected = b""
        self.got = 0


class RemoteTransport:
    """Carries frames to a `PolicyServer` and its answers back.

    Times of its events are the loop's own: an inference began when its ticket was sent, and ended when its answer was
    here. A connection that is lost is a worker that is lost, and one that is made again is a worker that is ready
    again. What goes wrong before the first welcome is raised, as the run has not begun; what goes wrong later is a
    warning, since frames go on.

    Args:
        layout: Of what the workers would share; gives spaces and numbers.
        config: Says when an answer is overdue, and how long the first one may take.
        remote: Where the server is, and the token.
        warns: Called with a sentence for the user.

    Raises:
        RunFailed: The server's name is unknown.
    """

    def __init__(
        self, layout: SharedLayout, config: LoopConfig, remote: RemotePolicy, warns: Callable[[str], None]
    ) -> None:
        self._space, self._encodes = layout.answers, layout.features is not None
        extras = None if self._encodes else layout.extras
        self._tickets, self._answers = TicketRecords(layout.observation_space), Answers(self._space, extras)
        spaces = layout.observation_space, self._space, extras
        self._workers = layout.workers
        # Its spaces are described here and now: a frame does not wait for that when a connection is made again.
        first = Hello(*spaces, self._encodes, layout.chunk_length, 0, self._workers, secrets.token_hex(16))
        self._hellos = [first.of_worker(worker) for worker in range(self._workers)]
        self._address, self._token, self._warns = remote.address, remote.token, warns
        self._first_timeout = int(min(config.start_timeout, 1e9) * 1e9)
        self._times, self._least = config.overdue
        self._longest = 0
        try:
            self._ends = self._address.resolved()
        except OSError as error:
            raise RunFailed(f"the policy server's address {self._address.text} is unknown: {error.strerror}") from None
        self._connections = [_Connection(worker, self._answers.record()) for worker in range(self._workers)]
        self._selector = selectors.DefaultSelector()
        self._wait = wait_for(self._selector)
        self._limit = self._least  # of an answer that is not the first one, in nanoseconds
        self._next = 0  # when the first of the connections is due
        self._events: list[Ready | Finished] = []
        self._server, self._servers = "", 0  # the name of the newest, and how many there were
        self._was_welcomed = False
        self._reasons = Reasons()
        self._trouble: dict[int, str] = {}
        self._standstill, self._stood = Standstill(), (0, 0)  # when it ended, and how long it was
        self._record = self._tickets.record()
        self._is_lent = False  # whether a connection may have bytes of it to send
        self._unsent = 0  # connections that have bytes to send
        self._reconnections = 0

    # The loop's calls.

    def show(self, number: int, observation: Any) -> None:
        """Keep a frame's bytes; those of an older frame stay where the network has not yet taken them."""
        if self._is_lent:
            self._is_lent = False
            if self._unsent:
                self._record = self._tickets.record()
        self._record.show(observation)

    def start(self, worker: int, ticket: Ticket) -> None:
        """Send a ticket and the newest frame, as much as the network takes now."""
        connection, record = self._connections[worker], self._record
        end = connection.end
        if not connection.is_up or end is None:
            return  # its loss is told by the next `collect`
        if self._is_lent and self._unsent:
            self._is_lent = False
            self._record, lent = self._tickets.record(), record
            record = self._record
            record.data[:] = lent.data
        record.order(ticket, connection.incarnation)
        connection.sent, connection.excused = (now := time.monotonic_ns()), 0
        try:
            sent = end.send(record.data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lose(connection, _why(error))
            return
        # From here on the server is at work, and nobody waits for this end.
        connection.ticket, connection.got = ticket, 0
        connection.expected = self._answers.begins(ticket, connection.incarnation)
        limit = self._limit if connection.has_answered else max(self._limit, self._first_timeout)
        connection.due = now + limit
        self._next = min(self._next, connection.due)
        if sent < len(record.data):
            self._is_lent, connection.unsent = True, memoryview(record.data)[sent:]
            self._unsent += 1
            self._selector.modify(end, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return the events since the last call, or wait for one until a time of the monotonic clock."""
        now = time.monotonic_ns()
        self._excuse(now, self._standstill.passed(now))
        while True:
            wakes = now if self._events else min(until, self._next)
            for key, ready in self._select(wakes - now):
                connection = key.data
                if ready == selectors.EVENT_READ and connection.is_up:
                    self._hear(connection)
                else:
                    self._handle(connection, ready)
            now = time.monotonic_ns()
            self._excuse(now, self._standstill.passed(now, wakes))
            if now >= self._next:
                self._look_at_clock(now)
            if self._events or now >= until:
                events, self._events = self._events, []
                return events

    def _excuse(self, now: int, still: int) -> None:
        """Hold time for which this end stood still against no server."""
        if still:
            self._stood = now, still
            for connection in self._connections:
                if connection.end is not None and connection.due < _NEVER:
                    connection.due += still
                    connection.excused += min(still, now - connection.sent)

    def _select(self, nanoseconds: int) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for connections that can be read or written; return them, perhaps before the time is over.

        `select` waits for whole milliseconds, so it is left early; the last one or two are waited for apart.
        """
        if nanoseconds > 2_000_000:
            return self._selector.select(min(nanoseconds // 1_000_000, _LONGEST_WAIT) / 1000 - 0.001)
        if nanoseconds > 0 and not self._wait(nanoseconds):
            return []
        return self._selector.select(0)

    def close(self) -> None:
        """Close all connections, which frees the server's workers."""
        for connection in self._connections:
            if connection.end is not None:
                connection.end.close()
        self._selector.close()

    def take_reconnections(self) -> int:
        """Return how many connections have been made again since the last call."""
        taken, self._reconnections = self._reconnections, 0
        return taken

    @property
    def trouble(self) -> str | None:
        """Why connections are not up, in a sentence without an end; None if nothing is known."""
        return "; ".join(dict.fromkeys(self._trouble.values())) or None

    # Making connections.

    def _look_at_clock(self, now: int) -> None:
        """Begin the attempts that are due; give up handshakes and answers that have taken too long."""
        for connection in self._connections:
            if connection.due > now:
                continue
            if connection.end is None:
                self._begin(connection, now)
            elif not connection.is_up:
                self._lose(connection, f"has not welcomed this end within {_HANDSHAKE / 1e9:g} s: it is busy, or hangs")
            else:
                waited = (now - connection.sent - connection.excused) / 1e9
                self._lose(connection, f"has not answered for {waited:.1f} s, {self._times:g} times the longest answer")
        self._next = min(connection.due for connection in self._connections)

    def _begin(self, connection: _Connection, now: int) -> None:
        family, where = self._ends[connection.attempts % len(self._ends)]
        connection.attempts += 1
        connection.due = now + _HANDSHAKE
        try:
            connection.end = end = socket.socket(family, socket.SOCK_STREAM)
            end.setblocking(False)
            self._selector.register(end, selectors.EVENT_WRITE, connection)
            prepare(end)
            failed = end.connect_ex(where)
        except OSError as error:  # of a family that this machine has not; or too many files are open
            failed = error.errno or errno.EIO
        if failed == 0:
            self._greet(connection)
        elif family == socket.AF_UNIX or failed not in _IN_PROGRESS:
            self._lose(connection, _why(OSError(failed, "")))
        else:
            connection.is_connecting = True

    def _greet(self, connection: _Connection) -> None:
        """Begin the handshake on a connection that has been made."""
        assert connection.end is not None
        connection.is_connecting = False
        connection.handshake = ClientHandshake(self._hellos[connection.worker], self._token)
        self._say(connection, connection.handshake.begin())

    def _say(self, connection: _Connection, data: bytes) -> None:
        """Send bytes of the handshake."""
        assert connection.end is not None
        if connection.unsent is None:
            self._unsent, connection.unsent = self._unsent + 1, memoryview(data)
        else:
            connection.unsent = memoryview(bytes(connection.unsent) + data)
        try:
            self._send(connection)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent is not None else 0)
            self._selector.modify(connection.end, events, connection)
        except OSError as error:
            self._lose(connection, _why(error))

    def _shake(self, connection: _Connection) -> None:
        """Take what came of the handshake."""
        handshake, end = connection.handshake, connection.end
        assert handshake is not None and end is not None
        while wants := handshake.wants():
            data = end.recv(wants)
            if not data:
                raise _Lost("closed the connection in the handshake")
            try:
                if said := handshake.receive(data):
                    self._say(connection, said)
            except WireError as error:
                self._refuse(connection, error)
            if connection.handshake is not handshake:
                return  # it has been lost meanwhile
        welcome = handshake.welcome
        assert welcome is not None
        if welcome.server != self._server:
            self._server, self._servers = welcome.server, self._servers + 1
        self._reconnections += connection.was_up
        connection.handshake, connection.is_up, connection.was_up, connection.due = None, True, True, _NEVER
        self._was_welcomed = True
        self._trouble.pop(connection.worker, None)
        self._events.append(Ready(connection.worker))

    def _refuse(self, connection: _Connection, error: WireError) -> None:
        """Raise a refusal before the run has begun; later it is a lost connection.

        Raises:
            RunFailed: As the server will not have this run, or is none.
            _Lost: It may later, or the run has begun.
        """
        reason = f"refuses: {error}" if isinstance(error, Refused) else str(error)
        if not self._was_welcomed and not (isinstance(error, Refused) and error.again):
            raise RunFailed(f"the policy server at {self._address.text} {reason}") from None
        raise _Lost(reason)

    # Using and losing them.

    def _handle(self, connection: _Connection, ready: int) -> None:
        end = connection.end
        if end is None:
            return  # lost in this round
        try:
            if connection.is_connecting:
                if failed := end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(failed, "")
                self._greet(connection)
                return
            if ready & selectors.EVENT_WRITE and connection.unsent is not None:
                self._send(connection)
                if connection.unsent is None:
                    self._selector.modify(end, selectors.EVENT_READ, connection)
            if ready & selectors.EVENT_READ:
                self._shake(connection) if connection.handshake is not None else self._hear(connection)
        except BlockingIOError:
            return
        except (OSError, WireError, _Lost) as error:
            self._lose(connection, _why(error))

    def _send(self, connection: _Connection) -> None:
        """Send what is unsent, as much as the network takes."""
        assert connection.end is not None and connection.unsent is not None
        try:
            sent = connection.end.send(connection.unsent)
        except BlockingIOError:
            return
        if sent < len(connection.unsent):
            connection.unsent = connection.unsent[sent:]
        else:
            connection.unsent = None
            self._unsent -= 1

    def _hear(self, connection: _Connection) -> None:
        """Take what came on a connection that is up."""
        try:
            self._receive(connection)
        except BlockingIOError:
            return
        except RunFailed:
            raise
        except Exception as error:  # a run does not end over what somebody answers
            self._lose(connection, _why(error))

    def _receive(self, connection: _Connection) -> None:
        """Take what came of an answer; nothing may come but the answer to the ticket."""
        end, got, ticket, answer = connection.end, connection.got, connection.ticket, connection.answer
        assert end is not None
        count = end.recv_into(connection.buffer[got:] if got else connection.buffer)
        here = time.monotonic_ns()
        if not count:
            raise _Lost("closed the connection")
        connection.got = got = got + count
        if ticket is None or connection.unsent is not None:
            raise WireError("sent an answer to no ticket")
        is_answer = got == self._answers.answer_bytes and answer.data.startswith(connection.expected)
        if not is_answer and not self._is_whole(connection, ticket):
            return
        connection.ticket = None
        if is_answer or answer.data.startswith(connection.expected):
            self._take_answer(connection, ticket, here)
        else:
            self._take_text(connection, ticket, here)

    def _is_whole(self, connection: _Connection, ticket: Ticket) -> bool:
        """Check what came so far of whatever is not, or not yet, an action; return whether it is a record.

        Raises:
            WireError: It is none that answers the ticket.
        """
        if connection.got < HEADER.size:
            return False
        header = checked(connection.buffer, self._answers.sizes)
        if header.number != ticket.number:
            raise WireError(f"answered ticket {header.number}, and was asked ticket {ticket.number}")
        if header.incarnation != connection.incarnation & 0xFFFFFFFF:
            asked = f"incarnation {connection.incarnation & 0xFFFFFFFF}"
            raise WireError(
                f"answered ticket {header.number} of incarnation {header.incarnation}, and was asked {asked}"
            )
        if connection.got > HEADER.size + header.size:
            raise WireError("sent more than an answer")
        return connection.got == HEADER.size + header.size

    def _take_answer(self, connection: _Connection, ticket: Ticket, here: int) -> None:
        """Make an event of an answer."""
        action, extras = connection.answer.read()
        try:
            action = as_action(self._space, action)  # the server has done so too, but who knows what it is
        except RefusedAction as reason:
            what = "element" if self._encodes else "action"
            refused = refusal(f"worker {connection.worker}", action, self._space, reason, what)
            self._finish(connection, ticket, here, Fate.REFUSED, refused, extras)
        else:
            self._finish(connection, ticket, here, Fate.DONE, action, extras)

    def _take_text(self, connection: _Connection, ticket: Ticket, here: int) -> None:
        """Make an event of a refusal; a failure is a lost connection."""
        header = checked(connection.buffer, self._answers.sizes)
        text = bytes(connection.buffer[HEADER.size : HEADER.size + header.size])
        if header.kind == Kind.FAILED:
            self._note_failure(connection, printable(text))
        self._finish(connection, ticket, here, Fate.REFUSED, printable(text, 1000), None)

    def _finish(self, connection: _Connection, ticket: Ticket, here: int, fate: Fate, action: Any, extras: Any) -> None:
        # Where this end stood still nobody knows when the answer was here, so that time is left out.
        sent, ended = connection.sent, here - connection.excused
        if ended - sent > self._longest:
            self._longest = ended - sent
            self._limit = max(int(self._times * self._longest), self._least)
        connection.has_answered, connection.failures, connection.pause = True, 0, _PAUSES[0]
        connection.due = _NEVER
        trip = None if connection.excused else RoundTrip(self._servers, sent, *connection.answer.times, here)
        self._events.append(Finished(connection.worker, ticket.number, sent, ended, fate, action, 0, extras, 0, trip))

    def _note_failure(self, connection: _Connection, text: str) -> None:
        """Let an exception of the policy's pass as a lost worker, unless it does nothing else.

        Raises:
            RunFailed: It has raised again and again, and never answered between.
            _Lost: Else.
        """
        connection.failures += 1
        first, _, traceback = text.partition("\n")
        if connection.failures > _FAILURES:
            error = RunFailed(f"the policy at {self._address.text} raised {first}")
            error.add_note(f"raised in worker {connection.worker} of the server; its traceback:\n{traceback}")
            raise error
        raise _Lost(f"reports that its policy raised {first}")

    def _lose(self, connection: _Connection, why: str) -> None:
        """Close a connection, tell the loop if it was up, and set the time of the next attempt."""
        now, was_up = time.monotonic_ns(), connection.is_up
        if connection.end is not None:
            self._selector.unregister(connection.end)
            connection.end.close()
        self._unsent -= connection.unsent is not None
        connection.end = connection.handshake = connection.ticket = connection.unsent = None
        connection.is_up = connection.is_connecting = False
        connection.due = now + connection.pause
        connection.pause = min(2 * connection.pause, _PAUSES[1])
        self._next = min(self._next, connection.due)
        sentence = f"the policy server at {self._address.text} {why}{self._own_part(now)}"
        self._trouble[connection.worker] = sentence
        if was_up:
            connection.incarnation += 1
            self._events.append(Finished(connection.worker, -1, now, now, Fate.LOST, None, 0))
        if self._was_welcomed and self._reasons.is_new(why):
            self._warns(f"{sentence}; worker {connection.worker} connects again, and frames go on without it")

    def _own_part(self, now: int) -> str:
        """Return the end of a sentence on a loss, if this end has not kept the connection either."""
        ended, still = self._stood
        if slept := self._standstill.slept():
            return f" after this machine slept for {slept / 1e9:.1f} s"
        return f" after this process itself stood still for {still / 1e9:.1f} s" if now - ended < _RECENT else ""


def _why(error: Exception) -> str:
    """Return the end of a sentence about the server."""
    if isinstance(error, OSError):
        return f"is not reached: {os.strerror(error.errno) if error.errno else error}"
    known = isinstance(error, WireError | _Lost)
    return str(error) if known else f"sent an answer that this end cannot read: {named(error)}"


# Which reasons of lost connections are warned of: the first of each kind, and no more kinds than a person reads.


MOST_KINDS = 20  # that one run warns of, since the other end may give any reason
# What differs among reasons of one kind: quoted words of the other end, names in hexadecimal, and numbers.
_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|\b(?=[0-9a-f]*[0-9])[0-9a-f]{6,}\b|[0-9.]+")


class Reasons:
    """The kinds of reasons that have been told."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def is_new(self, why: str) -> bool:
        """Return whether a reason is the first of its kind, and note it; False once `MOST_KINDS` have been told."""
        kind = _VARIES.sub("0", why)[:200]
        if kind in self._told or len(self._told) >= MOST_KINDS:
            return False
        self._told.add(kind)
        return True
