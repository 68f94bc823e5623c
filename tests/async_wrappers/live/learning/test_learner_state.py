"""Files of a learner's state: what is plain comes back, what is not is refused before anything is written."""

from __future__ import annotations

import errno
import json
import os
import pickle
import resource
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from async_wrappers import __version__
from async_wrappers.live.learning.learner_state import read_state, state_file, write_state

KEYS = st.text(max_size=3) | st.integers(-3, 3)
ARRAYS = hnp.arrays(
    st.sampled_from(["?", "u1", "i8", "f4", "c8"]), hnp.array_shapes(min_dims=0, min_side=0, max_dims=3)
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
STATES: st.SearchStrategy[Any] = st.recursive(
    PLAIN | ARRAYS | hnp.arrays("f8", ()).map(lambda array: array[()]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


def same(value: Any, other: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and (value.dtype, value.shape, value.stride()) == (other.dtype, other.shape, other.stride())
            and torch.equal(value, other)
        )
    if isinstance(value, np.ndarray | np.generic):
        return (
            type(value) is type(other) and value.dtype == other.dtype and np.array_equal(value, other, equal_nan=True)
        )
    if isinstance(value, dict):
        return isinstance(other, dict) and [*value] == [*other] and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list | tuple):
        return type(value) is type(other) and len(value) == len(other) and all(map(same, value, other))
    return type(value) is type(other) and value == other


@settings(max_examples=75, deadline=None, database=None)
@given(state=STATES)
def test_arrays_and_plain_data_come_back_as_they_were(state: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("state", numbered=True) / "state.npz"
    write_state(path, state)
    assert same(state, read_state(path))


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 2)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(2):
        network(torch.randn(5, 3, 3, 3)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return network, optimizer


def test_a_network_and_its_optimiser_come_back_and_learn_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    network, optimizer = trained()
    state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "updates": 2}
    path = state_file(tmp_path / "new" / "folder", iteration=3, number=1)
    write_state(path, state)
    read = read_state(path)
    assert same({**state, "network": dict(network.state_dict())}, read)
    other, other_optimizer = trained()
    other.load_state_dict(read["network"])
    other_optimizer.load_state_dict(read["optimizer"])
    for each, step in ((network, optimizer), (other, other_optimizer)):
        each(torch.ones(1, 3, 3, 3)).sum().backward()
        step.step()
    assert all(map(torch.equal, network.parameters(), other.parameters()))


def test_types_that_numpy_lacks_and_parts_of_tensors_come_back(tmp_path: Path) -> None:
    state = {
        "bfloat16": torch.randn(3, 2).to(torch.bfloat16),
        "float8": torch.ones(2).to(torch.float8_e4m3fn).to(torch.float32),
        "generator": torch.Generator().get_state(),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(1.5),
        "parameter": nn.Parameter(torch.ones(2)).detach(),
        "numpy": {"PCG64": np.random.default_rng(0).bit_generator.state},
    }
    write_state(tmp_path / "state", state)
    assert same(state, read_state(tmp_path / "state"))
    write_state(tmp_path / "state", torch.arange(10)[::2])
    assert read_state(tmp_path / "state").tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"a": [1, object()]}, r"got object at state_dict\(\)\['a'\]\[1\]"),
        ({"a": {1, 2}}, r"got set at state_dict\(\)\['a'\]"),
        (lambda: None, r"got function at state_dict\(\)"),
        ({"a": np.array([None])}, r"got an array of objects at state_dict\(\)\['a'\]"),
        ({object(): 1}, "got object at"),
    ],
)
def test_what_is_not_plain_is_refused_by_its_place_and_the_old_file_stays(
    tmp_path: Path, state: Any, where: str
) -> None:
    path = tmp_path / "state"
    write_state(path, 5)
    with pytest.raises(ValueError, match=where):
        write_state(path, state)
    assert read_state(path) == 5
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_a_write_that_dies_half_way_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    write_state(path, {"a": np.arange(1000)})

    def dies(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", dies)
    with pytest.raises(KeyboardInterrupt):
        write_state(path, {"a": np.zeros(1000)})
    assert read_state(path)["a"].tolist() == list(range(1000))
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_a_full_disk_is_told_with_the_file_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_state(path, 5)
    with limited_file_size(100_000), pytest.raises(OSError, match="too large") as caught:
        write_state(path, {"a": np.zeros(100_000)})
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert read_state(path) == 5
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


@contextmanager
def limited_file_size(bytes_at_most: int) -> Iterator[None]:
    """Let this process write no larger file: the system then says EFBIG, as it says ENOSPC on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_at_most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_nothing_runs_when_a_file_is_read_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return (tmp_path / "ran").touch, ()

    write_state(tmp_path / "whole", {"a": np.arange(1000)})
    whole = (tmp_path / "whole").read_bytes()
    bad: list[bytes] = [
        pickle.dumps(Runs()),
        b"",
        whole[:500],
        whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],  # a bit flipped in the array
    ]
    np.savez(tmp_path / "other.npz", a=np.zeros(1))
    np.savez(tmp_path / "wrong.npz", structure=np.array(json.dumps({"format": 2, "state": {"array": [3, [0]]}})))
    np.savez(tmp_path / "objects.npz", structure=np.array([Runs()]))
    bad += [(tmp_path / f"{name}.npz").read_bytes() for name in ("other", "wrong", "objects")]
    for content in bad:
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ValueError, match="bad is damaged, or not a learner's state"):
            read_state(tmp_path / "bad")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "absent")


def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    state = {"a": np.arange(12), "b": [1, None, "three"]}
    path = tmp_path / "state"
    write_state(path, state)
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 7):  # one of almost every byte, each of the eight in turn
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            assert same(read_state(path), state), bit  # a bit that says nothing
        except ValueError as error:
            assert str(error).startswith(f"{path} is damaged, or not a learner's state")


def test_a_file_states_its_format_and_another_one_is_refused_with_both(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_state(path, {"a": 1})
    with np.load(path) as file:
        written = json.loads(str(file["structure"]))
    assert (written["format"], written["version"]) == (2, __version__)
    for structure, named in ((written["state"], "format 1"), ({**written, "format": 3, "version": "8.7"}, "format 3")):
        with path.open("wb") as opened:
            np.savez(opened, structure=np.array(json.dumps(structure)))
        with pytest.raises(ValueError, match=rf"state has {named} .* async_wrappers {__version__} restores format 2"):
            read_state(path)


def test_a_state_without_tensors_needs_no_torch_on_either_side(tmp_path: Path) -> None:
    write_state(tmp_path / "state", OrderedDict(a=np.arange(3), b=(1, None)))
    script = """
import sys
from pathlib import Path
from async_wrappers.live.learning.learner_state import read_state, write_state
read = read_state(Path(sys.argv[1]))
write_state(Path(sys.argv[1]), {**read, "c": 2.5})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "state")], check=True)
    assert same(read_state(tmp_path / "state"), {"a": np.arange(3), "b": (1, None), "c": 2.5})
