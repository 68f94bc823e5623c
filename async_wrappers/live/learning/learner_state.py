"""Files of a learner's state: tensors, arrays and plain data; reading one runs no code from it.

A file is NumPy's ``.npz``: the arrays, and under ``structure`` the JSON of the containers that they lie in, of the
file's format and of the version that wrote it (format 1 stated neither). It needs torch only where there are tensors.
It is written to a temporary name and renamed, so that it is whole or absent.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.files import write_atomically
from async_wrappers.live.memory.weights import as_array, as_given, axes_in_memory, is_tensor
from async_wrappers.version import __version__

Array = npt.NDArray[Any]
_FORMAT = 2


class NotRestored(ValueError):
    """A learner cannot go on from its files."""


def state_file(directory: Path, iteration: int, number: int) -> Path:
    """Return where learner `number` keeps its state of an iteration."""
    return directory / f"learner_{number}.{iteration}.npz"


def write_state(path: Path, state: Any) -> None:
    """Write a state.

    Raises:
        OSError: The file could not be written; it names `path`, and an older file of that name is still there.
        ValueError: A value in it is neither a tensor or array, nor None, bool, int, float, str, list, tuple, mapping.
    """
    arrays: list[Array] = []
    described = _described(state, arrays, "state_dict()")
    structure = json.dumps({"format": _FORMAT, "version": __version__, "state": described})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: np.savez(file, *arrays, structure=np.array(structure)))


def read_state(path: Path) -> Any:
    """Return the state that `write_state` wrote; tensors on the CPU, mappings as dicts.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is damaged, of another format, or another kind of file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"a learner's state is missing: there is no file {path}")
    try:
        with zipfile.ZipFile(path) as file:
            written = json.loads(str(_array(file, "structure")))
            there = written.get("format", 1) if written.keys() & {"format", "version", "state"} else 1
            if there == _FORMAT:
                return _made(written["state"], file)
            version = written.get("version", "0.1.0 or older")
    except Exception as error:  # a damaged zip file makes its reader raise many kinds of errors
        raise ValueError(f"{path} is damaged, or not a learner's state: {error}") from error
    raise ValueError(
        f"{path} has format {there} (async_wrappers {version}), and async_wrappers {__version__} restores format "
        f"{_FORMAT} alone: restore it with that version"
    )


def save_learner(learner: Any, directory: Path, iteration: int, number: int) -> None:
    """Write a learner's state, and its replay if it saves one."""
    write_state(state_file(directory, iteration, number), learner.state_dict())
    if hasattr(learner, "save_replay"):
        learner.save_replay(directory / f"replay_{number}", iteration)


def restore_learner(learner: Any, directory: Path, iteration: int, number: int, replays: bool = True) -> None:
    """Let a learner read the files of `save_learner`, with or without its replay.

    Raises:
        NotRestored: The files cannot be used.
    """
    try:
        learner.load_state_dict(read_state(state_file(directory, iteration, number)))
        if replays and hasattr(learner, "load_replay"):
            learner.load_replay(directory / f"replay_{number}", iteration)
    except (OSError, ValueError) as error:
        raise NotRestored(f"learner {number} cannot be restored: {error}") from error


def _array(file: zipfile.ZipFile, name: str) -> Array:
    """Return an array, whose checksum is compared once all of it is read."""
    with file.open(f"{name}.npy") as member:
        array: Array = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):
            raise ValueError(f"{name} is longer than it says")
    return array


def _described(value: Any, arrays: list[Array], where: str) -> Any:
    """Return JSON that describes a value, whose arrays are put into `arrays`."""
    if is_tensor(value) or isinstance(value, np.ndarray | np.generic):
        return _stored(value, arrays, where)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        pairs = [(key, each, f"{where}[{key!r}]") for key, each in value.items()]
        return {"dict": [[_described(key, arrays, at), _described(each, arrays, at)] for key, each, at in pairs]}
    if isinstance(value, list | tuple):
        parts = [_described(each, arrays, f"{where}[{place}]") for place, each in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": parts}
    raise ValueError(f"a learner's state must be tensors, arrays and plain data, got {type(value).__name__} at {where}")


def _stored(value: Any, arrays: list[Array], where: str) -> dict[str, list[Any]]:
    """Store an array in the order of its bytes in memory, which differs for channels last."""
    array, torch_dtype = as_array(value)
    if array.dtype.hasobject:
        raise ValueError(
            f"a learner's state must be tensors, arrays and plain data, got an array of objects at {where}"
        )
    axes = axes_in_memory(array)
    arrays.append(array.transpose(axes))
    return {"array": [len(arrays) - 1, axes, torch_dtype, isinstance(value, np.generic)]}


def _made(structure: Any, file: zipfile.ZipFile) -> Any:
    """Return the value that `_described` described."""
    if not isinstance(structure, dict):
        return structure
    ((kind, parts),) = structure.items()
    if kind == "array":
        number, axes, torch_dtype, is_scalar = parts
        array = _array(file, f"arr_{number}").transpose(np.argsort(axes))
        return array[()] if is_scalar else as_given(array, torch_dtype)
    if kind == "dict":
        return {_made(key, file): _made(each, file) for key, each in parts}
    made = [_made(each, file) for each in parts]
    return tuple(made) if kind == "tuple" else made
