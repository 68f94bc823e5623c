"""Weights in two shared copies: the same bytes, read in place, and never a mixture of two versions unnoticed."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from async_wrappers.fleet.block import Block
from async_wrappers.live.memory.weights import WeightsBoard, WeightsLayout
from tests.worlds import torn_reads

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
]


def board_of(weights: Mapping[str, Any], workers: int = 2) -> WeightsBoard:
    layout = WeightsLayout.of(weights)
    block = Block(shared=False)
    block.resize(WeightsBoard.size(layout, workers))
    return WeightsBoard(block, layout, workers)


def filled(version: int) -> dict[str, Any]:
    return {"a": np.full((5, 3), version, np.float32), "b": np.full(7, version, np.int64)}


def values(weights: Mapping[str, Any]) -> set[float]:
    return {float(value) for array in weights.values() for value in np.asarray(array).ravel()}


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """A tensor of any type, of 0 to 4 axes that lie in any order, perhaps empty, perhaps with gaps."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    order = draw(st.permutations(range(len(shape))))
    tensor = torch.randint(0, 2, [shape[axis] for axis in order]).to(draw(st.sampled_from(DTYPES)))
    tensor = tensor.permute(*np.argsort(order).tolist()) if shape else tensor
    if shape and shape[0] and draw(st.booleans()):
        tensor = tensor[:: draw(st.integers(1, 3))]
    return tensor


@settings(max_examples=100, deadline=None, database=None)
@given(given=st.lists(tensors(), max_size=4))
def test_any_tensors_come_back_of_the_same_type_values_and_memory_format(given: list[torch.Tensor]) -> None:
    weights = {str(k): tensor for k, tensor in enumerate(given)}
    board = board_of(weights)
    for _ in range(2):
        version = board.publish(weights)
        for read in (board.weights(version % 2), board.snapshot()):
            assert list(read) == list(weights)
            for name, tensor in weights.items():
                assert read[name].dtype == tensor.dtype
                assert read[name].shape == tensor.shape
                assert torch.equal(read[name].double(), tensor.double())
    for name, tensor in weights.items():
        view = board.weights(0)[name]
        assert not tensor.numel() or view.data_ptr() % 64 == 0
        if tensor.is_contiguous():
            assert view.is_contiguous()


def test_channels_last_stays_and_arrays_and_scalars_too() -> None:
    convolution = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
    weights = {
        "kernel": convolution.weight,
        "bias": convolution.bias.to(torch.bfloat16),
        "steps": torch.tensor(7),
        "half": torch.tensor(0.5, dtype=torch.bfloat16),
        "array": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "number": np.float32(3),
    }
    board = board_of(weights)
    board.publish(weights)
    for read in (board.weights(1), board.snapshot()):
        assert read["kernel"].stride() == convolution.weight.stride()
        assert read["kernel"].is_contiguous(memory_format=torch.channels_last)
        assert not read["kernel"].requires_grad
        assert torch.equal(read["kernel"], convolution.weight)
        assert read["bias"].dtype == torch.bfloat16
        assert (read["steps"].shape, int(read["steps"])) == ((), 7)
        assert (read["half"].shape, float(read["half"])) == ((), 0.5)
        assert isinstance(read["array"], np.ndarray)
        assert read["array"].flags.f_contiguous
        assert read["array"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert read["number"] == 3


def test_a_layout_travels_to_another_process_and_makes_the_same_views() -> None:
    weights = {"kernel": torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last), "bias": torch.randn(4)}
    layout = pickle.loads(pickle.dumps(WeightsLayout.of(weights)))
    assert layout == WeightsLayout.of(weights)
    block = Block(shared=False)
    block.resize(WeightsBoard.size(layout, 1))
    WeightsBoard(block, layout, 1).publish(weights)
    read = WeightsBoard(block, layout, 1).weights(1)
    assert torch.equal(read["kernel"], weights["kernel"])


def test_tensors_over_bytes_that_nobody_may_write_are_views_and_torch_warns_of_nothing() -> None:
    code = (
        "import gc, numpy as np, torch, warnings\n"
        "from async_wrappers.live.memory.weights import WeightsLayout\n"
        "warnings.simplefilter('error')\n"
        "weights = {'a': torch.arange(6.0).reshape(2, 3).T, 'b': np.arange(3)}\n"
        "layout = WeightsLayout.of(weights)\n"
        "content = np.zeros(layout.size, np.uint8)\n"
        "for name, view in layout.views(content).items():\n"
        "    view[:] = weights[name]\n"
        "content.flags.writeable = False\n"
        "views, address = layout.views(content), content.ctypes.data\n"
        "assert address <= views['a'].data_ptr() < address + layout.size\n"
        "del content\n"
        "gc.collect()\n"
        "assert torch.equal(views['a'], weights['a']) and (views['b'] == weights['b']).all()\n"
        "assert not views['b'].flags.writeable\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_network_that_has_taken_over_views_copies_nothing_and_follows_later_versions() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3), nn.BatchNorm1d(3))
    network = network.to(memory_format=torch.channels_last).requires_grad_(False).eval()
    board = board_of(network.state_dict())
    board.publish(network.state_dict())
    views = board.weights(1)
    worker = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3), nn.BatchNorm1d(3)).eval()
    worker.load_state_dict(views, assign=True)
    assert {name: value.data_ptr() for name, value in worker.state_dict().items()} == {
        name: view.data_ptr() for name, view in views.items()
    }
    picture = torch.randn(5, 1, 4, 4)
    assert torch.equal(worker(picture), network(picture))
    doubled = {name: 2 * value for name, value in network.state_dict().items()}
    board.publish(network.state_dict())  # version 2, in the other copy
    board.publish(doubled)  # version 3, under the network's hands
    network.load_state_dict(doubled)
    assert torch.equal(worker(picture), network(picture))


def test_other_weights_than_those_laid_out_are_named() -> None:
    layout = WeightsLayout.of(filled(0))
    layout.check(filled(1))
    for other in ({"a": np.zeros((5, 3))}, {**filled(0), "c": np.zeros(1)}, {**filled(0), "b": np.zeros(8)}):
        with pytest.raises(ValueError, match="must make the same network"):
            layout.check(other)


def test_versions_count_from_one_and_lie_in_alternating_copies() -> None:
    board = board_of(filled(0))
    assert board.version == 0
    for version in (1, 2, 3):
        assert board.publish(filled(version)) == version == board.version
        assert values(board.weights(version % 2)) == {version} == values(board.snapshot())
    assert values(board.weights(0)) == {2}


def test_an_inference_is_overtaken_by_the_second_version_after_its_own_not_by_the_first() -> None:
    board = board_of(filled(0))
    board.publish(filled(1))
    for overtaken in (0, 1, 2, 3):
        reading = board.begin_reading(0)
        for _ in range(overtaken):
            board.publish(filled(9))
        assert board.end_reading(0, reading) == (overtaken < 2)


def test_the_copy_to_be_written_is_idle_unless_somebody_reads_it() -> None:
    board = board_of(filled(0), workers=2)
    board.publish(filled(1))
    old = board.begin_reading(1)
    assert board.idle()  # version 2 goes to the other copy
    board.publish(filled(2))
    assert not board.idle()  # worker 1 still reads version 1
    new = board.begin_reading(0)
    assert new.version == 2
    assert not board.idle()
    assert board.end_reading(1, old)
    assert board.idle()
    board.publish(filled(3))
    assert not board.idle()
    board.forget_reader(0)  # it died
    assert board.idle()


def test_reading_begins_again_when_a_version_comes_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    board = board_of(filled(0))
    board.publish(filled(1))
    stale = iter([1])
    version = WeightsBoard.version.fget
    assert version is not None

    def delayed(self: WeightsBoard) -> int:
        for before in stale:
            monkeypatch.setattr(WeightsBoard, "version", property(version))
            board.publish(filled(2))
            board.publish(filled(3))
            board.publish(filled(4))
            return before
        return version(self)

    monkeypatch.setattr(WeightsBoard, "version", property(delayed))
    reading = board.begin_reading(0)
    assert reading.version == 4
    assert board.end_reading(0, reading)


class Interrupted(Exception):
    """The writer's end in the middle of a version."""


class Fatal:
    """An array at which the writer stops."""

    def __init__(self, end: Any) -> None:
        self._end = end

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._end()


def _raise() -> None:
    raise Interrupted


def test_a_snapshot_that_begins_in_the_middle_of_a_write_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader falls asleep right after it looked which version is the newest, and wakes while that copy changes."""
    board = board_of(filled(0))
    board.publish(filled(1))
    version = WeightsBoard.version.fget
    assert version is not None
    calls = 0

    def slow(self: WeightsBoard) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            monkeypatch.setattr(WeightsBoard, "version", property(version))
            board.publish(filled(2))
            with pytest.raises(Interrupted):
                board.publish({**filled(3), "b": Fatal(_raise)})
            return 1
        return version(self)

    monkeypatch.setattr(WeightsBoard, "version", property(slow))
    assert values(board.snapshot()) == {2}


def _publish_and_die(block: Block, layout: WeightsLayout) -> None:
    board = WeightsBoard(block, layout, 1)
    board.publish(filled(2))
    board.publish({**filled(3), "b": Fatal(lambda: os.kill(os.getpid(), signal.SIGKILL))})


def test_a_writer_killed_in_the_middle_leaves_the_newest_version_and_the_next_one_is_right() -> None:
    layout = WeightsLayout.of(filled(0))
    block = Block()
    block.resize(WeightsBoard.size(layout, 1))
    board = WeightsBoard(block, layout, 1)
    board.publish(filled(1))
    overtaken = board.begin_reading(0)
    child = multiprocessing.get_context("fork").Process(target=_publish_and_die, args=(block, layout))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert board.version == 2
    assert values(board.weights(1)) == {1, 3}  # it died in the middle
    assert values(board.snapshot()) == {2}
    assert not board.end_reading(0, overtaken)
    reading = board.begin_reading(0)
    assert reading.version == 2
    assert board.publish(filled(4)) == 3
    assert board.end_reading(0, reading)
    assert values(board.snapshot()) == {4}
    reading = board.begin_reading(0)
    assert (reading.version, values(board.weights(reading.copy))) == (3, {4})
    assert board.end_reading(0, reading)
    board.publish(filled(5))
    assert values(board.snapshot()) == {5}
    block.close()


def test_every_inference_that_a_version_overtook_is_detected_between_processes() -> None:
    counts, _ = torn_reads.weights(300, readers=2, pause=0.005)
    assert counts.whole > 0
    assert counts.detected > 0
    assert (counts.torn, counts.disordered) == (0, 0)
