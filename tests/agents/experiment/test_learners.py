"""What the user reads where a learner fails, or learners do not meet."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.play.hosts.engine import HostsFailed
from async_wrappers.agents.play.many import learners
from async_wrappers.agents.play.many.learners import Group, LearnerFailed, LearnerJob, OtherIsGone, OtherLearners
from async_wrappers.fleet import pulse, waits

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (HostsFailed("Hosts.num_hosts must be <= 2"), LearnerFailed, "learner 1 of 2: Hosts.num_hosts must be <= 2"),
        (LearnerFailed("node does not see it"), LearnerFailed, "learner 1 of 2: node does not see it"),
        (DivergedError("the loss is nan"), DivergedError, "learner 1 of 2: the loss is nan"),
        (KeyError("rom"), LearnerFailed, "learner 1 of 2 raised KeyError: 'rom'\n\nTraceback\nmy.Error: of mine\n"),
        (None, LearnerFailed, "learner 1 of 2 raised Error: first\n\nTraceback\nmy.Error: of mine\n"),
        (
            OtherIsGone("by peer"),
            OtherIsGone,
            "learner 1 of 2 raised OtherIsGone: by peer\n\nTraceback\nmy.Error: of mine\n",
        ),
    ],
)
def test_an_error_is_passed_on_in_words_and_with_a_traceback_where_it_is_not_our_own(
    error: Exception | None, kind: type[Exception], message: str
) -> None:
    words = "Error: first\nsecond" if error is None else f"{type(error).__name__}: {error}"
    passed = learners.failure_of("learner 1 of 2", error, "Traceback\nmy.Error: of mine\n", words)
    assert type(passed) is kind
    assert str(passed) == message


def test_a_full_disk_of_a_learner_is_told_as_one_of_the_first() -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "blocks_1.jsonl")
    passed = learners.failure_of("learner 1 of 2", error, "", "")
    assert isinstance(passed, OSError)
    assert (passed.errno, passed.filename) == (errno.ENOSPC, "blocks_1.jsonl")


def learn_alone(modules: Sequence[str] = (), address: str | None = None) -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        learners.learn(
            LearnerJob(cloudpickle.dumps(fail), 2, "nowhere", modules, torch.get_num_threads()), 1, theirs, address
        )


def fail(group: Any) -> None:
    pytest.fail("it was made")


def test_a_module_that_the_machine_of_a_learner_lacks_is_named() -> None:
    with pytest.raises(LearnerFailed, match=r"^.* cannot import 'a_game_of_my_own': install [^\n]*$"):
        learn_alone(modules=["a_game_of_my_own"])


def test_an_address_that_no_interface_has_is_refused_before_the_first_learner_waits() -> None:
    with pytest.raises(LearnerFailed, match=r"^learners cannot meet at 203\.0\.113\.7: no network"):
        learn_alone(address="203.0.113.7")


def test_learners_that_do_not_meet_are_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*arguments: Any, **named: Any) -> None:
        raise dist.DistStoreError("Timed out after 601 seconds waiting for clients. 1/2 clients joined.\nframe #0")

    monkeypatch.setattr(dist, "TCPStore", late)
    with pytest.raises(LearnerFailed) as caught:
        Group(0, 2, "tcp://127.0.0.1:1", "127.0.0.1")
    assert str(caught.value).startswith("learner 0 of 2 has not met the others at tcp://127.0.0.1:1 (Timed out after")
    assert "\n" not in str(caught.value)


def test_learners_without_room_for_threads_name_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError(os.strerror(errno.EAGAIN))

    monkeypatch.setattr(learners.dist, "FileStore", refuse)
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
    return rf"^learner 1 of 2 \({others.places[0]}\) {why}: {remedy}$"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and wait shortly."""
    monkeypatch.setattr(pulse, "STOPPED_FOR", 1.0)
    monkeypatch.setattr(waits, "LOOK", 0.1)


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
    monkeypatch.setattr(waits, "LOOK", 0.1)
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
                f"learner 0 of 2 has waited 0.5 s for learner 1 ({others.places[0]}): if that does not come, "
                "`kill -9` of its process ends the run, and the same command goes on from the newest checkpoint"
            )


@pytest.mark.timeout(120)
def test_what_a_learner_raises_in_an_update_is_raised_by_the_first_that_waits_for_it() -> None:
    with closing(OtherLearners(Slow, 2)) as others:
        others.tell("refuse")
        assert others.group is not None
        with (
            pytest.raises(LearnerFailed, match=r"^learner 1 of 2 raised KeyError: 'rom'\n\nTraceback"),
            others.watched(),
        ):
            others.group.sum(0.0)
        with pytest.raises(RuntimeError, match="of gloo"), others.watched():
            raise RuntimeError("of gloo, but not of an update")


class Unreadable(Exception):
    """Cannot be made again of its words."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}\n{second}")


class Unwritable(Exception):
    """Cannot be pickled."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.lock = threading.Lock()


class Raises(Stops):
    """Raises what does not reach the first learner."""

    def fail(self, kind: str) -> None:
        raise Unreadable("first", "second") if kind == "Unreadable" else Unwritable("first\nsecond")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["Unreadable", "Unwritable"])
def test_an_exception_that_does_not_survive_its_way_is_told_by_its_type_and_first_line(kind: str) -> None:
    with closing(OtherLearners(Raises, 2)) as others:
        others.tell("fail", kind)
        with pytest.raises(LearnerFailed, match=rf"^learner 1 of 2 raised {kind}: first\n\nTraceback"):
            others.answers()


class Slow(Stops):
    """Comes late."""

    def meet(self) -> list[float]:
        time.sleep(2)
        return super().meet()

    def wait(self) -> None:
        time.sleep(2)

    def refuse(self) -> None:
        raise KeyError("rom")
