"""Learners as actors on a Ray cluster, all but the first; needs the extra `ray`.

Ray only starts and ends them. The first learner speaks with each through a connection of its own, as with a process of
its machine, and all compute together over TCP. An actor stands for one call of `learners.learn`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import closing, suppress
from multiprocessing import connection
from typing import Any

import ray
from ray import exceptions

from async_wrappers.agents.play.hosts.engine import HostsFailed
from async_wrappers.agents.play.hosts.on_ray import NodeVersions, compare_versions, in_short, node_versions
from async_wrappers.agents.play.many.learners import Job, LearnerFailed, OtherLearner, learn, open_meeting_place

_GRACE = 5.0  # seconds that actors have to end once they are asked to
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
        """See the class."""
        self._cpus, self._gpus, self._cpus_of_hosts = cpus, gpus, cpus_of_hosts
        address = ray.util.get_node_ip_address()
        self.address: str | None = address
        self.meeting_place, self._holds_port = open_meeting_place(address)

    def start(self, jobs: Sequence[Job]) -> Sequence[OtherLearner]:
        """See `LearnersElsewhere`."""
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
        """See `LearnersElsewhere`."""
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
            ray.wait([self._running], timeout=_GRACE)
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
