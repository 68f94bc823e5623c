"""A worker of a policy server: makes a policy, and serves one connection after the other, in a process or a thread."""

from __future__ import annotations

import json
import multiprocessing.connection as pipes
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from async_wrappers.fleet.block import Block
from async_wrappers.fleet.child import as_child
from async_wrappers.live.inference.worker import infer
from async_wrappers.live.memory.exchange import Fate
from async_wrappers.live.remote.address import set_patience
from async_wrappers.live.remote.handshake import Hello
from async_wrappers.live.remote.wire import (
    HEADER,
    SENTENCE,
    Answers,
    Kind,
    Sizes,
    TicketRecord,
    TicketRecords,
    WireError,
    checked,
    encoded,
)
from async_wrappers.policy import as_act

LENGTH = struct.Struct("<I")
"""Goes before what a connection's other end has said, with its descriptor."""
_RECORD = 10  # seconds for which a record that has begun may not move; it may take twice that
_STUCK = 1  # seconds after which the desk is told that it does not


def run_process(payload: Block, door: socket.socket, threads: int, messages: pipes.Connection) -> None:
    """Run a worker in its process."""
    import cloudpickle

    with as_child(messages):
        with payload.content() as content:
            make_policy = cloudpickle.loads(content)
        _work(make_policy, door, messages, threads)


def run_thread(
    make_policy: Callable[[], Any], door: socket.socket, messages: pipes.Connection, raised: list[BaseException]
) -> None:
    """Run a worker in a thread; the policy is made anew after an exception, by the next thread.

    Args:
        make_policy: Makes the policy.
        door: Where connections come in.
        messages: Where the desk hears of it.
        raised: Receives the exception that ends it, which need not be one that can be pickled.
    """
    with door, messages:
        try:
            _work(make_policy, door, messages)
        except BaseException as error:
            raised.append(error)
            with suppress(OSError):
                messages.send(("failed", None, traceback.format_exc()))


def _work(
    make_policy: Callable[[], Any], door: socket.socket, messages: pipes.Connection, threads: int | None = None
) -> None:
    """Make the policy, then serve one connection after the other."""
    policy = make_policy()
    torch = sys.modules.get("torch")
    if torch is not None and threads is not None:
        torch.set_num_threads(threads)
    while True:
        with suppress(BrokenPipeError):
            messages.send(("ready",))
        visited = _next_visitor(door)
        if visited is None:
            return
        end, hello = visited
        raised = None
        with end, suppress(OSError, WireError):  # then it is of no more use; the loop at its other end says why
            set_patience(end, _STUCK)
            raised = _serve(end, hello, _act_of(policy, hello), lambda is_stuck: messages.send(("stuck", is_stuck)))
            end.shutdown(socket.SHUT_RDWR)  # the desk has a copy of the descriptor
        if raised is not None:
            raise raised


def _next_visitor(door: socket.socket) -> tuple[socket.socket, Hello] | None:
    """Return the next connection and what it said; None if the desk is gone."""
    with suppress(OSError):
        length, descriptors, _, _ = socket.recv_fds(door, LENGTH.size, 1)
        if not length or not descriptors:
            return None
        end = socket.socket(fileno=descriptors[0])
        size: int = LENGTH.unpack(length)[0]
        hello = door.recv(size, socket.MSG_WAITALL)
        return end, Hello.of(json.loads(hello))
    return None


def _act_of(policy: Any, hello: Hello) -> Callable[..., Any]:
    """Return the function that answers; if the policy is none of the kind, one that says so."""
    try:
        return as_act(policy, splits=hello.has_features)
    except ValueError as error:
        refused = error

    def refuse(observation: Any, decision: Any) -> None:
        raise refused

    return refuse


class _Record:
    """How long a record has been on its way, once it is found to need more than one call.

    Args:
        tell: Tells the desk whether it is stuck, so that the connection can make room for one that waits.
    """

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell, self._is_told = tell, False
        self._began = self._moved = time.monotonic()

    def moves(self) -> None:
        """Note that some of it has come or gone.

        Raises:
            WireError: It has taken too long.
        """
        self._moved = time.monotonic()
        self._say(False)
        if self._moved - self._began > 2 * _RECORD:
            raise WireError(f"took more than {2 * _RECORD} s for a record")

    def waits(self) -> None:
        """Note that none has for a while.

        Raises:
            WireError: It has been so for too long.
        """
        if time.monotonic() - self._moved > _RECORD:
            raise WireError(f"stopped for {_RECORD} s within a record")
        self._say(True)

    def _say(self, is_stuck: bool) -> None:
        if is_stuck != self._is_told:
            self._is_told = is_stuck
            self._tell(is_stuck)


def _serve(end: socket.socket, hello: Hello, act: Callable[..., Any], tell: Callable[[bool], None]) -> Exception | None:
    """Answer tickets until the connection ends, or the policy raises: return what, of which the other end is told.

    Raises:
        WireError: Something else came, or a record stopped in its middle.
        OSError: The connection failed.
    """
    tickets, answers = TicketRecords(hello.observation_space), Answers(hello.answers, hello.extras)
    record, answer = tickets.record(), answers.record()
    worker, space, extras, has_features = hello.worker, hello.answers, hello.extras, hello.has_features
    while _receive(end, record, tickets.sizes, tell):
        received = time.monotonic_ns()
        ticket, observation = record.read()
        try:
            finished = infer(worker, ticket, observation, act, space, None, extras, has_features)
        except Exception as error:
            text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            with suppress(OSError):
                _send(end, _text(Kind.FAILED, text, ticket.incarnation, ticket.number), tell)
            return error
        times = received, finished.began, finished.ended, time.monotonic_ns()
        if finished.fate == Fate.DONE:
            _send(end, answer.write(ticket, times, finished.action, finished.extras), tell)
        else:
            _send(end, _text(Kind.REFUSED, str(finished.action), ticket.incarnation, ticket.number, times), tell)
    return None


def _send(end: socket.socket, data: bytes | memoryview, tell: Callable[[bool], None]) -> None:
    """Send a record.

    Raises:
        WireError: The other end does not take it.
    """
    with suppress(BlockingIOError):
        if (sent := end.send(data)) == len(data):
            return
        data = memoryview(data)[sent:]
    record = _Record(tell)
    while data:
        try:
            data = memoryview(data)[end.send(data) :]
        except BlockingIOError:
            record.waits()
        else:
            record.moves()


def _text(kind: Kind, text: str, incarnation: int, number: int, times: tuple[int, int, int, int] = (0,) * 4) -> bytes:
    return encoded(kind, text.encode(errors="replace")[:SENTENCE], incarnation, number, times)


def _receive(end: socket.socket, record: TicketRecord, sizes: Sizes, tell: Callable[[bool], None]) -> bool:
    """Read a whole ticket; return False if the connection ends before it.

    Raises:
        WireError: Another record comes, or this one is cut, or stops.
    """
    while True:
        try:
            got = end.recv_into(record.data)
        except BlockingIOError:  # the patience of the connection
            continue
        if record.is_whole(got):
            return True
        if not got:
            return False
        _receive_rest(end, memoryview(record.data), got, sizes, tell)
        return True


def _receive_rest(end: socket.socket, data: memoryview, got: int, sizes: Sizes, tell: Callable[[bool], None]) -> None:
    """Read the rest of a record that has begun; its header is checked as soon as it is there.

    Raises:
        WireError: See `_receive`.
    """
    record, is_checked = _Record(tell), False
    while True:
        if got >= HEADER.size and not is_checked:
            checked(data, sizes)
            is_checked = True
        if got == len(data):
            return
        try:
            count = end.recv_into(data[got:], 0, socket.MSG_WAITALL if is_checked else 0)
        except BlockingIOError:
            record.waits()
            continue
        if not count:
            raise WireError("ended within a record")
        got += count
        record.moves()
