"""What plays with a policy server: a backend, a connection by hand, and a network that a test can slow down and cut."""

from __future__ import annotations

import random
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import AsyncRunner
from async_wrappers.live.backends.process import ProcessBackend
from async_wrappers.live.backends.thread import ThreadBackend
from async_wrappers.live.memory.exchange import ticket_of
from async_wrappers.live.remote.address import Address
from async_wrappers.live.remote.handshake import ClientHandshake, Hello, Refused
from async_wrappers.live.remote.remote_transport import RemotePolicy
from async_wrappers.live.remote.server import PolicyServer
from async_wrappers.live.remote.wire import Answers, TicketRecords
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.run_spec import PhaseSpec, RunSpec

__all__ = ["PATIENCE", "Echo", "Guest", "Line", "Proxy", "ServedBackend", "answered", "play_until", "served"]

PATIENCE = 120  # seconds in which what must happen has happened, on however busy a machine


class Line(gym.Env[Any, Any]):
    """Observes its frame's number; never ends."""

    observation_space = gym.spaces.Box(0, 1_000_000, (1,), np.int64)
    action_space = gym.spaces.Discrete(1_000_002, start=-1)

    def __init__(self) -> None:
        self.received: list[int] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received.append(int(action))
        return np.array([len(self.received)]), 0.0, False, False, {}


class Echo:
    """Answers with the frame that it was shown, after some milliseconds."""

    def act(self, observation: Any, decision: Any) -> int:
        time.sleep(0.015)
        return int(observation[0])


@contextmanager
def served(make_policy: Any = Echo, workers: int = 2, **arguments: Any) -> Iterator[PolicyServer]:
    with PolicyServer(make_policy, "tcp://127.0.0.1:0", workers, backend="thread", **arguments) as server:
        yield server


class Guest:
    """A loop's end of one connection, by hand.

    Attributes:
        answer: The newest.
    """

    def __init__(
        self, address: str, worker: int = 0, workers: int = 1, session: str = "one", token: bytes | None = None
    ) -> None:
        self.end = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=PATIENCE)
        hello = Hello(Line.observation_space, Line.action_space, None, False, 0, worker, workers, session)
        handshake = ClientHandshake(hello, token)
        self.end.sendall(handshake.begin())
        while wants := handshake.wants():
            data = self.end.recv(wants)
            assert data, "the server has closed the connection"
            self.end.sendall(handshake.receive(data))
        self.tickets, self.answers = TicketRecords(Line.observation_space), Answers(Line.action_space)

    def ticket(self, frame: int) -> bytes:
        record = self.tickets.record()
        record.show(np.array([frame]))
        record.order(ticket_of(0, frame, 0, frame, frame, False), 0)
        return bytes(record.data)

    def ask(self, frame: int) -> int:
        self.end.sendall(self.ticket(frame))
        record = self.answers.record()
        count = self.end.recv_into(record.data, self.answers.answer_bytes, socket.MSG_WAITALL)
        assert count == self.answers.answer_bytes, "the server has closed the connection"
        self.answer = int(record.read()[0])
        return self.answer


def answered(address: str, frame: int, session: str | None = None) -> Guest:
    """Return a guest whom a worker has answered, as soon as one is free: it may still be with a run that has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(Refused, AssertionError, OSError):  # a start may hold the desk up for longer than a guest waits
            guest = Guest(address, session=session or f"{time.monotonic()}")
            guest.ask(frame)
            return guest
        time.sleep(0.05)
    raise TimeoutError


def play_until(runner: AsyncRunner, is_done: Callable[[Any], bool]) -> Any:
    """Play until a frame's status says so, however long the machine takes, but for 6,000 frames at most."""

    def on_frame(status: Any) -> None:
        if is_done(status):
            runner.stop()

    return runner.run(frames=6_000, on_frame=on_frame)


class ServedBackend:
    """Serves the policy of a run, and plays the run with the server's workers.

    Args:
        spec: The run.
        address: Where to serve.
        backend: "process" or "thread", for the server's workers and for the environment loop.
    """

    def __init__(self, spec: RunSpec, address: str, backend: str) -> None:
        policies, workers = spec.make_policy, spec.config.workers
        self._server = PolicyServer(policies, address, workers, backend=backend, token="a token of a test")
        self._server.__enter__()
        remote = RemotePolicy(Address.of("address", self._server.address), b"a token of a test")
        made = ProcessBackend if backend == "process" else ThreadBackend
        try:
            self._runs: Any = made(replace(spec, remote=remote))
        except BaseException:
            self._server.close()
            raise

    def play(self, phase: PhaseSpec) -> Measurements:
        record: Measurements = self._runs.play(phase)
        return record

    def pause(self, paused: bool) -> None:
        self._runs.pause(paused)

    def close(self) -> None:
        self._runs.close()
        self._server.close()


class Proxy:
    """Passes bytes on between a loop and a server, each after a delay of its own, in their order.

    Args:
        port: Of the server, on this machine.
        delay: Seconds (mean, spread) each way: uniform from mean - spread to mean + spread.

    Attributes:
        stalled: Whether nothing passes; bytes wait.
        port: Where the loop connects.
    """

    def __init__(self, port: int, delay: tuple[float, float] = (0.0, 0.0), seed: int = 0) -> None:
        self._port, self._delay, self._random = port, delay, random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ways: dict[socket.socket, tuple[socket.socket, deque[tuple[float, bytes]]]] = {}
        self.stalled = self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Close all connections at both ends."""
        for end in list(self._ways):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._over = True
        self._thread.join(10)
        for end in (*self._ways, self._listener):
            end.close()
        self._selector.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(self._pause()):
                self._accept() if key.fileobj is self._listener else self._read(key.fileobj)
            self._pass_on()

    def _pause(self) -> float:
        due = [waiting[0][0] for _, waiting in self._ways.values() if waiting]
        return 0.01 if self.stalled or not due else min(max(min(due) - time.monotonic(), 0), 0.01)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.socket()
        try:
            far.connect(("127.0.0.1", self._port))
        except OSError:
            near.close()
            far.close()
            return
        for end, other in ((near, far), (far, near)):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ways[end] = (other, deque())
            self._selector.register(end, selectors.EVENT_READ)

    def _read(self, end: Any) -> None:
        try:
            data = end.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(end)
        mean, spread = self._delay
        waiting = self._ways[end][1]
        due = time.monotonic() + self._random.uniform(mean - spread, mean + spread)
        waiting.append((max(due, waiting[-1][0]) if waiting else due, data))

    def _pass_on(self) -> None:
        now = time.monotonic()
        for end, (other, waiting) in list(self._ways.items()):
            while waiting and not self.stalled and waiting[0][0] <= now:
                data = waiting.popleft()[1]
                with suppress(OSError):
                    if data:
                        other.sendall(data)
                    else:
                        other.shutdown(socket.SHUT_WR)
                        del self._ways[end]
                        if other not in self._ways:
                            end.close()
                            other.close()
