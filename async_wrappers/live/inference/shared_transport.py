"""The transport of the thread and the process backend: a frame ring, one action slot per worker, and sockets."""

from __future__ import annotations

import ctypes
import select
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.inference.worker import MESSAGE, READY, TICKET
from async_wrappers.live.memory.frame_ring import FrameRing
from async_wrappers.live.memory.slots import ActionSlots, Controls, Fate, Finished, Ticket

__all__ = ["SharedTransport"]


class SharedTransport:
    """The environment loop's end.

    Args:
        ring: Where frames go.
        slots: Where actions come from.
        controls: Where the supervisor notes that a worker was restarted.
        inboxes: By worker: where its tickets go.
        outbox: Where all workers' messages come from.
    """

    def __init__(
        self,
        ring: FrameRing,
        slots: ActionSlots,
        controls: Controls,
        inboxes: Sequence[socket.socket],
        outbox: socket.socket,
    ) -> None:
        """See the class."""
        self._ring, self._slots, self._controls = ring, slots, controls
        self._inboxes, self._outbox = inboxes, outbox
        outbox.setblocking(False)
        self._wait = _wait_for(outbox)
        self._incarnations = controls.incarnations.copy()

    def publish(self, number: int, observation: Any) -> None:
        """Put a frame into the ring."""
        self._ring.write(number, observation)

    def start(self, worker: int, ticket: Ticket) -> None:
        """Send a ticket; one for a worker that has just died is lost, and said to be."""
        # For the worker that the loop knows of: its successor drops the ticket, as the loop will hear that it is lost.
        ticket = ticket._replace(incarnation=int(self._incarnations[worker]))
        self._inboxes[worker].sendall(TICKET.pack(*ticket))

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return what has happened; wait for it until a time of the monotonic clock."""
        messages = self._receive() if self._wait(until - time.monotonic_ns()) else []
        events: list[Ready | Finished] = self._losses()
        for worker, incarnation, what in messages:
            if incarnation != int(self._incarnations[worker]) & 0xFFFF:
                continue  # said by one that is dead
            if what == READY:
                events.append(Ready(worker))
            else:
                events.append(self._slots.read(worker))
        return events

    def _receive(self) -> list[tuple[int, int, int]]:
        try:
            data = self._outbox.recv(MESSAGE.size * 4096)
        except BlockingIOError:
            return []
        return list(MESSAGE.iter_unpack(data))

    def _losses(self) -> list[Ready | Finished]:
        """Return who has died since the last call."""
        now = self._controls.incarnations
        if (now == self._incarnations).all():
            return []
        lost: list[Ready | Finished] = []
        for worker in (now != self._incarnations).nonzero()[0].tolist():
            self._incarnations[worker] = now[worker]
            instant = time.monotonic_ns()
            lost.append(Finished(worker, -1, instant, instant, Fate.LOST, None, 0))
        return lost


class _Descriptor(ctypes.Structure):
    """Of `ppoll`: what is waited for, and what has happened."""

    _fields_ = (("descriptor", ctypes.c_int), ("events", ctypes.c_short), ("happened", ctypes.c_short))


class _Time(ctypes.Structure):
    """Of `ppoll`: a length of time."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _wait_for(end: socket.socket) -> Callable[[int], bool]:
    """Return a function that waits for so many nanoseconds; earlier it returns true, if there is something to read.

    `select` takes no descriptor above 1,023, which a run of 500 workers has; Python's `poll` and `epoll` count whole
    milliseconds, which is too coarse for the beginnings of frames. `ppoll` takes any descriptor, and nanoseconds; so
    does kqueue, which `selectors` takes where there is no `ppoll`.
    """
    ppoll = getattr(ctypes.CDLL(None), "ppoll", None) if hasattr(select, "poll") else None  # not on Windows
    if ppoll is None:
        selector = selectors.DefaultSelector()
        selector.register(end, selectors.EVENT_READ)
        return lambda nanoseconds: bool(selector.select(max(nanoseconds, 0) / 1e9))
    ppoll.argtypes = (ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p)
    waited, length = _Descriptor(end.fileno(), select.POLLIN), _Time()
    arguments = (ctypes.byref(waited), 1, ctypes.byref(length), None)
    at_once = select.poll()  # quicker than a call through ctypes
    at_once.register(end, select.POLLIN)

    def wait(nanoseconds: int) -> bool:
        if nanoseconds <= 0:
            return bool(at_once.poll(0))
        length.seconds, length.nanoseconds = divmod(nanoseconds, 1_000_000_000)
        return bool(ppoll(*arguments) > 0)  # -1: interrupted by a signal, so there is nothing yet

    return wait
