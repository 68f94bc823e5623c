"""What every driver of a fleet keeps: subclass `FleetContract` and give it `role`, and `children` of another machine.

class TestMyFleet(FleetContract):
    def role(self, at_once, **more):
        return Role("member {}", ..., **more)

`SeenFleetContract` is for processes of this machine, which its driver can see.
"""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest

from async_wrappers.fleet import pulse, waits
from async_wrappers.fleet.process_fleet import Member, ProcessFleet, Role
from async_wrappers.fleet.supervised import RunFailed

__all__ = ["FleetContract", "SeenFleetContract"]

PATIENCE = 60.0  # seconds in which what must happen has happened, on however busy a machine


class Log:
    """Keeps what a fleet says of its members."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.ended: list[str] = []
        self.lost: list[Member] = []
        self.failed: list[Exception] = []
        self.works = False

    def hear(self, member: Member, message: Any) -> None:
        self.heard.append((member.name, message))

    def ends(self, member: Member) -> bool:
        self.ended.append(member.name)
        return self.works

    def answers(self, name: str) -> list[Any]:
        return [message[1] for who, message in self.heard if who == name and message[0] == "answer"]

    def is_up(self, name: str, incarnation: int) -> bool:
        return any(who == name and message[0] == "up" and message[2] == incarnation for who, message in self.heard)


class FleetContract:
    killed = "was ended by SIGKILL (exit code -9)"

    def children(self) -> Any:
        """Return what starts members; None for processes of this machine."""
        return None

    def role(self, at_once: str, **more: Any) -> Role:
        """Return a role whose members are `run_member` of tests.worlds.fleet_member."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pulse, "STOPPED_FOR", 1.0)
        monkeypatch.setattr(pulse, "IDLE_FOR", 2.0)
        monkeypatch.setattr(waits, "LOOK", 0.1)

    @pytest.fixture
    def fleet(self) -> Iterator[ProcessFleet]:
        """See to it that no process is left."""
        with closing(ProcessFleet("The contract", self.children())) as fleet:
            yield fleet
            left = [psutil.Process(pid) for pid in fleet.pids.values() if psutil.pid_exists(pid)]
        psutil.wait_procs(left, timeout=PATIENCE)
        assert [each for each in left if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []

    @pytest.fixture
    def log(self) -> Log:
        return Log()

    def made(self, fleet: ProcessFleet, log: Log, at_once: str = "", count: int = 1, **more: Any) -> list[Member]:
        given = {"pauses": (0, 0), "hear": log.hear, "ends": log.ends, "lost": log.lost.append, **more}
        role = self.role(at_once, **given)
        return [fleet.add(role, number) for number in range(count)]

    def until(self, fleet: ProcessFleet, holds: Callable[[], Any], owing: Member | None = None) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline
            fleet.turn(owing=owing)

    def test_members_are_heard_by_name(self, fleet: ProcessFleet, log: Log) -> None:
        members = self.made(fleet, log, count=2)
        for number, member in enumerate(members):
            member.send(10 * number)
        self.until(fleet, lambda: log.answers("member 0") and log.answers("member 1"))
        assert (log.answers("member 0"), log.answers("member 1")) == ([1], [11])
        assert list(fleet.pids) == ["member 0", "member 1"]
        assert fleet.restarts == 0

    def test_a_member_that_is_killed_is_replaced_and_the_others_stay(self, fleet: ProcessFleet, log: Log) -> None:
        killed, other = self.made(fleet, log, count=2)
        before = fleet.pids
        os.kill(before["member 0"], signal.SIGKILL)
        self.until(fleet, lambda: log.is_up("member 0", 1))
        assert fleet.pids["member 0"] != before["member 0"]
        assert fleet.pids["member 1"] == before["member 1"]
        assert (fleet.restarts, killed.incarnation, other.incarnation, log.ended) == (1, 1, 0, ["member 0"])
        killed.send(4)
        self.until(fleet, lambda: log.answers("member 0"))

    def test_a_start_that_is_interrupted_is_tried_again(self, fleet: ProcessFleet, log: Log) -> None:
        interruptions = [KeyboardInterrupt(), None]

        def interrupted(member: Member) -> None:
            if member.incarnation and (error := interruptions.pop(0)) is not None:
                raise error

        (member,) = self.made(fleet, log)
        role, plain = member.role, member.role.arguments
        self.until(fleet, lambda: log.is_up("member 0", 0))
        object.__setattr__(role, "arguments", lambda each: (interrupted(each), plain(each))[1])
        os.kill(fleet.pids["member 0"], signal.SIGKILL)
        with pytest.raises(KeyboardInterrupt):
            self.until(fleet, lambda: False)
        self.until(fleet, lambda: log.is_up("member 0", 1))
        assert (fleet.restarts, member.incarnation, interruptions) == (1, 1, [])

    def test_members_that_die_at_once_are_replaced_although_the_start_of_one_is_interrupted(
        self, fleet: ProcessFleet, log: Log
    ) -> None:
        members = self.made(fleet, log, count=3)
        self.until(fleet, lambda: all(log.is_up(each.name, 0) for each in members))
        role, plain, interruptions = members[0].role, members[0].role.arguments, [KeyboardInterrupt()]

        def interrupted(member: Member) -> Any:
            if interruptions:
                raise interruptions.pop()
            return plain(member)

        object.__setattr__(role, "arguments", interrupted)
        for member in members:
            member.child.kill()
            member.child.join(PATIENCE)
        with pytest.raises(KeyboardInterrupt):
            fleet.turn()
        self.until(fleet, lambda: all(log.is_up(each.name, 1) for each in members))
        assert fleet.restarts == 3

    def test_a_start_that_is_interrupted_is_no_end(self, fleet: ProcessFleet, log: Log) -> None:
        (member,) = self.made(fleet, log, pauses=(0,))
        self.until(fleet, lambda: log.is_up("member 0", 0))
        role, plain, interruptions = member.role, member.role.arguments, [KeyboardInterrupt(), KeyboardInterrupt()]

        def interrupted(each: Member) -> Any:
            if interruptions:
                raise interruptions.pop()
            return plain(each)

        object.__setattr__(role, "arguments", interrupted)
        member.child.kill()
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                self.until(fleet, lambda: False)
        self.until(fleet, lambda: log.is_up("member 0", 1))
        assert (fleet.restarts, log.lost) == (1, [])

    def test_a_kill_that_is_interrupted_is_carried_out_at_the_next_turn(
        self, fleet: ProcessFleet, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (member,) = self.made(fleet, log)
        self.until(fleet, lambda: log.is_up("member 0", 0))
        kill, interruptions = member.child.kill, [KeyboardInterrupt()]

        def interrupted() -> None:
            kill()
            if interruptions:
                raise interruptions.pop()

        monkeypatch.setattr(member.child, "kill", interrupted)
        fleet.ails(member, "is in the way")
        with pytest.raises(KeyboardInterrupt):
            fleet.turn()
        with pytest.warns(RuntimeWarning, match="^member 0 is in the way: it is started again$"):
            self.until(fleet, lambda: log.is_up("member 0", 1))
        assert (fleet.restarts, log.ended) == (1, ["member 0"])

    def test_one_that_dies_again_and_again_is_given_up_with_its_end(self, fleet: ProcessFleet, log: Log) -> None:
        (member,) = self.made(fleet, log, "kill")
        self.until(fleet, lambda: log.lost)
        assert log.ended == ["member 0"] * 3
        assert not fleet.is_up(member)
        failure = fleet.failure(member)
        assert isinstance(failure, RunFailed)
        assert str(failure).startswith(f"member 0 {self.killed}")
        assert str(failure).endswith(", 3 times in a row before it had done anything")

    def test_one_that_works_in_between_is_never_given_up(self, fleet: ProcessFleet, log: Log) -> None:
        log.works = True
        self.made(fleet, log, "kill", pauses=(0,))
        self.until(fleet, lambda: len(log.ended) > 3)
        assert log.lost == []

    def test_one_whose_place_stays_empty_is_lost_at_once(self, fleet: ProcessFleet, log: Log) -> None:
        (member,) = self.made(fleet, log, "kill", pauses=())
        self.until(fleet, lambda: log.lost)
        assert str(fleet.failure(member)).startswith(f"member 0 {self.killed}")
        assert "in a row" not in str(fleet.failure(member))
        fleet.remove(member)
        assert fleet.pids == {}

    def test_what_one_raises_is_its_failure_with_the_traceback(self, fleet: ProcessFleet, log: Log) -> None:
        (member,) = self.made(fleet, log, "raise", pauses=())
        self.until(fleet, lambda: log.lost)
        failure = fleet.failure(member)
        assert isinstance(failure, LookupError) and str(failure) == "no such level"
        assert "raised in member 0; its traceback:\nTraceback" in failure.__notes__[0]

    def test_one_that_exits_does_not_end_its_parent(self, fleet: ProcessFleet, log: Log) -> None:
        (member,) = self.made(fleet, log, "exit", pauses=())
        self.until(fleet, lambda: log.lost)
        assert str(fleet.failure(member)) == "member 0 raised SystemExit(3)"

    def test_one_that_its_role_wants_ended_is_replaced(self, fleet: ProcessFleet, log: Log) -> None:
        def ails(member: Member, why: str | None) -> str | None:
            return "has inferred for too long" if log.is_up("member 0", 0) and not member.incarnation else why

        self.made(fleet, log, ails=ails)
        with pytest.warns(RuntimeWarning, match="^member 0 has inferred for too long: it is started again$"):
            self.until(fleet, lambda: log.is_up("member 0", 1))

    def test_threads_may_hear_members(self, fleet: ProcessFleet, log: Log) -> None:
        def meanwhile(holds: Callable[[], Any]) -> None:
            deadline = time.monotonic() + PATIENCE
            while not holds():
                assert time.monotonic() < deadline
                time.sleep(0.01)

        fleet.drive(log.failed.append)
        (member,) = self.made(fleet, log, pauses=())
        meanwhile(lambda: log.is_up("member 0", 0))
        member.send(1)
        meanwhile(lambda: log.answers("member 0") == [2])
        fleet.kill(member, "is in the way")
        meanwhile(lambda: log.lost == [member])
        assert member.why == "is in the way"
        fleet.remove(member)
        (again,) = self.made(fleet, log, pauses=(), hear=lambda *_: 1 / 0)
        meanwhile(lambda: log.failed)
        assert isinstance(log.failed[0], ZeroDivisionError)
        assert fleet.is_up(again)

    def test_one_that_is_asked_ends_and_none_takes_its_place(self, fleet: ProcessFleet, log: Log) -> None:
        (member,) = self.made(fleet, log)
        member.send(None)
        assert fleet.end([member], PATIENCE) == []
        assert not member.child.is_alive()
        fleet.turn(0.01)
        assert fleet.restarts == 0

    def test_one_that_does_not_hear_is_killed_when_its_time_is_over(self, fleet: ProcessFleet, log: Log) -> None:
        hangs, waits = self.made(fleet, log, count=2)
        hangs.send("hang")
        for member in (hangs, waits):
            member.send(None)
        assert fleet.end([hangs, waits], 1.0) == []
        assert not hangs.child.is_alive() and not waits.child.is_alive()

    def test_one_that_closes_gets_more_time_and_is_told_of_if_that_is_too_short(
        self, fleet: ProcessFleet, log: Log
    ) -> None:
        for seconds, more in ((2, PATIENCE), (600, 0.1)):
            (member,) = self.made(fleet, log, f"lingers {seconds}")
            member.send(None)
            self.until(fleet, lambda member=member: "closes" in member.said)  # type: ignore[misc]
            assert fleet.end([member], 0.5, more) == ([] if more == PATIENCE else [member])
            fleet.remove(member)


class SeenFleetContract(FleetContract):
    @pytest.mark.timeout(120)
    def test_one_that_is_stopped_is_ended_and_replaced_with_a_warning(self, fleet: ProcessFleet, log: Log) -> None:
        (member,) = self.made(fleet, log)
        member.send("stop")
        sentence = r"^member 0 has been stopped \(SIGSTOP\) for 1 s: it is started again$"
        with pytest.warns(RuntimeWarning, match=sentence):
            self.until(fleet, lambda: log.is_up("member 0", 1))
        assert fleet.restarts == 1

    @pytest.mark.timeout(120)
    def test_one_that_owes_an_answer_and_hangs_is_replaced_and_one_that_owes_none_may_rest(
        self, fleet: ProcessFleet, log: Log
    ) -> None:
        hangs, _ = self.made(fleet, log, count=2)
        hangs.send("hang")
        sentence = "^member 0 has neither answered nor used any processor time for 2 s: it is started again$"
        with pytest.warns(RuntimeWarning, match=sentence):
            self.until(fleet, lambda: log.is_up("member 0", 1), owing=hangs)
        assert log.ended == ["member 0"]

    @pytest.mark.timeout(120)
    def test_one_that_is_stopped_amid_a_message_is_ended_where_a_thread_waits_for_the_rest(
        self, fleet: ProcessFleet, log: Log
    ) -> None:
        fleet.drive(log.failed.append)
        stopped, other = self.made(fleet, log, count=2, pauses=())
        stopped.send("half")
        deadline = time.monotonic() + PATIENCE
        while log.lost != [stopped]:
            assert time.monotonic() < deadline and not log.failed
            time.sleep(0.01)
        assert stopped.why == "has been stopped (SIGSTOP) for 1 s"
        other.send(1)
        while not log.answers("member 1"):
            assert time.monotonic() < deadline and not log.failed
            time.sleep(0.01)

    @pytest.mark.timeout(120)
    def test_a_thread_finds_the_end_of_one_whose_pipe_is_held_by_a_process_that_it_started(
        self, fleet: ProcessFleet, log: Log
    ) -> None:
        fleet.drive(log.failed.append)
        (member,) = self.made(fleet, log, pauses=())
        member.send("leave heir")
        member.send(1)
        deadline = time.monotonic() + PATIENCE / 2
        while not log.answers("member 0"):
            assert time.monotonic() < deadline and not log.failed
            time.sleep(0.01)
        heirs = psutil.Process(fleet.pids["member 0"]).children()
        assert len(heirs) == 1
        try:
            member.send("kill")
            while not log.lost:
                assert time.monotonic() < deadline and not log.failed
                time.sleep(0.01)
            assert heirs[0].is_running()
        finally:
            heirs[0].kill()

    def test_stopped_members_leave_with_the_fleet(self, fleet: ProcessFleet, log: Log) -> None:
        members = self.made(fleet, log, count=2)
        os.kill(fleet.pids["member 0"], signal.SIGSTOP)
        pids = fleet.pids
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fleet.close()
        assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids.values())
        assert fleet.members == [] and members[0].name == "member 0"
