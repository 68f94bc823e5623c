"""Demonstrations in the layout of the paper's code: a pickle of (obs, action, reward, next_obs), frame by frame.

Riemer, Subbaraj, Berseth, Rish (arXiv 2412.14355): one file is one episode; its tuples hold no end.

A pickle is a program. This reader builds lists, tuples, dicts, numbers and strings, and runs nothing else. A name in
the pickle is looked up in the table below and never imported, and the table's stand-ins for NumPy's constructors take
only shapes, plain number types and bytes.

The program is read through before it is run: in eight bytes it can ask for gigabytes, and in a megabyte for more stack
than there is (`_check`). What is made of it may not be many times as large as the file either.
"""

from __future__ import annotations

import os
import pickle
import pickletools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
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
            size = file.tell()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): name a pickle of demonstrations") from None
    if not isinstance(tuples, list | tuple) or not tuples:
        raise ValueError(f"{path} must hold a list of (obs, action, reward, next_obs), got {_kind(tuples)}")
    rows, most = [], 2**20 + _GROWTH * size
    for number, each in enumerate(tuples):
        rows.append(row := _row(path, number, each, most))
        if (most := most - row[0].nbytes - row[3].nbytes) < 0:
            raise ValueError(
                f"{path} must hold each observation, but from its {size:,} bytes more than {_GROWTH} times as many "
                "would become, since it names the same ones again and again: write it anew"
            )
    episode: list[Row] = []
    for row in rows:
        floating = row[0].dtype.kind == "f"
        if episode and not np.array_equal(row[0], episode[-1][3], equal_nan=floating):
            yield _episode(episode)
            episode = []
        episode.append(row)
    yield _episode(episode)


_GROWTH = 64  # bytes of observations for a byte of the file; small whole numbers in lists become 8
_CONTENT = "a demonstration is lists, tuples, numbers and NumPy arrays of numbers"
_WHOLE = "pickle of (obs, action, reward, next_obs)"

Row = tuple[npt.NDArray[Any], int, float, npt.NDArray[Any]]


def _row(path: Path, number: int, entry: Any, most: int) -> Row:
    """Return the frame of an entry.

    Args:
        path: The file's, for the message.
        number: The entry's, for the message.
        entry: What the pickle has there.
        most: Bytes that an observation may take.

    Raises:
        ValueError: The entry is no frame.
    """
    try:
        observation, action, reward, following = map(plain, entry)
        observation, following = _array(observation, most), _array(following, most)
        numbers = all(each.dtype.kind in "biuf" for each in (observation, following))
        if not numbers or observation.shape != following.shape or int(action) != action:
            raise TypeError
        return observation, int(np.int64(int(action))), float(reward), following
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise ValueError(
            f"{path}: entry {number} must be (obs, action, reward, next_obs) with two arrays of numbers alike, a whole "
            "number of 64 bits and a number, "
            f"got {_kind(entry)}: real-valued actions are read from Minari datasets"
        ) from None


def _array(value: Any, most: int) -> npt.NDArray[Any]:
    """Return an array, or numbers in lists in lists, as an array.

    Raises:
        TypeError: It holds something else.
        ValueError: It would take more than `most` bytes.
    """
    if isinstance(value, np.ndarray):
        return value
    entries: dict[int, int] = {}  # of each list; lists that name the same lists grow with every level

    def count(part: Any) -> int:
        if not isinstance(part, list | tuple):
            if not isinstance(part, int | float | np.number | np.bool_):
                raise TypeError
            return 1
        if id(part) not in entries:
            entries[id(part)] = most  # where it lies in itself
            entries[id(part)] = sum(map(count, part))
        return entries[id(part)]

    if 8 * count(value) > most:
        raise ValueError
    return np.asarray(value)


def _episode(rows: Sequence[Row]) -> Demonstration:
    observations, actions, rewards, following = zip(*rows, strict=True)
    seen = np.stack([*observations, following[-1]])
    return Demonstration(seen, np.array(actions), np.array(rewards, np.float64), terminated=False)


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
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

    def __init__(self, *_: Any) -> None:
        self.array: npt.NDArray[Any] = np.empty(0)

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


def _list(entries: Sequence[Any] = (), most: int | None = None) -> list[Any]:
    """Stands for `collections.deque`: to free deques in deques takes a level of the stack for each."""
    return list(entries)


def _bytes(content: Any = b"", encoding: str = "latin-1") -> bytes:
    """Stands for `bytearray`, which makes any number of zeros of a number."""
    if not isinstance(content, bytes | str):
        raise _Refused(f"a bytearray of a {type(content).__name__}")
    return _latin(content, encoding) if isinstance(content, str) else content


class Function:
    """A function that a pickle may call and not change, as it may a function of Python's, with all its defaults."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call it."""
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise _Refused("a change of a function")


_NUMPY = (
    ("multiarray", "_reconstruct", PickledArray),
    ("multiarray", "scalar", Function(_scalar)),
    ("numeric", "_frombuffer", Function(_from_bytes)),
)
_ALLOWED: Mapping[tuple[str, str], Any] = {
    # A text, since it is only an argument, and nothing that could be called or changed.
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): _NumberType,
    ("collections", "deque"): Function(_list),
    ("_codecs", "encode"): Function(_latin),
    ("builtins", "bytearray"): Function(_bytes),
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
        file: A pickle, from its first byte to its last.
        path: The file's, for the messages.
        content: What such a pickle is made of, a sentence for the messages.
        whole: What the file should be, for the messages.
        stand_in: From a global's module and name, that the table above does not have, to what stands for it, a class or
            a `Function`; None refuses it. What it returns is called with whatever the pickle says.

    Raises:
        ValueError: The pickle asks for more than data, or is damaged.
    """
    try:
        _check(file, file.seek(0, os.SEEK_END))
        return _DataUnpickler(file, stand_in).load()
    except _Refused as refused:
        raise ValueError(f"{path} asks for {refused}, which is not loaded: {content}") from None
    # From a damaged pickle, an unpickler raises errors of any type.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{path} is no whole {whole} ({reason})") from None


_PUTS = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_GETS = ("GET", "BINGET", "LONG_BINGET")
_SPECIAL = (*_PUTS, *_GETS, "MARK", "FRAME")
_TUPLES = ("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3")
_DEEPEST = 100  # tuples in tuples
_MARK = -1


def _check(file: IO[bytes], size: int) -> None:
    """Refuse a program that would take more memory or stack than its data.

    - A place in the memo and a frame's length are numbers, for which memory is taken at once.
    - A key of a dict or a set is hashed, and each tuple in a tuple takes a level of the stack for that, without a
      limit. So the program is followed with the depth of each value, as a tuple, in the value's place.

    The file is at its beginning before and after.

    Raises:
        ValueError: The program is such a one, or none, or something follows it.
    """
    stack: list[int] = []
    memo: dict[int, int] = {}
    file.seek(0)
    # Without the file's `tell`, which `genops` would call a million times.
    program: Any = SimpleNamespace(read=file.read, readline=file.readline)
    steps: Iterator[tuple[Any, Any, Any]] = pickletools.genops(program)
    for number, (code, argument, _) in enumerate(steps):
        name = code.name
        if not code.stack_before and name not in _SPECIAL:
            stack += [0] * len(code.stack_after)
        elif name in _PUTS:
            put = len(memo) if name == "MEMOIZE" else argument
            if not 0 <= put <= number:
                raise ValueError(f"place {put:,} of its memo is beyond its length")
            memo[put] = stack[-1]
        elif name in _GETS:
            stack.append(memo[argument])
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "FRAME":
            if argument > size:
                raise ValueError("a frame is longer than the file")
        else:
            taken = [each.name for each in code.stack_before]
            depth = 0
            if "mark" in taken:
                while (top := stack.pop()) != _MARK:
                    depth = max(depth, top)
                taken = taken[: taken.index("mark")]
            for _ in taken:
                depth = max(depth, stack.pop())
            depth = depth + 1 if name in _TUPLES else 0
            if depth > _DEEPEST:
                raise ValueError(f"more than {_DEEPEST} tuples lie in each other")
            stack += [depth] * len(code.stack_after)
    if rest := size - file.tell():
        raise ValueError(
            f"{rest:,} bytes follow its end, and a file is one pickle: write what several hold as one list"
        )
    file.seek(0)
