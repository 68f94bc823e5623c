"""A recording of ``AsyncRunner(record=...)``: its frames by what they received, its longest gap, ages and deadlines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from async_wrappers.agents.watch.checked_values import clean
from async_wrappers.agents.watch.reading import Folder
from async_wrappers.live.recording.reader import Episode, Recording, load_recording
from async_wrappers.live.recording.recording_files import FACTS
from async_wrappers.live.report.shares import told

_MOST_BYTES = 1 << 34  # of an episode's file
_MOST_EPISODES = 1_000  # that are read; of more, the newest
_MOST_RETURNS = 8


@dataclass(frozen=True)
class EpisodeRead:
    """What one episode of a recording holds, in numbers.

    Attributes:
        frames: Counts of frames, by the names of a report.
        gap: Frames of the longest stretch without an action of the policy's, and the frame on which it begins.
        ages: How often an action of each age took effect, in frames.
        lateness: Nanoseconds, of each frame, `[T]`.
        score: Its return.
    """

    frames: Mapping[str, int]
    gap: tuple[int, int]
    ages: Mapping[int, int]
    lateness: Any = field(repr=False)
    score: float

    @classmethod
    def of(cls, recording: Recording, index: int) -> EpisodeRead:
        """Read an episode."""
        episode = recording[index]
        columns = episode.columns
        delays = columns["delay"][columns["fresh"]].tolist()
        return cls(episode.frames(), _gap(episode), Counter(delays), columns["lateness"], float(episode.rewards.sum()))


@dataclass(frozen=True)
class RecordingNow:
    """A recording, in words and numbers.

    Attributes:
        directory: Of the recording.
        lines: What it is, by name.
        ages: How often an action of each age took effect, in frames.
        problems: What could not be read.
    """

    directory: Path
    lines: Mapping[str, str]
    ages: Mapping[int, int]
    problems: Sequence[str]

    @property
    def name(self) -> str:
        """The directory's name."""
        return clean(self.directory.resolve().name)


def is_recording(folder: Folder) -> bool:
    """Return whether a directory is a recording."""
    return folder.has(FACTS)


def begun_at(folder: Folder) -> float:
    """Return when a recording was begun, in seconds since 1970."""
    return folder.written(FACTS) or 0.0


class Recordings:
    """Reads recordings; of the one that goes on only what is new is read again, episode by episode."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str, float | None], EpisodeRead] = {}

    def read(self, folder: Folder) -> RecordingNow:
        """Return what is in a recording; what cannot be read is a sentence."""
        folder.begin()
        episodes: list[EpisodeRead] = []
        lines: dict[str, str] = {}
        with folder.noted(folder.path / FACTS):
            folder.open(FACTS, 1 << 25).close()
            recording = load_recording(folder.path)
            episodes = self._episodes(folder, recording)
            lines = dict(_lines(recording, episodes))
        ages = sum((Counter(each.ages) for each in episodes), Counter[int]())
        return RecordingNow(folder.path, lines, {age: ages[age] for age in sorted(ages)}, tuple(folder.problems))

    def _episodes(self, folder: Folder, recording: Recording) -> list[EpisodeRead]:
        found = []
        for index, path in list(enumerate(recording.paths))[-_MOST_EPISODES:]:
            with folder.noted(path):
                folder.open(path.name, _MOST_BYTES).close()  # a regular file, and below what is watched
                key = str(path), path.name, folder.written(path.name)
                if key not in self._read:
                    self._read[key] = EpisodeRead.of(recording, index)
                found.append(self._read[key])
        return found


def _gap(episode: Episode) -> tuple[int, int]:
    """Return length and beginning of the longest stretch of default actions; frames of a pause are none."""
    columns = episode.columns
    missed = columns["default"] & ~columns["paused"]
    longest, frame = (0, 0), 0
    for is_missed, group in groupby(missed.tolist()):
        length = len(list(group))
        if is_missed and length > longest[0]:
            longest = length, frame
        frame += length
    return longest


def _lines(recording: Recording, episodes: Sequence[EpisodeRead]) -> Iterable[tuple[str, str]]:
    """Yield the lines of a summary, as a report has them, each with its name."""
    fps, counts = float(recording.fps), Counter[str]()
    for episode in episodes:
        counts.update(episode.frames)
    three = ("fresh", "chunk", "default") if counts["chunk"] else ("fresh", "default")
    paused = f", {counts['paused']} paused" if counts["paused"] else ""
    limited = f", {counts['limited']} limited" if counts["limited"] else ""
    shares = told({name: counts[name] for name in three})
    yield "frames", f"{counts['total']} at {fps:g} fps: {shares} ({counts['default']} frames){paused}{limited}"
    length, number = max(((each.gap[0], place) for place, each in enumerate(episodes)), default=(0, 0))
    if length:
        where = f"frame {episodes[number].gap[1]} of episode {number}"
        yield "gap", f"{length / fps:.2f} s without an action of the policy ({length} frames), from {where} on"
    ages = np.concatenate([np.empty(0), *(np.repeat([*each.ages], [*each.ages.values()]) for each in episodes)])
    if len(ages):
        spread = f"p50 {np.percentile(ages, 50):.2f}, p99 {np.percentile(ages, 99):.2f}, max {ages.max():.0f}"
        yield "delay", f"mean {ages.mean():.2f}, {spread} frames"
    late = np.concatenate([np.empty(0), *(each.lateness for each in episodes)]) / 1e6
    if len(late):
        p99, most = np.percentile(late, 99), late.max()
        yield "deadlines", f"{counts['missed_deadlines']} missed, lateness p99 {p99:.3f}, max {most:.3f} ms"
    scores = [each.score for each in episodes if math.isfinite(each.score)]
    shown = [f"{score:g}" for score in scores[:_MOST_RETURNS]] + ["..."] * (len(scores) > _MOST_RETURNS)
    yield "episodes", f"{len(episodes)}, returns {', '.join(shown)}" if shown else f"{len(episodes)}"
    names = "workers", "default_action"
    facts = [f"{name.replace('_', ' ')} {recording.facts[name]}" for name in names if name in recording.facts]
    yield "recorded", clean(", ".join([*facts, *(["a dry run"] if recording.facts.get("dry_run") else [])]))
