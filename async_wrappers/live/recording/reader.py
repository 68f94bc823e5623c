"""`load_recording`: the episodes of a recorded live run, as arrays."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, overload

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from async_wrappers.files import path_of, refuse_damage
from async_wrappers.live.recording.frame_rows import RowLayout, Rows
from async_wrappers.live.recording.recording_files import (
    FACTS,
    check_content,
    episode_paths,
    is_part,
    read_facts,
    read_rows,
    space_of_json,
)
from async_wrappers.schedule.frames import as_fraction

_REMEDY = "delete it to read the others"
COLUMNS = ("frame", "deadline", "lateness", "late", "start", "delay", "lag", "default", "limited", "paused")


@dataclass(frozen=True)
class Episode:
    """T frames that follow each other: an episode, or a part of one where frames were dropped.

    Observations and actions are mapped into memory, and read from disk when they are used; those of a Dict or Tuple
    space are dicts or tuples of arrays.

    Attributes:
        observations: `[T + 1, *shape]`; the last one follows the last frame.
        drawn: `[T, *shape]`, the actions that were chosen: the policy's, or the default action.
        sent: `[T, *shape]`, the actions that the environment received; of a dry run, those that it would have received.
        rewards: float64 `[T]`.
        terminated: Whether the environment ended it; else it was cut, by a time limit, by the run's end or by a gap.
        columns: `[T]` each, by name: ``frame`` of the episode; ``deadline``, when it should have begun, in nanoseconds
            of the loop's clock, and ``lateness``, by how much later it did; ``late``, whether by more than half a
            frame; ``start``, the frame that the policy read, ``delay``, frames from there until the decision took
            effect, and ``lag``, the age of its weights in updates, each -1 where there is none; ``fresh``, ``chunk``
            and ``default``, whether the action is a new decision's, a going chunk's, or not the policy's; ``limited``,
            whether a limit changed it; ``paused``, of which no frame is fresh or of a chunk.
        phase: Number of the phase, 0 for training and 1 for evaluation where nothing else was given.
        number: Number of the episode in its phase.
        ages: By sensor, the age of its reading in seconds as each frame began, `[T + 1]`; empty where the environment
            reports none.
    """

    observations: Any
    drawn: Any
    sent: Any
    rewards: npt.NDArray[np.float64]
    terminated: bool
    columns: Mapping[str, npt.NDArray[Any]]
    phase: int
    number: int
    ages: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.rewards)

    def frames(self) -> dict[str, int]:
        """Return the counts of frames; see `Recording.frames`."""
        flags = {name: self.columns[name] for name in ("fresh", "chunk", "paused", "limited")}
        flags["default"] = self.columns["default"] & ~self.columns["paused"]
        flags["missed_deadlines"] = self.columns["late"]
        return {"total": len(self), **{name: int(flag.sum()) for name, flag in flags.items()}}


@dataclass(frozen=True)
class Recording(Sequence[Episode]):
    """A recorded run: a sequence of episodes.

    Attributes:
        directory: Where it is.
        observation_space: Of the environment.
        action_space: Of the environment.
        fps: Frames per second.
        facts: Everything else in ``recording.json``, such as ``dry_run``, which older ones do not have.
    """

    directory: Path
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    fps: Fraction
    facts: Mapping[str, Any]
    _paths: Sequence[Path] = field(repr=False)
    _unchecked: set[Path] = field(repr=False)  # finished files whose content has not been compared with its checksum

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Episode]: ...
    def __getitem__(self, index: int | slice) -> Episode | Sequence[Episode]:
        """Return an episode. The first time, all of its file is read, and compared with its checksum.

        Raises:
            ValueError: Its file is damaged.
        """
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        path = _finished(self._paths[index])
        layout = RowLayout(self.observation_space, self.action_space, self.sensors)
        with refuse_damage(path, _REMEDY):
            rows = read_rows(path, layout.dtype)
            if path in self._unchecked:
                check_content(path, layout.dtype)
                self._unchecked.discard(path)
            return _episode(rows, layout)

    @property
    def sensors(self) -> tuple[str, ...]:
        """Names of the sensors whose ages were recorded."""
        return tuple(self.facts.get("sensors", ()))

    @property
    def paths(self) -> list[Path]:
        """The episodes' files."""
        return [_finished(path) for path in self._paths]

    def frames(self) -> dict[str, int]:
        """Return the counts of frames over all episodes, by the names of a report's: total, fresh, chunk and so on.

        Frames of pauses are counted as paused alone. There is no chunk where no chunk has gone on.
        """
        counts: Counter[str] = Counter()
        for episode in self:
            counts.update(episode.frames())
        names = ("total", "fresh", "chunk", "default", "paused", "limited", "missed_deadlines")
        return {name: counts[name] for name in names if name != "chunk" or counts[name]}

    def delays(self) -> npt.NDArray[np.int64]:
        """Return the delay of each frame that received an action of the policy's, in frames, over all episodes."""
        found = [episode.columns["delay"][~episode.columns["default"]] for episode in self]
        return np.concatenate(found) if found else np.empty(0, np.int64)


def load_recording(directory: str | Path) -> Recording:
    """Return the recording in a directory that ``AsyncRunner(record=...)`` has written.

    Episodes whose writer was killed are there up to the last whole row. Episodes without a frame are left out. A
    finished file that is not as it was written is refused: here if its length, its header or the order of its rows is
    not, and where the episode is first used if its content is not. A warning says that recordings of format 1 have no
    checksums.

    Raises:
        ValueError: There is no recording, or a file is damaged.
    """
    if not isinstance(directory, str | Path):
        raise ValueError(f"directory must be that of a recording, a str or a Path, got {directory!r}")
    directory = path_of(directory)
    path = directory / FACTS
    if not path.is_file():
        raise ValueError(
            f"directory {str(directory)!r} must be a recording of AsyncRunner(record=...), but there is no {path}"
        )
    with refuse_damage(path, "it cannot be read without its frame rate and spaces"):
        facts = read_facts(path)
        checks = facts.pop("format") != 1
        observation_space, action_space = (
            space_of_json(facts.pop(f"{each}_space")) for each in ("observation", "action")
        )
        fps = as_fraction(facts.pop("fps"))
        if fps <= 0:
            raise ValueError(f"fps is {fps}")
        layout = RowLayout(observation_space, action_space, facts.get("sensors", ()))
    if not checks:
        sentence = f"{directory} is of format 1, without checksums: damage to the content of its rows is not noticed"
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)
    paths = []
    for each in map(_finished, episode_paths(directory)):
        with refuse_damage(each, _REMEDY):
            rows = read_rows(each, layout.dtype)
        if len(rows) > 1:
            paths.append(each)
    unchecked = {each for each in paths if checks and not is_part(each)}
    return Recording(directory, observation_space, action_space, fps, facts, paths, unchecked)


def _finished(path: Path) -> Path:
    """Return the path of an episode's file, whose writer may have finished it meanwhile."""
    finished = path.with_suffix("")
    return finished if is_part(path) and finished.is_file() else path


def _episode(rows: Rows, layout: RowLayout) -> Episode:
    """Return the episode of a file's rows; without a final row the last frame's observation is the last one."""
    frames = rows[:-1]
    last = frames[-1]
    columns = {name: np.array(frames[name]) for name in COLUMNS}
    lands = columns["frame"] == columns["start"] + columns["delay"]
    columns |= {"fresh": ~columns["default"] & lands, "chunk": ~columns["default"] & ~lands}
    return Episode(
        observations=_arrays(rows["observation"], layout.observation_space),
        drawn=_arrays(frames["drawn"], layout.action_space),
        sent=_arrays(frames["sent"], layout.action_space),
        rewards=np.array(frames["reward"]),
        terminated=bool(last["terminated"]),
        columns=columns,
        phase=int(last["phase"]),
        number=int(last["episode"]),
        ages={name: np.array(rows["ages"][:, place]) for place, name in enumerate(layout.sensors)},
    )


def _arrays(rows: Any, space: gym.Space[Any]) -> Any:
    """Return the values of a space over rows: an array, or a dict or tuple of these."""
    if isinstance(space, spaces.Dict):
        return {key: _arrays(rows[f"f{place}"], each) for place, (key, each) in enumerate(space.spaces.items())}
    if isinstance(space, spaces.Tuple):
        return tuple(_arrays(rows[f"f{place}"], each) for place, each in enumerate(space.spaces))
    return rows
