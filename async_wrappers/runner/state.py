"""Files of a learner's state: tensors and plain data, written to a temporary name and renamed."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

__all__ = ["read_state", "state_file", "write_state"]


def state_file(directory: Path, iteration: int, number: int) -> Path:
    """Return where learner `number` keeps its state of an iteration."""
    return directory / f"learner_{number}.{iteration}.pt"


def write_state(path: Path, state: Any) -> None:
    """Write a state; with torch, where the process has it, in a form that `torch.load` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    torch = sys.modules.get("torch")
    with temporary.open("wb") as file:
        if torch is None:
            pickle.dump(state, file)
        else:
            torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_state(path: Path) -> Any:
    """Return what `write_state` wrote."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.load(path, weights_only=True)
    with path.open("rb") as file:
        return pickle.load(file)
