"""What a student is taught by, and what its teacher says of decisions, as they travel between processes.

The teacher's part in an agent is `async_wrappers.agents.teaching.student_lessons.StudentsLessons`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from async_wrappers.needs import Words


class Advice(NamedTuple):
    """What a teacher says of R decisions.

    Attributes:
        extras: What the transitions of these decisions carry for the learner, [R, ...] by name.
        guided: Of which decisions the teacher chooses the action, [R]; None for none.
        action: The teacher's choices, as the environment numbers actions, [R]; None where nobody asks for them.
    """

    extras: Mapping[str, npt.NDArray[Any]] = {}  # never changed
    guided: npt.NDArray[np.bool_] | None = None
    action: npt.NDArray[np.int64] | None = None


class Lesson(NamedTuple):
    """What a student is taught by; it travels to other processes.

    Attributes:
        teacher: Has values of what it reads (`async_wrappers.agents.teaching.teacher.FrozenTeacher`).
        view: Shows it that (`async_wrappers.agents.teaching.teacher_view.Viewpoint`).
        reads_alike: Whether it reads what the student reads, when a decision starts.
        keeps_replay: Whether its transitions are learnt from.
        collects: Whether it plays for them.
        label_at: ``"start"`` or ``"effect"``: the frame whose observation is labelled.
    """

    teacher: Any
    view: Any = None
    reads_alike: bool = False
    keeps_replay: bool = False
    collects: bool = False
    label_at: str = "start"

    @property
    def needs(self) -> Mapping[str, Any]:
        """What a way of playing must offer, by the settings that need it (`async_wrappers.agents.needs_and_offers`)."""
        replay = "RunnerWithTeacher.teacher_steps, num_pretraining_iterations and teacher_data_ratio"
        return {replay: Words("a replay of the teacher's")} if self.keeps_replay else {}
