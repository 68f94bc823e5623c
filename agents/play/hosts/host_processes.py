"""Hosts as processes of this machine.

Orders and weights go to a host through a pipe, and answers come back through it: a short pickle, and each large array
as its own bytes, which are received where they stay. Threads on both sides read, and write what is long, so that no end
waits for the other: the learner learns while blocks arrive, and a host plays while weights do. What is short is written
at once, without a thread's wake-up.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import cloudpickle

from async_wrappers.agents.play.hosts.engine import Answer, HostsFailed, Lost, failure, portable
from async_wrappers.agents.play.hosts.host import make_host
from async_wrappers.fleet import waits
from async_wrappers.fleet.child import become_child
from async_wrappers.fleet.process_fleet import Member, ProcessFleet, Role
from async_wrappers.fleet.pulse import wake_servers
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.posix import needs_fork_server

if TYPE_CHECKING:
    from async_wrappers.agents.play.hosts.engine import HostPlan

_LEAST = 4096  # bytes of an array that goes beside the pickle
_SHORT = 2**15  # bytes of an order that is written at once: a few of them fit into the pipe of a host that has stopped
_SHORT_ANSWER = 2**20  # of an answer, which the learner's thread reads at any time


class ProcessHosts:
    """Hosts as processes of this machine; see `HostEngine`.

    Args:
        plan: What they are made from.
        modules: What is imported first in each process.
        threads: Intra-op threads of PyTorch in each process.

    Attributes:
        pids: The processes' ids, by host.
    """

    def __init__(self, plan: HostPlan, modules: Sequence[str] = (), threads: int = 1) -> None:
        needs_fork_server("engine='processes'", "leave hosts out, which plays in this process")
        self._payload = cloudpickle.dumps(plan)
        self._modules, self._threads = tuple(modules), threads
        self._hosts: dict[int, _HostProcess] = {}
        self._rows: dict[int, Mapping[str, Sequence[int]]] = {}
        self._fleet = ProcessFleet("ProcessHosts")
        self._news: queue.SimpleQueue[Answer | Lost | HostsFailed] = queue.SimpleQueue()
        self._weights: tuple[list[Any], int | None] = [], None
        # No daemon: a host may start processes of environments.
        self._role = Role(
            *("host {}", True, _play, self._of_host),
            preload=("torch", make_host.__module__),
            daemon=False,
            receive=_whole,
            hear=self._hear,
            lost=self._lose,
            ails=lambda member, why: None if why is None else f"({member.child.place}) {why}, and was ended",
        )
        try:
            self._fleet.drive(lambda error: self._news.put(HostsFailed(str(error))))
        except RunFailed as error:
            raise HostsFailed(str(error)) from None

    @property
    def pids(self) -> dict[int, int]:
        return {host: of.member.child.pid or 0 for host, of in self._hosts.items()}

    def start(self, host: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        if (old := self._hosts.pop(host, None)) is not None:
            old.sender.close(waits.ORDER)
            self._fleet.remove(old.member)
        self._rows[host] = rows
        try:
            member = self._fleet.add(self._role, host, incarnation)
        except RunFailed as error:
            raise HostsFailed(str(error)) from None
        self._hosts[host] = _HostProcess(member)

    def _of_host(self, member: Member) -> Sequence[Any]:
        host, given = member.number, (self._payload, self._modules, self._threads)
        return host, *given, host, member.incarnation, self._rows[host]

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        self._weights = _parts(("weights", (portable(weights), version))), version

    def submit(self, host: int, order: Any = False) -> None:
        of, (weights, version) = self._hosts[host], self._weights
        if version != of.version:
            of.version = version
            of.sender.send(weights)
        of.sender.send(_parts(("order", order)))

    def collect(self, timeout: float) -> list[Any]:
        found: list[Answer | Lost] = []
        deadline = time.monotonic() + timeout
        while True:
            wait = 0.0 if found else max(0.0, deadline - time.monotonic())
            try:
                news = self._news.get(timeout=wait) if wait else self._news.get_nowait()
            except queue.Empty:
                return found
            if isinstance(news, HostsFailed):
                raise news
            found.append(news)

    def kill(self, host: int, why: str) -> None:
        self._fleet.kill(self._hosts[host].member, why)

    def close(self) -> None:
        wake_servers()
        for of in self._hosts.values():
            of.sender.send(_parts(("end", None)))
        self._fleet.end(self._fleet.members, waits.ORDER)
        for of in self._hosts.values():
            of.sender.close(waits.ORDER)
        self._hosts.clear()
        self._fleet.close()

    # In the threads of the fleet.

    def _hear(self, member: Member, message: Any) -> None:
        kind, found = message
        if kind == "answer":
            self._news.put(found)
        elif kind == "raised":
            self._news.put(HostsFailed(found))
        elif kind == "exits":
            member.why = member.why or f"({member.child.place}) {found}"  # it closes its environments, and ends
        else:
            self._fleet.kill(member, f"sent what cannot be read ({found})")

    def _lose(self, member: Member) -> None:
        """Tell how a host has ended, unless it has said so itself."""
        if "raised" in member.said:
            return
        try:
            how = member.why or f"({member.child.place}) {self._fleet.ended_in_short(member)}"
        except RuntimeError as error:  # it would do so again
            self._news.put(HostsFailed(str(error)))
        else:
            self._news.put(Lost(member.number, member.incarnation, how))


class _HostProcess:
    """A host's process, what writes to it, and the version of the weights that it has."""

    def __init__(self, member: Member) -> None:
        self.member, self.sender = member, _Sender(member.child.pipe, _SHORT)
        self.version: int | None = None


# Messages, of a kind and a value: the lengths of the large arrays with a pickle of all else, and then these arrays.


def _parts(value: Any) -> list[Any]:
    """Return the parts of a message, of which large arrays are not copied."""
    large: list[memoryview] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        """Return whether an array stays in the pickle."""
        raw = buffer.raw()
        if raw.nbytes < _LEAST:
            return True
        large.append(raw)
        return False

    content = pickle.dumps(value, protocol=5, buffer_callback=stays)
    lengths = [len(large), *(each.nbytes for each in large)]
    return [struct.pack(f"<{len(lengths)}Q", *lengths) + content, *large]


def _received(pipe: Any) -> Any:
    """Return what a message says."""
    first = memoryview(pipe.recv_bytes())
    (count,) = struct.unpack_from("<Q", first)
    large = [bytearray(length) for length in struct.unpack_from(f"<{count}Q", first, 8)]
    for each in large:
        pipe.recv_bytes_into(each)
    return pickle.loads(first[8 * (1 + count) :], buffers=large)


def _whole(pipe: Any) -> Any:
    """Return a message, also in the place of one that is torn."""
    try:
        return _received(pipe)
    except (EOFError, OSError):
        raise
    except Exception as error:
        return "torn", error


class _Sender:
    """Sends messages through a pipe, in their order.

    Args:
        pipe: The pipe.
        short: Bytes up to which a message is written by the caller. A longer one is written by a thread, and so are
            those that come before it is.
    """

    def __init__(self, pipe: Any, short: int) -> None:
        self._pipe, self._short = pipe, short
        self._lock, self._left = threading.Lock(), 0  # messages that the thread has not written yet
        self._messages: queue.SimpleQueue[Sequence[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sends to a host or learner", daemon=True)
        self._thread.start()

    def send(self, parts: Sequence[Any]) -> None:
        with self._lock:
            if not self._left and sum(memoryview(part).nbytes for part in parts) <= self._short:
                self._write(parts)
                return
            self._left += 1
        self._messages.put(parts)

    def _run(self) -> None:
        while (parts := self._messages.get()) is not None:
            self._write(parts)
            with self._lock:
                self._left -= 1

    def _write(self, parts: Sequence[Any]) -> None:
        with suppress(OSError):  # the other end is gone, as who reads from it finds
            for part in parts:
                self._pipe.send_bytes(part)

    def close(self, timeout: float | None) -> None:
        """Wait until all is written."""
        self._messages.put(None)
        self._thread.join(timeout)


# In a host's process.


def _play(number: int, *given: Any) -> None:
    """Make a host from the arguments of `make_host`, and carry out orders until the pipe, the last of them, closes."""
    *of_host, pipe = given
    become_child()
    orders: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    ending = threading.Event()
    threading.Thread(target=_read_orders, args=(pipe, orders, ending), daemon=True).start()
    answers = _Sender(pipe, _SHORT_ANSWER)
    code, host = 0, None
    try:
        host = make_host(*of_host)
        while True:
            kind, what = orders.get()
            if ending.is_set():
                break
            if kind == "weights":
                host.load_weights(*what)
            else:
                answers.send(_parts(("answer", host.play(what))))
    except Exception as error:
        answers.send(_parts(("raised", str(failure(number, error)))))
        code = 1
    except BaseException as error:  # which ends programs, as `sys.exit` does: this one has died
        answers.send(_parts(("exits", f"raised {error!r:.200}")))
        code = 1
    finally:
        if host is not None:
            with suppress(Exception):
                host.close()
    answers.close(None if code else waits.ORDER)
    os._exit(code)


def _read_orders(pipe: Any, orders: Any, ending: threading.Event) -> None:
    """Pass on orders as they come, so that the learner never waits until one is carried out."""
    with suppress(EOFError, OSError):
        while (order := _received(pipe))[0] != "end":
            orders.put(order)
    ending.set()
    orders.put(("end", None))
