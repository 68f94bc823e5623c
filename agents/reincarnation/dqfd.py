"""The margin loss of DQfD (Hester et al., "Deep Q-learning from demonstrations", AAAI 2018), for a student."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np

from async_wrappers.agents.learner import Batch, LossOutput, Networks
from async_wrappers.agents.losses.teaching import large_margin
from async_wrappers.agents.reincarnation.augmentation import Augmented
from async_wrappers.agents.reincarnation.student import LABEL, Student, create_linear_schedule
from async_wrappers.agents.spec import check_at_least, check_flags, check_numbers, with_gin_values
from async_wrappers.agents.value_based.dqn import DQN

__all__ = ["DQfD"]


@gin.configurable("DQfDAgent", module="agents")
class DQfD(Augmented, Student, DQN):
    """DQN with a margin by which the teacher's action is to be the best, ``DQfDAgent`` in gin.

    L = TD + lambda m margin, as in reincarnating_rl: not the whole of DQfD, which has a loss on the weights and
    demonstrations among the student's transitions.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        margin_coefficient: m.
        margin: l of an action that is not the teacher's.
        dqfd_margin: The paper's maximum over the actions; False for the mean of the positive parts.
        use_teacher_actions: The teacher's action is its greedy one; False for the action that was taken.
        decay_period: Decisions of the online phase after which lambda is 0; -1 for no such end.
        lr_decay: Let the learning rate follow lambda; False keeps it at that of lambda = 1.
        learning_rate_fn: From lambda to the learning rate.
        shared: Those of `DQN`, `Student` and `Augmented`: `teacher_replay_scheme` and `data_augmentation`.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "dqfd_dqn"
    learner_kind: str = "DQfDLearner"
    decides_learning_rate: ClassVar[str | None] = (
        "whose learning rate may follow lambda: bind create_linear_schedule.initial_lr and final_lr"
    )

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        margin_coefficient: float = 1.0,
        margin: float = 0.8,
        dqfd_margin: bool = False,
        use_teacher_actions: bool = False,
        decay_period: int = -1,
        lr_decay: bool = False,
        learning_rate_fn: Callable[[float], float] = create_linear_schedule,
        **shared: Any,
    ) -> None:
        """See the class."""
        check_numbers(margin_coefficient=margin_coefficient, margin=margin)
        for name, value in (("margin_coefficient", margin_coefficient), ("margin", margin)):
            if value < 0:
                raise ValueError(f"{name} must be >= 0, got {value}")
        check_flags(dqfd_margin=dqfd_margin, use_teacher_actions=use_teacher_actions, lr_decay=lr_decay)
        check_at_least("decay_period", decay_period, -1, "decisions")
        super().__init__(observation_space, action_space, decay_period=decay_period, **shared)
        self._margin_coefficient, self._margin, self._of_maximum = margin_coefficient, margin, dqfd_margin
        self._use_teacher_actions, self._lr_decay = use_teacher_actions, lr_decay
        self._learning_rate_fn = with_gin_values(learning_rate_fn)

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return m times the margin, [B]."""
        q = self.values(networks.online, batch["observation"], rng)
        labels = batch["extras"][LABEL]
        actions = labels.argmax(dim=1) if self._use_teacher_actions else batch["action"]
        margin = large_margin(q, actions, self._margin, of_maximum=self._of_maximum)
        return LossOutput(self._margin_coefficient * margin, metrics={"MarginLoss": margin.mean()})

    def learning_rate(self) -> float:
        """Return the rate of the present lambda, or that of lambda = 1."""
        rate: float = self._learning_rate_fn(self.teaching.weight if self._lr_decay else 1.0)
        return rate
