"""Several learners of a run: how they compute together, and how the first one manages the others.

The first learner is the process of the run. It starts the others, a fleet, sends them commands, methods of their shares
by name, and ends them. They are processes of this machine, or actors on the nodes of a Ray cluster (`on_ray` of the
hosts). In both each runs `learn`.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from multiprocessing import connection
from pathlib import Path
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist
from absl import logging
from torch import Tensor

from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.play.hosts.engine import HostsFailed
from async_wrappers.files import FULL, write_text_atomically
from async_wrappers.fleet import waits
from async_wrappers.fleet.child import as_child
from async_wrappers.fleet.process_fleet import Member, ProcessFleet, Role
from async_wrappers.fleet.pulse import wake_servers
from async_wrappers.fleet.starting import Children
from async_wrappers.fleet.supervised import RunFailed

_C10D: Any = dist  # whose types lack much of what it has
_UPDATE = 600.0  # seconds that a learner waits for the others in an update, at most
_REPORT = 30.0  # seconds until the death of a process is reported, which takes a while on a busy machine
_SEEN = 5.0  # seconds until a network file system shows a file
_LONG = 60.0  # seconds of waiting for others after which the user is told
_SIGN = ".learners"  # the name of a file that each learner must see
_INTERFACE = "GLOO_SOCKET_IFNAME"  # the variable by which the user names a network interface


class LearnerFailed(RuntimeError):
    """A learner's process has died, or raised an exception; the message is one sentence."""


class OtherIsGone(RuntimeError):
    """A learner waits in an update for another one, which has ended, or does not come."""


# Communication of learners.


class Group:
    """One of L learners, as it computes with the others.

    Args:
        number: Which it is; 0 is the first.
        learners: L.
        meeting_place: Where they find one another: a file that does not exist yet, or ``tcp://ADDRESS:PORT`` on the
            first one's machine.
        address: This machine's, where the others reach it; None where all are on this machine.

    Attributes:
        waits_since: When the wait for the others began, in monotonic seconds; None while this one does not wait.

    Raises:
        LearnerFailed: No network interface has the address, or the learners do not reach one another.
    """

    def __init__(self, number: int, learners: int, meeting_place: str, address: str | None = None) -> None:
        """Wait until all are there."""
        self.number, self.learners = number, learners
        self.waits_since: float | None = None
        self._gloo: Any = None
        refuse_foreign(address)
        limit, gloo = timedelta(seconds=_UPDATE), _C10D.ProcessGroupGloo
        try:
            if "://" in meeting_place:
                host, _, port = meeting_place.removeprefix("tcp://").rpartition(":")
                store = _C10D.TCPStore(host, int(port), learners, number == 0, limit, multi_tenant=True)
            else:
                store = _C10D.FileStore(meeting_place, learners)
                store.set_timeout(limit)
            options, interface = gloo._Options(), os.environ.get(_INTERFACE)
            options._timeout = limit
            options._devices = [
                gloo.create_device(interface=interface)
                if interface
                else gloo.create_device(hostname=address or "127.0.0.1")
            ]
            self._gloo = gloo(store, number, learners, options)
        except RuntimeError as error:
            said = str(error).partition("\n")[0]
            remedy = (
                f"let their machines reach one another on any port, or name another network interface in {_INTERFACE}"
            )
            if os.strerror(errno.EAGAIN) in said:  # a thread of PyTorch's
                remedy = "raise the limit of processes and threads (`ulimit -u`, or a container's)"
            raise LearnerFailed(
                f"learner {number} of {learners} has not met the others at {meeting_place} ({said}): {remedy}"
            ) from None

    def sum(self, *numbers: float) -> list[float]:
        """Return the sums over all learners of the arguments."""
        sums = torch.tensor(numbers, dtype=torch.float64)
        self._add_up(sums)
        return sums.tolist()

    def average(self, gradients: Mapping[str, Tensor], count: Tensor | int) -> Mapping[str, Tensor]:
        """Average the gradients of all learners in place, each weighted by the number of items that its loss averages.

        The result is the gradient of the mean over all items. Every learner gets the same numbers, bit for bit.
        """
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients.values()]) * count
        on_host = torch.cat([flat.cpu(), torch.as_tensor(count, dtype=flat.dtype).cpu().view(1)])
        self._add_up(on_host)
        mean, start = (on_host[:-1] / on_host[-1].clamp(min=1.0)).to(flat.device), 0
        for gradient in gradients.values():
            gradient.copy_(mean[start : start + gradient.numel()].view(gradient.shape))
            start += gradient.numel()
        return gradients

    def _add_up(self, numbers: Tensor) -> None:
        """Add the tensors of all learners up in place; nothing but the end of another one interrupts the wait."""
        self.waits_since = time.monotonic()
        try:
            self._gloo.allreduce([numbers]).wait()
        except RuntimeError as error:
            raise OtherIsGone(str(error)) from None
        self.waits_since = None

    def close(self) -> None:
        """Leave; the others notice if they wait for this one."""
        self._gloo = None


def open_meeting_place(address: str) -> tuple[str, Any]:
    """Return a place for `Group` on a free port of this machine's address, and what holds the port while it lives."""
    store = _C10D.TCPStore(address, 0, is_master=True, wait_for_workers=False, multi_tenant=True)
    return f"tcp://{address}:{store.port}", store


def refuse_foreign(address: str | None) -> None:
    """Refuse an address that is not this machine's.

    Raises:
        LearnerFailed: It is not.
    """
    try:
        with socket.socket() as end:
            end.bind((address or "127.0.0.1", 0))
    except OSError:
        raise LearnerFailed(
            f"learners cannot meet at {address}: no network interface of {socket.gethostname()} has that address"
        ) from None


# The other learners.


@dataclass(frozen=True)
class LearnerJob:
    """What the learners other than the first need, as plain data.

    Attributes:
        make_share: Pickled, from a `Group` to the learner's share of the run.
        learners: L.
        meeting_place: As in `Group`.
        modules: What is imported first.
        threads: Intra-op threads of PyTorch.
    """

    make_share: bytes
    learners: int
    meeting_place: str
    modules: Sequence[str]
    threads: int


@dataclass(frozen=True)
class LearnersElsewhere:
    """Where the other learners run.

    Attributes:
        children: Starts and ends them.
        main: Runs one.
        meeting_place: As in `Group`.
        address: As in `Group`, the first learner's.
        close: Cleans up, once all have ended.
    """

    children: Any
    main: Callable[..., None]
    meeting_place: str
    address: str | None
    close: Callable[[], None]


def in_processes() -> LearnersElsewhere:
    """Let the other learners be processes of this machine."""
    children, directory = Children("OtherLearners"), tempfile.mkdtemp(prefix="learners_")

    def close() -> None:
        wake_servers()
        shutil.rmtree(directory, ignore_errors=True)

    return LearnersElsewhere(children, run_learner, os.path.join(directory, "store"), None, close)


class OtherLearners:
    """The learners but the first.

    Threads hear them, so that one that is stopped is ended, and long waits are told, also while the first learner waits
    for the others in an update.

    Args:
        make_share: From a `Group` to a learner's share; it travels by cloudpickle.
        learners: L.
        modules: What is imported first in each process.
        threads: Intra-op threads of PyTorch in each process.
        elsewhere: Where they run; None for processes of this machine.

    Attributes:
        group: The first learner's.

    Raises:
        LearnerFailed: One could not be made.
    """

    def __init__(
        self,
        make_share: Callable[[Group], Any],
        learners: int,
        modules: Sequence[str] = (),
        threads: int = 1,
        elsewhere: LearnersElsewhere | None = None,
    ) -> None:
        """Start them."""
        self._learners, self._elsewhere = learners, elsewhere or in_processes()
        self._fleet = ProcessFleet("OtherLearners", self._elsewhere.children)
        self.group: Group | None = None
        self._waits_since: float | None = None  # when the wait for answers began
        self._news = threading.Condition()  # of the two below
        self._answers: dict[int, deque[Any]] = {number: deque() for number in range(1, learners)}
        self._failures: dict[int, Exception] = {}  # by learner
        self._told: float | None = None  # for which wait the user was told
        payload, place = cloudpickle.dumps(make_share), self._elsewhere.meeting_place
        job = LearnerJob(payload, learners, place, tuple(modules), threads)
        # No daemon: a learner may start processes of its own, hosts, and those of environments.
        learner = Role(
            *(f"learner {{}} of {learners}", False, self._elsewhere.main, lambda member: (job, member.number)),
            daemon=False,
            hear=self._hear,
            lost=self._lose,
        )
        try:
            try:
                for number in range(1, learners):
                    self._fleet.add(learner, number)
                self._fleet.drive(partial(self._fail, 0), self._tell_of_wait)
            except RunFailed as error:
                raise LearnerFailed(str(error)) from None
            self.answers()  # each has come as far as the meeting place, or has failed
            self.group = self._met(place)
        except BaseException:
            self.close()
            raise

    @property
    def places(self) -> list[str]:
        """Which process of which machine each is, in words."""
        return [member.child.place for member in self._fleet.members]

    def _met(self, place: str) -> Group:
        """Return the first learner's group; one that dies on its way there would be waited for until the time is up."""
        found: list[Group | BaseException] = []

        def meet() -> None:
            try:
                found.append(Group(0, self._learners, place, self._elsewhere.address))
            except BaseException as error:
                found.append(error)
            with self._news:
                self._news.notify()

        threading.Thread(target=meet, name="meets the other learners", daemon=True).start()
        with self._news:
            self._news.wait_for(lambda: found or self._failures)
        if not found:
            raise self._blamed()
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def tell(self, what: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> None:
        """Let all call a method of their share; `answers` returns the results.

        Args:
            what: The method's name.
            arguments: What it is given.
            each: Further arguments, by learner.
        """
        own = each if each is not None else [()] * len(self._answers)
        for member, more in zip(self._fleet.members, own, strict=True):
            member.send((what, *arguments, *more))

    def answers(self) -> list[Any]:
        """Return the results of all, in the order of the learners.

        Raises:
            LearnerFailed: One has died, or raised an exception.
        """
        self._waits_since = time.monotonic()
        try:
            with self._news:
                self._news.wait_for(lambda: self._failures or all(self._answers.values()))
            if self._failures:
                raise self._blamed()
            return [answers.popleft() for answers in self._answers.values()]
        finally:
            self._waits_since = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise another learner's error, where waiting for it fails.

        Raises:
            LearnerFailed: One has died, or raised an exception.
        """
        try:
            yield
        except OtherIsGone:
            raise self._blamed() from None

    def _blamed(self) -> Exception:
        """Return the error of the learner that failed first; the others fail because they wait for it."""

        def own() -> list[Exception]:
            return [each for _, each in sorted(self._failures.items()) if not isinstance(each, OtherIsGone)]

        with self._news:  # a process that ends takes a moment to be reported
            self._news.wait_for(lambda: own() or len(self._failures) == len(self._answers), _REPORT)
        if found := [*own(), *self._failures.values()]:
            return found[0] if not isinstance(found[0], OtherIsGone) else LearnerFailed(str(found[0]))
        return LearnerFailed(
            f"a learner has not come to an update for {_UPDATE:g} s: the same command goes on from the newest "
            "checkpoint"
        )

    def close(self) -> None:
        """End the others."""
        if self.group is not None:
            self.group.close()
        for member in self._fleet.members:
            member.send(None)
        self._fleet.end(self._fleet.members, waits.ORDER)
        self._fleet.close()
        self._elsewhere.close()

    # In the threads of the fleet.

    def _tell_of_wait(self) -> None:
        since = self._waits_since if self.group is None else self._waits_since or self.group.waits_since
        if since is not None and since != self._told and time.monotonic() - since > _LONG:
            self._told = since
            who = " or ".join(f"{number} ({place})" for number, place in enumerate(self.places, 1))
            logging.warning(
                "learner 0 of %d has waited %g s for learner %s: if that does not come, `kill -9` of its process ends "
                "the run, and the same command goes on from the newest checkpoint",
                self._learners,
                _LONG,
                who,
            )

    def _hear(self, learner: Member, message: Any) -> None:
        with self._news:
            self._answers[learner.number].append(message[1])
            self._news.notify()

    def _lose(self, learner: Member) -> None:
        """Note why a learner has ended."""
        if learner.error is not None:
            failure = failure_of(learner.name, *learner.error, learner.words)
        else:
            try:
                how = f"{learner.why} and was ended" if learner.why else self._fleet.ended_in_short(learner)
                failure = LearnerFailed(
                    f"{learner.name} ({learner.child.place}) {how}, and the others cannot go on without it: the same "
                    "command goes on from the newest checkpoint"
                )
            except RuntimeError as error:
                failure = error
        self._fail(learner.number, failure)

    def _fail(self, learner: int, failure: Exception) -> None:
        with self._news:
            self._failures[learner] = failure
            self._news.notify()


def failure_of(who: str, error: BaseException | None, trace: str, words: str) -> Exception:
    """Return what the first learner raises where another one has raised an exception.

    Args:
        who: That one.
        error: The exception; None if it was not pickled.
        trace: Its traceback.
        words: Its type and what it says, as "KeyError: 'rom'".
    """
    if isinstance(error, OSError) and error.errno in FULL:  # a disk, which is told as the first one's own
        return OSError(error.errno, error.strerror, error.filename)
    if isinstance(error, DivergedError):
        return DivergedError(f"{who}: {error}")
    if isinstance(error, HostsFailed | LearnerFailed):
        return LearnerFailed(f"{who}: {error}")
    kind, _, said = words.partition(": ")
    raised = f"{kind}: {(said.strip() or 'no message').splitlines()[0]}"
    return (OtherIsGone if isinstance(error, OtherIsGone) else LearnerFailed)(f"{who} raised {raised}\n\n{trace}")


# A directory that all learners share.


def sign_directory(directory: Path) -> str:
    """Write a sign into a directory, and return it for `check_sign`."""
    sign = secrets.token_hex(8)
    write_text_atomically(directory / _SIGN, sign)
    return sign


def check_sign(directory: Path, sign: str) -> None:
    """Refuse a directory of this machine's own in the place of the first learner's.

    Raises:
        LearnerFailed: It has not the sign.
    """
    path, deadline = directory / _SIGN, time.monotonic() + _SEEN  # a network file system may be late
    while not (path.is_file() and path.read_text() == sign):
        if time.monotonic() > deadline:
            raise LearnerFailed(
                f"{socket.gethostname()} does not see the {directory} of the first learner: each learner writes its "
                "replay there, so --base_dir must lie on a file system that all nodes share, under the same path"
            )
        time.sleep(0.1)


# In another learner's process.


def learn(job: LearnerJob, number: int, first: Any, address: str | None = None) -> None:
    """Run the commands of the first learner until it says None.

    Args:
        job: Of all.
        number: Of this one.
        first: The pipe to the first one.
        address: As in `Group`.

    Raises:
        LearnerFailed: A module of the user's is not there.
    """
    torch.set_num_threads(job.threads)
    try:
        for module in job.modules:
            import_module(module)
        make_share = cloudpickle.loads(job.make_share)
    except ModuleNotFoundError as error:
        raise LearnerFailed(
            f"{socket.gethostname()} cannot import {error.name!r}: install the module there, or put it under the "
            "same path as here"
        ) from None
    refuse_foreign(address)  # here, where nobody waits for this learner yet
    first.send(("answer", None))
    share = make_share(Group(number, job.learners, job.meeting_place, address))
    while (command := first.recv()) is not None:
        what, *arguments = command
        first.send(("answer", getattr(share, what)(*arguments)))


def run_learner(job: LearnerJob, number: int, first: connection.Connection) -> None:
    """Run a learner's process."""
    with as_child(first):
        learn(job, number, first)
    wake_servers()
    os._exit(0)
