"""What an agent asks of its teacher, wherever it plays: a few places in acting and learning, all named here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers.policy import Decision

TEACHER = "teacher"  # the part of a shown observation that a teacher reads


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
        teacher: Has values of what it reads (`async_wrappers.agents.teaching.progress.Teaches`).
        view: Shows it that (`async_wrappers.agents.teaching.view.Viewpoint`).
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


class Guide(Protocol):
    """The half of a teacher's part that acts: it labels decisions, and makes some of them.

    Attributes:
        shown: Whether what the teacher reads comes with the observations of many environments (`ShowTeacher`);
            elsewhere it reads what the student reads.
    """

    @property
    def shown(self) -> bool:
        """See the class."""

    def advise(self, decisions: Sequence[Decision], numbers: Sequence[int], view: Callable[[], Any]) -> Advice:
        """Return what the teacher says of R decisions, when they are made.

        Args:
            decisions: R of them.
            numbers: The number of each in its episode, from 0.
            view: Returns what the teacher reads of the observations from which they start, [R, k, *shape].
        """

    def on_landing(self, view: Callable[[], Any]) -> Mapping[str, npt.NDArray[Any]]:
        """Return what the transitions of R decisions carry beside that, once their actions have landed.

        Args:
            view: Returns what the teacher reads of the frames on which they landed, [R, k, *shape].
        """

    def apart(self) -> Guide:
        """Return a copy whose progress is its own, for a host."""

    def progress(self) -> Mapping[str, Any]:
        """Return the student's progress, for `follow`, and for learners in other processes."""

    def follow(self, progress: Mapping[str, Any]) -> None:
        """Take over the progress of the learner."""

    @staticmethod
    def view_in(realtime: Mapping[str, Any] | None, name: str) -> Any:
        """Return what the teacher reads, [1, k, *shape], from the info under a name of ``info["realtime"]``."""


class Lessons(Protocol):
    """A teacher's part in an agent that learns; an agent without a teacher has none.

    Attributes:
        guide: The half that acts.
        collects: Whether the teacher plays, and nothing is learnt.
        labels_alone: Whether all that the teacher gives are labels: it neither acts nor leaves its own state.
        changes: Whether the weight of its term in the loss may change.
    """

    @property
    def labels_alone(self) -> bool:
        """See the class."""

    @property
    def changes(self) -> bool:
        """See the class."""

    @property
    def guide(self) -> Guide:
        """See the class."""

    @property
    def collects(self) -> bool:
        """See the class."""

    def check(self) -> None:
        """Refuse to play in training without a teacher, with a ValueError."""

    def set_teacher(self, lesson: Lesson, lanes: int = 1) -> None:
        """Learn from this teacher, which collects in a number of environments."""

    def maker_of_learners(self, spec: Any, make_learner: Callable[..., Any]) -> Callable[..., Any]:
        """Return a factory of learners that make labels when they draw a batch, for other processes too.

        Args:
            spec: Of the student, of which `make_learner` makes learners.
            make_learner: Makes one. Those that are made are also told of the student's progress, by ``tell(progress)``.
        """

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Take a transition of the only environment."""

    def extend(self, block: Mapping[str, Any]) -> None:
        """Take transitions of many environments; see `async_wrappers.agents.play.many.actor.Transitions`."""

    def cut(self, observation: Any, env_id: int) -> None:
        """Take the last observation of an episode that ended without a further transition."""

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End the running episodes, of all environments or of some, whose continuation is not known."""

    def note_decisions(self, number: int) -> None:
        """Count decisions of training that are about to be made, those of a teacher that collects left out."""

    def summary(self) -> Mapping[str, float]:
        """Return the values that are reported beside the scalars of an update."""

    def learn_offline(self) -> None:
        """Do one update on the teacher's replay."""

    def save(self, directory: Path, number: int) -> dict[str, Any]:
        """Write the teacher's replay, and return the entries of a checkpoint."""

    def load(self, directory: Path, number: int, bundle: Mapping[str, Any]) -> None:
        """Restore what `save` wrote and returned."""

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Delete the files under other numbers than those in `keep`."""
