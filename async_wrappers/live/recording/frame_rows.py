"""The row of a frame, and the ring in shared memory through which rows travel from the environment loop to the writer.

The loop appends and never waits: where the ring is full, the row is dropped. The writer copies rows to its file and
then gives their places back. Each count has one writer, so neither side needs a lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from async_wrappers.fleet.block import Block, Codec

Space = gym.Space[Any]
Rows = npt.NDArray[Any]

_WHOLE = ("number", "phase", "episode", "frame", "deadline", "lateness", "start", "delay", "lag")
_FLAGS = ("final", "default", "limited", "late", "paused", "terminated", "truncated")
_OFFERED, _APPENDED, _REMOVED, _SAVED, _CLOSED = range(5)

_SECONDS = 4.0  # of frames that the ring holds, for as long may a disk stall
_LEAST, _MOST_BYTES = 16, 256 * 2**20
_BATCH = 4 * 2**20  # bytes that are written at once, after which their places are free again


class RowLayout:
    """The fields of a row, fixed bytes for each.

    =========== ====================================================================================================
    field       meaning
    =========== ====================================================================================================
    number      of the row in the recording, from 1; a gap means that rows were dropped
    final       whether the row has nothing but the observation after the last frame of an episode
    phase       number of the phase
    episode     number of the episode
    frame       frames of the episode before this one
    deadline    when the frame should have begun, in nanoseconds of the loop's clock
    lateness    by how much later it began, in nanoseconds
    late        whether that is more than half a frame (``report.frames["missed_deadlines"]``)
    start       frame whose observation the policy read for this frame's action; -1 for a default action
    delay       frames from `start` until that decision took effect; -1 for a default action
    lag         updates that the learners made since the weights behind it; -1 without learners
    default     whether the action is none of the policy's
    paused      whether the frame is one of a pause
    limited     whether a limit changed the action; a machine may have sent another one for reasons of its own
    reward      of the frame's step
    terminated  the same
    truncated   the same
    observation what was seen as the frame began
    drawn       the action that was chosen, the policy's or the default one
    sent        the one that was sent
    ages        of the readings of `sensors` as the frame began, in seconds; only where there are sensors
    =========== ====================================================================================================

    Args:
        observation_space: Of the environment.
        action_space: Of the environment.
        sensors: Names of those whose ages are recorded.

    Raises:
        ValueError: A space that shared memory cannot hold.
    """

    def __init__(self, observation_space: Space, action_space: Space, sensors: Sequence[str] = ()) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.sensors = tuple(sensors)
        self.observation = Codec("observation_space", observation_space)
        self.action = Codec("action_space", action_space)
        action, seen = self.action.dtype, self.observation.dtype
        fields: list[Any] = [(name, np.int64) for name in _WHOLE]
        fields += [("reward", np.float64), *((name, np.bool_) for name in _FLAGS)]
        fields += [("ages", np.float64, (len(self.sensors),))] if self.sensors else []
        fields += [("drawn", action), ("sent", action), ("observation", seen)]
        self.dtype = np.dtype(fields, align=True)
        assert self.dtype.fields is not None
        self.facts_end = self.dtype.fields["observation"][1]
        """How many bytes of a row lie before its observation."""


def ring_capacity(layout: RowLayout, fps: float) -> int:
    """Return how many rows a ring holds: those of four seconds, but not more than 256 MiB."""
    most = max(_LEAST, _MOST_BYTES // layout.dtype.itemsize)
    return min(max(_LEAST, math.ceil(_SECONDS * fps)), most)


class RowRing:
    """Rows on their way to the writer.

    Args:
        block: Shared memory of `size(...)` bytes.
        layout: Of the rows.
        capacity: How many rows it holds.
    """

    def __init__(self, block: Block, layout: RowLayout, capacity: int) -> None:
        self.layout, self._capacity = layout, capacity
        self._counts = block.array(np.int64, 5)
        self._rows = block.array(layout.dtype, capacity, 64)

    @staticmethod
    def size(layout: RowLayout, capacity: int) -> int:
        """Return the bytes that a ring takes."""
        return 64 + layout.dtype.itemsize * capacity

    # The loop's side.

    def next_row(self) -> Rows | None:
        """Return the row to fill, an array [1] that `append` shows to the writer; None if there is no room."""
        counts = self._counts
        if counts[_CLOSED] or counts[_APPENDED] - counts[_REMOVED] >= self._capacity:
            return None
        place = int(counts[_APPENDED]) % self._capacity
        return self._rows[place : place + 1]

    def append(self) -> None:
        """Show the row of `next_row`, which is filled, to the writer."""
        self._counts[_APPENDED] += 1

    def offer(self) -> None:
        """Count a frame that is to be recorded, whether there is room or not."""
        self._counts[_OFFERED] += 1

    # The writer's side.

    def waiting(self) -> Iterator[Rows]:
        """Yield the rows that wait, in arrays, in order; each array is removed when the next is asked for."""
        counts, most = self._counts, max(1, _BATCH // self.layout.dtype.itemsize)
        end = int(counts[_APPENDED])
        while (begin := int(counts[_REMOVED])) < end:
            place = begin % self._capacity
            rows = self._rows[place : place + min(end - begin, self._capacity - place, most)]
            yield rows
            counts[_REMOVED] = begin + len(rows)

    def note_saved(self, frames: int) -> None:
        """Note how many frames are in files, in all."""
        self._counts[_SAVED] = frames

    # Both, and the supervisor.

    def close(self) -> None:
        """Take no more rows: nobody writes them."""
        self._counts[_CLOSED] = 1

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more rows."""
        return bool(self._counts[_CLOSED])

    @property
    def is_drained(self) -> bool:
        """Whether no row waits, or none ever will."""
        return self.is_closed or self._counts[_APPENDED] == self._counts[_REMOVED]

    @property
    def counts(self) -> tuple[int, int]:
        """Frames that were to be recorded, and those of them that are in a file."""
        return int(self._counts[_OFFERED]), int(self._counts[_SAVED])


class Recorder:
    """The environment loop's side of a recording: on each frame `act` before the step, and `pay` after it.

    Args:
        ring: Where rows go.
        fps: Frames per second.
        drain: Called where the ring is full, so that its rows are written at once; None to drop rows instead.
    """

    def __init__(self, ring: RowRing, fps: float, drain: Callable[[], object] | None = None) -> None:
        self._ring, self._drain = ring, drain
        self._half_frame = 0.5e9 / fps
        self._number = 0
        self._place = 0, 0
        self._row: Rows | None = None
        self._write_action, self._write_observation = ring.layout.action.write, ring.layout.observation.write

    def begin_episode(self, phase: int, episode: int) -> None:
        """Begin an episode of a phase."""
        self._place = phase, episode

    def act(
        self,
        observation: Any,
        drawn: Any,
        sent: Any,
        *,
        frame: int,
        deadline: int,
        lateness: int,
        decision: tuple[int, int, int] | None,
        paused: bool,
        limited: bool,
        ages: Sequence[float] = (),
    ) -> None:
        """Note what was seen and sent on a frame; all is copied, as an environment may write into its arrays.

        Args:
            observation: The newest one, as the frame began.
            drawn: The action that was chosen.
            sent: The action that is sent.
            frame: Of the episode.
            deadline: When the frame should have begun, in nanoseconds of the loop's clock.
            lateness: By how much later it began, in nanoseconds.
            decision: Start, delay and lag of the decision behind the action; None for a default action.
            paused: Whether the frame is one of a pause.
            limited: Whether a limit has changed the action.
            ages: Of each sensor's reading, in seconds.
        """
        self._ring.offer()
        row = self._new_row(frame)
        if row is None:
            return
        self._write_observation(row["observation"], observation)
        self._write_action(row["drawn"], drawn)
        self._write_action(row["sent"], sent)
        row["deadline"], row["lateness"], row["late"] = deadline, lateness, lateness > self._half_frame
        row["start"], row["delay"], row["lag"] = (-1, -1, -1) if decision is None else decision
        row["default"], row["paused"], row["limited"] = decision is None, paused, limited
        if ages:
            row["ages"] = ages

    def pay(self, reward: float, terminated: bool, truncated: bool) -> None:
        """Note the outcome of the frame, and hand its row to the writer."""
        if self._row is not None:
            self._row["reward"], self._row["terminated"], self._row["truncated"] = reward, terminated, truncated
            self._ring.append()
            self._row = None

    def end_episode(self, observation: Any, frame: int, ages: Sequence[float] = ()) -> None:
        """Note the observation after the last of `frame` frames, and the ages of its readings."""
        row = self._new_row(frame)
        if row is not None:
            row["final"] = True
            if ages:
                row["ages"] = ages
            self._write_observation(row["observation"], observation)
            self._ring.append()
            self._row = None

    def _new_row(self, frame: int) -> Rows | None:
        """Return an empty row with its place in the run; None where the ring is full."""
        self._number += 1
        self._row = row = self._ring.next_row()
        if row is None and self._drain is not None and not self._ring.is_closed:
            self._drain()
            self._row = row = self._ring.next_row()
        if row is not None:
            row.view(np.uint8)[: self._ring.layout.facts_end] = 0
            row["number"], row["frame"] = self._number, frame
            row["phase"], row["episode"] = self._place
        return row
