"""Memory shared by processes: fixed layouts of bytes, no pickles, and no name that could be left behind.

A block is an anonymous file (``memfd``) that is passed to children as a descriptor. It is freed when the last process
that holds it has ended, in any way.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import reduction
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Array = npt.NDArray[Any]


class Block:
    """Shared bytes, sized once with `resize`; picklable only as an argument of a new process.

    Args:
        shared: False for memory of this process alone, with the same interface.
    """

    def __init__(self, shared: bool = True) -> None:
        self._descriptor = _anonymous_file() if shared else None
        self._size = 0
        self._map: mmap.mmap | None = None

    def resize(self, size: int) -> None:
        """Give the block its size in bytes, all zero; once, by the process that made it.

        Raises:
            OSError: The system grants no memory of that size.
        """
        self._size = max(size, 1)
        if self._descriptor is None:
            return
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            remedy = "raise the limit that `ulimit -f` shows" if error.errno == errno.EFBIG else "free memory"
            raise OSError(
                error.errno, f"{self._size:,} bytes of shared memory are refused ({error.strerror}): {remedy}"
            ) from None

    def array(self, dtype: npt.DTypeLike, shape: int | tuple[int, ...], offset: int = 0) -> Array:
        """Return an array over the block's bytes from `offset` on."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape))
        return np.frombuffer(self._mapped(), dtype, count, offset).reshape(shape)

    @classmethod
    def holding(cls, content: bytes) -> Block:
        """Return a block that holds these bytes."""
        block = cls()
        block.resize(len(content))
        with block.content() as view:
            view[: len(content)] = content
        return block

    @contextmanager
    def content(self) -> Iterator[memoryview]:
        """Map the block for as long as the context lasts: its bytes."""
        with mmap.mmap(self.fileno(), 0) as mapped, memoryview(mapped) as view:
            yield view

    @property
    def is_shared(self) -> bool:
        """Whether other processes may see it."""
        return self._descriptor is not None

    def fileno(self) -> int:
        """Return the descriptor, as for a lock."""
        assert self._descriptor is not None, "private memory has no descriptor"
        return self._descriptor

    def close(self) -> None:
        """Release the descriptor; arrays stay valid until they are forgotten."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _mapped(self) -> mmap.mmap:
        if self._map is None:
            if self._descriptor is None:
                self._map = mmap.mmap(-1, self._size)
            else:
                self._map = mmap.mmap(self._descriptor, os.fstat(self._descriptor).st_size)
        return self._map

    def __reduce__(self) -> tuple[Callable[..., Block], tuple[Any, ...]]:
        """Hand the descriptor to a process that is being started."""
        assert self._descriptor is not None, "private memory cannot travel"
        return _received, (reduction.DupFd(self._descriptor),)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("async_wrappers")
    with tempfile.TemporaryFile() as file:  # has no name either
        return os.dup(file.fileno())


def _received(descriptor: Any) -> Block:
    block = Block(shared=False)
    block._descriptor = descriptor.detach()
    return block


class Codec:
    """Writes values of a Gymnasium space into fixed bytes, and reads them back as copies.

    Args:
        name: Name of the space, for the message.
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these. None takes no byte and reads as
            None.

    Raises:
        ValueError: Another space.
    """

    def __init__(self, name: str, space: gym.Space[Any] | None) -> None:
        self.dtype = np.dtype(_layout(name, space))
        self.write, self.read = _functions(space)
        """Write a value into a field, an array [1] of `dtype`; return a copy of the value in such a field."""


def _layout(name: str, space: gym.Space[Any] | None) -> Any:
    """Return the argument of `np.dtype`; parts of a space are named by their place, as keys need not be names."""
    if space is None:
        return []
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [(f"f{place}", np.dtype(_layout(name, each))) for place, each in enumerate(parts)]
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        assert space.dtype is not None
        return (space.dtype, space.shape)
    raise ValueError(
        f"{name} must be a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, got {space}"
    )


def _functions(space: gym.Space[Any] | None) -> tuple[Callable[[Array, Any], None], Callable[[Array], Any]]:
    """Return the functions that write a value into an array [1] of its layout, and read it."""
    if space is None:
        return lambda field, value: None, lambda field: None
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        children = [(key, f"f{place}", *_functions(each)) for place, (key, each) in enumerate(parts)]

        def write_all(field: Array, value: Any) -> None:
            for key, name, write, _ in children:
                write(field[name], value[key])

        def read_all(field: Array) -> Any:
            values = {key: read(field[name]) for key, name, _, read in children}
            return values if isinstance(space, spaces.Dict) else tuple(values.values())

        return write_all, read_all
    if isinstance(space, spaces.Discrete):
        return _write_one, lambda field: field[0]
    return _write_one, lambda field: np.array(field[0])  # an array also where the shape is ()


def _write_one(field: Array, value: Any) -> None:
    shape = value.shape if type(value) is np.ndarray else np.shape(value)
    if shape != field.shape[1:]:
        raise ValueError(f"a value of shape {shape} does not fit its space, whose shape is {field.shape[1:]}")
    field[0] = value
