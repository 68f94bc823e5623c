"""The memory that a server's environments and accelerators share; each number has one writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from async_wrappers.batched.environment_process import Spaces, arrays_of, end_of
from async_wrappers.batched.rows import mapped, put_rows, taken
from async_wrappers.fleet.block import Block

_SHOWN = 8  # observations of an environment that are kept
_ANSWERED = 64  # actions of an environment that are kept
_NONE = -1
_START, _BEGAN, _ENDED = range(3)  # columns of `answers`


class ServedBoard:
    """Observations on their way to the accelerators, and actions on their way back.

    Both have rings, one for each environment, whose places follow from the frame's number. An observation is whole
    before its number is shown, and an action before its start is noted. (This relies on stores and loads that stay in
    order, as on x86-64.)

    Args:
        block: Shared memory of `size(...)` bytes.
        spaces: Of observations and actions, of a single environment.
        environments: How many.
        every: Frames from one observation that is inferred to the next.

    Attributes:
        shown: int64 [N], the newest frame whose observation each environment has shown; -1 for none.
        stop: int64 [1], 1 as soon as the environments are to stop.
    """

    def __init__(self, block: Block, spaces: Spaces, environments: int, every: int) -> None:
        self._every, offset = every, 0

        def placed(dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
            nonlocal offset
            array = block.array(dtype, shape, offset)
            offset = end_of(offset, dtype, shape)
            return array

        self._observations, self._actions, self._answers, self.shown, self.stop = _made(placed, spaces, environments)

    @classmethod
    def size(cls, spaces: Spaces, environments: int) -> int:
        """Return the bytes that the memory takes."""
        size = 0

        def measured(dtype: Any, shape: tuple[int, ...]) -> None:
            nonlocal size
            size = end_of(size, dtype, shape)

        _made(measured, spaces, environments)
        return size

    def clear(self) -> None:
        """Forget everything, before the first frame of a run."""
        self.shown[:] = self._answers[:, _START] = _NONE
        self.stop[0] = 0

    def show(self, environment: int, frame: int, observation: Any) -> None:
        """Show the observation of a frame; by the environment."""
        row = np.array([environment * _SHOWN + frame // self._every % _SHOWN])
        put_rows(self._observations, row, _as_batch(observation))
        self.shown[environment] = frame

    def read(self, environments: NDArray[np.int64], frames: NDArray[np.int64]) -> Any:
        """Return a batch, a copy of the observations of some frames."""
        return taken(self._observations, environments * _SHOWN + frames // self._every % _SHOWN)

    def is_kept(self, environments: NDArray[np.int64], frames: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which observations have not been overwritten while they were read."""
        kept: NDArray[np.bool_] = self.shown[environments] - frames < (_SHOWN - 1) * self._every
        return kept

    def answer(
        self,
        environments: NDArray[np.int64],
        frames: NDArray[np.int64],
        actions: Any,
        began: int,
        ended: int,
        whole: NDArray[np.bool_] | None = None,
    ) -> None:
        """Write the actions of a batch, or of those rows that are `whole`; by the accelerator that computed it."""
        # An action that is older than the ring is long would take the place of a newer one.
        fits = self.shown[environments] - frames < (_ANSWERED - 1) * self._every
        if whole is not None:
            fits &= whole
        if not fits.all():
            environments, frames, actions = environments[fits], frames[fits], taken(actions, np.flatnonzero(fits))
        rows = environments * _ANSWERED + frames // self._every % _ANSWERED
        self._answers[rows, _START] = _NONE
        put_rows(self._actions, rows, actions)
        self._answers[rows, _BEGAN], self._answers[rows, _ENDED] = began, ended
        self._answers[rows, _START] = frames

    def ended(self, environment: int, start: int) -> int | None:
        """Return when the action of a decision was there, in nanoseconds; None where it is not yet."""
        answer = self._answers[environment * _ANSWERED + start // self._every % _ANSWERED]
        return int(answer[_ENDED]) if answer[_START] == start else None

    def newest(self, environment: int, start: int, after: int) -> int | None:
        """Return the newest start whose action is there, at most `start` and later than `after`; None for none."""
        every, first = self._every, environment * _ANSWERED
        oldest = max(after + 1, start - (_ANSWERED - 1) * every)
        for candidate in range(start, oldest - 1, -every):
            if self._answers[first + candidate // every % _ANSWERED, _START] == candidate:
                return candidate
        return None

    def action(self, environment: int, start: int) -> Any:
        """Return a copy of an action that is there."""
        row = environment * _ANSWERED + start // self._every % _ANSWERED
        return mapped(lambda leaf: leaf[row].copy(), self._actions)


def assure_memory(size: int, environments: int, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Refuse more shared memory than the system has.

    Raises:
        ValueError: It has less.
    """
    try:
        lines = meminfo.read_text().splitlines()
        found = {name: words.split()[0] for name, _, words in (line.partition(":") for line in lines)}
        free = 1024 * int(found["MemAvailable"])
    except (OSError, KeyError, IndexError, ValueError):  # another system
        return
    if size > free:
        raise ValueError(
            f"environments must fit into memory, got {environments}, whose observations and actions on their way take "
            f"{size / 1e9:.1f} GB of the {free / 1e9:.1f} GB that are free: take fewer, or smaller observations"
        )


def _made(array: Any, spaces: Spaces, n: int) -> tuple[Any, Any, Any, Any, Any]:
    observations, actions = spaces
    return (
        arrays_of(observations, n * _SHOWN, array),
        arrays_of(actions, n * _ANSWERED, array),
        array(np.int64, (n * _ANSWERED, 3)),
        array(np.int64, (n,)),
        array(np.int64, (1,)),
    )


def _as_batch(observation: Any) -> Any:
    """Return a batch of one."""
    if isinstance(observation, dict):
        return {key: _as_batch(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(_as_batch, observation))
    return np.asarray(observation)[None]
