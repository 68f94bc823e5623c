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
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

import cloudpickle
import ray
from ray import exceptions

from async_wrappers.agents.play.hosts.engine import Answer, HostsFailed, Lost, Player, failure, portable
from async_wrappers.agents.play.hosts.host import make_host, versions
from async_wrappers.agents.play.many.learners import (
    LearnerFailed,
    LearnerJob,
    LearnersElsewhere,
    learn,
    open_meeting_place,
)
from async_wrappers.fleet import waits
from async_wrappers.fleet.ray_fleet import Actors, NodeVersions, RayChildren, ending, refuse_other_versions
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.ray_cluster import connected_to_ray, exits_told, in_short, room, room_for

if TYPE_CHECKING:
    from async_wrappers.agents.play.hosts.engine import HostPlan

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
        self._hosts: dict[int, _RayHost] = {}
        self._pending: dict[Any, _RayHost] = {}  # by the reference of what it is to return, oldest first
        self._lost: list[Lost] = []
        self._weights: Any = None
        self._version = -1
        self._has_begun = False  # whether the cluster has had room for a host
        self._stack = ExitStack()
        # Ray's own niceness of 15 is for jobs in the background. A learner waits for its hosts.
        self._stack.enter_context(connected_to_ray(address, cpus * num_hosts, niceness=0))
        try:
            self._check_resources(num_hosts)
            needs = {"num_cpus": float(cpus), "num_gpus": float(gpus), "scheduling_strategy": "SPREAD"}
            self._actors = Actors(_RemoteHost, **needs)
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
        made, of = self._actors.make(host), _RayHost(host, incarnation)
        self._hosts[host] = of
        # In this order: another version of the project may not be able to read the plan.
        self._pending[made.versions.remote()] = of
        self._pending[made.start.remote(self._payload, self._modules, self._threads, host, incarnation, rows)] = of

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        try:
            self._weights, self._version = ray.put(portable(weights)), version
        except _FULL as error:
            raise _full(error) from None

    def submit(self, host: int, order: Any = False) -> None:
        if (of := self._hosts[host]).is_over:
            return  # its loss has been told
        self._pending[self._actors[host].play.remote(self._weights, self._version, order)] = of

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

    def _got(self, reference: Any, host: _RayHost) -> list[Any]:
        """Return the answer or the loss that a reference stands for, if any."""
        try:
            value = ray.get(reference)
        except (exceptions.RayError, *_FULL) as error:
            return [self._lost_by(host, error)]
        if isinstance(value, NodeVersions):
            try:
                refuse_other_versions(f"host {host.number} ({value.node})", value.versions, versions())
            except RunFailed as refused:
                raise HostsFailed(str(refused)) from None
            host.is_up = self._has_begun = True
            return []
        return [] if value is None else [value]

    def _lost_by(self, host: _RayHost, error: Exception) -> Lost:
        """Return the loss that an error of Ray's stands for.

        Raises:
            HostsFailed: Another host would do no better.
        """
        why, cause, has_died, lacks = ending(error)
        for full in (error, cause):
            if isinstance(full, _FULL):
                raise _full(full) from None
        if cause is not None:
            raise failure(host.number, cause) from None
        if lacks:
            raise HostsFailed(
                f"host {host.number} cannot import async_wrappers: install version {versions()['async_wrappers']} "
                "on all nodes of the cluster"
            ) from None
        return self._lose(host, f"has died ({why})" if has_died else why)

    def _lose(self, host: _RayHost, why: str) -> Lost:
        host.is_over = True
        self._actors.end(host.number)
        self._pending = {reference: each for reference, each in self._pending.items() if each is not host}
        return Lost(host.number, host.incarnation, why)

    def kill(self, host: int, why: str) -> None:
        of = self._hosts[host]
        if not of.is_up:
            cpus, gpus = self._wants.values()
            why = (
                f"{why}: Ray had not started it; it needs {cpus:g} CPUs and {gpus:g} GPUs, and of the cluster {room()}"
            )
            if not self._has_begun:
                raise HostsFailed(f"host {host} {why}")
        self._lost.append(self._lose(of, why))

    def close(self) -> None:
        self._actors.close("close", waits.ORDER)
        self._hosts.clear()
        self._pending.clear()
        self._weights = self._payload = None
        self._stack.close()


class _RayHost:
    """A host, as the learner sees it."""

    def __init__(self, number: int, incarnation: int) -> None:
        self.number, self.incarnation, self.is_up, self.is_over = number, incarnation, False, False


class _RemoteHost:
    """A host in a process of Ray's."""

    def __init__(self) -> None:
        self._host: Player | None = None

    def versions(self) -> NodeVersions:
        return NodeVersions(platform.node(), versions())

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


def _full(error: BaseException) -> HostsFailed:
    return HostsFailed(
        f"Ray's object store is full ({in_short(error)}): bind a smaller Hosts.block_length or fewer environments, or "
        "give the nodes more memory (ray start --object-store-memory)"
    )


def learners_on_ray(others: int, cpus: int, gpus: float, cpus_of_hosts: int) -> LearnersElsewhere:
    """Let the other learners be actors, spread over the nodes of the cluster that this process is connected to.

    Args:
        others: How many they are.
        cpus: Of each.
        gpus: Of each; a part of one is allowed.
        cpus_of_hosts: That the hosts of all learners need besides.

    Raises:
        LearnerFailed: The cluster has too few CPUs.
    """
    has, needs = ray.cluster_resources().get("CPU", 0.0), others * cpus + cpus_of_hosts
    if needs > has:
        raise LearnerFailed(
            f"the cluster must have {needs} CPUs, {cpus_of_hosts} for all hosts and {cpus} for each learner but the "
            f"first, and has {has:g}: bind fewer VectorRunner.learners or Hosts.num_hosts"
        )
    address = ray.util.get_node_ip_address()
    meeting_place, port = open_meeting_place(address)
    held = [port]
    children = RayChildren(others, versions, num_cpus=cpus, num_gpus=gpus)
    return LearnersElsewhere(children, _learn, meeting_place, address, held.clear)


def _learn(job: LearnerJob, number: int, first: connection.Connection) -> None:
    learn(job, number, first, ray.util.get_node_ip_address())
