"""What a student knows of its teacher beside its batches: labels, phases, lambda, and whose transitions it draws."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.acting.decisions import DecisionRandom
from async_wrappers.agents.losses.teaching import clipped_weight
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.spaces.schema import each_array

LABEL = "teacher_values"  # the extra that holds a transition's label


class TeachingPhase(Enum):
    """The kind of a student's iteration."""

    COLLECT = "collect"
    OFFLINE = "offline"
    ONLINE = "online"


@dataclass
class Teaching:
    """A student's progress with its teacher: all that a loss reads beside its batch.

    Attributes:
        phase: The kind of the iteration.
        weight: lambda of the teacher's term, in [0, 1].
        online_steps: Decisions of the online phase.
        rehearsed: Batches of which a part was drawn from the teacher's replay.
        horizon: The longest roll-in of an episode, where there is one.
    """

    phase: TeachingPhase = TeachingPhase.ONLINE
    weight: float = 1.0
    online_steps: int = 0
    rehearsed: int = 0
    horizon: int = 0

    def record_score(self, normalized_score: float, decay_period: int) -> None:
        """Let lambda follow the score of an online iteration; once 0 it stays 0.

        Args:
            normalized_score: 0 is random play, 1 the teacher's.
            decay_period: Decisions of the online phase after which lambda is 0; negative for no such end.
        """
        if self.phase is not TeachingPhase.ONLINE or self.weight <= 0:
            return
        over = 0 <= decay_period <= self.online_steps
        self.weight = 0.0 if over else clipped_weight(normalized_score)


class Rehearsal:
    """A source of the student's batches, in which each row is replaced by one of the teacher's with a probability.

    Rows that were drawn uniformly have weight 1 and no priority beside rows that were drawn by priority.

    Args:
        student: The student's replay.
        teacher: The teacher's.
        ratio: The probability, in [0, 1].
        teaching: Counts the batches.
        seed: Of the choice of the rows.
    """

    def __init__(self, student: Replay, teacher: Replay, ratio: float, teaching: Teaching, seed: int) -> None:
        self._student, self._teacher, self._ratio, self._teaching = student, teacher, ratio, teaching
        self._random = DecisionRandom(seed)
        self._of_student = self._of_teacher = False  # whose rows of the last batch were drawn by priority

    def sample(self) -> dict[str, Any]:
        """Return a batch of both; a row of the teacher's has the index -1, or -1 - i where it has a priority."""
        own = self._student.sample()
        rows = len(own["action"])
        others = self._teacher.sample(rows)
        self._of_student, self._of_teacher = "weight" in own, "weight" in others
        drawn = self._random.draw(0, self._teaching.rehearsed, eval_mode=False).random(rows)
        self._teaching.rehearsed += 1
        of_teacher = drawn < self._ratio
        without = {"weight": np.ones(rows, np.float32), "probability": np.ones(rows)}
        index = -1 - others["index"] if self._of_teacher else np.full(rows, -1)
        names = dict.fromkeys([*own, *without]) if self._of_teacher else own
        mine, theirs = {**without, **own}, {**without, **others, "index": index}
        return {name: _where(of_teacher, theirs[name], mine[name]) for name in names}

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int | None = None) -> dict[str, Any]:
        """Return the number of the student's transitions."""
        return self._student.transitions(slots, update_horizon)

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Set the priorities of the replays that draw by priority."""
        indexes, priorities = np.asarray(index), np.asarray(priority)
        own = indexes >= 0
        if self._of_student:
            self._student.set_priorities(indexes[own], priorities[own])
        if self._of_teacher:
            self._teacher.set_priorities(-1 - indexes[~own], priorities[~own])


def _where(chosen: npt.NDArray[np.bool_], one: Any, other: Any) -> Any:
    """Return the rows of `one` where they are chosen, and of `other` where not, of arrays or dicts of arrays."""

    def of_arrays(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
        mask = chosen.reshape(-1, *[1] * (second.ndim - 1))
        return np.where(mask, first, second).astype(second.dtype, copy=False)

    return each_array(of_arrays, one, other)


def without_teacher(name: str) -> str:
    """Return the message that refuses a student without a teacher."""
    return (
        f"agent {name!r} learns from a teacher, in phases: bind create_runner.schedule = 'reincarnation' (or 'vector', "
        "'hosts', 'realtime'), and RunnerWithTeacher.teacher_checkpoint_dir"
    )
