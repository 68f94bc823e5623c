"""Hosts, and learners, as actors on a Ray cluster; needs the extra `ray`.

Weights are put into Ray's object store once per version, and answers come back through it: the learner reads their
arrays where they lie. A host is an actor that Ray spreads over the nodes and does not restart: the learner starts
another incarnation, which continues where the last block that it learnt from ended.

Ray starts and ends learners, and carries nothing between them: the first one speaks with each of the others through a
connection of its own, as with a process of its machine, so a death is an end of file in both.
"""

from __future__ import annotations

import os
import platform
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from multiprocessing import connection
from typing import Any, NamedTuple

import cloudpickle
import ray
from ray import exceptions

from async_wrappers.agents.play.hosts.engine import Answer, HostPlan, HostsFailed, Lost, Player, failure, portable
from async_wrappers.agents.play.hosts.host import make_host, versions
from async_wrappers.agents.play.many.learners import Job, LearnerFailed, OtherLearner, learn, open_meeting_place
from async_wrappers.fleet import waits
from async_wrappers.ray_cluster import Exits, connected_to_ray, exits_told, in_short, room, room_for

_FULL = (exceptions.ObjectStoreFullError, exceptions.OutOfDiskError)


class RayHosts:
    """Hosts as actors on a Ray cluster; see `HostEngine`.

    Args:
        plan: What they are made from.
        modules: What is imported first in each actor.
        threads: Intra-op threads of PyTorch in each actor.
        address: The cluster's, such as ``"10.0.0.1:6379"``; None starts a Ray of its own on this machine.
        num_hosts: How many there are.
        cpus: Of each.
        gpus: Of each; a part of one is allowed.

    Raises:
        NoCluster: None answers, or none can be started.
        HostsFailed: The cluster has too few CPUs or GPUs.
    """

    def __init__(
        self,
        plan: HostPlan,
        modules: Sequence[str] = (),
        threads: int = 1,
        *,
        address: str | None = None,
        num_hosts: int = 1,
        cpus: int = 1,
        gpus: float = 0.0,
    ) -> None:
        self._modules, self._threads = tuple(modules), threads
        self._wants = {"CPU": float(cpus), "GPU": float(gpus)}
        self._actors: dict[int, _Actor] = {}
        self._pending: dict[Any, _Actor] = {}  # by the reference of what it is to return, oldest first
        self._lost: list[Lost] = []
        self._weights: Any = None
        self._version = -1
        self._has_begun = False  # whether the cluster has had room for a host
        self._stack = ExitStack()
        # Ray's own niceness of 15 is for jobs in the background. A learner waits for its hosts.
        self._stack.enter_context(connected_to_ray(address, cpus * num_hosts, niceness=0))
        try:
            self._check_resources(num_hosts)
            self._payload = ray.put(cloudpickle.dumps(plan))
        except BaseException:
            self._stack.close()
            raise

    def _check_resources(self, num_hosts: int) -> None:
        """Refuse hosts that the cluster would never start."""
        if (most := room_for(self._wants)) < num_hosts:
            cpus, gpus = self._wants.values()
            raise HostsFailed(
                f"Hosts.num_hosts must be <= {most}, as many as the cluster's nodes have {cpus:g} CPUs and {gpus:g} "
                f"GPUs for, got {num_hosts}: bind fewer, or fewer Hosts.cpus_per_host"
            )

    def start(self, host: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        made = _RemoteHost.options(  # type: ignore[attr-defined]
            num_cpus=self._wants["CPU"],
            num_gpus=self._wants["GPU"],
            scheduling_strategy="SPREAD",
            max_restarts=0,
            max_task_retries=0,
        ).remote()
        actor = self._actors[host] = _Actor(host, incarnation, made)
        # In this order: another version of the project may not be able to read the plan.
        self._pending[made.versions.remote()] = actor
        self._pending[made.start.remote(self._payload, self._modules, self._threads, host, incarnation, rows)] = actor

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        try:
            self._weights, self._version = ray.put(portable(weights)), version
        except _FULL as error:
            raise _full(error) from None

    def submit(self, host: int, order: Any = False) -> None:
        actor = self._actors[host]
        self._pending[actor.made.play.remote(self._weights, self._version, order)] = actor

    def collect(self, timeout: float) -> list[Any]:
        found: list[Answer | Lost] = [*self._lost]
        self._lost = []
        deadline = time.monotonic() + timeout
        while not found and self._pending and (left := deadline - time.monotonic()) > 0:
            ready, _ = ray.wait([*self._pending], num_returns=1, timeout=left, fetch_local=False)
            if not ready:
                break
            # All that is ready besides, in the order of the orders.
            ready, _ = ray.wait([*self._pending], num_returns=len(self._pending), timeout=0, fetch_local=False)
            for reference in ready:
                if reference in self._pending:  # not of a host that was found lost meanwhile
                    found += self._got(reference, self._pending.pop(reference))
        return found

    def _got(self, reference: Any, actor: _Actor) -> list[Any]:
        """Return the answer or the loss that a reference stands for, if any."""
        try:
            value = ray.get(reference)
        except exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, _FULL):
                raise _full(cause) from None
            if isinstance(cause, Exits):
                ray.kill(actor.made, no_restart=True)
                return [self._lose(actor, str(cause))]
            raise failure(actor.host, cause if isinstance(cause, BaseException) else error) from None
        except _FULL as error:
            raise _full(error) from None
        except exceptions.RayError as error:  # the actor, its node, or the object died with it
            if "No module named" in str(error):
                raise HostsFailed(
                    f"host {actor.host} cannot import async_wrappers: install version {versions()['async_wrappers']} "
                    "on all nodes of the cluster"
                ) from None
            return [self._lose(actor, f"has died ({in_short(error)})")]
        if isinstance(value, NodeVersions):
            compare_versions(f"host {actor.host} ({value.node})", value.versions)
            actor.is_up = self._has_begun = True
            return []
        return [] if value is None else [value]

    def _lose(self, actor: _Actor, why: str) -> Lost:
        self._pending = {reference: each for reference, each in self._pending.items() if each is not actor}
        return Lost(actor.host, actor.incarnation, why)

    def kill(self, host: int, why: str) -> None:
        actor = self._actors[host]
        if not actor.is_up:
            cpus, gpus = self._wants.values()
            why = (
                f"{why}: Ray had not started it; it needs {cpus:g} CPUs and {gpus:g} GPUs, and of the cluster {room()}"
            )
            if not self._has_begun:
                raise HostsFailed(f"host {host} {why}")
        ray.kill(actor.made, no_restart=True)
        self._lost.append(self._lose(actor, why))

    def close(self) -> None:
        with suppress(Exception):  # of a cluster that is gone
            ended = [actor.made.close.remote() for actor in self._actors.values()]
            if ended:
                ray.wait(ended, num_returns=len(ended), timeout=waits.ORDER)
            for actor in self._actors.values():
                ray.kill(actor.made, no_restart=True)
        self._actors.clear()
        self._pending.clear()
        self._weights = self._payload = None
        self._stack.close()


class _Actor:
    """A host's actor, as the learner sees it."""

    def __init__(self, host: int, incarnation: int, made: Any) -> None:
        self.host, self.incarnation, self.made, self.is_up = host, incarnation, made, False


class NodeVersions(NamedTuple):
    """What a node has."""

    node: str
    versions: Mapping[str, str]


@ray.remote
class _RemoteHost:
    """A host in a process of Ray's."""

    def __init__(self) -> None:
        self._host: Player | None = None

    def versions(self) -> NodeVersions:
        return node_versions()

    def process_id(self) -> int:
        return os.getpid()

    def start(self, *of_host: Any) -> None:
        with exits_told():
            self._host = make_host(*of_host)

    def play(self, weights: Mapping[str, Any] | None, version: int, order: Any) -> Answer:
        assert self._host is not None
        if weights is not None:
            self._host.load_weights(weights, version)
        with exits_told():
            return self._host.play(order)

    def close(self) -> None:
        if self._host is not None:
            self._host.close()


def node_versions() -> NodeVersions:
    """Return what this node has."""
    return NodeVersions(platform.node(), versions())


def compare_versions(who: str, there: Mapping[str, str]) -> None:
    """Refuse a host or a learner on a node with other versions than the learner's here.

    Raises:
        HostsFailed: That is so.
    """
    here = versions()
    for name, version in here.items():
        if there.get(name) != version:
            raise HostsFailed(
                f"{who} has {name} {there.get(name)}, and the learner has {version}: install the same versions on all "
                "nodes of the cluster"
            )


def _full(error: BaseException) -> HostsFailed:
    return HostsFailed(
        f"Ray's object store is full ({in_short(error)}): bind a smaller Hosts.block_length or fewer environments, or "
        "give the nodes more memory (ray start --object-store-memory)"
    )


# Learners as actors on a Ray cluster, all but the first; needs the extra `ray`.
#
# Ray only starts and ends them. The first learner speaks with each through a connection of its own, as with a process
# of its machine, and all compute together over TCP. An actor stands for one call of `learners.learn`.


_REPORT = 30.0  # seconds until Ray reports the death of an actor
_START = 300.0  # seconds that a learner has to start in


class LearnersOnRay:
    """Other learners as actors, spread over the nodes of the cluster; see `LearnersElsewhere`.

    The process must be connected to the cluster.

    Args:
        cpus: Of each.
        gpus: Of each; a part of one is allowed.
        cpus_of_hosts: That the hosts of all learners need besides.
    """

    def __init__(self, cpus: int, gpus: float, cpus_of_hosts: int) -> None:
        self._cpus, self._gpus, self._cpus_of_hosts = cpus, gpus, cpus_of_hosts
        address = ray.util.get_node_ip_address()
        self.address: str | None = address
        self.meeting_place, self._holds_port = open_meeting_place(address)

    def start(self, jobs: Sequence[Job]) -> Sequence[OtherLearner]:
        has, needs = ray.cluster_resources().get("CPU", 0.0), len(jobs) * self._cpus + self._cpus_of_hosts
        if needs > has:
            raise LearnerFailed(
                f"the cluster must have {needs} CPUs, {self._cpus_of_hosts} for all hosts and {self._cpus} for each "
                f"learner but the first, and has {has:g}: bind fewer VectorRunner.learners or Hosts.num_hosts"
            )
        made = [
            _RemoteLearner.options(  # type: ignore[attr-defined]
                num_cpus=self._cpus,
                num_gpus=self._gpus,
                scheduling_strategy="SPREAD",
                max_restarts=0,
                max_task_retries=0,
            ).remote()
            for _ in jobs
        ]
        try:
            key = secrets.token_bytes(32)
            listening = [actor.listen.remote(key) for actor in made]
            return [
                self._started(job, actor, heard, key) for job, actor, heard in zip(jobs, made, listening, strict=True)
            ]
        except BaseException:
            for actor in made:
                ray.kill(actor, no_restart=True)
            raise

    def _started(self, job: Job, actor: Any, listening: Any, key: bytes) -> _Learner:
        who = f"learner {job.number} of {job.learners}"
        try:
            (node, versions), address, process = ray.get(listening, timeout=_START)
            compare_versions(f"{who} ({node})", versions)
        except exceptions.GetTimeoutError:
            raise LearnerFailed(
                f"{who} has not started for {_START:g} s: ray status says whether a node has {self._cpus} CPUs and "
                f"{self._gpus:g} GPUs free for it"
            ) from None
        except exceptions.RayError as error:
            raise LearnerFailed(f"{who} cannot be started: {in_short(error)}") from None
        except HostsFailed as error:
            raise LearnerFailed(str(error)) from None
        running = actor.learn.remote(job)
        try:
            pipe = connection.Client(address, authkey=key)
        except OSError as error:
            raise LearnerFailed(
                f"{who} ({node}) cannot be reached at {address[0]}:{address[1]} ({error}): let the machines reach one "
                "another on any port"
            ) from None
        return _Learner(actor, running, pipe, f"process {process} on {node}")

    def close(self) -> None:
        self._holds_port = None


class _Learner:
    """An actor; see `OtherLearner`."""

    sentinels: Sequence[Any] = ()  # its connection ends with it

    def __init__(self, actor: Any, running: Any, pipe: Any, place: str) -> None:
        self._actor, self._running, self.pipe, self.place = actor, running, pipe, place

    def lives(self) -> bool:
        return not ray.wait([self._running], timeout=0)[0]

    def look(self) -> None:
        pass  # another machine's processes are not seen from here

    def how_it_ended(self) -> str:
        try:
            ray.get(self._running, timeout=_REPORT)
        except exceptions.RayError as error:
            return f"has died ({in_short(error)})"
        return "has ended"

    def close(self) -> None:
        with suppress(Exception):  # of a cluster that is gone
            ray.wait([self._running], timeout=waits.ORDER)
            ray.kill(self._actor, no_restart=True)


@ray.remote
class _RemoteLearner:
    """A learner in a process of Ray's."""

    def listen(self, key: bytes) -> tuple[NodeVersions, Any, int]:
        """Return what the node has, where the first learner connects to, and the process's id."""
        self._listener = connection.Listener((ray.util.get_node_ip_address(), 0), authkey=key)
        return node_versions(), self._listener.address, os.getpid()

    def learn(self, job: Job) -> None:
        """Learn until the first learner hangs up."""
        with closing(self._listener), self._listener.accept() as first:
            learn(job, first, ray.util.get_node_ip_address())
