"""A run as it goes on: its facts, its progress, its iterations, episodes and scalars, and what it showed last."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from async_wrappers.agents.experiment.lock import LOCK, is_in_use, lives
from async_wrappers.agents.experiment.metrics import EPISODES
from async_wrappers.agents.play.play import EpisodeRow
from async_wrappers.agents.sweep.plan import PLAN
from async_wrappers.agents.sweep.runs import RecordedRun, bindings_in, recorded
from async_wrappers.agents.watch.checked_values import (
    Reader,
    clean,
    count,
    known,
    label,
    many,
    mapping,
    maybe,
    number,
    record,
    row,
    text,
    truth,
)
from async_wrappers.agents.watch.last_shown import PLACES, LiveSnapshot, picture_in, read_live
from async_wrappers.agents.watch.reading import Folder, json_of
from async_wrappers.agents.watch.scalars import Series, read_scalars

RUNNING, FINISHED, STOPPED = "running", "finished", "stopped"
ITERATIONS = "metrics/iterations.jsonl"
_OF_A_RUN = ("config.gin", "metrics", EPISODES, *PLACES)
_LOG_LINES, _MOST_HOSTS, _MOST_FILES = 12, 100, 20
_TAIL = 65_536  # bytes of a log, or of blocks of hosts
_PACE = 30.0  # seconds that the pace is of
_SILENT = 5.0  # seconds without a snapshot after which a live run counts as ended


class EpisodeNow(NamedTuple):
    """An episode that is over; see `async_wrappers.agents.play.play.EpisodeRow`. A score of None was not finite."""

    phase: str
    episode: int
    score: float | None
    length: int
    frames: int
    seconds: float
    won: bool | None


@dataclass(frozen=True)
class RunProgress:
    """How far a run is.

    Attributes:
        done: Iterations that are done.
        iterations: In all; 0 where that is not known.
        share: Of the run's work that is done; None where that is not known.
        frames: Of training so far.
        seconds: Wall time so far, as of the newest episode.
        pace: Frames of training a second, over the newest episodes; None where that is not known.
        left: Seconds that the rest takes at the pace so far; None where that is not known.
    """

    done: int
    iterations: int
    share: float | None
    frames: int
    seconds: float
    pace: float | None
    left: float | None


class Evaluation(NamedTuple):
    """A row of a table: an agent or a checkpoint, its mean return with the 95 % interval, and its episodes."""

    name: str
    mean: float | None
    interval: tuple[float, float] | None
    episodes: int


class Video(NamedTuple):
    """A video: its name below the run's directory, and when it was written, in seconds since 1970."""

    name: str
    written: float


@dataclass(frozen=True)
class HostBlocks:
    """Blocks that came from a host, of the newest ones: how many, how many were learnt from, version of the weights."""

    name: str
    blocks: int
    learnt: int
    version: int


@dataclass(frozen=True)
class WatchedRun:
    """What is known of a run.

    Attributes:
        folder: Its ``--base_dir``.
        state: ``"running"``, ``"finished"`` or ``"stopped"``.
        recorded: Facts, bindings and iterations.
        progress: How far it is.
        episodes: That are over, in order.
        scalars: By their tags in TensorBoard.
        evaluations: Made beside it.
        report: Rows of its closing table.
        live: What it showed last, where it is live.
        picture: Name of the file of its newest observation, where it is live and that is an image.
        video: The newest one of an evaluation.
        hosts: Those that sent blocks.
        log: The last lines of its log.
        changed: Seconds since it has written anything; None where nothing is known.
        holder: The process that runs, on this machine.
        problems: Sentences on files that could not be read.
    """

    folder: Folder
    state: str
    recorded: RecordedRun
    progress: RunProgress
    episodes: Sequence[EpisodeNow]
    scalars: Mapping[str, Series]
    evaluations: Sequence[Evaluation]
    report: Sequence[Evaluation]
    live: LiveSnapshot | None
    picture: str | None
    video: Video | None
    hosts: Sequence[HostBlocks]
    log: Sequence[str]
    changed: float | None
    holder: int | None
    problems: Sequence[str]

    @property
    def directory(self) -> Path:
        """Its ``--base_dir``."""
        return self.folder.path

    @property
    def name(self) -> str:
        """The directory's name; of a trial, that of its sweep before it."""
        return name_of(self.directory)

    @property
    def trained(self) -> int:
        """The episodes of training that are over."""
        return sum(each.phase == "train" for each in self.episodes)

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest iteration's statistics; empty before."""
        return self.recorded.lines[-1] if self.recorded.lines else {}


def name_of(directory: Path) -> str:
    """Return the name of a run's or a sweep's directory; of a trial, that of its sweep before it."""
    place = Path(os.path.realpath(directory))
    return clean(f"{place.parents[1].name}/{place.name}" if place.parent.name == "trials" else place.name)


def is_run(folder: Folder) -> bool:
    """Return whether a directory is that of a run, also of one that has only begun."""
    if folder.has(PLAN):
        return False
    return any(os.path.exists(folder.path / name) for name in _OF_A_RUN) or is_held(folder)


def is_held(folder: Folder, below: str = "") -> bool:
    """Return whether a process of this machine runs in a directory, or in one below it."""
    if sys.platform == "win32":
        return is_in_use(folder.path / below)
    return lives(_holder_in(folder, below))


def _holder_in(folder: Folder, below: str = "") -> list[str]:
    return folder.parsed(os.path.join(below, LOCK), lambda data: data[:300].decode(errors="replace").split(), [])


def read_run(folder: Folder) -> WatchedRun:
    """Return what is known of a run; files that are missing are empty, and those that are refused are sentences."""
    folder.begin()
    facts = folder.parsed("metrics/run.json", json_of(_FACTS), dict[str, str](), "remove it")
    bindings = folder.parsed("config.gin", _bindings, dict[str, str](), "bring back the file that the run wrote")
    lines, kept = (
        iterations_of(folder),
        folder.appended(EPISODES, _EpisodeRows, "remove the lines that are no rows").rows,
    )
    report = folder.parsed(
        "report.json", _report, list[Evaluation](), "remove it, and let the run go on: it writes another one"
    )
    live, holder = read_live(folder), _holder_in(folder)
    state = RUNNING if is_held(folder) else FINISHED if report else STOPPED
    if state == STOPPED and live is not None and not bindings:  # of an `AsyncRunner` alone, which locks nothing
        state = FINISHED if live.over else RUNNING if live.age < _SILENT else STOPPED
    return WatchedRun(
        folder,
        state,
        replace(recorded(Path(clean(folder.path)), facts, bindings, ()), lines=lines),
        _progress(facts, lines, kept, live),
        kept,
        read_scalars(folder),
        folder.lines("metrics/evaluations.jsonl", _EVALUATION, "remove the lines that are no evaluations"),
        report,
        live,
        picture_in(folder),
        _video(folder),
        _hosts(folder),
        folder.parsed("log.txt", _log, [], "remove it", _TAIL),
        _seconds_since(folder),
        int(holder[0]) if lives(holder) else None,
        tuple(folder.problems),
    )


# A reader for each file.

_FACTS = mapping(text, text, 100)
_SCORES = many(known, 1_000_000)
_PHASES = {"average_return": known, "average_steps_per_second": known, "episode_returns": _SCORES}
_ITERATION = record(
    {"iteration": count, "frames": count},
    {
        **{f"{phase}_{name}": read for phase in ("train", "eval") for name, read in _PHASES.items()},
        "train_rates": mapping(text, known, 20),
    },
)
_PLAYED = {"interval": maybe(row(known, known)), "scores": _SCORES, "returns": _SCORES}
_BLOCK = record({"host": label}, {"learnt": truth, "version": count})


def iterations_of(folder: Folder, below: str = "") -> list[dict[str, Any]]:
    """Return the statistics of each iteration that are drawn, those that are finite, of a run in or below a folder."""
    name = os.path.join(below, ITERATIONS)
    return folder.lines(name, _ITERATION, "remove the lines that are no iterations")


def _bindings(data: bytes) -> dict[str, str]:
    return {clean(key): clean(value) for key, value in bindings_in(data).items()}


class _EpisodeRows:
    """The rows of ``episodes.csv`` so far."""

    def __init__(self) -> None:
        self.rows: list[EpisodeNow] = []
        self.damage = ""
        self._bad = 0

    def add(self, data: bytes) -> int:
        """Add the whole lines of new bytes; a line that is no row is left out."""
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.decode(errors="replace").splitlines():
            cells = line.split(",")
            if cells == list(EpisodeRow._fields):
                continue
            try:
                self.rows.append(_episode(**dict(zip(EpisodeRow._fields, cells, strict=True))))
            except ValueError:
                self._bad += 1
                self.damage = f"{self._bad} lines are no rows"
        return len(whole)


def _episode(
    phase: str, episode: str, score: str, length: str, frames: str, seconds: str, won: str, **_: str
) -> EpisodeNow:
    place, numbers = count(int(episode)), (count(int(length)), count(int(frames)), number(float(seconds)))
    return EpisodeNow(clean(phase), place, known(float(score)), *numbers, None if won == "" else won == "1")


def _evaluation(wanted: Mapping[str, Reader], optional: Mapping[str, Reader]) -> Reader:
    read = record({**wanted, "mean": known}, {**optional, **_PLAYED})

    def row_of(value: Any) -> Evaluation:
        found = read(value)
        name = next((found[key] for key in ("agent", "checkpoint", "iteration") if key in found), "")
        interval, played = found.get("interval"), found.get("scores", found.get("returns", ()))
        return Evaluation(name, found["mean"], None if interval and None in interval else interval, len(played))

    return row_of


_EVALUATION = _evaluation({}, {"checkpoint": label, "iteration": label})
_report = json_of(many(_evaluation({"agent": text}, {}), 100))


def _log(data: bytes) -> list[str]:
    return [clean(line.expandtabs()) for line in data.decode(errors="replace").splitlines()[-_LOG_LINES:]]


def _blocks(data: bytes) -> list[dict[str, Any]]:
    """Return the blocks of whole lines: the last one may be half written."""
    return [json_of(_BLOCK)(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def _hosts(folder: Folder) -> list[HostBlocks]:
    counts: Counter[str] = Counter()
    learnt: Counter[str] = Counter()
    versions: dict[str, int] = {}
    for name in folder.names("metrics", "blocks*.jsonl")[:_MOST_FILES]:
        for block in folder.parsed(name, _blocks, list[dict[str, Any]](), "remove the lines that are no blocks", _TAIL):
            host = block["host"]
            counts[host] += 1
            learnt[host] += block.get("learnt", True)
            versions[host] = max(versions.get(host, 0), block.get("version", 0))
    return [HostBlocks(host, counts[host], learnt[host], versions[host]) for host in sorted(counts)[:_MOST_HOSTS]]


def _video(folder: Folder) -> Video | None:
    found = [Video(name, folder.written(name) or 0.0) for name in folder.names("videos", "*.mp4")]
    for newest in sorted(found, key=lambda video: (video.written, video.name), reverse=True)[:_MOST_FILES]:
        with folder.noted(folder.path / newest.name), folder.open(newest.name):
            return newest
    return None


def _seconds_since(folder: Folder) -> float | None:
    """Return how long ago a run has written anything."""
    names = (EPISODES, ITERATIONS, "log.txt", *folder.names("metrics/tensorboard", "events*"))
    times = [written for name in names if (written := folder.written(name)) is not None]
    return max(time.time() - max(times), 0.0) if times else None


# How far it is.


def _progress(
    facts: Mapping[str, str],
    lines: Sequence[Mapping[str, Any]],
    episodes: Sequence[EpisodeNow],
    live: LiveSnapshot | None,
) -> RunProgress:
    planned = re.match(r"(\d+), each of ([\d,]{1,18}) training frames", facts.get("iterations", ""))
    counted = re.match(r"\d{1,18}", facts.get("iterations", ""))
    iterations = int(counted[0]) if counted else 0
    each = int(planned[2].replace(",", "") or 0) if planned else 0
    begun = lines[-1]["frames"] if lines else 0
    trained = [each for each in episodes[-1000:] if each.phase == "train"]
    frames = max(begun, trained[-1].frames if trained else 0)
    if live is not None and live.facts.get("phase") == 0 and not (live.over and lines):
        frames = max(frames, begun + live.facts["frames"])
    seconds = episodes[-1].seconds if episodes else 0.0
    within = min((frames - begun) / each, 1.0) if each else 0.0
    share = min((len(lines) + within) / iterations, 1.0) if iterations else None
    left = None
    if share and share < 1 and seconds:
        done = len(lines) + (within if trained else 0.0)
        left = seconds / done * (iterations - done) if done else None
    return RunProgress(len(lines), iterations, share, frames, seconds, _pace(trained), left)


def _pace(trained: Sequence[EpisodeNow]) -> float | None:
    """Return the frames of training a second over the newest episodes."""
    newest: deque[EpisodeNow] = deque()
    for each in reversed(trained):
        newest.appendleft(each)
        if newest[-1].seconds - each.seconds > _PACE:
            break
    if len(newest) < 2 or newest[-1].seconds <= newest[0].seconds:
        return None
    return (newest[-1].frames - newest[0].frames) / (newest[-1].seconds - newest[0].seconds)
