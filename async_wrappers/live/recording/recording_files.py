"""A recording on disk: a directory that NumPy alone reads, and that stays readable whatever is killed.

``recording.json`` tells the frame rate and the spaces. Each ``episode-000000.npy`` is an array of rows
(`async_wrappers.live.recording.frame_rows.RowLayout`), one for each frame in a row, and a last one with the
observation after them. A file is appended to under the name ``episode-000000.npy.part``, and renamed when its episode
has ended. Where the writer is killed before, the part's whole rows are read. Where rows were dropped a new file begins,
so that the frames of a file always follow each other.

A finished file is read as it was written, or refused. Its header, of a fixed length, states how many rows it has and
ends in a comment, which NumPy reads over: the CRC-32 of the rows and of the header before it. Both are written in their
place when the file is finished, which needs no room on a full disk. ``recording.json`` has a checksum of its own.
Format 1 had neither.
"""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from collections.abc import Mapping
from itertools import pairwise
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from async_wrappers.files import naming, sync_directory, write_text_atomically
from async_wrappers.live.recording.frame_rows import RowLayout, Rows
from async_wrappers.version import __version__

FACTS = "recording.json"
_FORMAT = 2
_PART = ".part"
_PLACE = "number", "frame"
_NAME = re.compile(r"episode-\d{6,}\.npy(\.part)?")
_FLUSHED = 32 * 2**20  # bytes after which a file is flushed to disk, so that its end does not wait for all of it
_COMMENT, _DIGITS = "# crc32 ", 19  # digits that a number of rows may have
_CHECKSUM = 9  # bytes at the end of a header: eight digits and a line feed
_MOST_ENTRIES = 2**28  # of a space; more were never recorded, and a damaged shape must not take all memory


class NoDirectory(ValueError):
    """A recording's directory cannot be made; the message is one sentence."""


class EpisodeFiles:
    """Writes rows into a new directory, a file for each episode.

    Args:
        directory: A new one, or an empty one.
        layout: Of the rows.
        facts: Plain data for ``recording.json``.

    Attributes:
        frames: How many can be read back: the last row of a file is no frame, it has the observation after them.

    Raises:
        NoDirectory: The directory has something in it, or cannot be written.
    """

    def __init__(self, directory: Path, layout: RowLayout, facts: Mapping[str, Any]) -> None:
        self._directory, self._dtype, self._empty = directory, layout.dtype, _header(layout.dtype, 0)
        named = f"record={str(directory)!r}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise NoDirectory(f"{named} must be a new directory, but there is something in it: choose another")
            described = {
                "format": _FORMAT,
                "version": __version__,
                "observation_space": space_as_json(layout.observation_space),
                "action_space": space_as_json(layout.action_space),
                **facts,
            }
            described["checksum"] = _checksum_of(described)
            write_text_atomically(directory / FACTS, json.dumps(described, indent=1) + "\n")
        except OSError as error:
            raise NoDirectory(f"{named} cannot be written ({error.strerror or error}): choose another") from None
        self._file: io.FileIO | None = None
        self.frames = self._files = self._written = self._flushed = self._checksum = 0
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
            self._written, self._flushed, self._checksum = 0, 0, 0
            with naming(self._path(_PART)):
                self._written = _write_all(self._file, self._empty)
        size, content = self._dtype.itemsize, rows.view(np.uint8).data
        with naming(self._path(_PART)):
            try:
                _write_all(self._file, content)
            except OSError:
                self._note(content[: (self._file.tell() - self._written) // size * size])
                raise
            self._note(content)
            if self._written - self._flushed >= _FLUSHED:
                os.fdatasync(self._file.fileno()) if hasattr(os, "fdatasync") else os.fsync(self._file.fileno())
                self._flushed = self._written
        self._last = int(rows["number"][-1]), int(rows["frame"][-1])

    def _note(self, written: memoryview) -> None:
        """Note that the bytes of whole rows are in the file."""
        rows = len(written) // self._dtype.itemsize
        self.frames += rows - bool(rows and self._written == len(self._empty))  # the file's last row is no frame
        self._checksum = zlib.crc32(written, self._checksum)
        self._written += len(written)

    def _finish(self) -> None:
        """Write number and checksum of the rows into the file's header, and name it; without a row it is deleted."""
        file, self._file = self._file, None
        if file is None:
            return
        part, rows = self._path(_PART), (self._written - len(self._empty)) // self._dtype.itemsize
        with file, naming(part):
            if rows > 0:
                file.truncate(self._written)
                file.seek(0)
                _write_all(file, _header(self._dtype, rows, self._checksum))
                os.fsync(file.fileno())
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


def _header(dtype: np.dtype[Any], rows: int, checksum: int = 0) -> bytes:
    """Return the header of an array file, whose length does not depend on the number of rows.

    Args:
        dtype: Of the rows.
        rows: How many there are.
        checksum: CRC-32 of their bytes.
    """
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows,)}
    text = str(described).ljust(len(str({**described, "shape": (10**_DIGITS,)})))
    magic = np.lib.format.magic(2, 0)
    length = len(magic) + 4 + len(text) + len(_COMMENT) + _CHECKSUM
    padding = -length % 64  # the rows begin at a multiple of 64 bytes, where memory is mapped well
    size = length + padding - len(magic) - 4
    before = magic + size.to_bytes(4, "little") + f"{text}{' ' * padding}{_COMMENT}".encode("latin1")
    return before + b"%08x\n" % zlib.crc32(before, checksum)


def episode_paths(directory: Path) -> list[Path]:
    """Return the files of a recording's episodes, in order; a part only where its episode's finished file is not."""
    found = {path.name: path for path in directory.iterdir() if _NAME.fullmatch(path.name)}
    return [path for name, path in sorted(found.items()) if not is_part(path) or name.removesuffix(_PART) not in found]


def is_part(path: Path) -> bool:
    """Return whether an episode's file was not finished."""
    return path.suffix == _PART


def count_frames(directory: Path, dtype: np.dtype[Any]) -> int:
    """Return how many frames lie in the files that a writer, which has ended, left in a recording's directory."""
    begin = len(_header(dtype, 0))
    return sum(max(0, (path.stat().st_size - begin) // dtype.itemsize - 1) for path in episode_paths(directory))


def read_rows(path: Path, dtype: np.dtype[Any]) -> Rows:
    """Return the rows of an episode's file, mapped into memory: all of a finished one, the whole ones of a part.

    What the rows hold is not looked at, except for their numbers (`check_content`).

    Raises:
        ValueError: The file is damaged, it is none, or its rows are others than `dtype`.
        OSError: It cannot be read.
    """
    if not path.is_file():  # to open a pipe would wait for its other end
        raise ValueError("it is no file")
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(_most_header(dtype))
    if is_part(path) and (size < len(_header(dtype, 0)) or not head.strip(b"\0")):
        return np.empty(0, dtype)  # its writer ended before the header was on the disk
    begin, shape, found = _read_header(head)
    if found != dtype:
        raise ValueError("its rows have other fields than recording.json says")
    count, rest = divmod(size - begin, dtype.itemsize)
    if not is_part(path) and (rest or shape != (count,)):
        raise ValueError(f"it states the shape {shape}, and has {(size - begin) / dtype.itemsize:g} rows")
    if not count:
        return np.empty(0, dtype)
    rows: Rows = np.asarray(np.memmap(path, dtype, "r", begin, (count,)))
    numbers = rows["number"]
    follows = (numbers == numbers[0] + np.arange(count)) & (numbers[0] > 0)
    if is_part(path):  # after a power cut its end may be zeros
        return rows[: count if follows.all() else int(np.argmin(follows))]
    if not follows.all() or rows["final"][:-1].any():
        raise ValueError("its rows do not follow each other")
    return rows


def check_content(path: Path, dtype: np.dtype[Any]) -> None:
    """Refuse a finished episode's file whose bytes are not those that were written; it has passed `read_rows`.

    Raises:
        ValueError: They are not.
        OSError: It cannot be read.
    """
    content = np.memmap(path, np.uint8, "r")
    begin, _, _ = _read_header(content[: _most_header(dtype)].tobytes())
    before, stated = content[: begin - _CHECKSUM], content[begin - _CHECKSUM : begin].tobytes()
    if stated != b"%08x\n" % zlib.crc32(before.data, zlib.crc32(content[begin:].data)):
        raise ValueError("its checksum is not that of its content")


def _most_header(dtype: np.dtype[Any]) -> int:
    """Return how long a header may be; format 1 left its padding to NumPy."""
    return len(_header(dtype, 0)) + 256


def _read_header(head: bytes) -> tuple[int, tuple[int, ...], np.dtype[Any]]:
    """Return the length of a header, the shape and the dtype that it states."""
    stream = io.BytesIO(head)
    try:
        np.lib.format.read_magic(stream)
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream, max_header_size=len(head))
    # From a damaged header, NumPy and Python's tokenizer raise errors of many types.
    except Exception as error:
        raise ValueError(f"its header is none of an array: {str(error).partition(chr(10))[0]}") from None
    return stream.tell(), shape, dtype


def read_facts(path: Path) -> dict[str, Any]:
    """Return what a ``recording.json`` holds.

    Raises:
        ValueError: It is damaged, or of another format.
        OSError: It cannot be read.
    """
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if facts["format"] not in (1, _FORMAT):
        raise ValueError(f"its format is {facts['format']}, of version {facts['version']}, and not {_FORMAT}")
    if facts["format"] == _FORMAT and facts.pop("checksum") != _checksum_of(facts):
        raise ValueError("its checksum is not that of its content")
    return facts


def _checksum_of(facts: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(facts).encode()):08x}"


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
    if prod(shape) > _MOST_ENTRIES:
        raise ValueError(f"a space has the shape {list(shape)}")
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
