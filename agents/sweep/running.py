"""How far the trials of a sweep are: a bar on a terminal, lines elsewhere.

A run of train.py keeps its progress in a file of its directory (`ProgressFile`), which the sweep reads wherever the
trial runs, since every engine's trials and their sweep see the same directory. Of a trial in Python that is no such run
only its time is known.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from async_wrappers.agents.experiment.metrics import ProgressFile
from async_wrappers.agents.experiment.progress import EVERY, rate_in_words
from async_wrappers.agents.sweep.plan import Trial
from async_wrappers.agents.sweep.results import seconds_here
from async_wrappers.agents.sweep.trial import FAILURE, RESULT, trial_status
from async_wrappers.agents.timing import duration
from async_wrappers.printing import printable

_AT_A_TERMINAL = 2.0  # seconds between two looks at the running trials
_MOST_SHOWN = 4  # running trials, at a terminal and in a line
_MOST_WORDS = 3  # of a point


class TrialsShown:
    """Shows trials as they begin, play and end.

    Args:
        trials: Those that this call is about, by directory.
        jobs: How many run at a time; None for as many as happen to.
        trial_seconds: About how long a trial takes, until one has ended here or says it; None if not known.
        ended: Called with the directory of a trial that has ended.
        clock: Gives the time in seconds.
        every: Seconds between two lines.
    """

    def __init__(
        self,
        trials: Mapping[Path, Trial],
        jobs: int | None,
        trial_seconds: float | None,
        ended: Callable[[Path], None] = lambda directory: None,
        clock: Callable[[], float] = time.monotonic,
        every: float = EVERY,
    ) -> None:
        self._trials, self._jobs, self._trial_seconds, self._ended = trials, jobs, trial_seconds, ended
        self._clock, self._every = clock, every
        self._begun: dict[Path, float] = {}  # when the running trials began
        self._over, self._reporter = threading.Event(), threading.Thread(target=self._report, daemon=True)
        self._lock = threading.Lock()  # several threads report their trials

    def __enter__(self) -> TrialsShown:
        """Begin to show; trials that were running when their sweep was killed are not any more."""
        for each in self._trials:
            ProgressFile(each).remove()
        done = self._counts()
        self._bar = tqdm(
            total=len(self._trials),
            initial=done["finished"] + done["failed"],
            desc="sweep",
            bar_format="{desc}: {bar:10} {elapsed}{postfix}",
            dynamic_ncols=True,
            disable=None,
        )
        self._reporter.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the bar."""
        self._over.set()
        self._reporter.join()
        if not self._bar.disable:
            self._bar.set_postfix_str(printable(self.in_words()))
        self._bar.close()

    def change(self, directory: Path, to: str) -> None:
        """Take in that a trial is running now, or has ended; see `OnChange`."""
        with self._lock:
            ProgressFile(directory).remove()  # of a process that was killed
            if to == "running":
                # A trial that has the file is running, as long as its sweep is.
                ProgressFile(directory).write("", 0, 0.0, None)
                self._begun[directory] = self._clock()
                return
            self._begun.pop(directory, None)
            self._ended(directory)
            trial, counts = self._trials[directory], self._counts()
            if to == "cut off":
                tqdm.write(f"trial {trial.name} was cut off, and has not failed", file=sys.stdout)
                return
            self._bar.update()
            ended = counts["finished"] + counts["failed"]
            left = f", {self.left()}" if ended < len(self._trials) and self.left() else ""
            words = f"{_line(trial, directory, to)}; {ended} of {len(self._trials)} done{left}"
            tqdm.write(printable(words), file=sys.stdout)
            sys.stdout.flush()

    def in_words(self) -> str:
        """Return how many trials are done and are running, how far these are, and how long all will take."""
        counts, running = self._counts(), list(self._begun)
        trials = [f"{_name(self._trials[each])} {self._far(each)}" for each in running[:_MOST_SHOWN]]
        more = [f"{len(running) - _MOST_SHOWN} more"] if len(running) > _MOST_SHOWN else []
        failed = [f"{counts['failed']} failed"] if counts["failed"] else []
        done = f"{counts['finished'] + counts['failed']} of {len(self._trials)} done"
        waits = counts["finished"] + counts["failed"] < len(self._trials)
        now = f"{len(running)} running: {'; '.join([*trials, *more])}" if running else "none running" if waits else ""
        # A narrow terminal cuts off the end.
        return ", ".join(filter(None, [done, *failed, self.left() if waits else "", now]))

    def left(self) -> str:
        """Return how long the trials that are left will take, in words; empty where nothing is known of it."""
        now, told = self._clock(), {each: progress_of(each).get("left") for each in self._begun}
        known = [now - self._begun[each] + left for each, left in told.items() if left is not None]
        seconds = seconds_here(self._trials) or known or [self._trial_seconds]
        if seconds[0] is None or (self._jobs is None and not self._begun):
            return ""
        each_takes = sum(seconds) / len(seconds)
        lefts = [
            max(each_takes - (now - self._begun[each]), 0.0) if left is None else left for each, left in told.items()
        ]
        counts, jobs = self._counts(), self._jobs or len(self._begun)
        waiting = (len(self._trials) - counts["finished"] - counts["failed"] - len(lefts)) * each_takes
        return f"about {duration(max([*lefts, (sum(lefts) + waiting) / jobs]))} left"

    def _counts(self) -> Counter[str]:
        return Counter(trial_status(each) for each in self._trials if each not in self._begun)

    def _far(self, directory: Path) -> str:
        """Return how far a running trial is, in words."""
        told = progress_of(directory)
        if not told.get("doing"):
            return f"begun {duration(self._clock() - self._begun[directory])} ago"
        left = f"about {duration(told['left'])} left" if told["left"] is not None else ""
        rate = f"{told['frames']:,} frames, {rate_in_words(told['rate'])}" if told["rate"] else ""
        return ", ".join(filter(None, [told["doing"], rate, left]))

    def _report(self) -> None:
        """Show the running trials until all is over."""
        lines = self._bar.disable
        while not self._over.wait(self._every if lines else _AT_A_TERMINAL):
            with self._lock:
                words = printable(self.in_words())
                if lines:
                    print(f"sweep: {words}", file=sys.stderr, flush=True)
                else:
                    self._bar.set_postfix_str(words)


def progress_of(directory: Path) -> Mapping[str, Any]:
    """Return what a running trial has told of its progress (`ProgressFile`); empty where it has told nothing."""
    with suppress(OSError, ValueError):
        told = json.loads((directory / ProgressFile.NAME).read_text(encoding="utf-8"))
        return told if isinstance(told, dict) else {}
    return {}


def _name(trial: Trial) -> str:
    """Return a trial's name with its point, as short as a line of several trials needs it."""
    words = [*filter(None, [trial.arm]), *(f"{key.rpartition('.')[2]} {of}" for key, of in trial.bindings.items())]
    more = ["..."] if len(words) > _MOST_WORDS else []
    return f"{trial.name} ({', '.join([*words[:_MOST_WORDS], *more])})" if words else trial.name


def _line(trial: Trial, directory: Path, to: str) -> str:
    """Return the line of a trial that has ended."""
    path = directory / (RESULT if to == "finished" else FAILURE)
    unknown = {"error": "which could not be recorded", "seconds": 0.0}
    facts = json.loads(path.read_text()) if path.is_file() else unknown
    what = ", ".join([*filter(None, [trial.arm]), *(f"{key} = {value}" for key, value in trial.bindings.items())])
    error = f": {facts['error']} (see {directory})" if to == "failed" else ""
    if "stopped_after" in facts:
        to = f"stopped by the scheduler in iteration {facts['stopped_after']}"
    return f"trial {trial.name} {to} after {facts['seconds']:.0f} s ({what}, seed {trial.seed_number}){error}"
