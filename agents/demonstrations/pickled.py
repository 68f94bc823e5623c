"""Demonstrations in the layout of the paper's code: a pickle of (obs, action, reward, next_obs), frame by frame.

Riemer, Subbaraj, Berseth, Rish (arXiv 2412.14355): one file is one episode; its tuples hold no end.

A pickle is a program. This reader builds lists, tuples, dicts, numbers and strings, and runs nothing else. A name in
the pickle is looked up in the table below and never imported, and the table's stand-ins for NumPy's constructors take
only shapes, plain number types and bytes.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.demonstrations.demonstration import Demonstration


def read_pickle(path: Path) -> Iterator[Demonstration]:
    """Yield the episodes of a pickled sequence of (obs, action, reward, next_obs).

    An episode begins at each ``obs`` that differs from the ``next_obs`` before it. The tuples hold no end, so each
    episode is truncated, which the published code's target without terminals amounts to.

    Raises:
        ValueError: The file asks for more than data, or holds other data.
    """
    try:
        with open(path, "rb") as file:
            tuples = load_data(file, path, _CONTENT, _WHOLE)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): name a pickle of demonstrations") from None
    if not isinstance(tuples, list | tuple | deque) or not tuples:
        raise ValueError(f"{path} must hold a list of (obs, action, reward, next_obs), got {_kind(tuples)}")
    rows = [_row(path, number, each) for number, each in enumerate(tuples)]
    episode: list[Row] = []
    for row in rows:
        if episode and not np.array_equal(row[0], episode[-1][3]):
            yield _episode(episode)
            episode = []
        episode.append(row)
    yield _episode(episode)


_CONTENT = "a demonstration is lists, tuples, numbers and NumPy arrays of numbers"
_WHOLE = "pickle of (obs, action, reward, next_obs)"

Row = tuple[npt.NDArray[Any], int, float, npt.NDArray[Any]]


def _row(path: Path, number: int, entry: Any) -> Row:
    """Return the frame of an entry.

    Raises:
        ValueError: The entry is no frame.
    """
    try:
        observation, action, reward, following = map(plain, entry)
        observation, following = np.asarray(observation), np.asarray(following)
        numbers = all(each.dtype.kind in "biuf" for each in (observation, following))
        if not numbers or observation.shape != following.shape or int(action) != action:
            raise TypeError
        return observation, int(action), float(reward), following
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{path}: entry {number} must be (obs, action, reward, next_obs) with two arrays of numbers alike, a whole "
            f"number and a number, got {_kind(entry)}: real-valued actions are read from Minari datasets"
        ) from None


def _episode(rows: Sequence[Row]) -> Demonstration:
    observations, actions, rewards, following = zip(*rows, strict=True)
    seen = np.stack([*observations, following[-1]])
    return Demonstration(seen, np.array(actions), np.array(rewards, np.float64), terminated=False)


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple | deque):
        kinds = [type(plain(each)).__name__ for each in list(value)[:4]]
        return f"a {type(value).__name__} of {len(value)} ({', '.join(kinds)})"
    return f"a {type(plain(value)).__name__}"


def plain(value: Any) -> Any:
    """Return the array that a `PickledArray` stands for, and anything else as it is."""
    return value.array if isinstance(value, PickledArray) else value


# The names that a pickle may use. NumPy's own constructors are not among them, because an array's state can declare its
# bytes to be pointers.


class _NumberType:
    """Stands for `numpy.dtype`: whole and floating numbers and truth values, of either byte order."""

    def __init__(self, name: str, align: bool = False, copy: bool = False) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in "biuf" or self.dtype.fields is not None or self.dtype.subdtype is not None:
            raise _Refused(f"arrays of numpy.{self.dtype}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class PickledArray:
    """Stands for `numpy.ndarray` while it is built."""

    array: npt.NDArray[Any]

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        self.array = _from_bytes(content, kind, shape, "F" if fortran else "C").array


def _from_bytes(
    content: bytes, kind: _NumberType, shape: Sequence[int], order: str = "C", axes: Sequence[int] | None = None
) -> PickledArray:
    """Stands for `numpy._core.numeric._frombuffer`; `axes` come with an order that is neither C's nor Fortran's."""
    built = PickledArray()
    built.array = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if order == "F" else "C")
    if order == "K" and axes is not None:
        built.array = built.array.transpose(axes)
    return built


def _scalar(kind: _NumberType, content: bytes) -> Any:
    """Stands for `numpy._core.multiarray.scalar`."""
    return np.frombuffer(content, kind.dtype)[0]


def _latin(text: str, encoding: str) -> bytes:
    """Stands for `_codecs.encode`, with which old protocols write bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise _Refused(f"_codecs.encode to {encoding!r}")
    return text.encode("latin-1")


_NUMPY = (
    ("multiarray", "_reconstruct", PickledArray),
    ("multiarray", "scalar", _scalar),
    ("numeric", "_frombuffer", _from_bytes),
)
_ALLOWED: Mapping[tuple[str, str], Any] = {
    # A text, since it is only an argument, and nothing that could be called or changed.
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): _NumberType,
    ("collections", "deque"): deque,
    ("_codecs", "encode"): _latin,
    ("builtins", "bytearray"): bytearray,
    # NumPy 2 renamed the package core to _core.
    **{(f"numpy.{core}.{module}", name): stands for core in ("_core", "core") for module, name, stands in _NUMPY},
}


class _Refused(Exception):
    """The pickle names something other than data; the message is the name."""


StandIn = Callable[[str, str], Any]


def _none(module: str, name: str) -> Any:
    return None


class _DataUnpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], stand_in: StandIn) -> None:
        super().__init__(file)
        self._stand_in = stand_in

    def find_class(self, module: str, name: str) -> Any:
        found = _ALLOWED.get((module, name)) or self._stand_in(module, name)
        if found is None:
            raise _Refused(f"the global {module}.{name}")
        return found


def load_data(file: IO[bytes], path: Path, content: str, whole: str, stand_in: StandIn = _none) -> Any:
    """Return what a pickle holds; its arrays are `PickledArray`, see `plain`.

    Args:
        file: Read to the pickle's end.
        path: The file's, for the messages.
        content: What such a pickle is made of, a sentence for the messages.
        whole: What the file should be, for the messages.
        stand_in: From a global's module and name, that the table above does not have, to what stands for it; None
            refuses it. What it returns is called with whatever the pickle says.

    Raises:
        ValueError: The pickle asks for more than data, or is damaged.
    """
    try:
        return _DataUnpickler(file, stand_in).load()
    except _Refused as refused:
        raise ValueError(f"{path} asks for {refused}, which is not loaded: {content}") from None
    # From a damaged pickle, an unpickler raises errors of any type.
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{path} is no whole {whole} ({what})") from None
