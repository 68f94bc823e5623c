"""`Fleet` orders what a naive reading of the whole history orders, whatever happens in whatever order.

Set HYPOTHESIS_CASES to play more or fewer cases than those of every day.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.fleet.fleet import Fleet, Order, What

CASES = int(os.environ.get("HYPOTHESIS_CASES", 200))
RULES = st.sampled_from([((), False), ((0,), False), ((0, 3, 7), False), ((0, 2), True)])
"""Pauses before the next start, and whether the last one holds for ever."""


class Event(NamedTuple):
    """Something that happened to a member, or an order that it got; `until` of what it owes or is asked."""

    now: int
    what: str
    member: int
    until: int = 0
    why: str = ""


class Naive:
    """Reads all that has happened to a member from the beginning, each time it is asked."""

    def __init__(self, rules: tuple[tuple[tuple[int, ...], bool], ...]) -> None:
        self.rules, self.history = rules, list[Event]()

    def of(self, member: int) -> list[Event]:
        return [event for event in self.history if event.member == member]

    def life(self, member: int) -> list[Event]:
        """What has happened since it was started last; nothing where it has never been, or has ended since."""
        events = self.of(member)
        starts = [place for place, event in enumerate(events) if event.what == "started"]
        life = events[starts[-1] :] if starts else []
        return [] if any(event.what == "ended" for event in life) else life

    def was_asked(self, member: int) -> bool:
        return any(event.what == "asked" for event in self.of(member))

    def ends_in_a_row(self, member: int) -> int:
        count = 0
        for event in self.of(member):
            count = 0 if event.what == "works" else count + (event.what == "ended")
        return count

    def is_up(self, member: int) -> bool:
        life = self.life(member)
        return bool(life) and not any(event.what in ("ails", "KILL") for event in life)

    def owed(self, member: int) -> tuple[int, str] | None:
        """When a member is late, and why."""
        due: tuple[int, str] | None = None
        for event in self.life(member):
            if event.what == "asked" or (event.what == "owes" and not (due and due[1] == "")):
                due = event.until, "" if event.what == "asked" else event.why
            elif event.what == "heard" and due and due[1]:
                due = None
        return due

    def orders(self, now: int) -> list[Order]:
        kills, starts = [], []
        for member, (pauses, is_endless) in enumerate(self.rules):
            events, life = self.of(member), self.life(member)
            if life and "KILL" not in [event.what for event in life]:
                ails = [event.why for event in life if event.what == "ails"]
                owed = self.owed(member)
                if ails or (owed is not None and owed[0] <= now):
                    kills.append(Order(What.KILL, member, ails[0] if ails or owed is None else owed[1]))
            ended = [place for place, event in enumerate(events) if event.what == "ended"]
            if ended and not life and not {"START", "GIVE_UP", "asked"} & {event.what for event in events[ended[-1] :]}:
                row = self.ends_in_a_row(member)
                if self.was_asked(member):
                    continue
                if row > len(pauses) and not is_endless:
                    kills.append(Order(What.GIVE_UP, member))
                elif events[ended[-1]].now + pauses[min(row, len(pauses)) - 1] <= now:
                    starts.append(Order(What.START, member))
        for order in (*kills, *starts):
            self.history.append(Event(now, order.what.name, order.member, why=order.why))
        return [*kills, *starts]


ACTIONS = st.tuples(
    st.integers(0, 4),  # time that passes before
    st.integers(0, 1),  # the member
    st.integers(0, 255),  # which of the events that are possible
    st.integers(0, 6),  # how much later it is late
    st.booleans(),  # whether orders are asked for afterwards
)


def possible(naive: Naive, member: int) -> list[str]:
    """Return what may happen to a member, the usual more often."""
    if naive.life(member):
        may_owe = naive.is_up(member) and not naive.was_asked(member)
        more = ["owes", "owes", "owes", "heard", "ails"] if may_owe else ["ails"]
        return ["ended"] * 4 + ["works"] * 2 + more + ["asked"] * naive.is_up(member)
    events = [event.what for event in naive.of(member)]
    ordered = [what for what in events if what in ("START", "ended", "GIVE_UP")]
    may_start = not naive.was_asked(member) and ordered[-1:] in ([], ["START"])
    return ["started"] * 12 * may_start + ["fails"] * may_start + ["nothing"] * 3 + ["asked"]


@settings(max_examples=CASES, deadline=None, database=None)
@given(st.tuples(RULES, RULES), st.lists(ACTIONS, max_size=60))
def test_orders_are_those_of_a_naive_reading_of_the_history(
    rules: tuple[tuple[tuple[int, ...], bool], ...], actions: list[tuple[int, int, int, int, bool]]
) -> None:
    fleet, naive, now = Fleet(), Naive(rules), 0
    for member, (pauses, is_endless) in enumerate(rules):
        fleet.join(member, pauses, is_endless)

    def look() -> None:
        due = fleet.next_time()
        given = fleet.orders(now)
        assert given == naive.orders(now)
        assert (due is not None and due <= now) == bool(given)

    for passed, member, choice, more, looks in actions:
        now += passed
        events = possible(naive, member)
        what, until, why = events[choice % len(events)], 0, ""
        if what == "started":
            fleet.started(member)
        elif what in ("ended", "fails"):
            what = "ended"
            fleet.ended(member, now)
        elif what == "works":
            fleet.works(member)
        elif what == "owes":
            until, why = now + more, f"has not answered for {more}"
            fleet.owes(member, until, why)
        elif what == "heard":
            fleet.heard(member)
        elif what == "ails":
            why = f"is stopped since {now}"
            fleet.ails(member, why)
            what = "ails" if naive.is_up(member) and not naive.was_asked(member) else "nothing"
        elif what == "asked":
            until = now + more
            fleet.asked(member, until)
        naive.history.append(Event(now, what, member, until, why))
        assert [fleet.is_up(each) for each in range(2)] == [naive.is_up(each) for each in range(2)]
        assert all(fleet.ends(each) == naive.ends_in_a_row(each) or naive.was_asked(each) for each in range(2))
        if looks:
            look()
    look()


def made(pauses: tuple[int, ...] = (0, 5), is_endless: bool = False) -> Fleet:
    fleet = Fleet()
    fleet.join("worker 0", pauses, is_endless)
    fleet.started("worker 0")
    return fleet


def die(fleet: Fleet, now: int) -> list[Any]:
    fleet.ended("worker 0", now)
    return [(order.what.name, order.why) for order in fleet.orders(now)]


def test_a_member_that_dies_again_and_again_is_started_after_longer_pauses_and_then_given_up() -> None:
    fleet = made()
    assert die(fleet, 10) == [("START", "")]
    fleet.started("worker 0")
    assert die(fleet, 20) == []
    assert fleet.next_time() == 25
    assert fleet.orders(24) == []
    assert fleet.orders(25) == [Order(What.START, "worker 0")]
    fleet.started("worker 0")
    assert die(fleet, 30) == [("GIVE_UP", "")]
    assert fleet.next_time() is None


def test_a_member_that_has_worked_may_die_as_often_as_a_new_one() -> None:
    fleet = made(pauses=(0,))
    for now in range(10):
        fleet.works("worker 0")
        assert die(fleet, now) == [("START", "")]
        fleet.started("worker 0")
    assert die(fleet, 10) == [("GIVE_UP", "")]


def test_an_endless_rule_keeps_its_last_pause() -> None:
    fleet = made(is_endless=True)
    for _ in range(9):
        die(fleet, 100)
    assert fleet.next_time() == 105


def test_a_late_member_is_killed_once_with_its_reason_and_then_replaced() -> None:
    fleet = made()
    fleet.owes("worker 0", 50, "has not answered for 50 ns")
    assert fleet.orders(49) == []
    assert fleet.orders(50) == [Order(What.KILL, "worker 0", "has not answered for 50 ns")]
    assert not fleet.is_up("worker 0")
    assert fleet.orders(60) == []
    assert die(fleet, 60) == [("START", "")]


def test_a_member_that_was_asked_to_end_is_killed_when_its_time_is_over_and_not_started_again() -> None:
    fleet = made()
    fleet.asked("worker 0", 30)
    fleet.ails("worker 0", "is stopped")  # which is no news any more
    fleet.asked("worker 0", 60)  # it has come to its close
    assert fleet.orders(59) == []
    assert fleet.orders(60) == [Order(What.KILL, "worker 0")]
    assert die(fleet, 61) == []
    assert fleet.next_time() is None


def test_a_member_that_waits_for_its_start_when_it_is_asked_to_end_is_not_started() -> None:
    fleet = made(pauses=(5,))
    die(fleet, 0)
    fleet.asked("worker 0", 30)
    assert fleet.orders(100) == []


def test_kills_come_before_starts_and_a_member_that_has_left_gets_no_order() -> None:
    fleet = Fleet()
    for name in "abc":
        fleet.join(name, (0,))
        fleet.started(name)
    fleet.ended("a", 0)
    fleet.ails("c", "is stopped")
    fleet.ails("b", "is stopped")
    fleet.leave("b")
    assert [order.member for order in fleet.orders(0)] == ["c", "a"]


def test_orders_that_are_not_asked_for_are_still_to_come_unless_their_member_is_asked_to_end() -> None:
    fleet = Fleet()
    for name in "abc":
        fleet.join(name, (0,))
        fleet.started(name)
        fleet.ended(name, 0)
    assert fleet.next_order(0) == Order(What.START, "a")
    fleet.asked("b", 10)
    assert fleet.next_time() == 0
    assert [fleet.next_order(0), fleet.next_order(0)] == [Order(What.START, "c"), None]
