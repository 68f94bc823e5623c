"""Time for which the process itself stood still is told apart from time that it waited."""

from __future__ import annotations

from typing import Any

import pytest

from async_wrappers.fleet import standstill
from async_wrappers.fleet.standstill import Standstill
from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.loop.workers import WorkerPool
from async_wrappers.live.memory.exchange import Fate, Finished, Ticket, ticket_of

SECOND = 1_000_000_000


def test_time_that_nobody_waited_for_is_a_standstill_from_half_a_second_on() -> None:
    found = Standstill()
    assert found.passed(7 * SECOND) == 0
    assert found.passed(7 * SECOND + SECOND // 3) == 0
    assert found.passed(12 * SECOND) == 12 * SECOND - 7 * SECOND - SECOND // 3
    assert found.passed(15 * SECOND, until=15 * SECOND) == 0
    assert found.passed(16 * SECOND, until=18 * SECOND) == 0
    assert found.passed(21 * SECOND, until=18 * SECOND) == 3 * SECOND


def test_the_sleep_of_the_machine_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asleep = [5 * SECOND]
    monkeypatch.setattr(standstill, "_asleep", lambda: asleep[0])
    found = Standstill()
    assert found.slept() == 0
    asleep[0] += 60 * SECOND
    assert (found.slept(), found.slept()) == (60 * SECOND, 0)


class Silent:
    """Workers that are up and answer when the test says so."""

    def __init__(self) -> None:
        self.time, self.answers = 0, list[Any]()

    def collect(self, until: int) -> list[Any]:
        self.time = max(self.time, until)
        answers, self.answers = self.answers, []
        return answers

    def start(self, worker: int, ticket: Ticket) -> None:
        pass


def test_a_loop_that_stood_still_gives_its_workers_their_time_anew() -> None:
    transport = Silent()
    pool = WorkerPool(transport, 2, lambda: transport.time, lambda reason: None, False)  # type: ignore[arg-type]
    transport.answers = [Ready(0), Ready(1)]
    pool.collect(0)
    for worker in range(2):
        pool.start(worker, ticket_of(0, 1, 0, 0, 0, False))
    pool.collect(SECOND // 10)
    transport.time += 20 * SECOND  # a breakpoint in the environment
    assert pool.overdue(10, SECOND) == []
    transport.answers = [Finished(0, 1, 0, SECOND // 20, Fate.DONE, 1, 0)]
    pool.collect(0)
    for _ in range(11):
        assert pool.overdue(10, SECOND) == []
        pool.collect(transport.time + SECOND // 12)
    assert pool.overdue(10, SECOND) == [1]
