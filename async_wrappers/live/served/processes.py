"""A server of many environments on a real clock: environments in a few processes, accelerators in one each.

The calling process owns the rule: it divides the observations on the board among the accelerators that are free, and
watches over its children. An environment's process writes a byte into a socket that all of them share when one of its
environments has shown an observation, and nobody reads it while all accelerators compute. Actions come back through the
board alone: each environment looks there as its frame begins.

Messages: to a process of environments its spaces, ``(frames, log)``, when the first frame begins, and None in the end;
from it ``("spaces", observations, actions)``, ``("begun",)`` and ``("records", records)``. To an accelerator its spaces
by its pipe, then batches by its socket; from it ``("ready", nanoseconds)`` and the end of each batch.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from heapq import heapify, heappop, heapreplace
from multiprocessing import connection, util
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np

from async_wrappers.batched.child import Spaces
from async_wrappers.batched.tree import check_space
from async_wrappers.live.backends.children import as_child, one_thread
from async_wrappers.live.backends.starting import kill_all, pickled, start_child, unpickled
from async_wrappers.live.backends.supervised import Child, enough_descriptors
from async_wrappers.live.memory.block import Block
from async_wrappers.live.realtime import Spin
from async_wrappers.live.run_spec import RunFailed
from async_wrappers.live.served.board import ServedBoard, assure_memory
from async_wrappers.live.served.server import Accelerator, Server, refuse_slow, warm_up_sizes
from async_wrappers.live.served.settings import ServedSettings
from async_wrappers.live.served.world import World, WorldRecord
from async_wrappers.schedule.served import ServedSchedule

__all__ = ["ServedProcesses"]

_PATIENCE = 3.0  # seconds that processes have to end once they are asked to
_LEAD = 50_000_000  # nanoseconds from the order to begin to the first frame
_LOOK = 0.5  # seconds between two looks for an order to stop
_NO_GUARD = 86  # exit code of a child that was about to start children of its own
_COUNT = struct.Struct("<q")  # observations of a batch
_END = struct.Struct("<q")  # when its actions were there


class ServedProcesses:
    """The processes of a `ServedRunner`, which are up until `close`.

    Args:
        settings: Of the runner.
        schedule: The server that they describe.

    Raises:
        ValueError: A function that cannot be pickled, environments whose spaces differ or do not fit into memory, a
            policy whose answer is no batch of actions, or that is slower than the playout.
        RunFailed: A process has ended.
    """

    def __init__(self, settings: ServedSettings, schedule: ServedSchedule) -> None:
        """See the class."""
        if getattr(multiprocessing.process.current_process(), "_inheriting", False):
            os._exit(_NO_GUARD)  # the parent raises the error that explains it
        if not sys.platform.startswith("linux") and sys.platform != "darwin":
            raise RuntimeError(f"backend='process' needs Linux or macOS, got {sys.platform}: use backend='virtual'")
        self._settings, self._schedule = settings, schedule
        processes = settings.process_count()
        if settings.realtime is not None:
            settings.realtime.refuse()
        pickled("make_env", settings.make_env)
        world = settings.default_action, settings.seed, settings.max_age, settings.log
        environments = pickled("a default action", (settings.make_env, schedule, world, settings.realtime))
        policy = pickled("make_policy", settings.make_policy)
        self._held, self._started = ExitStack(), {}  # type: ignore[var-annotated]
        self._worlds: list[Child] = []
        self._accelerators: list[Child] = []
        self._orders: list[socket.socket] = []
        self._asked_to_stop = False
        self._board: ServedBoard | None = None
        # At exit multiprocessing sends SIGTERM to children that are left and waits for them without limit. Ours ignore
        # SIGTERM, so they are killed before.
        util.Finalize(self, kill_all, (self._started,), exitpriority=10)
        try:
            with enough_descriptors(processes + schedule.accelerators):
                self._start(environments, policy, processes)
        except BaseException:
            self.close()
            raise

    def play(self, frames: int) -> tuple[list[WorldRecord], Server, bool]:
        """Play so many frames of each environment.

        Returns:
            The records of the environments, the server's counts, and whether it was stopped.

        Raises:
            RunFailed: A process has ended.
        """
        board, schedule = self._board, self._schedule
        assert board is not None
        board.clear()
        server = Server(schedule, board, self._settings.log)
        if self._asked_to_stop:
            board.stop[0] = 1
        self._tell(self._worlds, frames)
        self._answers(self._worlds, "begun", self._settings.start_timeout)
        begin = time.monotonic_ns() + _LEAD
        self._tell(self._worlds, begin)
        records = self._serve(server, begin)
        stopped, self._asked_to_stop = bool(board.stop[0]), False
        return sorted(records, key=lambda record: record.environment), server, stopped

    def stop(self) -> None:
        """End the run that goes on, or the next one, within a frame; from any thread."""
        self._asked_to_stop = True
        if self._board is not None:
            self._board.stop[0] = 1

    def close(self) -> None:
        """End all processes, at the latest by force."""
        held, self._held = self._held, ExitStack()
        try:
            self.stop()
            for child in self._worlds:
                with suppress(OSError):
                    child.pipe.send(None)
            for orders in self._orders:
                orders.close()
            for child in self._accelerators:
                with suppress(OSError):
                    child.pipe.close()  # it may wait there for the spaces
            deadline = time.monotonic() + _PATIENCE
            for child in (*self._worlds, *self._accelerators):
                child.join(max(0.0, deadline - time.monotonic()))
        finally:
            kill_all(self._started)
            for each in {*self._worlds, *self._accelerators}:
                each.close()
            self._worlds, self._accelerators, self._orders, self._board = [], [], [], None
            self._started.clear()
            held.close()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        children = (*self._worlds, *self._accelerators)
        return {child.name: child.process.pid for child in children if child.process.pid is not None}

    def _start(self, environments: bytes, policy: bytes, processes: int) -> None:
        schedule, keep = self._schedule, self._held.callback
        block = Block()
        keep(block.close)
        self._wake, theirs = socket.socketpair()
        keep(self._wake.close)
        spawn, fork = multiprocessing.get_context("spawn"), multiprocessing.get_context("forkserver")
        with closing(theirs):
            theirs.setblocking(False)
            self._wake.setblocking(False)
            bounds = np.linspace(0, schedule.environments, processes + 1).astype(int).tolist()
            for first, end in itertools.pairwise(bounds):
                name = (
                    f"the process of environment {first}"
                    if end == first + 1
                    else (f"the process of environments {first} to {end - 1}")
                )
                takes = environments, range(first, end), block, theirs
                self._worlds.append(start_child(spawn, name, _run_worlds, takes, self._started))
        for number in range(schedule.accelerators):
            ours, orders = socket.socketpair()
            with closing(orders):
                takes = policy, number, block, schedule.environments, schedule.every, orders  # type: ignore[assignment]
                child = start_child(fork, f"accelerator {number}", _run_accelerator, takes, self._started)
            self._accelerators.append(child)
            self._orders.append(ours)
        spaces = self._spaces()
        size = ServedBoard.size(spaces, schedule.environments)
        assure_memory(size, schedule.environments)
        block.resize(size)
        self._board = ServedBoard(block, spaces, schedule.environments, schedule.every)
        self._board.clear()
        self._tell((*self._worlds, *self._accelerators), spaces)
        ready = self._answers(self._accelerators, "ready", self._settings.start_timeout)
        refuse_slow(schedule, min(least for (least,) in ready) / 1e9, "the quickest inference")

    def _spaces(self) -> Spaces:
        """Return the spaces of all environments."""
        first, *others = self._answers(self._worlds, "spaces", self._settings.start_timeout)
        for name, space in zip(("the observation space", "the action space"), first, strict=True):
            check_space(name, space)
        for other in others:
            if other != first:
                raise ValueError(f"make_env must make environments with the same spaces, got {first} and {other}")
        observations, actions = first
        return observations, actions

    def _tell(self, children: Sequence[Child], message: Any) -> None:
        for child in children:
            with suppress(BrokenPipeError, ConnectionResetError):  # it has ended, as will be found
                child.pipe.send(message)

    def _answers(self, children: Sequence[Child], kind: str, timeout: float) -> list[tuple[Any, ...]]:
        """Return the message of that kind of each child, as they come; any other child that ends is an error."""
        answers: dict[str, tuple[Any, ...]] = {}
        everyone = (*self._worlds, *self._accelerators)
        deadline = time.monotonic() + timeout
        while len(answers) < len(children):
            waits = {child.pipe: child for child in everyone} | {child.sentinel: child for child in everyone}
            ready = connection.wait([*waits], max(0.0, deadline - time.monotonic()))
            if not ready:
                missing = next(child.name for child in children if child.name not in answers)
                raise RunFailed(f"{missing} was not ready after start_timeout={timeout:g} seconds: give it more")
            for child in {waits[each] for each in ready}:  # type: ignore[index]
                if (message := self._heard(child)) is not None:
                    assert message[0] == kind
                    answers[child.name] = message[1:]
        return [answers[child.name] for child in children]

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
            if child.process.exitcode == _NO_GUARD:
                raise RuntimeError(
                    "ServedRunner starts processes, which import the main script again: put what the script does under "
                    "`if __name__ == '__main__':`"
                )
            raise RunFailed(f"{child.name} {child.how_it_ended()}, and the run with it: nothing goes on")
        if message[0] == "failed":
            _, error, text = message
            raised = unpickled(error)
            if raised is None:
                raise RunFailed(f"{child.name} raised:\n{text}")
            raised.add_note(f"raised in {child.name}; its traceback:\n{text}")
            raise raised
        return message

    def _serve(self, server: Server, begin: int) -> list[WorldRecord]:
        """Give observations to accelerators until all environments have played, and their last batches have ended."""
        records: list[WorldRecord] = []
        sent = [0] * len(self._accelerators)
        left = len(self._worlds)
        with closing(selectors.DefaultSelector()) as idle, closing(selectors.DefaultSelector()) as busy:
            for selector in (idle, busy):
                for number, orders in enumerate(self._orders):
                    selector.register(orders, selectors.EVENT_READ, number)
                for child in (*self._worlds, *self._accelerators):
                    selector.register(child.sentinel, selectors.EVENT_READ, child)
                for child in self._worlds:
                    selector.register(child.pipe, selectors.EVENT_READ, child)
            idle.register(self._wake, selectors.EVENT_READ, None)  # while all are busy nobody need know of it
            collects = gc.isenabled()
            gc.disable()  # a collection would delay a batch
            try:
                while left or server.computes:
                    for key, _ in (busy if server.all_busy else idle).select(_LOOK):
                        if key.data is None:
                            with suppress(BlockingIOError):
                                self._wake.recv(65536)
                        elif isinstance(key.data, int):
                            self._take_end(server, key.data, sent, begin)
                        elif (message := self._heard(key.data)) is not None:
                            records += message[1]
                            left -= 1
                    if left:
                        server.look()
                        for accelerator, pairs in server.starts():
                            sent[accelerator] = time.monotonic_ns()
                            order = np.array(pairs, np.int64)
                            with suppress(BrokenPipeError, ConnectionResetError):
                                self._orders[accelerator].sendall(_COUNT.pack(len(pairs)) + order.tobytes())
            finally:
                if collects:
                    gc.enable()
        return records

    def _take_end(self, server: Server, number: int, sent: list[int], begin: int) -> None:
        with suppress(ConnectionResetError):
            message = self._orders[number].recv(_END.size, socket.MSG_WAITALL)
            if len(message) == _END.size:
                server.finished(number, sent[number] - begin, _END.unpack(message)[0] - begin)
                return
        accelerator = self._accelerators[number]
        accelerator.join(_PATIENCE)
        while self._heard(accelerator) is None:  # what it raised, or how it ended
            pass


def _run_worlds(
    payload: bytes, share: range, block: Block, wake: socket.socket, supervisor: connection.Connection
) -> None:
    """Run a process of environments."""
    with as_child(supervisor), ExitStack() as held:
        make_env, schedule, (default_action, seed, max_age, logs), realtime = cloudpickle.loads(payload)
        envs: list[gym.Env[Any, Any]] = []
        for _ in share:
            env = make_env()
            if not isinstance(env, gym.Env):
                raise ValueError(f"make_env must return a gymnasium.Env (one, not a vector of them), got {env!r}")
            held.callback(env.close)
            envs.append(env)
        spaces = {(str(env.observation_space), str(env.action_space)) for env in envs}
        if len(spaces) > 1:
            raise ValueError(f"make_env must make environments with the same spaces, got {sorted(spaces)}")
        supervisor.send(("spaces", envs[0].observation_space, envs[0].action_space))
        of = supervisor.recv()
        if of is None:
            return
        board = ServedBoard(block, of, schedule.environments, schedule.every)
        given = schedule, default_action, seed, max_age, logs
        worlds = [World(number, env, *given) for number, env in zip(share, envs, strict=True)]
        if realtime is not None:
            realtime.apply()
        spin = None if realtime is None else Spin(realtime.spin)
        while (frames := supervisor.recv()) is not None:
            for world in worlds:
                world.begin(board)
            gc.collect()
            gc.disable()  # a collection would delay frames
            supervisor.send(("begun",))
            if (begin := supervisor.recv()) is None:
                return
            _play(worlds, share, schedule, board, frames, begin, wake, spin)
            gc.enable()
            supervisor.send(("records", [world.record for world in worlds]))


def _play(
    worlds: Sequence[World],
    share: range,
    schedule: ServedSchedule,
    board: ServedBoard,
    frames: int,
    begin: int,
    wake: socket.socket,
    spin: Spin | None,
) -> None:
    """Play so many frames of each of a process's environments, each at its time."""
    starts = schedule.clock.begin
    coming = [(schedule.phases[number], place, 0) for place, number in enumerate(share)]  # a heap
    heapify(coming)
    while coming:
        when, place, frame = coming[0]
        deadline = begin + when
        if not _wait_until(deadline, lambda: bool(board.stop[0]), spin):
            return
        world, now = worlds[place], max(time.monotonic_ns(), deadline)
        if world.show():
            with suppress(BlockingIOError):  # the server has enough to read
                wake.send(b"!")
        world.act(now, now - deadline)
        if frame + 1 < frames:
            heapreplace(coming, (schedule.phases[share[place]] + starts(frame + 1), place, frame + 1))
        else:
            heappop(coming)


def _wait_until(deadline: int, stops: Callable[[], bool], spin: Spin | None) -> bool:
    """Wait until a moment of the monotonic clock; return False if there is an order to stop."""
    early = 0 if spin is None else spin.length
    while (left := deadline - early - time.monotonic_ns()) > 0:
        if stops():
            return False
        woken = time.monotonic_ns() + min(left, round(_LOOK * 1e9))
        time.sleep(min(left / 1e9, _LOOK))
        if spin is not None:
            spin.note(time.monotonic_ns() - woken)
    while time.monotonic_ns() < deadline:
        pass
    return not stops()


def _run_accelerator(
    payload: bytes,
    number: int,
    block: Block,
    environments: int,
    every: int,
    orders: socket.socket,
    supervisor: connection.Connection,
) -> None:
    """Run an accelerator's process."""
    with as_child(supervisor):
        one_thread()
        make_policy = cloudpickle.loads(payload)
        one_thread()  # of a library that came with it; the policy may set another number
        policy = make_policy()
        try:
            spaces: Spaces = supervisor.recv()
        except EOFError:
            return
        board = ServedBoard(block, spaces, environments, every)
        accelerator = Accelerator(policy, board, spaces, number)
        least = accelerator.warm_up(warm_up_sizes(environments), time.monotonic_ns)
        gc.collect()
        gc.disable()  # a collection would delay a batch
        supervisor.send(("ready", least))
        while len(count := orders.recv(_COUNT.size, socket.MSG_WAITALL)) == _COUNT.size:
            size = _COUNT.unpack(count)[0]
            began = time.monotonic_ns()
            pairs = np.frombuffer(orders.recv(16 * size, socket.MSG_WAITALL), np.int64).reshape(size, 2)
            of, frames = pairs[:, 0], pairs[:, 1]
            whole, actions = accelerator.infer(of, frames)
            ended = time.monotonic_ns()
            board.answer(of, frames, actions, began, ended, whole)
            orders.sendall(_END.pack(ended))
