"""A server of many environments on simulated time: all happens in this thread, and batches take what a model says.

It is the loop of `ServedSchedule.batches` with environments that are stepped and a policy that infers, by the parts
that play on a real clock too. So its decisions are that schedule's, bit for bit; a test checks this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

import numpy as np

from async_wrappers.live.served.accelerators import Accelerator, Server
from async_wrappers.live.served.board import ServedBoard
from async_wrappers.live.served.world import World
from async_wrappers.schedule.served import ServedSchedule

_NEVER = 2**62  # nanoseconds


def play(
    worlds: Sequence[World],
    server: Server,
    accelerators: Sequence[Accelerator],
    board: ServedBoard,
    schedule: ServedSchedule,
    frames: int,
    stops: Callable[[], bool],
) -> None:
    """Play so many frames of each environment, and the batches that go on then.

    Args:
        worlds: The environments, which have begun a run.
        server: Makes the batches.
        accelerators: Infer them.
        board: Of all of these.
        schedule: Of them.
        frames: How many.
        stops: Asked as each frame begins whether to stop.
    """
    draw = schedule.latency.stream(schedule.seed).draw
    phases, begin = schedule.phases, schedule.clock.begin
    coming = [(phase, phase, number, 0) for number, phase in enumerate(phases)]  # frames, a heap
    heapify(coming)
    ends: list[tuple[int, int, int, Any]] = []  # (when, accelerator, began, what to write), a heap
    while coming or ends:
        now = min(coming[0][0] if coming else _NEVER, ends[0][0] if ends else _NEVER)
        while ends and ends[0][0] == now:
            ended, accelerator, began, (environments, read, actions) = heappop(ends)
            board.answer(environments, read, actions, began, ended)
            server.finished(accelerator, began, ended)
        while coming and coming[0][0] == now:
            _, phase, number, frame = coming[0]
            if stops():
                coming.clear()
                break
            worlds[number].show()
            worlds[number].act(now)
            if frame + 1 < frames:
                heapreplace(coming, (begin(frame + 1) + phase, phase, number, frame + 1))
            else:
                heappop(coming)
        server.look()
        for accelerator, pairs in server.starts():
            environments, read = np.array(pairs, np.int64).T
            _, actions = accelerators[accelerator].infer(environments, read)
            heappush(ends, (now + draw(len(pairs)), accelerator, now, (environments, read, actions)))
