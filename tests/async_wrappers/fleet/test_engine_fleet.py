"""`EngineFleet`: answers that are owed, members that are late or lost, and those that are given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from async_wrappers.fleet import engine_fleet
from async_wrappers.fleet.engine_fleet import EngineFleet, Lost


class Answer(NamedTuple):
    host: int
    incarnation: int


class Engine:
    """Notes what it is told, and returns the news that a test has put into it."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.news: list[Any] = []

    def start(self, host: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        self.told.append(("start", host, incarnation))

    def submit(self, host: int, order: Any) -> None:
        self.told.append((order, host))

    def collect(self, timeout: float) -> Sequence[Any]:
        news, self.news = self.news, []
        return news

    def kill(self, host: int, why: str) -> None:
        self.told.append(("kill", host, why))


class GivenUp(Exception):
    """What the fleet raises in the end."""


class World:
    """Two members, of which number 4 has had five incarnations before; a clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeout: float | None = 3.0) -> None:
        self.seconds = 100.0
        monkeypatch.setattr(engine_fleet, "time", SimpleNamespace(monotonic_ns=lambda: round(self.seconds * 1e9)))
        self.engine = Engine()
        self.fleet = EngineFleet(self.engine, {3: 0, 4: 5}, 3, timeout, lambda lost: GivenUp(lost.why))
        for member in (3, 4):
            self.fleet.start(member, {})

    def collected(self, *news: Any) -> list[Any]:
        self.engine.news += news
        return list(self.fleet.collect(0.0))

    def told(self) -> list[Any]:
        told, self.engine.told = self.engine.told, []
        return told


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


LATE = "has not answered for 3 s, and was ended"


def test_answers_are_counted_and_those_of_an_incarnation_that_is_over_are_dropped(world: World) -> None:
    for order in ("play", "play"):
        world.fleet.submit(4, order)
    assert world.told() == [("start", 3, 0), ("start", 4, 5), ("play", 4), ("play", 4)]
    assert world.collected(Answer(4, 4), Answer(4, 5)) == [Answer(4, 5)]
    assert world.fleet.owed == {3: 0, 4: 1}


class OwnLoss(NamedTuple):
    why: str
    incarnation: int
    host: int


def test_a_loss_need_not_be_of_the_class(world: World) -> None:
    world.fleet.submit(3, "play")
    (lost,) = world.collected(OwnLoss("was lost", 0, 3))
    assert type(lost) is Lost and lost == Lost(3, 0, "was lost")
    assert (world.fleet.restarts, world.fleet.incarnation) == (1, {3: 1, 4: 5})


def test_a_member_that_owes_an_answer_is_late_by_its_first_order_and_by_each_answer_anew(world: World) -> None:
    for order in ("play", "play"):
        world.fleet.submit(3, order)
    world.seconds += 2.0
    world.collected(Answer(3, 0))
    world.told()
    world.seconds += 2.9
    assert world.collected() == [] and world.told() == []
    world.seconds += 0.2
    assert world.collected() == [] and world.told() == [("kill", 3, LATE)]
    world.seconds += 10
    assert world.collected(Lost(3, 0, LATE)) == [Lost(3, 0, LATE)] and world.told() == []
    world.fleet.start(3, {})
    assert world.told() == [("start", 3, 1)] and world.fleet.owed[3] == 0 and world.fleet.restarts == 1
    world.seconds += 10
    assert world.collected() == [] and world.told() == []


def test_a_member_is_not_late_for_a_time_in_which_nobody_has_listened(world: World) -> None:
    world.fleet.submit(3, "play")
    world.seconds += 2.0
    world.fleet.postpone(2.0)
    world.told()
    world.seconds += 2.9
    assert world.collected() == [] and world.told() == []
    world.seconds += 0.2
    assert world.collected() == [] and world.told() == [("kill", 3, LATE)]


def test_without_a_timeout_nobody_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, timeout=None)
    world.fleet.submit(3, "play")
    world.fleet.postpone(1.0)
    world.told()
    world.seconds += 1e6
    assert world.collected() == [] and world.told() == []


def test_the_last_of_three_losses_in_a_row_is_raised_unless_there_was_work_between(world: World) -> None:
    for incarnation in range(5, 7):
        assert world.collected(Lost(4, incarnation, "died")) == [Lost(4, incarnation, "died")]
        world.fleet.start(4, {})
    world.fleet.submit(4, "play")
    world.engine.news += [Answer(4, 7), Lost(4, 7, "died")]
    for each in world.fleet.collect(0.0):
        if isinstance(each, Answer):
            world.fleet.works(4)
    world.fleet.start(4, {})
    assert world.collected(Lost(4, 8, "died")) == [Lost(4, 8, "died")]
    world.fleet.start(4, {})
    with pytest.raises(GivenUp, match=r"^was killed$"):
        world.collected(Lost(4, 9, "was killed"))
