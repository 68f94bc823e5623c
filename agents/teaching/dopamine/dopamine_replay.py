"""Dopamine's replay, read back as episodes: ``$store$_observation_ckpt.N.gz`` and its neighbours.

Each file is an array of NumPy's under gzip, one row per step, in a ring whose cursor is ``add_count % capacity``. A row
holds an observation, the action that it led to, that action's reward, and whether the game ended with it; the next
observation is the next row's. An episode begins with k - 1 rows of zeros, k being the number of stacked observations::

    row          0 0 0 | o0 o1 o2 o3 | 0 0 0 | o0 o1 ...
    terminal     . . . |  .  .  .  T | . . . |  .  .

`DopamineReplay.episodes` ends episodes as follows:

- The observation after a terminal row is not kept; its row stands there again, and no target reads it.
- An episode that was cut, or is still running, ends with its last row as its last transition's next observation.
- The oldest episode of a full ring, whose beginning has been overwritten, is left out.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.demonstrations.pickled import load_data
from async_wrappers.agents.replay.ring import FINAL, STEP, TERMINAL
from async_wrappers.agents.spaces.schema import Arrays

_STORED = ("observation", "action", "reward", "terminal")
_BLOCK = 1024  # rows read at a time
_MOST_ENDS = 2**28  # bytes of a pickle of rows; a few of gzip's can be as many zeros as one likes


def find_replay(directory: Path, number: int) -> tuple[Path, int] | str:
    """Return the place of a checkpoint's replay and its number, or a message on what was found instead.

    Published checkpoints have it in a neighbouring directory, ``replay_logs``, whose numbers count every fourth
    iteration.
    """
    for place, count in ((directory, number), (directory.parent / "replay_logs", (number + 1) // 4)):
        if _file(place, "$store$_observation", count).is_file():
            return place, count
    if (directory / str(number) / "replay").is_dir():
        return " (Dopamine 4 keeps n-step transitions in checkpoint.msgpack, which is not read)"
    return f" (no $store$_observation_ckpt.{number}.gz)"


def _file(directory: Path, name: str, number: int) -> Path:
    return directory / f"{name}_ckpt.{number}.gz"


class DopamineReplay:
    """A replay as Dopamine's ``OutOfGraphReplayBuffer`` saves it, prioritised or not.

    Args:
        directory: Where its files lie.
        number: Their number.
        stack_size: k.

    Raises:
        ValueError: A file is missing, torn, or holds something else.
    """

    def __init__(self, directory: Path, number: int, stack_size: int) -> None:
        self._paths = {name: _file(directory, f"$store$_{name}", number) for name in _STORED}
        self._stack_size = stack_size
        self._steps = {name: _whole(self._paths[name]) for name in _STORED[1:]}
        self.observation_shape = _GzippedRows(self._paths["observation"]).shape[1:]
        path = _file(directory, "add_count", number)
        count = _whole(path)
        if count.shape != () or count.dtype.kind not in "iu" or count < 0:
            raise ValueError(f"{path} must hold a count, got {count.dtype} of shape {list(count.shape)}")
        self.capacity = _GzippedRows(self._paths["observation"]).shape[0]
        for name, column in self._steps.items():
            if column.shape != (self.capacity,) or column.dtype.kind not in "biuf":
                raise ValueError(
                    f"{self._paths[name]} must hold {self.capacity} numbers, as many as there are observations, got "
                    f"{column.dtype} of shape {list(column.shape)}"
                )
        added = int(count)
        self._cursor = added % self.capacity if added > self.capacity else 0  # the oldest row
        self._rows = min(added, self.capacity)
        self._overwritten = added > self.capacity
        self._ends = self._steps["terminal"].astype(bool)
        path = _file(directory, "episode_end_indices", number)
        self._knows_cuts = path.is_file()  # before 2020, Dopamine did not keep where episodes were cut
        if self._knows_cuts:
            ends = np.array(sorted(_indices(path)), np.int64)
            if len(ends) and (ends[0] < 0 or ends[-1] >= self.capacity):
                raise ValueError(f"{path} must hold rows below {self.capacity}, got {ends[0]} to {ends[-1]}")
            self._ends[ends] = True

    def check(self, shape: tuple[int, ...], actions: int) -> None:
        """Refuse other observations or actions than a teacher's.

        Raises:
            ValueError: Names both.
        """
        if _without_ones(self.observation_shape) != _without_ones(shape):
            raise ValueError(
                f"{self._paths['observation']} must hold observations {list(shape)}, as its teacher reads, got "
                f"{list(self.observation_shape)}"
            )
        order = self._order()
        action = self._steps["action"][order]
        if len(order) and (action.min() < 0 or action.max() >= actions):
            raise ValueError(
                f"{self._paths['action']} must hold actions below {actions}, its teacher's, got {action.max()}"
            )

    def ends(self) -> list[int]:
        """Return the rows with which episodes end, oldest first."""
        order = self._order()
        return [int(row) for row in order[self._ends[order]]]

    @property
    def newest_is_terminal(self) -> bool:
        """Whether the game ended with the newest row."""
        return bool(self._rows and self._steps["terminal"][self._order()[-1]])

    def episodes(self) -> Iterator[tuple[npt.NDArray[Any], Arrays]]:
        """Yield episodes of T transitions, oldest first: T + 1 observations, and columns of T + 1 rows.

        The columns are those of `Replay.episodes`: ``kind``, ``action``, ``reward``, ``interval``, the last row being
        the final observation's.

        Raises:
            ValueError: The file of observations is torn.
        """
        run: list[npt.NDArray[Any]] = []
        rows: list[int] = []
        padding = self._stack_size - 1
        # Where the oldest row has been overwritten, nothing is known before the first end.
        skip = self.capacity if self._overwritten else padding
        zeros = 0
        for row, observation in self._observations():
            blank = not (
                observation.any() or self._steps["action"][row] or self._steps["reward"][row] or self._ends[row]
            )
            zeros = zeros + 1 if blank else 0
            if not self._knows_cuts and padding and zeros == padding and skip == 0:
                # Only a cut episode is followed by the padding of the next without an end.
                del run[len(run) - padding + 1 :], rows[len(rows) - padding + 1 :]
                yield from _episode(run, rows, self._steps, terminal=False)
                run, rows = [], []
                continue
            if skip:
                skip = padding if self._ends[row] else skip - 1
                continue
            run.append(observation)
            rows.append(row)
            if self._ends[row]:
                yield from _episode(run, rows, self._steps, terminal=bool(self._steps["terminal"][row]))
                run, rows, skip = [], [], padding
        yield from _episode(run, rows, self._steps, terminal=False)

    def _order(self) -> npt.NDArray[np.int64]:
        """Return the rows, oldest first."""
        return (self._cursor + np.arange(self._rows)) % self.capacity

    def _observations(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield rows and their observations, oldest first: a million images do not fit into memory twice."""
        path = self._paths["observation"]
        for first, last in ((self._cursor, self._rows), (0, self._cursor)):
            yield from enumerate(_GzippedRows(path).read(first, last, to_end=last == self._rows), first)


def _episode(
    run: list[npt.NDArray[Any]], rows: list[int], steps: Mapping[str, npt.NDArray[Any]], terminal: bool
) -> Iterator[tuple[npt.NDArray[Any], Arrays]]:
    if terminal:
        run, rows = [*run, run[-1]], [*rows, rows[-1]]
    if len(rows) < 2:
        return
    kind = np.full(len(rows), STEP, np.uint8)
    kind[-1] = FINAL
    if terminal:
        kind[-2] = TERMINAL
    columns: Arrays = {
        "kind": kind,
        "action": steps["action"][rows].astype(np.int64),
        "reward": steps["reward"][rows].astype(np.float64),
        "interval": np.ones(len(rows), np.int64),
    }
    yield np.stack(run), columns


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


# The files.

_TORN = (OSError, EOFError, ValueError, MemoryError, zlib.error)


class _GzippedRows:
    """An array of NumPy's under gzip, read row by row.

    Raises:
        ValueError: It is missing, torn, or no array of numbers.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened():
            pass

    def _opened(self) -> Any:
        """Open the file after the array's header, and keep the header's values."""
        try:
            file = gzip.open(self._path, "rb")  # noqa: SIM115 - the caller closes it
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, fortran, self.dtype = read(file)
        except _TORN as error:
            raise _torn(self._path, error) from None
        if self.dtype.kind not in "biuf" or self.dtype.names is not None or (fortran and len(self.shape) > 1):
            raise ValueError(f"{self._path} must hold an array of numbers, row by row, got one of {self.dtype}")
        return file

    def read(self, first: int, last: int, to_end: bool) -> Iterator[npt.NDArray[Any]]:
        """Yield the rows from `first` to before `last`; `to_end` reads on to the file's checksum."""
        if first == last:
            return
        size = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        with self._opened() as file:
            row = 0
            while row < last:
                count = min(_BLOCK, (first if row < first else last) - row)
                content = _read(self._path, file, count * size)
                if row >= first:
                    yield from np.frombuffer(content, self.dtype).reshape(count, *self.shape[1:])
                row += count
            while to_end and _read(self._path, file, _BLOCK * size, partial=True):
                pass


def _read(path: Path, file: Any, size: int, partial: bool = False) -> bytes:
    try:
        content: bytes = file.read(size)
    except _TORN as error:
        raise _torn(path, error) from None
    if len(content) != size and not partial:
        raise _torn(path, EOFError(f"{size - len(content)} bytes are missing"))
    return content


def _whole(path: Path) -> npt.NDArray[Any]:
    """Return a whole array."""
    try:
        with gzip.open(path, "rb") as file:
            array: npt.NDArray[Any] = np.load(file, allow_pickle=False)
    except _TORN as error:
        raise _torn(path, error) from None
    return array


def _indices(path: Path) -> set[int]:
    """Return a pickled set of row numbers."""
    what = "the ends of episodes are a set of whole numbers"
    try:
        with gzip.open(path, "rb") as file:
            if len(content := file.read(_MOST_ENDS + 1)) > _MOST_ENDS:
                raise ValueError(f"{path} must hold the ends of episodes, got more than {_MOST_ENDS:,} bytes")
            found = load_data(io.BytesIO(content), path, what, "pickle of the ends of episodes", _stand_in)
    except _TORN as error:
        raise error if type(error) is ValueError else _torn(path, error) from None
    if not isinstance(found, set) or not all(isinstance(each, int | np.integer) for each in found):
        raise ValueError(f"{path} must hold a set of whole numbers, got a {type(found).__name__}")
    return {int(each) for each in found}


def _stand_in(module: str, name: str) -> Any:
    return set if (module, name) in (("builtins", "set"), ("__builtin__", "set")) else None


def _torn(path: Path, error: BaseException) -> ValueError:
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
    return ValueError(f"{path} is no whole array of Dopamine's replay ({reason}): copy it again")
