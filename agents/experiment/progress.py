"""The progress of a run and its remaining time: a bar on a terminal, lines in a log."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tqdm import tqdm

from async_wrappers.agents.play.play import Length, Phase
from async_wrappers.posix import signals_blocked

# Seconds between two lines of a log.
EVERY = 30.0


class Progress:
    """Shows a run's progress: a bar where standard error is a terminal, otherwise a line there about every 30 s.

    The work of an iteration is 1. The remaining time is estimated from the time per work so far.

    Args:
        first: Number of the first iteration that is still to do.
        iterations: Iterations in all.
        clock: Gives the time in seconds.
        every: Seconds between two lines.
    """

    def __init__(
        self, first: int, iterations: int, *, clock: Callable[[], float] = time.monotonic, every: float = EVERY
    ) -> None:
        """See the class."""
        self._first, self._number, self._iterations = first, first, iterations
        self._clock, self._every = clock, every
        self._began = self._line_at = self._iteration_began = clock()
        self._share, self._frames, self._total = 0.0, 0, 0
        self._seconds: float | None = None
        self._last = ""
        self._bar: tqdm[None] | None = None
        self._lock = threading.Lock()  # `while_waiting` reports from another thread

    @contextmanager
    def iteration(self, number: int, frames: int) -> Iterator[None]:
        """Show one iteration, which is over at the end of the block.

        Args:
            number: Of the iteration.
            frames: At least so many are played; 0 if its length is counted in episodes.
        """
        self._number, self._total, self._share, self._frames, self._last = number, frames, 0.0, 0, ""
        self._seconds = None
        self._iteration_began = self._line_at = self._clock()
        with tqdm(
            total=frames or None, desc=self._title(), unit="frame", unit_scale=True, dynamic_ncols=True, disable=None
        ) as self._bar:
            yield
        self._bar, self._share = None, 1.0

    def update(self, share: float, frames: int, last: str = "", seconds: float | None = None) -> None:
        """Show the iteration's progress.

        Args:
            share: Of the iteration's work that is done.
            frames: Of the iteration that are played.
            last: The newest result in words, such as ``"last return 12"``; empty keeps the previous one.
            seconds: How long those frames took; None for as long as the iteration has taken.
        """
        with self._lock:
            self._seconds = seconds
            played, self._share, self._frames, self._last = frames - self._frames, share, frames, last or self._last
            if self._bar is not None and not self._bar.disable:
                self._bar.set_postfix_str(self._joined(self._last, self.left()), refresh=False)
                self._bar.update(played)
            elif self._clock() - self._line_at >= self._every:
                self._line_at = self._clock()
                print(self._line(), file=sys.stderr, flush=True)

    @contextmanager
    def while_waiting(self, progress_after: Callable[[float], tuple[float, int, float | None]]) -> Iterator[None]:
        """Keep showing the iteration's progress during a block that reports nothing for long.

        Args:
            progress_after: Returns the share and the frames of the iteration after so many seconds of the block, and
                how long these frames took; None for as long as the iteration has taken.
        """
        over, began = threading.Event(), self._clock()

        def report() -> None:
            # Another thread may be starting processes with these blocked, and Python would handle them at once.
            with signals_blocked((signal.SIGINT, signal.SIGTERM)):
                while not over.wait(min(1.0, self._every)):
                    share, frames, seconds = progress_after(self._clock() - began)
                    self.update(share, frames, seconds=seconds)

        reporter = threading.Thread(target=report, name="progress", daemon=True)
        reporter.start()
        try:
            yield
        finally:
            over.set()
            reporter.join()

    def done(self) -> str:
        """Return how many iterations are done and how long the others will take, such as ``3 of 10 done``."""
        return self._joined(f"{self._number + 1} of {self._iterations} done", self.left())

    def left(self) -> str:
        """Return how long the run still takes, such as ``about 2 min left``; empty if nothing is known of it."""
        work = self._number - self._first + self._share
        if work <= 0 or self._number + self._share >= self._iterations:
            return ""
        seconds = (self._clock() - self._began) / work * (self._iterations - self._number - self._share)
        return f"about {duration(seconds)} left"

    def _title(self) -> str:
        return f"iteration {self._number} ({self._number + 1} of {self._iterations})"

    def _line(self) -> str:
        of = f" of {self._total:,}" if self._total else ""
        seconds = self._clock() - self._iteration_began if self._seconds is None else self._seconds
        rate = f"{self._frames / max(seconds, 1e-9):,.0f} frames/s" if self._frames else ""
        return f"{self._title()}: " + self._joined(f"{self._frames:,}{of} frames", self._last, rate, self.left())

    def _joined(self, *parts: str) -> str:
        return ", ".join(filter(None, parts))


class PhasesShown:
    """Shows how far the phases of the running iteration are; see `async_wrappers.agents.play.run.Shown`.

    Args:
        progress: Shows it.

    Attributes:
        progress: As given.
    """

    def __init__(self, progress: Progress) -> None:
        """See the class."""
        self.progress = progress
        self._lengths: Mapping[Phase, Length] = {}
        self._played: dict[Phase, tuple[int, int]] = {}  # episodes and frames of each phase

    def iteration(self, number: int, lengths: Mapping[Phase, Length]) -> AbstractContextManager[None]:
        """Show one iteration, whose phases have these lengths, in the block."""
        self._lengths, self._played = lengths, dict.fromkeys(lengths, (0, 0))
        by_frames = all(length.episodes is None for length in lengths.values())
        frames = sum(length.frames for length in lengths.values()) if by_frames else 0
        return self.progress.iteration(number, frames)

    def done(self) -> str:
        """Return how many iterations are done and how long the others will take."""
        return self.progress.done()

    def note(self, phase: Phase, episodes: int, frames: int) -> None:
        """Take in what `tell` shows, without showing it."""
        self._played[phase] = episodes, frames

    def tell(self, phase: Phase, episodes: int, frames: int, last: str = "", seconds: float | None = None) -> None:
        """Show that a phase has had so many episodes and frames."""
        self._played[phase] = episodes, frames
        self.progress.update(*share_done(self._lengths, self._played), last, seconds)

    def share(self, share: float, words: str) -> None:
        """Show that a share of an iteration without frames is done."""
        self.progress.update(share, 0, words)

    def waiting(self, phase: Phase, more: Callable[[float], tuple[int, float | None]]) -> AbstractContextManager[None]:
        """Keep showing the progress of a phase during a block that tells nothing for long."""

        def progress_after(seconds: float) -> tuple[float, int, float | None]:
            frames, took = more(seconds)
            episodes, before = self._played[phase]
            return *share_done(self._lengths, {**self._played, phase: (episodes, before + frames)}), took

        return self.progress.while_waiting(progress_after)


class WallClock:
    """Wall time of a run, pauses between two sessions left out.

    Attributes:
        before: Seconds of earlier sessions.
    """

    def __init__(self) -> None:
        """See the class."""
        self.before, self._began = 0.0, time.time()

    def begin(self) -> None:
        """Begin this session."""
        self._began = time.time()

    @property
    def seconds(self) -> float:
        """The seconds until now."""
        return self.at(time.time())

    def at(self, when: float) -> float:
        """Return the seconds until a time of this session."""
        return self.before + max(when - self._began, 0.0)


def duration(seconds: float) -> str:
    """Return a time in words, in a unit that fits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"


def share_done(lengths: Mapping[Any, Any], played: Mapping[Any, tuple[int, int]]) -> tuple[float, int]:
    """Return the share of an iteration that is done, and its frames.

    Args:
        lengths: How long each phase is (`Length`).
        played: Episodes and frames of each.
    """
    by_frames = all(length.episodes is None for length in lengths.values())
    work = done = 0.0
    for each, length in lengths.items():
        episodes, frames = played[each]
        # Frames and episodes cannot be added: if both occur, each phase is as much work as the other.
        whole = length.frames if by_frames else float(bool(length.frames or length.episodes))
        share = episodes / length.episodes if length.episodes else frames / max(length.frames, 1)
        work, done = work + whole, done + whole * min(share, 1.0)
    return done / max(work, 1), sum(frames for _, frames in played.values())
