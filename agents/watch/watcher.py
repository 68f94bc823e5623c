"""All that is watched: the runs, sweeps and recordings of some directories, and the load of this machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from async_wrappers.agents.experiment.metrics import EPISODES
from async_wrappers.agents.watch.checked_values import clean
from async_wrappers.agents.watch.machine_load import Load, MachineState, Processes
from async_wrappers.agents.watch.reading import Folder, is_below
from async_wrappers.agents.watch.recording import RecordingNow, Recordings, begun_at, is_recording
from async_wrappers.agents.watch.watched_run import ITERATIONS, RUNNING, WatchedRun, is_run, read_run
from async_wrappers.agents.watch.watched_sweep import SweepNow, is_sweep, read_sweep

_DEPTH = 3  # levels of directories below a named one in which runs are looked for
_SEARCH = 10.0  # seconds between two searches for new ones
_LEAST = 0.5  # seconds between two readings
_MOST = 60  # runs that are read; of more, the newest
_MOST_RECORDINGS = 10  # that are read; of more, the newest
_MOST_LOOKED_AT = 20_000  # directories, and entries of one
_MOST_SENTENCES, _MOST_GONE = 50, 10  # on a page


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
        recordings: Of live runs, in the order of their directories.
    """

    when: float
    runs: Sequence[WatchedRun]
    sweeps: Sequence[SweepNow]
    machine: MachineState
    processes: Mapping[Path, Processes]
    left_out: int = 0
    problems: Sequence[str] = ()
    recordings: Sequence[RecordingNow] = ()

    @property
    def only(self) -> WatchedRun | None:
        """The run that is shown without a list of all: the only one."""
        return self.runs[0] if len(self.runs) == 1 and not (self.sweeps or self.recordings) else None

    def sentences(self, run: WatchedRun | None = None) -> list[str]:
        """Return what a page of a run, or of all, says that could not be read."""
        shown: list[SweepNow | RecordingNow | WatchedRun] = (
            [*self.sweeps, *self.recordings, *self.runs] if run is None else [run]
        )
        found = list(dict.fromkeys([*self.problems, *(each for one in shown for each in one.problems)]))
        more = len(found) - _MOST_SENTENCES
        return found[:_MOST_SENTENCES] + ([f"{more} more sentences such as these are left out"] if more > 0 else [])


class Watcher:
    """Reads what is known, when it is asked for and not more often than twice a second.

    Args:
        places: Directories of runs, sweeps or recordings, or directories that hold some.
        clock: The time, in seconds.

    Raises:
        ValueError: A directory does not exist, or holds no run, no sweep and no recording.
    """

    def __init__(self, places: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._places, self._clock = places, clock
        self._lock = threading.Lock()
        for place in places:
            if not _found(place)[0]:
                what = "holds no run, no sweep and no recording" if place.is_dir() else "is no directory"
                raise ValueError(
                    f"{clean(place)} {what}: name a --base_dir of train.py, several, or a directory that holds them"
                )
        self._load = Load()
        self._known: dict[str, Folder] = {}  # what was found, by the real path
        self._trials: dict[str, Folder] = {}
        self._refused: list[str] = []
        self._recordings = Recordings()
        self._searched = self._read = float("-inf")
        self._overview: Overview | None = None

    def read(self) -> Overview:
        """Return what is known; from any thread."""
        with self._lock:
            now = self._clock()
            if self._overview is None or now - self._read >= _LEAST:
                if now - self._searched >= _SEARCH:
                    self._search()
                    self._searched = now
                self._overview, self._read = self._newest(), now
            return self._overview

    def _search(self) -> None:
        """Look for new directories; one that has gone stays, to be named."""
        self._refused = []
        for place in self._places:
            found, refused = _found(place)
            for real, folder in found.items():
                self._known.setdefault(real, folder)
            self._refused += refused

    def _newest(self) -> Overview:
        problems, sweeps, directories = list(self._refused), list[SweepNow](), dict[str, Folder]()
        recorded = list[Folder]()
        gone = [real for real in self._known if not os.path.isdir(real)]
        for real in gone[:-_MOST_GONE]:
            del self._known[real]
        for real, folder in self._known.items():
            if real in gone:
                folder.forget()
                problems.append(clean(f"{folder.path} is gone"))
            elif is_recording(folder):
                recorded.append(folder)
            elif not is_sweep(folder):
                directories.setdefault(real, folder)
            elif (sweep := read_sweep(folder)).points:
                sweeps.append(sweep)
                directories |= self._begun(folder, sweep)
            else:
                problems += sweep.problems
        newest = sorted(directories.values(), key=_changed)[-_MOST:]
        runs = []
        for folder in directories.values():
            if folder in newest:
                runs.append(read_run(folder))
            else:
                folder.forget()
        loads = {run.directory: self._load.processes(run.holder) for run in runs if run.state == RUNNING}
        processes = {directory: load for directory, load in loads.items() if load is not None}
        left_out = len(directories) - len(newest)
        if len(recorded) > _MOST_RECORDINGS:
            problems.append(f"{len(recorded) - _MOST_RECORDINGS} older recordings are not read: name them alone")
            recorded = sorted(recorded, key=begun_at)[-_MOST_RECORDINGS:]
        recordings = [self._recordings.read(folder) for folder in recorded]
        of = self._load.machine(), processes, left_out, tuple(problems), recordings
        return Overview(time.time(), runs, sweeps, *of)

    def _begun(self, folder: Folder, sweep: SweepNow) -> dict[str, Folder]:
        """Return the directories of a sweep's trials that have begun."""
        names = [trial.name for point in sweep.points for trial in point.trials if trial.state != "waiting"]
        found = {}
        for name in sorted(names):
            path = folder.path / "trials" / name
            real = os.path.realpath(path)
            trial = self._trials.setdefault(real, Folder(path, folder.root))
            if is_run(trial):
                found[real] = trial
        return found


def _found(place: Path) -> tuple[dict[str, Folder], list[str]]:
    """Return the directories of runs and sweeps at a place and below, in order, and sentences on what is left out.

    They have their real paths as keys, so that links show none of them twice.
    """
    found, refused, root = dict[str, Folder](), list[str](), os.path.realpath(place)
    seen = {root}

    def look(folder: Folder, real: str, depth: int) -> None:
        if is_sweep(folder) or is_run(folder) or is_recording(folder):
            found[real] = folder
            return
        for path in _directories(folder, refused) if depth else ():
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)
            if not is_below(real, root):
                if is_sweep(other := Folder(path, root)) or is_run(other) or is_recording(other):
                    refused.append(clean(f"{path} leads out of {place}, and is not read: name {real} too"))
            elif len(seen) <= _MOST_LOOKED_AT:
                look(Folder(place / os.path.relpath(real, root), root), real, depth - 1)

    look(Folder(place, root), root, _DEPTH)
    if len(seen) > _MOST_LOOKED_AT:
        refused.append(clean(f"{place} has more than {_MOST_LOOKED_AT:,} directories: name those of the runs"))
    return found, refused


def _directories(folder: Folder, refused: list[str]) -> list[Path]:
    """Return the directories in a directory, by their names, the links last."""
    try:
        with os.scandir(folder.path) as entries:
            found = [(each.is_symlink(), each.name) for each in islice(entries, _MOST_LOOKED_AT) if os.path.isdir(each)]
    except OSError as error:
        if folder.path.exists():
            refused.append(clean(f"{folder.path} cannot be read ({error.strerror})"))
        return []
    return [folder.path / name for _, name in sorted(found)]


def _changed(folder: Folder) -> float:
    """Return when a run has last ended an iteration or an episode, or begun."""
    return max(folder.written(name) or 0.0 for name in (ITERATIONS, EPISODES, ""))
