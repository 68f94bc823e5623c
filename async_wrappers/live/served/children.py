"""The main functions of a server's processes: some environments, each on its frames; an accelerator."""

from __future__ import annotations

import gc
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from heapq import heapify, heappop, heapreplace
from multiprocessing import connection
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np

from async_wrappers.batched.environment_process import Spaces
from async_wrappers.fleet.block import Block
from async_wrappers.fleet.child import as_child, one_thread
from async_wrappers.live.served.accelerators import Accelerator, warm_up_sizes
from async_wrappers.live.served.board import ServedBoard
from async_wrappers.live.served.world import World
from async_wrappers.live.world.realtime import Spin
from async_wrappers.own_returns import with_own_returns
from async_wrappers.schedule.served import ServedSchedule

COUNT = struct.Struct("<q")
"""Observations of a batch, before its pairs of environments and frames."""
END = struct.Struct("<q")
"""When a batch's actions were there."""
_EPISODES = 1 << 20  # of a process, whose successor begins after them, so that it does not play the same ones again
_LOOK = 0.5  # seconds between two looks for an order to stop


def run_worlds(
    payload: bytes, share: range, incarnation: int, block: Block, wake: socket.socket, supervisor: connection.Connection
) -> None:
    """Run a process of environments."""
    with as_child(supervisor), ExitStack() as held:
        make_env, schedule, (default_action, seed, max_age, logs), realtime = cloudpickle.loads(payload)
        envs: list[gym.Env[Any, Any]] = []
        for _ in share:
            env = with_own_returns(make_env())
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
        given = schedule, default_action, seed, max_age, logs, incarnation * _EPISODES
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
            if (order := supervisor.recv()) is None:
                return
            begin, first = order
            for world in worlds:
                world.join(first)
            _play(worlds, share, schedule, board, range(first, frames), begin, wake, spin)
            gc.enable()
            supervisor.send(("records", [world.record for world in worlds]))


def _play(
    worlds: Sequence[World],
    share: range,
    schedule: ServedSchedule,
    board: ServedBoard,
    frames: range,
    begin: int,
    wake: socket.socket,
    spin: Spin | None,
) -> None:
    """Play the frames of each of a process's environments, each at its time."""
    starts, first = schedule.clock.begin, frames.start
    phases = enumerate(schedule.phases[number] for number in share)
    coming = [(phase + starts(first), place, first) for place, phase in phases if frames]  # a heap
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
        if frame + 1 < frames.stop:
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


def run_accelerator(
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
        while len(count := orders.recv(COUNT.size, socket.MSG_WAITALL)) == COUNT.size:
            size = COUNT.unpack(count)[0]
            began = time.monotonic_ns()
            pairs = np.frombuffer(orders.recv(16 * size, socket.MSG_WAITALL), np.int64).reshape(size, 2)
            of, frames = pairs[:, 0], pairs[:, 1]
            whole, actions = accelerator.infer(of, frames)
            ended = time.monotonic_ns()
            board.answer(of, frames, actions, began, ended, whole)
            orders.sendall(END.pack(ended))
