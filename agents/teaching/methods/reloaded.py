"""Fine-tuning: a student that begins with its teacher's state, and continues as DQN."""

from __future__ import annotations

from typing import ClassVar

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.hyperparameters import agent, flag
from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.teaching.methods.augmentation import Augmented
from async_wrappers.agents.teaching.student import Student
from async_wrappers.agents.teaching.student_lessons import StudentsLessons
from async_wrappers.agents.teaching.teacher import Teacher


@agent("ReloadedDQNAgent")
class ReloadedDQN(Augmented, Student, DQN):
    """DQN that begins with its teacher's weights, target network, optimiser and replay, ``ReloadedDQNAgent`` in gin."""

    name: ClassVar[str] = "reloaded_dqn"
    learner_kind: str = "ReloadedDQNLearner"
    labelled: ClassVar[bool] = False
    follows_score: bool = False

    reload_optimizer: bool = flag(True, "Begin with the moments of the teacher's optimiser; False for none.")
    load_replay: bool = flag(True, "Begin with the teacher's replay; False for an empty one.")

    def settle(self) -> None:
        super().settle()
        self.reloads_replay = self.load_replay

    def teacher_weight(self) -> float:
        """Return 0: the loss is that of DQN."""
        return 0.0

    def reload(self, lessons: StudentsLessons, teacher: Teacher) -> None:
        """Load the state of the teacher's learner.

        Raises:
            ValueError: The teacher is of another network or optimiser, or has no replay.
        """
        here, there = lessons.optimizer_name, teacher.optimizer_name
        refuse({"another optimiser": here != there}, vars(self), here=here, there=there)
        state = teacher.state()
        try:
            lessons.begin_as(state, optimizer=self.reload_optimizer)
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{teacher.source} must be of the network of its student, which begins as it: {error}"
            ) from None
        if self.reloads_replay:
            for demonstration in teacher.demonstrations():
                for transition, _ in demonstration.transitions():
                    lessons.remember({**transition, "action": transition["action"] + self.first_action})
