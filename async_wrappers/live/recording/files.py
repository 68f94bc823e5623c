"""A recording on disk: a directory that NumPy alone reads, and that stays readable whatever is killed.

``recording.json`` tells the frame rate and the spaces. Each ``episode-000000.npy`` is an array of rows
(`async_wrappers.live.recording.rows.RowLayout`), one for each frame in a row, and a last one with the observation after
them. A file is appended to under the name ``episode-000000.npy.part``, and renamed when its episode has ended. Where
the writer is killed before, the part's whole rows are read. Where rows were dropped a new file begins, so that the
frames of a file always follow each other.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from async_wrappers.files import naming, sync_directory, write_text_atomically
from async_wrappers.live.recording.rows import RowLayout, Rows
from async_wrappers.version import __version__

__all__ = ["FACTS", "EpisodeFiles", "NoDirectory", "episode_paths", "read_rows", "space_as_json", "space_of_json"]

FACTS = "recording.json"
_PART = ".part"
_PLACE = "number", "frame"
_NAME = re.compile(r"episode-\d{6,}\.npy(\.part)?")
_FLUSHED = 32 * 2**20  # bytes after which a file is flushed to disk, so that its end does not wait for all of it


class NoDirectory(ValueError):
    """A recording's directory cannot be made; the message is one sentence."""


class EpisodeFiles:
    """Writes rows into a new directory, a file for each episode.

    Args:
        directory: A new one, or an empty one.
        layout: Of the rows.
        facts: Plain data for ``recording.json``.

    Attributes:
        frames: How many are in the files.

    Raises:
        NoDirectory: The directory has something in it, or cannot be written.
    """

    def __init__(self, directory: Path, layout: RowLayout, facts: Mapping[str, Any]) -> None:
        """See the class."""
        self._directory, self._dtype = directory, layout.dtype
        named = f"record={str(directory)!r}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise NoDirectory(f"{named} must be a new directory, but there is something in it: choose another")
            described = {
                "format": 1,
                "version": __version__,
                "observation_space": space_as_json(layout.observation_space),
                "action_space": space_as_json(layout.action_space),
                **facts,
            }
            write_text_atomically(directory / FACTS, json.dumps(described, indent=1) + "\n")
        except OSError as error:
            raise NoDirectory(f"{named} cannot be written ({error.strerror or error}): choose another") from None
        self._file: io.FileIO | None = None
        self.frames = self._files = self._written = self._flushed = 0
        self._last = 0, 0  # number and frame of the row that was written last

    def write(self, rows: Rows) -> None:
        """Append rows.

        Raises:
            OSError: They could not all be written; those that were stay.
        """
        # A file ends after a final row and before a gap.
        number, frame = (np.diff(rows[name], prepend=each) for name, each in zip(_PLACE, self._last, strict=True))
        follows = (number == 1) & (frame == 1)
        ends = np.flatnonzero(rows["final"]) + 1
        cuts = sorted({0, *map(int, ends), *map(int, np.flatnonzero(~follows)), len(rows)})
        for begin, end in pairwise(cuts):
            if not follows[begin]:
                self._finish()
            self._append(rows[begin:end])
            if rows["final"][end - 1]:
                self._finish()

    def close(self) -> None:
        """Finish the file of the running episode, also after an error."""
        self._finish()

    def _append(self, rows: Rows) -> None:
        if self._file is None:
            self._file = open(self._path(_PART), "xb+", buffering=0)  # noqa: SIM115
            self._written, self._flushed = _write_all(self._file, _header(self._dtype, 0)), 0
        with naming(self._path(_PART)):
            try:
                self._written += _write_all(self._file, rows.view(np.uint8).data)
            except OSError:
                self.frames += (self._file.tell() - self._written) // self._dtype.itemsize
                raise
            self.frames += len(rows) - bool(rows["final"][-1])
            if self._written - self._flushed >= _FLUSHED:
                os.fdatasync(self._file.fileno()) if hasattr(os, "fdatasync") else os.fsync(self._file.fileno())
                self._flushed = self._written
        self._last = int(rows["number"][-1]), int(rows["frame"][-1])

    def _finish(self) -> None:
        """Write the number of rows into the file's header, and give it its name; without a row it is deleted."""
        file, self._file = self._file, None
        if file is None:
            return
        with file, naming(self._path(_PART)):
            length = len(_header(self._dtype, 0))
            rows = (file.seek(0, os.SEEK_END) - length) // self._dtype.itemsize
            if rows > 0:
                file.truncate(length + rows * self._dtype.itemsize)
                file.seek(0)
                _write_all(file, _header(self._dtype, rows))
                os.fsync(file.fileno())
        part = self._path(_PART)
        if rows > 0:
            os.replace(part, self._path())
            sync_directory(self._directory)
            self._files += 1
        else:
            part.unlink()

    def _path(self, ending: str = "") -> Path:
        return self._directory / f"episode-{self._files:06d}.npy{ending}"


def _write_all(file: io.FileIO, data: Any) -> int:
    """Write all bytes, however many the system takes at once; return how many there were."""
    view = memoryview(data).cast("B")
    total = len(view)
    while len(view):
        view = view[file.write(view) :]
    return total


def _header(dtype: np.dtype[Any], rows: int) -> bytes:
    """Return the header of an array file; NumPy pads it so that its length does not depend on the number of rows."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows,)}
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(file, described)
    return file.getvalue()


def episode_paths(directory: Path) -> list[Path]:
    """Return the files of a recording's episodes, parts too, in order."""
    return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))


def read_rows(path: Path, dtype: np.dtype[Any]) -> Rows:
    """Return the rows of an episode's file, mapped into memory; of a part those that are whole.

    Raises:
        ValueError: The file is damaged, or its rows are others than `dtype`.
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        _, _, found = np.lib.format.read_array_header_2_0(file, max_header_size=1 << 20)
        begin = file.tell()
    if found != dtype:
        raise ValueError("its rows have other fields than recording.json says")
    count = (path.stat().st_size - begin) // dtype.itemsize
    if not count:
        return np.empty(0, dtype)
    rows: Rows = np.asarray(np.memmap(path, dtype, "r", begin, (count,)))
    numbers = rows["number"]
    # After a power cut the end of a file may be zeros.
    wrong = np.flatnonzero(numbers != numbers[0] + np.arange(count))
    whole = int(wrong[0]) if len(wrong) else count
    return rows[:whole] if numbers[0] > 0 else rows[:0]


# Spaces as JSON.


def space_as_json(space: Space[Any]) -> dict[str, Any]:
    """Return a space as plain data: a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these.

    Raises:
        ValueError: Another space.
    """
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": [[key, space_as_json(each)] for key, each in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [space_as_json(each) for each in space.spaces]}
    facts: dict[str, Any]
    if isinstance(space, spaces.Box):
        facts = {"kind": "Box", "low": _bound(space.low), "high": _bound(space.high), "shape": list(space.shape)}
    elif isinstance(space, spaces.Discrete):
        facts = {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    elif isinstance(space, spaces.MultiDiscrete):
        facts = {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    elif isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    else:
        raise ValueError(f"a space must be Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple, got {space}")
    return {**facts, "dtype": np.dtype(space.dtype).str}


def space_of_json(described: Mapping[str, Any]) -> Space[Any]:
    """Return the space that `space_as_json` described."""
    kind = described["kind"]
    if kind == "Dict":
        return spaces.Dict([(key, space_of_json(each)) for key, each in described["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([space_of_json(each) for each in described["spaces"]])
    if kind == "MultiBinary":
        return spaces.MultiBinary(described["n"])
    dtype: Any = np.dtype(described["dtype"]).type
    if kind == "Discrete":
        return spaces.Discrete(described["n"], start=described["start"], dtype=dtype)
    if kind == "MultiDiscrete":
        nvec, start = np.array(described["nvec"]), np.array(described["start"])
        return spaces.MultiDiscrete(nvec, dtype=dtype, start=start)
    shape = tuple(described["shape"])
    low, high = (_array(described[name], shape, dtype) for name in ("low", "high"))
    return spaces.Box(low, high, shape, dtype)


def _bound(values: npt.NDArray[Any]) -> Any:
    """Return a bound: a number where all entries are alike, else a flat list; infinities as text, as JSON has none."""
    alike = values.size > 0 and bool((values == values.flat[0]).all())
    entries = [each if isfinite(each) else str(each) for each in values.ravel()[: 1 if alike else None].tolist()]
    return entries[0] if alike else entries


def _array(bound: Any, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    entries = np.array(bound, object).astype(dtype)
    return entries.reshape(shape) if isinstance(bound, list) else np.full(shape, entries)
