"""What another learner says when it fails, as the first one passes it on."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
import torch

from async_wrappers.agents.diverged import DivergedError
from async_wrappers.agents.experiment import learners
from async_wrappers.agents.experiment.learners import Job, LearnerFailed, OtherLearners
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
    monkeypatch.setattr(learners, "Group", lambda *arguments: closing(open(os.devnull)))


def start(make_share: Callable[[Any], Any], of_others: str | None = None) -> OtherLearners:
    elsewhere: Any = Here(of_others)
    return OtherLearners(make_share, 2, threads=torch.get_num_threads(), elsewhere=elsewhere)


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
    def fail(group: Any) -> None:
        raise error

    others = start(fail)
    with pytest.raises(kind) as caught:
        others.answers()
    assert str(caught.value) == message
