"""Policies and a learner for workers on Ray, in a module that a worker imports quickly."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.worlds.remembering import Remembering

__all__ = ["Counting", "Echo", "Encoding", "Taught", "Thinking"]


class Thinking:
    """Answers with a chunk that is a hash of all that it may read, after some time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def act(self, observation: Any, decision: Any) -> Any:
        time.sleep(self._seconds)
        parts = observation.values() if isinstance(observation, dict) else [observation]
        seen = np.concatenate([np.asarray(part).reshape(-1) for part in parts]).astype(np.int64)
        mixed = (int((seen % 1009 * np.arange(1, len(seen) + 1)).sum()) + decision.start) % 125
        action = np.array([mixed % 5, mixed // 5 % 5, mixed // 25])
        return SimpleNamespace(action=action, extras={"seen": np.float32(mixed)})


class Encoding(Remembering):
    """A policy with memory that takes its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self._seconds = seconds

    def encode(self, observation: Any, decision: Any) -> Any:
        time.sleep(self._seconds)
        return super().encode(observation, decision)


class Echo:
    """Answers with the frame that it was shown; leaves the number of its process."""

    def __init__(self, folder: Path) -> None:
        (folder / f"pid {os.getpid()}").touch()

    def act(self, observation: Any, decision: Any) -> int:
        time.sleep(0.01)
        return int(observation[0])


class Counting:
    """A learner whose weights are the number of its updates, in channels last."""

    def __init__(self) -> None:
        import torch

        self._updates = 0
        self._weights = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)

    def observe(self, transition: Any) -> None:
        pass

    def update(self) -> dict[str, float]:
        time.sleep(0.05)
        self._updates += 1
        self._weights.fill_(self._updates)
        return {}

    def weights(self) -> Any:
        return {"number": self._weights}

    def close(self) -> None:
        pass


class Taught:
    """Answers with its weights, which must be whole and lie as the learner's do."""

    def __init__(self) -> None:
        self._number, self._told = 0, -1

    def load_weights(self, weights: Any, version: int) -> None:
        import torch

        number = weights["number"]
        assert number.is_contiguous(memory_format=torch.channels_last) and number.unique().numel() == 1
        self._number = int(number.flatten()[0])

    def note_updates(self, updates: int) -> None:
        self._told = updates

    def act(self, observation: Any, decision: Any) -> int:
        return self._number if self._told == self._number else -1
