"""A run as it goes on: its facts, its progress, its iterations, episodes and scalars, and what it showed last."""

from __future__ import annotations

import json
import re
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from async_wrappers.agents.experiment.lock import LOCK, holder_in, is_in_use
from async_wrappers.agents.experiment.metrics import EPISODES, read_evaluations, read_facts, read_iterations
from async_wrappers.agents.play.play import EpisodeRow
from async_wrappers.agents.sweep.plan import PLAN
from async_wrappers.agents.sweep.runs import RecordedRun, read_bindings, recorded
from async_wrappers.agents.watch.live import PLACES, Live, picture_path, read_live
from async_wrappers.agents.watch.reading import Appended, Changed, Problems
from async_wrappers.agents.watch.scalars import Series, read_scalars
from async_wrappers.files import refuse_damage

RUNNING, FINISHED, STOPPED = "running", "finished", "stopped"
_OF_A_RUN = ("config.gin", "metrics", EPISODES, *map(str, PLACES))
_LOG_LINES = 12
_TAIL = 65_536  # bytes of a log, or of blocks of hosts
_PACE = 30.0  # seconds that the pace is of
_SILENT = 5.0  # seconds without a snapshot after which a live run counts as ended


class EpisodeNow(NamedTuple):
    """An episode that is over; see `async_wrappers.agents.play.play.EpisodeRow`."""

    phase: str
    episode: int
    score: float
    length: int
    frames: int
    seconds: float
    won: bool | None


@dataclass(frozen=True)
class Progress:
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


@dataclass(frozen=True)
class Host:
    """Blocks that came from a host, of the newest ones: how many, how many were learnt from, version of the weights."""

    name: str
    blocks: int
    learnt: int
    version: int


@dataclass(frozen=True)
class Run:
    """What is known of a run.

    Attributes:
        directory: Its ``--base_dir``.
        state: ``"running"``, ``"finished"`` or ``"stopped"``.
        recorded: Facts, bindings and iterations.
        progress: How far it is.
        episodes: That are over, in order.
        scalars: By their tags in TensorBoard.
        evaluations: Made beside it.
        report: Rows of its closing table.
        live: What it showed last, where it is live.
        picture: Path of its newest observation, where it is live and that is an image.
        videos: Of evaluation episodes, the newest last.
        hosts: Those that sent blocks.
        log: The last lines of its log.
        changed: Seconds since it has written anything; None where nothing is known.
        holder: The process that runs, on this machine.
        problems: Sentences on files that could not be read.
    """

    directory: Path
    state: str
    recorded: RecordedRun
    progress: Progress
    episodes: Sequence[EpisodeNow]
    scalars: Mapping[str, Series]
    evaluations: Sequence[Mapping[str, Any]]
    report: Sequence[Mapping[str, Any]]
    live: Live | None = None
    picture: Path | None = None
    videos: Sequence[Path] = ()
    hosts: Sequence[Host] = ()
    log: Sequence[str] = ()
    changed: float | None = None
    holder: int | None = None
    problems: Sequence[str] = field(default=())

    @property
    def name(self) -> str:
        """The directory's name; of a trial, that of its sweep before it."""
        place = self.directory.resolve()
        return f"{place.parents[1].name}/{place.name}" if place.parent.name == "trials" else place.name

    @property
    def trained(self) -> int:
        """The episodes of training that are over."""
        return sum(each.phase == "train" for each in self.episodes)

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest iteration's statistics; empty before."""
        return self.recorded.lines[-1] if self.recorded.lines else {}


def is_run(directory: Path) -> bool:
    """Return whether a directory is that of a run, also of one that has only begun."""
    if (directory / PLAN).is_file():
        return False
    if any((directory / name).exists() for name in _OF_A_RUN):
        return True
    return (directory / LOCK).is_file() and is_in_use(directory)


def read_run(directory: Path) -> Run:
    """Return what is known of a run; files that are missing are empty, and damaged ones are sentences."""
    problems = Problems()
    facts = problems.of(_facts, None, directory / "metrics" / "run.json") or {}
    bindings = problems.of(_bindings, None, directory / "config.gin") or {}
    lines = problems.of(_iterations, None, directory / "metrics" / "iterations.jsonl") or []
    episodes = problems.of(_episodes, None, directory / EPISODES)
    kept = [] if episodes is None else episodes.rows
    report = problems.of(_report, None, directory / "report.json") or []
    evaluations = problems.of(_evaluations, None, directory / "metrics" / "evaluations.jsonl")
    log = problems.of(_log, None, directory / "log.txt")
    live = problems.of(read_live, None, directory)
    state = RUNNING if is_in_use(directory) else FINISHED if report else STOPPED
    if state == STOPPED and live is not None and not bindings:  # of an `AsyncRunner` alone, which locks nothing
        state = FINISHED if live.over else RUNNING if live.age < _SILENT else STOPPED
    return Run(
        directory,
        state,
        recorded(directory, facts, bindings, lines),
        _progress(facts, lines, kept, live),
        kept,
        problems.of(read_scalars, {}, directory),
        evaluations or [],
        report,
        live,
        picture_path(directory),
        problems.of(_videos, [], directory),
        problems.of(_hosts, [], directory),
        log or [],
        problems.of(_seconds_since, None, directory),
        holder_in(directory),
        tuple(problems),
    )


_facts = Changed(lambda path: read_facts(path.parents[1]))
_bindings = Changed(lambda path: read_bindings(path.parent))
_iterations = Changed(lambda path: _numbered(path, read_iterations(path.parents[1])))
_evaluations = Changed(lambda path: read_evaluations(path.parents[1]))


def _numbered(path: Path, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of iterations if each has its number and its frames."""
    with refuse_damage(path, "remove the lines that are no iterations"):
        return [{**line, "iteration": int(line["iteration"]), "frames": int(line["frames"])} for line in lines]


class _Rows:
    """The rows of ``episodes.csv`` so far."""

    def __init__(self) -> None:
        self.rows: list[EpisodeNow] = []


def _add_rows(kept: _Rows, data: bytes) -> int:
    """Add the whole lines of new bytes; a line that is no row is left out, as when a run is resumed."""
    whole = data.rpartition(b"\n")[0] + b"\n" if b"\n" in data else b""
    for line in whole.decode(errors="replace").splitlines():
        cells = line.split(",")
        if len(cells) != len(EpisodeRow._fields) or not cells[1].isdigit():
            continue
        row = dict(zip(EpisodeRow._fields, cells, strict=True))
        try:
            numbers = int(row["episode"]), float(row["score"]), int(row["length"]), int(row["frames"])
            won = None if row["won"] == "" else row["won"] == "1"
            kept.rows.append(EpisodeNow(row["phase"], *numbers, float(row["seconds"]), won))
        except ValueError:
            continue
    return len(whole)


_episodes = Appended(_Rows, _add_rows)


def _parse_report(path: Path) -> list[dict[str, Any]]:
    with refuse_damage(path, "remove it, and let the run go on: it writes another one"):
        return [{**row, "mean": float(row["mean"]), "agent": str(row["agent"])} for row in json.loads(path.read_text())]


_report = Changed(_parse_report)


def _tail(path: Path) -> list[str]:
    """Return the last lines of a file."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _TAIL, 0))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[1:] if size > _TAIL else lines


_log = Changed(lambda path: _tail(path)[-_LOG_LINES:])
_blocks = Changed(_tail)


def _hosts(directory: Path) -> list[Host]:
    counts: Counter[str] = Counter()
    learnt: Counter[str] = Counter()
    versions: dict[str, int] = {}
    for path in sorted((directory / "metrics").glob("blocks*.jsonl")):
        for line in _blocks(path) or []:
            with refuse_damage(path, "remove the lines that are no JSON objects"):
                block = json.loads(line)
                name = str(block["host"])
                counts[name] += 1
                learnt[name] += bool(block.get("learnt", True))
                versions[name] = max(versions.get(name, 0), int(block.get("version") or 0))
    return [Host(name, counts[name], learnt[name], versions[name]) for name in sorted(counts)]


def _videos(directory: Path) -> list[Path]:
    return sorted((directory / "videos").glob("*.mp4"), key=lambda path: (path.stat().st_mtime, path.name))


def _seconds_since(directory: Path) -> float | None:
    """Return how long ago a run has written anything."""
    tensorboard = (directory / "metrics" / "tensorboard").glob("events*")
    written = (directory / EPISODES, directory / "metrics" / "iterations.jsonl", directory / "log.txt", *tensorboard)
    times = [path.stat().st_mtime for path in written if path.is_file()]
    return max(time.time() - max(times), 0.0) if times else None


# How far it is.


def _progress(
    facts: Mapping[str, str], lines: Sequence[Mapping[str, Any]], episodes: Sequence[EpisodeNow], live: Live | None
) -> Progress:
    planned = re.match(r"(\d+), each of ([\d,]+) training frames", facts.get("iterations", ""))
    counted = re.match(r"\d+", facts.get("iterations", ""))
    iterations = int(counted[0]) if counted else 0
    each = int(planned[2].replace(",", "")) if planned else 0
    begun = lines[-1]["frames"] if lines else 0
    trained = [each for each in episodes[-1000:] if each.phase == "train"]
    frames = max(begun, trained[-1].frames if trained else 0)
    if live is not None and live.facts.get("phase") == 0 and not (live.over and lines):
        frames = max(frames, begun + int(live.facts["frames"]))
    seconds = episodes[-1].seconds if episodes else 0.0
    within = min((frames - begun) / each, 1.0) if each else 0.0
    share = min((len(lines) + within) / iterations, 1.0) if iterations else None
    left = None
    if share and share < 1 and seconds:
        done = len(lines) + (within if trained else 0.0)
        left = seconds / done * (iterations - done) if done else None
    return Progress(len(lines), iterations, share, frames, seconds, _pace(trained), left)


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
