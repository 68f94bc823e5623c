"""The driver of a fleet of processes: it starts them, hears them, looks after them, and ends all of them.

A user lists its roles: how a member is started, what its messages and its end mean, and whether another one takes its
place. Then it calls `turn` while it waits for whatever it needs, or lets threads hear the members (`drive`). Each turn
waits for a message or an end, hears it, and carries out the orders of the rule (`fleet.Fleet`).

A member's messages are tuples that begin with their kind. The driver itself reads ``("failed", exception, traceback,
words)``, which is a member's last one, and ``("closes",)``, by which one that was asked to end gets more time.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection
from typing import Any

from async_wrappers.fleet import waits
from async_wrappers.fleet.fleet import SECOND, Fleet, What
from async_wrappers.fleet.starting import PRELOAD, Children, start_thread, unpickled
from async_wrappers.fleet.supervised import Child, RunFailed, raised_in


def _nothing(member: Member, *_: Any) -> None:
    """Do nothing of a member's event."""


@dataclass(frozen=True)
class Role:
    """What the members of a kind have in common.

    Attributes:
        name: Of a member in messages, from its number: ``"worker {}"``.
        shares_torch: Whether one comes from a server that has torch loaded; else it is a new interpreter.
        preload: As in `Children.start`.
        main: Its main function, called with the arguments and its end of a pipe.
        arguments: From a member to these arguments.
        pauses: Nanoseconds before another one takes its place, by ends in a row; none does without any.
        daemon: False for members that may start processes.
        started: Called with a member that has just been started.
        receive: Returns the next message in a member's pipe.
        hear: Called with a member and each of its messages that the driver does not read.
        ends: Called with a member that has ended; returns whether it had worked before. It may raise, where another
            one would do no better.
        lost: Called with a member that has ended and whose place stays empty.
        ails: From a member and the system's reason why it counts as dead, or None, to the reason to end it.
        then: What the warning of such an end says of what follows.
    """

    name: str
    shares_torch: bool
    main: Callable[..., None]
    arguments: Callable[[Member], Sequence[Any]]
    pauses: tuple[int, ...] = ()
    daemon: bool = True
    preload: Sequence[str] = PRELOAD
    started: Callable[[Member], None] = _nothing
    receive: Callable[[Any], Any] = lambda pipe: pipe.recv()
    hear: Callable[[Member, Any], None] = _nothing
    ends: Callable[[Member], bool | None] = _nothing
    lost: Callable[[Member], None] = _nothing
    ails: Callable[[Member, str | None], str | None] = lambda member, why: why
    then: str = "it is started again"


@dataclass(eq=False)
class Member:
    """A place in a fleet.

    Attributes:
        role: Its role.
        number: Its number among those of the role.
        incarnation: How many processes were there before the present one.
        error: What that has raised, if it could be pickled, and the traceback.
        words: The type of that, and what it says.
        said: Kinds of the messages that it has sent.
        why: Why it was ended; "" if it was not.
    """

    role: Role
    number: int
    incarnation: int = -1
    error: tuple[BaseException | None, str] | None = None
    words: str = ""
    said: set[str] = field(default_factory=set)
    why: str = ""

    def __post_init__(self) -> None:
        """Give it its name."""
        self.name = self.role.name.format(self.number)
        self.child: Child

    @property
    def exits(self) -> str:
        """By what it has ended its own program, as "raised SystemExit(0)"; "" if it has not."""
        error = None if self.error is None else self.error[0]
        return "" if error is None or isinstance(error, Exception) else f"raised {error!r:.200}"

    def send(self, message: Any) -> None:
        """Send a message; one that has ended is found later."""
        with suppress(OSError):
            self.child.pipe.send(message)


class ProcessFleet:
    """The processes of a user, one list of roles.

    Args:
        user: The class that starts them, in the sentence for a script without a main guard.
        children: What starts and ends them elsewhere (`ray_fleet.RayChildren`); None for processes of this machine.
    """

    def __init__(self, user: str, children: Any = None) -> None:
        """Begin without members."""
        self._children, self._rule, self._looked = children or Children(user), Fleet(), 0.0
        self._lock = threading.RLock()  # of the rule and of members, where threads hear these
        self._failed: Callable[[Exception], None] | None = None  # of threads; None where there are none
        self._threads: list[threading.Thread] = []
        self._rests = threading.Event()
        self.members: list[Member] = []
        self.restarts = 0
        """Members that were started in the place of others."""

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        return {each.name: each.child.pid for each in self.members if each.child.pid is not None}

    def add(self, role: Role, number: int = 0, incarnation: int = 0) -> Member:
        """Start a member; so many were there before it.

        Raises:
            RunFailed: It cannot be started.
        """
        member = Member(role, number, incarnation - 1)
        with self._lock:
            self._rule.join(member, role.pauses)
            self._start(member)
            self.members.append(member)
        return member

    def remove(self, member: Member) -> None:
        """Forget a member that has ended."""
        with self._lock:
            self.members.remove(member)
            self._rule.leave(member)
            self._children.forget(member.child)

    def drive(self, failed: Callable[[Exception], None], between: Callable[[], None] = lambda: None) -> None:
        """Let a thread for each member hear it from now on, in the place of `turn`; what the roles do is done there.

        Another thread looks for members that are stopped, which may be amid a message that is waited for. Nobody waits
        for pauses: another member takes one's place at once, or none does.

        Args:
            failed: Called with what a role raises.
            between: Called after each look.
        """
        self._failed = failed

        def look() -> None:
            while not self._rests.wait(waits.LOOK):
                for member in [*self.members]:
                    if (why := self._ailment(member, False)) is not None:
                        self.kill(member, why)
                between()

        self._run("looks after a fleet", look)
        for member in self.members:
            self._run(f"hears {member.name}", partial(self._follow, member))

    def _follow(self, member: Member) -> None:
        """Hear a member to its end."""
        assert self._failed is not None
        try:
            # Its end is waited for too, as a process that it started may hold its pipe open.
            pipe: Any = member.child.pipe
            ends = [pipe, member.child.sentinel]
            while pipe in connection.wait(ends) and self._hear(member, is_ready=True):
                pass
            with self._lock:
                self._bury(member)
                self._obey()
        except Exception as error:
            self._failed(error)

    def _run(self, name: str, main: Callable[[], None]) -> None:
        thread = threading.Thread(target=main, name=name, daemon=True)
        start_thread(thread)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]

    def kill(self, member: Member, why: str) -> None:
        """End a member by force, for a reason that is the end of a sentence; from any thread."""
        member.why = member.why or why
        member.child.kill()

    def is_up(self, member: Member) -> bool:
        """Return whether a member has neither ended nor is to be killed."""
        return self._rule.is_up(member)

    def turn(self, seconds: float = 0.0, members: Iterable[Member] | None = None, owing: Member | None = None) -> None:
        """Wait for a message or an end, then handle all that has happened; look after all members now and then.

        Args:
            seconds: To wait at most; 0 for as long as nothing is due, a second at most.
            members: That are heard; None for all.
            owing: One that owes an answer, and so may not rest.

        Raises:
            Exception: What the roles raise.
        """
        self._obey()
        heard = [each for each in (self.members if members is None else members) if self.is_up(each)]
        ends: dict[Any, Member] = {end: each for each in heard for end in (each.child.sentinel, each.child.pipe)}
        ready = connection.wait([*ends], min(seconds or waits.LOOK, self._pause()))
        for member in dict.fromkeys(ends[end] for end in ready):
            if member.child.sentinel in ready or not self._hear(member, is_ready=True):
                self._bury(member)
        self._look(owing)
        self._obey()

    def failure(self, member: Member) -> Exception:
        """Return the exception to raise for a member that has raised, or has ended."""
        if member.error is not None:
            return raised_in(member.name, *member.error)
        try:
            how = self.how_it_ended(member)
        except RuntimeError as error:  # it has imported a main script without a guard
            return error
        again = f", {self._rule.ends(member)} times in a row before it had done anything" if member.role.pauses else ""
        return RunFailed(f"{member.name} {how}{again}")

    def how_it_ended(self, member: Member) -> str:
        """Return how a member has ended: by what it raised, where that ends programs, or as `Children.how_it_ended`."""
        return member.exits or str(self._children.how_it_ended(member.child))

    def ended_in_short(self, member: Member) -> str:
        """Return in a few words how a member has ended: "has ended", or "was ended by SIGKILL".

        Raises:
            RuntimeError: It has imported a main script without a guard.
        """
        self._children.how_it_ended(member.child)
        return str(member.child.ended_in_short())

    def ails(self, member: Member, why: str) -> None:
        """Let a member count as dead, for a reason that is the end of a sentence, from the next turn on."""
        self._rule.ails(member, why)

    def works(self, member: Member) -> None:
        """Take a member's next end for the first in a row."""
        self._rule.works(member)

    def end(self, members: Iterable[Member], seconds: float, closing: float = 0.0) -> list[Member]:
        """Wait for the ends of members that were asked to end; kill those that take too long.

        Args:
            members: These.
            seconds: That they have.
            closing: Seconds more for each that says within its time that it closes.

        Returns:
            Those that were killed while they closed.
        """
        begin, cut = time.monotonic_ns(), list[Member]()
        left = [each for each in members if self.is_up(each)]
        speak = set(left) if self._failed is None else set()  # whose pipes are to be read here
        for each in members:
            more = closing if "closes" in each.said else 0.0
            self._rule.asked(each, begin + round((seconds + more) * SECOND))
        while left:
            ends = [each.child.sentinel for each in left] + [each.child.pipe for each in left if each in speak]
            ready, now = connection.wait(ends, self._pause()), time.monotonic_ns()
            for member in left:
                closes = "closes" in member.said
                if member.child.pipe in ready and not self._hear(member):
                    speak.discard(member)
                if "closes" in member.said and not closes:
                    self._rule.asked(member, begin + round((seconds + closing) * SECOND))
            late = [each.member for each in self._rule.orders(now)]
            for member in [each for each in left if each in late or not each.child.is_alive()]:
                if member in late:
                    cut += [member] if "closes" in member.said else []
                    member.child.kill()
                    member.child.join(waits.PATIENCE)
                self._rule.ended(member, now)
                left.remove(member)
        return cut

    def close(self) -> None:
        """End all by force, and release what they took."""
        self._rests.set()
        for member in self.members if self._failed is not None else ():
            member.child.kill()
        for thread in self._threads:
            thread.join(waits.PATIENCE)
        self.members, self._rule = [], Fleet()  # whose roles refer to the user, which refers to this
        self._children.close()

    def _pause(self) -> float:
        """Return the seconds until an order is due, or until members are looked at again."""
        due = self._rule.next_time()
        return waits.LOOK if due is None else min(waits.LOOK, max(0.0, (due - time.monotonic_ns()) / SECOND))

    def _start(self, member: Member) -> None:
        role = member.role
        member.incarnation += 1
        member.error, member.words, member.why, member.said = None, "", "", set()
        member.child = self._children.start(
            *(member.name, role.main, role.arguments(member)),
            shares_torch=role.shares_torch,
            preload=role.preload,
            daemon=role.daemon,
        )
        self._rule.started(member)
        role.started(member)
        if self._failed is not None:
            self._run(f"hears {member.name}", partial(self._follow, member))

    def _hear(self, member: Member, is_ready: bool = False) -> bool:
        """Handle a member's messages, or one where its pipe is ready; return False if it has ended, or has raised."""
        try:
            while is_ready or member.child.pipe.poll(0):
                kind, *_ = message = member.role.receive(member.child.pipe)
                member.said.add(kind)
                if kind == "failed":
                    member.error, member.words = (unpickled(message[1]), message[2]), message[3]
                else:
                    member.role.hear(member, message)
                if is_ready:
                    break
        except (EOFError, OSError):
            return False
        return member.error is None

    def _look(self, owing: Member | None) -> None:
        """Look now and then for members that are stopped or hang, or that their role wants ended.

        A stopped one may block others (learners have a lock), so all are looked at.
        """
        now = time.monotonic()
        if now - self._looked < waits.LOOK:
            return
        self._looked = now
        for member in filter(self.is_up, self.members):
            if (why := self._ailment(member, member is owing)) is not None:
                self._rule.ails(member, why)

    def _ailment(self, member: Member, owes: bool) -> str | None:
        member.child.pulse.look(owes)
        return member.role.ails(member, member.child.pulse.ailment())

    def _obey(self) -> None:
        """Carry out what the rule orders."""
        while (order := self._rule.next_order(time.monotonic_ns())) is not None:
            what, member, why = order
            assert isinstance(member, Member)
            if what == What.KILL:
                member.why = why
                try:
                    member.child.kill()
                    self._bury(member)
                except BaseException:  # an interruption: it is ended at the next turn
                    self._rule.undone(order)
                    raise
                if member.role.pauses:  # last, as a warning may be an error
                    warnings.warn(f"{member.name} {why}: {member.role.then}", RuntimeWarning, stacklevel=3)
            elif what == What.START:
                dead = member.child
                try:
                    self._start(member)
                except BaseException as error:  # it is tried again
                    member.incarnation -= 1
                    if isinstance(error, Exception):  # such as that no more processes may run
                        self._rule.ended(member, time.monotonic_ns())
                    else:
                        self._rule.undone(order)
                    raise
                self._children.forget(dead)
                self.restarts += 1
            else:
                member.role.lost(member)

    def _bury(self, member: Member) -> None:
        """Note a member's end, and what it said last."""
        self._hear(member)
        if not member.child.join(member.child.reported_within):
            member.child.kill()
            member.child.join(waits.PATIENCE)
        if member.role.ends(member):
            self._rule.works(member)
        self._rule.ended(member, time.monotonic_ns())
