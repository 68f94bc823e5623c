"""Transports carry observations to workers and actions back: their interface, and one for each kind of clock.

`SharedTransport` serves the thread and the process backend: a frame ring, one action slot per worker, and sockets. In a
`VirtualTransport` workers infer in this thread, and a model says when each inference ends.
"""

from __future__ import annotations

import ctypes
import heapq
import select
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from async_wrappers.latency import Latency
from async_wrappers.live.inference.worker import MESSAGE, READY, TICKET, WeightsLoader, infer
from async_wrappers.live.memory.exchange import Fate, Finished, Ticket, told
from async_wrappers.live.memory.layout import SharedLayout, SharedMemory
from async_wrappers.live.memory.weights import WeightsBoard
from async_wrappers.policy import as_act

if TYPE_CHECKING:
    from _typeshed import HasFileno

    from async_wrappers.live.learning.learner import VirtualLearners

_INFERENCES = 0x1A7E  # makes an episode's latencies independent of other draws from its seed


class Ready(NamedTuple):
    """A worker has come up, for the first time or, after it was lost, again."""

    worker: int


class Transport(Protocol):
    """Carries frames to workers and actions back; used by the environment loop alone.

    Each worker is `Ready` once; from then on each ticket is answered by one `Finished`. A worker that has died, with a
    ticket or without, gives a `Finished` of fate LOST and number -1, and may be ready again after that.
    """

    def show(self, number: int, observation: Any) -> None:
        """Show the newest frame, of which workers must read a copy; numbers go up by one."""

    def start(self, worker: int, ticket: Ticket) -> None:
        """Let a ready worker infer the frame of a ticket."""

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return the events since the last call, or wait for one until that monotonic time in nanoseconds."""


class SharedTransport:
    """The environment loop's end.

    Args:
        layout: Of the memory.
        memory: Holds the ring of frames, which is cleared, the actions, and the supervisor's notes of restarts.
        inboxes: By worker: where its tickets go.
        outbox: Where all workers' messages come from.
    """

    def __init__(
        self, layout: SharedLayout, memory: SharedMemory, inboxes: Sequence[socket.socket], outbox: socket.socket
    ) -> None:
        self._ring, self._slots, self._controls = layout.ring(memory), layout.slots(memory), layout.controls(memory)
        self._ring.clear()
        self._inboxes, self._outbox = inboxes, outbox
        outbox.setblocking(False)
        self._wait = wait_for(outbox)
        self._incarnations: list[int] = self._controls.incarnations.tolist()
        self._told = self._controls.incarnations.tobytes()  # the same, as they lie in shared memory

    def show(self, number: int, observation: Any) -> None:
        """Put a frame into the ring."""
        self._ring.write(number, observation)

    def start(self, worker: int, ticket: Ticket) -> None:
        """Send a ticket; a ticket for a worker that has just died is reported as lost."""
        # For the worker that the loop knows: its successor drops the ticket, as the loop will hear of the loss.
        self._inboxes[worker].sendall(TICKET.pack(self._incarnations[worker], ticket.number, *told(ticket.decision)))

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return the events since the last call, or wait for one until a time of the monotonic clock."""
        messages = self._receive() if self._wait(until - time.monotonic_ns()) else []
        events: list[Ready | Finished] = self._losses()
        for worker, incarnation, what in messages:
            if incarnation != self._incarnations[worker] & 0xFFFF:
                continue  # from a worker that has died
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
        """Return the losses of workers that have died since the last call."""
        told = self._controls.incarnations.tobytes()
        if told == self._told:
            return []
        now, instant = np.frombuffer(told, np.int64).tolist(), time.monotonic_ns()
        died = [worker for worker, known in enumerate(self._incarnations) if known != now[worker]]
        self._incarnations, self._told = now, told
        return [Finished(worker, -1, instant, instant, Fate.LOST, None, 0) for worker in died]


class _Descriptor(ctypes.Structure):
    """Of `ppoll`: a descriptor, the events to wait for, and those that came."""

    _fields_ = (("descriptor", ctypes.c_int), ("events", ctypes.c_short), ("happened", ctypes.c_short))


class _Time(ctypes.Structure):
    """Of `ppoll`: a length of time."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def wait_for(end: HasFileno) -> Callable[[int], bool]:
    """Return a function that waits for a number of nanoseconds; it returns true earlier if there is something to read.

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


class VirtualTransport:
    """Workers on a clock that stands still until `advance` moves it.

    An inference is computed when it starts, so that it reads the frame and the weights of that moment, and it has ended
    when its latency has passed. Latencies are drawn in the order of starts; they begin anew with each episode, from its
    seed, as those of `SimulatedSchedule` do.

    Args:
        policies: By worker.
        action_space: A policy's answers are converted to it, or refused.
        latency: How long an inference takes.
        learners: Learners beside the workers; None for none.
        board: Holds the newest weights; None without learners.
        extras: Space of the values that policies leave for the learner beside an action; None for none.
        features: Space of the features that policies with memory answer; None for policies without memory.

    Attributes:
        time: In nanoseconds.

    Raises:
        ValueError: An object that is no policy, or a policy that cannot load the weights that are learnt.
    """

    def __init__(
        self,
        policies: Sequence[Any],
        action_space: gym.Space[Any],
        latency: Latency,
        learners: VirtualLearners | None = None,
        board: WeightsBoard | None = None,
        extras: gym.spaces.Dict | None = None,
        features: gym.Space[Any] | None = None,
    ) -> None:
        self._extras, self._encodes = extras, features is not None
        self._act = [as_act(policy, self._encodes) for policy in policies]
        self._answers = action_space if features is None else features
        self._latency, self._learners = latency, learners
        self._loaders = [] if board is None else [WeightsLoader(policy, board) for policy in policies]
        self.time = 0
        self._draw: Callable[[], int] = latency.stream(0).draw
        self._events: list[Ready | Finished] = [Ready(worker) for worker in range(len(policies))]
        self._end_of = [0] * len(policies)
        self._ends: list[tuple[int, int, Finished]] = []  # (when it ends, worker, its result), a heap
        self._shown: Any = None

    def now(self) -> int:
        """Return the time."""
        return self.time

    def restart(self, seed: int, now: int) -> None:
        """Begin an episode: its seed starts all latencies anew, and time is `now`."""
        self.time = now
        self._draw = self._latency.stream(np.random.SeedSequence((seed, _INFERENCES))).draw
        if self._learners is not None:
            self._learners.restart(seed)

    def show(self, number: int, observation: Any) -> None:
        """Show the newest frame, which the environment must not change before time is advanced past it."""
        self._shown = observation

    def start(self, worker: int, ticket: Ticket) -> None:
        """Infer the newest frame.

        Raises:
            Exception: The policy's, with the worker named in a note.
        """
        loader = self._loaders[worker] if self._loaders else None
        version, updates = (0, 0) if loader is None else (loader.load(), loader.updates)
        try:
            act, shown = self._act[worker], deepcopy(self._shown)
            answer = infer(worker, ticket, shown, act, self._answers, self.time, self._extras, self._encodes)
        except Exception as error:
            error.add_note(f"raised in worker {worker}")
            raise
        ended = self.time + self._draw()
        # A copy: a policy may fill the same array again before this action's frame has come.
        action, extras = deepcopy(answer.action), None if answer.extras is None else deepcopy(answer.extras)
        finished = Finished(worker, ticket.number, self.time, ended, answer.fate, action, version, extras, updates)
        self._end_of[worker] = ended
        heapq.heappush(self._ends, (ended, worker, finished))

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return the inferences that have ended by now, the earliest first; time stands still."""
        events, self._events = self._events, []
        while self._ends and self._ends[0][0] <= self.time:
            events.append(heapq.heappop(self._ends)[-1])
        return events

    def end_of(self, worker: int) -> int:
        """Return when the inference that a worker started last will have ended."""
        return self._end_of[worker]

    def advance(self, until: int) -> None:
        """Let time pass, in which learners update their weights."""
        if self._learners is not None:
            self._learners.run(self.time, until)
        self.time = until

    def discard(self) -> list[Finished]:
        """Return the inferences that have not been collected, as they will end, and drop them."""
        ends, self._ends = self._ends, []
        return [finished for *_, finished in sorted(ends, key=lambda end: end[:2])]
