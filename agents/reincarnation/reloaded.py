"""Fine-tuning: a student that begins as its teacher is, and goes on as DQN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import gin
import gymnasium as gym

from async_wrappers.agents.reincarnation.augmentation import Augmented
from async_wrappers.agents.reincarnation.student import ReincarnatedAgent, Student
from async_wrappers.agents.spec import check_flags
from async_wrappers.agents.value_based.dqn import DQN

if TYPE_CHECKING:
    from async_wrappers.agents.reincarnation.teacher import Teacher

__all__ = ["ReloadedDQN"]


@gin.configurable("ReloadedDQNAgent", module="agents")
class ReloadedDQN(Augmented, Student, DQN):
    """DQN that begins with its teacher's weights, target network, optimiser and replay, ``ReloadedDQNAgent`` in gin.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        reload_optimizer: Begin with the moments of the teacher's optimiser; False for none.
        load_replay: Begin with the teacher's replay; False for an empty one.
        shared: Those of `DQN`, `Student` and `Augmented`: `data_augmentation`.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "reloaded_dqn"
    learner_kind: str = "ReloadedDQNLearner"
    labelled: ClassVar[bool] = False
    follows_score: bool = False

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        reload_optimizer: bool = True,
        load_replay: bool = True,
        **shared: Any,
    ) -> None:
        """See the class."""
        check_flags(reload_optimizer=reload_optimizer, load_replay=load_replay)
        super().__init__(observation_space, action_space, **shared)
        self._reload_optimizer, self.reloads_replay = reload_optimizer, load_replay

    def teacher_weight(self) -> float:
        """Return 0: the loss is that of DQN."""
        return 0.0

    def reload(self, agent: ReincarnatedAgent, teacher: Teacher) -> None:
        """Take over the teacher's learner.

        Raises:
            ValueError: The teacher is of another network or optimiser, or has no replay.
        """
        here, there = agent.learner.optimizer_name, teacher.optimizer_name
        if self._reload_optimizer and here != there:
            raise ValueError(
                f"reload_optimizer must be False where the teacher's optimiser is {there} and its student's {here}, "
                "got True"
            )
        try:
            agent.reload(teacher.state(), optimizer=self._reload_optimizer)
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{teacher.source} must be of the network of its student, which begins as it: {error}"
            ) from None
        if self.reloads_replay:
            for demonstration in teacher.demonstrations():
                for transition, _ in demonstration.transitions():
                    action = transition["action"] + self.first_action
                    agent.learner.observe({**transition, "action": action})
