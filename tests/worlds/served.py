"""`ServedBackend`: a backend whose policies are in a server; and a network that a test can slow down, stop and cut."""

from __future__ import annotations

import random
import selectors
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any

from async_wrappers.live.backends.process import ProcessBackend
from async_wrappers.live.backends.thread import ThreadBackend
from async_wrappers.live.remote.address import Address, RemotePolicy
from async_wrappers.live.remote.server import PolicyServer
from async_wrappers.live.report import Measurements
from async_wrappers.live.run_spec import PhaseSpec, RunSpec

__all__ = ["Proxy", "ServedBackend"]


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
