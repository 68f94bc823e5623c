"""A naive search that plays episodes of N staggered workers from the rules alone, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from async_wrappers.schedule.frames import FrameClock
from async_wrappers.schedule.simulated import modelled_conditions
from async_wrappers.testing.staggers import Played
from tests.worlds.schedule_cases import Case

__all__ = ["Frames", "Naive"]

Frames = list[tuple[tuple[int, int] | None, list[int]]]  # of each: (start, worker) that it receives, its readers


@dataclass
class Worker:
    """What one worker is at."""

    number: int
    state: str  # waits, idle, infers or is held
    until: int = 0  # when it stops waiting, inferring or being held; idle: since when
    start: int = -1  # the frame that it read last
    began: int = 0


class Naive:
    """Plays episodes from the rules alone: no heaps, every question answered by looking at all workers and actions."""

    KINDS: ClassVar[dict[str, int]] = {"infers": 0, "is held": 1, "waits": 2}

    def __init__(self, case: Case) -> None:
        self.clock, self.stagger = FrameClock(case.fps), case.stagger()
        latency = Played(case.latencies)
        self.stagger.prepare(modelled_conditions(latency, case.workers, self.clock))
        self.latencies, self.number = latency.stream(None), case.workers
        self.dropped = self.late = 0

    def play(self, frames: int) -> Frames:
        self.stagger.begin()
        self.released: list[tuple[int, int, int, int]] = []  # (-start, released, worker, due)
        self.newest = -1
        self.workers = [Worker(number, "idle") for number in range(self.number)]
        for worker in self.workers:
            self.becomes_free(worker, 0)
        played: Frames = []
        for frame in range(frames):
            self.frame, self.offers, self.readers = frame, self.stagger.offers(frame), list[int]()
            self.happens(self.clock.begin(frame))
            applied = self.chooses()
            while (times := [w.until for w in self.workers if w.state in self.KINDS]) and (
                min(times) < self.clock.begin(frame + 1)
            ):
                self.happens(min(times))
            played.append((applied, self.readers))
        return played

    def becomes_free(self, worker: Worker, now: int) -> None:
        worker.until = max(now, self.stagger.start(worker.number, now))
        worker.state = "waits" if worker.until > now else "idle"

    def happens(self, now: int) -> None:
        while True:
            events = [w for w in self.workers if w.state in self.KINDS and w.until <= now]
            may = [w for w in self.workers if w.state == "idle" and w.start < self.frame]
            if events:
                self.goes_on(min(events, key=lambda w: (w.until, self.KINDS[w.state], w.number)))
            elif may and (self.offers is None or len(self.readers) < self.offers):
                worker = min(may, key=lambda w: (w.until, w.number))
                self.readers.append(worker.number)
                self.stagger.taken(self.frame)
                worker.state, worker.start, worker.began = "infers", self.frame, now
                worker.until = now + self.latencies.draw()
            else:
                return

    def goes_on(self, worker: Worker) -> None:
        now = worker.until
        if worker.state == "infers":
            worker.state = "is held"
            worker.until = max(now, self.stagger.finish(worker.number, worker.began, now))
        elif worker.state == "waits":
            worker.state = "idle"
        else:
            due = self.clock.frame_at(now)
            if self.stagger.playout is not None:
                self.late += due > worker.start + self.stagger.playout
                due = max(due, worker.start + self.stagger.playout)
            self.released.append((-worker.start, now, worker.number, due))
            self.becomes_free(worker, now)

    def chooses(self) -> tuple[int, int] | None:
        due = sorted(action for action in self.released if action[-1] <= self.frame)
        self.released = [action for action in self.released if action[-1] > self.frame]
        applied = due[0] if due and -due[0][0] > self.newest else None
        self.dropped += len(due) - (applied is not None)
        if applied is None:
            return None
        self.newest = -applied[0]
        self.stagger.applied(self.frame)
        return self.newest, applied[2]
