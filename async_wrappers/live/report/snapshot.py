"""What a live run is doing, in two small files that are written beside it, once and four times a second.

``now.json`` has the counts of the phase, the last five seconds in numbers, a second of the time line, and a row for
each of the last 300 seconds; ``now.npy`` has the newest observation, where that is an image. A thread of the
supervisor's process writes them from shared memory (`async_wrappers.live.memory.glance`), so the environment's process
neither waits nor computes for them. ``python train.py watch`` reads them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from async_wrappers.files import write_atomically
from async_wrappers.live.memory.exchange import FrameRing
from async_wrappers.live.memory.glance import DEFAULT, Glance, Rows
from async_wrappers.live.report.report import as_json, distribution

NUMBERS, PICTURE = "now.json", "now.npy"
_EVERY = 0.25  # seconds between two pictures
_NUMBERS = 4  # pictures for each writing of the numbers, which takes ten times as long
_RECENT = 5.0  # seconds that the numbers are of
_LINE = 1.0  # seconds of the time line
_MOST = 400  # marks of a kind on it
_HISTORY = 300  # rows, one a second
_EPISODES = 100
_LARGEST = 4_000_000  # bytes of a picture
_NICE = 5  # as of a recording's writer


class Snapshots:
    """Writes snapshots of a phase while it is played.

    Args:
        directory: Made if it is missing.
        glance: The newest frames and inferences.
        ring: The newest observations.
        fps: Frames per second that are asked for.
        workers: How many there are.
        unix: The time, in seconds since 1970.
    """

    def __init__(
        self,
        directory: Path,
        glance: Glance,
        ring: FrameRing,
        fps: float,
        workers: int,
        unix: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._glance, self._ring = directory, glance, ring
        self._fps, self._workers, self._unix = fps, workers, unix
        self._first_frame, self._first_inference = glance.frames()[1], glance.inferences()[1]  # of the phase
        self._next_frame = self._first_frame
        self._counts = {"frames": 0, "fresh": 0, "chunk": 0, "late": 0, "paused": 0}
        self._episodes: deque[list[float]] = deque(maxlen=_EPISODES)
        self._history: deque[list[float | None]] = deque(maxlen=_HISTORY)
        self._noted_at = float("-inf")  # when the newest of them was noted
        self._last: Any = None  # row of the newest frame
        self._shown = -1  # number of the newest observation that was written

    @contextmanager
    def beside(self, cores: Collection[int] = ()) -> Iterator[None]:
        """Write snapshots while the block lasts, and one when it ends.

        Args:
            cores: Where the thread that writes them may run, on Linux; empty for anywhere.
        """
        over = threading.Event()
        with suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)

        def work() -> None:
            _give_way(cores)
            for tick in count(1):
                if over.wait(_EVERY):
                    return
                self.write(numbers=tick % _NUMBERS == 0)

        thread = threading.Thread(target=work, name="snapshots", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.write(over=True)

    def write(self, numbers: bool = True, over: bool = False) -> None:
        """Write the files. Where the disk is full or the directory gone, they stay as they are.

        Args:
            numbers: Whether the numbers are written too, and not the picture alone.
            over: Whether the phase is.
        """
        with suppress(OSError):
            if numbers:
                text = json.dumps({**self.numbers(), "over": over}, allow_nan=False)
                write_atomically(self._directory / NUMBERS, lambda file: file.write(text.encode()), flush=False)
            if (picture := self._picture()) is not None:
                save = partial(np.save, arr=picture, allow_pickle=False)
                write_atomically(self._directory / PICTURE, save, flush=False)

    def numbers(self) -> dict[str, Any]:
        """Return what has been played since the phase began, as plain data."""
        rows, self._next_frame = self._glance.frames(self._next_frame)
        self._count(rows)
        recent, _ = self._glance.frames(max(self._first_frame, self._next_frame - round(_RECENT * self._fps)))
        inferences, _ = self._glance.inferences(self._first_inference)
        last = self._last
        place = {} if last is None else {name: int(last[name]) for name in ("phase", "episode", "frame")}
        return {
            "unix": self._unix(),
            "fps": self._fps,
            "workers": self._workers,
            **place,
            **self._counts,
            "score": None if last is None else as_json(float(last["score"])),
            "episodes": list(self._episodes),
            "recent": as_json(self._recent(recent, inferences)),
            "line": _line(recent, inferences, self._fps),
            "history": self._noted(recent),
        }

    def _count(self, rows: Rows) -> None:
        """Count new frames, and note the episodes that they end."""
        counts = self._counts
        counts["frames"] += len(rows)
        counts["fresh"] += int(np.sum(_is_new(rows)))
        counts["chunk"] += int(np.sum(_goes_on(rows)))
        counts["late"] += int(np.sum(rows["lateness"] > self._half_frame))
        counts["paused"] += int(np.sum(rows["start"] < DEFAULT))
        if not len(rows):
            return
        known = rows if self._last is None else np.concatenate([np.array([self._last], rows.dtype), rows])
        for place in np.nonzero(np.diff(known["episode"]))[0]:
            ended = known[place]
            self._episodes.append([int(ended["episode"]), int(ended["frame"]) + 1, as_json(float(ended["score"]))])
        self._last = rows[-1].copy()

    @property
    def _half_frame(self) -> float:
        return 0.5e9 / self._fps

    def _recent(self, rows: Rows, inferences: Rows) -> dict[str, Any]:
        """Return the newest frames in numbers; shares are of the frames that were not of a pause."""
        played, fresh = rows[rows["start"] >= DEFAULT], rows[_is_new(rows)]
        ages, counts = np.unique(fresh["delay"], return_counts=True)
        since = int(rows["deadline"][0]) if len(rows) else 0
        taken = (inferences["ended"] - inferences["began"])[inferences["ended"] >= since]
        return {
            "frames": len(rows),
            "fps": _rate(rows),
            "fresh_share": len(fresh) / len(played) if len(played) else None,
            "chunk_share": float(np.mean(_goes_on(played))) if len(played) else None,
            "late": int(np.sum(rows["lateness"] > self._half_frame)),
            "lateness_ms": distribution(rows["lateness"] / 1e6),
            "delay_frames": distribution(fresh["delay"]),
            "ages": {str(age): int(count) for age, count in zip(ages, counts, strict=True)},
            "latency_ms": distribution(taken / 1e6),
        }

    def _noted(self, rows: Rows) -> list[list[float | None]]:
        """Note the last second once it is over; return all notes: time, fresh share, late frames, age, lateness."""
        now = self._unix()
        if len(rows) and now - self._noted_at > 0.9:
            self._noted_at = now
            second = rows[rows["deadline"] > rows["deadline"][-1] - 1_000_000_000]
            fresh = second[_is_new(second)]
            age = float(np.mean(fresh["delay"])) if len(fresh) else None
            late = int(np.sum(second["lateness"] > self._half_frame))
            lateness = float(np.percentile(second["lateness"], 99)) / 1e6
            self._history.append([round(now, 2), len(fresh) / len(second), late, age, lateness])
        return list(self._history)

    def _picture(self) -> Any:
        """Return the newest observation if it is an image that was not written yet, else None."""
        number, observation = self._ring.newest()
        if number == self._shown or (picture := _image_in(observation)) is None:
            return None
        self._shown = number
        return picture


def _give_way(cores: Collection[int]) -> None:
    """Let the loop and the workers go before this thread, and keep it on some cores; on Linux alone."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
            if cores:
                os.sched_setaffinity(0, cores)


def _rate(rows: Rows) -> float | None:
    """Return the frames per second of an episode's newest rows; None where they are too few."""
    rows = rows[rows["episode"] == rows["episode"][-1]] if len(rows) else rows
    if len(rows) < 2:
        return None
    began = rows["deadline"] + rows["lateness"]
    return (len(rows) - 1) / max(int(began[-1] - began[0]), 1) * 1e9


def _is_new(rows: Rows) -> Any:
    """Return which frames received the action of a new decision, bool `[T]`."""
    return (rows["start"] > DEFAULT) & (rows["frame"] == rows["start"] + rows["delay"])


def _goes_on(rows: Rows) -> Any:
    """Return which frames received the action of a going chunk, bool `[T]`."""
    return (rows["start"] > DEFAULT) & (rows["frame"] != rows["start"] + rows["delay"])


def _line(rows: Rows, inferences: Rows, fps: float) -> dict[str, Any]:
    """Return the last second: inferences (worker, began, ended, applied or not) and frames (began, age) in ms.

    ``chunks`` are the places, among these frames, of those of a going chunk.
    """
    if not len(rows):
        return {"seconds": _LINE, "inferences": [], "frames": [], "chunks": []}
    end = int(rows["deadline"][-1]) + round(1e9 / fps)
    begin = end - round(_LINE * 1e9)
    rows = rows[rows["deadline"] >= begin][-_MOST:]
    shown = inferences[inferences["ended"] >= begin][-_MOST:]
    applied = set(zip(rows["episode"].tolist(), rows["start"].tolist(), strict=True))

    def ms(time: Any) -> float:
        return round((int(time) - begin) / 1e6, 2)

    return {
        "seconds": _LINE,
        "inferences": [
            [int(each["worker"]), ms(each["began"]), ms(each["ended"]), (each["episode"], each["start"]) in applied]
            for each in shown
        ],
        "frames": [
            [ms(row["deadline"]), int(row["frame"] - row["start"]) if row["start"] > DEFAULT else None] for row in rows
        ],
        "chunks": np.flatnonzero(_goes_on(rows)).tolist(),
    }


def _image_in(observation: Any) -> Any:
    """Return the first image of an observation: bytes or truth values `[H, W]`, `[H, W, C]` or `[C, H, W]`, or None."""
    if isinstance(observation, Mapping | tuple):
        parts = observation.values() if isinstance(observation, Mapping) else observation
        return next((found for each in parts if (found := _image_in(each)) is not None), None)
    if not isinstance(observation, np.ndarray) or observation.dtype not in (np.uint8, np.bool_):
        return None
    newest = observation[-1] if observation.ndim == 4 else observation  # of a stack
    return newest if newest.ndim in (2, 3) and newest.nbytes <= _LARGEST and min(newest.shape[-2:]) > 0 else None
