"""One environment of many that a server serves, as a schedule: what `RealtimeDelay` plays, to train for that server.

`ServedStream` has the methods of `PlainSchedule` (`async_wrappers.schedule.plain`). Its decisions are those of one
environment of a `ServedSchedule`.
"""

# The stream does not depend on episodes
# ======================================
#
# A server infers the frames of its environments, whichever episodes they belong to: each frame is one observation,
# also the first one of an episode. So the times of a server's batches follow from its latencies alone, and what the
# environments of a server share is simulated once, in a table, and only as far as somebody has asked.
#
#   environment 3   frames    0 1 2 3 4 5 6 7 8 9 ...      of the server, without end
#   its episodes              |---- 0 ----|-- 1 ---|--     an episode begins on the frame after the last one's end
#
# An action that read a frame of an episode that is over is never applied. It hinders no newer one either: of two
# actions the one that read the newer frame wins, and that is the new episode's. So an episode that begins on frame G
# has those decisions of the server's that read frame G or later.
#
# A seed draws the beginning
# ==========================
#
# An episode with a seed begins on a frame that the seed draws, of an environment that it draws too, unless one was
# chosen. So an episode is a function of its seed, whatever was played before it, beside it and in which process, which
# is what resumed runs rest on. Without a seed the next episode begins where the last one has ended.

from __future__ import annotations

import pickle
from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np

from async_wrappers.checks import whole, whole_frames
from async_wrappers.schedule.dispatch import refuse_old_playout
from async_wrappers.schedule.served import ServedSchedule
from async_wrappers.schedule.simulated import Counts

_KEPT = 4_000_000  # observations of all environments that a table keeps, after which it begins again
_LEAST_KEPT = 100  # of each environment
_DRAWN = 32_768  # observations of all environments among which seeds draw
_NEVER = -1  # of an observation that nobody read
_HOPELESS = 10_000  # actions in a row that were too old, or observations that nobody read


class ServedStream:
    """The schedule of one environment of a server, for ``RealtimeDelay(schedule=ServedStream(server))``.

    Its (start, effect) are those of ``server.play(...).stream(environment)``. They are simulated once for all streams
    of equal servers in a process; the stream begins again with its first frame after the server's 4,000,000th
    observation, or its environment's hundredth if that is later.

    Args:
        server: The server that the environment will run on.
        environment: Its number on that server. None: each episode's seed draws one; without a seed it is 0.
        max_age: Greatest age in frames that an observation may have when its action is applied. An older action is
            refused, and the frame receives the default action. None for no limit.

    Attributes:
        server: As given.
        environment: As given.
        max_age: As given.
        counts: Frames and actions so far, over all episodes; inferences are the server's, and not counted.

    Raises:
        ValueError: An argument out of range, or a `max_age` that the playout exceeds; in an episode, 10,000 actions in
            a row that were too old, or as many observations that nobody read.
    """

    keeps_playout = True
    """See `PlainSchedule.keeps_playout`: an action that is ready when it is due lands then."""

    decision_interval = None
    """See `PlainSchedule.decision_interval`."""

    def __init__(self, server: ServedSchedule, environment: int | None = None, max_age: int | None = None) -> None:
        if not isinstance(server, ServedSchedule):
            raise ValueError(f"server must be a ServedSchedule, got {server!r}")
        most = server.environments - 1
        self.environment = None if environment is None else whole("environment", environment, 0, most, or_none=True)
        self.max_age = None if max_age is None else whole_frames("max_age", max_age)
        refuse_old_playout(self.max_age, server.playout)
        self._table = _table_of(server)
        self.counts = Counts()
        self._refused = self._unread = 0  # in a row: actions that were too old, observations that nobody read
        self._open(self.environment or 0, 0)

    @property
    def server(self) -> ServedSchedule:
        return self._table.server

    @property
    def playout(self) -> int:
        return self._table.server.playout

    @property
    def most_in_flight(self) -> int | None:
        """Effects strictly increase, so there are at most `max_age`."""
        return self.max_age

    def frames(self, seed: int | None = None) -> Iterator[tuple[int | None, bool]]:
        """Begin an episode; see `PlainSchedule.frames`."""
        if seed is None:
            self._open(self._whose, self._begin + self._frame)
        else:
            draws = np.random.default_rng(np.random.SeedSequence((seed, 0x5E4E)))
            begin, whose = int(draws.integers(self._table.beginnings)), int(draws.integers(self.server.environments))
            self._open(whose if self.environment is None else self.environment, begin)
        return self.frames_from(0)

    def frames_from(self, frame: int) -> Iterator[tuple[int | None, bool]]:
        """The stream knows which frame is the next."""
        every, playout, coming, counts = self.server.every, self.playout, self._coming, self.counts
        while True:
            at = self._begin + self._frame
            while not coming and self._next + playout <= at:
                self._look()
            start = None
            if coming and coming[0][1] == at:
                start, _, self._ready = coming.popleft()
                counts.fresh += 1
                counts.late += at > start + playout
                counts.delay[at - start] = counts.delay.get(at - start, 0) + 1
                start -= self._begin
            counts.frames += 1
            self._frame += 1
            yield start, at % every == 0

    def first(self) -> tuple[int, int]:
        while not self._coming:
            self._look()
        start, effect, _ = self._coming[0]
        return start - self._begin, effect - self._begin

    def in_flight(self, after: int, end: int) -> int | None:
        place = 0
        while True:
            while place == len(self._coming):
                if self._next >= self._begin + end and not self._open_starts:
                    return None
                self._look()
            start = self._coming[place][0] - self._begin
            if start > after:
                return start if start < end else None
            place += 1

    def finished(self) -> int:
        """Return the first frame that began when the inference behind the action applied last had ended."""
        return self._ready - self._begin

    def keep_log(self) -> list[Any]:
        """The table has the inferences."""
        return []

    def unfinished(self, frame: int, landed: int = -1) -> list[tuple[int, int]]:
        every, playout, found = self.server.every, self.playout, []
        oldest = -(-(self._begin + landed + 1) // every) * every
        for start in range(oldest, self._begin + frame, every):
            ready = self._table.ready(self._whose, start)
            if ready is not None and ready - self._begin > frame:
                start -= self._begin
                found.append((start, max(start + playout, frame + 1)))
        return found

    def decisions(self, seed: int | None = None) -> Iterator[tuple[int, int]]:
        """Begin an episode; yield ``(start, effect) = (s_j, e_j)`` of its decisions, without end."""
        return ((start, effect) for effect, (start, _) in enumerate(self.frames(seed)) if start is not None)

    def _open(self, whose: int, begin: int) -> None:
        """Begin an episode of an environment of the server's on one of its frames."""
        self._whose, self._begin, self._frame = whose, begin, 0
        self._next = -(-begin // self.server.every) * self.server.every  # start of the observation to look at next
        self._ready = begin  # of the action applied last: the first frame that began when it had been computed
        # (start, effect, ready) of actions: those that land for certain, and those that a newer one may overtake.
        self._coming: deque[tuple[int, int, int]] = deque()
        self._open_starts: deque[tuple[int, int, int]] = deque()

    def _look(self) -> None:
        """Look at one more observation, and at whose actions are then certain."""
        start, open_starts, playout = self._next, self._open_starts, self.playout
        self._next = following = start + self.server.every
        ready = self._table.ready(self._whose, start)
        if ready is None:
            self._pass_over()
        else:
            self._unread = 0
            effect = max(start + playout, ready)
            while open_starts and open_starts[-1][1] >= effect:
                open_starts.pop()
                self.counts.dropped += 1
            open_starts.append((start, effect, ready))
        # All newer actions are due after this one's landing.
        while open_starts and open_starts[0][1] < following + playout:
            certain = open_starts.popleft()
            if self.max_age is not None and certain[1] - certain[0] > self.max_age:
                self._refuse()
            else:
                self._refused = 0
                self._coming.append(certain)

    def _pass_over(self) -> None:
        self._unread += 1
        if self._unread >= _HOPELESS:
            raise ValueError(
                f"server must read each environment now and then, got one that reads none of {_HOPELESS:,} frames of "
                f"environment {self._whose}: let `most` be larger, or take fewer environments"
            )

    def _refuse(self) -> None:
        self.counts.too_old += 1
        self._refused += 1
        if self._refused >= _HOPELESS:
            raise ValueError(
                f"max_age must let some action be applied, got {self.max_age} frames: {_HOPELESS:,} in a row were "
                "older; raise it, or take a faster server"
            )

    def __repr__(self) -> str:
        """Return the environment's number, and of how many."""
        return f"ServedStream(<{self.server.environments} environments>, environment={self.environment})"


class _Table:
    """When the observations of a server's environments are computed; simulated as far as somebody has asked.

    It only grows, and what it says of a frame never changes, so copies share it.
    """

    def __init__(self, server: ServedSchedule) -> None:
        self.server = server
        kept, drawn = _KEPT // server.environments, _DRAWN // server.environments
        self._kept = max(kept, _LEAST_KEPT) * server.every  # frames
        self.beginnings = max(drawn, _LEAST_KEPT) * server.every
        """Frames among which a seed draws an episode's first."""
        self._batches = server.batches()
        self._simulated = -1  # nanoseconds up to which all is known
        # By environment and observation: frames from it to the first that begins when it has been computed.
        self._ready = [array("i") for _ in range(server.environments)]

    def ready(self, environment: int, start: int) -> int | None:
        """Return the first frame that begins when an observation has been computed; None if nobody read it.

        Args:
            environment: Whose.
            start: The frame of the observation, one of those that are inferred.
        """
        server, place = self.server, start % self._kept
        row, index = self._ready[environment], place // server.every
        if index >= len(row):
            # The next observation overtakes this one if nobody has read it by then.
            self._simulate(server.clock.begin(place + server.every) + server.phases[environment])
            if index >= len(row):
                return None
        frames = row[index]
        return None if frames == _NEVER else start + frames

    def _simulate(self, until: int) -> None:
        """Simulate until a moment, and all of that moment."""
        clock, phases, every, ready = self.server.clock, self.server.phases, self.server.every, self._ready
        while self._simulated <= until:
            self._simulated, ended, frames = next(self._batches)
            for environment, frame in frames:
                row, index = ready[environment], frame // every
                while len(row) < index:
                    row.append(_NEVER)
                row.append(clock.frame_at(ended - phases[environment]) - frame)

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return _table_of, (self.server,)


_tables: WeakValueDictionary[bytes, _Table] = WeakValueDictionary()


def _table_of(server: ServedSchedule) -> _Table:
    """Return the table of all servers that are equal to this one; of this one alone if it cannot be pickled."""
    try:
        key = pickle.dumps(vars(server))
    except Exception:  # a latency of the user's own, from a notebook
        return _Table(server)
    table = _tables.get(key)
    if table is None:
        table = _tables[key] = _Table(server)
    return table
