"""All that is watched: the runs and sweeps of some directories, and the load of this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from async_wrappers.agents.config.config import ConfigError
from async_wrappers.agents.watch.machine import Load, Machine, Processes
from async_wrappers.agents.watch.run import RUNNING, Run, is_run, read_run
from async_wrappers.agents.watch.sweep import SweepNow, is_sweep, read_sweep

_DEPTH = 3  # levels of directories below a named one in which runs are looked for
_SEARCH = 10.0  # seconds between two searches for new ones
_LEAST = 0.5  # seconds between two readings
_MOST = 60  # runs that are read; of more, the newest


@dataclass(frozen=True)
class Overview:
    """What is known at a moment.

    Attributes:
        when: Seconds since 1970.
        runs: Outside sweeps, and the trials of sweeps that run or have run.
        sweeps: In the order of their directories.
        machine: The load.
        processes: Of the runs that go on, by directory.
        left_out: Runs that are there and not read, as there are more than 60.
        problems: Sentences on directories that could not be read.
    """

    when: float
    runs: Sequence[Run]
    sweeps: Sequence[SweepNow]
    machine: Machine
    processes: Mapping[Path, Processes]
    left_out: int = 0
    problems: Sequence[str] = ()


class Watcher:
    """Reads what is known, when it is asked for and not more often than twice a second.

    Args:
        places: Directories of runs or sweeps, or directories that hold some.
        clock: The time, in seconds.

    Raises:
        ValueError: A directory does not exist, or holds no run and no sweep.
    """

    def __init__(self, places: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        """See the class."""
        self._places, self._clock = places, clock
        self._lock = threading.Lock()
        for place in places:
            if not any(_found([place])):
                what = "holds no run and no sweep" if place.is_dir() else "is no directory"
                raise ValueError(
                    f"{place} {what}: name a --base_dir of train.py, several, or a directory that holds them"
                )
        self._load = Load()
        self._known: list[Path] = []
        self._searched = self._read = float("-inf")
        self._overview: Overview | None = None

    def read(self) -> Overview:
        """Return what is known; from any thread."""
        with self._lock:
            now = self._clock()
            if self._overview is None or now - self._read >= _LEAST:
                if now - self._searched >= _SEARCH:
                    # One that has gone stays, to be named.
                    self._known, self._searched = list(dict.fromkeys([*self._known, *_found(self._places)])), now
                self._overview, self._read = self._newest(), now
            return self._overview

    def _newest(self) -> Overview:
        problems, sweeps = list[str](), list[SweepNow]()
        directories = []
        for directory in self._known:
            if not directory.is_dir():
                problems.append(f"{directory} is gone")
            elif not is_sweep(directory):
                directories.append(directory)
            else:
                try:
                    sweeps.append(read_sweep(directory))
                except (ConfigError, OSError, ValueError) as error:
                    problems.append(str(error))
                else:
                    directories += _begun(sweeps[-1])
        newest = sorted(directories, key=_changed)[-_MOST:]
        runs = [read_run(directory) for directory in directories if directory in newest]
        loads = {run.directory: self._load.processes(run.holder) for run in runs if run.state == RUNNING}
        processes = {directory: load for directory, load in loads.items() if load is not None}
        left_out = len(directories) - len(newest)
        return Overview(time.time(), runs, sweeps, self._load.machine(), processes, left_out, tuple(problems))


def _found(places: Iterable[Path]) -> Iterator[Path]:
    """Yield the directories of runs and sweeps, those of a place in the order of their names."""
    for place in places:
        if is_sweep(place) or is_run(place):
            yield place
        else:
            yield from _below(place, _DEPTH)


def _below(place: Path, depth: int) -> Iterator[Path]:
    if not depth or not place.is_dir():
        return
    for each in sorted(place.iterdir()):
        if each.is_dir():
            if is_sweep(each) or is_run(each):
                yield each
            else:
                yield from _below(each, depth - 1)


def _begun(sweep: SweepNow) -> list[Path]:
    """Return the directories of a sweep's trials that have begun."""
    names = [trial.name for point in sweep.points for trial in point.trials if trial.state != "waiting"]
    return [path for name in sorted(names) if is_run(path := sweep.directory / "trials" / name)]


def _changed(directory: Path) -> float:
    """Return when a run has last ended an iteration or an episode, or begun."""
    paths = (directory / "metrics" / "iterations.jsonl", directory / "episodes.csv", directory)
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)
