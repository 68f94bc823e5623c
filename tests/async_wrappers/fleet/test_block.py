"""Shared memory, and the bytes that values of a space are written into."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sys
from multiprocessing import connection
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.fleet.block import Block, Codec
from tests.worlds.spaces import SPACES


def same(value: Any, other: Any) -> bool:
    """Return whether two values of a space are of the same types and equal."""
    if isinstance(value, dict):
        return list(value) == list(other) and all(same(value[key], other[key]) for key in value)
    if isinstance(value, tuple):
        return len(value) == len(other) and all(map(same, value, other))
    return value.dtype == other.dtype and value.shape == other.shape and bool(np.all(value == other))


def entry_of(codec: Codec) -> Any:
    """Return an entry [1] as those of ring, slots and journal are: a number, and a value."""
    return np.zeros(1, np.dtype([("number", np.int64), ("value", codec.dtype)], align=True))


@settings(max_examples=100, deadline=None, database=None)
@given(space=SPACES, seed=st.integers(0, 2**31))
def test_what_is_written_of_any_space_is_read_back_of_the_same_types(space: gym.Space[Any], seed: int) -> None:
    codec = Codec("space", space)
    space.seed(seed)
    field = entry_of(codec)["value"]
    for _ in range(2):
        value = space.sample()
        codec.write(field, value)
        read = codec.read(field)
        assert space.contains(read)
        assert same(value, read)


@settings(max_examples=50, deadline=None, database=None)
@given(space=SPACES, seed=st.integers(0, 2**31))
def test_what_was_read_stays_when_the_bytes_are_overwritten(space: gym.Space[Any], seed: int) -> None:
    codec = Codec("space", space)
    space.seed(seed)
    entry = entry_of(codec)
    value = space.sample()
    codec.write(entry["value"], value)
    read = codec.read(entry["value"])
    entry.view(np.uint8)[...] = 255
    assert same(value, read)


def test_a_box_without_axes_is_read_as_an_array() -> None:
    codec = Codec("space", spaces.Box(0, 1, ()))
    field = np.zeros(1, codec.dtype)
    codec.write(field, np.float32(0.5))
    read = codec.read(field)
    assert isinstance(read, np.ndarray)
    assert read == np.float32(0.5)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(3),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.Dict({"inside": spaces.Tuple([spaces.Text(3)])}),
    ],
)
def test_another_space_is_refused_by_its_name(space: gym.Space[Any]) -> None:
    with pytest.raises(ValueError, match=r"^observation_space must be a Box.*, got ") as refused:
        Codec("observation_space", space)
    assert "\n" not in str(refused.value)


def test_a_block_is_zero_and_its_arrays_are_views_of_the_same_bytes() -> None:
    for shared in (True, False):
        block = Block(shared)
        block.resize(64)
        assert not block.array(np.uint8, 64).any()
        block.array(np.int64, (2, 2), 32)[1, 0] = 7
        assert block.array(np.int64, 8).tolist() == [0, 0, 0, 0, 0, 0, 7, 0]
        assert block.array(np.float64, (0, 3), 64).shape == (0, 3)
        with pytest.raises(ValueError):
            block.array(np.uint8, 65)


def test_arrays_outlive_the_closing_of_their_block() -> None:
    block = Block()
    block.resize(8)
    numbers = block.array(np.int64, 1)
    block.close()
    block.close()
    gc.collect()
    numbers[0] = 5
    assert numbers.tolist() == [5]


def _add_one(block: Block, pipe: connection.Connection) -> None:
    numbers = block.array(np.int64, 4)
    numbers[1] = numbers[0] + 1
    pipe.send(None)
    pipe.recv()  # until we are killed


def mapped() -> set[str]:
    """Return this process's mappings of blocks; another test's runs may have some yet."""
    return {line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:async_wrappers" in line}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, which tells what a process holds")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_block_is_shared_with_a_started_process_and_leaves_nothing_behind(method: str) -> None:
    descriptors, before = len(os.listdir("/proc/self/fd")), mapped()
    context = multiprocessing.get_context(method)
    block = Block()  # sized after it was made, as a run does
    block.resize(32)
    numbers = block.array(np.int64, 4)
    numbers[0] = 41
    ours, theirs = multiprocessing.Pipe()
    child = context.Process(target=_add_one, args=(block, theirs), daemon=True)
    child.start()
    theirs.close()
    assert ours.poll(60)
    ours.recv()
    assert numbers[1] == 42
    assert child.pid is not None
    maps = Path(f"/proc/{child.pid}/maps").read_text()
    assert "/memfd:async_wrappers (deleted)" in maps  # no name in any folder
    assert "/dev/shm" not in maps
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    child.close()
    ours.close()
    block.close()
    del numbers, block
    gc.collect()
    assert mapped() <= before
    if method == "spawn":  # the fork server keeps descriptors of its own
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 1  # the resource tracker's


@pytest.mark.parametrize("value", [np.zeros(1), np.zeros((1, 3)), 0.0])
def test_a_value_of_another_shape_is_refused_and_not_stretched(value: Any) -> None:
    codec = Codec("observation_space", spaces.Box(0, 1, (3,), np.float64))
    with pytest.raises(ValueError, match=r"^a value of shape .* does not fit its space, whose shape is \(3,\)$"):
        codec.write(np.zeros(1, codec.dtype), value)


def test_a_block_holds_bytes_that_are_mapped_only_while_they_are_looked_at() -> None:
    block = Block.holding(b"all that a worker needs")
    with block.content() as content:
        assert bytes(content) == b"all that a worker needs"
    with pytest.raises(ValueError):
        len(content)
    block.close()


def test_memory_that_the_system_refuses_is_one_sentence() -> None:
    block, (soft, hard) = Block(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"10,000 bytes of shared memory are refused .*: raise the limit"):
            block.resize(10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    block.close()
