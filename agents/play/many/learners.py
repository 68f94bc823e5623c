"""Several learners of a run: how they compute together, and how the first one manages the others.

The first learner is the process of the run. It starts the others, sends them commands through a pipe each, methods of
their shares by name, and ends them. `Processes` are the others on this machine; `on_ray` of the hosts has those on the
nodes of a Ray cluster. In both each runs `learn`.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol

import cloudpickle
import torch
import torch.distributed as dist
from absl import logging
from torch import Tensor

from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.files import FULL, write_text_atomically
from async_wrappers.fleet import waits
from async_wrappers.fleet.child import become_child
from async_wrappers.fleet.pulse import wake_servers
from async_wrappers.fleet.starting import Children
from async_wrappers.fleet.supervised import RunFailed

_UPDATE = 600.0  # seconds that a learner waits for the others in an update, at most
_REPORT = 30.0  # seconds until the death of a process is reported, which takes a while on a busy machine
_SEEN = 5.0  # seconds until a network file system shows a file
_LOOK = 1.0  # seconds between two looks at whether a learner lives
_LONG = 60.0  # seconds of waiting for others after which the user is told
_SIGN = ".learners"  # the name of a file that each learner must see
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface


class LearnerFailed(RuntimeError):
    """A learner's process has died, or raised an exception; the message is one sentence."""


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
        by_file = "://" not in meeting_place
        with _on_interface(_interface_of(address)):
            try:
                dist.init_process_group(
                    "gloo",
                    init_method=f"file://{meeting_place}" if by_file else meeting_place,
                    rank=number,
                    world_size=learners,
                    timeout=timedelta(seconds=_UPDATE),
                )
            except RuntimeError as error:
                said = str(error).partition("\n")[0]
                remedy = (
                    "let their machines reach one another on any port, or name another network interface in "
                    "GLOO_SOCKET_IFNAME"
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
        dist.all_reduce(numbers)
        self.waits_since = None

    def close(self) -> None:
        """Leave; the others notice if they wait for this one."""
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _loopback() -> str:
    return "lo" if sys.platform.startswith("linux") else "lo0"


def open_meeting_place(address: str) -> tuple[str, Any]:
    """Return a place for `Group` on a free port of this machine's address, and what holds the port while it lives."""
    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, 0, is_master=True, wait_for_workers=False, multi_tenant=True
    )
    return f"tcp://{address}:{store.port}", store


def _interface_of(address: str | None) -> str:
    """Return the name of the network interface that has an IPv4 address; None is this machine's own."""
    if address is None or address.startswith("127."):
        return _loopback()
    import fcntl  # not on every system, nor needed there

    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end, suppress(OSError):  # it may have no address
            found = fcntl.ioctl(end.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    raise LearnerFailed(
        f"learners cannot meet at {address}: no network interface of {socket.gethostname()} has that address"
    )


@contextmanager
def _on_interface(interface: str) -> Iterator[None]:
    """Let gloo, which looks for the machine's name otherwise, talk through an interface, unless the user names one."""
    name = "GLOO_SOCKET_IFNAME"
    given = os.environ.get(name)
    os.environ.setdefault(name, interface)
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]


# The other learners.


@dataclass(frozen=True)
class Job:
    """What a learner other than the first needs, as plain data.

    Attributes:
        make_share: Pickled, from a `Group` to the learner's share of the run.
        number: Which it is.
        learners: L.
        meeting_place: As in `Group`.
        modules: What is imported first.
        threads: Intra-op threads of PyTorch.
    """

    make_share: bytes
    number: int
    learners: int
    meeting_place: str
    modules: Sequence[str]
    threads: int


class OtherLearner(Protocol):
    """A learner other than the first, as that one sees it.

    Attributes:
        pipe: To it.
        place: Which process of which machine it is, in words.
    """

    pipe: Any
    place: str

    @property
    def sentinels(self) -> Sequence[Any]:
        """What `connection.wait` reports as ready once it has ended, if it can."""

    def lives(self) -> bool:
        """Return whether it is still there, as far as that is known."""

    def look(self) -> None:
        """End it if it has been stopped for a while, as far as that is known; called about once a second."""

    def how_it_ended(self) -> str:
        """Return that in words; wait a while for the news."""

    def close(self) -> None:
        """End it, after its pipe was closed."""


class LearnersElsewhere(Protocol):
    """Where the other learners run.

    Attributes:
        meeting_place: As in `Group`.
        address: As in `Group`, the first learner's.
    """

    meeting_place: str
    address: str | None

    def start(self, jobs: Sequence[Job]) -> Sequence[OtherLearner]:
        """Start them all; where one cannot be started, none is left."""

    def close(self) -> None:
        """Clean up, once all have ended."""


class Processes:
    """Other learners as processes of this machine; see `LearnersElsewhere`."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="learners_")
        self.meeting_place = os.path.join(self._directory, "store")
        self.address: str | None = None

    def start(self, jobs: Sequence[Job]) -> Sequence[OtherLearner]:
        started: list[OtherLearner] = []
        try:
            for job in jobs:
                started.append(_Process(job))
        except BaseException:
            for each in started:
                each.pipe.close()
                each.close()
            raise
        return started

    def close(self) -> None:
        wake_servers()
        shutil.rmtree(self._directory, ignore_errors=True)


class _Process:
    """A process of this machine; see `OtherLearner`."""

    def __init__(self, job: Job) -> None:
        self._children = Children("OtherLearners")
        try:
            # It is no daemon, which could not start processes of its own: hosts, and those of environments.
            name = f"learner {job.number}"
            self._child = self._children.start(name, _in_process, (job,), shares_torch=False, daemon=False)
        except RunFailed as error:
            raise LearnerFailed(str(error)) from None
        self.pipe, self.sentinels = self._child.pipe, [self._child.sentinel]
        self.place = f"process {self._child.process.pid}"
        self._ailment = ""

    def lives(self) -> bool:
        return self._child.is_alive()

    def look(self) -> None:
        pulse = self._child.pulse
        pulse.look(owes=False)
        if not self._ailment and (ailment := pulse.ailment()) is not None:
            self._ailment = ailment
            self._child.kill()

    def how_it_ended(self) -> str:
        self._child.join(_REPORT)
        if self._ailment:
            return f"{self._ailment} and was ended"
        self._children.how_it_ended(self._child)
        name = self._child.ended_by()
        return "has ended" if name is None else f"was ended by {name}"

    def close(self) -> None:
        self._child.join(waits.ORDER)
        self._children.close()


class OtherLearners:
    """The learners but the first.

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
        self._learners, self._elsewhere = learners, elsewhere or Processes()
        self._others: Sequence[OtherLearner] = ()
        self.group: Group | None = None
        self._waits_since: float | None = None  # when the wait for answers began
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._watch_others, name="watches the other learners", daemon=True)
        payload, place = cloudpickle.dumps(make_share), self._elsewhere.meeting_place
        jobs = [Job(payload, number, learners, place, tuple(modules), threads) for number in range(1, learners)]
        try:
            self._others = self._elsewhere.start(jobs)
            self._watch.start()
            self.answers()  # each has come as far as the meeting place, or has failed
            self.group = self._met(place)
        except BaseException:
            self.close()
            raise

    def _met(self, place: str) -> Group:
        """Return the first learner's group; one that dies on its way there would be waited for until the time is up."""
        found: list[Group | BaseException] = []

        def meet() -> None:
            try:
                found.append(Group(0, self._learners, place, self._elsewhere.address))
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=meet, name="meets the other learners", daemon=True)
        thread.start()
        while not found:
            thread.join(_LOOK)
            dead = [number for number, other in enumerate(self._others, 1) if not (found or other.lives())]
            if dead:
                raise self._failure(dead[0], _received(self._others[dead[0] - 1].pipe))
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def _watch_others(self) -> None:
        """End learners that are stopped, and tell the user of long waits.

        The first learner cannot do either while it waits for the others in an update.
        """
        told: float | None = None
        while not self._over.wait(_LOOK):
            for other in self._others:
                other.look()
            since = self._waits_since if self.group is None else self._waits_since or self.group.waits_since
            if since is not None and since != told and time.monotonic() - since > _LONG:
                told = since
                who = " or ".join(f"{number} ({other.place})" for number, other in enumerate(self._others, 1))
                logging.warning(
                    "learner 0 of %d has waited %g s for learner %s: if that does not come, `kill -9` of its process "
                    "ends the run, and the same command goes on from the newest checkpoint",
                    self._learners,
                    _LONG,
                    who,
                )

    def tell(self, what: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> None:
        """Let all call a method of their share; `answers` returns the results.

        Args:
            what: The method's name.
            arguments: What it is given.
            each: Further arguments, by learner.
        """
        own = each if each is not None else [()] * len(self._others)
        for other, more in zip(self._others, own, strict=True):
            with suppress(OSError):  # it has died, as `answers` will find
                other.pipe.send((what, *arguments, *more))

    def answers(self) -> list[Any]:
        """Return the results of all, in the order of the learners.

        Raises:
            LearnerFailed: One has died, or raised an exception.
        """
        found = []
        self._waits_since = time.monotonic()
        try:
            for number, other in enumerate(self._others, 1):
                while not _heard([other], _LOOK):
                    pass
                answer = _received(other.pipe)
                if answer is None or answer[0] == "failed":
                    raise self._failure(number, answer)
                found.append(answer[1])
        finally:
            self._waits_since = None
        return found

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise another learner's error, where waiting for it fails.

        Raises:
            LearnerFailed: One has died, or raised an exception.
        """
        try:
            yield
        except RuntimeError as error:
            if "gloo" not in str(error):
                raise
            raise (self._blamed() or _silent()) from None

    def _blamed(self) -> Exception | None:
        """Return the error of the learner that failed first; the others fail because they wait for it."""
        failures: dict[int, Any] = {}
        deadline = time.monotonic() + _REPORT  # a process that ends takes a moment to be reported
        while (left := deadline - time.monotonic()) > 0 and all(map(_by_another, failures.values())):
            waiting = {n: other for n, other in enumerate(self._others, 1) if n not in failures}
            heard = _heard([*waiting.values()], min(left, _LOOK))
            failures |= {n: _received(other.pipe) for n, other in waiting.items() if other in heard}
        if not failures:
            return None
        number = min(failures, key=lambda number: (_by_another(failures[number]), number))
        return self._failure(number, failures[number])

    def _failure(self, number: int, answer: Any) -> Exception:
        other = self._others[number - 1]
        if answer is not None:
            _, name, words, trace, full = answer
            if full is not None:
                return OSError(*full)
            if name == "DivergedError":
                return DivergedError(f"learner {number} of {self._learners}: {words}")
            if name in ("HostsFailed", "LearnerFailed"):
                return LearnerFailed(f"learner {number} of {self._learners}: {words}")
            sentence = words.splitlines()[0]
            return LearnerFailed(f"learner {number} of {self._learners} raised {name}: {sentence}\n\n{trace}")
        return LearnerFailed(
            f"learner {number} of {self._learners} ({other.place}) {other.how_it_ended()}, and the others cannot go on "
            "without it: the same command goes on from the newest checkpoint"
        )

    def close(self) -> None:
        """End the others."""
        self._over.set()
        if self._watch.is_alive():
            self._watch.join()
        if self.group is not None:
            self.group.close()
        for other in self._others:
            other.pipe.close()
        for other in self._others:
            other.close()
        self._others = ()
        self._elsewhere.close()


def _heard(others: Sequence[OtherLearner], timeout: float) -> list[OtherLearner]:
    """Return the learners that have sent something or ended; wait a while for the first."""
    ends = {end: other for other in others for end in (other.pipe, *other.sentinels)}
    ready = {id(ends[end]) for end in connection.wait(list(ends), timeout)}
    return [other for other in others if id(other) in ready or not other.lives()]


def _silent() -> LearnerFailed:
    return LearnerFailed(
        f"a learner has not come to an update for {_UPDATE:g} s: the same command goes on from the newest checkpoint"
    )


def _received(pipe: Any) -> Any:
    """Return a learner's message, or None if it died without one."""
    try:
        return pipe.recv() if pipe.poll(0) else None
    except (EOFError, OSError):
        return None


def _by_another(answer: Any) -> bool:
    """Return whether a learner has failed because another one, which it waited for, is gone."""
    return answer is not None and answer[1] == "RuntimeError" and "gloo" in answer[2]


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


def learn(job: Job, first: Any, address: str | None = None) -> None:
    """Run the commands of the first learner until its pipe closes; an error ends the process, once it is sent.

    Args:
        job: The learner's.
        first: The pipe to the first one.
        address: As in `Group`.
    """
    try:
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
        _interface_of(address)  # one that is refused is refused here, where nobody waits for this learner yet
        first.send(("answer", None))
        share = make_share(Group(job.number, job.learners, job.meeting_place, address))
        while (command := _next_command(first)) is not None:
            what, *arguments = command
            first.send(("answer", getattr(share, what)(*arguments)))
    except BaseException as error:
        with suppress(OSError):
            words = str(error).strip() or "no message"
            cause = None
            if isinstance(error, OSError) and error.errno in FULL:  # a disk, which is told as the first one's own
                cause = error.errno, error.strerror, error.filename
            first.send(("failed", type(error).__name__, words, traceback.format_exc(), cause))
        wake_servers()
        os._exit(1)


def _next_command(first: Any) -> Any:
    """Return what the first learner asks for; None once it is gone."""
    try:
        return first.recv()
    except (EOFError, ConnectionError):
        return None


def _in_process(job: Job, first: Any) -> None:
    become_child()
    learn(job, first)
    wake_servers()
    os._exit(0)
