"""What the user reads where a learner fails, or learners do not meet."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.play.hosts.engine import HostsFailed
from async_wrappers.agents.play.many import learners
from async_wrappers.agents.play.many.learners import Group, Job, LearnerFailed, OtherLearners
from async_wrappers.fleet import pulse

ROOT = Path(__file__).parents[3]


class Here:
    """Learners that have run in this process before the first one listens."""

    meeting_place, address, sentinels, place = "nowhere", None, (), "process 0"

    def __init__(self, of_others: str | None = None) -> None:
        self._of_others = of_others

    def start(self, jobs: Sequence[Job]) -> Sequence[Any]:
        self.pipe, theirs = multiprocessing.Pipe()
        with closing(theirs):
            learners.learn(jobs[0], theirs, self._of_others)
        return [self]

    def lives(self) -> bool:
        return False

    def look(self) -> None:
        pass

    def close(self) -> None:
        pass


class Nobody:
    """A group of one."""

    waits_since = None

    def close(self) -> None:
        pass


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process that fails go on, and learners meet nobody."""
    monkeypatch.setattr(os, "_exit", lambda code: None)
    monkeypatch.setattr(learners, "Group", lambda *arguments: Nobody())


def start(make_share: Callable[[Any], Any], of_others: str | None = None, modules: Sequence[str] = ()) -> OtherLearners:
    elsewhere: Any = Here(of_others)
    return OtherLearners(make_share, 2, modules, torch.get_num_threads(), elsewhere)


def fail(error: Exception, group: Any) -> None:
    raise error


@pytest.mark.usefixtures("stubs")
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (HostsFailed("Hosts.num_hosts must be <= 2"), LearnerFailed, "learner 1 of 2: Hosts.num_hosts must be <= 2"),
        (LearnerFailed("node does not see it"), LearnerFailed, "learner 1 of 2: node does not see it"),
        (DivergedError("the loss is nan"), DivergedError, "learner 1 of 2: the loss is nan"),
    ],
)
def test_an_error_in_words_is_passed_on_without_a_traceback(
    error: Exception, kind: type[Exception], message: str
) -> None:
    with closing(start(partial(fail, error))) as others, pytest.raises(kind) as caught:
        others.answers()
    assert str(caught.value) == message


@pytest.mark.usefixtures("stubs")
def test_a_full_disk_of_a_learner_is_told_as_one_of_the_first() -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "blocks_1.jsonl")
    with closing(start(partial(fail, error))) as others, pytest.raises(OSError, match="No space left") as caught:
        others.answers()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "blocks_1.jsonl")


@pytest.mark.usefixtures("stubs")
def test_a_module_that_the_machine_of_a_learner_lacks_is_named() -> None:
    with pytest.raises(LearnerFailed, match=r"^learner 1 of 2: .* cannot import 'a_game_of_my_own': install [^\n]*$"):
        start(partial(fail, RuntimeError("it was made")), modules=["a_game_of_my_own"])


@pytest.mark.usefixtures("stubs")
def test_an_address_that_no_interface_has_is_refused_before_the_first_learner_waits() -> None:
    with pytest.raises(LearnerFailed, match=r"^learner 1 of 2: learners cannot meet at 203\.0\.113\.7: no network"):
        start(partial(fail, RuntimeError("they wait for it")), "203.0.113.7")


def test_learners_that_do_not_meet_are_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*arguments: Any, **named: Any) -> None:
        raise dist.DistStoreError("Timed out after 601 seconds waiting for clients. 1/2 clients joined.\nframe #0")

    monkeypatch.setattr(dist, "init_process_group", late)
    with pytest.raises(LearnerFailed) as caught:
        Group(0, 2, "tcp://127.0.0.1:1", "127.0.0.1")
    assert str(caught.value).startswith("learner 0 of 2 has not met the others at tcp://127.0.0.1:1 (Timed out after")
    assert "\n" not in str(caught.value)


def test_learners_without_room_for_threads_name_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError(os.strerror(errno.EAGAIN))

    monkeypatch.setattr(learners.dist, "init_process_group", refuse)
    with pytest.raises(LearnerFailed, match=r"Resource temporarily unavailable\): raise the limit .*`ulimit -u`"):
        Group(1, 2, "/nowhere/store")


class Stops:
    """A share of a learner that has its process stopped."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def meet(self) -> list[float]:
        return self._group.sum(1.0)  # type: ignore[no-any-return]

    def stop(self, number: int) -> None:
        os.kill(os.getpid(), number)


def stopped(others: OtherLearners) -> str:
    remedy = "the same command goes on from the newest checkpoint"
    why = r"has been stopped \(SIGSTOP\) for 1 s and was ended, and the others cannot go on without it"
    return rf"^learner 1 of 2 \({others._others[0].place}\) {why}: {remedy}$"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and wait shortly."""
    monkeypatch.setattr(pulse, "STOPPED_FOR", 1.0)
    monkeypatch.setattr(learners, "_LOOK", 0.1)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("impatient", "children_of_a_server")
@pytest.mark.parametrize("where", ["in an update", "in an answer"])
def test_a_learner_that_is_stopped_ends_the_run_in_a_sentence(where: str) -> None:
    before = multiprocessing.active_children()  # of earlier tests
    with closing(OtherLearners(Stops, 2)) as others:
        others.tell("meet")
        assert others.group is not None
        assert others.group.sum(2.0) == [3.0]
        assert others.answers() == [[3.0]]
        others.tell("stop", signal.SIGSTOP)
        if where == "in an update":
            with pytest.raises(LearnerFailed, match=stopped(others)), others.watched():
                others.group.sum(2.0)
        else:
            with pytest.raises(LearnerFailed, match=stopped(others)):
                others.answers()
    assert {*multiprocessing.active_children()} <= {*before}


ON_THE_WAY = """
import multiprocessing, os, signal
from async_wrappers.fleet import pulse
from async_wrappers.agents.play.many import learners

def stop_on_the_way(number):
    learners.Group = lambda *arguments: os.kill(os.getpid(), number)

class StopsOnTheWay:
    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return stop_on_the_way, (self.number,)

if __name__ == "__main__":
    pulse.STOPPED_FOR = 1.0
    for number in (signal.SIGSTOP, signal.SIGKILL):
        try:
            learners.OtherLearners(StopsOnTheWay(number), 2)
        except learners.LearnerFailed as error:
            print(error, multiprocessing.active_children(), flush=True)
"""


@pytest.mark.timeout(120)
def test_a_learner_that_ends_on_its_way_to_the_others_is_not_waited_for() -> None:
    """In a process of its own, as a thread goes on waiting there."""
    done = subprocess.run([sys.executable, "-c", ON_THE_WAY], cwd=ROOT, capture_output=True, text=True, timeout=100)
    for how in (r"has been stopped \(SIGSTOP\) for 1 s and was ended", "was ended by SIGKILL"):
        told, _, done.stdout = done.stdout.partition("\n")
        assert re.match(rf"^learner 1 of 2 \(process \d+\) {how}, and the others cannot go on .* \[\]$", told), done


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("children_of_a_server")
def test_a_long_wait_for_a_learner_is_told_with_the_way_to_end_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(learners, "_LOOK", 0.1)
    monkeypatch.setattr(learners, "_LONG", 0.5)
    with closing(OtherLearners(Slow, 2)) as others:
        for what in ("meet", "wait"):
            caplog.clear()
            others.tell(what)
            if what == "meet":
                assert others.group is not None
                others.group.sum(0.0)
            others.answers()
            (told,) = [record.getMessage() for record in caplog.records if "has waited" in record.getMessage()]
            assert told == (
                f"learner 0 of 2 has waited 0.5 s for learner 1 ({others._others[0].place}): if that does not come, "
                "`kill -9` of its process ends the run, and the same command goes on from the newest checkpoint"
            )


class Slow(Stops):
    """Comes late."""

    def meet(self) -> list[float]:
        time.sleep(2)
        return super().meet()

    def wait(self) -> None:
        time.sleep(2)
