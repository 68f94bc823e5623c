"""Which decision lands on the next frame of each of N rows: a delay of each episode, or a latency of each frame.

A delay that is drawn is a function of its row, the number of the episode and the frame alone: it stands in a pool of
draws, made before the run. So no random generator runs on the device, and a row's episode is the same whatever the rows
beside it do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from async_wrappers.latency import as_latency
from async_wrappers.schedule.frames import FrameClock
from async_wrappers.tensors.arrays import Array, Library, Which

NONE = -1  # of a start
DRAWS = 16_384  # of a pool
_ROW, _EPISODE = 7_919, 104_729  # primes: neighbours and successive episodes take draws far apart in the pool


class Pool:
    """Delays in frames, from which rows take theirs.

    Args:
        library: Of the arrays.
        frames: Whole numbers, [P].
    """

    def __init__(self, library: Library, frames: npt.NDArray[np.int64]) -> None:
        self.longest, self._frames = int(frames.max()), library.whole(frames)
        self._library, self._number = library, len(frames)

    def take(self, rows: Array, episode: Array, frame: Array | int = 0) -> Array:
        """Return a delay for each row [N], by the numbers of its episode and its frame; of frames [F, N], [F, N]."""
        xp, places = self._library.xp, self.place(rows, episode, frame) % self._number
        return xp.reshape(xp.take(self._frames, xp.reshape(places, (-1,)), axis=0), places.shape)

    @staticmethod
    def place(rows: Any, episode: Any, frame: Any) -> Any:
        """Return a row's place in an endless pool."""
        return rows * _ROW + episode * _EPISODE + frame


def draws_of(latency: Any, fps: Any, seed: int | None, number: int = DRAWS) -> npt.NDArray[np.int64]:
    """Return draws of a latency model in frames: how many frames begin until an inference has ended."""
    stream, clock = as_latency(latency).stream(np.random.SeedSequence(seed)), FrameClock(fps)
    return np.array([clock.frame_at(stream.draw()) for _ in range(number)], np.int64)


class Episodes(NamedTuple):
    """What rows know of episodes with a delay of their own: `delay` [N], in frames."""

    delay: Array


class EachEpisode:
    """Decisions start every `interval` frames of an episode and land `delay` frames later: constants of each episode.

    Args:
        library: Of the arrays.
        delays: [N] constants; or a pool, from which each episode takes one.
        interval: Frames, [N], or a number for all.
        longest: Of the delays.
    """

    def __init__(self, library: Library, delays: Array | Pool, interval: Array | int, longest: int) -> None:
        self._library, self._delays, self._interval, self.longest = library, delays, interval, longest
        self._first, self._none = library.whole([0]), library.whole([NONE])

    def begin(self, rows: Array, frame: Array, episode: Array) -> Episodes:
        """Return what is known as the first episodes begin."""
        return Episodes(self._drawn(rows, episode))

    def next(self, known: Episodes, rows: Array, frame: Array, episode: Array, begun: Which, clock: Any) -> Episodes:
        """Return what is known as the next frame begins; `begun` tells of which rows an episode has ended."""
        if not isinstance(self._delays, Pool) or not begun.some:
            return known
        return Episodes(self._library.choose(begun, self._drawn(rows, episode), known.delay))

    def _drawn(self, rows: Array, episode: Array) -> Array:
        return self._delays.take(rows, episode) if isinstance(self._delays, Pool) else self._delays

    def due(self, known: Episodes, frame: Array, applied: Array, clock: Any) -> tuple[Array, Which]:
        """Return the start of the decision that lands on the next frame, [N], -1 for none, and which rows have one."""
        start = frame - known.delay
        lands = start >= 0
        if not (isinstance(self._interval, int) and self._interval == 1):
            lands = lands & (start % self._interval == 0)
        which = self._library.which(lands)
        return start if which.every else self._library.xp.where(lands, start, self._none), which

    def read(self, known: Episodes, frame: Array, due: Array, clock: Any) -> Array:
        """Return the frame whose observation is shown: of the decision that lands next, or would."""
        return self._library.xp.maximum(frame - known.delay, self._first)

    def following(self, known: Episodes, rows: Array, episode: Array, start: Array, end: Array, clock: Any) -> Array:
        """Return the start of the decision after the one that landed last, as an episode ends; `end` if there is none.

        Where none has landed it is the one after the first that would have.

        Args:
            known: Before the end.
            rows: Their numbers.
            episode: The number of each one's episode.
            start: Of the decision that landed last, -1 for none.
            end: Frames of the episode.
            clock: Frames of the vector.
        """
        xp = self._library.xp
        return xp.minimum(xp.maximum(start, self._first) + self._interval, end)


class Frames(NamedTuple):
    """What rows know where a decision starts on each frame: `lands` [D, N], a ring by the vector's frames.

    Entry (c, i) is the frame of row i's episode on which the decision lands that started on the vector's frame c,
    counted modulo D.
    """

    lands: Array


class EachFrame:
    """A decision starts on each frame, and its latency is drawn: `SimulatedSchedule` with tickets and enough workers.

    It lands `playout` frames after its start, or when it has ended if that is later; of two that land on one frame the
    newer one does, and no older one ever after. So an observation is never followed by an older one. A frame on which
    none lands receives the default action.

    Args:
        library: Of the arrays.
        latencies: A pool, in frames.
        playout: Frames.
    """

    def __init__(self, library: Library, latencies: Pool, playout: int = 0) -> None:
        self._library, self._latencies, self._playout = library, latencies, playout
        self.longest = max(latencies.longest, playout)
        self._ages = library.xp.arange(self.longest + 1, device=library.device)

    def begin(self, rows: Array, frame: Array, episode: Array) -> Frames:
        """Return what is known as the first episodes begin."""
        lands = self._library.ring(self.longest + 1, frame)
        return self.next(Frames(lands), rows, frame, episode, self._library.which(frame == 0), 0)

    def next(self, known: Frames, rows: Array, frame: Array, episode: Array, begun: Which, clock: Any) -> Frames:
        """Return what is known as the next frame begins, on which a decision starts."""
        latency = self._latencies.take(rows, episode, frame)
        lands = frame + self._library.xp.where(latency < self._playout, latency * 0 + self._playout, latency)
        return Frames(self._library.put(known.lands, clock % (self.longest + 1), lands))

    def _lands(self, known: Frames, clock: Any) -> Array:
        """Return on which frames the decisions of the last frames land, [D, N], the newest first."""
        return self._library.xp.take(known.lands, (clock - self._ages) % (self.longest + 1), axis=0)

    def due(self, known: Frames, frame: Array, applied: Array, clock: Any) -> tuple[Array, Which]:
        """As `EachEpisode.due`."""
        xp = self._library.xp
        starts = xp.expand_dims(frame, axis=0) - xp.expand_dims(self._ages, axis=1)
        newer = (starts >= 0) & (starts > xp.expand_dims(applied, axis=0))
        ready = newer & (self._lands(known, clock) <= xp.expand_dims(frame, axis=0))
        due = xp.max(xp.where(ready, starts, starts * 0 + NONE), axis=0)
        return due, self._library.which(due >= 0)

    def read(self, known: Frames, frame: Array, due: Array, clock: Any) -> Array:
        """Return the frame whose observation is shown; the newest where no decision lands next."""
        shown = self._library.xp.where(due < 0, frame, due)
        return self._library.xp.where(shown < 0, shown * 0, shown)

    def following(self, known: Frames, rows: Array, episode: Array, start: Array, end: Array, clock: Any) -> Array:
        """As `EachEpisode.following`: it is the one in flight that would land first."""
        xp = self._library.xp
        ages = xp.expand_dims(self._ages, axis=1)
        end_row = xp.expand_dims(end, axis=0)
        # In flight are those that started before the end, which is the vector's newest frame.
        starts = end_row - ages - 1
        lands = xp.take(known.lands, (clock - self._ages - 1) % (self.longest + 1), axis=0)
        # And those that would start from the end on, of which one may be the first to land at all.
        later = end_row + ages
        latency = self._latencies.take(xp.expand_dims(rows, axis=0), xp.expand_dims(episode, axis=0), later)
        later_lands = later + xp.where(latency < self._playout, latency * 0 + self._playout, latency)
        first = self._first_of(
            xp.concat([starts, later]), xp.concat([lands, later_lands]), xp.concat([starts >= 0, later >= 0])
        )
        after = xp.expand_dims(xp.where(start < 0, first, start), axis=0)
        following = self._first_of(starts, lands, (starts >= 0) & (starts > after))
        return xp.where(following < 0, end, following)

    def _first_of(self, starts: Array, lands: Array, may: Array) -> Array:
        """Return the start, of those that may, that lands first; the newest of several, -1 for none."""
        xp = self._library.xp
        first = xp.min(xp.where(may, lands, lands * 0 + _FAR), axis=0)
        is_first = may & (lands == xp.expand_dims(first, axis=0))
        return xp.max(xp.where(is_first, starts, starts * 0 + NONE), axis=0)


_FAR = 2**30  # a frame
