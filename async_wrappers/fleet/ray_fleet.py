"""Members of a fleet on a Ray cluster, which this process is connected to.

`Actors` makes and ends them, and `ending` says what Ray's errors mean; whoever calls methods of actors, as hosts and
live workers do, needs no more. `RayChildren` lets a `ProcessFleet` drive actors as it drives processes: each runs a
main function, and speaks with its supervisor through a connection of its own.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import connection
from typing import Any, NamedTuple

from async_wrappers.fleet.child import report
from async_wrappers.fleet.pulse import Pulse
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.ray_cluster import Exits, in_short

_REPORT = 30.0  # seconds until Ray reports the death of an actor
_START = 300.0  # seconds that a member has to start in


class Actors:
    """Actors of one class, by number; Ray restarts none, as the rule of their fleet does.

    Args:
        kind: The class.
        needs: What each takes of its node, as options of Ray.
    """

    def __init__(self, kind: type, **needs: Any) -> None:
        self._ray = importlib.import_module("ray")
        self._kind = self._ray.remote(kind).options(**needs, max_restarts=0, max_task_retries=0)
        self._made: dict[int, Any] = {}

    def make(self, number: int) -> Any:
        """Return a new actor, which takes the place of the one of that number."""
        self.end(number)
        actor = self._made[number] = self._kind.remote()
        return actor

    def __getitem__(self, number: int) -> Any:
        """Return the newest actor of a number."""
        return self._made[number]

    def end(self, number: int) -> None:
        """End an actor by force, if there is one."""
        if (actor := self._made.pop(number, None)) is not None:
            self._ray.kill(actor)

    def close(self, method: str = "", seconds: float = 0.0) -> None:
        """End all, once each has carried out a method, or the time is over; a cluster may be gone."""
        with suppress(Exception):
            last = [getattr(actor, method).remote() for actor in self._made.values() if method]
            if last:
                self._ray.wait(last, num_returns=len(last), timeout=seconds)
        for number in list(self._made):
            with suppress(Exception):
                self.end(number)


class RayFailure(NamedTuple):
    """What an error of Ray's means.

    Attributes:
        why: The end of a sentence about the actor.
        cause: What its method has raised; None where it has died, or ends its program.
        has_died: Whether it has died.
        lacks: The module that its node does not have; "" for none.
    """

    why: str
    cause: BaseException | None = None
    has_died: bool = False
    lacks: str = ""


def ending(error: BaseException) -> RayFailure:
    """Return what an error of Ray's, which a call of an actor has raised, means."""
    exceptions: Any = sys.modules["ray"].exceptions
    if isinstance(error, exceptions.RayTaskError):
        cause: BaseException = getattr(error, "cause", None) or error
        if isinstance(cause, Exits):
            return RayFailure(str(cause))
        return RayFailure(f"raised {type(cause).__name__}: {cause}", cause)
    found = re.search(r"No module named '([^']+)'", str(error))
    return RayFailure(in_short(error), has_died=True, lacks=found[1] if found else "")


class NodeVersions(NamedTuple):
    """What a node has."""

    node: str
    versions: Mapping[str, str]


def refuse_other_versions(who: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Refuse a host or a learner on a node with other versions than the learner's here.

    Raises:
        RunFailed: That is so.
    """
    for name, version in here.items():
        if there.get(name) != version:
            raise RunFailed(
                f"{who} has {name} {there.get(name)}, and the learner has {version}: install the same versions on all "
                "nodes of the cluster"
            )


class RayChildren:
    """Starts and ends members as actors, in the place of `starting.Children`.

    Args:
        count: How many begin at once; a further one begins when it is started.
        versions: Returns what a node must share with this one.
        needs: As in `Actors`.
    """

    def __init__(self, count: int, versions: Callable[[], Mapping[str, str]], **needs: Any) -> None:
        self._ray = importlib.import_module("ray")
        self._actors = Actors(_RayMember, scheduling_strategy="SPREAD", **needs)
        self._needs, self._versions, self._key = needs, versions, secrets.token_bytes(32)
        self._numbers = 0
        self._begun = [self._begin() for _ in range(count)]
        self._started: list[RayChild] = []

    def _begin(self) -> tuple[int, Any]:
        """Return an actor's number, and what it says of its place."""
        number, self._numbers = self._numbers, self._numbers + 1
        return number, self._actors.make(number).listen.remote(self._versions, self._key)

    def start(self, name: str, main: Callable[..., None], arguments: Sequence[Any], **ways: Any) -> RayChild:
        """Start a member; see `Children`.

        Raises:
            RunFailed: It cannot be started.
        """
        number, listening = self._begun.pop(0) if self._begun else self._begin()
        try:
            (node, there), address, pid = self._ray.get(listening, timeout=_START)
            refuse_other_versions(f"{name} ({node})", there, self._versions())
            running = self._actors[number].run.remote(main, tuple(arguments))
            pipe = connection.Client(address, authkey=self._key)
        except self._ray.exceptions.GetTimeoutError:
            cpus, gpus = self._needs["num_cpus"], self._needs.get("num_gpus", 0)
            raise RunFailed(
                f"{name} has not started for {_START:g} s: ray status says whether a node has {cpus:g} CPUs and "
                f"{gpus:g} GPUs free for it"
            ) from None
        except self._ray.exceptions.RayError as error:
            raise RunFailed(f"{name} cannot be started: {in_short(error)}") from None
        except OSError as error:
            raise RunFailed(
                f"{name} ({node}) cannot be reached at {address[0]}:{address[1]} ({error}): let the machines reach one "
                "another on any port"
            ) from None
        child = RayChild(name, pipe, pid, f"process {pid} on {node}", running, lambda: self._actors.end(number))
        self._started.append(child)
        return child

    def how_it_ended(self, child: RayChild) -> str:
        """Return an end of a sentence."""
        return child.how_it_ended()

    def forget(self, child: RayChild) -> None:
        """Release what a member took that has ended."""
        if child in self._started:
            self._started.remove(child)
            child.close()

    def close(self) -> None:
        """End all that are left by force."""
        self._actors.close()
        for child in list(self._started):
            self.forget(child)


class RayChild:
    """A started actor, and the supervisor's end of its connection; see `supervised.Child`."""

    reported_within = _REPORT

    def __init__(
        self, name: str, pipe: connection.Connection, pid: int, place: str, running: Any, kill: Callable[[], None]
    ) -> None:
        self.name, self.pipe, self.pid, self.place, self._running, self._kill = name, pipe, pid, place, running, kill
        self.started = time.monotonic_ns()
        self.pulse = Pulse(0)  # of no process that could be seen from here
        self.sentinel, theirs = socket.socketpair()
        running.future().add_done_callback(lambda done: theirs.close())

    def is_alive(self) -> bool:
        """Return whether its main function has not ended."""
        return not connection.wait([self.sentinel], 0)

    def join(self, seconds: float) -> bool:
        """Wait for its end, and return whether it has ended."""
        return bool(connection.wait([self.sentinel], seconds))

    def kill(self) -> None:
        """End the actor by force."""
        with suppress(Exception):  # of a cluster that is gone
            self._kill()

    def how_it_ended(self) -> str:
        """Return an end of a sentence, such as "has died (...)"."""
        ray: Any = sys.modules["ray"]
        try:
            ray.get(self._running, timeout=_REPORT)
        except ray.exceptions.RayError as error:
            return f"has died ({in_short(error)})"
        return "has ended"

    ended_in_short = how_it_ended

    def close(self) -> None:
        """Release the connection, and end the actor."""
        self.pipe.close()
        self.kill()
        self.sentinel.close()


class _RayMember:
    """The actor of a member."""

    def listen(self, versions: Callable[[], Mapping[str, str]], key: bytes) -> tuple[NodeVersions, Any, int]:
        """Return what the node has, where the supervisor connects to, and the process's id."""
        address = importlib.import_module("ray").util.get_node_ip_address()
        self._listener = connection.Listener((address, 0), authkey=key)
        return NodeVersions(platform.node(), versions()), self._listener.address, os.getpid()

    def run(self, main: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Run the main function, once the supervisor has connected."""
        with self._listener, self._listener.accept() as supervisor:
            try:
                main(*arguments, supervisor)
            except BaseException as error:
                report(supervisor, error)
