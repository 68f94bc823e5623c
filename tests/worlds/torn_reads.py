"""Whether anything is ever read torn from shared memory: frames, transitions and weights, written at full speed.

Each frame, transition and version is filled with a value made of its number, so that a mixture of two shows. Readers
are processes. A reader of frames asks for the newest and for the one that is about to be overwritten, of a ring of 2; a
reader of transitions follows a journal of 16 entries; readers of weights read them in place, slowly, while the writer
waits for nobody, and take snapshots.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from multiprocessing import connection
from typing import Any

import numpy as np
from gymnasium import spaces

from async_wrappers.fleet.block import Block
from async_wrappers.live.memory.exchange import FrameRing
from async_wrappers.live.memory.journal import Journal
from async_wrappers.live.memory.weights import WeightsBoard, WeightsLayout

FRAME = spaces.Box(0, 2**62, (882,), np.int64)  # as many bytes as a grey 84 x 84 picture
ACTION = spaces.Discrete(7)
DEPTH, CAPACITY = 2, 16  # the harder the smaller
MATRIX = 200_000  # float32 values of each of the two matrices of weights
_ENDED = -1


@dataclass
class Counts:
    """What readers saw.

    Attributes:
        whole: Accepted, and whole.
        refused: Refused, because the writer had gone past it.
        detected: Of these, how many had really been mixed.
        torn: Accepted, though mixed.
        disordered: Accepted, though older than what was accepted before.
    """

    whole: int = 0
    refused: int = 0
    detected: int = 0
    torn: int = 0
    disordered: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return the sums."""
        return Counts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Room:
    """What the writer and its readers share: the memory under test, and the newest number written."""

    block: Block
    newest: Block

    def number(self) -> Any:
        """Return an array [1] that holds the newest number."""
        return self.newest.array(np.int64, 1)


def frames(number: int, readers: int) -> tuple[Counts, float]:
    """Write so many frames; return what was read, and frames per second."""
    room = _room(FrameRing.size(FRAME, DEPTH))
    ring, newest = FrameRing(room.block, FRAME, DEPTH), room.number()
    ring.clear()
    frame = np.empty(FRAME.shape, np.int64)

    def write(k: int) -> None:
        frame.fill(k)
        ring.write(k, frame)
        newest[0] = k

    return _against(room, readers, _read_frames, number, write)


def transitions(number: int, readers: int) -> tuple[Counts, float]:
    """Write so many transitions; return what was read, and transitions per second.

    Episodes have 1 to 9 decisions, and some are abandoned.
    """
    room = _room(Journal.size(FRAME, ACTION, CAPACITY))
    journal = Journal(room.block, FRAME, ACTION, CAPACITY)
    journal.begin_writing()
    frame = np.empty(FRAME.shape, np.int64)
    seen = left = 0  # observations so far; transitions left in this episode

    def observe() -> Any:
        nonlocal seen
        frame.fill(seen)
        seen += 1
        return frame

    def write(k: int) -> None:
        nonlocal left
        if not left:
            left = 1 + k % 9
            journal.apply(observe(), (seen - 1) % 7)
        left -= 1
        reward = float(seen - 1)
        if left:
            journal.apply(observe(), (seen - 1) % 7)
            journal.close(reward, k + 1)
            if k % 11 == 0:
                journal.abandon()
                left = 0
        else:
            journal.end(reward, k + 1, terminal=True, final=observe())

    return _against(room, readers, _read_transitions, number, write)


def weights(number: int, readers: int, pause: float = 0.0) -> tuple[Counts, float]:
    """Publish so many versions, waiting for nobody; return what was read, and versions per second.

    Args:
        number: Versions.
        readers: Processes that read.
        pause: Seconds that a reader rests between the two matrices.
    """
    first, second = np.zeros(MATRIX, np.float32), np.zeros(MATRIX, np.float32)
    layout = WeightsLayout.of({"first": first, "second": second})
    room = _room(WeightsBoard.size(layout, readers))
    board = WeightsBoard(room.block, layout, readers)
    board.publish({"first": first + 1, "second": second + 1})

    def write(k: int) -> None:
        first.fill(k + 2)
        second.fill(k + 2)
        board.publish({"first": first, "second": second})

    return _against(room, readers, _read_weights, number, write, layout, readers, pause)


def _room(size: int) -> Room:
    room = Room(Block(), Block())
    room.block.resize(size)
    room.newest.resize(8)
    return room


def _against(
    room: Room, readers: int, read: Callable[..., None], number: int, write: Callable[[int], None], *arguments: Any
) -> tuple[Counts, float]:
    """Write at full speed while processes read; return the sum of their counts, and how many a second were written."""
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    for reader in range(readers):
        ours, theirs = context.Pipe()
        child = context.Process(target=read, args=(room, theirs, reader, *arguments), daemon=True)
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    for pipe in pipes:
        pipe.recv()  # is up
    began = time.perf_counter()
    for k in range(number):
        write(k)
    seconds = time.perf_counter() - began
    room.number()[0] = _ENDED
    total = sum((pipe.recv() for pipe in pipes), Counts())
    for child in children:
        child.join()
    return total, number / seconds


def _read_frames(room: Room, pipe: connection.Connection, reader: int) -> None:
    ring, newest, counts = FrameRing(room.block, FRAME, DEPTH), room.number(), Counts()
    pipe.send(None)
    before = 0
    while (now := int(newest[0])) != _ENDED:
        counts.disordered += now < before
        before = now
        for number in (now, now - DEPTH + 1, now + 1):
            try:
                frame = ring.read(number)
            except LookupError:
                counts.refused += 1
            else:
                whole = bool((frame == number).all())
                counts.whole += whole
                counts.torn += not whole
    pipe.send(counts)


def _read_transitions(room: Room, pipe: connection.Connection, reader: int) -> None:
    journal, ended, counts = Journal(room.block, FRAME, ACTION, CAPACITY), room.number(), Counts()
    pipe.send(None)
    position, last = 0, -1
    while True:
        over = int(ended[0]) == _ENDED
        following, numbered = journal.read(position)
        if following == position and over:
            break
        counts.disordered += following < position
        counts.refused += following > position + 1
        position = following
        if numbered is not None:
            counts.disordered += numbered.number <= last
            last = numbered.number
            whole = _is_whole(last, numbered.transition)
            counts.whole += whole
            counts.torn += not whole
    pipe.send(counts)


def _is_whole(number: int, transition: dict[str, Any]) -> bool:
    seen = int(transition["observation"][0])
    return bool(
        (transition["observation"] == seen).all()
        and (transition["next_observation"] == seen + 1).all()
        and transition["action"] == seen % 7
        and transition["reward"] == seen
        and transition["interval"] == number + 1
    )


def _read_weights(
    room: Room, pipe: connection.Connection, reader: int, layout: WeightsLayout, readers: int, pause: float
) -> None:
    board, ended, counts = WeightsBoard(room.block, layout, readers), room.number(), Counts()
    copies = [board.weights(0), board.weights(1)]
    pipe.send(None)
    before, turn = 0, 0
    while int(ended[0]) != _ENDED:
        turn += 1
        if turn % 4 == 0:
            version, whole = _values(board.snapshot(), 0.0)
            counts.whole += whole
            counts.torn += not whole
            continue
        reading = board.begin_reading(reader)
        version, same = _values(copies[reading.copy], pause)
        mixed = not same or version != reading.version
        if board.end_reading(reader, reading):
            counts.whole += not mixed
            counts.torn += mixed
            counts.disordered += reading.version < before
            before = reading.version
        else:
            counts.refused += 1
            counts.detected += mixed
    pipe.send(counts)


def _values(given: dict[str, Any], pause: float) -> tuple[int, bool]:
    """Read both matrices; return the first value, and whether all are the same."""
    first = (given["first"].min(), given["first"].max())
    time.sleep(pause)
    second = (given["second"].min(), given["second"].max())
    return int(first[0]), len({*first, *second}) == 1
