"""`SharedTransport` and `Worker`: tickets, messages, and workers that die and come back."""

from __future__ import annotations

import fcntl
import resource
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from async_wrappers.live.inference import transport as transport_module
from async_wrappers.live.inference.transport import Ready, SharedTransport
from async_wrappers.live.inference.worker import FINISHED, MESSAGE, READY, TICKET, Worker, infer
from async_wrappers.live.memory.exchange import Fate, Finished, Ticket, ticket_of
from async_wrappers.live.memory.layout import SharedLayout, SharedMemory
from async_wrappers.policy import Decision

SPACE, ACTIONS, DEPTH = Box(-1, 10**9, (2,), np.int64), Discrete(5), 64
PATIENCE = 60_000_000_000  # nanoseconds


def soon() -> int:
    """Return a time until which all that is to happen has happened."""
    return time.monotonic_ns() + PATIENCE


class Setting:
    """A transport of two workers, and the workers' ends."""

    def __init__(self) -> None:
        self.layout, self.memory = SharedLayout(SPACE, ACTIONS, 2, 0, 0), SharedMemory.private()
        self.layout.resize(self.memory)
        self.ring, self.slots = self.layout.ring(self.memory), self.layout.slots(self.memory)
        self.controls = self.layout.controls(self.memory)
        pairs = [socket.socketpair() for _ in range(2)]
        self.inboxes = [theirs for _, theirs in pairs]
        messages, self.outbox = socket.socketpair()
        self.sockets = [each for pair in pairs for each in pair] + [messages, self.outbox]
        self.loop_ends = [ours for ours, _ in pairs]  # of the inboxes
        self.transport = SharedTransport(self.layout, self.memory, self.loop_ends, messages)

    def say(self, worker: int, incarnation: int, what: int) -> None:
        self.outbox.sendall(MESSAGE.pack(worker, incarnation, what))

    def ticket_of(self, worker: int) -> Ticket:
        return ticket_of(*TICKET.unpack(self.inboxes[worker].recv(TICKET.size)))

    def collect(self) -> list[tuple[int, Any, int]]:
        """Return (worker, fate or None for ready, number) of what has happened."""
        events = self.transport.collect(0)
        return [(e.worker, None, 0) if isinstance(e, Ready) else (e.worker, e.fate, e.number) for e in events]


@pytest.fixture
def setting() -> Iterator[Setting]:
    made = Setting()
    yield made
    for each in made.sockets:
        each.close()


TICKET_OF_THE_LOOP = ticket_of(0, 3, 0, 3, 3, False)


def test_a_ticket_reaches_its_worker_and_its_action_comes_back(setting: Setting) -> None:
    setting.say(0, 0, READY)
    assert setting.collect() == [(0, None, 0)]
    setting.transport.start(0, TICKET_OF_THE_LOOP)
    assert setting.ticket_of(0) == TICKET_OF_THE_LOOP
    setting.slots.write(Finished(0, 3, 5, 6, Fate.DONE, 4, 0))
    setting.say(0, 0, FINISHED)
    assert setting.transport.collect(0) == [Finished(0, 3, 5, 6, Fate.DONE, 4, 0)]
    assert setting.collect() == []


def test_collect_wakes_as_soon_as_something_is_said(setting: Setting) -> None:
    threading.Timer(0.01, setting.say, (1, 0, READY)).start()
    assert setting.transport.collect(soon()) == [Ready(1)]


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Allow this process more descriptors than `select` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("ppoll", [True, False])
def test_its_descriptor_may_lie_above_those_that_select_takes(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, ppoll: bool
) -> None:
    """On a system with `ppoll`, and on one without."""
    if not ppoll:
        monkeypatch.setattr(transport_module.ctypes, "CDLL", lambda name: object())
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD, 1500)) as high:
        ours.close()
        setting.transport = SharedTransport(setting.layout, setting.memory, [], high)
        assert high.fileno() >= 1500
        assert setting.collect() == []
        begin = time.monotonic_ns()
        assert setting.transport.collect(begin + 1_300_000) == []
        assert time.monotonic_ns() >= begin + 1_300_000  # the beginning of a frame is not anticipated
        threading.Timer(0.01, theirs.sendall, (MESSAGE.pack(1, 0, READY),)).start()
        assert setting.transport.collect(soon()) == [Ready(1)]
        assert setting.collect() == []


def test_a_worker_that_dies_at_work_is_lost_with_its_ticket_and_may_come_back(setting: Setting) -> None:
    setting.transport.start(0, TICKET_OF_THE_LOOP)
    setting.controls.incarnations[0] = 1
    assert setting.collect() == [(0, Fate.LOST, -1)]
    setting.say(0, 1, READY)
    assert setting.collect() == [(0, None, 0)]


def test_a_worker_that_dies_idle_is_lost_too_so_that_it_is_not_free_twice(setting: Setting) -> None:
    setting.controls.incarnations[1] = 1
    setting.say(1, 1, READY)
    assert setting.collect() == [(1, Fate.LOST, -1), (1, None, 0)]


def test_what_a_dead_worker_said_is_not_heard(setting: Setting) -> None:
    setting.transport.start(0, TICKET_OF_THE_LOOP)
    setting.say(0, 0, FINISHED)
    setting.controls.incarnations[0] = 1
    assert setting.collect() == [(0, Fate.LOST, -1)]
    assert setting.collect() == []


def test_a_ticket_for_a_worker_whose_death_is_not_yet_known_is_not_its_successors(setting: Setting) -> None:
    setting.controls.incarnations[0] = 1  # the supervisor knows, the loop has not looked since
    setting.transport.start(0, TICKET_OF_THE_LOOP)
    assert setting.ticket_of(0).incarnation == 0  # so that its successor drops it
    assert setting.collect() == [(0, Fate.LOST, -1)]
    setting.say(0, 1, READY)
    assert setting.collect() == [(0, None, 0)]
    ticket = TICKET_OF_THE_LOOP._replace(number=4)
    setting.transport.start(0, ticket)
    assert setting.ticket_of(0) == ticket._replace(incarnation=1)


def test_two_deaths_between_two_looks_are_one_loss(setting: Setting) -> None:
    setting.transport.start(0, TICKET_OF_THE_LOOP)
    setting.say(0, 1, READY)
    setting.controls.incarnations[0] = 2
    assert setting.collect() == [(0, Fate.LOST, -1)]
    setting.say(0, 2, READY)
    assert setting.collect() == [(0, None, 0)]


def test_incarnations_may_go_on_past_what_a_message_holds(setting: Setting) -> None:
    setting.controls.incarnations[0] = 2**16 + 1
    setting.say(0, 1, READY)
    assert setting.collect() == [(0, Fate.LOST, -1), (0, None, 0)]


# The worker's side.


def run_worker(setting: Setting, policy: Any, tickets: list[Ticket], incarnation: int = 0) -> list[Finished]:
    """Let worker 0 work on these tickets, one after the other; return what became of them."""
    made = Worker(0, incarnation, policy, setting.layout, setting.memory, setting.inboxes[0], setting.outbox)
    setting.controls.incarnations[0] = incarnation
    setting.collect()
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        assert setting.transport.collect(soon()) == [Ready(0)]
        done = []
        for ticket in tickets:
            setting.transport.start(0, ticket)
            (event,) = setting.transport.collect(soon())
            assert isinstance(event, Finished)
            done.append(event)
        return done
    finally:
        setting.loop_ends[0].close()
        thread.join(60)
        assert not thread.is_alive()  # the other end's closing ends it


def test_a_worker_reads_its_tickets_frame_and_is_told_its_decision(setting: Setting) -> None:
    told: list[tuple[list[int], Decision]] = []

    class Policy:
        def act(self, observation: Any, decision: Decision) -> int:
            told.append((observation.tolist(), decision))
            observation[:] = 0  # its own copy
            return len(told)

    for number in range(3):
        setting.ring.write(number, np.array([number, 7]))
    tickets = [ticket_of(0, 2, 5, 8, 99, True), ticket_of(0, 2, 5, 8, 99, False)]
    done = run_worker(setting, Policy(), tickets)
    assert [(each.number, each.fate, each.action) for each in done] == [(2, Fate.DONE, 1), (2, Fate.DONE, 2)]
    assert told == [([2, 7], Decision(5, 8, 99, True)), ([2, 7], Decision(5, 8, 99, False))]
    assert all(each.began <= each.ended for each in done)


def test_a_frame_that_the_ring_has_passed_is_not_inferred(setting: Setting) -> None:
    for number in range(DEPTH + 1):
        setting.ring.write(number, np.array([number, 7]))
    done = run_worker(
        setting, lambda observation: 1, [ticket_of(0, 0, 0, 0, 0, False), ticket_of(0, 4, 0, 4, 4, False)]
    )
    assert [each.fate for each in done] == [Fate.PASSED, Fate.DONE]


def test_a_worker_drops_the_tickets_of_its_predecessor(setting: Setting) -> None:
    setting.ring.write(0, np.array([0, 0]))
    setting.transport.start(0, ticket_of(0, 0, 0, 0, 0, False))  # its predecessor dies before it has read it
    done = run_worker(setting, lambda observation: 3, [ticket_of(0, 0, 0, 0, 0, False)], incarnation=1)
    assert [(each.fate, each.action) for each in done] == [(Fate.DONE, 3)]


@pytest.mark.parametrize(
    ("action", "fate"), [(4, Fate.DONE), (5, Fate.REFUSED), (-1, Fate.REFUSED), (None, Fate.REFUSED)]
)
def test_an_action_outside_the_space_is_refused(action: Any, fate: Fate) -> None:
    assert infer(0, TICKET_OF_THE_LOOP, None, lambda observation, decision: action, ACTIONS).fate == fate
