"""A worker on a node of a Ray cluster: it makes a policy there, and answers tickets, one at a time.

Tickets and answers are records of the wire format, as bytes, which Ray carries without pickling them.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import gymnasium as gym

from async_wrappers.live.inference.worker import infer, take_weights
from async_wrappers.live.memory.exchange import Fate
from async_wrappers.live.memory.weights import WeightsLayout
from async_wrappers.live.remote.wire import SENTENCE, Answers, Kind, TicketRecords, encoded
from async_wrappers.policy import as_act
from async_wrappers.ray_cluster import exits_told
from async_wrappers.version import __version__


@dataclass(frozen=True)
class WorkerJob:
    """What all workers of a run have in common.

    Attributes:
        make_policy: Makes a policy, pickled by cloudpickle.
        observation_space: Of what the policy reads.
        answers: Of its answers: actions, or features.
        extras: Of the values that it leaves for the learner; None for none.
        encodes: Whether `answers` are features of a policy with memory.
        weights: Where the arrays of published weights lie; None without learners.
        threads: That torch may use.
    """

    make_policy: bytes
    observation_space: gym.Space[Any]
    answers: gym.Space[Any]
    extras: gym.spaces.Dict | None
    encodes: bool
    weights: WeightsLayout | None
    threads: int


def versions() -> dict[str, str]:
    """Return the versions that a node must share with the environment loop's machine."""
    return {"async_wrappers": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}


class RayWorker:
    """The actor of one worker."""

    def __init__(self) -> None:
        """Do nothing yet, so that what goes wrong is an answer of `begin`."""
        self._policy: Any = None

    @exits_told()
    def begin(self, number: int, theirs: Mapping[str, str], job: bytes) -> str | None:
        """Make the policy, or make it anew; return why this node cannot, as a sentence without a subject, or None.

        Args:
            number: Of the worker.
            theirs: The `versions` of the environment loop's machine.
            job: A pickled `WorkerJob`.

        Raises:
            Exception: That of `make_policy`.
            Exits: It ends the program.
        """
        for name, ours in versions().items():
            if (wanted := theirs.get(name)) != ours:
                return f"has {name} {ours}, and the environment loop {wanted}: install the same version on all nodes"
        self._policy = None
        try:
            self._number, self._job = number, (run := cloudpickle.loads(job))
            make_policy: Callable[[], Any] = cloudpickle.loads(run.make_policy)
        except ImportError as error:
            return missing_module(error.name or str(error))
        policy = make_policy()
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(run.threads)
        if run.weights is not None and not hasattr(policy, "load_weights"):
            raise ValueError(f"a policy needs load_weights(weights, version) where a learner runs, got {policy!r}")
        self._act = as_act(policy, run.encodes)
        self._ticket = TicketRecords(run.observation_space).record()
        self._answer = Answers(run.answers, run.extras).record()
        self._policy = policy
        return None

    @exits_told()
    def infer(self, record: bytes, version: int = 0, updates: int = 0, weights: Any = None) -> bytes:
        """Return the record that answers a ticket's.

        Args:
            record: The ticket, with the observation.
            version: Of the weights, if there are newer ones.
            updates: Behind them.
            weights: Their bytes, uint8, in the node's shared memory.

        Raises:
            Exception: The policy's.
            Exits: It ends the program.
        """
        received = time.monotonic_ns()
        self._ticket.data[:] = record
        ticket, observation = self._ticket.read()
        if weights is not None:
            take_weights(self._policy, self._job.weights.views(weights), version, updates)
        job = self._job
        infers = ticket, observation, self._act, job.answers, time.monotonic_ns(), job.extras, job.encodes
        finished = infer(self._number, *infers)
        times = received, finished.began, finished.ended, time.monotonic_ns()
        if finished.fate == Fate.DONE:
            return bytes(self._answer.write(ticket, times, finished.action, finished.extras))
        text = str(finished.action).encode(errors="replace")[:SENTENCE]
        return encoded(Kind.REFUSED, text, ticket.incarnation, ticket.number, times)


def missing_module(name: str) -> str:
    """Return the end of a sentence about a node that lacks a module."""
    return (
        f"has no module {name!r}: install it on all nodes, or send it along, as with "
        "RayWorkers(runtime_env={'working_dir': '.'})"
    )
