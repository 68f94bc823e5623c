"""The loop's end of the wire by itself: frames that leave in pieces, answers that come so, servers that are wrong."""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.memory.exchange import Fate, Finished, Ticket, ticket_of
from async_wrappers.live.memory.layout import SharedLayout
from async_wrappers.live.remote import remote_transport as transport_module
from async_wrappers.live.remote.address import Address
from async_wrappers.live.remote.handshake import Declared, ServerHandshake, Welcome
from async_wrappers.live.remote.remote_transport import RemotePolicy, RemoteTransport
from async_wrappers.live.remote.wire import Answers, Kind, TicketRecords, encoded
from async_wrappers.live.report.journey import parts_ms
from async_wrappers.live.run_spec import LoopConfig
from async_wrappers.schedule.stagger import NoStagger
from tests.worlds.served import PATIENCE

CASES = int(os.environ.get("HYPOTHESIS_CASES", "150"))
LARGE = gym.spaces.Box(0, 255, (1 << 20,), np.uint8)  # more than the network takes at once
SMALL = gym.spaces.Box(0, 9, (2,), np.int64)
ACTIONS = gym.spaces.Discrete(1_000)


class Served:
    """A server by hand: greets each connection, and reads when it is told to."""

    def __init__(self, space: gym.Space[Any], workers: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.ends: dict[int, socket.socket] = {}
        self.tickets, self.answers = TicketRecords(space), Answers(ACTIONS)
        self._workers = workers
        threading.Thread(target=self._greet, daemon=True).start()

    def _greet(self) -> None:
        with suppress(OSError):
            while True:
                end, _ = self.listener.accept()
                end.settimeout(PATIENCE)
                handshake = ServerHandshake(Declared(), Welcome("by hand", self._workers))
                while (wants := handshake.wants()) and (data := end.recv(wants)):
                    if said := handshake.receive(data):
                        end.sendall(said)
                if handshake.hello is not None:  # else a busy machine let it take too long, and it is made again
                    self.ends[handshake.hello.worker] = end
                    end.sendall(handshake.welcome())

    def read(self, worker: int) -> tuple[Ticket, Any]:
        record = self.tickets.record()
        view = memoryview(record.data)
        while len(view):
            view = view[self.ends[worker].recv_into(view) :]
        assert record.is_whole(len(record.data))
        return record.read()

    def answer(self, worker: int, ticket: Ticket, action: int) -> None:
        self.ends[worker].sendall(self.answers.record().write(ticket, (0, 0, 0, 0), action, None))


@contextmanager
def pair(space: gym.Space[Any], workers: int, warns: Any = print) -> Iterator[tuple[RemoteTransport, Served]]:
    """Give both ends of `workers` connections."""
    server = Served(space, workers)
    layout = SharedLayout(space, ACTIONS, workers, learners=0, journal_capacity=8)
    remote = RemotePolicy(Address.of("address", server.address))
    transport = RemoteTransport(layout, LoopConfig(workers, 50, NoStagger()), remote, warns)
    try:
        assert {each.worker for each in events(transport, workers) if isinstance(each, Ready)} == set(range(workers))
        yield transport, server
    finally:
        transport.close()
        server.listener.close()
        for end in server.ends.values():
            end.close()


def events(transport: RemoteTransport, count: int) -> list[Ready | Finished]:
    """Return the next events, as many as that."""
    found: list[Ready | Finished] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < deadline:
        found += transport.collect(time.monotonic_ns() + 10_000_000)
    return found


def ticket(number: int) -> Ticket:
    return ticket_of(0, number, 0, number, number, False)


def test_frames_that_leave_in_pieces_arrive_as_they_were_shown() -> None:
    with pair(LARGE, 3) as (transport, server):
        for connection in transport._connections:
            assert connection.end is not None
            connection.end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        found: dict[int, tuple[Ticket, Any]] = {}

        def read(worker: int) -> None:
            found[worker] = server.read(worker)
            server.answer(worker, found[worker][0], worker)

        transport.show(1, np.full(LARGE.shape, 1, np.uint8))
        transport.start(0, ticket(1))
        transport.start(1, ticket_of(0, 1, 0, 1, 7, False))  # of the same frame, while the first has not left
        transport.show(2, np.full(LARGE.shape, 2, np.uint8))
        transport.start(2, ticket(2))
        transport.show(3, np.full(LARGE.shape, 3, np.uint8))
        assert transport._unsent == 3
        readers = [threading.Thread(target=read, args=(worker,)) for worker in range(3)]
        for reader in readers:
            reader.start()
        finished = events(transport, 3)
        for reader in readers:
            reader.join(PATIENCE)
        assert {(each.worker, each.number, each.action) for each in finished if isinstance(each, Finished)} == {
            *{(0, 1, 0), (1, 1, 1), (2, 2, 2)}
        }
        for worker, (number, frame) in enumerate(((1, 1), (1, 7), (2, 2))):
            told, shown = found[worker]
            assert (told.number, told.decision.frame) == (number, frame)
            assert (shown == number).all()


def test_an_answer_that_comes_byte_by_byte_is_one_answer() -> None:
    with pair(SMALL, 1) as (transport, server):
        transport.show(5, np.array([1, 2]))
        transport.start(0, ticket(5))
        told, shown = server.read(0)
        assert (told, shown.tolist()) == (ticket(5), [1, 2])
        for byte in bytes(server.answers.record().write(told, (1, 2, 3, 4), 99, None)):
            assert transport.collect(0) == []
            server.ends[0].sendall(bytes([byte]))
            time.sleep(0.001)
        (finished,) = events(transport, 1)
        assert isinstance(finished, Finished)
        assert (finished.fate, finished.action, finished.trip[2:6]) == (Fate.DONE, 99, (1, 2, 3, 4))  # type: ignore[index]


def test_losses_that_differ_in_numbers_alone_are_told_once() -> None:
    told: list[str] = []
    with pair(SMALL, 1, told.append) as (transport, server):
        for number in (11, 12, 13):
            transport.show(number, np.array([1, 2]))
            transport.start(0, ticket(number))
            asked, _ = server.read(0)
            server.answer(0, asked._replace(number=number + 100), 5)
            lost, again = events(transport, 2)
            assert isinstance(lost, Finished)
            assert lost.fate == Fate.LOST
            assert isinstance(again, Ready)
    assert len(told) == 1
    assert "answered ticket 111, and was asked ticket 11; worker 0 connects again" in told[0]


def test_a_family_of_addresses_that_the_machine_has_not_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Address.resolved
    monkeypatch.setattr(Address, "resolved", lambda address: [(9_999, ("here", 1)), *found(address)])
    with pair(SMALL, 1) as (transport, _):
        assert transport.trouble is None


@contextmanager
def by_hand(extras: gym.spaces.Dict | None = None) -> Iterator[RemoteTransport]:
    """Give a transport whose connections a test makes, of Box actions."""
    space = gym.spaces.Box(-1, 1, (2,), np.float32)
    layout = SharedLayout(SMALL, space, 1, learners=0, journal_capacity=8, extras=extras)
    remote = RemotePolicy(Address.of("address", "tcp://127.0.0.1:1"))
    transport = RemoteTransport(layout, LoopConfig(1, 50, NoStagger()), remote, lambda sentence: None)
    transport._was_welcomed = True  # the run goes on
    try:
        yield transport
    finally:
        transport.close()


def asked(transport: RemoteTransport, number: int) -> socket.socket:
    """Return the other end of a new connection, which has been asked a ticket."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = transport._connections[0]
    connection.end, connection.handshake, connection.is_connecting, connection.is_up = ours, None, False, True
    transport._selector.register(ours, selectors.EVENT_READ, connection)
    transport.show(number, np.array([1, 2]))
    transport.start(0, ticket(number))
    return theirs


halves = st.binary(max_size=200) | st.builds(
    lambda kind, number, incarnation, times, payload: encoded(kind, payload, incarnation, number, times),
    st.sampled_from([Kind.ANSWER, Kind.REFUSED, Kind.FAILED, Kind.WELCOME]),
    st.sampled_from([7, 7, 7, 8, -(2**63)]),
    st.sampled_from([0, 0, 0, 1, 2**32 - 1]),
    st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 4),
    st.binary(max_size=24) | st.binary(min_size=8, max_size=8) | st.text().map(str.encode),
)


@settings(max_examples=CASES, deadline=None)
@given(st.lists(halves, min_size=1, max_size=2))
def test_whatever_a_stranger_answers_to_a_ticket_ends_no_run(records: list[bytes]) -> None:
    with by_hand() as transport:
        theirs = asked(transport, 7)
        with theirs:
            theirs.sendall(b"".join(records))
            theirs.shutdown(socket.SHUT_WR)
            for _ in range(4):
                for event in transport.collect(0):
                    assert isinstance(event, Finished)
                    assert event.fate in (Fate.LOST, Fate.DONE, Fate.REFUSED)
                    if event.fate == Fate.DONE:
                        assert np.isfinite(event.action).all()
            assert transport.trouble  # the connection has ended
            parts_ms(each.trip for each in transport._events if isinstance(each, Finished) and each.trip)


def test_an_exception_over_an_answer_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Any:
        raise OverflowError("of a number")

    with by_hand() as transport:
        monkeypatch.setattr(transport, "_take_answer", fail)
        with asked(transport, 7) as theirs:
            space = gym.spaces.Box(-1, 1, (2,), np.float32)
            answer = Answers(space).record().write(ticket(7), (0, 0, 0, 0), np.zeros(2, np.float32), None)
            theirs.sendall(answer)
            (lost,) = transport.collect(0)
        assert isinstance(lost, Finished)
        assert lost.fate == Fate.LOST
        assert transport.trouble is not None
        assert transport.trouble.endswith("sent an answer that this end cannot read: OverflowError: of a number")


@pytest.mark.parametrize(
    ("number", "incarnation", "sentence"),
    [
        (3, 1, "answered ticket 3 of incarnation 1, and was asked incarnation 0"),
        (4, 0, "answered ticket 4, and was asked ticket 3"),
    ],
)
def test_an_answer_to_another_ticket_or_of_another_incarnation_is_named(
    number: int, incarnation: int, sentence: str
) -> None:
    with by_hand() as transport, asked(transport, 3) as theirs:
        theirs.sendall(encoded(Kind.REFUSED, b"no", incarnation, number))
        assert [each.fate for each in transport.collect(0) if isinstance(each, Finished)] == [Fate.LOST]
        assert transport.trouble is not None
        assert transport.trouble.endswith(sentence)


class Clock:
    """The real clock, of which time can be left out: this process was stopped."""

    def __init__(self) -> None:
        self.stopped = 0

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self.stopped


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(transport_module, "time", found)
    return found


def test_an_answer_that_came_while_this_end_stood_still_is_neither_late_nor_slow(clock: Clock) -> None:
    warnings: list[str] = []
    with pair(SMALL, 2, warnings.append) as (transport, server):
        transport.show(1, np.array([1, 2]))
        for worker in range(2):
            transport.start(worker, ticket(1))
        told, _ = server.read(0)
        server.answer(0, told, 7)
        clock.stopped += 30_000_000_000
        assert all(each.fate == Fate.DONE for each in transport.collect(0) if isinstance(each, Finished))
        told, _ = server.read(1)
        server.answer(1, told, 8)
        deadline = time.monotonic() + PATIENCE
        while any(each.ticket is not None for each in transport._connections) and time.monotonic() < deadline:
            for each in transport.collect(clock.monotonic_ns() + 10_000_000):
                assert isinstance(each, Finished) and each.fate == Fate.DONE and each.trip is None
                assert each.ended - each.began < 25_000_000_000
        assert warnings == [] and transport._longest < 25_000_000_000


def test_a_server_that_is_silent_after_a_standstill_has_its_usual_time_and_is_then_named(clock: Clock) -> None:
    warnings: list[str] = []
    with pair(SMALL, 1, warnings.append) as (transport, server):
        transport.show(1, np.array([1, 2]))
        transport.start(0, ticket(1))
        server.read(0)
        transport._connections[0].due = clock.monotonic_ns() + 400_000_000  # as one that has answered before
        clock.stopped += 30_000_000_000
        assert transport.collect(0) == [] and warnings == []
        clock.stopped += 450_000_000  # less than counts as a standstill
        (lost,) = transport.collect(0)
        assert isinstance(lost, Finished) and lost.fate == Fate.LOST
        (sentence,) = warnings
        assert "has not answered for 0." in sentence
        assert "after this process itself stood still for 30.0 s; worker 0 connects again" in sentence


def test_a_connection_that_was_lost_in_a_standstill_is_laid_at_this_ends_door(clock: Clock) -> None:
    warnings: list[str] = []
    with pair(SMALL, 1, warnings.append) as (transport, server):
        server.ends[0].close()
        clock.stopped += 5_000_000_000
        (lost,) = events(transport, 1)
        assert isinstance(lost, Finished) and lost.fate == Fate.LOST
        assert "closed the connection after this process itself stood still for 5.0 s" in warnings[0]
