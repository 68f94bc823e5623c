"""`PolicyServer`: workers for environment loops on other machines.

One thread, the desk, listens, shakes hands, and gives each connection that has proven what it must to a worker. A
worker is a process or a thread with a policy of its own. It serves one connection at a time: reads a ticket, infers,
answers; when the connection ends, the worker is free for the next one. The desk keeps a copy of each connection's
descriptor, so that it can end one whose loop has connected again before the network told of the old one's end.

The desk looks after the workers, too. One that does not come back after its connection has ended, or whose process is
stopped, is ended and started again; and a connection that hangs within a record makes room for one that waits.
"""

from __future__ import annotations

import errno
import multiprocessing
import secrets
import selectors
import signal
import socket
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection as pipes
from typing import Any

import gymnasium as gym

from async_wrappers import checks
from async_wrappers.fleet import waits
from async_wrappers.fleet.block import Block
from async_wrappers.fleet.fleet import SECOND, Fleet, What
from async_wrappers.fleet.starting import Children, pickled, start_thread, unpickled
from async_wrappers.fleet.supervised import Child, RunFailed, enough_descriptors, raised_in
from async_wrappers.live.remote.address import Address, as_token, has_ended, prepare
from async_wrappers.live.remote.handshake import Declared, Refused, ServerHandshake, Welcome
from async_wrappers.live.remote.server_worker import LENGTH, run_process, run_thread
from async_wrappers.live.remote.wire import WireError
from async_wrappers.posix import cores

_MOST_WORKERS = 10_000
_HANDSHAKE = 5.0  # seconds that a handshake may take
_VISITORS = 64  # handshakes at a time, besides one for each worker; and connections that wait for a worker
_ACCEPTED = 16  # connections, before those that are known are heard again
_REST = 1.0  # seconds for which none is accepted after too many open files
_DRAINED = 32  # times 64 KiB that are read of somebody who is refused
_QUEUE = 1.0  # seconds for which a connection waits for a free worker
_RETURN = 10.0  # seconds that a worker has to come back once its connection has ended


@dataclass(eq=False)
class _Visitor:
    """A connection; once it has a worker, the server's copy of its descriptor.

    Attributes:
        end: The socket.
        handshake: What it has proven and said.
        until: When it is given up, in monotonic seconds.
        host: Where it comes from.
        name: Session and number of the run's worker that it is for; None before the hello.
    """

    end: socket.socket
    handshake: ServerHandshake
    until: float
    host: str
    name: tuple[str, int] | None = None


@dataclass(eq=False)
class _Station:
    """A worker as the desk sees it.

    Attributes:
        number: Its number.
        handle: The process or the thread.
        pipe: Its messages: ("ready",) and ("failed", exception, traceback), and words of a process.
        door: Where connections are handed in.
        errors: Of a thread, what ended it.
        visitor: The connection that it serves; None if it is free or not yet ready.
        is_ready: Whether it waits for a connection.
        raised: Of a process, what ended it, pickled; and the traceback.
        is_stuck: Whether a record that has begun does not move.
        has_left: Whether its connection was seen to have ended.
        ended_for: Why the desk has ended it; "" if it has not.
        is_over: Whether it has ended, and no other one has taken its place yet.
    """

    number: int
    handle: Child | threading.Thread
    pipe: pipes.Connection
    door: socket.socket
    errors: list[BaseException]
    visitor: _Visitor | None = None
    is_ready: bool = False
    raised: tuple[bytes | None, str] = None, ""
    is_stuck: bool = False
    has_left: bool = False
    ended_for: str = ""
    is_over: bool = False


@dataclass
class _Parts:
    """What a running server holds."""

    address: Address
    listener: socket.socket
    wakes: tuple[socket.socket, socket.socket]
    selector: selectors.BaseSelector
    stations: list[_Station] = field(default_factory=list)
    visitors: dict[socket.socket, _Visitor] = field(default_factory=dict)
    queue: list[_Visitor] = field(default_factory=list)
    rests_until: float | None = None  # in monotonic seconds, while the listener is left alone
    looks_at: float = 0.0  # in monotonic seconds: when it looks after the workers again
    rule: Fleet = field(default_factory=Fleet)  # of the workers, by number


class PolicyServer:
    """Serves a policy to each `AsyncRunner` that connects, from other machines or from this one.

    A runner connects with ``AsyncRunner(make_env, "tcp://host:5555", workers=4, ...)``, once per worker. The server
    listens as soon as every worker has made its policy.

    Anybody who reaches the address may use the policy, unless there is a token; a token shows who is there, and
    encrypts nothing. Bind the loopback address, as the command does, and reach it through a tunnel (SSH, WireGuard, a
    proxy with TLS), or keep to a network that you trust. Nothing that comes over the wire is unpickled.

    Args:
        make_policy: Makes a policy (`Policy`, or a function of the observation); called once per worker.
        address: ``tcp://host:port`` or ``unix://path``; port 0 is any free one.
        workers: Inferences at a time, of all runs together.
        token: A secret of at least 16 bytes that runners must have too; None for none.
        backend: ``"process"``: each worker is a process, and starts again if it dies. ``"thread"``: all are threads of
            this process, so that they can share one model on an accelerator.
        observation_space: Of what the policy reads; a runner with another one is refused. None takes the runner's.
        action_space: Of its actions or chunks, in the same way.
        extras: Of the values that it leaves beside an action, in the same way.
        features: Of the features of a policy with memory, in the same way.

    Attributes:
        address: Where it listens, with the port that it got.
        restarts: How often a worker was started again.

    Raises:
        ValueError: An argument is refused.
        OSError: The address cannot be bound.

    Example:
        >>> from async_wrappers.live.remote.server import PolicyServer
        >>> with PolicyServer(lambda: lambda observation: 0, "tcp://127.0.0.1:0", backend="thread") as server:
        ...     server.address.startswith("tcp://127.0.0.1:")
        True
    """

    def __init__(
        self,
        make_policy: Callable[[], Any],
        address: str,
        workers: int = 1,
        *,
        token: str | bytes | None = None,
        backend: str = "process",
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        extras: gym.spaces.Dict | None = None,
        features: gym.Space[Any] | None = None,
    ) -> None:
        checks.function("make_policy", make_policy, "makes a policy")
        checks.choice("backend", backend, ("process", "thread"))
        self._bind = Address.of("address", address)
        self._make_policy, self._backend = make_policy, backend
        self._workers = checks.whole("workers", workers, 1, _MOST_WORKERS)
        self._most = _VISITORS + self._workers
        self._token = as_token("token", token)
        self._declared = Declared(observation_space, action_space, extras, features)
        self._declared.described  # noqa: B018 - now, or the desk would have to
        self.restarts = 0
        self._children: Children | None = None
        self._parts: _Parts | None = None
        self._over = False
        self._desk: threading.Thread | None = None
        self.address = self._bind.text

    @property
    def pids(self) -> dict[str, int]:
        """Ids of the workers' processes, by name; empty if they are threads."""
        stations = [] if self._parts is None else self._parts.stations
        living = [each.handle for each in stations if not each.is_over]
        children = [each for each in living if isinstance(each, Child)]
        return {child.name: child.process.pid for child in children if child.process.pid is not None}

    def serve(self, on_listening: Callable[[str], Any] | None = None) -> None:
        """Serve until SIGINT or SIGTERM, or until `close` is called in another thread.

        Args:
            on_listening: Called with the address once it listens.

        Raises:
            Exception: That of `make_policy`, before it listens.
        """
        with self._ended_by_signals():
            try:
                self._open()
                if self._over:
                    return
                if on_listening is not None:
                    on_listening(self.address)
                self._run()
            finally:
                self._close()

    def __enter__(self) -> PolicyServer:
        """Serve in a thread beside the block; it listens when the block begins.

        Raises:
            RuntimeError: It has been closed.
        """
        if self._over:
            raise RuntimeError(f"the policy server at {self.address} has been closed: make another one")
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        self._desk = threading.Thread(target=self._run, name="policy server", daemon=True)
        self._desk.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End all workers and connections."""
        self.close()

    def close(self) -> None:
        """End; from any thread. Connections end, and a worker that infers ends after its inference or by force."""
        self._over = True
        self._wake()
        if self._desk is not None:
            self._desk.join()
            self._desk = None
            self._close()

    # The desk.

    def _wake(self) -> None:
        if (parts := self._parts) is not None:
            with suppress(OSError):
                parts.wakes[1].send(b"!")

    @contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM end the server, where this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(number: int, frame: Any) -> None:
            self._over = True
            self._wake()

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _open(self) -> None:
        """Bind, start the workers, wait until all have made their policies, and listen."""
        if self._backend == "process":
            self._children = Children("PolicyServer")
        listener, address = self._bind.bound()
        self._welcome = Welcome(secrets.token_hex(16), self._workers)
        selector = selectors.DefaultSelector()
        self._parts = parts = _Parts(address, listener, socket.socketpair(), selector)
        for each in parts.wakes:
            each.setblocking(False)
        selector.register(parts.wakes[0], selectors.EVENT_READ, None)
        self._payload = pickled("make_policy", self._make_policy) if self._backend == "process" else b""
        with enough_descriptors(workers=self._workers):
            for number in range(self._workers):
                parts.rule.join(number, waits.PAUSES, is_endless=True)
                parts.stations.append(self._station(number))
        while not self._over and not all(each.is_ready for each in parts.stations):
            self._turn(parts, first=True)
        if self._over:
            return
        listener.setblocking(False)
        address.listen(listener, 128)
        selector.register(listener, selectors.EVENT_READ, listener)
        self.address = address.text

    def _run(self) -> None:
        parts = self._parts
        assert parts is not None
        while not self._over:
            self._turn(parts)

    def _turn(self, parts: _Parts, first: bool = False) -> None:
        """Wait for something to happen, and handle it.

        Raises:
            Exception: A worker's, if it is the first time that it makes its policy.
        """
        for key, _ in parts.selector.select(self._pause(parts)):
            if key.data is None:
                parts.wakes[0].recv(64)
            elif key.data is parts.listener:
                self._accept(parts)
            elif isinstance(key.data, _Visitor):
                if key.data.end in parts.visitors:
                    self._shake(parts, key.data)
            elif not key.data.is_over:
                self._hear(parts, key.data, first)
        now = time.monotonic()
        if parts.rests_until is not None and parts.rests_until <= now:
            parts.rests_until = None
            parts.selector.register(parts.listener, selectors.EVENT_READ, parts.listener)
        for visitor in [each for each in parts.visitors.values() if each.until < now]:
            self._dismiss(parts, visitor, None)
        for visitor in [each for each in parts.queue if each.until < now]:
            parts.queue.remove(visitor)
            self._dismiss(parts, visitor, self._busy())
        if parts.looks_at <= now:
            parts.looks_at = now + waits.LOOK
            self._look_after(parts, now)
        while (order := parts.rule.next_order(time.monotonic_ns())) is not None:
            what, number, why = order
            assert isinstance(number, int)
            if what == What.KILL:
                self._give_up(parts, parts.stations[number], why)
            else:
                self._restart(parts, number)

    def _pause(self, parts: _Parts) -> float:
        """Return the seconds until something is due."""
        times = [parts.looks_at, *(each.until for each in (*parts.visitors.values(), *parts.queue))]
        times += [] if (due := parts.rule.next_time()) is None else [due / SECOND]
        times += [] if parts.rests_until is None else [parts.rests_until]
        return max(0.0, min(times) - time.monotonic())

    def _accept(self, parts: _Parts) -> None:
        for _ in range(_ACCEPTED):
            try:
                end, where = parts.listener.accept()
            except OSError as error:  # none is left, or it has gone again
                if error.errno in (errno.EMFILE, errno.ENFILE):  # it stays readable, and the desk would not sleep
                    parts.selector.unregister(parts.listener)
                    parts.rests_until = time.monotonic() + _REST
                return
            try:
                end.setblocking(False)
                prepare(end)
            except OSError:
                end.close()
                continue
            if len(parts.visitors) >= self._most and not self._make_room(parts):
                end.close()
                continue
            handshake = ServerHandshake(self._declared, self._welcome, self._token)
            host = where[0] if isinstance(where, tuple) else ""
            visitor = parts.visitors[end] = _Visitor(end, handshake, time.monotonic() + _HANDSHAKE, host)
            parts.selector.register(end, selectors.EVENT_READ, visitor)

    def _make_room(self, parts: _Parts) -> bool:
        """End a handshake for a newcomer's sake: nobody who says nothing, or has no token, keeps the others out.

        It is the oldest one of the host that has most of them.

        Returns:
            False if all have proven the token.
        """
        unproven = [each for each in parts.visitors.values() if not each.handshake.has_proven]
        if not unproven:
            return False
        hosts = Counter(each.host for each in unproven)
        self._dismiss(parts, max(unproven, key=lambda each: hosts[each.host]), None)
        return True

    def _shake(self, parts: _Parts, visitor: _Visitor) -> None:
        """Take what a visitor sent; once it has proven what it must, it is given to a worker, or waits for one."""
        handshake = visitor.handshake
        try:
            data = visitor.end.recv(min(handshake.wants(), 1 << 16))
            if not data:
                raise ConnectionResetError
            if said := handshake.receive(data):
                visitor.end.sendall(said)  # small: an empty connection takes it whole
        except BlockingIOError:
            return
        except Exception as error:  # whatever a visitor makes go wrong ends its connection alone
            self._dismiss(parts, visitor, error if isinstance(error, WireError) else None)
            return
        if handshake.hello is not None:
            del parts.visitors[visitor.end]
            parts.selector.unregister(visitor.end)
            visitor.name, visitor.until = (handshake.hello.session, handshake.hello.worker), time.monotonic() + _QUEUE
            handshake.hello = None  # its spaces may be large, and the worker makes its own of what was said
            self._end_predecessor(parts, visitor.name)
            parts.queue.append(visitor)
            self._serve_queue(parts)
            if len(parts.queue) > self._most:
                self._dismiss(parts, parts.queue.pop(), self._busy())

    def _dismiss(self, parts: _Parts, visitor: _Visitor, error: WireError | None) -> None:
        """End a visitor's connection, with a sentence if there is one."""
        if parts.visitors.pop(visitor.end, None) is not None:
            parts.selector.unregister(visitor.end)
        with suppress(OSError):
            if error is not None:
                visitor.end.sendall(visitor.handshake.refusal(error))
                visitor.end.shutdown(socket.SHUT_WR)
                for _ in range(_DRAINED):  # an end that is closed with bytes unread takes the sentence back
                    if not visitor.end.recv(1 << 16):
                        break
        visitor.end.close()

    def _busy(self) -> Refused:
        """Return the sentence for whoever has waited for a worker."""
        assert self._parts is not None
        serving = [each for each in self._parts.stations if each.visitor is not None]
        away = sum(has_ended(each.visitor.end) for each in serving if each.visitor is not None)
        starting = self._workers - len(serving)
        if not away and not starting:
            return Refused(f"all {self._workers} workers are busy with other runs", again=True)
        counts = ((len(serving) - away, "busy with other runs"), (away, "not back from runs that have ended"))
        said = [f"{count} {what}" for count, what in (*counts, (starting, "being started")) if count]
        return Refused(f"none of {self._workers} workers is free: {', '.join(said)}", again=True)

    def _end_predecessor(self, parts: _Parts, name: tuple[str, int]) -> None:
        """End the connection of the same worker of the same run: its loop has given it up."""
        for visitor in [each for each in parts.queue if each.name == name]:
            parts.queue.remove(visitor)
            visitor.end.close()
        for station in parts.stations:
            if station.visitor is not None and station.visitor.name == name:
                with suppress(OSError):
                    station.visitor.end.shutdown(socket.SHUT_RDWR)

    def _serve_queue(self, parts: _Parts) -> None:
        for station in parts.stations:
            while parts.queue and station.is_ready and not station.is_over:
                self._hand_over(station, parts.queue.pop(0))
        stuck = [each for each in parts.stations if each.is_stuck]
        for station, _ in zip(stuck, parts.queue, strict=False):  # one for each that waits
            station.is_stuck = False
            if station.visitor is not None:
                with suppress(OSError):
                    station.visitor.end.shutdown(socket.SHUT_RDWR)

    def _hand_over(self, station: _Station, visitor: _Visitor) -> None:
        """Welcome a connection and give it to a worker, which stays free if the connection has ended meanwhile."""
        said = visitor.handshake.said
        try:
            visitor.end.sendall(visitor.handshake.welcome())
            visitor.end.setblocking(True)  # for both descriptors
        except OSError:
            visitor.end.close()
            return
        visitor.handshake.said = b""
        station.visitor, station.is_ready = visitor, False
        try:
            socket.send_fds(station.door, [LENGTH.pack(len(said))], [visitor.end.fileno()])
            station.door.sendall(said)
        except OSError:  # it has ended, of which it tells itself; or it is stopped, and ends as soon as it goes on
            for end in (visitor.end, station.door):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    # Workers.

    def _station(self, number: int) -> _Station:
        """Start a worker."""
        assert self._parts is not None
        door, theirs = socket.socketpair()
        door.settimeout(waits.PATIENCE)
        raised: list[BaseException] = []
        name = f"worker {number}"
        try:
            if self._children is None:
                pipe, messages = multiprocessing.Pipe()
                given = self._make_policy, theirs.dup(), messages, raised
                handle: Any = threading.Thread(target=run_thread, args=given, name=name, daemon=True)
                start_thread(handle)
            else:
                block = Block.holding(self._payload)
                try:
                    takes = block, theirs, max(1, cores() // self._workers)
                    handle = self._children.start(name, run_process, takes, shares_torch=True)
                finally:
                    block.close()
                pipe = handle.pipe
        except BaseException:
            door.close()
            raise
        finally:
            theirs.close()
        station = _Station(number, handle, pipe, door, raised)
        self._parts.selector.register(pipe, selectors.EVENT_READ, station)
        self._parts.rule.started(number)
        return station

    def _hear(self, parts: _Parts, station: _Station, first: bool) -> None:
        """Handle a worker's messages: it is ready, it has raised, or it has ended."""
        try:
            while station.pipe.poll(0):
                message = station.pipe.recv()
                if message[0] == "ready":
                    self._free(station)
                    station.is_ready = True
                    parts.rule.works(station.number)
                    parts.rule.heard(station.number)
                elif message[0] == "stuck":
                    station.is_stuck = message[1]
                else:
                    station.raised = message[1], message[2]
        except (EOFError, OSError):
            self._mourn(parts, station, first)
        self._serve_queue(parts)

    def _free(self, station: _Station) -> None:
        if station.visitor is not None:
            station.visitor.end.close()
            station.visitor = None
        station.is_stuck = station.has_left = False

    def _look_after(self, parts: _Parts, now: float) -> None:
        """End workers that are stopped, or that do not come back from a connection that has ended."""
        at = round(now * SECOND)
        for station in parts.stations:
            if not parts.rule.is_up(station.number):
                continue
            if isinstance(station.handle, Child):
                station.handle.pulse.look(False)
                if (ailment := station.handle.pulse.ailment()) is not None:
                    parts.rule.ails(station.number, ailment)
            if station.visitor is not None and not station.has_left and has_ended(station.visitor.end):
                station.has_left = True
                why = f"has not come back for {_RETURN:g} s from a run that has ended or given it up"
                parts.rule.owes(station.number, at + round(_RETURN * SECOND), why)

    def _give_up(self, parts: _Parts, station: _Station, why: str) -> None:
        """End a worker's process, whose end is heard; a thread that does not come back is left to itself."""
        station.ended_for = why
        if isinstance(station.handle, Child):
            station.handle.kill()
            return
        parts.selector.unregister(station.pipe)
        station.is_ready = False
        self._free(station)
        for end in (station.door, station.pipe):
            end.close()
        self._end(parts, station)
        self._warn(station, f"{why}: it is left to itself, and another thread takes its place")

    def _warn(self, station: _Station, what: str) -> None:
        warnings.warn(f"worker {station.number} of the policy server {what}", RuntimeWarning, stacklevel=3)

    def _mourn(self, parts: _Parts, station: _Station, first: bool) -> None:
        """Note a worker's end, and set the time of its restart.

        Raises:
            Exception: The worker's, if no policy can be made.
        """
        parts.selector.unregister(station.pipe)
        if station.visitor is not None:
            with suppress(OSError):
                station.visitor.end.shutdown(socket.SHUT_RDWR)
        self._free(station)
        station.door.close()
        station.is_ready = False
        (payload, text), how = station.raised, "has ended"
        if isinstance(station.handle, Child):
            assert self._children is not None
            how = station.ended_for or self._children.how_it_ended(station.handle)
            error = unpickled(payload)
        else:
            station.pipe.close()
            station.handle.join(waits.PATIENCE)
            error = station.errors[0] if station.errors else None
        name = f"worker {station.number} of the policy server"
        if first:
            raise (raised_in(name, error, text) if text else RunFailed(f"{name} {how}")) from None
        self._end(parts, station)
        if isinstance(station.handle, Child):  # where it is the first time, `_close` does it
            assert self._children is not None
            self._children.forget(station.handle)
        self._warn(station, f"raised, and is started again:\n{text}" if text else f"{how}: it is started again")

    def _end(self, parts: _Parts, station: _Station) -> None:
        """Note that a worker has ended; the rule says when another one takes its place."""
        station.is_over = True
        parts.rule.ended(station.number, time.monotonic_ns())

    def _restart(self, parts: _Parts, number: int) -> None:
        try:
            parts.stations[number] = self._station(number)
        except Exception as error:  # there are no more processes, threads or descriptors
            self._warn(parts.stations[number], f"cannot be started, and is tried again: {error!r}")
            self._end(parts, parts.stations[number])
        else:
            self.restarts += 1

    def _close(self) -> None:
        """Release everything that `_open` took; once."""
        parts, self._parts = self._parts, None
        if parts is None:
            return
        living = [station for station in parts.stations if not station.is_over]
        try:
            parts.listener.close()
            parts.address.leave()
            for visitor in (*parts.visitors.values(), *parts.queue):
                visitor.end.close()
            for station in living:
                if station.visitor is not None:
                    with suppress(OSError):
                        station.visitor.end.shutdown(socket.SHUT_RDWR)
                station.door.close()
            deadline = time.monotonic() + waits.PATIENCE
            for station in living:
                station.handle.join(max(0.0, deadline - time.monotonic()))
        finally:  # an interrupt, say, leaves no process behind
            if self._children is not None:
                self._children.close()
            for station in living:
                self._free(station)
                station.pipe.close()
            parts.selector.close()
            for each in parts.wakes:
                each.close()
