"""Several learners as threads of this process: quick, and their states can be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import cloudpickle
import pytest
from torch import Tensor

from async_wrappers.agents.play.many import many

__all__ = ["InThreads", "learners_in_threads"]

_PATIENCE = 120  # seconds, on a busy machine


class InThreads:
    """A group whose learners are threads of this process."""

    def __init__(self, learners: int) -> None:
        self.learners = learners
        self.barrier = threading.Barrier(learners, timeout=_PATIENCE)
        self._passed: list[Any] = [None] * learners

    def one(self, number: int) -> OneThread:
        return OneThread(self, number)

    def gather(self, number: int, what: Any) -> list[Any]:
        self._passed[number] = what
        self.barrier.wait()
        passed = list(self._passed)
        self.barrier.wait()
        return passed


class OneThread:
    """One of them; see `Group`."""

    def __init__(self, group: InThreads, number: int) -> None:
        self.group, self.number, self.learners = group, number, group.learners

    def sum(self, *numbers: float) -> list[float]:
        return [sum(each) for each in zip(*self.group.gather(self.number, numbers), strict=True)]

    def average(self, gradients: Mapping[str, Tensor], count: Any) -> Mapping[str, Tensor]:
        passed = self.group.gather(self.number, ({n: g.clone() for n, g in gradients.items()}, float(count)))
        whole = sum(weight for _, weight in passed)
        return {name: sum(g[name] * weight for g, weight in passed) / whole for name in gradients}


class OthersInThreads:
    """In the place of `OtherLearners`."""

    def __init__(self, make_share: Callable[[Any], Any], learners: int, *arguments: Any) -> None:
        group = InThreads(learners)
        self.group, self._all = group.one(0), group
        self._commands: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(1, learners)]
        self._answers: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(1, learners)]
        payload = cloudpickle.dumps(make_share)
        shares = [cloudpickle.loads(payload)(group.one(number)) for number in range(1, learners)]
        self._threads = [
            threading.Thread(target=self._learn, args=each, daemon=True)
            for each in zip(shares, self._commands, self._answers, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _learn(self, share: Any, commands: SimpleQueue[Any], answers: SimpleQueue[Any]) -> None:
        try:
            while (command := commands.get()) is not None:
                what, *arguments = command
                answers.put(getattr(share, what)(*arguments))
        except BaseException as error:
            answers.put(error)
            self._all.barrier.abort()
        finally:
            if hasattr(share, "close"):
                share.close()

    def tell(self, what: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> None:
        own = each if each is not None else [()] * len(self._threads)
        for commands, more in zip(self._commands, own, strict=True):
            commands.put((what, *arguments, *more))

    def answers(self) -> list[Any]:
        found = [answers.get(timeout=_PATIENCE) for answers in self._answers]
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return found

    @contextmanager
    def watched(self) -> Iterator[None]:
        try:
            yield
        except threading.BrokenBarrierError:
            self.answers()
            raise

    def close(self) -> None:
        self._all.barrier.abort()
        for commands in self._commands:
            commands.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE)


@pytest.fixture
def learners_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the other learners of runs be threads."""
    monkeypatch.setattr(many, "OtherLearners", OthersInThreads)
