"""Checkpoints of an experiment: one file per iteration, whole or absent, the newest good one found again.

``checkpoints/ckpt.N`` holds tensors and plain data; ``checkpoints/sentinel_checkpoint_complete.N`` is written last and
holds the first file's SHA-256. Nothing is loaded by unpickling code. What comes before iteration 0 is
number -1.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from absl import logging

from agents.files import write_atomically, write_text_atomically

__all__ = ["CHECKPOINTS", "Checkpointer", "read_bundle"]

CHECKPOINTS = "checkpoints"
_SENTINEL = "sentinel_checkpoint_complete"


class Checkpointer:
    """Writes and finds the checkpoints of a run.

    Args:
        base_dir: The run's directory; checkpoints lie in ``base_dir/checkpoints``.
        checkpoint_duration: How many of the newest checkpoints are kept.

    Raises:
        ValueError: `checkpoint_duration` is below one.
    """

    def __init__(self, base_dir: Path, checkpoint_duration: int = 4) -> None:
        """See the class."""
        if checkpoint_duration < 1:
            raise ValueError(f"checkpoint_duration must be >= 1 checkpoint, got {checkpoint_duration}")
        self.directory = Path(base_dir) / CHECKPOINTS
        self._duration = checkpoint_duration

    def numbers(self) -> list[int]:
        """Return the iterations whose checkpoint was completed, newest first."""
        names = (re.fullmatch(rf"{_SENTINEL}\.(-?\d+)", path.name) for path in self.directory.glob(f"{_SENTINEL}.*"))
        return sorted((int(name[1]) for name in names if name), reverse=True)

    def save(self, iteration: int, bundle: Mapping[str, Any]) -> set[int]:
        """Write a checkpoint, forget the oldest ones, and return the iterations that are kept.

        Checkpoints of later iterations are forgotten too: they were bad, or the run would not have gone back.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self._path(iteration)
        write_atomically(path, lambda file: torch.save(dict(bundle), file))
        write_text_atomically(self._sentinel(iteration), f"done sha256={_sha256(path)}\n")
        kept = [number for number in self.numbers() if number <= iteration][: self._duration]
        for number in set(self.numbers()) - set(kept):
            self._sentinel(number).unlink()  # first, so that no sentinel ever stands for a missing file
            self._path(number).unlink(missing_ok=True)
        return set(kept)

    def load_each(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (iteration, bundle) of the good checkpoints, newest first, and warn of each bad one."""
        for number in self.numbers():
            try:
                yield number, read_bundle(self._path(number))
            except (OSError, ValueError) as error:
                logging.warning("checkpoint %d is not used: %s", number, error)

    def _path(self, iteration: int) -> Path:
        return self.directory / f"ckpt.{iteration}"

    def _sentinel(self, iteration: int) -> Path:
        return self.directory / f"{_SENTINEL}.{iteration}"


def read_bundle(path: Path) -> dict[str, Any]:
    """Read one checkpoint file, checked against its sentinel where there is one.

    Raises:
        OSError: The file is missing or unreadable.
        ValueError: The file is torn, altered, or no checkpoint.
    """
    sentinel = path.with_name(f"{_SENTINEL}{path.suffix}")
    recorded = re.search(r"sha256=(\w+)", sentinel.read_text()) if sentinel.is_file() else None
    if recorded and recorded[1] != _sha256(path):
        raise ValueError(f"{path} is torn or altered: its SHA-256 is not the one recorded")
    try:
        bundle = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch.load raises whatever its unpickler stumbles over
        what = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
        raise ValueError(f"{path} is not a checkpoint of tensors and plain data ({what})") from None
    if not isinstance(bundle, dict):
        raise ValueError(f"{path} is not a checkpoint: it holds a {type(bundle).__name__}, not a dict")
    return bundle


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
