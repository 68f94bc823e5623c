"""A block: what a host has played, whole, and how a learner takes it in.

A host plays T decisions of each of its n environments. Each call of `BatchedEnvs.recv` is a *step* of the block, with
the transitions that became known, as `actor.Actor` passes them on, and the rows that wait for the next decision. The
learner takes the same steps in the same order, with the updates between them that it would make if it played itself.

All arrays of a kind are put end to end, so that a block is a few large arrays however many steps it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.play.actor import Ended, Receiver
from async_wrappers.agents.spaces.schema import each_array
from async_wrappers.array_libraries import on_host

_BY_ENVIRONMENT = ("final", "final_priority")  # columns by the environments whose episode ended


class BlockOrder(NamedTuple):
    """What a host is to play.

    Attributes:
        cut: Whether all episodes are cut, in the place of decisions.
        progress: Of a student, where there is one (`StudentsGuide.follow`).
    """

    cut: bool = False
    progress: Mapping[str, Any] | None = None


class BlockStep(NamedTuple):
    """A step of a block, in numbers.

    Attributes:
        extends: Calls of `Receiver.extend`.
        cuts: Calls of `Receiver.cut`, after these.
        waiting: Rows that wait for the next decision.
        applied: Actions that took effect.
        frames: Frames that the host's environments have played in all.
        ended: Episodes that are over.
    """

    extends: int
    cuts: int
    waiting: int
    applied: int
    frames: int
    ended: int


class PlayedBlock(NamedTuple):
    """What a host has played between two orders of the learner.

    Attributes:
        host: The host's number.
        incarnation: How often the host was started before, in all sessions of a run.
        number: Of the block, counted by this incarnation.
        version: Updates of the weights that played it.
        decisions: Made in it.
        begins: Whether new episodes begin in all environments before the first step.
        cut: Whether all episodes are cut in it.
        steps: int64 [S, 6], as `BlockStep`.
        extends: int64 [E], rows of each call of `extend`.
        columns: Of all these rows, as `Replay.extend` takes them; empty where there are none.
        of_ends: By column name, the environments, and their arrays, of which each call has as many as `end_counts`.
        end_counts: By column name, int64 [E].
        cuts: The environments of all calls of `cut`, and the observations.
        ended: The episodes that are over.
        rows: `RunningEpisodes.counts` after the block.
        timings: Seconds by the name of a part of training, and "Block", of the whole.
    """

    host: int
    incarnation: int
    number: int
    version: int
    decisions: int
    begins: bool
    cut: bool
    steps: npt.NDArray[np.int64]
    extends: npt.NDArray[np.int64]
    columns: Mapping[str, Any]
    of_ends: Mapping[str, tuple[npt.NDArray[np.int64], Any]]
    end_counts: Mapping[str, npt.NDArray[np.int64]]
    cuts: tuple[npt.NDArray[np.int64], Any]
    ended: Sequence[Ended]
    rows: Mapping[str, npt.NDArray[Any]]
    timings: Mapping[str, float]

    @property
    def key(self) -> tuple[int, int, int]:
        """By which a block is known: no learner learns from two of the same key."""
        return self.host, self.incarnation, self.number

    def pass_to(self, transitions: Receiver) -> Iterator[tuple[BlockStep, Sequence[Ended]]]:
        """Pass a step's transitions on, then yield the step and the episodes that are over with it; and so for all."""
        extend, row, cut, over = 0, 0, 0, 0
        at_end = dict.fromkeys(self.of_ends, 0)
        for numbers in self.steps.tolist():
            step = BlockStep(*numbers)
            for call in range(extend, extend + step.extends):
                rows = slice(row, row + int(self.extends[call]))
                block = {name: each_array(partial(_some, rows=rows), each) for name, each in self.columns.items()}
                for name, (env_ids, values) in self.of_ends.items():
                    first = at_end[name]
                    at_end[name] = last = first + int(self.end_counts[name][call])
                    each = range(first, last)
                    block[name] = {int(env_ids[i]): each_array(partial(_some, rows=i), values) for i in each}
                transitions.extend(block)
                row = rows.stop
            extend += step.extends
            for call in range(cut, cut + step.cuts):
                transitions.cut(each_array(partial(_some, rows=call), self.cuts[1]), int(self.cuts[0][call]))
            cut += step.cuts
            yield step, self.ended[over : over + step.ended]
            over += step.ended


class BlockRecorder:
    """Records what an actor passes on, and makes blocks of it.

    Args:
        first_env: Number of the actor's first environment among all that a learner learns from.
    """

    def __init__(self, first_env: int) -> None:
        self._first = first_env
        self._begin()

    def _begin(self) -> None:
        self._extends: list[dict[str, Any]] = []
        self._cuts: list[tuple[int, Any]] = []
        self._steps: list[BlockStep] = []
        self._ended: list[Ended] = []
        self._counted = 0, 0  # calls that a step has counted

    def extend(self, block: Mapping[str, Any]) -> None:
        columns = {name: each_array(np.array, on_host(each)) for name, each in block.items()}
        self._extends.append({**columns, "env_ids": columns["env_ids"] + self._first})

    def cut(self, observation: Any, env_id: int) -> None:
        self._cuts.append((env_id + self._first, each_array(np.array, on_host(observation))))

    def step(self, waiting: int, applied: int, frames: int, ended: Sequence[Ended]) -> None:
        """End a step."""
        extends, cuts = self._counted
        self._counted = len(self._extends), len(self._cuts)
        step = BlockStep(self._counted[0] - extends, self._counted[1] - cuts, waiting, applied, frames, len(ended))
        self._steps.append(step)
        self._ended += [each._replace(env_id=each.env_id + self._first) for each in ended]

    def take(self) -> dict[str, Any]:
        """Return what was recorded, as a `PlayedBlock` has it, and begin anew."""
        each = self._extends
        names = [name for name in each[0] if name not in _BY_ENVIRONMENT] if each else []
        of_ends, end_counts = {}, {}
        for name in _BY_ENVIRONMENT:
            if each and name in each[0]:
                found = [(env_id + self._first, one) for block in each for env_id, one in block[name].items()]
                end_counts[name] = np.array([len(block[name]) for block in each], np.int64)
                of_ends[name] = _stacked(found)
        taken = {
            "steps": np.array(self._steps, np.int64).reshape(-1, len(BlockStep._fields)),
            "extends": np.array([len(block["env_ids"]) for block in each], np.int64),
            "columns": {name: each_array(_joined, *(block[name] for block in each)) for name in names},
            "of_ends": of_ends,
            "end_counts": end_counts,
            "cuts": _stacked(self._cuts),
            "ended": self._ended,
        }
        self._begin()
        return taken


def _some(array: npt.NDArray[Any], rows: Any) -> Any:
    return array[rows]


def _joined(*arrays: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate(arrays)


def _stacked(pairs: Sequence[tuple[int, Any]]) -> tuple[npt.NDArray[np.int64], Any]:
    """Return the environments of pairs, and their trees of arrays as one tree."""
    env_ids = np.array([env_id for env_id, _ in pairs], np.int64)
    return env_ids, each_array(lambda *arrays: np.stack(arrays), *(tree for _, tree in pairs)) if pairs else {}
