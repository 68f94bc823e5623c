"""The margin loss of DQfD (Hester et al., "Deep Q-learning from demonstrations", AAAI 2018), for a student."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, agent, factory, flag, number, whole, with_gin_values
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.losses.teaching import create_linear_schedule, large_margin
from async_wrappers.agents.teaching.methods.augmentation import Augmented
from async_wrappers.agents.teaching.student import OF_LAMBDA, Student
from async_wrappers.agents.teaching.student_progress import LABEL


@agent("DQfDAgent")
class DQfD(Augmented, Student, DQN):
    """DQN with a margin by which the teacher's action should be the best, ``DQfDAgent`` in gin.

    L = TD + lambda m margin, as in reincarnating_rl: not the whole of DQfD, which has a loss on the weights and
    demonstrations among the student's transitions.
    """

    name: ClassVar[str] = "dqfd_dqn"
    learner_kind: str = "DQfDLearner"
    lacks: ClassVar[Mapping[str, str]] = {
        "learning_rate_decay": f"whose learning rate may follow lambda: {OF_LAMBDA}",
    }

    margin_coefficient: float = number(1.0, "m, the weight of the margin.", NOT_NEGATIVE)
    margin: float = number(
        0.8,
        "l, in units of the value: by how much the teacher's action should be better than another one.",
        NOT_NEGATIVE,
    )
    dqfd_margin: bool = flag(
        False, "Take the paper's maximum over the actions; False takes the mean of the positive parts over them."
    )
    use_teacher_actions: bool = flag(
        False, "Teach the teacher's greedy action; False teaches the action that was taken."
    )
    decay_period: int = whole(
        -1, "Decisions of the online phase after which lambda is 0; -1 for no such end.", -1, "decisions"
    )
    lr_decay: bool = flag(False, "Let the learning rate follow lambda; False keeps it at that of lambda = 1.")
    learning_rate_fn: Callable[[float], float] = factory(
        create_linear_schedule,
        "Returns the learning rate from lambda, the weight of the teacher's term in [0, 1].",
        "@create_linear_schedule",
    )

    def settle(self) -> None:
        super().settle()
        self.learning_rate_fn = with_gin_values(self.learning_rate_fn)

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return m times the margin, [B]."""
        q = self.values(networks.online, batch["observation"], rng)
        labels = batch["extras"][LABEL]
        actions = labels.argmax(dim=1) if self.use_teacher_actions else batch["action"]
        margin = large_margin(q, actions, self.margin, of_maximum=self.dqfd_margin)
        return LossOutput(self.margin_coefficient * margin, metrics={"MarginLoss": margin.mean()})

    def learning_rate(self) -> float:
        """Return the rate of the present lambda, or that of lambda = 1."""
        rate: float = self.learning_rate_fn(self.teaching.weight if self.lr_decay else 1.0)
        return rate
