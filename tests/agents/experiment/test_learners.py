"""What the user reads where a learner fails, or learners do not meet."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from async_wrappers.agents.diverged import DivergedError
from async_wrappers.agents.experiment import learners
from async_wrappers.agents.experiment.learners import Group, Job, LearnerFailed, OtherLearners
from async_wrappers.agents.hosts.engine import HostsFailed


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

    def close(self) -> None:
        pass


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process that fails go on, and learners meet nobody."""
    monkeypatch.setattr(os, "_exit", lambda code: None)
    monkeypatch.setattr(learners, "Group", lambda *arguments: nullcontext())


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
    others = start(partial(fail, error))
    with pytest.raises(kind) as caught:
        others.answers()
    assert str(caught.value) == message


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
