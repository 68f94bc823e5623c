"""Weights in two shared copies: learners write one while workers read the other in place.

Version n of the weights lies in copy n mod 2. A copy's generation is odd while it is written; a worker notes it before
an inference and checks it after: if it has changed, the inference may have mixed two versions, and its action is
discarded. N workers cost no N copies of a large model.

Tensors lie there as NumPy arrays of the same bytes; torch is imported only where there are tensors.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from async_wrappers.fleet.block import Block

Array = npt.NDArray[Any]
_ALIGNMENT = 64  # bytes


class _Entry(NamedTuple):
    """Place of one array in a copy: strides in bytes, and its torch type's name (None for NumPy arrays)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    torch_dtype: str | None


@dataclass(frozen=True)
class WeightsLayout:
    """Name, type, shape and memory format of each array, in the order in which they lie; picklable."""

    entries: tuple[_Entry, ...]
    size: int

    @classmethod
    def of(cls, weights: Mapping[str, Any]) -> WeightsLayout:
        """Return the layout of tensors or arrays, their memory format (such as channels last) included."""
        entries: list[_Entry] = []
        offset = 0
        for name, value in weights.items():
            array, torch_dtype = as_array(value)
            strides = array.strides if _is_dense(array) else np.empty(array.shape, array.dtype).strides
            entries.append(_Entry(name, array.dtype.str, array.shape, strides, offset, torch_dtype))
            offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return cls(tuple(entries), offset)

    def views(self, content: Array) -> dict[str, Any]:
        """Return views of the bytes of a copy, uint8 [size], by name: tensors where tensors were laid out."""
        of_tensors = _writable(content)

        def view(each: _Entry) -> Any:
            memory = content.data if each.torch_dtype is None else of_tensors
            return as_given(np.ndarray(each.shape, each.dtype, memory, each.offset, each.strides), each.torch_dtype)

        return {each.name: view(each) for each in self.entries}

    def check(self, weights: Mapping[str, Any]) -> None:
        """Raise a ValueError if weights of this layout do not fit a policy or learner."""
        ours = {entry.name: entry.shape for entry in self.entries}
        theirs = {name: tuple(value.shape) for name, value in weights.items()}
        for name in [*ours, *theirs]:
            if ours.get(name) != theirs.get(name):
                raise ValueError(
                    f"weights {name!r} have shape {theirs.get(name)} in one process and {ours.get(name)} in another: "
                    "make_policy and make_learner must make the same network"
                )


class Reading(NamedTuple):
    """A worker's note of the copy that it reads, made before an inference."""

    version: int
    copy: int
    generation: int


class WeightsBoard:
    """Both copies, and which worker reads which.

    Args:
        block: Shared memory of `size(layout, workers)` bytes.
        layout: Of the weights.
        workers: Number of readers.
    """

    def __init__(self, block: Block, layout: WeightsLayout, workers: int) -> None:
        self.layout = layout
        self._latest = block.array(np.int64, 1)
        self._generations = block.array(np.int64, 2, 8)
        self._flipped = block.array(np.int64, 1, 24)  # when the newest version became the newest
        self._updates = block.array(np.int64, 2, 32)  # behind each copy
        self._reading = block.array(np.int8, workers, 48)  # 1 + the copy that a worker reads, 0 for none
        begin = self._header(workers)
        self._copies = [
            [self._view(block, entry, begin + copy * layout.size) for entry in layout.entries] for copy in (0, 1)
        ]
        self._contents = [block.array(np.uint8, layout.size, begin + copy * layout.size) for copy in (0, 1)]

    @staticmethod
    def _header(workers: int) -> int:
        return -(-(48 + workers) // _ALIGNMENT) * _ALIGNMENT

    @classmethod
    def size(cls, layout: WeightsLayout, workers: int) -> int:
        """Return the bytes that the board takes."""
        return cls._header(workers) + 2 * layout.size

    @staticmethod
    def _view(block: Block, entry: _Entry, begin: int) -> Array:
        flat = block.array(np.uint8, int(np.prod(entry.shape)) * np.dtype(entry.dtype).itemsize, begin + entry.offset)
        return np.ndarray(entry.shape, entry.dtype, flat.data, strides=entry.strides)

    @property
    def version(self) -> int:
        """The newest whole version, from 1; 0 before the first."""
        return int(self._latest[0])

    def publish(self, weights: Mapping[str, Any], updates: int = 0) -> int:
        """Write a new version into the copy that is not the newest, and make it the newest; by one writer at a time.

        A worker that still reads that copy notices, and its action is discarded: look at `idle` first. `updates` is the
        number that all learners together have made until these weights; several may lie between two versions.
        """
        version = self.version + 1
        copy = version % 2
        self._generations[copy] |= 1
        for entry, target in zip(self.layout.entries, self._copies[copy], strict=True):
            target[...] = as_array(weights[entry.name])[0]
        self._updates[copy] = updates
        self._generations[copy] += 1
        self._latest[0] = version
        self._flipped[0] = time.monotonic_ns()
        return version

    def idle(self) -> bool:
        """Return whether no worker reads the copy that `publish` would write."""
        return not bool((self._reading == 1 + (self.version + 1) % 2).any())

    def age(self) -> int:
        """Return the nanoseconds since the newest version was published."""
        return time.monotonic_ns() - int(self._flipped[0])

    def begin_reading(self, worker: int) -> Reading:
        """Note which version a worker is about to read in place."""
        while True:
            version = self.version
            copy = version % 2
            generation = int(self._generations[copy])
            self._reading[worker] = 1 + copy
            if version == self.version and generation % 2 == 0:
                return Reading(version, copy, generation)

    def end_reading(self, worker: int, reading: Reading) -> bool:
        """Return whether the copy has stayed as it was since `begin_reading`."""
        whole = int(self._generations[reading.copy]) == reading.generation
        self._reading[worker] = 0
        return whole

    def updates(self, copy: int) -> int:
        """Return the number of updates in a copy, as its writer noted it."""
        return int(self._updates[copy])

    def forget_reader(self, worker: int) -> None:
        """Note that a worker has died and reads no copy."""
        self._reading[worker] = 0

    def weights(self, copy: int) -> dict[str, Any]:
        """Return views of one copy by name: tensors where tensors were laid out."""
        return {
            entry.name: as_given(view, entry.torch_dtype)
            for entry, view in zip(self.layout.entries, self._copies[copy], strict=True)
        }

    def newest(self) -> dict[str, Any]:
        """Return views of the newest version, which stay whole until the version after the next one is written.

        For a learner that holds the lock, which keeps writers away and needs no copy.
        """
        return self.weights(self.version % 2)

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the newest version, whole even if a writer is at work."""
        while True:
            copy = self.version % 2
            generation = int(self._generations[copy])
            copied = {name: _cloned(value) for name, value in self.weights(copy).items()}
            if generation % 2 == 0 and int(self._generations[copy]) == generation:
                return copied

    def content(self) -> tuple[int, int, Array]:
        """Return the newest version, its updates, and a copy of its bytes, whole even if a writer is at work.

        `WeightsLayout.views` makes weights of the bytes, on another machine too.
        """
        while True:
            version = self.version
            copy = version % 2
            generation = int(self._generations[copy])
            copied, updates = self._contents[copy].copy(), self.updates(copy)
            if generation % 2 == 0 and int(self._generations[copy]) == generation and version == self.version:
                return version, updates, copied


def _cloned(value: Any) -> Any:
    return value.copy(order="K") if isinstance(value, np.ndarray) else value.clone()


def is_tensor(value: Any) -> bool:
    """Return whether a value is a torch tensor."""
    torch = sys.modules.get("torch")  # there can be no tensor without it
    return torch is not None and isinstance(value, torch.Tensor)


def as_array(value: Any) -> tuple[Array, str | None]:
    """Return an array over a tensor's bytes, and the name of its torch type; None if it is an array already.

    A type that NumPy lacks, such as bfloat16, travels as integers of its size.
    """
    if not is_tensor(value):
        return np.asarray(value), None
    import torch

    tensor = value.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return tensor.numpy(), name
    except TypeError:
        return tensor.view({1: torch.int8, 2: torch.int16}[tensor.itemsize]).numpy(), name


def as_given(array: Array, torch_dtype: str | None) -> Any:
    """Return a tensor over an array's bytes, or the array itself where `torch_dtype` is None."""
    if torch_dtype is None:
        return array
    import torch

    return torch.from_numpy(array).view(getattr(torch, torch_dtype))


def _writable(content: Array) -> Any:
    """Return bytes as memory of which torch, whose tensors can all be written, does not warn."""
    if content.flags.writeable or not content.size:
        return content.data
    memory: Any = (ctypes.c_uint8 * content.size).from_address(content.ctypes.data)
    memory.owner = content  # which keeps the bytes
    return memory


def axes_in_memory(array: Array) -> list[int]:
    """Return the axes as the bytes lie: first the one whose neighbours lie furthest apart; unchanged unless dense."""
    return _axes_by_stride(array) if _is_dense(array) else list(range(array.ndim))


def _axes_by_stride(array: Array) -> list[int]:
    """Return the axes from the one whose neighbours lie furthest apart to the one whose lie next to each other."""
    return sorted(range(array.ndim), key=lambda axis: -array.strides[axis])


def _is_dense(array: Array) -> bool:
    """Return whether the array's bytes lie without gaps or overlaps, in any order of axes."""
    expected = array.itemsize
    for axis in reversed(_axes_by_stride(array)):
        if array.shape[axis] > 1:
            if array.strides[axis] != expected:
                return False
            expected *= array.shape[axis]
    return True
