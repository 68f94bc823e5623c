"""A server of many environments on a real clock: environments in a few processes, accelerators in one each.

The calling process owns the rule: it divides the observations on the board among the accelerators that are free, and
watches over its children. With several accelerators one process has to know who is free; with one this costs a wake-up
per batch, about a tenth of a millisecond. An environment's process writes a byte into a socket that all of them share
when one of its environments has shown an observation, and nobody reads it while all accelerators compute. Actions come
back through the board alone: each environment looks there as its frame begins.

Messages: to a process of environments its spaces, how many frames to play, ``(begin, first)``, when frame 0 of the run
begins and which one it plays first, and None in the end; from it ``("spaces", observations, actions)``, ``("begun",)``
and ``("records", records)``. To an accelerator its spaces by its pipe, then batches by its socket; from it ``("ready",
nanoseconds)`` and the end of each batch.

A process that exits, hangs or is stopped is ended, and another one takes its place while the others go on. It is
started in a thread, and says the same as the first ones did.
"""

from __future__ import annotations

import gc
import itertools
import queue
import selectors
import socket
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any

import numpy as np

from async_wrappers.batched.environment_process import Spaces
from async_wrappers.batched.rows import check_space
from async_wrappers.fleet import waits
from async_wrappers.fleet.block import Block
from async_wrappers.fleet.fleet import SECOND, Fleet, What
from async_wrappers.fleet.starting import Children, pickled, unpickled
from async_wrappers.fleet.supervised import Child, Exited, RunFailed, enough_descriptors, raised_in
from async_wrappers.live.served.accelerators import Server, refuse_slow
from async_wrappers.live.served.board import ServedBoard, assure_memory
from async_wrappers.live.served.children import COUNT, END, run_accelerator, run_worlds
from async_wrappers.live.served.served_settings import ServedSettings
from async_wrappers.live.served.world import WorldRecord
from async_wrappers.posix import needs_fork_server
from async_wrappers.schedule.served import ServedSchedule

_LEAD = 50_000_000  # nanoseconds from the order to begin to the first frame
_LOOK = 0.5  # seconds between two looks for an order to stop, and for processes that hang
_HANGS = (10.0, 5.0)  # an inference: seconds, and times the longest one of the run; whichever is more
_PAUSES = (0,) * 5  # nanoseconds before a process is started again, by ends in a row


@dataclass(eq=False)
class _Place:
    """The place of a process among those of a server.

    Attributes:
        name: Of its processes.
        environments: That they play; empty for an accelerator's.
        number: Of the accelerator; -1 for environments.
        child: The newest one.
        orders: Where an accelerator gets its batches.
        moved: When its last batch was sent, or it was ended, in monotonic nanoseconds.
        shown: Frames that its environments had shown at the last look; -1 before the first one.
        owes: Whether the records of a run are still to come.
        why: Why its process was ended.
        is_absent: Whether its process has been ended, and no other one is up.
        is_starting: Whether a thread starts another one.
    """

    name: str
    environments: range
    number: int
    child: Child
    orders: socket.socket | None = None
    moved: int = 0
    shown: int = 0
    owes: bool = False
    why: str = ""
    is_absent: bool = False
    is_starting: bool = False

    @property
    def ends(self) -> list[Any]:
        """What is ready when its process has something to tell, or has ended."""
        return [self.child.pipe, self.child.sentinel, *([] if self.orders is None else [self.orders])]


@dataclass
class _Run:
    """What goes on in a run.

    Attributes:
        server: Its counts.
        frames: Of each environment.
        begin: When frame 0 begins, in monotonic nanoseconds.
        idle: Waits for everything; also for observations.
        busy: The same without observations, while all accelerators compute.
        records: Of the environments that have played.
        longest: Seconds of the longest batch.
        looked: When processes were last looked after, in monotonic seconds.
        stops_at: When those that have not stopped are ended; None while the run goes on.
        restarts: Processes that were started in the place of others; the run may end before they are up.
    """

    server: Server
    frames: int
    begin: int
    idle: selectors.BaseSelector
    busy: selectors.BaseSelector
    records: list[WorldRecord] = field(default_factory=list)
    longest: float = 0.0
    looked: float = field(default_factory=time.monotonic)
    stops_at: float | None = None
    restarts: int = 0

    def watch(self, place: _Place) -> None:
        """Hear a place's process from now on."""
        for selector in (self.idle, self.busy):
            for end in place.ends:
                selector.register(end, selectors.EVENT_READ, place)

    def forget(self, place: _Place) -> None:
        """Hear it no more."""
        for selector in (self.idle, self.busy):
            for end in place.ends:
                selector.unregister(end)


class ServedProcesses:
    """The processes of a `ServedRunner`, which are up until `close`.

    Args:
        settings: Of the runner.
        schedule: The server that they describe.
        stops: Whether the run that waits for the processes is to stop.

    Raises:
        ValueError: A function that cannot be pickled, environments whose spaces differ or do not fit into memory, a
            policy whose answer is no batch of actions, or that is slower than the playout.
        RunFailed: A process has ended.
    """

    def __init__(self, settings: ServedSettings, schedule: ServedSchedule, stops: Callable[[], bool]) -> None:
        self._children, self._rule = Children("ServedRunner"), Fleet()
        needs_fork_server("backend='process'", "use backend='virtual' with a latency")
        self._settings, self._schedule = settings, schedule
        processes = settings.process_count()
        if settings.realtime is not None:
            settings.realtime.refuse()
        pickled("make_env", settings.make_env)
        world = settings.default_action, settings.seed, settings.max_age, settings.log
        self._environments = pickled("a default action", (settings.make_env, schedule, world, settings.realtime))
        self._policy = pickled("make_policy", settings.make_policy)
        self._held, self._stops = ExitStack(), stops
        self._worlds: list[_Place] = []
        self._accelerators: list[_Place] = []
        # (place, its new process and where that gets batches, or what went wrong), from the threads that start them
        self._new: queue.SimpleQueue[tuple[_Place, Any]] = queue.SimpleQueue()
        self._starters: list[threading.Thread] = []
        self._asked_to_stop = False
        self._board: ServedBoard | None = None
        try:
            with enough_descriptors(processes=processes, accelerators=schedule.accelerators):
                self._start(processes)
        except BaseException:
            self.close()
            raise

    def play(self, frames: int) -> tuple[list[WorldRecord], Server, bool, int]:
        """Play so many frames of each environment.

        Returns:
            The records of the environments, the server's counts, whether it was stopped, and how many processes
            were started in the place of others.

        Raises:
            RunFailed: A process has ended.
        """
        self._renew()
        board, schedule = self._board, self._schedule
        assert board is not None
        board.clear()
        server = Server(schedule, board, self._settings.log)
        if self._asked_to_stop:
            board.stop[0] = 1
        self._tell(self._worlds, frames)
        self._answers(self._worlds, "begun")
        begin = time.monotonic_ns() + _LEAD
        self._tell(self._worlds, (begin, 0))
        with closing(selectors.DefaultSelector()) as idle, closing(selectors.DefaultSelector()) as busy:
            run = _Run(server, frames, begin, idle, busy)
            try:
                self._serve(run)
            finally:
                for place in (*self._worlds, *self._accelerators):
                    if place.is_absent:  # it may be in the midst of what is said at a start
                        place.child.kill()
        stopped, self._asked_to_stop = bool(board.stop[0]), False
        known = {record.environment: record for record in run.records}
        records = [known.get(number) or WorldRecord(number) for number in range(schedule.environments)]
        return records, server, stopped, run.restarts

    def stop(self) -> None:
        """End the run that goes on, or the next one, within a frame; from any thread."""
        self._asked_to_stop = True
        if self._board is not None:
            self._board.stop[0] = 1

    def close(self) -> None:
        """End all processes, at the latest by force."""
        held, self._held = self._held, ExitStack()
        places = (*self._worlds, *self._accelerators)
        try:
            self.stop()
            for place in places:
                with suppress(OSError):
                    place.child.pipe.send(None)
                if place.orders is not None:
                    place.orders.close()
                    place.child.pipe.close()  # it may wait there for the spaces
            self._children.join(place.child for place in places)
            for starter in self._starters:
                starter.join(waits.PATIENCE)
        finally:
            self._children.close()
            while not self._new.empty():
                _, found = self._new.get()
                if isinstance(found, tuple) and found[1] is not None:
                    found[1].close()
            self._worlds, self._accelerators, self._board = [], [], None
            held.close()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        children = [place.child for place in (*self._worlds, *self._accelerators)]
        return {child.name: child.process.pid for child in children if child.process.pid is not None}

    def _start(self, processes: int) -> None:
        schedule, keep = self._schedule, self._held.callback
        self._block = Block()
        keep(self._block.close)
        self._wake, self._wakes = socket.socketpair()
        for end in (self._wake, self._wakes):
            keep(end.close)
            end.setblocking(False)
        bounds = np.linspace(0, schedule.environments, processes + 1).astype(int).tolist()
        for first, end in itertools.pairwise(bounds):
            one = end == first + 1
            name = f"the process of environment{'' if one else 's'} {first}" + ("" if one else f" to {end - 1}")
            self._worlds.append(_Place(name, range(first, end), -1, self._world(name, range(first, end), 0)))
        for number in range(schedule.accelerators):
            child, orders = self._accelerator(number)
            self._accelerators.append(_Place(child.name, range(0), number, child, orders))
        for place in (*self._worlds, *self._accelerators):
            self._rule.join(place, _PAUSES)
            self._rule.started(place)
        self._spaces_of_all = spaces = self._spaces()
        size = ServedBoard.size(spaces, schedule.environments)
        assure_memory(size, schedule.environments)
        self._block.resize(size)
        self._board = ServedBoard(self._block, spaces, schedule.environments, schedule.every)
        self._board.clear()
        self._tell((*self._worlds, *self._accelerators), spaces)
        ready = self._answers(self._accelerators, "ready")
        refuse_slow(schedule, min(least for (least,) in ready) / 1e9, "the quickest inference")

    def _world(self, name: str, environments: range, incarnation: int) -> Child:
        takes = self._environments, environments, incarnation, self._block, self._wakes
        child = self._children.start(name, run_worlds, takes, shares_torch=False)
        child.incarnation = incarnation
        return child

    def _accelerator(self, number: int) -> tuple[Child, socket.socket]:
        schedule, (ours, orders) = self._schedule, socket.socketpair()
        takes = self._policy, number, self._block, schedule.environments, schedule.every, orders
        try:
            with closing(orders):
                return self._children.start(f"accelerator {number}", run_accelerator, takes, shares_torch=True), ours
        except BaseException:
            ours.close()
            raise

    def _spaces(self) -> Spaces:
        """Return the spaces of all environments."""
        first, *others = self._answers(self._worlds, "spaces")
        for name, space in zip(("the observation space", "the action space"), first, strict=True):
            check_space(name, space)
        for other in others:
            if other != first:
                raise ValueError(f"make_env must make environments with the same spaces, got {first} and {other}")
        observations, actions = first
        return observations, actions

    def _tell(self, places: Sequence[_Place], message: Any) -> None:
        for place in places:
            with suppress(BrokenPipeError, ConnectionResetError):  # it has ended, as will be found
                place.child.pipe.send(message)

    def _answers(self, places: Sequence[_Place], kind: str) -> list[tuple[Any, ...]]:
        """Return the message of that kind of each process, as they come; any other one that ends is an error.

        Raises:
            RunFailed: One has ended or has taken too long, or the run was stopped meanwhile.
        """
        answers: dict[str, tuple[Any, ...]] = {}
        timeout = self._settings.start_timeout
        deadline, stops_at = time.monotonic() + timeout, None
        ends: dict[Any, Child] = {}
        for place in (*self._worlds, *self._accelerators):
            ends |= dict.fromkeys((place.child.pipe, place.child.sentinel), place.child)
        while len(answers) < len(places):
            for child in {ends[each] for each in connection.wait([*ends], _LOOK)}:
                if (message := self._heard(child)) is not None:
                    assert message[0] == kind
                    answers[child.name] = message[1:]
            now = time.monotonic()
            if stops_at is None and self._stops():
                stops_at = now + waits.PATIENCE
            if stops_at is not None and now > stops_at:
                raise RunFailed("stop() was called before the run's first frame: nothing was played")
            if now > deadline and len(answers) < len(places):
                missing = next(place.name for place in places if place.name not in answers)
                raise RunFailed(f"{missing} was not ready after start_timeout={timeout:g} seconds: give it more")
        return [answers[place.name] for place in places]

    def _heard(self, child: Child) -> Any:
        """Return a child's next message, None for none yet.

        Raises:
            RunFailed: It has ended, or raised what could not be pickled; otherwise what it raised.
        """
        try:
            message = child.pipe.recv() if child.pipe.poll(0) else None
        except (EOFError, OSError):
            message = None
            child.join(1.0)
        if message is None:
            if child.is_alive():
                return None
            raise RunFailed(f"{child.name} {self._children.how_it_ended(child)}, and the run with it: nothing goes on")
        if message[0] == "failed":
            _, error, text, *_ = message
            raise raised_in(child.name, unpickled(error), text)
        return message

    # A run.

    def _serve(self, run: _Run) -> None:
        """Give observations to accelerators until all environments have played, and their last batches have ended."""
        server, places = run.server, (*self._worlds, *self._accelerators)
        for place in places:
            place.owes, place.shown, place.moved = place.number < 0, -1, run.begin
            self._rule.works(place)
            run.watch(place)
        run.idle.register(self._wake, selectors.EVENT_READ, None)  # while all are busy nobody need know of it
        collects = gc.isenabled()
        gc.disable()  # a collection would delay a batch
        try:
            while any(place.owes for place in self._worlds) or server.computes:
                for key, _ in (run.busy if server.all_busy else run.idle).select(_LOOK):
                    place = key.data
                    try:
                        if place is None:
                            with suppress(BlockingIOError):
                                self._wake.recv(65536)
                        elif key.fileobj is place.orders:
                            self._take_end(run, place)
                        elif (message := self._heard(place.child)) is not None:
                            self._take(run, place, message)
                    except Exited as exited:
                        if place.is_absent:  # it has not come up
                            raise
                        self._end(run, place, exited.how)
                        self._obey(run)
                        break  # what else is ready may be of the process that has ended
                self._look_after(run)
                if any(place.owes for place in self._worlds):
                    self._send_batches(run)
        finally:
            if collects:
                gc.enable()

    def _send_batches(self, run: _Run) -> None:
        run.server.look()
        for number, pairs in run.server.starts():
            place, order = self._accelerators[number], np.array(pairs, np.int64)
            place.moved = now = time.monotonic_ns()
            limit = max(_HANGS[0], _HANGS[1] * run.longest)
            why = f"has inferred a batch for more than {limit:.3g} s"
            self._rule.owes(place, now + round(limit * SECOND), why)
            with suppress(BrokenPipeError, ConnectionResetError):
                assert place.orders is not None
                place.orders.sendall(COUNT.pack(len(pairs)) + order.tobytes())

    def _take_end(self, run: _Run, place: _Place) -> None:
        """Take the end of an accelerator's batch."""
        assert place.orders is not None
        with suppress(ConnectionResetError):
            message = place.orders.recv(END.size, socket.MSG_WAITALL)
            if len(message) == END.size:
                ended, began = END.unpack(message)[0], place.moved
                run.server.finished(place.number, began - run.begin, ended - run.begin)
                run.longest = max(run.longest, (ended - began) / 1e9)
                self._rule.works(place)
                self._rule.heard(place)
                return
        place.child.join(waits.PATIENCE)
        while self._heard(place.child) is None:  # what it raised, or how it ended
            pass

    def _take(self, run: _Run, place: _Place, message: tuple[Any, ...]) -> None:
        """Take a message; all but the records are of a process that takes another one's place."""
        kind, *content = message
        if kind == "records":
            run.records += content[0]
            place.owes = False
            self._rule.heard(place)
        elif kind == "ready":
            run.server.back(place.number)
            place.is_absent = False
        elif kind == "spaces":
            self._refuse_other(tuple(content))
            self._tell([place], self._spaces_of_all)
            self._tell([place], run.frames)
        else:
            assert kind == "begun"
            clock = self._schedule.clock
            first = min(run.frames, clock.frame_at(max(0, time.monotonic_ns() + _LEAD - run.begin)))
            run.server.joined(place.environments, first)
            self._tell([place], (run.begin, first))
            place.is_absent, place.shown = False, -1

    # Processes that hang or are stopped.

    def _look_after(self, run: _Run) -> None:
        """Look now and then for processes that hang, or are stopped; end them, and let others take their places.

        Raises:
            RunFailed: One was ended again and again, or does not come up.
        """
        while not self._new.empty():
            place = self._install(*self._new.get())
            run.watch(place)
        now = time.monotonic()
        if now - run.looked < _LOOK:
            return
        run.looked = now
        assert self._board is not None
        if run.stops_at is None and self._board.stop[0]:
            run.stops_at = now + waits.PATIENCE
        is_late = run.stops_at is not None and now > run.stops_at
        for place in (*self._worlds, *self._accelerators):
            if place.is_absent:
                self._await(run, place)
                continue
            place.child.pulse.look(False)
            why = place.child.pulse.ailment()
            if is_late and (place.owes or run.server.is_computing(place.number)):
                why = f"did not stop within {waits.PATIENCE:g} s"
            if why is not None:
                self._rule.ails(place, why)
            elif place.number < 0:
                self._note_frames(place)
        self._obey(run)

    def _obey(self, run: _Run) -> None:
        """Carry out what the rule orders.

        Raises:
            RunFailed: A process was ended again and again.
        """
        while (order := self._rule.next_order(time.monotonic_ns())) is not None:
            what, place, why = order
            assert isinstance(place, _Place)
            if what == What.KILL:
                self._end(run, place, why)
            elif what == What.START:
                self._warn(place, "is started again")
                run.restarts += 1
                self._start_anew(place)
            else:
                times = self._rule.ends(place)
                raise RunFailed(f"{place.name} {place.why}; it was the {times}th time in a row")

    def _await(self, run: _Run, place: _Place) -> None:
        """Wait for a process that takes another one's place, not longer than at the beginning."""
        timeout = self._settings.start_timeout
        if run.stops_at is not None:
            place.owes = False
        elif time.monotonic_ns() - place.moved > timeout * 1e9:
            raise RunFailed(f"{place.name} was not ready again after start_timeout={timeout:g} seconds: give it more")

    def _note_frames(self, place: _Place) -> None:
        """Note whether environments have shown frames since the last look; they owe others while they play."""
        assert self._board is not None
        shown = int(self._board.shown[place.environments.start : place.environments.stop].sum())
        if shown == place.shown:
            return
        if place.shown >= 0:
            self._rule.works(place)
        place.shown, now, timeout = shown, time.monotonic_ns(), self._settings.timeout
        if timeout is not None and place.owes:
            until = now + round((timeout + self._settings.every / self._schedule.clock.fps) * SECOND)
            self._rule.owes(place, until, f"has not come back from a step or a reset for {timeout:g} s")

    def _end(self, run: _Run, place: _Place, why: str) -> None:
        """End a process; another one takes its place if there is more to play."""
        place.child.kill()
        place.child.join(waits.PATIENCE)
        run.forget(place)
        place.is_absent, place.moved, place.why = True, time.monotonic_ns(), why
        if place.orders is not None:
            run.server.lost(place.number)
            place.orders.close()
        if run.stops_at is not None or not any(each.owes for each in self._worlds):
            place.owes = False
            self._rule.asked(place, place.moved)
            self._warn(place, "was ended")
        self._rule.ended(place, place.moved)

    def _warn(self, place: _Place, then: str) -> None:
        lost = ", and its episodes are lost" if place.number < 0 else ""
        warnings.warn(f"{place.name} {place.why}: it {then}{lost}", RuntimeWarning, stacklevel=3)

    def _start_anew(self, place: _Place) -> None:
        """Start a process in a thread, as the others do not wait for it."""

        def start() -> None:
            try:
                if place.number >= 0:
                    found: Any = self._accelerator(place.number)
                else:
                    found = self._world(place.name, place.environments, place.child.incarnation + 1), None
            except BaseException as error:
                found = error
            self._new.put((place, found))

        place.is_starting = True
        starter = threading.Thread(target=start, name=f"starts {place.name}", daemon=True)
        self._starters.append(starter)
        starter.start()

    def _install(self, place: _Place, found: Any) -> _Place:
        """Put a new process, or raise what went wrong, into a place."""
        place.is_starting = False
        if isinstance(found, BaseException):
            raise found
        old, (place.child, place.orders) = place.child, found
        self._children.forget(old)
        self._rule.started(place)
        if place.number >= 0:
            self._tell([place], self._spaces_of_all)
        return place

    def _renew(self) -> None:
        """Start what an earlier run has ended."""
        absent = [place for place in (*self._worlds, *self._accelerators) if place.is_absent]
        for place in absent:
            if not place.is_starting:
                self._start_anew(place)
        while any(place.is_starting for place in absent):
            self._install(*self._new.get())
        worlds, accelerators = ([each for each in absent if (each.number >= 0) == of] for of in (False, True))
        for spaces_of_it in self._answers(worlds, "spaces"):
            self._refuse_other(spaces_of_it)
        self._tell(worlds, self._spaces_of_all)
        self._answers(accelerators, "ready")
        for place in absent:
            place.is_absent = False

    def _refuse_other(self, spaces_of_it: tuple[Any, ...]) -> None:
        if spaces_of_it != self._spaces_of_all:
            known = self._spaces_of_all
            raise ValueError(f"make_env must make environments with the same spaces, got {known} and {spaces_of_it}")
