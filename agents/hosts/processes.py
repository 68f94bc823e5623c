"""Hosts as processes of this machine.

Orders and weights go to a host through a pipe, and answers come back through it: a short pickle, and each large array
as its own bytes, which are received where they stay. Threads on both sides read and write, so that no end waits for
the other: the learner learns while blocks arrive, and a host plays while weights do.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import forkserver, util
from typing import Any

import cloudpickle

from async_wrappers.agents.children import become_child, signals_blocked
from async_wrappers.agents.hosts.engine import Answer, HostPlan, HostsFailed, Lost, failure, portable
from async_wrappers.agents.hosts.host import make_host

__all__ = ["ProcessHosts"]

_GRACE = 5.0  # seconds that processes have to end once they are asked to
_LEAST = 4096  # bytes of an array that goes beside the pickle


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
        """See the class."""
        self._payload = cloudpickle.dumps(plan)
        self._modules, self._threads = tuple(modules), threads
        self._processes: dict[int, _Process] = {}
        self._news: queue.SimpleQueue[Answer | Lost | HostsFailed] = queue.SimpleQueue()
        self._weights: tuple[list[Any], int | None] = [], None
        # At exit multiprocessing waits for processes that are left without limit.
        self._at_exit = util.Finalize(self, _kill_all, (self._processes,), exitpriority=10)

    @property
    def pids(self) -> dict[int, int]:
        """See the class."""
        return {host: process.process.pid or 0 for host, process in self._processes.items()}

    def start(self, host: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        """See `HostEngine`."""
        if (old := self._processes.pop(host, None)) is not None:
            old.close()
        arguments = self._payload, self._modules, self._threads, host, incarnation, rows
        self._processes[host] = _Process(host, incarnation, arguments, self._news)

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """See `HostEngine`."""
        self._weights = _parts(("weights", (portable(weights), version))), version

    def submit(self, host: int, order: Any = False) -> None:
        """See `HostEngine`."""
        self._processes[host].order(order, *self._weights)

    def collect(self, timeout: float) -> list[Any]:
        """See `HostEngine`."""
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
        """See `HostEngine`."""
        self._processes[host].why = why
        self._processes[host].process.kill()

    def close(self) -> None:
        """See `HostEngine`."""
        for process in self._processes.values():
            process.say_end()
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        self._at_exit.cancel()


class _Process:
    """A host's process, as the learner sees it."""

    def __init__(self, host: int, incarnation: int, arguments: Sequence[Any], news: Any) -> None:
        self.host, self.incarnation, self.why = host, incarnation, ""
        self._version: int | None = None  # of the weights that it has
        context = _fork_server()
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_play, args=(*arguments, theirs), name=f"host {host}")
        with signals_blocked():
            self.process.start()
        theirs.close()
        self._closing = False
        self._orders: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._read, args=(news,), name=f"host {host} reads", daemon=True),
            threading.Thread(target=self._write, name=f"host {host} writes", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def order(self, order: Any, weights: list[Any], version: int | None) -> None:
        if version != self._version:
            self._version = version
            self._orders.put(weights)
        self._orders.put(_parts(("order", order)))

    def _write(self) -> None:
        with suppress(OSError):  # it has died, as the reader finds
            while (parts := self._orders.get()) is not None:
                for part in parts:
                    self._pipe.send_bytes(part)

    def _read(self, news: Any) -> None:
        """Pass on what the process sends, and then how it ended."""
        try:
            while True:
                kind, found = _received(self._pipe)
                if kind == "failed":
                    news.put(HostsFailed(found))
                    return
                news.put(found)
        except (EOFError, OSError):
            pass
        except Exception as error:  # a message that is torn
            self.why = f"sent what cannot be read ({error})"
            self.process.kill()
        if not self._closing:
            self.process.join(_GRACE)
            news.put(Lost(self.host, self.incarnation, self.why or _how_it_ended(self.process)))

    def say_end(self) -> None:
        """Ask the process to end after the order that it carries out."""
        self._closing = True
        self._orders.put(_parts(("end", None)))

    def close(self) -> None:
        """Wait a while for the process's end, then end it."""
        self._closing = True
        self._orders.put(None)
        self.process.join(_GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(_GRACE)
        for thread in self._threads:
            thread.join(_GRACE)
        self._pipe.close()
        self.process.close()


def _fork_server() -> Any:
    """Return the context of a process that has imported PyTorch once for all hosts, also for those that come later."""
    forkserver.set_forkserver_preload(["torch", "async_wrappers.agents.hosts.host"])
    with signals_blocked():
        forkserver.ensure_running()
    return multiprocessing.get_context("forkserver")


def _how_it_ended(process: Any) -> str:
    code = process.exitcode
    if code is None:
        return "does not answer"
    return f"(process {process.pid}) " + (f"was ended by {signal.Signals(-code).name}" if code < 0 else "has ended")


def _kill_all(processes: Mapping[int, _Process]) -> None:
    for each in processes.values():
        each.process.kill()


# Messages, of a kind and a value: the lengths of the large arrays, a pickle of all else, and the arrays.


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
    return [pickle.dumps([each.nbytes for each in large]), content, *large]


def _received(pipe: Any) -> Any:
    """Return what a message says."""
    lengths = pickle.loads(pipe.recv_bytes())
    content = pipe.recv_bytes()
    large = [bytearray(length) for length in lengths]
    for each in large:
        pipe.recv_bytes_into(each)
    return pickle.loads(content, buffers=large)


# In a host's process.


def _play(
    payload: bytes,
    modules: Sequence[str],
    threads: int,
    number: int,
    incarnation: int,
    rows: Mapping[str, Sequence[int]],
    pipe: Any,
) -> None:
    """Carry out orders until the pipe closes."""
    become_child()
    orders: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    ending = threading.Event()
    results: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(pipe, orders, ending), daemon=True).start()
    writer = threading.Thread(target=_write_results, args=(pipe, results), daemon=True)
    writer.start()
    code, host = 0, None
    try:
        host = make_host(payload, modules, threads, number, incarnation, rows)
        while True:
            kind, what = orders.get()
            if ending.is_set():
                break
            if kind == "weights":
                host.load_weights(*what)
            else:
                results.put(("answer", host.play(what)))
    except BaseException as error:
        results.put(("failed", str(failure(number, error))))
        code = 1
    finally:
        if host is not None:
            with suppress(Exception):
                host.close()
    results.put(None)
    writer.join(None if code else _GRACE)
    os._exit(code)


def _read_orders(pipe: Any, orders: Any, ending: threading.Event) -> None:
    """Pass on orders as they come, so that the learner never waits until one is carried out."""
    with suppress(EOFError, OSError):
        while (order := _received(pipe))[0] != "end":
            orders.put(order)
    ending.set()
    orders.put(("end", None))


def _write_results(pipe: Any, results: Any) -> None:
    with suppress(OSError):
        while (result := results.get()) is not None:
            for part in _parts(result):
                pipe.send_bytes(part)
